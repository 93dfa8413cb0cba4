"""Rank single recodes by the combinations they make safe for the information they cost.

Records that agree in all keys form one class, and each combination of keys has fewer still. A candidate recodes the
codes of these classes, not the file, so hundreds of candidates can be tried interactively.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays.combinations import Classes, group_records
from safeswap.arrays.names import Names
from safeswap.arrays.types import Int64s
from safeswap.errors import SpecError
from safeswap.measures.key_cells import key_classes
from safeswap.measures.risk.risky import unsafe_cells
from safeswap.measures.utility.information import bits_lost, entropy
from safeswap.methods.recode.apply import check_step, values_of
from safeswap.methods.recode.rules import Values, map_values, pin_ranges
from safeswap.methods.recode.steps import ByHierarchy, Drop, Ranges, Recode, Step, TopBottomCode, Truncate, as_step
from safeswap.model.checked import check_types
from safeswap.model.columns import ranked_levels, to_numbers
from safeswap.model.combination import Combinations, as_combinations, check_combinations
from safeswap.model.microdata import Microdata, smallest_code_type
from safeswap.model.scenario import Scenario, as_scenario, propose_bands
from safeswap.model.schema import Kind, level_texts
from safeswap.workflow.masking import read

MOST_MERGES = 24
"""The largest number of pairs of neighbouring levels to try, those with the fewest records first."""

_ENDS = 4
_RARE = 5
_PARTS = (2, 3, 5)
_SHARES = (0.01, 0.05, 0.2)


def candidates(data: Microdata, name: str) -> Iterator[Step]:
    """Yield single recodes of one key that an analyst would try.

    They merge neighbouring levels of an ordered key, make fewer ranges of numbers, top or bottom code, drop the last
    character of codes or go up their hierarchy, merge the rarest levels, or drop the key.

    >>> from safeswap import datasets
    >>> [step.sentence for step in candidates(datasets.cps8d(), "Age")][0]
    'recode Age: 25-55, >55 to 25-55 or >55, the others are kept'
    """
    if data.schema[name].kind is Kind.NUMERIC:  # a key of a scenario, each of its values a level
        numbers = to_numbers(data, name)
        if breaks := propose_bands(numbers[np.isfinite(numbers)]):
            yield Ranges(attribute=name, breaks=breaks)
        yield Drop(attributes=(name,))
        return
    values = values_of(data, name)
    occurring = [text for text in values.known if values.counts[text]]
    if len(occurring) > 2:
        if data.schema[name].kind is Kind.ORDINAL:
            yield from _ordered_candidates(values, occurring)
        else:
            yield from _rare_candidates(values, occurring)
        yield from _code_candidates(values, occurring)
    if data.schema[name].hierarchy:
        yield ByHierarchy(attribute=name, level=1, otherwise="keep")
    yield Drop(attributes=(name,))


def _ordered_candidates(values: Values, levels: list[str]) -> Iterator[Step]:
    name, counts = values.attribute.name, values.counts
    pairs = sorted(pairwise(levels), key=lambda pair: counts[pair[0]] + counts[pair[1]])
    for low, high in pairs[:MOST_MERGES]:
        yield _merge(name, values, (low, high), f"{low} or {high}")
    if all(_is_number(text) for text in values.known):
        for part in _PARTS:
            if len(levels) // part >= 2:
                yield Ranges(attribute=name, equal_count=len(levels) // part)
    for number in range(2, min(_ENDS, len(levels) - 2) + 1):
        yield TopBottomCode(attribute=name, top=levels[-number - 1])
        yield TopBottomCode(attribute=name, bottom=levels[number])


def _rare_candidates(values: Values, levels: list[str]) -> Iterator[Step]:
    rarest = sorted(levels, key=lambda text: values.counts[text])
    below = np.cumsum([values.counts[text] for text in rarest])
    numbers = {*range(2, _RARE + 1), *(int(np.searchsorted(below, share * below[-1], "right")) for share in _SHARES)}
    for number in sorted(number for number in numbers if 2 <= number < len(levels)):
        yield _merge(values.attribute.name, values, tuple(rarest[:number]), "other")


def _code_candidates(values: Values, levels: list[str]) -> Iterator[Step]:
    """Drop the last character of values that look like codes: of one length, letters and digits."""
    if len({len(text) for text in levels}) == 1 and len(levels[0]) > 1 and all(text.isalnum() for text in levels):
        yield Truncate(attribute=values.attribute.name, characters=1, otherwise="keep")


def _merge(name: str, values: Values, levels: tuple[str, ...], wanted: str) -> Recode:
    new = wanted
    while new in values.counts and new not in levels:
        new += "*"
    return Recode(attribute=name, groups={new: levels}, otherwise="keep")


def _is_number(text: str) -> bool:
    """Return whether a text is a number that can lie in a range: infinity cannot."""
    try:
        return isfinite(float(text))
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A recode, the number of unsafe combinations it removes, and the share of the keys' information it costs."""

    step: Step
    unsafe: int
    removed: int
    loss: float

    @property
    def worth(self) -> float:
        """Unsafe combinations removed per percent of the keys' information lost."""
        if not self.loss:
            return inf if self.removed > 0 else 0.0
        return self.removed / (100 * self.loss)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values. Internal: the step names levels."""
        worth = None if self.worth == inf else self.worth
        figures = {"unsafe": self.unsafe, "removed": self.removed, "loss": self.loss, "worth": worth}
        return {"step": self.step.as_dict(), "sentence": self.step.sentence, **figures}


@dataclass(frozen=True, eq=False, kw_only=True)
class AdviceList:
    """Recodes, best first, by unsafe combinations removed per unit of information lost."""

    unsafe: int
    tried: int
    advice: tuple[Advice, ...]

    def __iter__(self) -> Any:
        return iter(self.advice)

    def __len__(self) -> int:
        return len(self.advice)

    def __getitem__(self, place: int) -> Advice:
        return self.advice[place]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"unsafe": self.unsafe, "tried": self.tried, "advice": [each.as_dict() for each in self.advice]}


@check_types
def advice(
    data: Any,
    combinations: Any = None,
    *,
    candidates: Iterable[Any] | None = None,
    most: int | None = None,
    scenario: Scenario | Mapping[str, Any] | None = None,
) -> AdviceList:
    """Rank single recodes by unsafe combinations removed per unit of information lost, best first.

    ``combinations`` as for :func:`~safeswap.workflow.risky`, or a ``scenario`` in place of them. Without ``candidates``
    the obvious ones are tried: merge neighbouring levels of an ordered key, merge the rarest levels, use fewer ranges,
    top or bottom code, drop the last character of codes, go one level up a hierarchy, drop the key.

    >>> from safeswap import datasets
    >>> found = advice(datasets.cps8d(), {"keys": ["Age", "Edu", "EmpTyp", "AvgHrs", "MS", "Race"]}, most=3)
    >>> found.unsafe > found[0].unsafe, found[0].worth >= found[1].worth
    (True, True)
    """
    if (combinations is None) == (scenario is None):
        raise SpecError(
            "state either combinations or a scenario", code="bad-spec", hint='e.g. {"keys": ["age", "sex"]}'
        )
    data, asked = read(data), as_combinations(combinations) if scenario is None else as_scenario(scenario)
    if isinstance(asked, Scenario):
        asked.require_persons("advice on recodes")
    trial = _Trial.of(data, asked)
    stated = candidates is not None
    steps = [as_step(each) for each in candidates] if candidates is not None else _suggest(data, trial.names)
    found: dict[tuple[str, bytes], Advice] = {}
    for step in steps:
        check_step(data.schema, step)
        known, each = trial.advice(step)
        if stated or each.removed > 0:
            found.setdefault(known, each)
    ranked = sorted(found.values(), key=lambda each: (-each.worth, -each.removed, each.loss))
    return AdviceList(unsafe=trial.unsafe, tried=len(steps), advice=tuple(ranked[:most]))


def _suggest(data: Microdata, names: Names) -> list[Step]:
    return [step for name in names for step in candidates(data, name)]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Combination:
    """One combination of keys: the classes that differ in these keys, and the number of unsafe cells."""

    keys: tuple[int, ...]
    tolerance: float
    classes: Classes
    unsafe: int


@dataclass(frozen=True, eq=False, kw_only=True)
class _Trial:
    """State that all candidates share."""

    data: Microdata
    asked: Combinations
    names: Names
    combinations: tuple[_Combination, ...]
    counts: tuple[Int64s, ...]  # records by code of each key, blanks last
    bits: float  # the information in all keys

    @classmethod
    def of(cls, data: Microdata, asked: Combinations) -> _Trial:
        stated = check_combinations(asked, data.schema, records=len(data))
        names = tuple(dict.fromkeys(name for keys, _ in stated for name in keys))
        whole = key_classes(data, names, missing=asked.missing, weight=asked.weight)
        members = np.bincount(whole.of_record, minlength=len(whole))
        counts = tuple(
            np.bincount(column, members, size).astype(np.int64)
            for column, size in zip(whole.columns, whole.cardinalities, strict=True)
        )
        combinations = []
        for keys, tolerance in stated:
            places = tuple(names.index(name) for name in keys)
            few = _reduce(whole, places)
            unsafe = _count_unsafe(few, tolerance, asked)
            combinations.append(_Combination(keys=places, tolerance=tolerance, classes=few, unsafe=unsafe))
        bits = sum(entropy(each[:-1]) * int(each[:-1].sum()) for each in counts)
        return cls(data=data, asked=asked, names=names, combinations=tuple(combinations), counts=counts, bits=bits)

    @property
    def unsafe(self) -> int:
        return sum(each.unsafe for each in self.combinations)

    def advice(self, step: Step) -> tuple[tuple[str, bytes], Advice]:
        """Return the effect of a step, after its identity: two steps that merge the same levels are one."""
        if isinstance(step, Drop):
            gone = [self.names.index(name) for name in step.names if name in self.names]
            unsafe, lost = self._count_without(gone), sum(self._information(key) for key in gone)
            known = ("drop", repr(gone).encode())
        elif step.names[0] not in self.names:
            unsafe, lost, known = self.unsafe, 0.0, (step.names[0], repr(step.as_dict()).encode())
        else:
            key = self.names.index(step.names[0])
            lookup, size = self._lookup(key, step)
            unsafe = self._count_recoded(key, lookup, size)
            counts = self.counts[key]
            lost, _ = bits_lost(np.arange(len(counts)), lookup, counts, missing=(len(counts) - 1, size))
            known = (step.names[0], lookup.tobytes())
        removed = self.unsafe - unsafe
        return known, Advice(step=step, unsafe=unsafe, removed=removed, loss=lost / self.bits if self.bits else 0.0)

    def _information(self, key: int) -> float:
        known = self.counts[key][:-1]
        return entropy(known) * int(known.sum())

    def _lookup(self, key: int, step: Step) -> tuple[Int64s, int]:
        """Map each code of the key to its code after the step, blanks last; also return the new number of values."""
        name = self.names[key]
        values = values_of(self.data, name)
        step = pin_ranges(step, values) if isinstance(step, Ranges) else step
        target = map_values(step, values)
        texts = level_texts(ranked_levels(self.data, name))
        forgotten = [text for text in texts if text not in target]
        if forgotten:
            raise SpecError(
                f"a candidate says nothing about {len(forgotten):,} of the values of {name!r}",
                code="value-not-recoded",
                hint='set its otherwise to "keep" or "blank"',
                attribute=name,
            )
        news: dict[str, int] = {}
        codes = [-1 if (new := target[text]) is None else news.setdefault(new, len(news)) for text in texts]
        found = np.array([*codes, -1], dtype=np.int64)
        return np.where(found < 0, len(news), found), len(news)

    def _count_recoded(self, key: int, lookup: Int64s, size: int) -> int:
        """Count unsafe combinations with one key recoded."""
        narrow = lookup.astype(smallest_code_type(size + 1))
        unsafe = 0
        for each in self.combinations:
            if key not in each.keys:
                unsafe += each.unsafe
                continue
            at = each.keys.index(key)
            unsafe += _count_unsafe(_replace_column(each.classes, at, narrow, size), each.tolerance, self.asked)
        return unsafe

    def _count_without(self, gone: Sequence[int]) -> int:
        """Count unsafe combinations of the remaining keys; combinations that become equal are counted once."""
        strictest: dict[frozenset[int], tuple[_Combination, float]] = {}
        for each in sorted(self.combinations, key=lambda one: len(one.keys)):
            left = frozenset(each.keys) - frozenset(gone)
            known = strictest.get(left)
            strictest[left] = (known[0] if known else each, max(each.tolerance, known[1] if known else 0.0))
        unsafe = 0
        for left, (each, tolerance) in strictest.items():
            if left and len(left) == len(each.keys) and tolerance == each.tolerance:
                unsafe += each.unsafe
            elif left:
                places = tuple(each.keys.index(key) for key in each.keys if key in left)
                unsafe += _count_unsafe(_reduce(each.classes, places), tolerance, self.asked)
        return unsafe


def _count_unsafe(found: Classes, tolerance: float, asked: Combinations) -> int:
    keys = list(range(len(found.columns)))
    return len(unsafe_cells(found, keys, tolerance, missing=asked.missing).classes)


def _reduce(whole: Classes, keys: Sequence[int]) -> Classes:
    """Return the classes that differ in these keys."""
    found = group_records(
        [whole.columns[key] for key in keys],
        [whole.cardinalities[key] for key in keys],
        [whole.blanks[key] for key in keys],
        whole.sizes.astype(np.float64),
    )
    return replace(found, sizes=found.sizes.astype(whole.sizes.dtype))


def _replace_column(found: Classes, at: int, lookup: npt.NDArray[Any], size: int) -> Classes:
    columns = (*found.columns[:at], lookup[found.columns[at]], *found.columns[at + 1 :])
    cardinalities = (*found.cardinalities[:at], size + 1, *found.cardinalities[at + 1 :])
    return replace(
        found, columns=columns, cardinalities=cardinalities, blanks=(*found.blanks[:at], size, *found.blanks[at + 1 :])
    )
