"""Cells counted area by area are those counted by comparing batches."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap import datasets
from safeswap.engines.spilled_cells import ComparedCells, CutCells, SpilledCells
from safeswap.model.microdata import Coded
from safeswap.on_disk import memory
from safeswap.on_disk.memory import AreaCells, find_cuts, split_columns
from safeswap.workflow import mask_file

NAMES = ("state", "block", "race", "tenure")
"""Two levels of geography, an attribute that is exchanged in some cases, and one that never is."""


def columns_of(random: np.random.Generator, records: int, blocks: int, *, is_sorted: bool) -> dict[str, Coded]:
    block = random.integers(0, blocks, records)
    block = np.unique(np.sort(block) if is_sorted else block, return_inverse=True)[1]
    columns = {
        "state": block // 7,
        "block": block,
        "race": random.integers(0, 3, records),
        "tenure": random.integers(0, 2, records),
    }
    return {
        name: Coded(column.astype(np.uint32), pa.array(range(int(column.max()) + 1)), has_missing=False)
        for name, column in columns.items()
    }


@given(
    file=st.tuples(st.integers(0, 10_000), st.integers(1, 400), st.sampled_from([1, 2, 30, 1000])),
    share=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    moved=st.sampled_from([(), ("state", "block"), ("block",), ("race",), ("state", "block", "race")]),
)
def test_counting_by_area_finds_the_cells_of_every_batch(
    tmp_path_factory: pytest.TempPathFactory, file: tuple[int, int, int], share: float, moved: tuple[str, ...]
) -> None:
    seed, records, blocks = file
    random = np.random.default_rng(seed)
    before = columns_of(random, records, blocks, is_sorted=True)
    in_pairs = random.random(records) < share
    rows = np.flatnonzero(in_pairs)
    source = np.arange(records)
    source[rows] = random.permutation(rows)
    after = {name: before[name].codes[source] for name in moved}
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(memory, "_TOGETHER", 16)
        changed.setattr(memory, "_PACKED_AT_ONCE", 50)
        cuts = find_cuts(before["block"].codes)
        assert cuts is not None
        found = AreaCells(NAMES, before, after, in_pairs=in_pairs, area="block", cuts=cuts)
        tally = found.tally(limit=5)

    compared = ComparedCells(tmp_path_factory.mktemp("cells"), NAMES, records=records)
    batch = pa.record_batch({name: before[name].codes for name in NAMES})
    compared.add(batch, in_pairs, {name: pa.array(codes[rows]) for name, codes in after.items()})
    assert (found.differ, found.untouched, found.moved) == (compared.differ, compared.untouched, compared.moved)
    meant = compared.tally(limit=5)
    for name in ("before", "after", "alike"):
        assert getattr(tally.joint, name).tolist() == getattr(meant.joint, name).tolist()
    assert tally.joint.cells == meant.joint.cells
    assert tally.small_cells.tolist() == meant.small_cells.tolist()
    assert tally.small_untouched.tolist() == meant.small_untouched.tolist()


@given(seed=st.integers(0, 10_000), records=st.integers(1, 300), is_sorted=st.booleans())
def test_no_code_is_on_both_sides_of_a_cut(seed: int, records: int, is_sorted: bool) -> None:
    codes = columns_of(np.random.default_rng(seed), records, 40, is_sorted=is_sorted)["block"].codes
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(memory, "_TOGETHER", 16)
        changed.setattr(memory, "_MOST_TOGETHER", 64)
        cuts = find_cuts(codes)
    if cuts is None:
        return
    parts = [set(codes[low:high].tolist()) for low, high in pairwise(cuts)]
    assert all(parts)
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert np.diff(cuts).max() <= 64
    assert (cuts[0], cuts[-1]) == (0, records)


def test_a_file_without_areas_that_lie_together_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_TOGETHER", 16)
    monkeypatch.setattr(memory, "_MOST_TOGETHER", 64)
    assert find_cuts(np.tile(np.arange(2, dtype=np.uint8), 100)) is None


@pytest.mark.parametrize(("sizes", "cut"), [([2, 3], 2), ([2**62, 2**62], 1), ([2**62, 2, 2**62], None), ([], 0)])
def test_columns_are_packed_into_two_numbers_or_not_at_all(sizes: list[int], cut: int | None) -> None:
    assert split_columns(sizes) == cut


KEYS = ["WHITE", "BLACK", "HISPANIC"]
LEVELS = ["STATE", "COUNTY", "TRACT", "BLOCK"]
SPECS: dict[str, tuple[dict[str, Any], type]] = {
    "edit_1990": ({"keys": KEYS, "geography": LEVELS, "rate": 0.01, "single_areas": "leave"}, AreaCells),
    "edit_targeted": ({"keys": KEYS, "within": ["STATE"]}, AreaCells),
    "swap": ({"swap": ["TENURE"], "fixed": ["STATE"], "rate": 0.1}, CutCells),
}


@pytest.mark.parametrize("method", SPECS)
def test_a_masked_file_has_the_same_figures_either_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Records enter other areas, or exchange what is no area; or the file is not worth cutting."""
    source, (spec, way) = tmp_path / "census.parquet", SPECS[method]
    datasets.write_synthetic_census(source, 5_000)
    tallied: list[type] = []
    for kind in (AreaCells, CutCells, SpilledCells):

        def tally(cells: Any, *, limit: int, own: Any = kind.tally) -> Any:
            tallied.append(type(cells))
            return own(cells, limit=limit)

        monkeypatch.setattr(kind, "tally", tally)
    figures = []
    for most in (1 << 12, 1):
        monkeypatch.setattr(memory, "_TOGETHER", 1 << 10)
        monkeypatch.setattr(memory, "_MOST_TOGETHER", most)
        done = mask_file(
            source,
            tmp_path / f"{most}.parquet",
            {"method": method, **spec},
            audit=tmp_path / "audit",
            insecure_seed=1,
            schema=datasets.synthetic_census_schema(),
            measures=["n_rule", "hellinger", "total_variation", "entropy_change"],
        )
        assert done.assessment is not None
        figures.append(([score.value for score in done.assessment.scores], done.compensating))
    assert figures[0] == figures[1]
    assert tallied == [way, SpilledCells]
