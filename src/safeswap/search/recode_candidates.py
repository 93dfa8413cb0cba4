"""Recodes that are worth a try: what an analyst would think of when a key has rare values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from safeswap.model.microdata import Microdata
from safeswap.model.recode_rules import Values
from safeswap.model.recode_steps import ByHierarchy, Drop, Ranges, Recode, Step, TopBottomCode, Truncate
from safeswap.model.recoding import values_of
from safeswap.model.schema import Kind

MOST_MERGES = 24
"""Of pairs of neighbouring levels those with the fewest records are tried, up to so many."""

_ENDS = 4
_RARE = 5
_PARTS = (2, 3, 5)
_SHARES = (0.01, 0.05, 0.2)


def candidates(data: Microdata, name: str) -> Iterator[Step]:
    """Recodes of one key, each on its own.

    Neighbouring levels of an ordered key become one; numbers become fewer ranges; the ends are cut off; codes lose
    their last character or go up their hierarchy; the rarest levels become one; the key goes.

    >>> from safeswap import datasets
    >>> [step.sentence for step in candidates(datasets.cps8d(), "Age")][0]
    'recode Age: 25-55, >55 to 25-55 or >55, the others stay'
    """
    values = values_of(data, name)
    occurring = [text for text in values.known if values.counts[text]]
    if len(occurring) > 2:
        if data.schema[name].kind is Kind.ORDINAL:
            yield from _of_ordered(values, occurring)
        else:
            yield from _of_rare(values, occurring)
        yield from _of_codes(values, occurring)
    if data.schema[name].hierarchy:
        yield ByHierarchy(attribute=name, level=1, otherwise="keep")
    yield Drop(attributes=(name,))


def _of_ordered(values: Values, levels: list[str]) -> Iterator[Step]:
    name, counts = values.attribute.name, values.counts
    pairs = sorted(pairwise(levels), key=lambda pair: counts[pair[0]] + counts[pair[1]])
    for low, high in pairs[:MOST_MERGES]:
        yield _merged(name, values, (low, high), f"{low} or {high}")
    if all(_is_number(text) for text in values.known):
        for part in _PARTS:
            if len(levels) // part >= 2:
                yield Ranges(attribute=name, equal_count=len(levels) // part)
    for number in range(2, min(_ENDS, len(levels) - 2) + 1):
        yield TopBottomCode(attribute=name, top=levels[-number - 1])
        yield TopBottomCode(attribute=name, bottom=levels[number])


def _of_rare(values: Values, levels: list[str]) -> Iterator[Step]:
    rarest = sorted(levels, key=lambda text: values.counts[text])
    below = np.cumsum([values.counts[text] for text in rarest])
    numbers = {*range(2, _RARE + 1), *(int(np.searchsorted(below, share * below[-1], "right")) for share in _SHARES)}
    for number in sorted(number for number in numbers if 2 <= number < len(levels)):
        yield _merged(values.attribute.name, values, tuple(rarest[:number]), "other")


def _of_codes(values: Values, levels: list[str]) -> Iterator[Step]:
    """Without the last character, where the values look like codes: of one length, letters and digits."""
    if len({len(text) for text in levels}) == 1 and len(levels[0]) > 1 and all(text.isalnum() for text in levels):
        yield Truncate(attribute=values.attribute.name, characters=1, otherwise="keep")


def _merged(name: str, values: Values, levels: tuple[str, ...], wanted: str) -> Recode:
    new = wanted
    while new in values.counts and new not in levels:
        new += "*"
    return Recode(attribute=name, groups={new: levels}, otherwise="keep")


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False
