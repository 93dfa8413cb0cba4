"""The same figures of risk and distortion from counts that are made in memory, in DuckDB and in Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engines.specs import KEY, SCHEMA, census, spec_of, write_parts

from safeswap import workflow
from safeswap.errors import EngineError, InputError

MEASURES = ("n_rule", "n_rule:n=6", "hellinger", "total_variation", "entropy_change")
ATTRIBUTES = ["STATE", "ADULTS", "TENURE", "OCCUPATION"]


def masked_census(folder: Path, name: str = "two attributes, any", data: pa.Table | None = None) -> tuple[Path, Path]:
    source = write_parts(census() if data is None else data, folder / "census", 3)
    target = folder / "masked"
    workflow.mask_file(source, target, spec_of(name), key=KEY, schema=SCHEMA, audit=folder / "audit")
    return source, target


def agree(found: Any, expected: Any) -> None:
    assert [score.measure for score in found] == [score.measure for score in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-12, abs=1e-15)
        assert one.attributes == other.attributes
        assert one.sentence.split(". ")[0].rstrip(".") == other.sentence.split(". ")[0].rstrip(".")


@pytest.mark.parametrize("attributes", [ATTRIBUTES, None, ["TENURE"]])
def test_duckdb_gives_the_figures_of_the_reference(attributes: list[str] | None, tmp_path: Path) -> None:
    source, target = masked_census(tmp_path)
    asked: dict[str, Any] = {"measures": MEASURES, "attributes": attributes, "schema": SCHEMA}
    expected = workflow.assess_file(source, target, **asked)
    agree(workflow.assess_file(source, target, engine="duckdb", memory_limit="100MB", **asked), expected)


def test_missing_values_and_files_cut_elsewhere_are_counted_alike(tmp_path: Path) -> None:
    holes = pa.array([None if i % 7 == 0 else value for i, value in enumerate(census()["TENURE"].to_pylist())])
    place = census().column_names.index("TENURE")
    data = census().set_column(place, "TENURE", holes.cast(census().schema.field("TENURE").type))
    source, target = masked_census(tmp_path, data=data)
    whole = tmp_path / "whole.parquet"
    pq.write_table(pq.read_table(target), whole, row_group_size=333)
    asked: dict[str, Any] = {"measures": MEASURES, "attributes": ATTRIBUTES, "schema": SCHEMA}
    expected = workflow.assess_file(source, target, **asked)
    agree(workflow.assess_file(source, whole, engine="duckdb", **asked), expected)


def test_a_file_that_did_not_change_has_no_distortion(tmp_path: Path) -> None:
    source = write_parts(census(), tmp_path / "census", 2)
    asked: dict[str, Any] = {"measures": MEASURES, "attributes": ATTRIBUTES, "schema": SCHEMA}
    found = workflow.assess_file(source, source, engine="duckdb", **asked)
    agree(found, workflow.assess_file(source, source, **asked))
    assert [score.value for score in found][2:] == [0.0, 0.0, 0.0]


def test_measures_that_need_records_are_refused_with_the_engine_that_can(tmp_path: Path) -> None:
    source, target = masked_census(tmp_path)
    with pytest.raises(EngineError) as caught:
        workflow.assess_file(source, target, measures=["adV"], engine="duckdb", schema=SCHEMA)
    assert caught.value.code == "not-supported"
    assert caught.value.fields["engines"] == ["memory"]
    other = write_parts(census().slice(0, 2_000), tmp_path / "shorter", 1)
    with pytest.raises(InputError) as differ:
        workflow.assess_file(source, other, engine="duckdb", schema=SCHEMA)
    assert differ.value.code == "files-differ"
