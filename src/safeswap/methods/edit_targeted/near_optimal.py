"""The order of the key variables that keeps the targeted edit's exchanges close in a continuous item.

Source: Moore 1996, section X. The last key is the one whose classes have the smallest worst-case spread of the item:
most exchanges happen between classes that differ in the last key. Given the keys chosen so far, the one before them is
chosen in the same way, over the joint classes; and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isnan

import numpy as np
import pyarrow as pa

from safeswap.arrays import bias, cells, sparse
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes
from safeswap.errors import SpecError
from safeswap.model.columns import to_numbers
from safeswap.model.microdata import Microdata

SpreadTable = Mapping[Iterable[str], float]

_SAME = 1e-9  # relative: rounding by the order of summation must not decide


@dataclass(frozen=True, kw_only=True)
class Step:
    """One figure of the procedure: the worst-case spread of the item within the classes of these keys."""

    number: int
    keys: Names
    deviation: float
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class SortOrder:
    """An order of the keys, with every figure that led to it."""

    keys: Names
    by: Names
    steps: tuple[Step, ...]

    def table(self) -> pa.Table:
        """Return the explanation as a table: one row per figure, in the order of the procedure."""
        return pa.table(
            {
                "step": pa.array([step.number for step in self.steps], pa.int64()),
                "keys": pa.array([list(step.keys) for step in self.steps], pa.list_(pa.string())),
                "deviation": pa.array([None if isnan(s.deviation) else s.deviation for s in self.steps], pa.float64()),
                "chosen": pa.array([step.chosen for step in self.steps], pa.bool_()),
            }
        )

    def __repr__(self) -> str:
        return f"<SortOrder {' by '.join(self.keys)}>"


def near_optimal_order(source: Microdata | SpreadTable, keys: Iterable[str], by: Iterable[str] | str = ()) -> SortOrder:
    """Return the near-optimal order of ``keys`` for the continuous item ``by``, from data or a table of figures.

    A table gives, for each set of keys, the largest standard deviation of the item within one of its classes. Several
    items count equally: each deviation is taken relative to the item's own in the whole file, and averaged. Classes of
    one record have no deviation; a set of keys without any other class comes after those that have some.

    >>> figures = {
    ...     ("REGION",): 405,
    ...     ("YR_BLT",): 469,
    ...     ("BEDS",): 1078,
    ...     ("REGION", "YR_BLT"): 507,
    ...     ("REGION", "BEDS"): 1051,
    ... }
    >>> near_optimal_order(figures, ["REGION", "YR_BLT", "BEDS"])
    <SortOrder BEDS by YR_BLT by REGION>
    """
    names = (by,) if isinstance(by, str) else tuple(by)
    wanted = tuple(keys)
    if len(set(wanted)) != len(wanted) or not wanted:
        raise SpecError("name each key once, and at least one", code="bad-spec", hint="keys=['BEDS', 'BATHS', …]")
    if not isinstance(source, Microdata):
        return _descend(wanted, names, _from_table(source))
    if not names:
        raise SpecError(
            "a near-optimal order is sought for a continuous item, and none is named",
            code="bad-spec",
            hint="by='INCOME'",
        )
    return _descend(wanted, names, _from_data(source, names))


def _descend(keys: Names, by: Names, deviation: Callable[[Names, str], float]) -> SortOrder:
    """Choose from the last key to the first. The very first needs no figure: it is the one that remains."""
    chosen: Names = ()
    steps: list[Step] = []
    while len(chosen) + 1 < len(keys):
        found = {name: deviation(chosen, name) for name in keys if name not in chosen}
        best = _find_smallest(found)
        number = len(chosen) + 1
        steps += [
            Step(number=number, keys=(*chosen, name), deviation=value, chosen=name == best)
            for name, value in found.items()
        ]
        chosen = (*chosen, best)
    last = next(name for name in keys if name not in chosen)
    return SortOrder(keys=(last, *reversed(chosen)), by=by, steps=tuple(steps))


def _find_smallest(found: Mapping[str, float]) -> str:
    """Return the key of the smallest figure; among equals the one named first."""
    known = [value for value in found.values() if not isnan(value)]
    if not known:
        return next(iter(found))
    limit = min(known) * (1 + _SAME)
    return next(name for name, value in found.items() if value <= limit)


def _from_table(table: SpreadTable) -> Callable[[Names, str], float]:
    figures = {frozenset((keys,) if isinstance(keys, str) else keys): float(value) for keys, value in table.items()}

    def deviation(chosen: Names, name: str) -> float:
        wanted = frozenset((*chosen, name))
        if wanted not in figures:
            raise SpecError(
                f"the table has no figure for {' by '.join((*chosen, name))}",
                code="missing-figure",
                hint="give the largest standard deviation within the classes of these keys together",
                keys=[*chosen, name],
            )
        return figures[wanted]

    return deviation


def _from_data(data: Microdata, by: Names) -> Callable[[Names, str], float]:
    items = [to_numbers(data, name) for name in by]
    whole = np.zeros(len(data), dtype=np.uint8)
    scales = [_scale(bias.largest_deviation(bias.moments(whole, 1, item)), len(items)) for item in items]
    joint: dict[Names, tuple[Codes, int]] = {(): (whole, 1)}

    def deviation(chosen: Names, name: str) -> float:
        if chosen not in joint:
            joint[chosen] = _join_codes(*joint[chosen[:-1]], *_column(data, chosen[-1]))
        codes, number = _join_codes(*joint[chosen], *_column(data, name))
        found = [
            bias.largest_deviation(bias.moments(codes, number, item)) / scale
            for item, scale in zip(items, scales, strict=True)
        ]
        return float(np.mean(found))

    return deviation


def _scale(deviation: float, items: int) -> float:
    """Return the scale: one item keeps its own unit, for readability; several are made comparable."""
    return deviation if items > 1 and deviation > 0 else 1.0


def _column(data: Microdata, name: str) -> tuple[Codes, int]:
    coded = data.coded(name)
    return coded.codes, max(1, coded.cardinality)


def _join_codes(first: Codes, firsts: int, second: Codes, seconds: int) -> tuple[Codes, int]:
    codes, number = cells.pack([first, second], [firsts, seconds])
    if cells.is_dense(number, codes.size):
        return codes, number
    # Ranked, so that table size follows the records, not the possible classes.
    ranked, number = sparse.rank_codes(codes)
    return ranked, max(1, number)
