"""A pipeline of five steps beside its steps one by one, and the cost of changing its last step, also in its table.

``python bench/bench_pipeline.py [RECORDS]``
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

import safeswap as ss
from goals import best_of, judge
from safeswap.model.microdata import Microdata
from safeswap.workflow.step_table import assess_steps

STEPS = ss.Pipeline(
    [
        {"step": "recode", "attribute": "C", "groups": {"low": ["c0", "c1", "c2", "c3"]}, "otherwise": "keep"},
        {"method": "pram", "attributes": ["A"], "keep": 0.9},
        {"method": "rank_swap", "attributes": ["X"]},
        {"method": "suppress", "keys": ["A", "B", "C"], "tolerance": 20, "solver": "greedy"},
        {"method": "swap", "swap": ["D"], "fixed": ["B"], "rate": 0.02},
    ]
)
KEY = ss.Key.insecure(seed=1)


def make_file(records: int) -> Microdata:
    """Make a file of five categorical attributes and a number."""
    rng = np.random.default_rng(1)
    levels = {"A": 4, "B": 30, "C": 8, "D": 12, "E": 6}
    texts = {name: np.array([f"{name.lower()}{i}" for i in range(size)]) for name, size in levels.items()}
    columns = {name: texts[name][rng.integers(0, size, records)] for name, size in levels.items()}
    table = pa.table({"id": np.arange(records), **columns, "X": np.round(rng.lognormal(3, 1, records), 1)})
    return ss.read(table, identifier="id", kinds={"C": "ordinal", "X": "numeric"})


def main(records: int) -> None:
    """Time the pipeline, its steps one by one, and a change of the last step."""
    data = make_file(records)
    masked = ss.mask(data, STEPS, key=KEY)
    alone = 0.0
    for step, stage in zip(STEPS, masked.stages, strict=True):

        def mask_and_assess(spec=step.spec, before=stage.original) -> None:
            ss.assess(ss.mask(before, spec, key=KEY))

        alone += best_of(3, mask_and_assess)
    whole = best_of(3, lambda: ss.assess(ss.mask(data, STEPS, key=KEY)))
    judge("mask and assess 5 steps / the steps one by one", whole / alone, 1.5, records=records)
    changed = STEPS.edit("swap", rate=0.03)
    before = masked.stages[-1].original
    again = best_of(3, lambda: ss.mask(data, changed, key=KEY, known=masked))
    only = best_of(3, lambda: ss.mask(before, changed["swap"].spec, key=KEY))
    judge("change the last of 5 steps / that step alone", again / only, 1.2, records=records)
    scenarios = [{"name": "prosecutor", "keys": ["A", "B", "C"], "tolerance": 20}]
    known = assess_steps(masked, scenarios=scenarios)
    other = ss.mask(data, changed, key=KEY, known=masked)
    table = best_of(3, lambda: assess_steps(other, scenarios=scenarios))
    row = best_of(3, lambda: assess_steps(other, scenarios=scenarios, known=known))
    judge("table after a change of the last of 5 steps / whole table", row / table, 0.5, records=records)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
