"""A categorical key in several files, coded alike, the population recoded as the release was."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from safeswap.model.levels import level_texts
from safeswap.model.microdata import Microdata
from safeswap.model.value_order import missing_codes

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Coded:
    """One key: codes from 0, −1 for a missing value; ``population`` is empty where there is none."""

    released: Integers
    population: Integers
    changed: npt.NDArray[np.bool_]
    levels: int
    note: str = ""


def coded_alike(
    original: Microdata, released: Microdata, population: Microdata | None, name: str, rows: Integers
) -> Coded:
    """The key in the released file and in the population; ``rows`` gives the original record of each released one.

    Where every value of the original became one value of the release, that is a recoding, and a population in the
    coding of the original goes through it. A value that no record of the original has stays what it is.
    """
    before, after = _texts(original, name), _texts(released, name)
    levels = {text: number for number, text in enumerate(dict.fromkeys((*after[0], *before[0])))}
    then = _lookup(before, levels)[rows]
    now = _lookup(after, levels)
    note = ""
    people = np.empty(0, dtype=np.int64)
    if population is not None:
        there = _texts(population, name)
        recoding = _recoding(then, now, len(levels))
        for text in there[0]:
            levels.setdefault(text, len(levels))
        people = _lookup(there, levels)
        if recoding is not None:
            known = (people >= 0) & (people < len(recoding))
            people[known] = recoding[people[known]]
            note = f"{name} of the population is recoded as it was in the release."
    return Coded(released=now, population=people, changed=then != now, levels=len(levels), note=note)


def _texts(data: Microdata, name: str) -> tuple[list[str], Integers]:
    """The levels as text, and each record's level, −1 where it is missing."""
    coded = data.coded(name)
    codes = np.where(missing_codes(data, name)[coded.codes], -1, coded.codes.astype(np.int64))
    return level_texts(coded.levels), codes


def _lookup(side: tuple[list[str], Integers], levels: dict[str, int]) -> Integers:
    texts, codes = side
    table = np.array([*(levels.get(text, -1) for text in texts), -1], dtype=np.int64)
    return np.asarray(table[codes])


def _recoding(then: Integers, now: Integers, levels: int) -> Integers | None:
    """What each level became, where each became one thing and some became another than they were."""
    seen = (then >= 0) & (now >= 0)
    pairs = np.unique(np.stack([then[seen], now[seen]], axis=1), axis=0)
    if len(np.unique(pairs[:, 0])) < len(pairs) or (pairs[:, 0] == pairs[:, 1]).all():
        return None
    recoding = np.arange(levels, dtype=np.int64)
    recoding[pairs[:, 0]] = pairs[:, 1]
    return recoding
