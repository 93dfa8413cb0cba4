"""The project file, the locks and the changelog agree with the package."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import safeswap

ROOT = Path(__file__).parents[2]
LOCKS = ("runtime", "dev", "spark", "spark-build")


def lock(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")


def pins(name: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock(name), flags=re.MULTILINE)
    return {canonicalize_name(package): pinned for package, pinned in found}


def project() -> dict[str, object]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert isinstance(table, dict)
    return table


def groups() -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]


def requirements(name: str) -> list[Requirement]:
    if name in groups():
        return [Requirement(text) for text in groups()[name]]
    table = project()
    stated = list(table["dependencies"])
    if name == "dev":
        stated += table["optional-dependencies"]["dev"]
    return [Requirement(text) for text in stated]


def test_the_version_is_the_same_everywhere():
    assert safeswap.__version__ == version("safeswap") == project()["version"]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_place_to_fetch_from(name):
    assert not re.search(r"https?://|file://|--(extra-)?index|--find-links|--trusted-host|\s@\s", lock(name))


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_satisfies_the_project_file(name):
    pinned = pins(name)
    for requirement in requirements(name):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_a_hash(name):
    blocks = re.split(r"^(?=[A-Za-z0-9._-]+==)", lock(name), flags=re.MULTILINE)[1:]
    assert len(blocks) == len(pins(name))
    assert all("--hash=sha256:" in block for block in blocks)


def test_the_tools_are_tested_with_what_users_get():
    assert pins("runtime").items() <= pins("dev").items()


def test_spark_is_tested_as_the_extra_asks_for_it():
    assert groups()["spark"] == project()["optional-dependencies"]["spark"]
    shared = pins("dev").keys() & (pins("spark") | pins("spark-build")).keys()
    assert all(pins("dev")[name] == (pins("spark") | pins("spark-build"))[name] for name in shared)
