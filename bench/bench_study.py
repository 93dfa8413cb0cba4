"""A study's candidates against the plain NumPy way, on one core; and what a candidate costs as the file grows.

The 108-candidate study of CPS-8d with n-rule risk, 8-way Hellinger distance, total variation, entropy change and all
28 2-way tables of five measures. What runs on one core is timed by the processor's clock, so that other work on the
machine does not count. `python bench/bench_study.py 1000000` takes another largest number of records.
"""

from __future__ import annotations

import argparse
import os
import time
from itertools import combinations

import numpy as np
import pyarrow as pa

from goals import best_of, judge
from plain_numpy import PlainWay
from safeswap import datasets
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.model.study import StudySpec
from safeswap.studies.evaluate import Evaluator
from safeswap.studies.quick import Replicate, SwapGroup
from safeswap.studies.run import grid, run_study

KEY = Key.generate()
LEVELS = (3, 4, 5, 2, 2, 2, 3, 2)
PAIRS = 5_000
TARGET = 40


def choices(attributes: int) -> list[tuple[int, ...]]:
    return [*((a,) for a in range(attributes)), *combinations(range(attributes), 2)]


def check_same_figures(data: Microdata, way: PlainWay) -> None:
    """Both ways give the same figures for the same pairs: they do the same work."""
    study = run_study(data, StudySpec(), key=KEY)
    evaluator = Evaluator(data, study.spec, KEY, candidates=len(study))
    for position, group in enumerate(grid(data, study.spec)):
        prepared = evaluator.prepare(group)
        assert isinstance(prepared, SwapGroup)
        prefix, pairs = Replicate(evaluator._way, 0).pairs(prepared, int(prepared.asked[-1]))
        rows = prefix.rows[pairs[: prepared.asked[-1]]]
        scores, tables = way.figures(tuple(prepared.swapped.tolist()), rows[:, 0], rows[:, 1])
        number = 3 * position + 2
        ours = [study.scores(name)[number] for name in study.spec.measures]
        assert np.allclose(ours, scores, atol=1e-12, rtol=0)
        assert study.two_way is not None
        assert np.allclose(study.two_way[number], tables, atol=1e-7, rtol=0)


def candidates_per_second(data: Microdata, replicates: int) -> None:
    """The study on one core, ours with keyed draws, against the plain way."""
    columns, sizes = data.coded_columns(data.schema.categorical)
    check_same_figures(data, PlainWay(columns, sizes))
    ours = 108 * replicates / best_of(5, lambda: run_study(data, StudySpec(replicates=replicates), key=KEY, threads=1))
    alone = best_of(5, lambda: run_study(data, StudySpec(), key=KEY, threads=1))
    print(f"CPS-8d, {len(data):,} records, candidates per second on one core (all measures, all 2-way tables):")
    print(f"  safeswap, keyed draws                  {ours:10,.0f}   (the 108 alone: {1000 * alone:.0f} ms)")
    for title, by_margins in (("plain NumPy, each table counted", False), ("NumPy, 2-way tables as margins", True)):
        way = PlainWay(columns, sizes, by_margins=by_margins)
        rng = np.random.default_rng(1)

        def plain(way: PlainWay = way, rng: np.random.Generator = rng) -> None:
            for rate in (0.01, 0.02, 0.10):
                for swapped in choices(len(sizes)):
                    way.figures(swapped, *way.draw(swapped, int(rate * way.records / 2), rng))

        theirs = 108 / best_of(3, plain)
        print(f"  {title:<38} {theirs:10,.0f}")
        judge(f"study, candidates per second beside {title}", ours / theirs, TARGET, wanted="at least")


def ten_thousand(data: Microdata, replicates: int) -> None:
    """The same study on one core and on all."""
    question = StudySpec(replicates=replicates)
    load = os.getloadavg()[0]
    one = best_of(3, lambda: run_study(data, question, key=KEY, threads=1))
    every = best_of(3, lambda: run_study(data, question, key=KEY), clock=time.perf_counter)
    print(f"{108 * replicates:,} candidates on {len(data):,} records: {one:.2f} s on one core;")
    print(f"  {every:.2f} s of wall-clock time with {os.cpu_count()} cores (load before: {load:.1f})")
    judge("study, candidates per second per core, CPS-8d", 108 * replicates / one, 11_000, unit="/s", wanted="at least")


def generated(records: int) -> Microdata:
    rng = np.random.default_rng(1)
    columns = {}
    for number, levels in enumerate(LEVELS):
        codes = np.minimum(rng.geometric(0.45, records) - 1, levels - 1).astype(np.int8)
        columns[f"a{number}"] = pa.DictionaryArray.from_arrays(codes, [f"level {i}" for i in range(levels)])
    return Microdata(pa.table(columns), Schema(name="generated", attributes=tuple(map(_nominal, columns))))


def _nominal(name: str) -> Attribute:
    return Attribute(name=name)


def cost_and_size(sizes: list[int]) -> None:
    """What is paid once per file, once per replicate, and per candidate of 5,000 pairs, as the file grows."""
    print(f"A candidate of {PAIRS:,} pairs (36 choices of one or two of 8 attributes), one core:")
    print("    records   once per file   per replicate   per candidate   plain NumPy per candidate   ratio")
    for records in sizes:
        once, order, each, plain = costs(generated(records))
        print(
            f"{records:11,}   {once:11.2f} s   {1000 * order:10.1f} ms   {1e6 * each:10.0f} µs"
            f"   {1000 * plain:22.1f} ms   {plain / each:7,.0f}"
        )
    print("  once per file: count all cells and tables, lay out the labels; per replicate: the draws of all records,")
    print("  one AES block each, shared by all its candidates. Per candidate nothing grows with the records.")


def costs(data: Microdata) -> tuple[float, float, float, float]:
    """Seconds once per file, per replicate, per candidate, and per candidate the plain way."""
    question = StudySpec(rates=(2 * PAIRS / len(data),))
    columns, sizes = data.coded_columns(data.schema.categorical)  # both ways start from coded columns
    start = time.process_time()
    evaluator = Evaluator(data, question, KEY, candidates=36)
    groups = [evaluator.prepare(group) for group in grid(data, question)]
    way = evaluator._way
    assert len(way.labels) == len(way.records.identity) == len(data)
    once = time.process_time() - start
    ready = Replicate(way, 0)
    for group in groups:
        ready.pairs(group, PAIRS)  # the order as far as it is needed
    order = best_of(3, lambda: Replicate(way, 1)._extend_prefix(way.likely_share))
    each = best_of(5, lambda: [ready.evaluate(group) for group in groups]) / len(groups)
    plain, rng = PlainWay(columns, sizes), np.random.default_rng(1)
    theirs = best_of(2, lambda: plain.figures((0, 1), *plain.draw((0, 1), PAIRS, rng)))
    return once, order, each, theirs


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("records", nargs="?", type=int, default=10_000_000, help="the largest file")
    options.add_argument("--replicates", type=int, default=93)
    chosen = options.parse_args()
    data = datasets.cps8d()
    candidates_per_second(data, min(20, chosen.replicates))
    ten_thousand(data, chosen.replicates)
    cost_and_size([size for size in (20_000, 100_000, 1_000_000, 10_000_000) if size <= chosen.records])


if __name__ == "__main__":
    main()
