"""Masking on disk: the same result as in memory, the files and the record complete or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safeswap as ss
from safeswap import datasets, workflow
from safeswap.errors import EngineError, InputError, OutputError, UnsafeRelease
from safeswap.files import rewrite
from safeswap.files.parquet import open_parquet
from safeswap.on_disk import job as module
from safeswap.workflow.masking import recall

SCHEMA = datasets.synthetic_census_schema()
SPEC = ss.SwapSpec(swap=["TENURE", "ADULTS"], fixed=["STATE"], rate=0.2)
ENGINES = ("memory", "duckdb")


@pytest.fixture
def census(tmp_path: Path) -> Path:
    path = tmp_path / "census.parquet"
    datasets.write_synthetic_census(path, 3_000, chunk_size=700)
    return path


def masked(source: Path, engine: str, target: str = "masked.parquet", **options: Any) -> workflow.MaskedFile:
    folder = source.parent
    stated = {"schema": SCHEMA, "insecure_seed": 1, "spec": SPEC, "audit": folder / "audit", **options}
    return workflow.mask_file(source, folder / target, engine=engine, **stated)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name not in ("census.parquet", "census"))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_file_is_masked_as_it_would_be_in_memory(census: Path, engine: str) -> None:
    result = masked(census, engine)
    expected = ss.mask(ss.read(census, schema=SCHEMA), SPEC, insecure_seed=1)
    written = pq.read_table(census.parent / "masked.parquet")
    assert written.to_pydict() == expected.data.table.to_pydict()
    told = {name: value for name, value in result.as_dict().items() if name != "engine"}
    assert told == expected.as_dict()
    assert all(finding.ok for finding in result.findings)
    assert leftovers(census.parent) == ["audit", "masked.parquet"]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_record_undoes_the_masking(census: Path, engine: str) -> None:
    result = masked(census, engine)
    undone = workflow.undo(ss.read(census.parent / "masked.parquet", schema=SCHEMA), result.audit)
    assert undone.table.to_pydict() == pq.read_table(census).to_pydict()
    recalled = recall(census, census.parent / "masked.parquet", audit=census.parent / "audit")
    assert recalled.audit.made == result.made
    assert (result.audit.stat().st_mode & 0o777, (result.audit / "pairs.parquet").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_directory_of_files_is_one_file(census: Path, engine: str) -> None:
    folder = census.parent / "census"
    (folder / "below").mkdir(parents=True)
    data = pq.read_table(census)
    pq.write_table(data.slice(0, 1_000), folder / "a.parquet", row_group_size=300)
    pq.write_table(data.slice(1_000, 0), folder / "b.parquet")
    pq.write_table(data.slice(1_000), folder / "below" / "c.parquet", compression="zstd")
    (folder / "_SUCCESS").touch()
    result = masked(folder, engine, "masked")
    expected = ss.mask(ss.read(census, schema=SCHEMA), SPEC, insecure_seed=1)
    files = open_parquet(census.parent / "masked")
    assert [part.path.name for part in files.parts] == ["a.parquet", "b.parquet", "c.parquet"]
    assert files.table(data.column_names).to_pydict() == expected.data.table.to_pydict()
    assert result.made == expected.audit.made


@pytest.mark.parametrize("engine", ENGINES)
def test_columns_that_cannot_be_copied_are_encoded_anew(
    census: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise rewrite.CannotSplice

    monkeypatch.setattr(rewrite, "splice", refuse)
    masked(census, engine)
    expected = ss.mask(ss.read(census, schema=SCHEMA), SPEC, insecure_seed=1)
    assert pq.read_table(census.parent / "masked.parquet").to_pydict() == expected.data.table.to_pydict()


@pytest.mark.parametrize("engine", ENGINES)
def test_an_input_that_changes_underneath_leaves_nothing(
    census: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = module.rewrite

    def then_touched(*arguments: Any, **options: Any) -> Any:
        written = write(*arguments, **options)
        os.utime(census, ns=(1, 1))
        return written

    monkeypatch.setattr(module, "rewrite", then_touched)
    with pytest.raises(InputError) as caught:
        masked(census, engine)
    assert caught.value.code == "input-changed"
    assert leftovers(census.parent) == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_nothing(
    census: Path, engine: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(module, "write_audit_json", fail)
    with pytest.raises((OutputError, KeyboardInterrupt)):
        masked(census, engine)
    assert leftovers(census.parent) == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("column", ["TENURE", "INCOME"])
def test_a_written_file_that_does_not_keep_the_promises_is_not_released(
    census: Path, engine: str, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = module.rewrite

    def then_spoilt(files: Any, target: Path, **options: Any) -> Any:
        written = write(files, target, **options)
        data = pq.read_table(target)
        values = data[column].to_pylist()
        other = next(value for value in values if value != values[0])
        fresh = pa.chunked_array([pa.array([other, *values[1:]], data.schema.field(column).type)])
        place = data.column_names.index(column)
        pq.write_table(data.set_column(place, data.schema.field(column), fresh), target, row_group_size=700)
        return written

    monkeypatch.setattr(module, "rewrite", then_spoilt)
    with pytest.raises(UnsafeRelease) as caught:
        masked(census, engine)
    assert caught.value.code == "promise-broken"
    assert column in str(caught.value)
    assert leftovers(census.parent) == []


def test_what_exists_is_not_overwritten_unless_asked_for(census: Path) -> None:
    masked(census, "memory")
    with pytest.raises(OutputError) as caught:
        masked(census, "memory")
    assert caught.value.code == "exists"
    masked(census, "memory", force=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_identifier_that_is_not_unique_is_refused(census: Path, engine: str) -> None:
    data = pq.read_table(census)
    identifiers = data["HHID"].to_numpy().copy()
    identifiers[17] = identifiers[2_000]
    pq.write_table(data.set_column(0, "HHID", pa.array(identifiers)), census, row_group_size=500)
    with pytest.raises(InputError) as caught:
        masked(census, engine)
    assert caught.value.code == "duplicate-identifier"
    assert leftovers(census.parent) == []


def test_what_an_engine_cannot_do_names_one_that_can(census: Path) -> None:
    with pytest.raises(EngineError) as caught:
        masked(census, "duckdb", spec={"method": "edit_targeted", "keys": ["TENURE"]})
    assert caught.value.code == "not-supported"
    assert caught.value.fields["engines"] == ["memory"]
    with pytest.raises(EngineError):
        workflow.mask(pa.table({"a": ["x", "y"]}), SPEC, insecure_seed=1, engine="duckdb")


def test_a_text_file_a_partitioned_and_an_empty_directory_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "lake" / "year=1").mkdir(parents=True)
    pq.write_table(pa.table({"a": np.arange(3)}), tmp_path / "lake" / "year=1" / "x.parquet")
    codes = []
    for name in ("data.csv", "empty", "lake", "absent"):
        with pytest.raises(InputError) as caught:
            open_parquet(tmp_path / name)
        codes.append(caught.value.code)
    assert codes == ["unknown-format", "no-files", "partition-directories", "missing-file"]
