"""Score candidates of a study by a file of 20 key indicators: shares and totals by domain, and weighted margins.

``python bench/bench_indicators.py [replicates]``: candidates per CPU second on one core, on CPS-8d (48,842 records).
"""

from __future__ import annotations

import sys
from typing import Any

from goals import best_of, judge
from safeswap import datasets, registry
from safeswap.model.key import Key
from safeswap.model.study import StudySpec
from safeswap.studies.run import run_study

GOAL = 1_000  # candidates per second and core


def twenty_lines() -> list[dict[str, Any]]:
    """Return 20 indicators: shares of five attributes and counts, in all and by three others."""
    data = datasets.cps8d()
    names = data.schema.categorical
    first = {name: str(data.coded(name).levels[0]) for name in names}
    by: list[list[str]] = [[], [names[5]], [names[6]], [names[7]]]
    shares: list[dict[str, Any]] = [
        {"statistic": "share", "of": n, "level": first[n], "by": b} for n in names[:4] for b in by
    ]
    return shares + [{"statistic": "total", "by": [names[4], *b]} for b in by]


def main() -> None:
    replicates = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    data, key = datasets.cps8d(), Key.insecure(seed=1)
    text = registry.measure("indicators", lines=twenty_lines()).text
    question = StudySpec(distortion=(text,), replicates=replicates)
    run_study(data, StudySpec(distortion=(text,), up_to=1), key=key, threads=1)  # compiles
    candidates = len(run_study(data, question.model_copy(update={"replicates": 1}), key=key, threads=1)) * replicates
    best = candidates / best_of(3, lambda: run_study(data, question, key=key, threads=1))
    print(f"{candidates:,} candidates, 20 indicators, {len(data):,} records: {best:,.0f} candidates/s per core")
    judge("indicators in a study", best, GOAL, unit="candidates/s", wanted="at least", records=len(data))


if __name__ == "__main__":
    main()
