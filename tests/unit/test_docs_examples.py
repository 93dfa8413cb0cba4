"""What the documentation shows works as it is written: its Python and its commands are run, page by page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from safeswap.cli.app import run

ROOT = Path(__file__).parents[2]
# A how-to page that needs more than the package and a minute (Spark, a hundred million households) is not among these.
HOW_TO: tuple[str, ...] = (
    "attack",
    "awkward-files",
    "census-edit",
    "confidentiality-plot",
    "constraints",
    "household-swap",
    "households",
    "measures",
    "numeric-methods",
    "pipelines",
    "project-file",
    "recode",
    "release",
    "reports",
    "safe-tables",
    "scenario",
    "secret-keys",
    "suppress",
    "targeting",
    "undo",
    "utility",
    "webswap-projects",
)
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorials").glob("[!i]*.md")),
    *(ROOT / "docs" / "how-to" / f"{name}.md" for name in HOW_TO),
]

_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> Iterator[tuple[str, str, int]]:
    """The language, the text and the line of each block that is to be run, in the order of the page."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        if found[1] == "python" or found[2].startswith("$ safeswap"):
            yield found[1], found[2], text.count("\n", 0, found.start()) + 1


WITHOUT_END = {"serve", "workbench"}
"""Commands that run until somebody ends them; they have tests of their own."""


def commands(console: str) -> list[list[str]]:
    """The arguments of each ``$ safeswap`` in a console block; what it answers is not compared.

    >>> commands("$ safeswap keygen my.key   # once\\nWrote my.key\\n$ safeswap swap a.csv \\\\\\n    --swap Race\\n")
    [['keygen', 'my.key'], ['swap', 'a.csv', '--swap', 'Race']]
    """
    lines = console.replace("\\\n", " ").splitlines()
    found = [shlex.split(line[2:], comments=True)[1:] for line in lines if line.startswith("$ safeswap ")]
    return [arguments for arguments in found if arguments[0] not in WITHOUT_END]


@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in PAGES])
def test_what_a_page_shows_works_as_written(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page.stem}
    shown = 0
    for language, text, line in blocks(page):
        if language == "python":
            exec(compile("\n" * line + text, str(page), "exec"), namespace)
        for arguments in commands(text) if language == "console" else ():
            code = run(arguments)
            assert code == 0, f"{page.name}:{line}: safeswap {shlex.join(arguments)}: {capsys.readouterr().err}"
        shown += 1
    assert shown, "a page of this list shows something that can be run"
