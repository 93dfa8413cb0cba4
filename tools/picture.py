#!/usr/bin/env python3
"""Draw the picture of the README: the map of CPS-8d, with twenty draws per specification."""

import sys
from pathlib import Path

from safeswap import Key, datasets
from safeswap.charts.map import map_png
from safeswap.model.study import StudySpec
from safeswap.studies.run import run_study

TARGET = Path(__file__).parents[1] / "docs" / "_static" / "risk-utility-map.png"
LARGEST = 150_000


def main() -> int:
    """Draw it, and refuse to keep one that is too large for a README."""
    study = run_study(datasets.cps8d(), StudySpec(replicates=20), key=Key.insecure(seed=2003))
    picture = map_png(study, choice=study.choose("cap_risk:0.0135"), dpi=120, size=(8.6, 5.4))
    if len(picture) > LARGEST:
        sys.stderr.write(f"the picture has {len(picture):,} bytes, more than {LARGEST:,}\n")
        return 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
