"""Finished blocks of a study on disk: a study that was stopped, or killed, goes on from them.

One file per block, under the digest of question, key and data, each there completely or not at all. A file that is
damaged counts as not there. Figures are internal: only their owner can read the files.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from safeswap.errors import InputError, OutputError
from safeswap.io.atomic import PRIVATE_DIRECTORY, atomic_write
from safeswap.model.figures import Figures

_NAME = re.compile(r"(?P<digest>[0-9a-f]{32})-(?P<number>\d+)\.npz")
_LEFT_OVER = re.compile(r"\.safeswap-[0-9a-f]{16}\.(part\.npz|lock)")  # of a writer that was killed


class CheckpointDirectory:
    """A directory of finished blocks. With ``must_match``, blocks of another study only are an error.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> kept = CheckpointDirectory(Path(folder.name) / "unfinished")
    >>> kept.keep("0" * 32, 4, Figures.rejected(["too few pairs"], measures=1))
    >>> kept.finished("0" * 32)[4].reasons, kept.finished("1" * 32)
    (('too few pairs',), {})
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, must_match: bool = False) -> None:
        self.path = Path(path)
        self._must_match = must_match
        # Made with the first block: a study that is refused leaves nothing. Whether it can be made is found out here.
        if not (self.path.is_dir() or (self.path.absolute().parent.is_dir() and not os.path.lexists(self.path))):
            raise self._unusable("choose a directory, or a name in a directory that exists")

    def finished(self, digest: str) -> dict[int, Figures]:
        """The blocks kept so far for the study of this digest, by number."""
        if self._must_match and digest not in (known := self.digests()) and known:
            raise InputError(
                f"the unfinished study in {self.path.name!r} is another one",
                code="other-study",
                hint="go on with the same file, key and question (and budget of a search), or start anew",
                file=str(self.path),
            )
        found: dict[int, Figures] = {}
        for path in self._files():
            name = _NAME.fullmatch(path.name)
            if name and name["digest"] == digest and (figures := _read(path)) is not None:
                found[int(name["number"])] = figures
        return found

    def keep(self, digest: str, number: int, figures: Figures) -> None:
        """Keep one more."""
        try:
            self.path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        except OSError:
            raise self._unusable("check that the directory may be written to") from None
        reasons = np.frombuffer(json.dumps(figures.reasons).encode(), dtype=np.uint8)
        arrays: dict[str, np.ndarray[Any, Any]] = {"scores": figures.scores, "made": figures.made, "reasons": reasons}
        if figures.tables is not None:
            arrays["tables"] = figures.tables
        with atomic_write(self.path / f"{digest}-{number}.npz", force=True) as part, part.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    def digests(self) -> set[str]:
        """The studies of which blocks are here."""
        return {name["digest"] for path in self._files() if (name := _NAME.fullmatch(path.name))}

    def discard(self) -> None:
        """Remove all blocks, and the directory if nothing else is in it."""
        for path in self._files():
            if _NAME.fullmatch(path.name) or _LEFT_OVER.fullmatch(path.name):
                path.unlink(missing_ok=True)
        if self.path.is_dir() and not self._files():
            self.path.rmdir()

    def _files(self) -> list[Path]:
        return list(self.path.iterdir()) if self.path.is_dir() else []

    def _unusable(self, hint: str) -> OutputError:
        return OutputError(
            f"an unfinished study cannot be kept in {self.path.name!r}",
            code="no-checkpoint",
            hint=hint,
            file=str(self.path),
        )


def _read(path: Path) -> Figures | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            figures = Figures(
                arrays["scores"],
                arrays["made"],
                tuple(json.loads(arrays["reasons"].tobytes())),
                arrays.get("tables"),
            )
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    return figures if figures.is_consistent else None
