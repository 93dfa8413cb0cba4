"""The command ``study``: what it says, writes and refuses, and that it can be stopped and gone on with."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest
from tests.unit.cli.conftest import CANARY

from safeswap import workflow
from safeswap.files.write import write
from safeswap.model.study import ConstraintSet, StudySpec
from safeswap.studies.study import Study

QUICK = ["--attributes", "Race,Sex", "--rates", "0.05,0.2", "--identifier", "id"]


@pytest.fixture
def call(survey, key, tmp_path):
    """A study of the survey; more can be added to it."""
    return ["study", survey, *QUICK, "--key", key, "--output", tmp_path / "out"]


def test_it_says_how_many_candidates_there_are_shows_the_frontier_and_the_choice(safeswap, call, tmp_path):
    run = safeswap(*call, "--replicates", 5, "--no-pages")
    assert run.code == 0
    assert run.stdout.startswith("30 candidates (6 specifications × 5 replicates).")
    assert "Frontier:" in run.stdout
    assert run.stdout.count("← chosen") == 1
    assert run.stdout.count("(untouched original)") == 1
    assert re.search(r"Chosen: .* Drawn again, it would be chosen \d+% of the time\.", run.stdout)
    assert str(tmp_path / "out" / "study.parquet") in run.stdout
    assert CANARY not in run.said


def test_what_it_writes_is_the_study(safeswap, call, key, survey, tmp_path):
    assert safeswap(*call, "--no-pages").code == 0
    found = Study.load(tmp_path / "out")
    data = workflow.read(survey, identifier="id")
    again = workflow.study(data, attributes=["Race", "Sex"], rates=[0.05, 0.2], key=workflow.read_key(key))
    assert found.table.equals(again.table)
    assert not (tmp_path / "out.unfinished").exists()


def test_pages_are_written_and_internal_ones_are_private(safeswap, call, tmp_path):
    assert safeswap(*call).code == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [
        *("map.html", "report-public.html", "report.html", "study.json", "study.parquet", "two_way.parquet"),
    ]
    for name in ("map.html", "report.html", "study.json", "study.parquet", "two_way.parquet"):
        assert (tmp_path / "out" / name).stat().st_mode & 0o777 == 0o600
    assert "unchanged" in (tmp_path / "out" / "report.html").read_text()


def test_one_json_document_holds_everything(safeswap, call, tmp_path):
    run = safeswap(*call, "--replicates", 3, "--json", "--no-pages")
    document = run.document
    assert run.code == 0
    assert (document["candidates"], document["specifications"], document["replicates"]) == (18, 6, 3)
    assert document["choice"]["spec"]["method"] == "swap"
    assert document["choice"]["sentence"].startswith("Chosen")
    assert {"specification", "rate", "risk_mean", "on_frontier", "spec"} <= set(document["frontier"][0])
    assert document["output"] == str(tmp_path / "out")
    assert document["original"]["hellinger"] == 0
    assert document["original"]["n_rule"] == 0  # race and sex alone are rare of nobody here


def test_the_chosen_draw_can_be_made_again_with_the_key(safeswap, call, key, survey):
    choice = safeswap(*call, "--replicates", 4, "--json", "--no-pages").document["choice"]
    masked = workflow.mask(
        workflow.read(survey, identifier="id"),
        choice["spec"],
        key=workflow.read_key(key),
        replicate=choice["replicate"],
    )
    scores = workflow.assess(masked, measures=["n_rule", "hellinger"])
    assert scores["n_rule"].value == pytest.approx(choice["risk"], abs=1e-12)
    assert scores["hellinger"].value == pytest.approx(choice["distortion"], abs=1e-12)


def test_the_command_that_it_shows_makes_the_very_draw(safeswap, call, survey, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = safeswap(*call, "--replicates", 4, "--no-pages").stdout
    shown = said.partition("To write this draw as a masked file:\n")[2].replace("\\\n", " ")
    assert safeswap(*shlex.split(shown)[1:]).code == 0
    choice = Study.load(tmp_path / "out").choose()
    made = workflow.assess(
        workflow.read(survey, identifier="id"),
        workflow.read("masked.parquet", identifier="id"),
        measures=["n_rule", "hellinger"],
    )
    assert made["n_rule"].value == pytest.approx(choice.risk, abs=1e-12)
    assert made["hellinger"].value == pytest.approx(choice.distortion, abs=1e-12)


def test_every_option_reaches_the_question(safeswap, survey, tmp_path):
    options = [
        *("--attributes", "Race,Sex", "--attributes", "Town", "--up-to", 3, "--rates", "0.1,0.02"),
        *("--constraints", "none", "--constraints", "Age equal", "--fixed", "Town", "--differ", "Age"),
        *("--true-swap", "all", "--pairing", "uniform", "--replicates", 7, "--keys", "Race,Sex,Town"),
        *("--risk", "n_rule", "--risk", "n_rule:n=5,keys=Race+Sex"),
        *("--distortion", "hellinger,adV", "--distortion", "hellinger:ways=2", "--objective", "cap_risk:0.01"),
    ]
    assert safeswap("study", survey, *options, "--write-study", tmp_path / "study.toml").code == 0
    from safeswap.projects.toml import read_study_spec

    assert read_study_spec(tmp_path / "study.toml") == StudySpec(
        attributes=("Race", "Sex", "Town"),
        up_to=3,
        rates=(0.02, 0.1),
        constraints=(
            ConstraintSet(),
            ConstraintSet(fixed=("Age",)),
            ConstraintSet(fixed=("Town",), differ=("Age",)),
        ),
        true_swap="all",
        pairing="uniform",
        replicates=7,
        keys=("Race", "Sex", "Town"),
        risk=("n_rule", "n_rule:n=5,keys=Race+Sex"),
        distortion=("hellinger", "adV", "hellinger:ways=2"),
        objective="cap_risk:0.01",
    )


def test_a_study_file_is_run_and_options_take_the_place_of_its_settings(safeswap, survey, key, tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('attributes = ["Race", "Sex"]\nrates = [0.05]\nreplicates = 2\n')
    request = ["study", survey, "--identifier", "id", "--study", path, "--key", key, "--no-pages"]
    assert safeswap(*request, "--output", tmp_path / "a").stdout.startswith("6 candidates")
    run = safeswap(*request, "--output", tmp_path / "b", "--replicates", 3, "--json")
    assert run.document["candidates"] == 9


def test_plan_only_counts_without_a_key_and_writes_nothing(safeswap, survey, listing):
    before = listing()
    run = safeswap("study", survey, "--identifier", "id", "--up-to", 3, "--replicates", 1_000_000, "--plan-only")
    assert run.code == 0
    assert "candidates" in run.stdout
    assert "--search BUDGET" in run.stdout
    assert listing() == before
    assert safeswap("study", survey, *QUICK, "--plan-only", "--json").document["candidates"] == 6


def test_a_search_spends_its_budget(safeswap, survey, key, tmp_path):
    options = ["--identifier", "id", "--up-to", 3, "--rates", "0.01,0.02,0.05,0.1,0.2", "--search", 25]
    run = safeswap("study", survey, *options, "--key", key, "--output", tmp_path / "out", "--json", "--no-pages")
    assert run.code == 0
    assert run.document["search"]["evaluated"] == run.document["specifications"] == 25


BAD = {
    "unknown attribute": (["--attributes", "Rase"], 4, "unknown-attribute"),
    "unknown measure": (["--risk", "n_rul"], 4, "unknown-measure"),
    "contradiction": (["--constraints", "Sex equal, Sex different"], 4, "bad-spec"),
    "constraints that cannot be read": (["--constraints", "Sex same"], 4, "bad-constraints"),
    "rate 0": (["--rates", "0"], 4, "bad-spec"),
    "rate that is no number": (["--rates", "low"], 4, "bad-spec"),
    "negative slope": (["--objective", "linear:a=-1"], 4, "bad-objective"),
    "every attribute constrained": (["--fixed", "Race,Sex"], 4, "empty-study"),
    "small budget": (["--search", "3"], 4, "bad-budget"),
    "nothing to go on with": (["--resume"], 8, "nothing-to-resume"),
    "no such study file": (["--study", "nowhere.toml"], 3, None),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_refused_in_one_sentence_and_nothing_is_left(safeswap, call, listing, case):
    options, code, word = BAD[case]
    before = listing()
    run = safeswap(*call, *options, "--json")
    assert run.code == code
    assert word is None or run.document["code"] == word
    assert run.document["hint"]
    assert listing() == before


def test_an_existing_output_is_refused_before_anything_runs(safeswap, call, tmp_path):
    (tmp_path / "out").mkdir()
    run = safeswap(*call)
    assert run.code == 8
    assert "candidates" not in run.stdout


def test_where_nothing_fits_the_rule_the_figures_are_kept_and_the_exit_code_says_so(safeswap, call, tmp_path):
    run = safeswap(*call, "--objective", "cap_distortion:0", "--no-pages")
    assert run.code == 5
    assert "no candidate satisfies" in run.stderr
    assert "Frontier" in run.stdout
    assert len(Study.load(tmp_path / "out")) == 6
    again = safeswap(*call, "--objective", "cap_distortion:0", "--no-pages", "--force", "--json")
    assert (again.code, again.document["code"]) == (5, "no-candidate")


def test_rejected_candidates_are_told_with_their_reason(safeswap, call):
    run = safeswap(*call, "--rates", "0.05,1", "--replicates", 2, "--no-pages")
    assert run.code == 0
    assert "could not be made" in run.stdout
    assert "(2 draws)" in run.stdout


def _study_of_demo(tmp_path, *more) -> list[str]:
    return [
        *(sys.executable, "-m", "safeswap", "study", str(tmp_path / "cps8d.parquet"), "--replicates", "2000"),
        *("--rates", "0.01,0.1", "--insecure-seed", "1", "--output", str(tmp_path / "out"), "--no-pages", *more),
    ]


@pytest.fixture
def cps8d_file(tmp_path):
    from safeswap import datasets

    write(datasets.cps8d(), tmp_path / "cps8d.parquet")


@pytest.mark.usefixtures("cps8d_file")
@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_stops_it_cleanly_and_says_how_to_go_on(safeswap, tmp_path, as_json):
    kept = tmp_path / "out.unfinished"
    more = ["--json"] if as_json else []
    child = subprocess.Popen(_study_of_demo(tmp_path, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while child.poll() is None and not (kept.is_dir() and any(kept.glob("[0-9a-f]*.npz"))):
            time.sleep(0.005)
        child.send_signal(signal.SIGINT)
        said, complaint = child.communicate(timeout=120)
    finally:
        child.kill()
    assert child.returncode == 130
    told = json.loads(said) if as_json else {"message": complaint, "hint": complaint}
    assert "stopped after" in told["message"]
    assert "--resume" in told["hint"]
    assert "Traceback" not in complaint
    assert not (tmp_path / "out").exists()
    if as_json:
        return
    # Not begun again by mistake, not mixed with another one, and gone on with where asked to.
    assert safeswap(*_study_of_demo(tmp_path)[3:]).code == 8
    other = safeswap(*_study_of_demo(tmp_path, "--resume", "--insecure-seed", "2", "--json")[3:])
    assert (other.code, other.document["code"]) == (3, "other-study")
    few = [word if word != "2000" else "1999" for word in _study_of_demo(tmp_path, "--resume", "--json")[3:]]
    assert safeswap(*few).document["code"] == "other-study"


@pytest.mark.usefixtures("cps8d_file")
def test_what_was_stopped_goes_on_to_the_same_end(safeswap, tmp_path, monkeypatch):
    from safeswap.studies import run

    monkeypatch.setattr(run, "_BLOCK_COST", 200_000)
    request = [word if word != "2000" else "4" for word in _study_of_demo(tmp_path)[3:]]
    calls = []
    real = run.Evaluator.figures

    def sometimes(self, groups, replicate):
        calls.extend(groups)
        if len(calls) >= 60 > len(calls) - len(groups):
            raise KeyboardInterrupt
        return real(self, groups, replicate)

    monkeypatch.setattr(run.Evaluator, "figures", sometimes)
    assert safeswap(*request, "--threads", 1).code == 130
    before = len(calls)
    assert safeswap(*request, "--resume").code == 0
    assert len(calls) - before < 4 * 36
    direct = workflow.study(tmp_path / "cps8d.parquet", replicates=4, rates=[0.01, 0.1], insecure_seed=1)
    assert Study.load(tmp_path / "out").table.equals(direct.table)


@pytest.mark.usefixtures("cps8d_file")
def test_the_bar_shows_the_time_left_on_a_terminal_and_only_there(tmp_path):
    ours, theirs = pty.openpty()
    request = [word if word != "2000" else "20" for word in _study_of_demo(tmp_path)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    child = subprocess.Popen(request, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # the other end was closed
        pass
    said, _ = child.communicate(timeout=120)
    os.close(ours)
    assert child.returncode == 0
    assert b"time left" in shown
    assert b"/1440" in shown
    assert "time left" not in said
