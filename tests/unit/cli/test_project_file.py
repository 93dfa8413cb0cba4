"""``safeswap init``, ``run``, ``status`` and ``release`` of a project file."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from tests.unit.cli.conftest import CANARY

from safeswap import datasets
from safeswap.files.write import write
from safeswap.projects.project import Project

SWAP = '[[step]]\nmethod = "swap"\nswap = ["Race"]\nfixed = ["Sex"]\nrate = 0.1\n\n'


@pytest.fixture
def started(safeswap, place) -> Path:
    """A project of the small survey, with a swap as its last step."""
    done = safeswap("init", place.survey)
    assert done.code == 0, done.said
    file = place.folder / "survey" / "project.toml"
    text = file.read_text().replace('"env:SAFESWAP_KEY"', '"../secret.key"')
    file.write_text(text.replace("# Further steps", SWAP + "# Further steps"))
    return file


def confirm(file: Path) -> None:
    file.write_text(file.read_text().replace("# ?", "#"))


def test_init_marks_guesses_and_overwrites_nothing(safeswap, place, listing) -> None:
    done = safeswap("init", place.survey)
    assert done.code == 0, done.said
    assert "marked" in done.said
    file = place.folder / "survey" / "project.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    text = file.read_text()
    assert 'identifier = "id"  # ? 400 distinct values in 400 records' in text
    assert CANARY not in text + done.said
    before = listing()
    again = safeswap("init", place.survey)
    assert again.code == 8
    assert listing() == before
    other = safeswap("init", place.survey, "--output", place.folder / "other", "--json")
    assert other.document["project"] == str(place.folder / "other" / "project.toml")
    assert other.document["guesses"]["data.identifier"]


def test_init_of_a_file_that_cannot_be_read_leaves_nothing(safeswap, place, listing) -> None:
    place.survey.write_text(f"a,a\n{CANARY},1\n")
    before = listing()
    done = safeswap("init", place.survey)
    assert done.code == 3
    assert CANARY not in done.said
    assert listing() == before


def test_run_status_and_release(safeswap, place, started) -> None:
    assert "not run" in safeswap("status", started).said
    done = safeswap("run", started)
    assert " 1 recode" in done.said, done.said
    assert "unsafe" in done.said
    assert "information lost" in done.said
    assert CANARY not in done.said
    document = safeswap("run", started.parent, "--json").document
    assert all(step["kept"] for step in document["steps"])
    reports = {Path(path).name for path in document["reports"]}
    assert {"analyst.html", "chair.html", "members.html", "five-safes.html", "public.html", "facts.json"} <= reports
    chair = safeswap("report", started, "--for", "chair", "--output", started.parent / "again")
    assert chair.code == 0, chair.said
    written = (started.parent / "again" / "chair.html").read_bytes()
    assert written == next(Path(path) for path in document["reports"] if path.endswith("chair.html")).read_bytes()
    assert not (started.parent / "release").exists()
    state = safeswap("status", started, "--json").document
    assert state["current"]
    assert state["release"] == "none"


def test_a_run_that_fails_what_is_required_ends_with_9(safeswap, place, started) -> None:
    done = safeswap("run", started)
    document = safeswap("run", started, "--json")
    assert (done.code, document.code) == ((0, 0) if document.document["ready"] else (9, 9))
    started.write_text(started.read_text().replace('"risky <= 0"', '["risky <= 0", "information_loss < 0"]'))
    failed = safeswap("run", started)
    assert failed.code == 9, failed.said
    assert "Not ready for release" in failed.stderr
    assert "information_loss < 0" in failed.said
    confirm(started)
    refused = safeswap("release", started)
    assert refused.code == 6
    assert not (started.parent / "release").exists()


def test_release_of_a_project_asks_for_confirmation_first(safeswap, place, started) -> None:
    started.write_text(started.read_text().replace("require = ", "# require = "))
    assert safeswap("run", started).code == 0
    refused = safeswap("release", started)
    assert refused.code == 6
    assert "id" in refused.said
    confirm(started)
    done = safeswap("release", started)
    assert done.code == 0, done.said
    assert (started.parent / "release" / "data.csv").is_file()
    assert safeswap("verify", started.parent / "release").code == 0
    assert safeswap("status", started, "--json").document["release"] == "current"


def test_release_takes_two_files_or_a_project(safeswap, place, started) -> None:
    assert safeswap("release", place.survey).code == 2
    assert safeswap("release", place.survey, place.masked, "--audit", place.audit).code == 2
    twice = safeswap("release", started, "--format", "parquet")
    assert twice.code == 2
    assert "project file" in twice.stderr


BAD = {
    "section": ("[release]", "[relase]", 3, "did you mean release?"),
    "column": ('swap = ["Race"]', 'swap = ["Rase"]', 4, "step 3 (swap)"),
    "scenario": ('scenario = "prosecutor"', 'scenario = "presecutor"', 4, "did you mean prosecutor?"),
    "digest": ('sha256 = "', 'sha256 = "0', 4, "line"),
    "syntax": ("[release]", "[release", 3, "not valid TOML"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("as_json", [True, False])
def test_errors_say_where(safeswap, place, started, case: str, as_json: bool) -> None:
    old, new, code, part = BAD[case]
    assert old in started.read_text()
    started.write_text(started.read_text().replace(old, new))
    done = safeswap("run", started, *(["--json"] if as_json else []))
    assert done.code == code, done.said
    assert part in done.said
    assert CANARY not in done.said


def test_another_file_is_refused(safeswap, place, started) -> None:
    place.survey.write_text(place.survey.read_text().replace("white", "green"))
    done = safeswap("run", started)
    assert done.code == 3
    assert "not the file that the project was made for" in done.said
    assert "changed" in safeswap("status", started).said


def test_the_household_survey_from_file_to_release(safeswap, tmp_path: Path) -> None:
    write(datasets.household_survey(), tmp_path / "survey.csv")
    assert safeswap("keygen", tmp_path / "survey.key").code == 0
    assert safeswap("init", tmp_path / "survey.csv").code == 0
    file = tmp_path / "survey" / "project.toml"
    done = safeswap("run", file, "--key", tmp_path / "survey.key")
    assert done.code == 9, "the check finds what suppression of single attributes leaves open"
    assert "'psu' reveals it" in done.stderr
    # What tells who lives together is left out, and what is blanked does not depend on the household.
    proposed = Project.read(file)
    linked = ["household", "weight", "stratum", "psu", "settlement", "expenditure", "income", "birth_date"]
    areas = ["region", "district", "municipality"]
    settled = Project(
        title="Household survey",
        data=proposed.data,
        schema=proposed.schema,
        scenarios=[{"name": "prosecutor", "keys": ["sex", "age", "occupation", "education"], "up_to": 3}],
        pipeline=[
            {"method": "recode", "steps": [{"step": "ranges", "attribute": "age", "breaks": [15, 30, 45, 60, 75]}]},
            {"method": "suppress", "scenario": "prosecutor", "solver": "greedy"},
        ],
        release={"key": "../survey.key", "drop": [*linked, *areas], "require": {"prosecutor": "risky <= 0"}},
    )
    settled.save(file, force=True)
    done = safeswap("run", file)
    assert done.code == 0, done.said
    assert "Ready for release" in done.said
    assert safeswap("release", file).code == 0


def test_steps_are_listed_added_moved_edited_and_removed(safeswap, started) -> None:
    def steps(*words: object) -> list[tuple[str, bool]]:
        done = safeswap("step", *words, "--json")
        assert done.code == 0, done.said
        return [(each["name"], each.get("off", False)) for each in done.document["steps"]]

    before = steps("list", started)
    assert before[-1] == ("swap", False)
    added = steps("add", started, "pram", "--set", "attributes=MS", "--set", "keep=0.9", "--name", "draw")
    assert added == [*before, ("draw", False)]
    assert steps("move", started, "draw", "--first")[0][0] == "draw"
    assert steps("move", started, "1", "--before", "swap")[-2][0] == "draw"
    assert ("draw", True) in steps("edit", started, "draw", "--set", "keep=0.8", "--off")
    project = Project.read(started)
    assert "draw" not in project.pipeline.names
    assert {step.name: step.spec for step, _ in project.listed}["draw"].keep == 0.8
    assert ("redraw", False) in steps("edit", started, "draw", "--on", "--name", "redraw", "--unset", "keep")
    assert steps("remove", started, "redraw") == before
    assert Project.read(started).pipeline["swap"].spec.rate == 0.1
    text = started.read_text()
    for words in (
        ("remove", started, "nothing"),
        ("move", started, "swap", "--to", 9),
        ("move", started, "swap"),
        ("add", started, "swop"),
        ("add", started, "swap", "--set", "rate"),
        ("edit", started, "swap", "--set", "rate=7"),
    ):
        done = safeswap("step", *words)
        assert done.code in (2, 4), (words, done.said)
        assert started.read_text() == text, "nothing was written"


def test_run_runs_the_study_and_status_says_whether_it_is_current(safeswap, started) -> None:
    confirm(started)
    text = started.read_text()
    study = '[study]\nattributes = ["Race", "Sex"]\nrates = [0.1]\n\n'  # under the first scenario
    started.write_text(text.replace("[release]", study + "[release]"))
    assert safeswap("status", started, "--json").document["study"] == "not run"
    skipped = safeswap("run", started, "--no-study", "--json").document
    assert skipped["study"] is None
    done = safeswap("run", started, "--json").document
    assert done["study"]["candidates"] == 3
    assert (done["study"]["scenario"], done["study"]["kept"]) == ("prosecutor", False)
    output = Path(done["study"]["output"])
    assert (output / "study.parquet").is_file()
    reports = output.parent / "reports"
    assert json.loads((reports / "facts.json").read_text())["tried"]["candidates"] == 3
    assert (reports / "chair.html").read_text().count("The cross is the untouched original") == 1
    assert safeswap("run", started, "--json").document["study"]["kept"] is True
    assert safeswap("status", started, "--json").document["study"] == "current"
    started.write_text(started.read_text().replace("rates = [0.1]", "rates = [0.2]"))
    assert safeswap("status", started, "--json").document["study"] == "stale"
    assert safeswap("run", started, "--json").document["study"]["kept"] is False


def test_init_proposes_the_design_of_the_sample_by_names(safeswap, tmp_path) -> None:
    rows = [f"{number % 5},{number % 3},{number % 4},{number % 7},{1 + number % 2}" for number in range(60)]
    (tmp_path / "sample.csv").write_text("\n".join(["sex,Strata,stratum,PSU,weight", *rows]), encoding="utf-8")
    assert safeswap("init", tmp_path / "sample.csv").code == 0
    project = Project.read(tmp_path / "sample" / "project.toml")
    assert {each.name: each.design for each in project.schema.attributes if each.design} == {
        "Strata": "stratum",
        "PSU": "psu",
    }
    assert "schema.Strata" in project.guesses
