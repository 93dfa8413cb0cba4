"""Household attributes: a swap of whole households against one of persons, and the risk of households.

Prints processor seconds, and the ratio to the same swap of the same file without marked attributes, in the same run.
`python bench/bench_households.py 1000000` takes another number of persons.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import safeswap as ss
from goals import judge
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema

TARGET = 3.0  # times the processor time of the swap of persons: records are grouped once, and columns expanded


def make_persons(persons: int, seed: int = 1990) -> Microdata:
    """Return persons in households of one to five, in regions and counties."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, persons)  # more than enough households, whatever their sizes
    home = np.repeat(np.arange(persons), sizes)[:persons]
    county = rng.integers(0, 200, len(sizes))[home]
    columns = {
        "id": np.arange(persons),
        "home": home,
        "region": county // 10,
        "county": county,
        "tenure": rng.integers(0, 5, len(sizes))[home],
        "sex": rng.integers(0, 2, persons),
        "age": rng.integers(0, 18, persons),
    }
    kinds = {"id": "identifier", "home": "household", "region": "geography", "county": "geography"}
    shared = ("region", "county", "tenure")
    described = (Attribute(name=n, kind=kinds.get(n, "nominal"), household=n in shared) for n in columns)
    return Microdata(pa.table(columns), Schema(name="persons", attributes=tuple(described)))


def timed(job: Callable[[], Any], runs: int = 3) -> float:
    """Return the least processor time of some runs."""
    spent = []
    for _ in range(runs):
        start = time.process_time()
        job()
        spent.append(time.process_time() - start)
    return min(spent)


def main() -> None:
    """Print the figures."""
    persons = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    data = make_persons(persons)
    plain = Microdata(
        data.table,
        Schema(
            name="persons",
            attributes=tuple(each.model_copy(update={"household": False}) for each in data.schema.attributes),
        ),
    )
    swap = {"swap": ["region", "county"], "rate": 0.05, "insecure_seed": 1}
    # A new value of each file: codes and households are found again in every run.
    alone = timed(lambda: ss.swap(Microdata(plain.table, plain.schema), **swap))
    whole = timed(lambda: ss.swap(Microdata(data.table, data.schema), **swap))
    print(f"swap of persons    {alone:8.2f} CPU s")
    print(f"swap of households {whole:8.2f} CPU s")
    judge("swap of households / swap of persons", whole / alone, TARGET, unit="x", records=persons)
    scenario = {"keys": ["region", "tenure", "sex", "age"], "unit": "household"}
    for measure in ("k_anonymity", "individual_risk"):
        spent = timed(lambda measure=measure: ss.assess(data, data, measures=[measure], scenario=scenario), runs=1)
        print(f"{measure} of households {spent:8.2f} CPU s")


if __name__ == "__main__":
    main()
