"""Blanking told a second time on plain values: who matches whom, and the least that must go, by trying everything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from safeswap.arrays.combinations import group_records
from safeswap.methods.suppress.problem import Blanking, Problem

Record = tuple[int | None, ...]
Lists = Sequence[tuple[tuple[int, ...], int]]


def matches(one: Record, other: Record, keys: Sequence[int], meaning: str) -> bool:
    if meaning == "none":
        return all(one[k] is not None and one[k] == other[k] for k in keys)
    if meaning == "own":
        return all(one[k] == other[k] for k in keys)
    if meaning == "any":  # the other one counts only by keys that it has
        return all(one[k] is None or one[k] == other[k] for k in keys)
    return all(one[k] is None or other[k] is None or one[k] == other[k] for k in keys)


def safe(records: Sequence[Record], lists: Lists, meaning: str) -> bool:
    for keys, tolerance in lists:
        for record in records:
            if meaning == "none" and any(record[k] is None for k in keys):
                continue
            if sum(matches(record, other, keys, meaning) for other in records) < tolerance:
                return False
    return True


def least(
    records: Sequence[Record], lists: Lists, meaning: str, costs: Sequence[float], allowed: Sequence[int]
) -> float | None:
    """What the cheapest safe file costs; None where no file is safe."""
    cells = [(i, k) for i, record in enumerate(records) for k in allowed if record[k] is not None]
    best: float | None = None
    for size in range(len(cells) + 1):
        if best is not None and size * min(costs) >= best:
            break
        for chosen in combinations(cells, size):
            cost = sum(costs[k] for _, k in chosen)
            if best is not None and cost >= best:
                continue
            changed = [list(record) for record in records]
            for i, k in chosen:
                changed[i][k] = None
            if safe([tuple(record) for record in changed], lists, meaning):
                best = cost
    return best


def problem(
    records: Sequence[Record],
    lists: Lists,
    meaning: str,
    costs: Sequence[float] | None = None,
    allowed: Sequence[int] | None = None,
) -> Problem:
    keys = range(len(records[0]))
    blanks = [max((record[k] for record in records if record[k] is not None), default=0) + 1 for k in keys]
    columns = [np.array([blanks[k] if record[k] is None else record[k] for record in records], np.uint8) for k in keys]
    found = group_records(columns, [blank + 1 for blank in blanks], blanks)
    return Problem(
        classes=found,
        members=found.sizes.astype(np.int64),
        combinations=tuple((sum(1 << k for k in chosen), tolerance) for chosen, tolerance in lists),
        costs=np.array(costs if costs is not None else np.ones(len(keys)), np.float64),
        allowed=sum(1 << k for k in (keys if allowed is None else allowed)),
        meaning=meaning,  # type: ignore[arg-type]
    )


def blanked(records: Sequence[Record], asked: Problem, answer: Blanking) -> list[Record]:
    """The records with the blanks of an answer; the first ones of a class get them."""
    changed = [list(record) for record in records]
    waiting: dict[int, list[int]] = {}
    for row, number in enumerate(asked.classes.of_record.tolist()):
        waiting.setdefault(number, []).append(row)
    for of_class, mask, number in zip(answer.classes, answer.masks, answer.numbers, strict=True):
        for _ in range(int(number)):
            row = waiting[int(of_class)].pop(0)
            for k in range(len(asked.costs)):
                if int(mask) >> k & 1:
                    changed[row][k] = None
    return [tuple(record) for record in changed]
