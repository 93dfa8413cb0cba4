"""``--engine``: what ``mask`` and ``swap`` make of a Parquet file on disk is what they make of it in memory."""

import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from safeswap import datasets, registry
from safeswap.files.schema_file import write_schema

KEYS = "ADULTS,FAMILIES,TRAILER"
METHODS = {
    "swap": ["swap", "--swap", "TENURE", "--fixed", "STATE", "--rate", "0.1"],
    "edit_1990": [
        *("mask", "edit_1990", "--keys", KEYS, "--geography", "STATE,COUNTY,PLACE,TRACT,BLOCK"),
        *("--across", "TRACT", "--rate", "0.05"),
    ],
    "edit_targeted": [
        "mask",
        "edit_targeted",
        "--keys",
        f"{KEYS},TENURE",
        "--exchange",
        "continuous",
        "--within",
        "STATE",
    ],
}


@pytest.fixture
def census(tmp_path):
    path = tmp_path / "census.parquet"
    datasets.write_synthetic_census(path, 3_000)
    write_schema(datasets.synthetic_census_schema(), tmp_path / "census.toml")
    return path


@pytest.mark.parametrize("method", METHODS)
def test_on_disk_and_in_memory_make_the_same_file(safeswap, census, tmp_path, method):
    stated = [*METHODS[method], census, "--schema", tmp_path / "census.toml", "--insecure-seed", "1"]
    runs = {}
    for name, options in (("whole", []), ("disk", ["--engine", "memory"])):
        places = ["--output", tmp_path / f"{name}.parquet", "--audit", tmp_path / f"audit-{name}", "--json"]
        runs[name] = safeswap(*stated, *places, *options)
        assert runs[name].code == 0, runs[name].said
    whole, disk = (pq.read_table(tmp_path / f"{name}.parquet") for name in runs)
    assert whole.to_pydict() == disk.to_pydict()
    for total in ("asked", "feasible", "made", "compensating", "records"):
        assert runs["whole"].document[total] == runs["disk"].document[total]
    scores = {score["measure"]: score["value"] for score in runs["whole"].document["scores"]}
    whole_left, disk_left = ({each["measure"] for each in run.document["left_out"]} for run in runs.values())
    assert disk_left == whole_left & set(registry.default_measures("categories", by_counts=True))
    for score in runs["disk"].document["scores"]:
        assert score["value"] == pytest.approx(scores[score["measure"]], rel=1e-11)


def test_it_says_what_was_done_where(safeswap, census, tmp_path):
    places = ["--output", tmp_path / "masked.parquet", "--audit", tmp_path / "audit"]
    run = safeswap(
        *METHODS["swap"], census, "--identifier", "HHID", "--insecure-seed", "1", *places, "--engine", "memory"
    )
    assert run.code == 0
    assert "150 pairs exchanged in 3,000 records; every guarantee was verified on disk." in run.said
    assert "NOT FOR RELEASE" in run.said
    assert "n_rule" in run.said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--engine", "abacus"], "abacus"),
        (["--engine", "memory", "--plan-only"], "whole file in memory"),
        (["--engine", "memory", "--delimiter", ";"], "--delimiter"),
        (["--engine", "memory", "--differ", "A\nB"], "line break"),
    ],
)
def test_what_makes_no_sense_on_disk_is_refused(safeswap, census, tmp_path, more, said):
    places = ["--output", tmp_path / "masked.parquet", "--audit", tmp_path / "audit"]
    run = safeswap(*METHODS["swap"], census, "--identifier", "HHID", "--insecure-seed", "1", *places, *more)
    assert run.code != 0
    assert said in run.said
    assert not (tmp_path / "masked.parquet").exists()


def test_a_process_with_duckdb_ends_without_a_word_of_its_own(census, tmp_path):
    stated = [*METHODS["swap"], census, "--identifier", "HHID", "--insecure-seed", "1", "--engine", "duckdb", "--quiet"]
    places = ["--output", tmp_path / "masked.parquet", "--audit", tmp_path / "audit"]
    command = [sys.executable, "-m", "safeswap", *map(str, [*stated, *places])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "nanobind" not in done.stderr, done.stderr
