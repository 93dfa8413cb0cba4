"""Records in columns, each coded once to the smallest integers that hold its levels, and known by their identifiers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import keyed
from safeswap.arrays.compiled import is_worth_compiling, run_all, split_runs
from safeswap.arrays.types import Codes, Flags, Int64s, Words
from safeswap.errors import InternalError, SpecError
from safeswap.model.checked import check_field_types, check_types
from safeswap.model.schema import Schema
from safeswap.model.text import plural

_WORTH_A_TABLE = 1 << 17
"""Above this many records, loading compiled code to number them pays off."""

_LOOKED_AT = 4
"""Of a column in question, this many times as many records are looked at first as values are asked for."""

_GLANCE = 1 << 12
"""Number of records that most often show that a column is not constant."""

_TABLE_COST = 4
"""Cost of coding by a table in NumPy, in simple passes."""


def smallest_code_type(levels: int) -> np.dtype[Any]:
    """Return the narrowest unsigned type that can number ``levels`` levels.

    >>> smallest_code_type(256), smallest_code_type(257)
    (dtype('uint8'), dtype('uint16'))
    """
    for dtype in (np.uint8, np.uint16, np.uint32):
        if levels <= np.iinfo(dtype).max + 1:
            return np.dtype(dtype)
    return np.dtype(np.uint64)


@dataclass(frozen=True, eq=False)
class Coded:
    """One column as integers: ``codes[i]`` is the position of record i's value in ``levels``.

    A missing value is a level of its own, the last one, with code ``len(levels)``.
    """

    codes: Codes
    levels: pa.Array
    has_missing: bool
    ranks: dict[tuple[tuple[str, ...], tuple[str, ...]], Int64s] = field(default_factory=dict, repr=False)
    """Ranks of the levels by the stated order and missing codes, cached where they are needed repeatedly."""

    @property
    def cardinality(self) -> int:
        """The number of codes in use, missing counted as one."""
        return len(self.levels) + self.has_missing


@dataclass(frozen=True, kw_only=True)
class PastStep:
    """An earlier masking or recode of the values, and the attributes that it changed."""

    method: str
    attributes: tuple[str, ...]
    releasable: bool = True


class Named(NamedTuple):
    """A table as it was read, and the names by which a register knows it; ``register`` identifies that one."""

    table: pa.Table
    register: str
    names: tuple[bytes, ...]


@check_field_types
@dataclass(frozen=True, eq=False)
class Microdata:
    """N records by v attributes, as an Arrow table with its schema. Treated as immutable.

    ``origin`` is the caller's dataframe if there was one, so that results are returned in the caller's type.
    ``past`` lists the known processing of the values since they were collected, first step first. ``first`` is the
    table as it was read, if anything was done to it since: what was done before is found by it. ``stored`` says in
    which file columns are stored as they were read, so that they can be copied from it; ``named`` has the
    names that a record of the masking has of the table.
    """

    table: pa.Table
    schema: Schema
    origin: Any = None
    _coded: dict[str, Coded] = field(default_factory=dict, repr=False)
    past: tuple[PastStep, ...] = ()
    first: pa.Table | None = field(default=None, repr=False)
    stored: Any = field(default=None, repr=False)
    named: Named | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if tuple(self.table.column_names) != self.schema.names:
            raise InternalError(
                "table and schema name different columns",
                code="schema-mismatch",
                hint="describe the columns of the table, in their order",
            )

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attribute names in column order."""
        return self.schema.names

    @check_types
    def coded(self, name: str) -> Coded:
        """Return the column as small integers, computed once and cached."""
        if name not in self._coded:
            self.schema[name]  # raises for an unknown attribute
            self._coded[name] = code_column(self.table.column(name))
        return self._coded[name]

    @check_types
    def cached_codes(self, name: str) -> Coded | None:
        """Return the codes of the column if they were computed before."""
        return self._coded.get(name)

    @check_types
    def coded_columns(self, names: Sequence[str]) -> tuple[list[Codes], list[int]]:
        """Return codes and cardinalities of several columns, in the form that kernels take."""
        columns = [self.coded(name) for name in names]
        return [c.codes for c in columns], [c.cardinality for c in columns]

    @check_types
    def share_codes(self, other: Microdata, names: Sequence[str]) -> None:
        """Use the codes that another file has of columns that are the same in both."""
        self._coded.update({name: other._coded[name] for name in names if name in other._coded})

    @check_types
    def count_distinct(self, name: str) -> int:
        """Count the values of a column that occur, missing excluded."""
        coded = self.coded(name)
        seen = np.zeros(len(coded.levels) + 1, dtype=np.bool_)
        seen[coded.codes] = True
        return int(np.count_nonzero(seen[:-1]))

    @check_types
    def has_more_values(self, name: str, number: int) -> bool:
        """Return whether more than this many values of a column occur; if the first records show it, without coding.

        >>> from safeswap.model.schema import Attribute
        >>> data = Microdata(pa.table({"a": ["x", "y", "x"]}), Schema(attributes=(Attribute(name="a"),)))
        >>> data.has_more_values("a", 1), data.has_more_values("a", 2)
        (True, False)
        """
        self.schema[name]  # raises for an unknown attribute
        first = self.table.column(name).slice(0, min(len(self), _LOOKED_AT * number))
        is_plain = name not in self._coded and not pa.types.is_dictionary(first.type)
        return (is_plain and len(first.drop_null().unique()) > number) or self.count_distinct(name) > number

    @check_types
    def is_constant(self, name: str) -> bool:
        """Return whether all records have the same value; unused levels do not matter."""
        codes = self.coded(name).codes
        return not (codes[:_GLANCE] != codes[:1]).any() and bool((codes == codes[:1]).all())

    @check_types
    def codes_at(self, name: str, rows: npt.NDArray[np.int64]) -> tuple[Codes, int]:
        """Return the codes of some rows and their cardinality, without coding the whole column unless it is cached."""
        if rows.dtype.kind not in "iu":
            raise SpecError(
                "rows are whole numbers", code="bad-argument", hint="give an array of them", argument="rows"
            )
        if name in self._coded:
            return self._coded[name].codes[rows], self._coded[name].cardinality
        self.schema[name]
        some = code_column(take_rows(self.table.column(name), rows))
        return some.codes, some.cardinality

    @check_types
    def with_columns(self, columns: Mapping[str, pa.ChunkedArray], coded: Mapping[str, Coded]) -> Microdata:
        """Return a copy with some columns replaced; the others are shared, not copied."""
        table = self.table
        for name, column in columns.items():
            position = table.column_names.index(name)
            table = table.set_column(position, table.schema.field(position).with_type(column.type), column)
        kept = {name: value for name, value in self._coded.items() if name not in columns}
        return Microdata(table, self.schema, self.origin, {**kept, **coded}, self.past, self.first, self.stored)

    def __repr__(self) -> str:
        # A repr ends up in notebooks and logs: shape and names only, never a record.
        names = ", ".join(self.attributes[:12]) + (", …" if len(self.attributes) > 12 else "")
        title = f" {self.schema.name!r}" if self.schema.name else ""
        size = f"{plural(len(self), 'record')} × {plural(len(self.attributes), 'attribute')}"
        return f"<Microdata{title}: {size}: {names}>"


def add_step(before: Microdata, step: PastStep, after: Microdata) -> Microdata:
    """Return what a step has made of the data, with the step added to their history."""
    return replace(after, past=(*before.past, step), first=before.table if before.first is None else before.first)


def join_pasts(pasts: Iterable[tuple[PastStep, ...]]) -> tuple[PastStep, ...]:
    """Return one history that combines several; what two of them have in common at their start appears once.

    >>> swap, pram = (PastStep(method=name, attributes=("Race",)) for name in ("swap", "pram"))
    >>> [step.method for step in join_pasts([(swap,), (swap, pram), ()])]
    ['swap', 'pram']
    """
    joined: tuple[PastStep, ...] = ()
    for past in pasts:
        same = 0
        while same < min(len(joined), len(past)) and joined[same] == past[same]:
            same += 1
        joined += past[same:]
    return joined


def take_rows(column: pa.ChunkedArray, rows: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """Return the values of some rows; whole numbers by NumPy, in a third of the time.

    >>> take_rows(pa.chunked_array([[7, 8, 9]]), np.array([2, 0])).to_pylist()
    [9, 7]
    """
    if column.num_chunks == 1 and pa.types.is_integer(column.type) and not column.null_count:
        return pa.chunked_array([pa.array(column.chunk(0).to_numpy()[rows])])
    return column.take(pa.array(rows))


def code_column(column: pa.ChunkedArray) -> Coded:
    """Code a column by its distinct values.

    >>> coded = code_column(pa.chunked_array([["b", "a", None, "b"]]))
    >>> coded.codes.tolist(), coded.levels.to_pylist(), coded.has_missing
    ([0, 1, 2, 0], ['b', 'a'], True)
    """
    if pa.types.is_null(column.type):
        column = column.cast(pa.string())
    if pa.types.is_integer(column.type) and column.type.bit_width <= 16 and not column.null_count:
        return _code_short_integers(column)
    if pa.types.is_signed_integer(column.type) and not column.null_count and len(column) > _WORTH_A_TABLE:
        return _code_long_integers(column)
    if pa.types.is_float64(column.type) and not column.null_count and len(column) > _WORTH_A_TABLE:
        bits = _code_long_integers(pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks]))
        return Coded(bits.codes, bits.levels.view(pa.float64()), has_missing=False)  # Arrow tells by bits, too
    if len(column) > _WORTH_A_TABLE and (short := _code_short_texts(column)) is not None:
        return short
    is_new = not pa.types.is_dictionary(column.type)
    column = column.dictionary_encode() if is_new else share_dictionary(column)
    chunks = column.chunks
    levels = chunks[0].dictionary if chunks else pa.array([], type=column.type.value_type)
    has_missing = column.null_count > 0
    dtype = smallest_code_type(len(levels) + has_missing)
    codes = np.empty(len(column), dtype=dtype)
    start = 0
    for chunk in chunks:
        indices = chunk.indices
        if indices.null_count:
            indices = (
                indices.fill_null(len(levels))
                if _fits(indices.type, len(levels))
                else (indices.cast(pa.int64()).fill_null(len(levels)))
            )
        codes[start : start + len(chunk)] = indices.to_numpy(zero_copy_only=False)
        start += len(chunk)
    return Coded(codes, levels, has_missing) if is_new else _compact(codes, levels, has_missing=has_missing)


def _code_short_integers(column: pa.ChunkedArray) -> Coded:
    """Code short integers by a table over all possible values instead of a hash; levels in ascending order."""
    bits = column.type.bit_width
    dtype = np.dtype(f"u{bits // 8}")
    present = np.zeros(1 << bits, dtype=np.bool_)
    is_large = is_worth_compiling(_TABLE_COST * len(column))
    mark, take = _compiled_passes() if is_large else (_mark, _take)
    cuts = [end for _, end in split_runs(len(column))] if is_large else []
    runs = _split_chunks(column, cuts)
    run_all(lambda run: mark(present, run[1].view(dtype)), runs, max(1, len(cuts)))
    used = np.flatnonzero(present).astype(dtype).view(column.type.to_pandas_dtype())
    levels = np.sort(used)
    code_of: Codes = np.zeros(1 << bits, dtype=smallest_code_type(len(levels)))
    code_of[levels.view(dtype)] = np.arange(len(levels))
    codes: Codes = np.empty(len(column), dtype=code_of.dtype)
    run_all(lambda run: take(code_of, run[1].view(dtype), codes[run[0] :][: len(run[1])]), runs, max(1, len(cuts)))
    return Coded(codes, pa.array(levels, type=column.type), has_missing=False)


def _split_chunks(column: pa.ChunkedArray, cuts: Sequence[int]) -> list[tuple[int, npt.NDArray[Any]]]:
    """Return the first place and the values of each chunk, divided where there are cuts."""
    runs, start = [], 0
    for chunk in column.chunks:
        end = start + len(chunk)
        edges = sorted({start, end, *(cut for cut in cuts if start < cut < end)})
        values = chunk.to_numpy()
        runs += [(first, values[first - start : last - start]) for first, last in pairwise(edges)]
        start = end
    return runs


def _compiled_passes() -> tuple[Callable[..., None], Callable[..., None]]:
    from safeswap.arrays.integer_codes import mark, take

    return mark, take


def _mark(flags: Flags, places: Codes) -> None:
    flags[places] = True


def _take(table: Codes, places: Codes, out: Codes) -> None:
    np.take(table, places, out=out, mode="clip")


def _code_long_integers(column: pa.ChunkedArray) -> Coded:
    """Code as Arrow does, levels in order of appearance, with our own hash table: several times as fast."""
    from safeswap.arrays.integer_codes import IntegerCodes

    numbers = IntegerCodes()
    codes: Codes = np.empty(len(column), dtype=np.uint32)
    start = 0
    for chunk in column.chunks:
        numbers.code(chunk.to_numpy(), codes[start : start + len(chunk)])
        start += len(chunk)
    levels = pa.array(numbers.levels.astype(column.type.to_pandas_dtype()), type=column.type)
    return Coded(codes.astype(smallest_code_type(len(levels)), copy=False), levels, has_missing=False)


def _code_short_texts(column: pa.ChunkedArray) -> Coded | None:
    """Code texts as Arrow does, by words that they are packed into; None if some are too long or not plain."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    from safeswap.arrays.integer_codes import MISSING_TEXT, IntegerCodes, pack_texts

    numbers, start = IntegerCodes(), 0
    codes: Codes = np.empty(len(column), dtype=np.uint32)
    for chunk in column.chunks:
        words = np.empty(len(chunk), dtype=np.int64)
        if not pack_texts(*text_buffers(chunk), words):
            return None
        if chunk.null_count:
            words[chunk.is_null().to_numpy(zero_copy_only=False)] = MISSING_TEXT
        numbers.code(words, codes[start : start + len(chunk)])
        start += len(chunk)
    found = len(numbers.levels)
    first = np.zeros(found, dtype=np.int64)  # levels are numbered in order of appearance
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    missing = np.flatnonzero(numbers.levels == MISSING_TEXT)
    if len(missing):
        place = np.arange(found, dtype=np.uint32)
        place[missing[0] + 1 :] -= 1
        place[missing[0]] = found - 1
        codes = place[codes]
        first = np.delete(first, missing)
    levels = column.take(pa.array(first)).combine_chunks()
    return Coded(codes.astype(smallest_code_type(found), copy=False), levels, has_missing=len(missing) > 0)


def text_buffers(texts: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Return where each text begins and ends, and the bytes of all.

    >>> [part.tolist() for part in text_buffers(pa.array(["a", "bc"]))]
    [[0, 1, 3], [97, 98, 99]]
    """
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    _, places, content = texts.buffers()
    if places is None or not len(texts):
        return np.zeros(len(texts) + 1, kind), np.empty(0, np.uint8)
    offsets = np.frombuffer(places, kind)[texts.offset : texts.offset + len(texts) + 1]
    return offsets, np.frombuffer(content or b"", np.uint8)


def share_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give the chunks of a dictionary column one shared dictionary; return other columns unchanged."""
    try:
        return unify_dictionaries(column)
    except pa.ArrowInvalid:
        # Missing values inside a dictionary, or more levels in total than its indices can number.
        return unify_dictionaries(column.cast(column.type.value_type).dictionary_encode())


def unify_dictionaries(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Like Arrow's method, but immediate where the chunks share a dictionary already.

    Arrow hashes the dictionary again for every chunk: in a column of distinct values, the square of their number.

    >>> shared = pa.array(["a", "b"])
    >>> chunks = [pa.DictionaryArray.from_arrays(pa.array([i]), shared) for i in (0, 1)]
    >>> column = pa.chunked_array(chunks)
    >>> unify_dictionaries(column) is column
    True
    """
    if not pa.types.is_dictionary(column.type) or column.num_chunks < 2:
        return column.unify_dictionaries()
    first = column.chunk(0).dictionary
    shared = not first.null_count and all(_is_same(first, chunk.dictionary) for chunk in column.chunks[1:])
    return column if shared else column.unify_dictionaries()


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    """Return True if two arrays are the same place in memory."""
    if len(one) != len(other) or one.offset != other.offset:
        return False
    places = [[buffer and buffer.address for buffer in array.buffers()] for array in (one, other)]
    return bool(places[0] == places[1])


def signed_zeros(levels: pa.Array) -> tuple[int, int] | None:
    """Return the places of −0.0 and 0.0 among levels; None unless both occur.

    They are different bits but the same number: exchanging one for the other changes nothing.

    >>> signed_zeros(pa.array([0.0, 1.5, -0.0]))
    (2, 0)
    """
    if not pa.types.is_floating(levels.type):
        return None
    values = levels.to_numpy(zero_copy_only=False)
    zeros = np.flatnonzero(values == 0)
    if len(zeros) < 2:
        return None
    first, second = zeros.tolist()
    return (first, second) if np.signbit(values[first]) else (second, first)


def drop_signed_zero(codes: npt.NDArray[Any], zeros: tuple[int, int] | None) -> npt.NDArray[Any]:
    """Replace the code of −0.0 by that of 0.0."""
    return codes if zeros is None else np.where(codes == zeros[0], codes.dtype.type(zeros[1]), codes)


def _fits(index_type: pa.DataType, value: int) -> bool:
    return bool(value <= np.iinfo(index_type.to_pandas_dtype()).max)


def _compact(codes: Codes, levels: pa.Array, *, has_missing: bool) -> Coded:
    """Drop repeated and null dictionary entries, which foreign files may contain; free in the usual case."""
    if levels.null_count == 0 and len(levels.unique()) == len(levels):
        return Coded(codes, levels, has_missing)
    encoded = levels.dictionary_encode()  # as when coding columns: −0.0 is not 0.0, and NaN equals NaN
    unique = encoded.dictionary
    lookup = np.append(encoded.indices.fill_null(len(unique)).to_numpy(zero_copy_only=False), len(unique))
    recoded = lookup[codes]
    missing = bool((recoded == len(unique)).any())
    return Coded(recoded.astype(smallest_code_type(len(unique) + missing)), unique, missing)


def record_identity(data: Microdata, identity_key: bytes) -> npt.NDArray[np.int64] | Words:
    """Return integers, or blocks, one per record. Without an identifier a record is known by its position."""
    attribute = data.schema.identifier
    if attribute is None:
        return np.arange(len(data), dtype=np.int64)
    return column_identity(data.table.column(attribute.name), identity_key)


def column_identity(column: pa.ChunkedArray, identity_key: bytes) -> npt.NDArray[np.int64] | Words:
    """Return integers, or blocks, one per value, independent of the part of the column it is in.

    >>> column_identity(pa.chunked_array([[7, 8]]), bytes(32)).tolist()
    [7, 8]
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type) and column.type != pa.uint64():
        whole = column.chunk(0) if column.num_chunks == 1 else column  # of several, a copy is made
        values: npt.NDArray[np.int64] = whole.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return np.ascontiguousarray(values)
    return _text_blocks(column, identity_key)


def column_blocks(column: pa.Array, identity_key: bytes) -> Words:
    """Return blocks throughout, whatever the type of the column."""
    identity: Any = column_identity(pa.chunked_array([column]), identity_key)
    return keyed.integer_blocks(identity) if identity.ndim == 1 else identity


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type holds bytes that need not be text."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _text_blocks(column: pa.ChunkedArray, identity_key: bytes) -> Words:
    # Bytes need not be text and are used as they are. Everything else is identified by its printed form.
    text = column.cast(pa.large_binary() if is_bytes(column.type) else pa.large_string())
    parts = []
    for chunk in text.chunks:
        _, offsets, data = chunk.buffers()
        start = chunk.offset
        positions = np.frombuffer(offsets, dtype=np.int64)[start : start + len(chunk) + 1]
        characters = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
        parts.append(keyed.text_blocks(positions, characters, identity_key))
    return np.concatenate(parts) if parts else np.zeros((0, 2), dtype=np.uint64)
