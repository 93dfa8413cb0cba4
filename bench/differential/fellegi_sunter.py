"""Compare m and u of linkage by probabilities with counting pair by pair, on random files of a few records.

    python bench/differential/fellegi_sunter.py [cases]

Prints the number of cases and of disagreements; exits with 1 where there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.oracles.linkage import random_case, shares
from tests.unit.measures.test_fellegi_sunter import disagreement

from safeswap.measures.plot import fellegi_sunter


def counted(case) -> str:
    """What is wrong with the counts that m and u come from, without the weighing of all pairs."""
    with duckdb.connect(":memory:") as connection:
        for name, side in (("known_side", case.before), ("released_side", case.after)):
            connection.register(name, pa.table({"k0": side, "who": range(len(side))}))
        found = fellegi_sunter._level_shares(connection, "k0", case.levels)
    return "" if np.allclose([found["m"], found["u"]], shares(case), atol=1e-12, rtol=0) else f"{found}"


def main(cases: int) -> int:
    """Run the cases, every hundredth through the whole plot; the number that disagree."""
    wrong = 0
    for seed in range(cases):
        case = random_case(np.random.default_rng(seed))
        found = counted(case) or (disagreement(case) if seed % 100 == 0 else "")
        wrong += bool(found)
        if found:
            print(seed, found)
    print(f"{cases:,} cases, {wrong:,} disagreements")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000) else 0)
