"""An audit record is all that undoes a masking: no later masking overwrites it, whatever file it makes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.hand_made import KEY

import safeswap as ss
from safeswap import workflow
from safeswap.workflow.masking import keep, recall, undo

SWAP = {"method": "swap", "swap": ["race"], "pairs": 9}
NOTHING = {"method": "swap", "swap": ["race"], "rate": 0.0001}
READING = {"identifier": "id"}


@pytest.fixture
def original(tmp_path: Path) -> Path:
    races = ["abc"[number * number % 7 % 3] for number in range(60)]
    path = tmp_path / "survey.parquet"
    pq.write_table(pa.table({"id": range(60), "race": races, "sex": ["m", "f"] * 30}), path)
    return path


def masked_file(source: Path, target: str, spec: Mapping[str, Any], *, force: bool = False) -> tuple[Path, Path]:
    """Mask a file into one audit directory for all; return the masked file and its record."""
    folder = source.parent
    masked = ss.mask(ss.read(source, **READING), spec, key=KEY)
    record = keep(masked, folder / target, audit=folder / "aud", reading=READING, source=source, force=force)
    return folder / target, record


def rows(path: Path) -> list[dict[str, str]]:
    table = ss.read(path, **READING).table
    return [{name: str(value) for name, value in row.items()} for row in table.to_pylist()]


def undone(path: Path, record: Path) -> list[dict[str, str]]:
    table = undo(path, record).table
    return [{name: str(value) for name, value in row.items()} for row in table.to_pylist()]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_masking_that_changes_nothing_leaves_the_record_of_the_one_before(original: Path, suffix: str) -> None:
    first, undoes = masked_file(original, f"one.{suffix}", SWAP)
    second, other = masked_file(first, f"two.{suffix}", NOTHING)
    assert second.read_bytes() == first.read_bytes()
    assert (undoes != other, other.parent) == (True, undoes.parent)
    assert undone(first, undoes) == rows(original) != rows(first)
    assert undone(second, other) == rows(first)


def test_each_masking_of_the_same_file_is_recalled_with_its_own_record(original: Path) -> None:
    first, _ = masked_file(original, "one.csv", SWAP)
    second, _ = masked_file(first, "two.csv", NOTHING)
    third, _ = masked_file(second, "three.csv", {"method": "pram", "attributes": ["sex"], "keep": 0.5})
    audit = original.parent / "aud"
    assert recall(original, first, audit=audit).audit.made == 9
    again = recall(first, second, audit=audit)
    assert (again.audit.made, [step.method for step in again.original.past]) == (0, ["swap"])
    assert [step.method for step in recall(second, third, audit=audit).original.past] == ["swap"]


def test_the_earlier_step_is_found_by_its_record_without_a_register(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [("one.csv", SWAP), ("two.csv", NOTHING), ("three.csv", {"method": "pram", "attributes": ["sex"]})]
    files = [original]
    for number, (target, spec) in enumerate(steps):
        monkeypatch.setenv("SAFESWAP_LEDGER", str(original.parent / f"ledger-{number}.db"))
        files.append(masked_file(files[-1], target, spec)[0])
    monkeypatch.setenv("SAFESWAP_LEDGER", str(original.parent / "empty.db"))
    found = recall(files[-2], files[-1], audit=original.parent / "aud")
    assert [step.method for step in found.original.past] == ["swap"]


def test_the_same_masking_again_replaces_its_own_record_only(original: Path) -> None:
    first, undoes = masked_file(original, "one.csv", SWAP)
    masked_file(first, "two.csv", NOTHING)
    again = [masked_file(original, "one.csv", SWAP, force=True)[1] for _ in range(2)]
    assert again == [undoes, undoes]
    assert len(list((original.parent / "aud").iterdir())) == 2
    assert undone(first, undoes) == rows(original)


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_on_disk_too(original: Path, engine: str) -> None:
    folder, source, records = original.parent, original, []
    for target, spec in (("one.parquet", SWAP), ("two.parquet", NOTHING), ("three.parquet", NOTHING)):
        places = {"target": folder / target, "audit": folder / "aud"}
        done = workflow.mask_file(source, spec=spec, key=KEY, engine=engine, **places, **READING)
        source, records = folder / target, [*records, done.audit]
    assert undone(folder / "one.parquet", records[0]) == rows(original) != rows(folder / "one.parquet")
