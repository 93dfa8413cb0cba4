"""Suppression on tiny files by trying everything: plain Python that shares no code with the product.

A case is a file of a few records with what is asked of it. The least cost comes from trying every set of blanks, the
cheapest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any

Record = tuple[int | None, ...]
Lists = list[tuple[tuple[int, ...], float]]

MEANINGS = ("none", "own", "any", "vouching")
NAMES = "ABCD"


@dataclass(frozen=True)
class Case:
    records: list[Record]
    weights: list[float] | None
    lists: Lists
    costs: list[float]
    allowed: list[int]
    missing: str
    stated: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return list(NAMES[: len(self.records[0])])


def cases(seed: int, number: int, *, cells: int = 9) -> Iterator[Case]:
    """Random cases, the same for the same seed; the meanings of a missing value in turn."""
    random = Random(seed)
    for turn in range(number):
        yield _case(random, MEANINGS[turn % len(MEANINGS)], cells)


def _case(random: Random, missing: str, cells: int) -> Case:
    width = random.randint(1, 3)
    values: list[int | None] = [0, 1, 2][: random.randint(2, 3)]
    if random.random() < 0.4:
        values.append(None)
    records = [tuple(random.choice(values) for _ in range(width)) for _ in range(random.randint(2, cells // width))]
    weights = [random.choice([0.5, 1.0, 1.5, 2.0]) for _ in records] if random.random() < 0.4 else None
    most = len(records) if weights is None else sum(weights)
    tolerance = random.choice([q for q in (1, 2, 3, 1.5 if weights else 2) if q <= most])
    stated: dict[str, Any] = {"missing": missing, "tolerance": tolerance}
    names = list(NAMES[:width])
    every = [keys for size in range(1, width + 1) for keys in combinations(range(width), size)]
    if random.random() < 0.6:
        lists: Lists = [(keys, tolerance) for keys in every]
        stated["keys"] = names
    else:
        chosen = random.sample(every, random.randint(1, min(3, len(every))))
        lists = [(keys, random.choice([tolerance, min(2, most)])) for keys in chosen]
        stated["combinations"] = [{"keys": [names[k] for k in keys], "tolerance": q} for keys, q in lists]
    used = sorted({k for keys, _ in lists for k in keys})
    costs = [1.0] * width
    if random.random() < 0.5:
        for k in used:
            costs[k] = random.choice([0.5, 1.0, 2.0, 3.0])
        stated["importance"] = {names[k]: costs[k] for k in used}
    kept = [k for k in used if random.random() < 0.2]
    if len(kept) == len(used):
        kept = []
    if kept:
        stated["keep"] = [names[k] for k in kept]
    if weights is not None:
        stated["weight"] = "w"
    return Case(records, weights, lists, costs, [k for k in used if k not in kept], missing, stated)


def size(record: int, records: Sequence[Record], keys: Sequence[int], missing: str, weights: Sequence[float]) -> float:
    """What counts for a record in a combination of keys; infinite where it has no such combination."""
    own = records[record]
    if missing == "none" and any(own[k] is None for k in keys):
        return float("inf")
    total = 0.0
    for other, weight in zip(records, weights, strict=True):
        if missing in ("none", "own"):
            agrees = all(own[k] == other[k] for k in keys)
        elif missing == "any":
            agrees = all(own[k] is None or own[k] == other[k] for k in keys)
        else:
            agrees = all(own[k] is None or other[k] is None or own[k] == other[k] for k in keys)
        total += weight if agrees else 0.0
    return total


def unsafe(case: Case, records: Sequence[Record]) -> list[int]:
    """The records that are in an unsafe combination."""
    weights = case.weights or [1.0] * len(records)
    return [
        i
        for i in range(len(records))
        if any(size(i, records, keys, case.missing, weights) < q for keys, q in case.lists)
    ]


def least(case: Case) -> float | None:
    """What the cheapest safe file costs; None where blanking makes no file safe."""
    places = [(i, k) for i, record in enumerate(case.records) for k in case.allowed if record[k] is not None]
    tried = [chosen for number in range(len(places) + 1) for chosen in combinations(places, number)]
    for chosen in sorted(tried, key=lambda chosen: cost(case, chosen)):
        if not unsafe(case, blanked(case.records, chosen)):
            return cost(case, chosen)
    return None


def cost(case: Case, chosen: Sequence[tuple[int, int]]) -> float:
    return sum(case.costs[k] for _, k in chosen)


def blanked(records: Sequence[Record], chosen: Sequence[tuple[int, int]]) -> list[Record]:
    gone = set(chosen)
    return [tuple(None if (i, k) in gone else value for k, value in enumerate(r)) for i, r in enumerate(records)]


def still_below(case: Case, records: Sequence[Record]) -> int:
    """The records that too few others, who have the same keys too, share the published keys with."""
    weights = case.weights or [1.0] * len(records)
    used = sorted({k for keys, _ in case.lists for k in keys})
    k = min(q for _, q in case.lists)
    below = 0
    for own in records:
        published = [key for key in used if own[key] is not None]
        total = 0.0
        for other, weight in zip(records, weights, strict=True):
            if all(other[key] == own[key] for key in published):
                total += weight
        below += total < k
    return below
