"""Old module paths and verbs work for one more version, and say where they are now."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import safeswap
from safeswap import workflow
from safeswap.moved import MOVED, VERBS


@pytest.fixture(autouse=True)
def forget_old_paths() -> None:
    for old in MOVED:
        sys.modules.pop(f"safeswap.{old}", None)


@pytest.mark.parametrize(("old", "new"), [(old, new) for old, new in MOVED.items() if old != "io"])
def test_an_old_path_gives_the_names_of_the_new_module_and_warns(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match="is now safeswap"):
        found = importlib.import_module(f"safeswap.{old}")
    module = importlib.import_module(f"safeswap.{new}")
    public = [name for name in vars(module) if not name.startswith("_")]
    assert all(getattr(found, name) is getattr(module, name) for name in public)


def test_a_path_that_never_was_is_still_an_error() -> None:
    with pytest.warns(DeprecationWarning, match="is now"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("safeswap.io.nothing")


def load(path: str) -> Any:
    """Import what a dotted path names: a function of a module, or a method of a class in one."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        return getattr(load(module), name)


@pytest.mark.parametrize(("old", "new"), VERBS.items())
def test_an_old_verb_works_warns_and_names_what_replaces_it(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"safeswap.workflow.{old} is now {new};"):
        found = getattr(workflow, old)
    assert callable(found)
    assert callable(load(new))


def test_an_old_verb_is_imported_with_the_warning() -> None:
    with pytest.warns(DeprecationWarning, match="is now safeswap.files.keyfile.generate_key"):
        from safeswap.workflow import keygen
    assert callable(keygen)


def test_the_package_itself_uses_no_old_verb() -> None:
    source = Path(safeswap.__file__).parent
    old = re.compile(rf"workflow\.(?:{'|'.join(VERBS)})\(|from safeswap\.workflow import .*\b(?:{'|'.join(VERBS)})\b")
    users = [path.name for path in source.rglob("*.py") if old.search(path.read_text(encoding="utf-8"))]
    assert users == []


def test_a_verb_that_never_was_is_still_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        workflow.nothing  # noqa: B018


def test_at_most_twenty_verbs_are_left() -> None:
    assert len(workflow.__all__) <= 20
    assert not set(workflow.__all__) & set(VERBS)


def test_every_old_name_is_in_the_migration_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "migration.md").read_text(encoding="utf-8")
    assert all(f"`workflow.{old}`" in page for old in VERBS)
    assert all(f"`safeswap.{old}`" in page for old in MOVED)
