"""Find combinations of keys that too few records share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safeswap.errors import SpecError
from safeswap.model.checked import check_types
from safeswap.model.masked import Masked
from safeswap.workflow.reading import _frame_type, read

if TYPE_CHECKING:
    from safeswap.measures.risk.risky import Risky


@check_types
def risky(data: Any, combinations: Any = None, **parameters: Any) -> Risky:
    """Find every combination of keys that too few records share.

    ``combinations`` is a list of lists of names, a :class:`~safeswap.model.combination.Combinations`, or its values as
    a mapping. The ``parameters`` are those of Combinations: ``keys`` for every combination of up to all of them, or of
    at most ``up_to``, ``levels`` for ARGUS's identification levels; ``tolerance`` (unsafe: fewer) or ``threshold``
    (unsafe: that many or fewer); the meaning of a ``missing`` value ("none": matches nothing, "own": is a value,
    "any": could be any value of its record, "vouching": matches all and counts for others); ``weight`` to sum an
    attribute instead of counting records. Of a masking, the masked file is examined.

    The result shows totals; ``to_frame`` returns them as dataframes of the caller's type, and for internal use also
    the unsafe values and the records behind them.

    >>> from safeswap import datasets
    >>> found = risky(datasets.cps8d(), keys=["Age", "Edu", "Race", "MS"])
    >>> found.by_dimension, found.to_frame("keys").column_names
    ({1: 0, 2: 0, 3: 0, 4: 2}, ['key', 'records', 'safe_without'])
    >>> risky(datasets.cps8d(), [("Age", "Sex"), ("Race",)], threshold=2).unsafe
    0
    """
    from safeswap.measures.risk.risky import risky as find
    from safeswap.model.combination import Combinations, as_combinations

    if combinations is None:
        asked = Combinations(**parameters)
    elif not parameters:
        asked = as_combinations(combinations)
    elif isinstance(combinations, list | tuple):
        asked = Combinations(combinations=tuple(combinations), **parameters)
    else:
        kind = "mapping" if isinstance(combinations, Mapping) else "Combinations"
        raise SpecError(
            f"give a {kind} or parameters, not both",
            code="bad-spec",
            hint="a list of combinations may go with parameters",
        )
    source = read(data.data if isinstance(data, Masked) else data)
    return replace(find(source, asked), frame_type=_frame_type(source))
