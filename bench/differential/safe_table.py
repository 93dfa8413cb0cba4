"""Compare ``safe_table`` with trying all tables: value, violation and bounds, on random tables of a few cells.

    python bench/differential/safe_table.py [cases] [first seed]

Prints the number of cases and of disagreements; exits with 1 where there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.oracles.safe_tables import random_case
from tests.unit.methods.test_safe_table import disagreement


def main(cases: int, first: int) -> int:
    """Run the cases; the number that disagree."""
    wrong, soft = 0, 0
    for seed in range(first, first + cases):
        case = random_case(np.random.default_rng(seed))
        soft += case.soft
        found = disagreement(case)
        wrong += bool(found)
        if found:
            print(seed, found)
    print(f"{cases:,} cases ({soft:,} soft), {wrong:,} disagreements")
    return wrong


if __name__ == "__main__":
    stated = [int(each) for each in sys.argv[1:]]
    sys.exit(1 if main(*(stated + [2_000, 0][len(stated) :])) else 0)
