"""Make tables without small cells, and records that tabulate to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, TypedDict, Unpack

from safeswap.files.formats import ReadingOptions
from safeswap.measures.table_check import TableCheck, check_programme
from safeswap.methods.safe.spec import SafeSpec, SafeTables
from safeswap.model.checked import Default, check_types, select_stated
from safeswap.model.masked import Masked
from safeswap.model.options import Randomness

Tables = str | Sequence[str] | Sequence[Sequence[str]] | Sequence[str | Sequence[str]]


class TableRules(TypedDict, total=False):
    """Options for making a table safe: the objective, its limits, and the solver with its time limit."""

    objective: Annotated[str, Default("total")]
    weights: Annotated[Any, Default(None)]
    bounds: Annotated[Any, Default(None)]
    structural_zeros: Annotated[Any, Default(None)]
    soft: Annotated[bool, Default(value=False)]
    solver: Annotated[str, Default("auto")]
    time_limit: Annotated[float, Default(30.0)]


class SafeTableOptions(TableRules, ReadingOptions, total=False):
    """The rules for the table, and how a file with counts is read."""


@check_types
def safe_table(
    counts: Any,
    tolerance: int | Any = 3,  # an invalid tolerance has its own error
    *,
    keep: Any = None,
    attributes: Any = None,
    names: Sequence[str] | None = None,
    count: str = "count",
    **options: Unpack[SafeTableOptions],
) -> SafeTables:
    """Change a table of counts as little as possible so that every cell is 0 or at least ``tolerance``.

    ``counts`` is an array, a table in long form (dataframe or file, the counts in the column ``count``), a
    :class:`~safeswap.model.table.CountTable`, a :class:`~safeswap.model.table.Programme` or list of such tables, or
    microdata together with the ``attributes`` to tabulate (a list of lists makes several linked tables).

    The margins in ``keep`` stay exact, by default all (n−1)-way ones; given as a mapping with their counts, they are
    checked first. ``objective`` is what to minimise: the "total" change, the "largest" change, or the "weighted" one.
    ``bounds`` is a lower and an upper limit per cell; ``structural_zeros`` (a mask, a list, "all") stay 0. If no such
    table exists, an :class:`~safeswap.errors.InfeasibleError` says why; with ``soft`` the margins deviate as little as
    possible instead, and the result lists where.

    >>> table = [[19, 10, 10, 15], [4, 10, 10, 1], [11, 14, 8, 2], [15, 1, 2, 2]]
    >>> result = safe_table(table, 5)
    >>> result.total, result.largest, result.status
    (14, 3, 'optimal')
    """
    from safeswap.methods.safe.problem import table_problems
    from safeswap.methods.safe.table import Terms, safe_programme
    from safeswap.projects.tables import count_tables

    objective, soft = options["objective"], options["soft"]
    terms = Terms(objective=objective, solver=options["solver"], soft=soft, time_limit=options["time_limit"])  # type: ignore[arg-type]
    reading = select_stated(options, ReadingOptions)
    programme, origin = count_tables(counts, attributes=attributes, names=names, count=count, reading=reading)
    problems = table_problems(
        programme.tables,
        tolerance=tolerance,
        keep=keep,
        objective=objective,
        weights=options["weights"],
        bounds=options["bounds"],
        structural_zeros=options["structural_zeros"],
        soft=soft,
    )
    return replace(safe_programme(programme, problems, terms), origin=origin)


@check_types
def safe_records(
    data: Any,
    tables: Tables,
    tolerance: int | Any = 3,  # an invalid tolerance has its own error
    *,
    keep: Tables = (),
    search: str = "thorough",
    time_limit: float = 600.0,
    **secret: Unpack[Randomness],
) -> Masked:
    """Change the fewest records so that in all ``tables`` together every cell is 0 or at least ``tolerance``.

    A table is a list of attributes, ``tables`` one or several of them. The margins in ``keep`` stay exact. Changing one
    value of a record is preferred to two, and a near level to a far one; the secret key breaks ties. If no such records
    exist, or none were found, an :class:`~safeswap.errors.InfeasibleError` says which. After ``time_limit`` seconds the
    search for better records stops; the facts of the result say whether that happened, how many records changed and how
    many must. It is not a swap: the facts also name the univariate margins that changed.

    >>> from safeswap import datasets
    >>> tables = [["Race", "EmpTyp", "MS", "Edu", "Age"], ["AnnSal", "Sex", "Edu", "Race"]]
    >>> masked = safe_records(datasets.cps8d(), tables, 5, keep=[["Sex"], ["Race"]], insecure_seed=1)
    >>> check_tables(masked.data, tables, 5).is_safe
    True
    """
    from safeswap.model.table import check_tolerance
    from safeswap.projects.tables import table_names
    from safeswap.workflow.masking import mask

    check_tolerance(tolerance)
    spec = SafeSpec(
        tables=tuple(table_names(tables)),
        keep=_margins(keep),
        tolerance=int(tolerance),
        search=search,
        time_limit=time_limit,
    )
    return mask(data, spec, **secret)


@check_types
def check_tables(
    data: Any,
    tables: Tables | None = None,
    tolerance: int | Any = 3,  # an invalid tolerance has its own error
    *,
    margins: bool = True,
    names: Sequence[str] | None = None,
    count: str = "count",
    **reading: Any,
) -> TableCheck:
    """Find the cells of tables that are below tolerance, and those that can be derived from the published counts.

    ``data`` is microdata, with ``tables`` to count (each a list of attributes), or tables of counts as
    :func:`safe_table` takes them. The assumption is that all counts are published, including the tables' ``margins``,
    except those above 0 and below ``tolerance``, and that this rule is known: a withheld count is at least 1 and below
    ``tolerance``. Bounds come from interval propagation through all sums and, if few cells are open, from integer
    programmes; the result says which, and whether its bounds are exact. Totals are shown; its method ``write`` writes
    the cells, for internal use.

    >>> check_tables([[1, 4], [6, 9]], tolerance=3).derived
    1
    """
    from safeswap.projects.tables import count_tables

    programme, _ = count_tables(data, attributes=tables, names=names, count=count, reading=reading)
    return check_programme(programme, tolerance=tolerance, margins=margins)


def _margins(keep: Any) -> tuple[tuple[str, ...], ...]:
    """Return margins as tuples of names; a single name is a margin by itself."""
    parts = (keep,) if isinstance(keep, str) else tuple(keep or ())
    return tuple((part,) if isinstance(part, str) else tuple(part) for part in parts)
