"""Scan the data file of a bundle, piece by piece as it is read back from disk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.compiled import is_worth_compiling, njit
from safeswap.errors import UnsafeRelease
from safeswap.files.columns import drop_unused_levels
from safeswap.model.columns import aligned_columns, flag_changes
from safeswap.model.microdata import share_dictionary, text_buffers, unify_dictionaries
from safeswap.model.schema import level_texts
from safeswap.model.text import plural
from safeswap.releases.manifest import damaged_error
from safeswap.releases.public_data import Stored

# What a spreadsheet takes for the start of a formula, including full-width forms.
_STARTS_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)*|[.,]\d+)([eE][+-]?\d+)?%?")


@dataclass(frozen=True, kw_only=True)
class Remark:
    """One finding: where, what, and whether it forbids the release. It contains no value of a record.

    ``revealed_by`` is the column that gives away the values of ``column``: the finding is gone without either.
    """

    code: str
    message: str
    refuses: bool
    column: str = ""
    file: str = ""
    revealed_by: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for ``--json`` and for the verifier's report."""
        return {
            "code": self.code,
            "message": self.message,
            "refuses": self.refuses,
            "column": self.column,
            "file": self.file,
            **({"revealed_by": self.revealed_by} if self.revealed_by else {}),
        }


def refusal(code: str, message: str, *, column: str = "", file: str = "", revealed_by: str = "") -> Remark:
    """Make a finding that forbids the release."""
    return Remark(code=code, message=message, refuses=True, column=column, file=file, revealed_by=revealed_by)


def warning(code: str, message: str, *, column: str = "", file: str = "") -> Remark:
    """Make a finding that does not forbid the release."""
    return Remark(code=code, message=message, refuses=False, column=column, file=file)


# For columns that cannot be released under their names.
_LEFT_OUT = "nothing was released; leave the column out, or give it another name"
_HINTS = {
    **dict.fromkeys(("index-column", "formula-name", "invisible-name"), _LEFT_OUT),
    "household-split": "nothing was released; mark the attribute as the household's (household = true in the schema) "
    "and mask again, leave it as it is, or leave out what reveals who belongs together",
    "household-changed": "nothing was released; leave the number of households as it is: a release gives new numbers",
    "household-size": "nothing was released; leave the attribute as it is, or leave it out",
    "geography-split": "nothing was released; swap all levels of the geography together, hold the coarser ones fixed "
    "while a finer one is swapped, or leave levels out",
    "read-off": "nothing was released; mask both columns together, or leave one of them out",
    "unconfirmed-identifier": "nothing was released; state what the column is (kinds, or its kind in the schema file) "
    "and mask again: identifiers and households get new numbers; or leave it out",
}


def refuse_if_any(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """Raise for the first finding that forbids the release; otherwise return all findings."""
    remarks = tuple(remarks)
    reasons = [remark for remark in remarks if remark.refuses]
    if reasons:
        first = reasons[0]
        raise UnsafeRelease(
            first.message + (f" (and {plural(len(reasons) - 1, 'more finding')})" if len(reasons) > 1 else ""),
            code=first.code,
            hint=_HINTS.get(first.code, "nothing was released; see the findings, then mask or describe the data again"),
            column=first.column,
            file=first.file,
            findings=[remark.as_dict() for remark in reasons],
        )
    return remarks


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet would run this cell of a CSV file; signed numbers are not formulas.

    >>> [is_formula(text) for text in ("=1+1", "-5", "-5.2e-3", "-", "@SUM(A1)", "a=b")]
    [True, False, False, False, True, False]
    """
    return len(text) > 1 and bool(_STARTS_FORMULA.match(text)) and not _NUMBER.fullmatch(text)


def name_remarks(names: Iterable[str]) -> list[Remark]:
    """Find column names that must not be in a header: formulas, invisible ones, and a dataframe's row numbers."""
    from safeswap.model.release import is_index_column

    remarks = []
    for position, name in enumerate(names, start=1):
        if is_index_column(name):
            remarks.append(refusal("index-column", f"column {position:,} is a row number of a dataframe", column=name))
        elif _STARTS_FORMULA.match(name):
            message = f"the name of column {position:,} would be run as a formula by a spreadsheet"
            remarks.append(refusal("formula-name", message, column=name))
        elif not name.isprintable():
            message = f"the name of column {position:,} contains invisible characters"
            remarks.append(refusal("invisible-name", message, column=name))
    return remarks


_MAGIC = 4
_TAIL = 8  # the footer's length and the magic again


def footer_remarks(path: Path) -> list[Remark]:
    """Find metadata in a Parquet footer, and bytes that belong to no column."""
    from pyarrow import parquet

    try:
        metadata = parquet.read_metadata(path)
    except (pa.ArrowException, OSError):
        raise damaged_error("it cannot be read", file=path.name) from None
    remarks = [
        refusal("engine-metadata", f"the footer holds notes of the program {_engine(key)!r}", file=path.name)
        for key in sorted(metadata.metadata or {})
    ]
    if not _is_tiled(metadata, path.stat().st_size):
        message = "the file holds bytes that belong to no column"
        remarks.append(refusal("unaccounted-bytes", message, file=path.name))
    return remarks


def _engine(key: bytes) -> str:
    """Return the program behind a key, from known names only: a key can contain anything."""
    known = {b"pandas": "pandas", b"ARROW:schema": "Arrow", b"org.apache.spark": "Spark", b"geo": "geo"}
    return next((name for prefix, name in known.items() if key.startswith(prefix)), "unknown")


def _is_tiled(metadata: Any, size: int) -> bool:
    """Return whether the column chunks fill the file exactly between header and footer."""
    spans = []
    for group in range(metadata.num_row_groups):
        for position in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(position)
            starts = [chunk.data_page_offset]
            if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                starts.append(chunk.dictionary_page_offset)
            spans.append((min(starts), min(starts) + chunk.total_compressed_size))
    end = _MAGIC
    for start, stop in sorted(spans):
        if start != end:
            return False
        end = stop
    return end + int(metadata.serialized_size) + _TAIL == size


def chunk_remarks(path: Path, group: int, piece: pa.Table) -> Iterator[list[Remark]]:
    """Find, per column of a row group, dictionary values that no record has and wrong bounds."""
    from pyarrow import parquet

    metadata = parquet.read_metadata(path).row_group(group)
    for position, name in enumerate(piece.column_names):
        column = piece.column(name)
        remarks = []
        if pa.types.is_dictionary(column.type) and _has_unused_levels(column):
            message = f"column {name!r} lists values that no record has"
            remarks.append(refusal("unused-category", message, column=name, file=path.name))
        bounds = metadata.column(position).statistics
        if bounds is not None and bounds.has_min_max and not _are_bounds(bounds, column):
            message = f"the bounds recorded for column {name!r} are not those of its values"
            remarks.append(refusal("foreign-bounds", message, column=name, file=path.name))
        yield remarks


def _has_unused_levels(column: pa.ChunkedArray) -> bool:
    used: set[int] = set()
    column = unify_dictionaries(column)
    for chunk in column.chunks:
        counts = np.bincount(chunk.indices.drop_null(), minlength=len(chunk.dictionary))
        used.update(np.flatnonzero(counts).tolist())
    return bool(column.num_chunks) and len(used) != len(column.chunk(0).dictionary)


def _are_bounds(bounds: Any, column: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array([unify_dictionaries(column).chunk(0).dictionary])
    found = pc.min_max(column).as_py()
    return bool(bounds.min == found["min"] and bounds.max == found["max"])


_STARTS = np.isin(np.arange(256), [text.encode()[0] for text in "=+-@\t\r\n＝＋－＠"])
"""The bytes with which a formula may begin."""


@dataclass(kw_only=True)
class SeenColumn:
    """A summary of one column: totals and sets, so that the column itself need not be kept."""

    name: str
    is_listed: bool
    texts: set[str] = field(default_factory=set)
    has_missing: bool = False
    formulas: int = 0
    changed: int = 0
    remarks: list[Remark] = field(default_factory=list)

    def note(self, column: pa.ChunkedArray, released: pa.ChunkedArray | None) -> None:
        """Add a piece of the column, and compare it with the released one if that is known."""
        self.has_missing |= column.null_count > 0
        self.formulas += _formula_cells(column)
        if self.is_listed:
            self.texts |= _texts(column)
        if released is not None:
            flags = flag_changes(*aligned_columns(normalise_nan(released), normalise_nan(column)))
            self.changed += int(np.count_nonzero(flags))

    def findings(self, file: str) -> list[Remark]:
        """Return all remarks on the column."""
        remarks = list(dict.fromkeys(self.remarks))
        if self.changed:
            values = plural(self.changed, f"value of column {self.name!r} is", f"values of column {self.name!r} are")
            message = f"{values} not as released"
            remarks.append(refusal("foreign-value", message, column=self.name, file=file))
        if self.formulas:
            message = f"a spreadsheet would run {plural(self.formulas, 'cell')} of column {self.name!r} as formulas"
            remarks.append(warning("formula-cells", message, column=self.name, file=file))
        return remarks


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A summary of a data file. ``tells_missing`` is False if the format cannot distinguish missing from empty."""

    records: int
    tells_missing: bool
    columns: dict[str, SeenColumn]
    remarks: tuple[Remark, ...]


def scan_data(stored: Stored, *, listed: Iterable[str], expected: pa.Table | None = None) -> Seen:
    """Read and summarise a data file: every value of the ``listed`` columns, totals of the others.

    With ``expected``, every cell is compared with the released one.
    """
    listed = set(listed)
    columns = {name: SeenColumn(name=name, is_listed=name in listed) for name in stored.names}
    if expected is not None and stored.data_format == "csv" and holds_records(stored.path, expected):
        table = drop_unused_levels(expected)
        for name, seen in columns.items():
            seen.note(table.column(name), None)
        remarks = [remark for seen in columns.values() for remark in seen.findings(stored.path.name)]
        return Seen(records=len(table), tells_missing=True, columns=columns, remarks=tuple(remarks))
    remarks = footer_remarks(stored.path) if stored.data_format == "parquet" else []
    records = 0
    # Arrow releases the GIL, so columns can be scanned in parallel.
    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        for number, piece in enumerate(stored.pieces()):
            released = None if expected is None else expected.slice(records, len(piece))
            records += len(piece)
            if released is not None and len(released) < len(piece):
                break
            if stored.data_format == "parquet":
                for seen, found in zip(columns.values(), chunk_remarks(stored.path, number, piece), strict=True):
                    seen.remarks += found
            slices = [None] * len(columns) if released is None else released.columns
            list(threads.map(SeenColumn.note, columns.values(), piece.columns, slices))
    if expected is not None and records != len(expected):
        message = f"the file does not have the {plural(len(expected), 'released record')}"
        remarks.append(refusal("record-count", message, file=stored.path.name))
    remarks += [remark for seen in columns.values() for remark in seen.findings(stored.path.name)]
    tells_missing = stored.data_format in ("csv", "parquet")
    return Seen(records=records, tells_missing=tells_missing, columns=columns, remarks=tuple(remarks))


_AT_ONCE = 1 << 22  # bytes of a file
_NO_CODES = np.empty(0, np.int32)

Texts: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]
"""Where each text begins and ends, and the bytes of all."""

Fields: TypeAlias = tuple[npt.NDArray[np.int32], npt.NDArray[Any], npt.NDArray[np.uint8]]
"""Which of the texts each record has, or nothing if they are in its order; and the texts."""


def holds_records(path: Path, expected: pa.Table) -> bool:
    """Return whether a large CSV file without quotes holds exactly these records, by the bytes of every field.

    If not, or if the file or a column is of another kind, the parser has to tell. The lines are split where the file
    has its line ends and commas, and none may be too many: so no field can be taken for two.
    """
    is_large = len(expected) > 0 and is_worth_compiling(path.stat().st_size)
    columns = [share_dictionary(column) for column in expected.columns]
    if not is_large or not all(map(_has_exact_texts, columns)):
        return False
    levels = [_level_fields(column) for column in columns]
    rest, row = b"", 0
    with path.open("rb") as file:
        file.readline()
        while more := file.read(_AT_ONCE):
            lines = np.frombuffer(rest + more, np.uint8)
            ends = np.flatnonzero(lines == ord("\n"))
            fields = (_fields_of(c.slice(row, len(ends)), known) for c, known in zip(columns, levels, strict=True))
            if not 0 < len(ends) <= len(expected) - row or not _match_lines(lines, ends, fields, len(columns)):
                return False
            rest, row = lines[ends[-1] + 1 :].tobytes(), row + len(ends)
    return row == len(expected) and not rest


def _match_lines(
    lines: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], fields: Iterable[Fields], columns: int
) -> bool:
    """Return whether lines that end in these places hold the fields of these columns, and nothing else."""
    commas, is_plain = _look_through(lines[: ends[-1] + 1])
    if commas != len(ends) * (columns - 1) or not is_plain:
        return False
    places = np.append(0, ends[:-1] + 1)
    marks = [ord(",")] * (columns - 1) + [ord("\n")]
    is_same = all(_match_fields(*each, places, lines, mark) for each, mark in zip(fields, marks, strict=True))
    return is_same and np.array_equal(places, ends + 1)


def _has_exact_texts(column: pa.ChunkedArray) -> bool:
    """Return whether each value has one text, from which exactly it is read; an empty one is read as missing."""
    chunks = [chunk.dictionary if pa.types.is_dictionary(column.type) else chunk for chunk in column.chunks]
    if pa.types.is_integer(chunks[0].type):
        return True
    is_text = pa.types.is_string(chunks[0].type) or pa.types.is_large_string(chunks[0].type)
    return is_text and not any(pc.any(pc.equal(pc.binary_length(texts), 0)).as_py() for texts in chunks)


def _level_fields(column: pa.ChunkedArray) -> Texts | None:
    """Return the texts of a column's categories, and an empty one after them; None if it has none."""
    if not pa.types.is_dictionary(column.type):
        return None
    offsets, content = text_buffers(column.chunk(0).dictionary.cast(pa.large_string()).fill_null(""))
    return np.append(offsets, offsets[-1]), content


def _fields_of(piece: pa.ChunkedArray, levels: Texts | None) -> Fields:
    if levels is None:
        return _NO_CODES, *text_buffers(piece.cast(pa.large_string()).combine_chunks().fill_null(""))
    missing = len(levels[0]) - 2
    codes = [chunk.indices.cast(pa.int32()).fill_null(missing).to_numpy() for chunk in piece.chunks]
    return np.concatenate(codes), *levels


@njit(cache=True, nogil=True)
def _look_through(lines):  # type: ignore[no-untyped-def]
    """Return the number of commas, and whether there is neither a quote nor a carriage return."""
    commas, others = 0, 0
    for byte in lines:
        commas += byte == 44
        others += (byte == 34) | (byte == 13)
    return commas, others == 0


@njit(cache=True, nogil=True)
def _match_fields(codes, offsets, content, places, lines, mark):  # type: ignore[no-untyped-def]
    """Return whether each record's text and the mark are at its place, which moves on to the next field."""
    for row in range(places.size):
        field, place = np.int64(codes[row]) if codes.size else row, places[row]
        if place + offsets[field + 1] - offsets[field] >= lines.size:
            return False
        for k in range(offsets[field], offsets[field + 1]):
            if lines[place] != content[k]:
                return False
            place += 1
        if lines[place] != mark:
            return False
        places[row] = place + 1
    return True


def normalise_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Normalise NaN: text files do not keep its bits."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), type=column.type), column)


def _texts(column: pa.ChunkedArray) -> set[str]:
    if pa.types.is_dictionary(column.type):  # just read from the file, so it has only values that records have
        return {text for chunk in column.chunks for text in level_texts(chunk.dictionary)}
    return set(level_texts(column.unique().drop_null()))


def _formula_cells(column: pa.ChunkedArray) -> int:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return 0
    return sum(_count_formulas(chunk) for chunk in column.chunks)


def _count_formulas(chunk: pa.Array) -> int:
    if not isinstance(chunk, pa.DictionaryArray):
        return len(_formula_places(chunk))
    found = _formula_places(chunk.dictionary)
    return int(pc.sum(pc.is_in(chunk.indices, pa.array(found, type=chunk.indices.type))).as_py() or 0) if found else 0


def _formula_places(texts: pa.Array) -> list[int]:
    """Return the places of the texts that are formulas; almost all others are ruled out by their first byte."""
    suspects = np.flatnonzero(_STARTS[_first_bytes(texts)])
    if not len(suspects):
        return []
    known = pc.match_substring_regex(texts.take(suspects), f"^(?:{_NUMBER.pattern})$")
    unknown = suspects[~pc.fill_null(known, fill_value=True).to_numpy(zero_copy_only=False)]
    return [place for place in unknown.tolist() if is_formula(texts[place].as_py())]


def _first_bytes(texts: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the first byte of each text; where there is none, 0 or that of another text."""
    _, offsets, content = texts.buffers()
    if content is None or not content.size:
        return np.zeros(len(texts), dtype=np.uint8)
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    starts: npt.NDArray[Any] = np.frombuffer(offsets, dtype=width)[texts.offset : texts.offset + len(texts)]
    found: npt.NDArray[np.uint8] = np.frombuffer(content, dtype=np.uint8).take(starts, mode="clip")
    return found
