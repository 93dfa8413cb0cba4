"""Assessing files on disk: the figures of :func:`safeswap.assess`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safeswap as ss
from safeswap import datasets, workflow
from safeswap.errors import InputError

SCHEMA = datasets.synthetic_census_schema()
MEASURES = ("n_rule", "hellinger", "total_variation", "entropy_change", "adV")


@pytest.fixture
def census(tmp_path: Path) -> Path:
    datasets.write_synthetic_census(tmp_path / "census.parquet", 3_000, chunk_size=700)
    spec = ss.SwapSpec(swap=["TENURE"], fixed=["STATE"], rate=0.2)
    places = {"target": tmp_path / "masked.parquet", "audit": tmp_path / "audit"}
    workflow.mask_file(tmp_path / "census.parquet", spec=spec, insecure_seed=1, schema=SCHEMA, **places)
    return tmp_path


@pytest.mark.parametrize("attributes", [None, ("TENURE", "OCCUPATION", "STATE")])
def test_the_figures_are_those_of_files_in_memory(census: Path, attributes: tuple[str, ...] | None) -> None:
    files = census / "census.parquet", census / "masked.parquet"
    read = [ss.read(path, schema=SCHEMA) for path in files]
    expected = ss.assess(*read, measures=MEASURES, attributes=attributes)
    found = workflow.assess_file(*files, measures=MEASURES, attributes=attributes, schema=SCHEMA)
    assert [score.value for score in found] == [score.value for score in expected]
    assert found["n_rule"].value > 0


def test_a_copy_that_is_encoded_otherwise_has_the_same_figures(census: Path) -> None:
    pq.write_table(pq.read_table(census / "masked.parquet"), census / "other.parquet", compression="zstd")
    one, other = (
        workflow.assess_file(census / "census.parquet", census / name, schema=SCHEMA)
        for name in ("masked.parquet", "other.parquet")
    )
    assert [score.value for score in one] == [score.value for score in other]


def test_files_that_do_not_belong_together_are_refused(census: Path) -> None:
    data = pq.read_table(census / "masked.parquet")
    pq.write_table(data.slice(1), census / "shorter.parquet")
    order = pa.array(range(data.num_rows - 1, -1, -1))
    pq.write_table(data.take(order), census / "turned.parquet")
    for name in ("shorter.parquet", "turned.parquet"):
        with pytest.raises(InputError) as caught:
            workflow.assess_file(census / "census.parquet", census / name, schema=SCHEMA)
        assert caught.value.code == "files-differ"
