"""How every operation grows with the file: processor seconds, peak memory, and the exponent from each size to the next.

``python bench/bench_growth.py`` tries 10⁵, 10⁶ and 10⁷ records, ``--sizes 1e6 1e7 1e8`` others, ``--only MDAV plot``
some operations. Every figure is of a process of its own, the best of several runs where one is short; data are made,
and kernels compiled or loaded, before the clock starts. An operation that would exceed the limits at the next size if
it grew in proportion (``--seconds``, ``--gigabytes``) is not tried there. Sorting gives n log n, an exponent of 1.06.

Three functions of NumPy run beside them: what they take more than in proportion, caches and fresh memory take.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from math import log
from typing import Any, NamedTuple

import numpy as np

import safeswap as ss
from goals import judge
from safeswap import datasets, workflow
from safeswap.measures.plot.numeric_keys import confidentiality_plot
from safeswap.measures.risk.by_record import file_risk
from safeswap.measures.risk.suda2 import special_uniques
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema

KEY = ss.Key(bytes(32))
AMOUNTS, CATEGORIES = ("turnover", "employees"), ("division", "region")
HOUSEHOLD = ("WHITE", "BLACK", "HISPANIC", "ADULTS", "FAMILIES", "TRAILER", "TENURE", "OCCUPATION")
WARM_UP = 1_000_000  # smaller files do without the compiled code
TARGET = 1.15
Job = Callable[[], object]


def masking(data: Microdata, **spec: Any) -> Job:
    """Return the whole masking, of data that nobody has coded yet."""
    return lambda: ss.mask(Microdata(data.table, data.schema), spec, key=KEY)


def assessing(data: Microdata) -> Job:
    """Return the measures of a swap over eight attributes."""
    masked = ss.mask(data, {"method": "swap", "swap": ["TENURE"], "fixed": ["STATE"], "rate": 0.1}, key=KEY)
    measures = ["n_rule", "hellinger", "total_variation", "entropy_change"]
    return lambda: ss.assess(Microdata(data.table, data.schema), masked.data, measures=measures)


def plotting(data: Microdata) -> Job:
    """Return the confidentiality plot of rank swapped keys."""
    spec = {"method": "rank_swap", "attributes": AMOUNTS, "window": 0.02}
    masked = workflow.mask(data, spec, insecure_seed=1)
    return lambda: confidentiality_plot(data, masked.data, AMOUNTS)


def make_households(records: int) -> Microdata:
    """Return households with the attributes that are used here only."""
    data, names = datasets.synthetic_census(records), ("STATE", *HOUSEHOLD)
    return Microdata(data.table.select(names), Schema(name="households", attributes=[data.schema[n] for n in names]))


ENTERPRISES: Mapping[str, Callable[[Microdata], Job]] = {
    "rank swapping": lambda data: masking(data, method="rank_swap", attributes=AMOUNTS, window=0.05),
    "noise": lambda data: masking(data, method="noise", attributes=AMOUNTS, kind="correlated"),
    "PRAM": lambda data: masking(data, method="pram", attributes=CATEGORIES),
    "top coding": lambda data: masking(data, method="top_bottom", attributes=AMOUNTS, top_share=0.01),
    "univariate groups": lambda data: masking(
        data, method="microaggregation", attributes=AMOUNTS, k=3, groups="univariate"
    ),
    "MDAV": lambda data: masking(data, method="microaggregation", attributes=AMOUNTS, k=3),
    "plot": plotting,
}
CENSUS: Mapping[str, Callable[[Microdata], Job]] = {
    "swap": lambda data: masking(data, method="swap", swap=["TENURE"], fixed=["STATE"], rate=0.1),
    "assess": assessing,
    "study": lambda data: lambda: ss.study(Microdata(data.table, data.schema), key=KEY),
    "risk": lambda data: lambda: file_risk(Microdata(data.table, data.schema), HOUSEHOLD[:6], max_size=2),
    "SUDA2": lambda data: lambda: special_uniques(Microdata(data.table, data.schema), HOUSEHOLD, most=3),
}
OPERATIONS = (*ENTERPRISES, *CENSUS)


def sorting(records: int) -> Job:
    """Return the order of numbers."""
    numbers = np.random.default_rng(1).lognormal(size=records)
    return lambda: np.argsort(numbers)


def taking(records: int) -> Job:
    """Return numbers taken in random order."""
    numbers, rows = np.zeros(records), np.random.default_rng(1).integers(0, records, records)
    return lambda: numbers.take(rows)


def counting(records: int) -> Job:
    """Return the counts of 65,536 codes."""
    codes = np.random.default_rng(1).integers(0, 1 << 16, records, dtype=np.uint16)
    return lambda: np.bincount(codes, minlength=1 << 16)


PLAIN: Mapping[str, Callable[[int], Job]] = {"np.argsort": sorting, "np.take": taking, "np.bincount": counting}


class Figure(NamedTuple):
    """Processor seconds, and the peak memory of the whole process, in bytes."""

    seconds: float
    memory: float


def make_job(name: str, records: int) -> Job:
    """Make the data, and return the operation on them."""
    if name in PLAIN:
        return PLAIN[name](records)
    if name in ENTERPRISES:
        return ENTERPRISES[name](datasets.synthetic_enterprises(records))
    return CENSUS[name](make_households(records))


def measure(name: str, records: int) -> Figure:
    """Run an operation here, several times if it is short."""
    make_job(name, min(records, WARM_UP))()
    job = make_job(name, records)
    if records > WARM_UP:
        job()  # more records may take kernels that fewer do without
    best, spent = float("inf"), 0.0
    for _ in range(5):
        start = time.process_time()
        job()
        taken = time.process_time() - start
        best, spent = min(best, taken), spent + taken
        if spent > 2.0:
            break
    return Figure(best, 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def measure_apart(name: str, records: int) -> Figure:
    """Run an operation in a process of its own."""
    command = [sys.executable, __file__, "--measure", name, str(records)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Figure(*json.loads(done.stdout.splitlines()[-1]))


def is_too_large(found: list[Figure], sizes: list[int], seconds: float, memory: float) -> bool:
    """Return whether the next size would exceed the limits if the operation grew in proportion."""
    if not found:
        return False
    factor = sizes[len(found)] / sizes[len(found) - 1]
    return found[-1].seconds * factor > seconds or found[-1].memory * factor > memory


def grow(name: str, sizes: list[int], seconds: float, memory: float) -> list[Figure]:
    """Return the figures of an operation at each size, as far as the limits allow."""
    found: list[Figure] = []
    while len(found) < len(sizes) and not is_too_large(found, sizes, seconds, memory):
        found.append(measure_apart(name, sizes[len(found)]))
    return found


def exponents(found: list[Figure], sizes: list[int]) -> list[float]:
    """Return the exponent of growth from each size to the next."""
    pairs = zip(pairwise(found), pairwise(sizes), strict=False)
    return [log(b.seconds / a.seconds) / log(n / m) for (a, b), (m, n) in pairs]


def format_row(name: str, found: list[Figure], sizes: list[int]) -> str:
    """Return the line of the table of one operation."""
    figures = [f"{f.seconds:8.3f} s {f.memory / 2**30:5.2f} GB" for f in found] + (len(sizes) - len(found)) * [""]
    steps = "".join(f"{step:8.2f}" for step in exponents(found, sizes))
    return f"{name:18}" + "".join(f"{figure:>20}" for figure in figures) + "  " + steps


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sizes", nargs="+", type=float, default=[1e5, 1e6, 1e7])
    options.add_argument("--only", nargs="+", choices=[*OPERATIONS, *PLAIN], default=[*OPERATIONS, *PLAIN])
    options.add_argument("--seconds", type=float, default=180.0, help="most processor seconds of an operation")
    options.add_argument("--gigabytes", type=float, default=6.0, help="most memory of an operation")
    chosen = options.parse_args()
    sizes = [int(size) for size in chosen.sizes]
    print(f"processor seconds and peak memory, exponents of growth; load {os.getloadavg()[0]:.1f}")
    print(f"{'records':18}" + "".join(f"{size:>20,}" for size in sizes))
    table: dict[str, list[Figure]] = {}
    for name in chosen.only:
        table[name] = grow(name, sizes, chosen.seconds, chosen.gigabytes * 2**30)
        print(format_row(name, table[name], sizes), flush=True)
    for name, found in ((name, found) for name, found in table.items() if name not in PLAIN):
        for step, records in zip(exponents(found, sizes), sizes[1:], strict=False):
            judge(f"{name}, growth exponent", step, TARGET, unit="power", records=records)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]))))
    else:
        main()
