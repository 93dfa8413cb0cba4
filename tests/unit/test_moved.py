"""Old module paths work for one more version, and say where the module is now."""

from __future__ import annotations

import importlib
import sys

import pytest

from safeswap.moved import MOVED


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
