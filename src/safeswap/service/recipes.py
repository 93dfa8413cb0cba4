"""The recipe of a project with its history, as the project's row keeps it.

A change is whatever makes another recipe of one: a step more, a step less, or another step in the middle. Recipes of a
history have most of their steps in common, so each step is kept once and a recipe is the places of its steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from safeswap import workflow
from safeswap.errors import SafeswapError
from safeswap.model.recipe import History, Recipe

MOST_CHANGES = 100
"""So many changes can be taken back; older ones are forgotten."""

MOST_BYTES = 2**18
"""A row is read with every request: of a history with long steps, fewer changes are kept."""


def history_of(kept: Mapping[str, Any] | None) -> History:
    """The history that a row keeps. Where it keeps steps alone, they were added one after the other.

    >>> drop = [{"step": "drop", "attributes": [name]} for name in "ab"]
    >>> history = history_of({"steps": drop, "undone": 1})
    >>> len(history.present), len(history.undo().present), len(history.redo().present)
    (1, 0, 2)
    """
    if not kept:
        return History()
    if "pool" not in kept:
        every: Recipe = workflow.as_recipe(kept["steps"])
        now = len(every) - int(kept.get("undone", 0))
        before, after = range(now), range(now + 1, len(every) + 1)
        return History(every[:now], tuple(every[:n] for n in before), tuple(every[:n] for n in after))
    present: Recipe = workflow.as_recipe(kept["steps"])
    try:
        pool = workflow.as_recipe(kept["pool"]).steps
    except SafeswapError:  # a step that an earlier version knew and this one does not: the present is what counts
        return History(present)
    past, future = (tuple(Recipe(tuple(pool[i] for i in places)) for places in kept[way]) for way in ("past", "future"))
    return History(present, past, future)


def as_kept(history: History) -> dict[str, Any]:
    """What a row keeps of a history: ``steps`` are those in force.

    >>> history = History().do(Recipe.of({"step": "drop", "attributes": ["Name"]})).do(Recipe())
    >>> history_of(as_kept(history)) == history
    True
    """
    past, future = history.past[-MOST_CHANGES:], history.future[:MOST_CHANGES]
    kept = _pooled(history.present, past, future)
    while (past or future) and len(json.dumps(kept["pool"])) > MOST_BYTES:
        past, future = past[len(past) // 2 + 1 :], future[: len(future) // 2]
        kept = _pooled(history.present, past, future)
    return kept


def _pooled(present: Recipe, past: tuple[Recipe, ...], future: tuple[Recipe, ...]) -> dict[str, Any]:
    places: dict[str, int] = {}

    def placed(recipe: Recipe) -> list[int]:
        texts = [json.dumps(step, sort_keys=True) for step in recipe.as_dicts()]
        return [places.setdefault(text, len(places)) for text in texts]

    before, after = [placed(recipe) for recipe in past], [placed(recipe) for recipe in future]
    pool = [json.loads(text) for text in places]
    return {"steps": present.as_dicts(), "pool": pool, "past": before, "future": after}
