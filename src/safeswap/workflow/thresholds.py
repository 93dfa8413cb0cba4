"""A threshold of risk: find the records above it, and blank or swap until none is left there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

import numpy as np

from safeswap.errors import InfeasibleError, SpecError
from safeswap.model.checked import check_types
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.text import plural
from safeswap.workflow.masking import mask
from safeswap.workflow.reading import read

_GROWTH = 1.3
_FIRST = 1e6
"""Records above the threshold are so many times as likely to be drawn: they come first."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Below:
    """A masking that leaves no record above a threshold of risk, and how many there were.

    ``masked.spec`` is the specification that was found: with the same key it gives the same records anywhere.
    """

    masked: Masked
    threshold: float
    above: int

    @property
    def sentence(self) -> str:
        """What was done, in words."""
        how = "blanking values" if self.masked.spec.method == "suppress" else "swapping them first"
        return f"{plural(self.above, 'record')} had a risk above {self.threshold:g}; after {how} none has."

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        spec = self.masked.spec.as_dict()
        return {"threshold": self.threshold, "above": self.above, "spec": spec, "sentence": self.sentence}


@check_types
def mask_below(
    data: Any,
    keys: Sequence[str],
    *,
    threshold: float,
    by: Literal["suppress", "swap"] = "suppress",
    swap: Sequence[str] = (),
    fixed: Sequence[str] = (),
    weight: str | None = None,
    **secret: Any,
) -> Below:
    """Blank or swap as little as brings every record below a threshold of risk.

    The risk is that of :func:`~safeswap.measures.risk.individual_risk.record_risks`: one over the number of people who
    share the keys, or its estimate if a survey weight is given. With ``by="suppress"`` values of the keys are blanked,
    at the smallest tolerance that suffices. With ``by="swap"`` the keys in ``swap`` are exchanged, records above the
    threshold first, at the smallest rate that suffices: whoever looks up a record above the threshold then finds
    somebody else's, since at least one of its keys is not its own. ``secret`` is ``key`` or ``insecure_seed``.

    >>> import safeswap as ss
    >>> keys = ["Age", "Edu", "Race", "MS"]
    >>> found = mask_below(ss.datasets.cps8d(), keys, threshold=0.2, by="swap", swap=["Race"], insecure_seed=1)
    >>> found.above > 0, found.masked.audit.method
    (True, 'swap')
    """
    if not 0 < threshold <= 1:
        raise SpecError("a threshold of risk is above 0 and at most 1", code="bad-spec", hint="threshold=0.1")
    strange = [name for name in swap if name not in keys]
    if by == "swap" and (not swap or strange):
        raise SpecError(
            f"{strange[0]!r} is no key: exchanging it hides nobody" if strange else "name the keys to exchange",
            code="bad-spec",
            hint='swap=["Race"], some of the keys',
        )
    source = read(data)
    above, smallest = _find_above(source, keys, threshold, weight)
    tried = _suppressions(source, keys, threshold, weight) if by == "suppress" else _swaps(source, above, smallest)
    more = {} if by == "suppress" else {"keys": tuple(keys), "swap": tuple(swap), "fixed": tuple(fixed)}
    for make_spec in tried:
        masked = mask(source, make_spec(**more), **secret)
        if not _count_left(masked, keys, threshold, weight):
            return Below(masked=masked, threshold=threshold, above=above)
    raise InfeasibleError(
        "no tolerance brings every record below the threshold"
        if by == "suppress"
        else "no feasible rate reaches every record above the threshold",
        code="risk-stays",
        hint="recode the keys first, or allow a higher risk",
        threshold=threshold,
    )


def suppress_below(
    data: Any, keys: Sequence[str], *, threshold: float, weight: str | None = None, **secret: Any
) -> Masked:
    """Blank the fewest values for the smallest tolerance at which no record's risk exceeds the threshold."""
    return mask_below(data, keys, threshold=threshold, weight=weight, **secret).masked


def _find_above(data: Microdata, keys: Sequence[str], threshold: float, weight: str | None) -> tuple[int, int]:
    """Return how many records are above the threshold, and the size from which on every cell is below it."""
    from safeswap.measures.risk.individual_risk import record_risks

    risks = record_risks(data, keys, weight=weight)
    over = risks.risks > threshold
    return risks.above(threshold), int(risks.cells.like[over].max(initial=0)) + 1


def _suppressions(
    data: Microdata, keys: Sequence[str], threshold: float, weight: str | None
) -> Iterator[Callable[..., dict[str, Any]]]:
    # Without weights the risk of a cell of F records is 1/F; with them it is smaller.
    tolerance = 2 if weight is not None else max(2, ceil(1 / threshold - 1e-12))
    while tolerance <= max(2, len(data)):
        stated = {"method": "suppress", "combinations": [list(keys)], "tolerance": tolerance}
        yield lambda stated=stated: stated
        tolerance = ceil(tolerance * _GROWTH)


def _swaps(data: Microdata, above: int, smallest: int) -> Iterator[Callable[..., dict[str, Any]]]:
    """Yield swaps of growing numbers of pairs, from as few as could reach everyone above the threshold."""
    most = len(data) // 2
    pairs = min(most, ceil(above / 2))
    while True:

        def stated(keys: Any, swap: Any, fixed: Any, pairs: int = pairs) -> dict[str, Any]:
            targeting = {"keys": keys, "n": max(2, smallest), "weight": _FIRST}
            spec = {"method": "swap", "swap": swap, "fixed": fixed, "pairs": pairs, "on_shortfall": "take"}
            return {**spec, "targeting": targeting}

        yield stated
        if pairs in (0, most):
            return
        pairs = min(most, max(pairs + 1, ceil(pairs * _GROWTH)))


def _count_left(masked: Masked, keys: Sequence[str], threshold: float, weight: str | None) -> int:
    """Return how many released records are above the threshold and have their own keys."""
    from safeswap.measures.risk.individual_risk import record_risks
    from safeswap.model.columns import aligned_columns, flag_changes

    risks = record_risks(masked.data, keys, weight=weight)
    over = risks.risks[risks.cells.of_record] > threshold
    if masked.spec.method == "suppress":
        return int(np.count_nonzero(over))
    own = np.ones(len(masked.data), dtype=np.bool_)
    for name in keys:
        before, after = (each.table.column(name) for each in (masked.original, masked.data))
        own &= ~flag_changes(*aligned_columns(before, after))
    return int(np.count_nonzero(over & own))
