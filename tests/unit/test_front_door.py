"""The names that the package shows, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import safeswap
from safeswap import workflow

NAMES = [
    *["Key", "Microdata", "Pipeline", "Project", "SafeswapError", "Scenario", "Schema", "StudySpec", "SwapSpec"],
    *["assess", "attack", "datasets", "describe", "mask", "plan", "read", "read_key", "record_swap", "release"],
    *["report", "study", "suggest_keys", "swap", "to_frame", "undo", "verify"],
]
HEAVY = ("numba", "numpy", "pyarrow", "polars", "pandas", "scipy", "plotly", "cryptography", "pydantic", "pyreadstat")


def test_the_front_door_has_these_names_and_no_others() -> None:
    assert safeswap.__all__ == NAMES
    assert dir(safeswap) == sorted([*NAMES, "__version__"])


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(safeswap, name)
    assert found.__doc__
    assert getattr(found, "__module__", None) != "safeswap"  # it lives in a room, the door only shows it


def test_an_unknown_name_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'swop'"):
        _ = safeswap.swop  # type: ignore[attr-defined]


@pytest.mark.parametrize("statement", ["import safeswap", "import safeswap; dir(safeswap)", "import safeswap.errors"])
def test_the_door_opens_without_loading_anything_heavy(statement: str) -> None:
    code = f"import sys; {statement}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_can_be_loaded_first() -> None:
    # Whatever a program touches first, no import may run in a circle.
    for name in NAMES:
        subprocess.run([sys.executable, "-c", f"import safeswap; safeswap.{name}"], check=True)


def test_no_module_hides_a_name_of_its_package() -> None:
    # Importing a submodule sets its name on the package: a module called like a verb would take the verb's place.
    for package in (safeswap, workflow):
        folder = Path(package.__file__).parent
        modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
        assert modules & set(package.__all__) <= {"datasets"}
