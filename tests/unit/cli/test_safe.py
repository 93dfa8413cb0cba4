"""``safeswap safe``: tables, records and the check, and what is said where it cannot be done."""

from __future__ import annotations

import csv

import pytest

TABLES = ("--tables", "Race,EmpTyp,MS,Edu,Age", "--tables", "AnnSal,Sex,Edu,Race", "--tolerance", "5")


@pytest.fixture
def cps(safeswap, tmp_path):
    """The shipped survey on disk, and the options with which it is read."""
    path, schema = tmp_path / "cps.csv", tmp_path / "cps.toml"
    assert safeswap("datasets", "write", "cps8d", path, "--write-schema", schema).code == 0
    return path, "--schema", schema


@pytest.fixture
def rows(tmp_path):
    """Rows that add up to 4 and 5, columns to 3 and 6."""
    path = tmp_path / "counts.csv"
    path.write_text("Region,Sex,count\nN,f,1\nN,m,3\nS,f,2\nS,m,3\n", encoding="utf-8")
    return path


def test_records_are_changed_until_the_check_finds_nothing(safeswap, cps, tmp_path):
    before = safeswap("safe", "check", *cps, *TABLES, "--json").document
    assert before["small"] == before["derived"] == 26
    made = ("--output", tmp_path / "safe.csv", "--audit", tmp_path / "audit", "--report", tmp_path / "safe.html")
    run = safeswap("safe", "records", *cps, *TABLES, "--keep", "Sex", "--insecure-seed", "1", "--no-scores", *made)
    assert run.code == 0
    assert "univariate margins moved" in run.said
    assert "Sex" not in run.said.split("univariate margins moved")[1].split("\n")[0]
    after = safeswap("safe", "check", tmp_path / "safe.csv", *cps[1:], *TABLES, "--json").document
    assert after["is_safe"]
    assert "num changed" in (tmp_path / "safe.html").read_text()
    record = next((tmp_path / "audit").iterdir())
    undone = safeswap("undo", tmp_path / "safe.csv", "--record", record, "--output", tmp_path / "back.csv")
    assert undone.code == 0
    assert (tmp_path / "back.csv").read_bytes() == cps[0].read_bytes()


def test_the_same_records_come_from_mask(safeswap, cps, tmp_path):
    for number, words in enumerate((("safe", "records"), ("mask", "safe"))):
        made = ("--output", tmp_path / f"{number}.csv", "--audit", tmp_path / "audit", "--no-scores")
        assert safeswap(*words, *cps, *TABLES, "--insecure-seed", "1", *made).code == 0
    assert (tmp_path / "0.csv").read_bytes() == (tmp_path / "1.csv").read_bytes()


def test_a_plan_needs_no_key(safeswap, cps):
    run = safeswap("safe", "records", *cps, *TABLES, "--plan-only")
    assert run.code == 0
    assert "at least 17 records must change" in run.said


def test_small_cells_go_to_a_file_and_not_to_the_screen(safeswap, cps, tmp_path):
    run = safeswap("safe", "check", *cps, *TABLES, "--output", tmp_path / "small.csv")
    with (tmp_path / "small.csv").open(encoding="utf-8") as file:
        cells = list(csv.DictReader(file))
    assert len(cells) == 26
    assert all(0 < int(cell["count"]) < 5 for cell in cells)
    assert "Govt" not in run.said


def test_a_table_in_rows_comes_back_in_rows(safeswap, tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("Region,Sex,count\nN,f,4\nN,m,9\nS,f,9\nS,m,9\n", encoding="utf-8")
    run = safeswap("safe", "table", path, "--tolerance", "5", "--output", tmp_path / "safe.csv", "--json")
    assert run.document["total_change"] == 4
    assert run.document["status"] == "optimal"
    with (tmp_path / "safe.csv").open(encoding="utf-8") as file:
        assert [int(row["count"]) for row in csv.DictReader(file)] == [5, 8, 8, 10]


def test_what_cannot_be_met_is_said_and_soft_lists_it(safeswap, rows, tmp_path):
    refused = safeswap("safe", "table", rows, "--tolerance", "3", "--output", tmp_path / "safe.csv")
    assert refused.code != 0
    assert "cannot be met together" in refused.stderr
    assert not (tmp_path / "safe.csv").exists()
    soft = safeswap("safe", "table", rows, "--tolerance", "3", "--soft", "--report", tmp_path / "soft.html", "--json")
    assert soft.code == 0
    assert sum(abs(v["after"] - v["before"]) for v in soft.document["violations"]) == soft.document["violation"]
    assert "Kept figures that are off" in (tmp_path / "soft.html").read_text()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--tolerance", "1"), "bad-tolerance"),
        (("--count", "n"), "no-count-column"),
        (("--objective", "smallest"), "bad-spec"),
        (("--keep", "Town"), "unknown-variable"),
        (("--output", "a.csv", "--output", "b.csv"), "bad-spec"),
    ],
)
def test_a_wrong_call_is_refused(safeswap, rows, options, code):
    run = safeswap("safe", "table", rows, *options, "--json")
    assert run.code != 0
    assert run.document["code"] == code


def test_records_need_tables(safeswap, cps):
    run = safeswap("safe", "records", *cps, "--plan-only")
    assert run.code == 2
    assert "--tables" in run.said
