"""Tables without small cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from safeswap.model.safe_result import SafeTables


def safe_table(
    counts: Any,
    tolerance: int = 3,
    *,
    keep: Any = None,
    objective: str = "total",
    weights: Any = None,
    bounds: Any = None,
    structural_zeros: Any = None,
    soft: bool = False,
    solver: str = "auto",
    time_limit: float = 30.0,
    attributes: Any = None,
    names: Sequence[str] | None = None,
    count: str = "count",
    **reading: Any,
) -> SafeTables:
    """Change a table of counts as little as possible so that every cell is 0 or at least ``tolerance``.

    ``counts`` is an array, a table in long form (dataframe or file, the counts in the column ``count``), a
    :class:`~safeswap.model.table.CountTable`, a :class:`~safeswap.model.table.Programme` or list of such tables, or
    microdata together with the ``attributes`` to tabulate (a list of lists makes several linked tables).

    The margins in ``keep`` are exact, by default all (n−1)-way ones; with their figures, as a mapping, they are checked
    first. What is made small is the ``objective``: the "total" change, the "largest" change, or the "weighted" one.
    ``bounds`` is a lower and an upper limit per cell; ``structural_zeros`` (a mask, a list, "all") stay 0. Where no
    such table exists an :class:`~safeswap.errors.InfeasibleError` says why; with ``soft`` the margins are off by the
    least possible instead, and the result lists where.

    >>> table = [[19, 10, 10, 15], [4, 10, 10, 1], [11, 14, 8, 2], [15, 1, 2, 2]]
    >>> result = safe_table(table, 5)
    >>> result.total, result.largest, result.status
    (14, 3, 'optimal')
    """
    from safeswap.io.long_tables import count_tables
    from safeswap.methods.safe_linked import safe_programme
    from safeswap.methods.safe_problem import table_problems
    from safeswap.methods.safe_table import Terms

    terms = Terms(objective=objective, solver=solver, soft=soft, time_limit=time_limit)  # type: ignore[arg-type]
    programme, origin = count_tables(counts, attributes=attributes, names=names, count=count, reading=reading)
    problems = table_problems(
        programme.tables,
        tolerance=tolerance,
        keep=keep,
        objective=objective,
        weights=weights,
        bounds=bounds,
        structural_zeros=structural_zeros,
    )
    return replace(safe_programme(programme, problems, terms), origin=origin)
