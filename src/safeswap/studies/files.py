"""Studies on disk: finished ones, and checkpoints from which an interrupted study resumes.

A finished study is stored as Parquet (candidates, 2-way tables) and JSON (question, facts). A checkpoint has one file
per finished block, named by the digest of question, key and data and written atomically; a damaged file counts as
missing. All of it is internal (scores of many draws, the rate, the name of the key): only the owner can read the files.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from safeswap.arrays.types import Float32s
from safeswap.errors import InputError, OutputError
from safeswap.files.atomic import PRIVATE_DIRECTORY, PRIVATE_FILE, atomic_write
from safeswap.model.study import Figures, StudySpec

CANDIDATES = "study.parquet"
FACTS = "study.json"
TWO_WAY = "two_way.parquet"
FORMAT = "safeswap-study-1"


class StorableStudy(Protocol):
    """The parts of a study that are stored."""

    @property
    def spec(self) -> StudySpec:
        """The question."""
        ...

    @property
    def table(self) -> pa.Table:
        """One row per candidate."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """Non-disclosive facts about the data."""
        ...

    @property
    def two_way(self) -> Float32s | None:
        """The 2-way tables of every candidate: (candidates, tables, measures)."""
        ...

    @property
    def table_pairs(self) -> tuple[tuple[str, str], ...]:
        """The attributes of each table."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredStudy:
    """A study read from disk: plain values."""

    spec: StudySpec
    table: pa.Table
    facts: Mapping[str, Any]
    two_way: Float32s | None
    table_pairs: tuple[tuple[str, str], ...]


def write_study(
    study: StorableStudy, folder: Path, *, table_measures: tuple[str, ...], further: Mapping[str, Any] | None = None
) -> None:
    """Write the files of a study into an existing folder. ``further`` is added to the JSON file as it is."""
    _write_parquet(study.table, folder / CANDIDATES)
    if study.two_way is not None:
        _write_parquet(_as_rows(study.two_way, study.table_pairs, table_measures), folder / TWO_WAY)
    document = {
        "format": FORMAT,
        "confidential": "stays inside: holds rates, replicates and the name of the key",
        "study": study.spec.model_dump(mode="json"),
        "facts": dict(study.facts),
        "table_pairs": [list(pair) for pair in study.table_pairs],
        "table_measures": list(table_measures),
        **(further or {}),
    }
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_write(folder / FACTS, force=True) as part:
        part.write_text(text + "\n", encoding="utf-8")


def read_study(path: str | os.PathLike[str]) -> StoredStudy:
    """Read the files of a study; refuse files that do not fit together."""
    folder = Path(path)
    document = _document(folder)
    table = _read_parquet(folder / CANDIDATES)
    pairs = tuple((str(a), str(b)) for a, b in document["table_pairs"])
    spec = StudySpec(**document["study"])
    _check_rows(folder, table, spec)
    return StoredStudy(
        spec=spec,
        table=table,
        facts=document["facts"],
        two_way=_two_way(folder, len(table), len(pairs), document["table_measures"]) if pairs else None,
        table_pairs=pairs,
    )


def _write_parquet(table: pa.Table, path: Path) -> None:
    with atomic_write(path, force=True, mode=PRIVATE_FILE) as part:
        parquet.write_table(table, part, compression="zstd")


def _as_rows(values: Float32s, pairs: tuple[tuple[str, str], ...], measures: tuple[str, ...]) -> pa.Table:
    """Return one row per candidate and table."""
    candidates, tables, _ = values.shape
    which = np.tile(np.arange(tables, dtype=np.int32), candidates)
    names = [[pair[side] for pair in pairs] for side in (0, 1)]
    columns: dict[str, Any] = {"candidate": np.repeat(np.arange(candidates), tables)}
    columns |= {
        side: pa.DictionaryArray.from_arrays(pa.array(which), pa.array(names[i], type=pa.string()))
        for i, side in enumerate(("a", "b"))
    }
    columns |= {name: pa.array(values[:, :, i].ravel(), from_pandas=True) for i, name in enumerate(measures)}
    return pa.table(columns)


def _two_way(folder: Path, candidates: int, tables: int, measures: list[str]) -> Float32s:
    table = _read_parquet(folder / TWO_WAY)
    if len(table) != candidates * tables or not set(measures) <= set(table.column_names):
        raise _bad(folder, TWO_WAY)
    values = [table.column(name).to_numpy().astype(np.float32, copy=False) for name in measures]
    return np.stack([column.reshape(candidates, tables) for column in values], axis=2)


def _read_parquet(path: Path) -> pa.Table:
    try:
        with parquet.ParquetFile(path) as file:
            return file.read()
    except FileNotFoundError:
        raise _missing(path) from None
    except (pa.ArrowException, OSError):
        raise _bad(path.parent, path.name) from None


def _document(folder: Path) -> dict[str, Any]:
    try:
        document = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(folder / FACTS) from None
    except (OSError, ValueError, RecursionError):
        raise _bad(folder, FACTS) from None
    fields = {"study": dict, "facts": dict, "table_pairs": list, "table_measures": list}
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _bad(folder, FACTS)
    if not all(isinstance(document.get(name), kind) for name, kind in fields.items()):
        raise _bad(folder, FACTS)
    return document


def _check_rows(folder: Path, table: pa.Table, spec: StudySpec) -> None:
    """Refuse a table whose rows are not replicate after replicate, each with all specifications in order."""
    wanted = {"candidate", "specification", "label", "swap", "constraint", "rate", "spec", "replicate", "outcome"}
    if not {*wanted, "pairs", "reason", *spec.measures} <= set(table.column_names) or not len(table):
        raise _bad(folder, CANDIDATES)
    number = table.column("specification").to_numpy()
    specs = int(number.max()) + 1
    replicates = -(-len(table) // specs)
    fits = len(table) == specs * replicates and np.array_equal(number, np.tile(np.arange(specs), replicates))
    if not fits or not np.array_equal(table.column("candidate").to_numpy(), np.arange(len(table))):
        raise _bad(folder, CANDIDATES)


def _missing(path: Path) -> InputError:
    return InputError(
        f"there is no {path.name!r} in {path.parent.name!r}",
        code="no-study",
        hint="give the directory that a study was saved to",
        file=str(path),
    )


def _bad(folder: Path, name: str) -> InputError:
    return InputError(
        f"{name!r} in {folder.name!r} is not a file of a study, or was damaged",
        code="bad-study",
        hint="run the study again",
        file=str(folder / name),
    )


_NAME = re.compile(r"(?P<digest>[0-9a-f]{32})-(?P<number>\d+)\.npz")
_LEFT_OVER = re.compile(r"\.safeswap-[0-9a-f]{16}\.(part\.npz|lock)")  # left by a killed writer


class CheckpointDirectory:
    """A directory of finished blocks. With ``must_match``, finding only blocks of another study is an error.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> checkpoint = CheckpointDirectory(Path(folder.name) / "unfinished")
    >>> checkpoint.save("0" * 32, 4, Figures.rejected(["too few pairs"], measures=1))
    >>> checkpoint.load("0" * 32)[4].reasons, checkpoint.load("1" * 32)
    (('too few pairs',), {})
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, must_match: bool = False) -> None:
        self.path = Path(path)
        self._must_match = must_match
        # Created with the first block, so that a refused study leaves nothing; whether it can be is checked here.
        if not (self.path.is_dir() or (self.path.absolute().parent.is_dir() and not os.path.lexists(self.path))):
            raise self._unusable("choose a directory, or a name in a directory that exists")

    def load(self, digest: str) -> dict[int, Figures]:
        """Return the finished blocks of the study with this digest, by number."""
        if self._must_match and digest not in (known := self.digests()) and known:
            raise InputError(
                f"the unfinished study in {self.path.name!r} is a different one",
                code="other-study",
                hint="resume with the same file, key and question (and budget of a search), or start again",
                file=str(self.path),
            )
        found: dict[int, Figures] = {}
        for path in self._files():
            name = _NAME.fullmatch(path.name)
            if name and name["digest"] == digest and (figures := _read(path)) is not None:
                found[int(name["number"])] = figures
        return found

    def save(self, digest: str, number: int, figures: Figures) -> None:
        """Save one finished block."""
        try:
            self.path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        except OSError:
            raise self._unusable("check that the directory is writable") from None
        reasons = np.frombuffer(json.dumps(figures.reasons).encode(), dtype=np.uint8)
        arrays: dict[str, np.ndarray[Any, Any]] = {"scores": figures.scores, "made": figures.made, "reasons": reasons}
        if figures.tables is not None:
            arrays["tables"] = figures.tables
        with atomic_write(self.path / f"{digest}-{number}.npz", force=True) as part, part.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    def digests(self) -> set[str]:
        """Return the digests of the studies that have blocks here."""
        return {name["digest"] for path in self._files() if (name := _NAME.fullmatch(path.name))}

    def discard(self) -> None:
        """Remove all blocks, and the directory if it is then empty."""
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
