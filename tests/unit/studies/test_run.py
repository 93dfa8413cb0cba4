"""The same figures whatever the number of threads, and after any interruption."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tests.unit.studies.samples import KEY, file_of, sample

from safeswap import datasets
from safeswap.model.key import Key
from safeswap.model.study import ConstraintSet, Figures, StudySpec
from safeswap.studies import run
from safeswap.studies.run import CheckpointDirectory, run_study, study_digest
from safeswap.studies.study import Study

QUESTION = StudySpec(replicates=6, rates=(0.02, 0.4), true_swap="all", pairing="uniform")


@pytest.fixture
def small_blocks(monkeypatch):
    """Many blocks also where there is little to do."""
    monkeypatch.setattr(run, "_BLOCK_COST", 20_000)


def assert_same(one: Study, other: Study) -> None:
    assert one.table.equals(other.table)
    assert one.two_way is not None
    assert one.two_way.tobytes() == other.two_way.tobytes()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("threads", [1, 2, 3, 8, None])
def test_the_number_of_threads_changes_nothing(threads):
    others = ({"method": "swap", "swap": ["A", "B"], "rate": 0.1, "mode": "sequential"},)
    question = QUESTION.model_copy(update={"others": others})
    assert_same(
        run_study(sample(), question, key=KEY, threads=threads), run_study(sample(), question, key=KEY, threads=1)
    )


def test_the_size_of_blocks_changes_nothing(monkeypatch):
    whole = run_study(sample(), QUESTION, key=KEY)
    for cost in (1, 10_000, 1_000_000):
        monkeypatch.setattr(run, "_BLOCK_COST", cost)
        assert_same(run_study(sample(), QUESTION, key=KEY), whole)


@pytest.mark.usefixtures("small_blocks")
def test_progress_rises_to_the_number_that_was_known_before():
    told = []
    found = run_study(sample(), QUESTION, key=KEY, progress=lambda done, total: told.append((done, total)))
    assert told[0] == (0, len(found))
    assert told[-1] == (len(found), len(found))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len(told) > 5
    assert len(found) == QUESTION.number_of_candidates(("A", "B", "C", "D"))


class Stop(Exception):  # noqa: N818  (it is none)
    pass


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("replicates", [1, 6])
def test_a_study_goes_on_where_it_stopped(tmp_path, replicates):
    question = QUESTION.model_copy(update={"replicates": replicates})
    kept = CheckpointDirectory(tmp_path / "unfinished")

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise Stop

    with pytest.raises(Stop):
        run_study(sample(), question, key=KEY, checkpoint=kept, progress=stop)
    told: list[int] = []
    resumed = run_study(sample(), question, key=KEY, checkpoint=kept, progress=lambda done, _: told.append(done))
    assert told[0] > len(resumed) // 2
    assert_same(resumed, run_study(sample(), question, key=KEY))


@pytest.mark.usefixtures("small_blocks")
def test_a_finished_study_is_not_run_again(tmp_path, monkeypatch):
    kept = CheckpointDirectory(tmp_path / "unfinished")
    first = run_study(sample(), QUESTION, key=KEY, checkpoint=kept)
    monkeypatch.setattr(run.Evaluator, "figures", lambda *_: pytest.fail("evaluated again"))
    assert_same(run_study(sample(), QUESTION, key=KEY, checkpoint=kept), first)


def test_another_objective_goes_on_from_the_same_figures():
    data = sample()
    assert study_digest(data, QUESTION, KEY) == study_digest(
        data, QUESTION.model_copy(update={"objective": "cap_risk:0.1"}), KEY
    )


def test_whatever_the_figures_depend_on_is_in_the_digest():
    columns = {"id": [1, 2, 3, 4], "A": list("xyxy"), "B": list("ppqq"), "Income": [1.0, 2.0, 3.0, 4.0]}
    data = file_of(columns, identifier="id")
    plain = study_digest(data, QUESTION, KEY)
    others = [
        study_digest(file_of({**columns, "id": [1, 2, 3, 5]}, identifier="id"), QUESTION, KEY),
        study_digest(file_of({**columns, "A": list("xyyx")}, identifier="id"), QUESTION, KEY),
        study_digest(file_of({**columns, "A": list("xzxz")}, identifier="id"), QUESTION, KEY),
        study_digest(file_of(columns, identifier="id", name="other"), QUESTION, KEY),
        study_digest(data, QUESTION, Key.insecure(seed=5)),
        study_digest(data, QUESTION.model_copy(update={"constraints": (ConstraintSet(fixed=("A",)),)}), KEY),
        study_digest(data, QUESTION, KEY, "search 100"),
    ]
    assert len({plain, *others}) == len(others) + 1
    assert study_digest(file_of(columns, identifier="id"), QUESTION, KEY) == plain


def test_blocks_of_a_wrong_size_are_not_taken(tmp_path):
    kept = CheckpointDirectory(tmp_path / "unfinished")
    digest = study_digest(sample(), QUESTION, KEY)
    kept.save(digest, 0, Figures.rejected(["by hand"], measures=len(QUESTION.measures)))
    assert_same(run_study(sample(), QUESTION, key=KEY, checkpoint=kept), run_study(sample(), QUESTION, key=KEY))


CHILD = """
import sys, time
from safeswap import datasets, Key
from safeswap.workflow import study

def progress(done, total):
    print(done, flush=True)
    if done > total // 3:
        print("waiting", flush=True)
        while True:  # A signal that comes just before one long sleep would not end it.
            time.sleep(0.05)

study(datasets.cps8d(), replicates=60, rates=[0.01, 0.05], key=Key.insecure(seed=3), checkpoint=sys.argv[1],
      progress=progress)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_a_killed_study_goes_on_and_ends_as_if_it_had_not_been(tmp_path, number):
    kept = tmp_path / "unfinished"
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(kept)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip() == "waiting":
                break
        child.send_signal(number)
        child.wait(timeout=60)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode != 0
    question = StudySpec(replicates=60, rates=(0.01, 0.05))
    key = Key.insecure(seed=3)
    told: list[int] = []
    resumed = run_study(
        datasets.cps8d(),
        question,
        key=key,
        checkpoint=CheckpointDirectory(kept),
        progress=lambda done, _: told.append(done),
    )
    assert told[0] > len(resumed) // 3
    assert_same(resumed, run_study(datasets.cps8d(), question, key=key))


def test_figures_of_an_unfinished_study_are_private(tmp_path):
    kept = tmp_path / "unfinished"
    run_study(sample(), QUESTION, key=KEY, checkpoint=CheckpointDirectory(kept))
    assert kept.stat().st_mode & 0o777 == 0o700
    assert list(kept.iterdir())
    assert all(Path(path).stat().st_mode & 0o777 == 0o600 for path in kept.iterdir())


def test_a_replicate_is_the_same_however_much_of_the_order_was_needed_before():
    # 60,000 records are ordered as far as needed: a rare attribute needs more of the order than a common one.
    rng = np.random.default_rng(2)
    data = file_of({"A": rng.integers(0, 9, 60_000), "Rare": (rng.random(60_000) < 0.02).astype(int)})
    both = run_study(data, StudySpec(rates=(0.01,), up_to=1, replicates=3), key=KEY, threads=1)
    one = run_study(data, StudySpec(attributes=("A",), rates=(0.01,), replicates=3), key=KEY, threads=1)
    assert both.scores("hellinger")[::2].tolist() == one.scores("hellinger").tolist()
