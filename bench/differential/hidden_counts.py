"""Random tables and lists against an attacker who solves for the hidden counts: cases and disagreements.

python bench/differential/hidden_counts.py [cases]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.unit.arrays.test_hiding import one_case, one_list


def main() -> int:
    """Run the cases; 1 if a hidden count was recovered."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    draw = random.Random(20)
    tables = [one_case(draw) for _ in range(number)]
    lists = [one_list(draw) for _ in range(10 * number)]
    alone, recovered, refused = (sum(column) for column in zip(*tables, strict=True))
    narrowed = sum(each for _, each in lists)
    print(f"tables: {number:,} cases, {alone:,} small counts recovered if only they are hidden, {recovered:,} now; ")
    print(f"  {refused:,} tables refused as too sparse")
    print(f"lists: {len(lists):,} cases, {narrowed:,} counts narrowed down")
    return int(recovered + narrowed > 0)


if __name__ == "__main__":
    sys.exit(main())
