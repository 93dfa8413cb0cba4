"""Neighbours of every record within a radius of its own: whole nodes of a tree against SciPy's cKDTree.

Prints ratios measured in one run, in wall-clock and in processor seconds; the load says how far to trust the clock.
SciPy answers some of the queries only, and its times are scaled up. `python bench/bench_neighbours.py 1000000` takes
another number of records.
"""

from __future__ import annotations

import os
import sys

import numpy as np
from scipy.spatial import cKDTree

from goals import judge, timed
from safeswap import datasets, workflow
from safeswap.arrays import kd_tree
from safeswap.measures.plot import neighbours
from safeswap.measures.plot.numeric_keys import confidentiality_plot

KEYS = ("turnover", "employees")


def points(records: int) -> tuple[np.ndarray, np.ndarray]:
    """The enterprises' keys on the log scale, before and after rank swapping."""
    data = datasets.synthetic_enterprises(records)
    spec = {"method": "rank_swap", "attributes": KEYS, "window": 0.02}
    masked = workflow.mask(data, spec, insecure_seed=1)
    sides = [[d.table[name].to_numpy() for name in KEYS] for d in (data, masked.data)]
    x, y = (np.log(np.column_stack(side).astype(float)) for side in sides)
    return x, y


def radius_for(x: np.ndarray, y: np.ndarray, share: float) -> float:
    """The δ at which neighbourhoods hold this share of the file on average, from a sample of pairs."""
    rng = np.random.default_rng(2)
    i, k = rng.integers(0, len(y), 2_000_000), rng.integers(0, len(x), 2_000_000)
    z = np.linalg.norm(y[i] - x[k], axis=1) / np.linalg.norm(y[i], axis=1)
    return float(np.quantile(z, share))


def whole_plot(records: int) -> None:
    """Print the processor time of the whole plot; the target is for a million records."""
    data = datasets.synthetic_enterprises(records)
    masked = workflow.mask(data, {"method": "rank_swap", "attributes": KEYS, "window": 0.02}, insecure_seed=1)
    _, _, processor = timed(lambda: confidentiality_plot(data, masked.data, KEYS))
    judge("confidentiality plot of 2 keys", processor, 8e-6 * records, unit="s CPU", records=records)


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    x, y = points(records)
    norms = np.linalg.norm(y, axis=1)
    some = np.random.default_rng(3).permutation(records)[:20_000]
    for part in (kd_tree.build, lambda p: neighbours.find_nearest(kd_tree.build(p), p)):
        part(x[:1000])  # compiled once, kept in the cache
    neighbours.count_within(kd_tree.build(x[:1000]), y[:1000], norms[:1000])
    tree, built, _ = timed(lambda: kd_tree.build(x))
    theirs, scipy_built, _ = timed(lambda: cKDTree(x))
    cores = len(os.sched_getaffinity(0))
    print(f"{records:,} records × {len(KEYS)} keys, {cores} cores, load {os.getloadavg()[0]:.1f}")
    print(f"building the tree: {built:.2f} s, SciPy {scipy_built:.2f} s")
    for share in (0.0001, 0.001, 0.01, 0.05):
        radii = radius_for(x, y, share) * norms
        counts, wall, processor = timed(lambda r=radii: neighbours.count_within(tree, y, r))
        told, scipy_wall, scipy_processor = timed(
            lambda r=radii: theirs.query_ball_point(y[some], r[some], return_length=True, workers=cores)
        )
        scipy_wall, scipy_processor = scipy_wall * records / len(some), scipy_processor * records / len(some)
        # SciPy counts what lies at the radius itself, too.
        agreeing = np.mean(counts[some] == told)
        held = f"neighbourhoods of {counts.mean() / records:.2%} of the file"
        print(
            f"{held}: {wall:.1f} s ({processor:.1f} s of processor), SciPy {scipy_wall:.1f} s ({scipy_processor:.1f} s)"
        )
        print(f"  ratio {scipy_processor / processor:.1f}; {agreeing:.4%} of the counts agree")
    whole_plot(records)
    found, wall, processor = timed(lambda: neighbours.find_nearest(tree, y))
    told, scipy_wall, scipy_processor = timed(lambda: theirs.query(y, workers=cores))
    ratio = scipy_processor / processor
    print(
        f"nearest neighbour: {wall:.1f} s ({processor:.1f} s of processor), SciPy {scipy_wall:.1f} s; ratio {ratio:.1f}"
    )
    assert np.allclose(np.sqrt(found[1]), told[0])


if __name__ == "__main__":
    main()
