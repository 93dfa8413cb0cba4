"""The examples of CONTRIBUTING, installed as pip would leave them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from safeswap import registry

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def block(language: str, mark: str) -> str:
    """The block of the page that holds a mark."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (only,) = [text for text in found if mark in text]
    return str(only)


@contextmanager
def install(folder: Path, module: str, mark: str, entry_points: str, patch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a module and the metadata of its package, found until the end; the path of the module."""
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    (folder / f"{module}.py").write_text(block("python", mark), encoding="utf-8")
    patch.syspath_prepend(str(folder))
    registry._find_installed.cache_clear()
    yield folder / f"{module}.py"
    registry._find_installed.cache_clear()
    sys.modules.pop(module, None)


@contextmanager
def install_trade(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The method that exchanges values."""
    with install(folder, "trading", "class Trade(", "[safeswap.methods]\ntrade = trading:Trade\n", patch) as path:
        yield path
