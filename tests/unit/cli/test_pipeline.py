"""``safeswap mask pipeline``."""

from __future__ import annotations

from pathlib import Path

import pytest

from safeswap import datasets
from safeswap.files.write import write

STEPS = """
[[steps]]
step = "drop"
attributes = ["AnnSal"]

[[steps]]
method = "suppress"
keys = ["Age", "Edu", "EmpTyp", "Race", "MS"]
solver = "greedy"

[[steps]]
method = "swap"
swap = ["Race"]
rate = 0.2
"""


@pytest.fixture
def cps(tmp_path: Path) -> tuple[Path, Path]:
    file, steps = tmp_path / "cps.csv", tmp_path / "steps.toml"
    write(datasets.cps8d(), file)
    steps.write_text(STEPS)
    return file, steps


def test_a_pipeline_is_masked_reported_undone_and_released(safeswap, cps, tmp_path: Path) -> None:
    file, steps = cps
    assert safeswap("keygen", tmp_path / "key").code == 0
    places = ("--key", tmp_path / "key", "--audit", tmp_path / "audit")
    report = ("--report", tmp_path / "report.html")
    done = safeswap(
        "mask", "pipeline", file, "--steps", steps, *places, "--output", tmp_path / "m.csv", *report, "--no-scores"
    )
    assert done.code == 0, done.said
    assert "promised" in done.said, "suppression was undone by the swap, and the user is told"
    for said in ("AnnSal", "dropped", "perturbed", "suppress", "All other columns"):
        assert said in done.said
    assert "Columns, compared with the original" in (tmp_path / "report.html").read_text()
    record = next((tmp_path / "audit").iterdir())
    back = safeswap("undo", tmp_path / "m.csv", "--record", record, "--output", tmp_path / "back.csv")
    assert back.code == 0, back.said
    assert (tmp_path / "back.csv").read_bytes() == file.read_bytes()
    out = safeswap("release", file, tmp_path / "m.csv", *places, "--output", tmp_path / "public")
    assert out.code == 0, out.said
    assert b"AnnSal" not in (tmp_path / "public" / "data.csv").read_bytes().splitlines()[0]


def test_a_plan_needs_no_key(safeswap, cps) -> None:
    file, steps = cps
    done = safeswap("mask", "pipeline", file, "--steps", steps, "--plan-only", "--json")
    assert done.code == 0, done.said
    assert [step["name"] for step in done.document["plan"]["details"]["steps"]] == ["recode", "suppress", "swap"]


def test_a_wrong_step_is_told_with_file_and_place(safeswap, cps, tmp_path: Path) -> None:
    file, steps = cps
    steps.write_text(STEPS.replace('swap = ["Race"]', 'swap = ["Rase"]'))
    done = safeswap("mask", "pipeline", file, "--steps", steps, "--insecure-seed", "1", "--output", tmp_path / "m.csv",
                    "--audit", tmp_path / "audit")  # fmt: skip
    assert done.code == 4, done.said
    assert "step 3 (swap): there is no attribute 'Rase'" in done.said
    assert not (tmp_path / "m.csv").exists()


def test_reports_are_written_for_the_readers_that_are_named(safeswap, cps, tmp_path: Path) -> None:
    file, steps = cps
    assert safeswap("keygen", tmp_path / "key").code == 0
    made = ("--key", tmp_path / "key", "--audit", tmp_path / "audit", "--output", tmp_path / "m.csv", "--no-scores")
    assert safeswap("mask", "pipeline", file, "--steps", steps, *made).code == 0
    scenarios = tmp_path / "s.toml"
    scenarios.write_text('[[scenario]]\nname = "journalist"\nkeys = ["Age", "Race"]\n')
    call = ("report", file, tmp_path / "m.csv", "--audit", tmp_path / "audit", "--scenario", scenarios)
    call += ("--measure", "hellinger", "--drop", "AnnSal", "--output", tmp_path / "out")
    done = safeswap(*call, "--for", "board", "--for", "public")
    assert done.code == 0, done.said
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"chair.html", "members.html", "public.html", "facts.json", "members.json", "public.json"}
    chair = (tmp_path / "out" / "chair.html").read_text()
    assert "journalist" in chair
    assert "Records that each step touched" in chair
    assert "Records that each step touched" not in (tmp_path / "out" / "members.html").read_text()
    assert safeswap(*call, "--for", "board").code != 0, "nothing is overwritten"
    decided = ("--decision", "rejected", "--asked-by", "Ana", "--decided-by", "Olga", "--reason", "Too detailed.")
    again = safeswap(
        "report", tmp_path / "out" / "facts.json", "--for", "members", *decided, "--output", tmp_path / "no"
    )
    assert again.code == 0, again.said
    page = (tmp_path / "no" / "members.html").read_text()
    assert all(said in page for said in ("Rejected", "Decided by Olga", "Too detailed."))
    assert {path.name for path in (tmp_path / "no").iterdir()} == {"members.html", "members.json"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("cps.csv", "--output", "x"), "missing argument MASKED"),
        (("cps.csv", "m.csv", "--output", "x"), "missing option: --audit"),
        (("cps.csv", "m.csv", "--audit", "a"), "missing option: --output"),
        (("cps.csv", "m.csv", "--for", "nobody", "--output", "x"), "no report for 'nobody'"),
        (("none.json", "--output", "x"), "there is no file"),
    ],
)
def test_a_report_that_cannot_be_made_is_refused(safeswap, cps, tmp_path: Path, monkeypatch, arguments, said) -> None:  # noqa: PLR0917
    monkeypatch.chdir(tmp_path)
    done = safeswap("report", *arguments)
    assert done.code > 0
    assert said in done.said
    assert not (tmp_path / "x").exists()
