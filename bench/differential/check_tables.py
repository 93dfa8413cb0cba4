"""Compare ``check_tables`` with all tables that have the published figures, on random tables of a few cells.

    python bench/differential/check_tables.py [cases]

Prints the number of cases and of disagreements; exits with 1 where there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.oracles.published_figures import intervals, random_case
from tests.unit.measures.test_table_check import checked


def main(cases: int) -> int:
    """Run the cases; the number that disagree."""
    rng = np.random.default_rng(4)
    wrong = inexact = 0
    for _ in range(cases):
        case = random_case(rng)
        found = checked(case)
        inexact += not found.is_exact
        true = intervals(case)
        wrong += not found.is_exact or any(
            (table.lower != low).any() or (table.upper != high).any()
            for table, (low, high) in zip(found.tables, true, strict=True)
        )
    print(f"{cases:,} cases, {wrong:,} disagreements, {inexact:,} not exact")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000) else 0)
