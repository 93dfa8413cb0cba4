"""Assessing large files from counts: the figures of :func:`safeswap.assess`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safeswap as ss
from safeswap import datasets, registry, workflow
from safeswap.errors import InputError, SpecError
from safeswap.files.coded_columns import code_columns
from safeswap.files.parquet import open_parquet
from safeswap.model.microdata import code_column
from safeswap.on_disk import cells as module

SCHEMA = datasets.synthetic_census_schema()
MEASURES = ("n_rule", "n_rule:n=7", "hellinger", "total_variation", "entropy_change")
SPECS: dict[str, dict[str, Any]] = {
    "swap": {"method": "swap", "swap": ["TENURE"], "fixed": ["STATE"], "rate": 0.2},
    "geography": {"method": "edit_targeted", "keys": ["ADULTS", "TENURE"], "within": ["STATE"], "tolerance": 20},
}
ATTRIBUTES = (None, ("TENURE", "OCCUPATION", "STATE"), ("COUNTY", "BLOCK", "ADULTS", "FAMILIES", "TENURE"))


@pytest.fixture(autouse=True)
def _even_small_files_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTH_COUNTING", 0)


def masked(folder: Path, spec: dict[str, Any], **options: Any) -> tuple[Path, Path]:
    source, target = folder / "census.parquet", folder / "masked.parquet"
    datasets.write_synthetic_census(source, 3_000, chunk_size=700)
    workflow.mask_file(source, target, spec, audit=folder / "audit", insecure_seed=1, schema=SCHEMA, **options)
    return source, target


def figures(found: ss.Assessment) -> list[float]:
    return [score.value for score in found]


@pytest.mark.parametrize("attributes", ATTRIBUTES)
@pytest.mark.parametrize("spec", SPECS)
def test_figures_from_counts_are_those_of_files_in_memory(
    tmp_path: Path, spec: str, attributes: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = masked(tmp_path, SPECS[spec])
    expected = ss.assess(*(ss.read(path, schema=SCHEMA) for path in files), measures=MEASURES, attributes=attributes)
    monkeypatch.setattr("safeswap.on_disk.cells.compare_files", None)  # nothing else may be asked
    found = workflow.assess_file(*files, measures=MEASURES, attributes=attributes, schema=SCHEMA)
    # Cells come in another order, and so do the terms of a sum.
    assert figures(found) == pytest.approx(figures(expected), rel=1e-11, abs=1e-15)
    assert found["n_rule"].detail.to_pylist() == expected["n_rule"].detail.to_pylist()
    assert found["n_rule"].sentence == expected["n_rule"].sentence
    assert found["n_rule"].value > 0


NUMBERS: dict[str, dict[str, Any]] = {
    "targeted edit": {"method": "edit_targeted", "keys": ["ADULTS", "TENURE"], "exchange": 2, "tolerance": 20},
    "swap": {"method": "swap", "swap": ["INCOME", "TAXES"], "rate": 0.2},
    "noise": {"method": "noise", "attributes": ["INCOME"], "size": 0.1},
    "microaggregation": {"method": "microaggregation", "attributes": ["INCOME", "TAXES"], "k": 4},
    "rank swap": {"method": "rank_swap", "attributes": ["INCOME"], "window": 0.1},
}
BY_COUNTS = registry.default_measures("categories", by_counts=True)


@pytest.mark.parametrize("attributes", [None, ("TENURE", "OCCUPATION"), ("TENURE", "INCOME"), ("TENURE", "HOME_VAL")])
@pytest.mark.parametrize("spec", NUMBERS)
def test_measures_of_cells_are_left_out_on_disk_as_in_memory_where_only_numbers_changed(
    tmp_path: Path, spec: str, attributes: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "census.parquet", tmp_path / "masked.parquet"
    datasets.write_synthetic_census(source, 1_000)
    before = ss.read(source, schema=SCHEMA)
    result = ss.mask(before, NUMBERS[spec], insecure_seed=1)
    pq.write_table(result.data.table.cast(before.table.schema), target)
    expected = ss.assess(before, ss.read(target, schema=SCHEMA), attributes=attributes)
    scores = {score.measure: score.value for score in expected if score.measure in BY_COUNTS}
    stated = attributes or ()
    changed = [n for n in stated if not before.table[n].equals(result.data.table[n].cast(before.table[n].type))]
    assert set(scores) == set(BY_COUNTS if changed else ())
    found = {
        name: workflow.assess_file(source, target, attributes=attributes, schema=SCHEMA, engine=engine)
        for name, engine in (("counts", "memory"), ("DuckDB", "duckdb"))
    }
    places = {"target": tmp_path / "again.parquet", "audit": tmp_path / "audit", "schema": SCHEMA}
    if spec in ("targeted edit", "swap"):
        asked: dict[str, Any] = {"measures": BY_COUNTS, "attributes": attributes, "insecure_seed": 1}
        found["masking"] = workflow.mask_file(source, spec=NUMBERS[spec], **places, **asked).assessment
    monkeypatch.setattr(module, "WORTH_COUNTING", 10_000)
    found["records"] = workflow.assess_file(source, target, attributes=attributes, schema=SCHEMA)
    for name, each in found.items():
        assert {score.measure: score.value for score in each} == pytest.approx(scores), name
        assert each.left_out == tuple(out for out in expected.left_out if out.measure in BY_COUNTS), name


@pytest.mark.parametrize("way", ["counts", "records", "duckdb"])
def test_an_n_rule_that_was_asked_for_is_refused_where_only_numbers_changed(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = masked(tmp_path, NUMBERS["targeted edit"])
    monkeypatch.setattr(module, "WORTH_COUNTING", 0 if way == "counts" else 10_000)
    asked: dict[str, Any] = {"measures": ["hellinger", "n_rule"], "attributes": ["TENURE"], "schema": SCHEMA}
    with pytest.raises(SpecError) as refused:
        workflow.assess_file(*files, engine="duckdb" if way == "duckdb" else "memory", **asked)
    assert refused.value.code == "measure-does-not-apply"


def test_values_that_are_new_after_masking_are_counted(tmp_path: Path) -> None:
    names, numbers = ["a", "b"] * 50, [1, 2, 3, 4] * 25
    before = pa.table({"id": range(100), "word": pa.array(names).dictionary_encode(), "number": numbers})
    after = before.set_column(1, "word", pa.array(["z", *names[1:]]).dictionary_encode())
    after = after.set_column(2, "number", pa.array([*numbers[:-1], 99]))
    for name, table in (("before", before), ("after", after)):
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=30 if name == "before" else 17)
    files = tmp_path / "before.parquet", tmp_path / "after.parquet"
    told = {"identifier": "id", "kinds": {"number": "ordinal", "word": "nominal"}}
    expected = ss.assess(*(ss.read(path, **told) for path in files), measures=MEASURES)
    assert figures(workflow.assess_file(*files, measures=MEASURES, **told)) == pytest.approx(figures(expected))


@pytest.mark.parametrize("side", ["before", "after", "both"])
def test_missing_values_are_counted_as_a_level(tmp_path: Path, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = masked(tmp_path, SPECS["swap"])
    for path in {"before": [source], "after": [target], "both": [source, target]}[side]:
        data = pq.read_table(path)
        for name in ("ADULTS", "TENURE"):
            holes = pa.array([None, *data[name].to_pylist()[1:]], pq.read_schema(path).field(name).type)
            data = data.set_column(data.column_names.index(name), name, pa.chunked_array([holes]))
        pq.write_table(data, path)
    asked: dict[str, Any] = {"measures": MEASURES, "attributes": ["ADULTS", "TENURE", "OCCUPATION"]}
    expected = ss.assess(*(ss.read(path, schema=SCHEMA) for path in (source, target)), **asked)
    monkeypatch.setattr(module, "compare_files", None)  # nothing else may be asked
    found = workflow.assess_file(source, target, schema=SCHEMA, **asked)
    assert figures(found) == pytest.approx(figures(expected), rel=1e-11, abs=1e-15)
    assert found["n_rule"].detail.to_pylist() == expected["n_rule"].detail.to_pylist()


def test_measures_of_tables_are_left_to_the_records(tmp_path: Path) -> None:
    files = masked(tmp_path, SPECS["swap"])
    asked: dict[str, Any] = {"measures": ["hellinger:ways=2", "n_rule:keys=TENURE+ADULTS"]}
    asked["attributes"] = ["ADULTS", "TENURE", "OCCUPATION"]
    expected = ss.assess(*(ss.read(path, schema=SCHEMA) for path in files), **asked)
    assert figures(workflow.assess_file(*files, schema=SCHEMA, **asked)) == figures(expected)


def test_other_records_and_identifiers_as_cells_are_refused(tmp_path: Path) -> None:
    source, target = masked(tmp_path, SPECS["swap"])
    data = pq.read_table(target)
    pq.write_table(data.take(pa.array(range(data.num_rows - 1, -1, -1))), tmp_path / "turned.parquet")
    with pytest.raises(InputError) as turned:
        workflow.assess_file(source, tmp_path / "turned.parquet", schema=SCHEMA)
    with pytest.raises(SpecError) as identifier:
        workflow.assess_file(source, target, schema=SCHEMA, attributes=["HHID"])
    assert (turned.value.code, identifier.value.code) == ("files-differ", "identifier-in-measure")


def test_columns_are_coded_batch_by_batch_as_they_are_as_a_whole(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    words = [f"w{i}" for i in draw.integers(0, 400, 2_000)]
    table = pa.table(
        {
            "short": draw.integers(-3, 3, 2_000).astype(np.int8),
            "long": draw.integers(0, 300, 2_000) * 10**12,
            "word": words,
            "level": pa.array(words).dictionary_encode(),
            "hole": [None, *words[1:]],
            "number": draw.random(2_000).round(1),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=300)
    found = code_columns(open_parquet(tmp_path / "x.parquet"), table.column_names)
    for name, coded in found.items():
        expected = code_column(table[name])
        assert coded.cardinality == expected.cardinality
        assert coded.codes.dtype == expected.codes.dtype
        values = [*coded.levels.to_pylist(), None]
        assert [values[code] for code in coded.codes] == table[name].to_pylist()


@pytest.mark.parametrize("rows", [3, 6, 100])
def test_files_in_other_batches_come_side_by_side(tmp_path: Path, rows: int) -> None:
    for name, size in (("a", 7), ("b", 5)):
        pq.write_table(pa.table({"x": range(40), "y": range(40)}), tmp_path / f"{name}.parquet", row_group_size=size)
    first, second = (open_parquet(tmp_path / f"{name}.parquet") for name in "ab")
    met = list(module.zip_batches(first, second, ["y"], ["x"], rows=rows))
    assert all(mine["x"].equals(theirs["x"]) and theirs.schema.names == ["x"] for mine, theirs in met)
    assert [value for mine, _ in met for value in mine["y"].to_pylist()] == list(range(40))
