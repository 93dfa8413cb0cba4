"""A job that fails removes its own record and nobody else's; what is on disk is what was decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from safeswap import workflow
from safeswap.errors import InputError, UnsafeRelease
from safeswap.on_disk import job, memory
from safeswap.on_disk.masking import write_both

SPEC: dict[str, Any] = {"method": "swap", "swap": ["x"], "rate": 0.5}


def survey(folder: Path, **columns: Any) -> Path:
    rng = np.random.default_rng(1)
    table = {"id": pa.array(range(60)), "x": pa.array(rng.choice(["a", "b", "c"], 60)), **columns}
    pq.write_table(pa.table(table), folder / "survey.parquet", row_group_size=13)
    return folder / "survey.parquet"


def mask(source: Path, *, target: str = "masked.parquet", engine: str = "memory", **more: Any) -> Any:
    stated = {"audit": source.parent / "audit", "identifier": "id", "insecure_seed": 1, "spec": SPEC, **more}
    return workflow.mask_file(source, source.parent / target, engine=engine, **stated)


def test_a_job_that_fails_leaves_the_records_of_others(tmp_path: Path) -> None:
    source = survey(tmp_path)
    with pytest.raises(RuntimeError), write_both(tmp_path / "audit", tmp_path / "never.parquet"):
        other = mask(source)
        raise RuntimeError
    assert other.audit.is_dir()


def test_a_record_stays_when_its_output_is_in_place_and_goes_when_it_is_not(tmp_path: Path) -> None:
    for name, is_there in (("there", True), ("missing", False)):
        record, output = tmp_path / "audit" / f"masking-{name}", tmp_path / name
        with pytest.raises(KeyboardInterrupt), write_both(tmp_path / "audit", output) as records:
            record.mkdir()
            records.append(record)
            if is_there:
                output.touch()
            raise KeyboardInterrupt
        assert record.is_dir() == is_there


def test_pairs_that_do_not_reach_the_record_stop_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = survey(tmp_path)
    monkeypatch.setattr(memory.MemoryFile, "iter_pairs", lambda _: iter(()))
    with pytest.raises(UnsafeRelease, match="audit record"):
        mask(source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["survey.parquet"]
    assert job.PairsDigest().number == 0


@pytest.mark.parametrize("role", ["fixed", "differ"])
def test_half_floats_are_kept_apart_and_together_on_disk_too(role: str, tmp_path: Path) -> None:
    halves = np.random.default_rng(2).choice([0.0, -0.0, 1.5, 2.25, np.nan], 60).astype(np.float16)
    source = survey(tmp_path, half=pa.array(halves))
    spec = {**SPEC, role: ["half"], "on_shortfall": "take"}
    kinds = {"half": "nominal"}
    expected, found = (
        mask(source, target=f"{engine}.parquet", engine=engine, spec=spec, kinds=kinds)
        for engine in ("memory", "duckdb")
    )
    assert found.made == expected.made > 0
    tables = [pq.read_table(tmp_path / f"{engine}.parquet").column("x").to_pylist() for engine in ("memory", "duckdb")]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_an_identifier_is_found_twice_however_far_apart_its_values(engine: str, tmp_path: Path) -> None:
    far = [0, 6917529027641081856, -4611686018427387904, 0, 5, 6]
    table = pa.table({"id": pa.array(far), "x": pa.array(list("abcabc"))})
    pq.write_table(table, tmp_path / "survey.parquet")
    with pytest.raises(InputError) as caught:
        mask(tmp_path / "survey.parquet", engine=engine)
    assert caught.value.code == "duplicate-identifier"
