"""A look through the data file of a bundle, piece by piece as it is read back from the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.io.remarks import Remark, is_formula, refusal, warning
from safeswap.io.scan_parquet import footer_remarks, group_remarks
from safeswap.io.stored import Stored
from safeswap.model.equality import aligned_columns, different
from safeswap.model.levels import level_texts

_MAY_BE_FORMULA = "^[=+\\-@\t\r\n＝＋－＠]"


@dataclass(kw_only=True)
class Seen:
    """What has been seen in a data file: sums and sets, so that the file itself need not be kept."""

    records: int = 0
    tells_missing: bool = True
    texts: dict[str, set[str]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    formulas: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    remarks: list[Remark] = field(default_factory=list)

    def findings(self, file: str) -> list[Remark]:
        """All remarks, the sums over the columns among them."""
        altered = [
            refusal("foreign-value", f"{n:,} values of column {c!r} are not the released ones", column=c, file=file)
            for c, n in self.changed.items()
        ]
        formulas = [
            warning("formula-cells", f"a spreadsheet would run {n:,} cells of column {c!r} as formulas", column=c)
            for c, n in self.formulas.items()
        ]
        return [*self.remarks, *altered, *formulas]


def look_through(stored: Stored, *, listed: Iterable[str], expected: pa.Table | None = None) -> Seen:
    """Read a data file and note what is in it: of the columns ``listed`` every value, of the others sums.

    With ``expected`` every cell is compared with the released one.
    """
    listed = set(listed)
    seen = Seen(texts={name: set() for name in listed}, tells_missing=stored.data_format in ("csv", "parquet"))
    if stored.data_format == "parquet":
        seen.remarks += footer_remarks(stored.path)
    for number, piece in enumerate(stored.pieces()):
        if stored.data_format == "parquet":
            seen.remarks += group_remarks(stored.path, number, piece)
        if expected is not None:
            _compare(seen, piece, expected.slice(seen.records, piece.num_rows), stored.path.name)
        for name in piece.column_names:
            _note(seen, name, piece.column(name), is_listed=name in listed)
        seen.records += piece.num_rows
    if expected is not None and seen.records != expected.num_rows:
        message = f"the file has {seen.records:,} records, {expected.num_rows:,} are released"
        seen.remarks.append(refusal("record-count", message, file=stored.path.name))
    return seen


def _compare(seen: Seen, piece: pa.Table, expected: pa.Table, file: str) -> None:
    if piece.column_names != expected.column_names:
        if not any(remark.code == "foreign-column" for remark in seen.remarks):
            seen.remarks.append(refusal("foreign-column", "the file does not have the released columns", file=file))
        return
    length = min(len(piece), len(expected))
    for name in piece.column_names:
        found, released = (_one_nan(table.column(name).slice(0, length)) for table in (piece, expected))
        number = int(np.count_nonzero(different(*aligned_columns(released, found))))
        if number:
            seen.changed[name] += number


def _one_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Files of text know one NaN only, whatever its bits."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), type=column.type), column)


def _note(seen: Seen, name: str, column: pa.ChunkedArray, *, is_listed: bool) -> None:
    if column.null_count:
        seen.missing.add(name)
    if is_listed:
        seen.texts[name].update(level_texts(column.unique().drop_null()))
    formulas = _formula_cells(column)
    if formulas:
        seen.formulas[name] += formulas


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
