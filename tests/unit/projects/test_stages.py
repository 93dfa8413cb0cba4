"""Stages are kept as they were made, whatever the method, and open with their key alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from safeswap import Key, Pipeline, datasets, mask
from safeswap.model.audit import undo
from safeswap.projects.stages import StageStore, dump_stage, load_stage

STEPS = {
    "drop": {"step": "drop", "attributes": ["occupation"]},
    "ranges": {"step": "ranges", "attribute": "age", "breaks": [18, 65]},
    "date": {"step": "date_band", "attribute": "birth_date", "by": "year"},
    "swap": {"method": "swap", "swap": ["tenure"], "fixed": ["region"], "rate": 0.1},
    "rank swap": {"method": "rank_swap", "attributes": ["age"], "top": 0.05},
    "noise": {"method": "noise", "attributes": ["expenditure"], "size": 0.1},
    "noise on dates": {"method": "noise", "attributes": ["interview_date"], "days": 9},
    "pram": {"method": "pram", "attributes": ["marital_status"], "keep": 0.8},
    "microaggregation": {"method": "microaggregation", "attributes": ["expenditure"], "k": 3},
    "top": {"method": "top_bottom", "attributes": ["age"], "top": 0.05},
    "edit": {
        "method": "edit_targeted",
        "keys": ["sex", "marital_status"],
        "exchange": "categorical",
        "missing_keys": "level",
    },
    "suppress": {"method": "suppress", "keys": ["sex", "tenure", "marital_status"], "tolerance": 9, "solver": "greedy"},
}


@pytest.mark.parametrize("name", STEPS)
def test_a_stage_that_is_kept_is_the_one_that_was_made(name: str) -> None:
    data, key = datasets.household_survey(), Key.insecure(seed=1)
    stage = mask(data, Pipeline([STEPS[name]]), key=key).stages[0]
    again = load_stage(dump_stage(stage), data, stage.spec)
    assert again.data.table.equals(stage.data.table)
    assert again.data.table.schema == stage.data.table.schema
    assert again.data.schema == stage.data.schema
    assert again.data.past == stage.data.past
    assert dump_stage(again) == dump_stage(stage)
    assert undo(again.data, again.audit).table.equals(data.table)
    assert (again.audit.touched() == stage.audit.touched()).all()
    assert (again.audit.perturbed() == stage.audit.perturbed()).all()


def test_what_a_step_left_alone_is_not_stored_again() -> None:
    data, key = datasets.household_survey(), Key.insecure(seed=1)
    stage = mask(data, Pipeline([STEPS["swap"]]), key=key).stages[0]
    content = dump_stage(stage)
    assert len(content) < data.table.nbytes / 5
    assert load_stage(content, data, stage.spec).data.table["age"].chunk(0).buffers()[1].address == (
        data.table["age"].chunk(0).buffers()[1].address
    )


def test_a_store_opens_with_its_key_alone(tmp_path: Path) -> None:
    key, folder = Key.generate(), tmp_path / ".safeswap"
    store = StageStore(folder, key)
    store.write(b"content", "a", "b")
    assert StageStore(folder, key).read("a", "b") == b"content"
    assert store.read("ab", "") is None
    assert StageStore(folder, Key.generate()).read("a", "b") is None
    (file,) = folder.glob("*.sealed")
    file.rename(folder / store._name(("c",)))
    assert store.read("c") is None, "a piece of work does not open as another"


def test_what_was_not_asked_for_is_removed(tmp_path: Path) -> None:
    key = Key.generate()
    store = StageStore(tmp_path / "kept", key)
    store.write(b"1", "one")
    store.write(b"2", "two")
    again = StageStore(tmp_path / "kept", key)
    assert again.read("two") == b"2"
    again.prune()
    assert (again.read("one"), again.read("two")) == (None, b"2")
