"""Every benchmark runs, with little data: a benchmark that crashes is noticed here. No figure is looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from goals import ONCE, RESULTS  # noqa: E402
from run import LAST, SMALL, format_table, keep_figures, read_last, read_rows  # noqa: E402

NO_BENCHMARKS = {"goals", "growth_chart", "plain_numpy", "quiet_chromium", "run"}


def test_every_benchmark_is_listed() -> None:
    scripts = {path.stem for path in BENCH.glob("*.py")}
    assert set(SMALL) == scripts - NO_BENCHMARKS


@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    done = subprocess.run(
        [sys.executable, str(BENCH / f"{name}.py"), *SMALL[name]],
        env={**os.environ, RESULTS: str(results), ONCE: "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.strip()
    for row in read_rows(results):
        assert row["figure"] == row["figure"], "a figure is not a number"


def test_the_table_has_the_last_versions_figures() -> None:
    row = {"name": "a", "records": 1000, "figure": 0.5, "target": 1, "unit": "×", "wanted": "at most", "met": True}
    rows = [row, json.loads(json.dumps(row | {"name": "b", "figure": 2, "met": False}))]
    lines = format_table(rows, {"a, 1,000 records": 0.75}).splitlines()
    assert lines[1].split()[-2:] == ["met", "0.75"]
    assert lines[2].split()[-2:] == ["MISSED", "–"]


def test_figures_of_a_benchmark_are_kept_together(tmp_path: Path) -> None:
    path = tmp_path / "last.json"
    row = {"name": "a", "records": None, "figure": 0.5}
    keep_figures(path, {"one": [row, row | {"name": "b"}], "two": [row | {"name": "c"}]}, "first")
    keep_figures(path, {"one": [row | {"figure": 0.25}], "three": []}, "second")
    assert read_last(path) == {
        "one": {"commit": "second", "figures": {"a": 0.25}},
        "two": {"commit": "first", "figures": {"c": 0.5}},
    }


def test_what_is_kept_names_its_benchmark_and_commit() -> None:
    assert set(read_last(LAST)) <= set(SMALL)
    assert all(set(each) == {"commit", "figures"} for each in read_last(LAST).values())
