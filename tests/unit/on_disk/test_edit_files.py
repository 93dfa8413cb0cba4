"""The Confidentiality Edits of files on disk: the same result as in memory, whatever is exchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safeswap as ss
from safeswap import datasets, workflow
from safeswap.errors import EngineError, InputError, SpecError, UnsafeRelease
from safeswap.files.rewrite import same_chunks
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.on_disk import job as module
from safeswap.workflow.masking import recall

SCHEMA = datasets.synthetic_census_schema()
GEOGRAPHY = ("STATE", "COUNTY", "PLACE", "TRACT", "BLOCK")
KEYS = ("ADULTS", "FAMILIES", "TRAILER")
SWAP: dict[str, Any] = {"method": "swap", "swap": ["TENURE", "ADULTS"], "fixed": ["STATE"], "rate": 0.2}
TARGETED: dict[str, Any] = {"method": "edit_targeted", "keys": [*KEYS, "TENURE"], "within": ["STATE"]}
EDITS: dict[str, dict[str, Any]] = {
    "1990": {"method": "edit_1990", "keys": KEYS, "geography": GEOGRAPHY, "rate": 0.1, "across": "TRACT"},
    "1990, small blocks": {
        "method": "edit_1990",
        "keys": KEYS,
        "geography": GEOGRAPHY,
        "rate": 0.05,
        "small_block_units": 4,
        "small_block_rate": 0.5,
        "across": "PLACE",
        "single_areas": "leave",
    },
    "1990, nobody": {"method": "edit_1990", "keys": KEYS, "geography": GEOGRAPHY, "rate": 0.0},
    "geography": TARGETED,
    "continuous": {**TARGETED, "exchange": "continuous"},
    "categorical": {**TARGETED, "exchange": "categorical"},
    "near-optimal order": {**TARGETED, "exchange": "continuous", "order": "near_optimal", "order_by": ["INCOME"]},
    "letter": {**TARGETED, "variant": "letter", "continuous": ["TAXES"], "exchange": 2},
}


@pytest.fixture
def census(tmp_path: Path) -> Path:
    path = tmp_path / "census.parquet"
    datasets.write_synthetic_census(path, 3_000, chunk_size=700)
    return path


def masked(source: Path, spec: dict[str, Any], target: str = "masked.parquet", **options: Any) -> workflow.MaskedFile:
    folder = source.parent
    stated = {"schema": SCHEMA, "insecure_seed": 1, "audit": folder / "audit", **options}
    return workflow.mask_file(source, folder / target, spec, **stated)


@pytest.mark.parametrize("edit", EDITS)
def test_a_file_is_edited_as_it_would_be_in_memory(census: Path, edit: str) -> None:
    result = masked(census, EDITS[edit])
    expected = ss.mask(ss.read(census, schema=SCHEMA), EDITS[edit], insecure_seed=1)
    assert pq.read_table(census.parent / "masked.parquet").to_pydict() == expected.data.table.to_pydict()
    assert {name: value for name, value in result.as_dict().items() if name != "engine"} == expected.as_dict()
    assert all(finding.ok for finding in result.findings)
    assert (result.made > 0) == (edit != "1990, nobody")
    noted = json.loads((result.audit / "audit.json").read_text())["audit"]
    assert noted["facts"] == json.loads(json.dumps(dict(expected.audit.facts)))
    assert [stage["pairs"] for stage in noted["stages"]] == [len(each.pairs) for each in expected.audit.exchanges]
    assert result.stamp == expected.audit.stamp


@pytest.mark.parametrize("edit", ["1990", "continuous", "categorical"])
def test_the_record_undoes_the_edit(census: Path, edit: str) -> None:
    result = masked(census, EDITS[edit])
    undone = workflow.undo(ss.read(census.parent / "masked.parquet", schema=SCHEMA), result.audit)
    assert undone.table.to_pydict() == pq.read_table(census).to_pydict()
    recalled = recall(census, census.parent / "masked.parquet", audit=census.parent / "audit")
    assert recalled.audit.made == result.made


@pytest.mark.parametrize("edit", ["1990", "continuous"])
def test_columns_in_which_nothing_was_exchanged_are_copied_byte_by_byte(census: Path, edit: str) -> None:
    masked(census, EDITS[edit])
    exchanged = GEOGRAPHY[1:] if edit == "1990" else ("INCOME", "HOME_VAL", "MORTGAGE", "MAINTAIN", "TAXES")
    others = [name for name in SCHEMA.names if name not in exchanged]
    assert same_chunks(census, census.parent / "masked.parquet", others)
    assert not same_chunks(census, census.parent / "masked.parquet", exchanged)


def test_a_directory_is_edited_as_one_file(census: Path) -> None:
    folder = census.parent / "census"
    folder.mkdir()
    data = pq.read_table(census)
    pq.write_table(data.slice(0, 1_000), folder / "a.parquet", row_group_size=300)
    pq.write_table(data.slice(1_000), folder / "b.parquet", compression="zstd")
    masked(folder, EDITS["1990"], "masked")
    expected = ss.mask(ss.read(census, schema=SCHEMA), EDITS["1990"], insecure_seed=1).data.table
    assert pq.read_table(census.parent / "masked").to_pydict() == expected.to_pydict()


def test_a_written_file_that_does_not_keep_the_margins_is_not_released(
    census: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = module.rewrite

    def then_spoilt(files: Any, target: Path, **options: Any) -> Any:
        written = write(files, target, **options)
        data = pq.read_table(target)
        moved = data["BLOCK"].to_numpy().copy()
        moved[0] = moved[-1]
        place = data.column_names.index("BLOCK")
        pq.write_table(data.set_column(place, "BLOCK", [moved]), target, row_group_size=700)
        return written

    monkeypatch.setattr(module, "rewrite", then_spoilt)
    with pytest.raises(UnsafeRelease) as caught:
        masked(census, EDITS["1990"])
    assert caught.value.code == "promise-broken"
    assert [path.name for path in census.parent.iterdir()] == ["census.parquet"]


def test_missing_keys_unknown_columns_and_other_engines_are_refused(census: Path) -> None:
    data = pq.read_table(census)
    holes = data["ADULTS"].to_pylist()
    holes[5] = None
    place, field = data.column_names.index("ADULTS"), data.schema.field("ADULTS")
    fresh = pa.chunked_array([pa.array(holes, field.type)])
    pq.write_table(data.set_column(place, field, fresh), census.parent / "holes.parquet")
    with pytest.raises(InputError) as missing:
        masked(census.parent / "holes.parquet", EDITS["1990"])
    with pytest.raises(SpecError) as unknown:
        masked(census, {**TARGETED, "keys": ["ROOMS"]})
    with pytest.raises(EngineError) as elsewhere:
        masked(census, {"method": "microaggregation", "attributes": ["INCOME"]})
    codes = [caught.value.code for caught in (missing, unknown, elsewhere)]
    assert codes == ["missing-keys", "unknown-attribute", "not-supported"]


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
@pytest.mark.parametrize("numbers", ["once", "twice", "missing", "twice, as text"])
def test_households_that_repeat_or_have_no_number_are_refused(census: Path, engine: str, numbers: str) -> None:
    data = pq.read_table(census)
    found: list[int | None] = [*range(data.num_rows)]
    if numbers != "once":
        found[-1] = None if numbers == "missing" else 17
    column = pa.array(found).cast(pa.string() if "text" in numbers else pa.int64())
    source = census.parent / "numbered.parquet"
    pq.write_table(data.append_column("DWELLING", column), source, row_group_size=700)
    schema = Schema(attributes=(*SCHEMA.attributes, Attribute(name="DWELLING", kind=Kind.HOUSEHOLD)))
    if numbers == "once":
        assert masked(source, EDITS["1990"], schema=schema, engine=engine).made > 0
        return
    with pytest.raises(InputError) as refused:
        masked(source, EDITS["1990"], schema=schema, engine=engine)
    assert refused.value.code == "household-repeats"
    assert {path.name for path in census.parent.iterdir()} == {"census.parquet", "numbered.parquet"}


def test_an_edit_of_numbers_is_not_assessed_by_cells_that_did_not_change(census: Path) -> None:
    measures = ("n_rule", "hellinger", "total_variation", "entropy_change")
    found = masked(census, EDITS["continuous"], measures=measures).assessment
    assert found is not None
    assert not found.scores
    assert tuple(each.measure for each in found.left_out) == measures
    assert {each.reason for each in found.left_out} == {"masking changed numeric attributes only"}


@pytest.mark.parametrize(
    ("engine", "spec"),
    [
        *(("memory", spec) for spec in (SWAP, EDITS["1990"], EDITS["categorical"])),
        ("duckdb", SWAP),
        ("duckdb", EDITS["1990"]),
    ],
)
@pytest.mark.parametrize("attributes", [None, ("ADULTS", "TENURE", "TRACT")])
def test_a_masking_is_assessed_from_what_was_read_anyway(
    census: Path, engine: str, spec: dict[str, Any], attributes: tuple[str, ...] | None
) -> None:
    measures = ("n_rule", "hellinger", "total_variation", "entropy_change")
    result = masked(census, spec, measures=measures, attributes=attributes, engine=engine)
    in_memory = ss.mask(ss.read(census, schema=SCHEMA), spec, insecure_seed=1)
    expected = ss.assess(in_memory, measures=measures, attributes=attributes)
    assert result.assessment is not None
    assert [s.value for s in result.assessment] == pytest.approx([s.value for s in expected], rel=1e-11, abs=1e-15)
    assert result.compensating == in_memory.audit.compensating


def test_measures_that_need_records_compare_the_two_files(census: Path) -> None:
    result = masked(census, SWAP, measures=["adV", "hellinger"], attributes=["TENURE", "OCCUPATION"])
    expected = ss.assess(
        ss.mask(ss.read(census, schema=SCHEMA), SWAP, insecure_seed=1),
        measures=["adV", "hellinger"],
        attributes=["TENURE", "OCCUPATION"],
    )
    assert result.assessment is not None
    assert [score.value for score in result.assessment] == [score.value for score in expected]
