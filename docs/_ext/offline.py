"""Fail the build if a page would load anything from outside. Links that a reader may click are allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sphinx.util import logging

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

logger = logging.getLogger(__name__)

OUTSIDE = r"""["'(\s]*(?:https?:)?//[^\s"')>]+"""
LOADS = {
    ".html": re.compile(rf"""<(?!a\b)[a-z][^<>]*?\s(?:src|srcset|href|data|poster|action)\s*=\s*{OUTSIDE}""", re.I),
    ".css": re.compile(rf"""(?:@import\s+|url){OUTSIDE}""", re.I),
    ".js": re.compile(rf"""(?:\bfetch|\bimport|\bimportScripts|\bnew\s+WebSocket|\.src\s*=)\s*\(?\s*{OUTSIDE}"""),
}


def find_external_loads(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each place in the built files that makes a browser contact another server."""
    for path in sorted(folder.rglob("*")):
        pattern = LOADS.get(path.suffix)
        if pattern and path.is_file():
            for match in pattern.finditer(path.read_text(encoding="utf-8")):
                yield path.relative_to(folder), match[0][-120:]


def check(app: Sphinx, exception: Exception | None) -> None:
    """Warn about every external load."""
    if exception is None and app.builder.format == "html":
        for path, place in find_external_loads(Path(app.outdir)):
            logger.warning("%s loads from outside: %s", path, place)


def setup(app: Sphinx) -> dict[str, Any]:
    """Check the result when the build is finished."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
