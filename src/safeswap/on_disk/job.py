"""A job on files; the engines by name, what each offers once it has opened the files, and the refusal of what it lacks.

The table in the reference is made from the same facts.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

import pyarrow as pa

from safeswap import registry
from safeswap.arrays.names import Names
from safeswap.arrays.types import Rows
from safeswap.engines.base import Drawn, Need, Records
from safeswap.errors import EngineError, SpecError, UnsafeRelease
from safeswap.files.parquet import ParquetFiles, open_parquet
from safeswap.files.rewrite import Written, find_changed, rewrite
from safeswap.methods.base import Method
from safeswap.methods.by_household import changed_by_household
from safeswap.methods.exchange import ExchangingMethod
from safeswap.methods.value_change import ValueChangingMethod
from safeswap.model.checked import check_types
from safeswap.model.evidence import PairEvidence
from safeswap.model.invariant import Finding, Invariant, PairPromise
from safeswap.model.key import Key
from safeswap.model.microdata import PastStep
from safeswap.model.schema import Schema
from safeswap.model.score import CountedCells
from safeswap.model.spec import MaskSpec
from safeswap.on_disk.audit_record import PAIRS, write_audit_json
from safeswap.on_disk.masking import digest_of


@dataclass(frozen=True, kw_only=True)
class Job:
    """A masking job: the files, the specification, and the resources."""

    source: Path
    target: Path
    audit: Path
    spec: MaskSpec
    key: Key = field(repr=False)
    engine: str = "memory"
    replicate: int = 0
    reading: Mapping[str, Any] = field(default_factory=dict)
    memory_limit: str = "1GB"
    threads: int | None = None
    session: Any = field(default=None, repr=False)
    force: bool = False
    measures: tuple[str, ...] = ()
    attributes: tuple[str, ...] | None = None
    announce: Callable[[Announcement], None] | None = field(default=None, repr=False)
    """Called with the masked files before they get their name."""

    @property
    def noted_reading(self) -> dict[str, Any]:
        """The reading options to note in the record: those that its schema does not state."""
        return {name: value for name, value in self.reading.items() if name in ("missing", "name") and value}


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """A masking on disk: the digests of the files before and after, the columns that changed, and the step, if any."""

    source_digest: str
    masked_digest: str
    columns: Iterator[ChangedColumn]
    steps: tuple[PastStep, ...]


class ChangedColumn(NamedTuple):
    """A column before and after, in pieces."""

    name: str
    before: Iterator[pa.ChunkedArray]
    after: Iterator[pa.ChunkedArray]


class Output(ABC):
    """The masked files of a job, to be written, verified and recorded."""

    names: Names
    """The columns that are replaced, in file order."""
    counts_aside: ClassVar[bool] = True
    """Whether cells can be counted while the files are written, rather than once they have been verified."""
    limit: int | None = None
    """The largest count of a cell that measures call small; None if no cells are to be counted."""
    replaced: Names = ()
    """Those whose values before are kept in the record, in its order; exchanged values are found by their pairs."""

    def __init__(self, job: Job, files: ParquetFiles, schema: Schema, work: Path) -> None:
        self.job, self.files, self.schema, self.work = job, files, schema, work

    @abstractmethod
    def write(self, part: Path) -> None:
        """Write the masked files."""

    @abstractmethod
    def find_damaged(self, part: Path) -> list[str]:
        """Return the columns that were to be copied and, read back from disk, are not as they were."""

    @abstractmethod
    def findings(self, part: Path, promises: Sequence[Invariant]) -> tuple[Finding, ...]:
        """Check every promise of the method on what is read back from disk."""

    @abstractmethod
    def count_compensating(self) -> int:
        """Count the records that changed although the table did not."""

    @abstractmethod
    def write_record(self, directory: Path, totals: Mapping[str, Any], identity: str) -> None:
        """Write what undoes the masking."""

    def count_cells(self, limit: int) -> CountedCells | None:
        """Count the cells before and after for measures; None if the files must be compared instead."""
        return None

    def iter_changed(self, part: Path) -> Iterator[ChangedColumn]:
        """Return the columns that are replaced."""
        return iter_changed(self.files, open_parquet(part, is_own=True), self.names)

    @cached_property
    def source_digest(self) -> str:
        """The digest of the files that are masked."""
        return digest_of(self.job.source)

    def identify(self, part: Path) -> str:
        """Return what names the record of the masking: the digest of the masked files."""
        return digest_of(part)


def iter_changed(before: ParquetFiles, after: ParquetFiles, names: Names) -> Iterator[ChangedColumn]:
    """Yield some columns before and after."""
    for name in names:
        yield ChangedColumn(name, _iter_pieces(before, name), _iter_pieces(after, name))


def _iter_pieces(files: ParquetFiles, name: str) -> Iterator[pa.ChunkedArray]:
    """Yield a column in pieces; none if the files do not have it."""
    if name in files.schema.names:
        for _, batch in files.batches([name]):
            yield pa.chunked_array([batch.column(0)])


class OpenFile(Output):
    """The files of a job, opened by an engine; its class declares what the engine is and lacks."""

    name: ClassVar[str]
    title: ClassVar[str]
    lacks: ClassVar[Mapping[Need, str]]
    writes_directories: ClassVar[bool] = False

    records: Records

    @abstractmethod
    def open(self, read: Names) -> None:
        """Open the records with these columns; refuse missing or repeated identifiers."""

    @abstractmethod
    def exchange(self, drawn: Drawn) -> None:
        """Prepare the new values of ``names``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release memory, sessions and temporary files."""
        return


class RecordedOutput(Output):
    """Masked files whose pairs are recorded by row number."""

    @abstractmethod
    def iter_pairs(self) -> Iterator[tuple[int, Rows]]:
        """Yield the number of an exchange and pairs of row numbers, in the order of drawing, in batches."""

    def describe_result(self) -> Mapping[str, Any]:
        """Return how the columns are described afterwards, if otherwise than before, for the record."""
        return {}

    def write_record(self, directory: Path, totals: Mapping[str, Any], identity: str) -> None:
        """Write the pairs as row numbers, and the readable part."""
        from pyarrow import parquet

        row = pa.int32() if len(self.files) < 2**31 else pa.int64()
        fields = pa.schema({"stage": pa.int32(), "row_a": row, "row_b": row})
        # Row numbers in random order: neither a dictionary nor compression would make them smaller.
        plain: dict[str, Any] = {"use_dictionary": False, "compression": "none", "write_statistics": False}
        meant = PairsDigest()
        with parquet.ParquetWriter(directory / PAIRS, fields, **plain) as out:
            for stage, pairs in self.iter_pairs():
                columns = [pa.array([stage], pa.int32()).take(pa.array([0] * len(pairs), pa.int32()))]
                columns += [pa.array(pairs[:, side]).cast(row) for side in (0, 1)]
                part = pa.table(columns, schema=fields)
                meant.add(part)
                out.write_table(part)
        _check_pairs(directory / PAIRS, meant, sum(stage["pairs"] for stage in totals["stages"]))
        notes = {"masked_sha256": identity, "engine": self.job.engine, "reading": self.job.noted_reading}
        notes |= {"source_sha256": self.source_digest, **self.describe_result()}
        write_audit_json(directory, totals, self.schema, notes=notes)


class RewrittenOutput(RecordedOutput):
    """Files that are rewritten record by record: columns are replaced, all others copied byte for byte."""

    _written: tuple[Written, ...] = ()
    written_schema: pa.Schema | None = None
    """The types of the columns afterwards, if some of them change."""

    @abstractmethod
    def columns(self, start: int, stop: int) -> Mapping[str, pa.ChunkedArray]:
        """Return the new values of some records, requested in order."""

    def write(self, part: Path) -> None:
        """Write all files."""
        self._written = rewrite(
            self.files, part, names=self.names, replacing=self, work=self.work, schema=self.written_schema
        )

    def find_damaged(self, part: Path) -> list[str]:
        """Return the columns that were to be copied and are not as they were."""
        others = [name for name in self.files.schema.names if name not in self.names]
        result = open_parquet(part, is_own=True)
        same = [each.groups for each in result.parts] == [each.groups for each in self.files.parts]
        if not (same and result.schema.equals(self.written_schema or self.files.schema)):
            return others
        return find_changed(self.files, self._written, others)


class PairsDigest:
    """The number and the digest of rows of pairs, however they are cut into batches."""

    def __init__(self) -> None:
        self.number = 0
        self._columns = [hashlib.sha256() for _ in range(3)]

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Take in some rows."""
        self.number += rows.num_rows
        for digest, column in zip(self._columns, rows.columns, strict=True):
            digest.update(column.to_numpy().tobytes())

    @property
    def digests(self) -> list[bytes]:
        """The digest of each column."""
        return [digest.digest() for digest in self._columns]


def _check_pairs(path: Path, meant: PairsDigest, number: int) -> None:
    """Refuse a record that, read back from disk, does not hold the pairs that were exchanged."""
    from pyarrow import parquet

    found = PairsDigest()
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches():
            found.add(batch)
    if found.number != number or found.digests != meant.digests:
        raise UnsafeRelease(
            "the audit record does not hold the pairs that were exchanged; nothing was written",
            code="promise-broken",
            hint="please report it: this is a fault of the program or of the disk",
        )


class RewrittenFile(RewrittenOutput, OpenFile):
    """Files opened by an engine that exchanges values and rewrites them."""

    @abstractmethod
    def check_loadable(self, read: Names, copies: int) -> None:
        """Refuse missing or repeated identifiers, and columns too large for the engine to hold."""


def check_separate(drawn: Drawn, engine: str) -> None:
    """Refuse an attribute that is exchanged twice: the second exchange would have to read what the first has made."""
    names = [name for move in drawn.moves for name in move.names]
    if len(set(names)) < len(names):
        raise _memory_only_error(f"the engine {engine!r} cannot exchange an attribute twice", engine)


def check_promises(promises: Sequence[Invariant], evidence: PairEvidence, engine: str) -> tuple[Finding, ...]:
    """Check promises where the records are not in memory; refuse what cannot be checked there."""
    findings = []
    for promise in promises:
        if not isinstance(promise, PairPromise):
            kind = type(promise).__name__
            raise _memory_only_error(f"the engine {engine!r} cannot check what the method promises: {kind}", engine)
        findings.append(promise.found_in(evidence))
    return tuple(findings)


def _memory_only_error(message: str, engine: str) -> EngineError:
    hint = "engines that can: memory"
    return EngineError(message, code="not-supported", hint=hint, engine=engine, engines=["memory"])


ENGINES = {
    "memory": "safeswap.on_disk.memory:MemoryFile",
    "duckdb": "safeswap.on_disk.duckdb:DuckDBFile",
    "spark": "safeswap.on_disk.spark:SparkFile",
}


@check_types
def find_engine(name: str) -> type[OpenFile]:
    """Return the engine of that name.

    >>> find_engine("duckdb").title
    'records sorted and exchanged on disk under a memory limit'
    """
    if name not in ENGINES:
        raise SpecError(
            f"there is no engine {name!r}", code="unknown-engine", hint="the engines are: " + ", ".join(ENGINES)
        )
    module, _, found = ENGINES[name].partition(":")
    engine: type[OpenFile] = getattr(import_module(module), found)
    return engine


def check_supported(
    engine: type[OpenFile], method: Method, *, schema: Schema | None = None, spec: MaskSpec | None = None
) -> None:
    """Refuse what an engine cannot do to a file on disk, and name the engines that can.

    >>> check_supported(find_engine("duckdb"), registry.method("swap"))
    >>> check_supported(find_engine("duckdb"), registry.method("edit_targeted"))
    Traceback (most recent call last):
    safeswap.errors.EngineError: the engine 'duckdb' cannot do this: methods that need the whole file in memory
    """
    if not isinstance(method, ExchangingMethod | ValueChangingMethod):
        raise EngineError(
            f"{method.name!r} does not mask files on any engine",
            code="not-supported",
            hint="read the file and mask it in memory: mask(read(path), spec)",
            engine=engine.name,
            engines=[],
        )
    identified = schema is None or schema.identifier is not None
    for need in sorted(method.needs | (set() if identified else {Need.POSITIONS})):
        check_need(engine, need)
    if schema is not None and spec is not None and changed_by_household(method, schema, spec):
        check_need(engine, Need.HOUSEHOLDS)


def check_need(engine: type[OpenFile], need: Need) -> None:
    """Refuse what an engine lacks.

    >>> check_need(find_engine("spark"), Need.POSITIONS)
    Traceback (most recent call last):
    safeswap.errors.EngineError: the engine 'spark' cannot do this: files without an identifier
    """
    if need not in engine.lacks:
        return
    able = [name for name in ENGINES if need not in find_engine(name).lacks]
    raise EngineError(
        f"the engine {engine.name!r} cannot do this: {need.value}",
        code="not-supported",
        hint=f"{engine.lacks[need]}; engines that can: {', '.join(able)}",
        engine=engine.name,
        engines=able,
    )


def check_countable(name: str, *, by_counts: bool) -> None:
    """Refuse measures that need the records themselves on an engine that gives counts only.

    >>> check_countable("spark", by_counts=True)
    """
    engine = find_engine(name)
    if not by_counts:
        check_need(engine, Need.RECORDS)


def list_abilities() -> Iterator[tuple[str, tuple[bool, ...]]]:
    """Yield what can be done to files, and for each engine whether it can, for the reference.

    >>> dict(list_abilities())["the method edit_targeted on Parquet files"]
    (True, False, False)
    """
    engines = [find_engine(name) for name in ENGINES]
    for method in registry.methods().values():
        if isinstance(method, ExchangingMethod | ValueChangingMethod):
            yield f"the method {method.name} on Parquet files", tuple(not method.needs & set(e.lacks) for e in engines)
    for need in Need:
        yield need.value, tuple(need not in engine.lacks for engine in engines)
