"""The facts of a report beside one assessment of the same masking, and five pages from them.

``python bench/bench_reports.py [RECORDS]``
"""

from __future__ import annotations

import sys

import safeswap as ss
from bench_pipeline import KEY, STEPS, make_file
from goals import best_of, judge
from safeswap.reports.facts import AUDIENCES

SCENARIO = ss.Scenario(name="prosecutor", keys=["A", "B", "C"])


def main(records: int) -> None:
    """Time the collection of facts against what it rests on, and the pages, which do not depend on the records."""
    masked = ss.mask(make_file(records), STEPS, key=KEY)

    def assess_and_check() -> None:
        fresh = ss.mask(masked.original, STEPS, key=KEY, known=masked)
        ss.assess(fresh, scenario=SCENARIO)
        assert fresh.account.findings
        assert fresh.account.changes

    def collect() -> None:
        ss.report(ss.mask(masked.original, STEPS, key=KEY, known=masked), scenarios=[SCENARIO])

    judge(
        "facts of a report / its figures and checks",
        best_of(3, collect) / best_of(3, assess_and_check),
        2.5,
        records=records,
    )
    facts = ss.report(masked, scenarios=[SCENARIO])
    pages = best_of(3, lambda: [facts.page(each) for each in AUDIENCES])
    judge("five reports from the facts", pages, 1.0, unit="s", records=records)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
