"""The most pairs on counts of classes, against Edmonds' algorithm on single records; exits 1 on any disagreement.

python -m bench.differential.matching [cases]
"""

from __future__ import annotations

import sys

from tests.unit.arrays.matching_cases import Case, maximum_by_records, small_case, wide_case

from safeswap.arrays import matching


def disagrees(case: Case) -> bool:
    """Whether the number of pairs is not the maximum, is not proved, or is not what the moves give."""
    found, total = matching.largest_matching(*case), matching.largest_total(*case)
    return {found.total, found.most, total.found, total.most} != {maximum_by_records(*case)}


def main(cases: int) -> int:
    """Print cases and disagreements for both generators."""
    wrong = 0
    for title, make, number in (("small", small_case, cases), ("wide", wide_case, cases // 20)):
        seeds = [seed for seed in range(number) if disagrees(make(seed))]
        print(f"{title}: {number} cases, {len(seeds)} disagreements {seeds[:10]}", flush=True)
        wrong += len(seeds)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
