from __future__ import annotations

import json

from safeswap.methods.recode.recipe import History, Recipe
from safeswap.service.routes import argus
from safeswap.service.routes.argus import dump_history, history_of
from safeswap.workflow.session import as_recipe


def recipe(*names: str) -> Recipe:
    return Recipe.of([{"step": "drop", "attributes": [name]} for name in names])


def after(*changes: Recipe) -> History:
    history = History()
    for change in changes:
        history = history.do(change)
    return history


def test_a_history_is_kept_whole():
    history = after(recipe("a"), recipe("a", "b"), recipe("c", "b"), recipe("b")).undo().undo()
    kept = json.loads(json.dumps(dump_history(history)))
    assert history_of(kept) == history
    assert len(kept["pool"]) == 3, "each step is kept once"


def test_a_masking_within_a_recipe_is_kept_too():
    suppressed = {"method": "suppress", "keys": ["a", "b"], "up_to": 2}
    history = after(as_recipe([suppressed]), as_recipe([*recipe("c").as_dicts(), suppressed])).undo()
    assert history_of(json.loads(json.dumps(dump_history(history)))) == history
    assert len(history_of({"steps": [suppressed]}).present) == 1


def test_a_row_from_before_there_was_a_history_is_understood():
    steps = recipe("a", "b", "c").as_dicts()
    history = history_of({"steps": steps, "undone": 1})
    assert history.present == recipe("a", "b")
    assert history.undo().present == recipe("a")
    assert history.undo().undo().undo().present == recipe()
    assert history.redo().present == recipe("a", "b", "c")
    assert history_of(None) == History()


def test_the_oldest_changes_are_forgotten_first():
    history = after(*(recipe(f"a{n}") for n in range(argus.MOST_CHANGES + 7)))
    kept = history_of(dump_history(history))
    assert len(kept.past) == argus.MOST_CHANGES
    assert (kept.present, kept.past[-1]) == (history.present, history.past[-1])


def test_long_steps_leave_a_shorter_history():
    long = [recipe(*(f"{letter}{n}" * 40 for n in range(300))) for letter in "abcdefghij"]
    history = after(*long)
    kept = dump_history(history)
    assert len(json.dumps(kept["pool"])) <= argus.MOST_BYTES
    assert history_of(kept).present == history.present
    assert history_of(kept).past == history.past[-len(kept["past"]) :]


def test_a_step_of_the_past_that_is_no_longer_known_loses_the_history_and_not_the_recipe():
    kept = dump_history(after(recipe("a"), recipe("b")))
    kept["pool"][0] = {"step": "of an earlier version"}
    assert history_of(kept) == History(recipe("b"))
