"""Compare suppression with trying everything on many tiny files.

    python bench/differential/suppression.py [cases] [seed]

Every meaning of a missing value, with and without weights and importance, default and stated combinations, both
solvers. Prints cases and disagreements; exits with 1 where there is any.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.unit.methods import suppress_by_hand as by_hand
from tests.unit.methods.suppress_compared import disagreements


def main(number: int = 4_000, seed: int = 1) -> int:
    begun, tried, found = perf_counter(), Counter(), Counter()
    for case in by_hand.cases(seed, number):
        tried[case.missing] += 1
        for solver in ("optimal", "greedy"):
            for each in disagreements(case, solver=solver):
                found[f"{case.missing}, {solver}: {each}"] += 1
                if found.total() <= 5:
                    print(case, solver, each)
    print(f"{number:,} cases ({dict(tried)}) in {perf_counter() - begun:.0f} s; {found.total():,} disagreements")
    for name, times in found.items():
        print(f"  {name}: {times:,}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*(int(each) for each in sys.argv[1:])))
