"""A look through the data file of a bundle, piece by piece as it is read back from the disk."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.io.remarks import Remark, is_formula, refusal, warning
from safeswap.io.scan_parquet import chunk_remarks, footer_remarks
from safeswap.io.stored import Stored
from safeswap.model.equality import aligned_columns, different
from safeswap.model.levels import level_texts

_MAY_BE_FORMULA = "^[=+\\-@\t\r\n＝＋－＠]"


@dataclass(kw_only=True)
class SeenColumn:
    """What has been seen of one column: sums and sets, so that the column itself need not be kept."""

    name: str
    is_listed: bool
    texts: set[str] = field(default_factory=set)
    has_missing: bool = False
    formulas: int = 0
    changed: int = 0
    remarks: list[Remark] = field(default_factory=list)

    def note(self, column: pa.ChunkedArray, released: pa.ChunkedArray | None) -> None:
        """Take in a piece of the column, and compare it with the released one where that is known."""
        self.has_missing |= column.null_count > 0
        self.formulas += _formula_cells(column)
        if self.is_listed:
            self.texts |= _texts(column)
        if released is not None:
            flags = different(*aligned_columns(_one_nan(released), _one_nan(column)))
            self.changed += int(np.count_nonzero(flags))

    def findings(self, file: str) -> list[Remark]:
        """All there is to remark on the column."""
        remarks = list(dict.fromkeys(self.remarks))
        if self.changed:
            message = f"{self.changed:,} values of column {self.name!r} are not the released ones"
            remarks.append(refusal("foreign-value", message, column=self.name, file=file))
        if self.formulas:
            message = f"a spreadsheet would run {self.formulas:,} cells of column {self.name!r} as formulas"
            remarks.append(warning("formula-cells", message, column=self.name, file=file))
        return remarks


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What has been seen in a data file. ``tells_missing`` is False where a format cannot tell missing from empty."""

    records: int
    tells_missing: bool
    columns: dict[str, SeenColumn]
    remarks: tuple[Remark, ...]


def look_through(stored: Stored, *, listed: Iterable[str], expected: pa.Table | None = None) -> Seen:
    """Read a data file and note what is in it: of the columns ``listed`` every value, of the others sums.

    With ``expected`` every cell is compared with the released one.
    """
    listed = set(listed)
    columns = {name: SeenColumn(name=name, is_listed=name in listed) for name in stored.names}
    remarks = footer_remarks(stored.path) if stored.data_format == "parquet" else []
    records = 0
    # Arrow lets go of Python's lock, so that columns can be looked at side by side.
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
        message = f"the file has another number of records than the {len(expected):,} released"
        remarks.append(refusal("record-count", message, file=stored.path.name))
    remarks += [remark for seen in columns.values() for remark in seen.findings(stored.path.name)]
    tells_missing = stored.data_format in ("csv", "parquet")
    return Seen(records=records, tells_missing=tells_missing, columns=columns, remarks=tuple(remarks))


def _one_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Files of text know one NaN only, whatever its bits."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), type=column.type), column)


def _texts(column: pa.ChunkedArray) -> set[str]:
    if pa.types.is_dictionary(column.type):  # read from the file just now: it holds what the records hold
        return {text for chunk in column.chunks for text in level_texts(chunk.dictionary)}
    return set(level_texts(column.unique().drop_null()))


def _formula_cells(column: pa.ChunkedArray) -> int:
    if pa.types.is_dictionary(column.type):
        return sum(_formula_cells_of_dictionary(chunk) for chunk in column.chunks)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return 0
    suspects = column.filter(pc.match_substring_regex(column, _MAY_BE_FORMULA))
    return sum(is_formula(text) for text in suspects.to_pylist())


def _formula_cells_of_dictionary(chunk: pa.DictionaryArray) -> int:
    if not pa.types.is_string(chunk.dictionary.type):
        return 0
    suspects = [code for code, text in enumerate(chunk.dictionary.to_pylist()) if text and is_formula(text)]
    if not suspects:
        return 0
    return int(pc.sum(pc.is_in(chunk.indices, pa.array(suspects, type=chunk.indices.type))).as_py() or 0)
