"""Assess shuffled, cut and renamed files and compare with files that were aligned by hand.

``python bench/differential/alignment.py [cases]`` prints cases and disagreements and ends with 1 on any.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.unit.workflow.alignment_cases import make_case
from tests.unit.workflow.test_assessing import agrees


def main(cases: int) -> int:
    """Run the cases; 1 where one disagrees."""
    kinds: Counter[str] = Counter()
    bad = []
    for seed in range(cases):
        case = make_case(seed)
        kinds[case.what] += 1
        if not agrees(case):
            bad.append((seed, case.what))
    print(f"{cases:,} cases ({', '.join(f'{number} {what}' for what, number in kinds.items())}), {len(bad)} disagree")
    for seed, what in bad[:20]:
        print(f"  seed {seed}: {what}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000))
