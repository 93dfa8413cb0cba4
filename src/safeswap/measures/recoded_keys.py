"""A categorical key in several files, coded alike; the file that is counted is recoded as the release was."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from safeswap.kernels.types import Int64s
from safeswap.model.levels import level_texts
from safeswap.model.microdata import Microdata
from safeswap.model.value_order import missing_codes


@dataclass(frozen=True, eq=False, kw_only=True)
class Coded:
    """One key in two files: codes from 0, −1 for a missing value; and whether the release changed it."""

    released: Int64s
    counted: Int64s
    changed: npt.NDArray[np.bool_]
    levels: int
    note: str = ""


def coded_alike(original: Microdata, released: Microdata, counted: Microdata, name: str, rows: Int64s) -> Coded:
    """The key in the released file and in the one that is counted; ``rows`` are the originals of the released records.

    Where every value of the original became one value of the release, that is a recoding, and the file that is counted
    goes through it. A value that no record of the original has stays what it is.
    """
    before, after, there = (_texts(data, name) for data in (original, released, counted))
    levels = {text: number for number, text in enumerate(dict.fromkeys((*after[0], *before[0], *there[0])))}
    then, now, people = _lookup(before, levels)[rows], _lookup(after, levels), _lookup(there, levels)
    recoding = _recoding(then, now, len(levels))
    if recoding is not None:
        people = np.where(people >= 0, recoding[people], -1)
    note = "" if recoding is None or counted is original else f"{name} of the population is recoded as in the release."
    return Coded(released=now, counted=people, changed=then != now, levels=len(levels), note=note)


def _texts(data: Microdata, name: str) -> tuple[list[str], Int64s]:
    """The levels as text, and each record's level, −1 where it is missing."""
    coded = data.coded(name)
    codes = np.where(missing_codes(data, name)[coded.codes], -1, coded.codes.astype(np.int64))
    return level_texts(coded.levels), codes


def _lookup(side: tuple[list[str], Int64s], levels: dict[str, int]) -> Int64s:
    texts, codes = side
    table = np.array([*(levels.get(text, -1) for text in texts), -1], dtype=np.int64)
    return np.asarray(table[codes])


def _recoding(then: Int64s, now: Int64s, levels: int) -> Int64s | None:
    """What each level became, where each became one thing and some became another than they were."""
    seen = (then >= 0) & (now >= 0)
    pairs = np.unique(np.stack([then[seen], now[seen]], axis=1), axis=0)
    if len(np.unique(pairs[:, 0])) < len(pairs) or (pairs[:, 0] == pairs[:, 1]).all():
        return None
    recoding = np.arange(levels, dtype=np.int64)
    recoding[pairs[:, 0]] = pairs[:, 1]
    return recoding
