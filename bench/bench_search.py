"""A multi-objective search against a random sample of the same budget, by the area that the frontier dominates.

A generated file of 24 attributes that hang together, up to four swapped at a time, six rates, three sets of
constraints: some 200,000 candidates, of which each way may look at 1,000. `python bench/bench_search.py 10` takes
another number of repetitions; each has a key of its own.
"""

from __future__ import annotations

import argparse
import time
from math import comb

import numpy as np
import pyarrow as pa

from goals import judge
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.model.study import ConstraintSet, StudySpec, hypervolume
from safeswap.studies.evaluate import Evaluator, Group
from safeswap.studies.run import swap_group
from safeswap.studies.search import search_study

ATTRIBUTES = tuple(f"a{i:02}" for i in range(24))
QUESTION = StudySpec(
    up_to=4,
    rates=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
    constraints=(ConstraintSet(), ConstraintSet(fixed=("a00",)), ConstraintSet(differ=("a01",))),
    keys=ATTRIBUTES[:12],
)


def generated(seed: int, records: int) -> Microdata:
    """Attributes of 2 to 7 levels that lean on three hidden traits, each on its own mixture of them."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(records, 3))
    columns = {}
    for name in ATTRIBUTES:
        levels = int(rng.integers(2, 8))
        loads = rng.normal(size=3) * rng.choice([0, 1], 3)
        value = hidden @ loads + rng.normal(size=records)
        cuts = np.quantile(value, np.cumsum(rng.dirichlet(np.ones(levels)))[:-1])
        columns[name] = pa.array(np.searchsorted(cuts, value).astype(np.int8))
    return Microdata(pa.table(columns), Schema(name="hidden traits", attributes=tuple(map(_nominal, columns))))


def _nominal(name: str) -> Attribute:
    return Attribute(name=name)


def random_group(rng: np.random.Generator) -> Group:
    """One candidate, all of the grid alike: a choice of k attributes is as likely as there are such choices."""
    constraint = QUESTION.constraints[rng.integers(len(QUESTION.constraints))]
    free = [name for name in ATTRIBUTES if name not in (*constraint.fixed, *constraint.differ)]
    sizes = np.array([comb(len(free), k) for k in range(1, QUESTION.up_to + 1)], dtype=float)
    size = int(rng.choice(len(sizes), p=sizes / sizes.sum())) + 1
    names = tuple(free[i] for i in sorted(rng.choice(len(free), size, replace=False)))
    return swap_group(QUESTION, names, constraint, (QUESTION.rates[rng.integers(len(QUESTION.rates))],))


def random_sample(data: Microdata, key: Key, seed: int, budget: int) -> np.ndarray:
    """Risk and distortion of as many distinct random candidates."""
    evaluator = Evaluator(data, QUESTION, key, candidates=budget)
    rng = np.random.default_rng(seed)
    points: dict[object, np.ndarray] = {}
    while len(points) < budget:
        group = random_group(rng)
        if group.specs[0] not in points:
            points[group.specs[0]] = evaluator.figures([evaluator.prepare(group)], 0).scores[0, :2]
    return np.array(list(points.values()))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repetitions", type=int, default=8)
    options.add_argument("--records", type=int, default=20_000)
    options.add_argument("--budget", type=int, default=1_000)
    chosen = options.parse_args()
    candidates = QUESTION.number_of_candidates(ATTRIBUTES)
    print(f"{candidates:,} candidates, a budget of {chosen.budget:,}, {chosen.records:,} records:")
    print("  dominated area of the search / of a random sample, and how long the search took")
    ratios = []
    for repetition in range(chosen.repetitions):
        data, key = generated(repetition, chosen.records), Key.insecure(seed=repetition)
        start = time.perf_counter()
        found = np.stack(search_study(data, QUESTION, key=key, budget=chosen.budget).axes(), axis=1)
        seconds = time.perf_counter() - start
        sampled = random_sample(data, key, repetition, chosen.budget)
        corner = np.nanmax(np.concatenate([found, sampled]), axis=0) * 1.01
        areas = [hypervolume(points[:, 0], points[:, 1], tuple(corner)) for points in (found, sampled)]
        ratios.append(areas[0] / areas[1])
        print(f"  {repetition + 1:3}:  {ratios[-1]:.3f}   {seconds:5.1f} s")
    judge("search, dominated area beside a random sample, smallest", min(ratios), 1, wanted="at least")


if __name__ == "__main__":
    main()
