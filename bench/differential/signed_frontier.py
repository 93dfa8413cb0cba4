"""Compare frontiers, choices and maps of signed measures with brute force on magnitudes.

``python bench/differential/signed_frontier.py [cases]`` prints cases and disagreements and ends with 1 on any.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.unit.studies.signed_cases import disagreements


def main(cases: int) -> int:
    """Run the cases; 1 where one disagrees."""
    bad = {seed: found for seed in range(cases) if (found := disagreements(seed))}
    print(f"{cases:,} cases, {len(bad)} disagree")
    for seed, found in list(bad.items())[:20]:
        print(f"  seed {seed}: {', '.join(found)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000))
