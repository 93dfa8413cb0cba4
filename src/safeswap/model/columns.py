"""Columns: bitwise comparison, ranks, numbers, replacement of values, and detection of coarsening."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.types import Codes, Flags, Floats, Int64s, Rows, SignedCodes
from safeswap.errors import SpecError
from safeswap.model.dates import is_date_format, to_days
from safeswap.model.microdata import Coded, Microdata, smallest_code_type, unify_dictionaries
from safeswap.model.schema import Attribute, Kind, level_texts

_EXACT = 2.0**53
_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_MOST_KEPT = 1 << 16  # levels; longer orders are recomputed, which costs less than using them

_FEW_PER_RECORD = 8
"""Largest number of possible cells per record at which counting is faster than finding those that occur."""


def same_memory(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Return whether two columns are views of the same memory, hence equal without comparison."""
    if one.type != other.type or one.num_chunks != other.num_chunks:
        return False
    return all(_memory_address(a) == _memory_address(b) for a, b in zip(one.chunks, other.chunks, strict=True))


def _memory_address(array: pa.Array) -> tuple[Any, ...]:
    place: tuple[Any, ...] = (array.offset, len(array), *(b.address if b else None for b in array.buffers()))
    return (*place, *_memory_address(array.dictionary)) if pa.types.is_dictionary(array.type) else place


def aligned_columns(before: pa.ChunkedArray, after: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Convert two columns so that equality means equal bits, with dictionaries resolved to common codes."""
    if pa.types.is_dictionary(before.type) and pa.types.is_dictionary(after.type):
        common = _common_codes(before, after)
        if common is not None:
            return common
    return to_bits(before), to_bits(after)


def to_bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a column so that equality means equal bits: NaN equals itself, −0.0 is not 0.0, text is plain text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return to_bits(column.cast(kind.value_type))
    if pa.types.is_floating(kind):
        bits = _BITS[kind.bit_width]
        return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], type=bits)
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    return column.cast(pa.string()) if pa.types.is_null(kind) else column


def share_column(before: pa.ChunkedArray, after: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column before if nothing in it has changed: one copy is held, and verified and coded once."""
    kinds = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (before.type, after.type))
    if len(before) != len(after) or next(kinds) != next(kinds):
        return after
    if same_memory(before, after):
        return before
    return after if flag_changes(*aligned_columns(before, after)).any() else before


def share_columns(before: Microdata, after: Microdata) -> Microdata:
    """Return the second file with the columns of the first, and their codes, where nothing has changed.

    >>> from safeswap.model.schema import Schema
    >>> schema = Schema(attributes=(Attribute(name="a"), Attribute(name="b")))
    >>> one, other = (Microdata(pa.table({"a": ["x"], "b": [value]}), schema) for value in ("y", "z"))
    >>> shared = share_columns(one, other).table
    >>> [same_memory(one.table[name], shared[name]) for name in ("a", "b")]
    [True, False]
    """
    ours = {name: before.table.column(name) for name in after.attributes if name in before.schema}
    same = {name: column for name, column in ours.items() if share_column(column, after.table.column(name)) is column}
    codes = {name: coded for name in same if (coded := before.cached_codes(name)) is not None}
    return after.with_columns(same, codes)


def _common_codes(before: pa.ChunkedArray, after: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray] | None:
    """Return the indices of two dictionary columns into the first one's dictionary, −1 for values not in it."""
    if not before.num_chunks or not after.num_chunks:
        return None
    if any(chunk.dictionary.null_count for side in (before, after) for chunk in side.chunks):
        return None
    before, after = unify_dictionaries(before), unify_dictionaries(after)
    first, second = before.chunk(0), after.chunk(0)
    if first.type == second.type and first.dictionary.equals(second.dictionary) and _is_plain(first.dictionary):
        return tuple(pa.chunked_array([chunk.indices for chunk in side.chunks]) for side in (before, after))
    levels, others = (to_bits(pa.chunked_array([side.chunk(0).dictionary])) for side in (before, after))
    if levels.type != others.type or any(len(each.unique()) != len(each) for each in (levels, others)):
        return None
    place = pc.index_in(others, value_set=levels.combine_chunks()).fill_null(-1).combine_chunks()
    codes = pa.chunked_array([place.take(chunk.indices) for chunk in after.chunks])
    return pa.chunked_array([chunk.indices.cast(codes.type) for chunk in before.chunks]), codes


def has_distinct_levels(column: pa.ChunkedArray) -> bool:
    """Return whether a column has one dictionary with distinct entries, so that indices can be compared as values."""
    return column.num_chunks == 1 and _is_plain(column.chunk(0).dictionary)


def _is_plain(levels: pa.Array) -> bool:
    """Return whether different entries of a dictionary mean different bits, and equal entries the same."""
    kind = levels.type
    known = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(known) and not levels.null_count and _are_distinct(levels)


def _are_distinct(levels: pa.Array) -> bool:
    """Return whether no level occurs twice; a shortcut for ascending numbers, as areas in a sorted file."""
    if pa.types.is_integer(levels.type):
        numbers = levels.to_numpy()
        if (numbers[1:] > numbers[:-1]).all():
            return True
    return bool(len(levels.unique()) == len(levels))


def to_frame_type(table: pa.Table, kind: str) -> Any:
    """Return a table as a dataframe of another library, named as narwhals names it."""
    if kind == "pyarrow":
        return table
    import narwhals as nw

    return nw.from_arrow(table, backend=kind).to_native()  # type: ignore[arg-type]


def flag_changes(before: pa.ChunkedArray, after: pa.ChunkedArray) -> Flags:
    """Flag the rows whose values differ; missing equals missing only. Columns of different types differ everywhere.

    >>> a, b = (pa.chunked_array([values]) for values in (["x", None, "y"], ["x", None, None]))
    >>> flag_changes(a, b).tolist()
    [False, False, True]
    """
    if before.type != after.type:
        return np.ones(len(before), dtype=np.bool_)
    if pa.types.is_integer(before.type) and not before.null_count and not after.null_count:
        return np.asarray(before.to_numpy() != after.to_numpy())
    flags: Flags = pc.fill_null(pc.not_equal(before, after), fill_value=True).to_numpy()
    if before.null_count and after.null_count:
        both = pc.and_(before.is_null(), after.is_null()).to_numpy()
        flags = flags & ~both
    return flags


def flag_new_values(before: pa.ChunkedArray, after: pa.ChunkedArray) -> Flags:
    """Flag the rows whose values differ for their reader: a code 1 that a recode left as the text "1" is the same.

    >>> flag_new_values(pa.chunked_array([[1, 2, None]]), pa.chunked_array([["1", "other", None]])).tolist()
    [False, True, False]
    >>> flag_new_values(pa.chunked_array([["1", "x"]]), pa.chunked_array([[1.0, 2.5]])).tolist()
    [False, True]
    """
    if _is_text(before.type) != _is_text(after.type):
        before, after = _as_texts(before), _as_texts(after)
    return flag_changes(*aligned_columns(before, after))


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _as_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = column.dictionary_encode().chunks
    texts = [pa.array(level_texts(chunk.dictionary), pa.large_string()).take(chunk.indices) for chunk in chunks]
    return pa.chunked_array(texts, type=pa.large_string())


def as_codes(before: pa.ChunkedArray, after: pa.ChunkedArray) -> tuple[SignedCodes, SignedCodes]:
    """Encode two aligned columns as integers that are equal where the values are; missing is a value of its own."""
    if before.type != after.type:  # no value of one type is a value of the other
        one, other = (number_cells([as_codes(column, column)[0]]) for column in (before, after))
        return one, ~other
    if pa.types.is_integer(before.type) and not before.null_count and not after.null_count:
        kind = np.int32 if before.type.bit_width < 32 or before.type == pa.int32() else np.int64
        one, other = before.to_numpy(), after.to_numpy()
        if one.dtype == np.uint32:  # the same bits are equal as signed ones
            return one.view(np.int32), other.view(np.int32)
        return one.astype(kind, copy=False), other.astype(kind, copy=False)
    together = pa.chunked_array([*before.chunks, *after.chunks], type=before.type)
    encoded = unify_dictionaries(together.dictionary_encode())
    parts = [chunk.indices.fill_null(-1).to_numpy().astype(np.int64) for chunk in encoded.chunks]
    codes = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    return codes[: len(before)], codes[len(before) :]


def number_cells(columns: Sequence[SignedCodes]) -> Int64s:
    """Return the number of each record's combination of codes, from 0 and at most a few times the number of records.

    By sorting: Arrow's groups are found by a hash that collides on doubles with few decimals, and take quadratic time.

    >>> number_cells([np.array([7, 7, 1 << 40]), np.array([2, 3, 2])]).tolist()
    [0, 1, 2]
    """
    cells, size = pack_cells(columns)
    return cells if size <= _FEW_PER_RECORD * len(cells) else _rank_codes(cells)[0]


def pack_cells(columns: Iterable[SignedCodes]) -> tuple[Int64s, int]:
    """Return a number for each record's combination of codes, equal where these are, and a number above all.

    Columns are taken one by one, and added in place: each wide copy of a column would be 8 bytes per record.

    >>> pack_cells([np.array([7, 7, 8]), np.array([2, 3, 2])])
    (array([0, 1, 2]), 4)
    """
    cells, size = np.zeros(1, dtype=np.int64), 1
    for column in columns:
        least, above = (int(column.min()), int(column.max()) - int(column.min()) + 1) if len(column) else (0, 1)
        codes = column
        if above > 1 << 31:
            (codes, above), least = _rank_codes(codes), 0
        if size * above >= 1 << 62:
            cells, size = _rank_codes(cells)
        if size * above >= 1 << 62:
            (codes, above), least = _rank_codes(codes), 0
        if size == 1:
            cells = codes.astype(np.int64)
        else:
            cells *= above
            cells += codes
        cells -= least
        size *= above
    return cells, size


def _rank_codes(codes: SignedCodes) -> tuple[Int64s, int]:
    found, ranks = np.unique(codes, return_inverse=True)
    return ranks.astype(np.int64, copy=False), max(1, len(found))


def rank_column(data: Microdata, name: str) -> tuple[Codes, int]:
    """Return the column as ranks of its values, and the number of ranks. They do not depend on row order.

    Levels listed in the schema have its order. Otherwise numbers are ordered as numbers, even if stored as text, and
    text by its characters. Missing codes come last, each a level of its own.

    >>> from safeswap.model.schema import Schema
    >>> schema = Schema(attributes=(Attribute(name="Rooms"),))
    >>> codes, ranks = rank_column(Microdata(pa.table({"Rooms": ["10", "9", None, "10"]}), schema), "Rooms")
    >>> codes.tolist(), ranks
    ([1, 0, 2, 1], 3)
    """
    coded = data.coded(name)
    return rank_of_code(data, name).astype(smallest_code_type(coded.cardinality))[coded.codes], coded.cardinality


def rank_of_code(data: Microdata, name: str) -> npt.NDArray[np.int64]:
    """Return the rank of each code of a column, missing included; :func:`rank_column` gives them per record."""
    place = _level_ranks(data.coded(name), data.schema[name])
    return np.append(place, len(place))


def rank_columns(data: Microdata, names: tuple[str, ...]) -> tuple[list[Codes], list[int]]:
    """Return several columns as ranks, in the form that kernels take."""
    columns = [rank_column(data, name) for name in names]
    return [codes for codes, _ in columns], [ranks for _, ranks in columns]


def ranked_levels(data: Microdata, name: str) -> pa.Array:
    """Return the levels of a column in the order of their ranks; missing values are not levels.

    >>> from safeswap.model.schema import Schema
    >>> schema = Schema(attributes=(Attribute(name="Rooms"),))
    >>> ranked_levels(Microdata(pa.table({"Rooms": ["10", "9", None]}), schema), "Rooms").to_pylist()
    ['9', '10']
    """
    coded = data.coded(name)
    return coded.levels.take(pa.array(np.argsort(_level_ranks(coded, data.schema[name]))))


def missing_codes(data: Microdata, name: str) -> npt.NDArray[np.bool_]:
    """Flag the codes of the column that mean a missing value.

    >>> from safeswap.model.schema import Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex", missing=("?",)),))
    >>> missing_codes(Microdata(pa.table({"Sex": ["m", "?", None]}), schema), "Sex").tolist()
    [False, True, True]
    """
    coded = data.coded(name)
    stated = set(data.schema[name].missing)
    flags = np.zeros(coded.cardinality, dtype=np.bool_)
    if stated:
        flags[: len(coded.levels)] = [text in stated for text in level_texts(coded.levels)]
    flags[len(coded.levels) :] = True
    return flags


def to_numbers(data: Microdata, name: str) -> npt.NDArray[np.float64]:
    """Return the column as floating-point numbers, dates as numbers of days, missing as NaN.

    >>> from safeswap.model.schema import Schema
    >>> schema = Schema(attributes=(Attribute(name="Income", kind="numeric", missing=("-1",)),))
    >>> to_numbers(Microdata(pa.table({"Income": ["12.5", None, "-1"]}), schema), "Income").tolist()
    [12.5, nan, nan]
    """
    attribute = data.schema[name]
    column = data.table.column(name)
    if attribute.kind is Kind.DATE:
        return _to_days(data, name)
    if is_date_format(attribute.display):
        raise _not_numeric(name)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        plain = _as_floats(column)
        for text in attribute.missing:
            plain[plain == _parse_number(text)] = np.nan
        return plain
    coded = data.coded(name)
    known = pa.array(~missing_codes(data, name)[: len(coded.levels)])
    try:
        levels = pc.if_else(known, coded.levels, pa.scalar(None, coded.levels.type))
        values = pc.cast(levels, pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _not_numeric(name) from None
    found: npt.NDArray[np.float64] = np.append(values, np.nan)[coded.codes]
    return found


def _as_floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Return a new array of a column of numbers, missing as NaN."""
    if column.null_count or not is_plain_number(column.type):
        return np.array(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    found = np.empty(len(column))
    start = 0
    for chunk in column.chunks:
        found[start : start + len(chunk)] = chunk.to_numpy()
        start += len(chunk)
    return found


def _to_days(data: Microdata, name: str) -> npt.NDArray[np.float64]:
    coded = data.coded(name)
    known = pa.array(~missing_codes(data, name)[: len(coded.levels)])
    days = to_days(pc.if_else(known, coded.levels, pa.scalar(None, coded.levels.type)))
    if days is None:
        raise not_a_date(name)
    found: npt.NDArray[np.float64] = np.append(days, np.nan)[coded.codes]
    return found


def not_a_date(name: str) -> SpecError:
    """Return the error for a value that is no date."""
    return SpecError(
        f"{name!r} does not hold dates only",
        code="not-a-date",
        hint="dates are days without a time, as text YYYY-MM-DD; describe it as nominal, or declare its missing codes",
        attribute=name,
    )


def _not_numeric(name: str) -> SpecError:
    return SpecError(
        f"{name!r} does not hold numbers",
        code="not-numeric",
        hint="name a numeric attribute (times and periods are not numeric), or declare its missing codes in the schema",
        attribute=name,
    )


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _level_ranks(coded: Coded, attribute: Attribute) -> npt.NDArray[np.int64]:
    """Return the rank of each level: stated order first, then values in their own order, codes for missing last."""
    stated = (attribute.levels, attribute.missing)
    if stated in coded.ranks:
        return coded.ranks[stated]
    ranks = _rank_levels(coded, attribute)
    if len(ranks) <= _MOST_KEPT:
        coded.ranks[stated] = ranks
    return ranks


def _rank_levels(coded: Coded, attribute: Attribute) -> npt.NDArray[np.int64]:
    if not attribute.levels and not attribute.missing:
        return _value_ranks(coded.levels, None)
    texts = level_texts(coded.levels)
    stated = {text: place for place, text in enumerate(attribute.levels)}
    group = np.array([2 if t in attribute.missing else int(t not in stated) for t in texts], dtype=np.int64)
    listed = np.array([stated.get(text, 0) for text in texts], dtype=np.int64)
    return _invert(np.lexsort((_value_ranks(coded.levels, texts), listed, group)))


def _value_ranks(levels: pa.Array, texts: list[str] | None) -> npt.NDArray[np.int64]:
    if pa.types.is_integer(levels.type) and not levels.null_count:
        numbers = levels.to_numpy()
        if not len(numbers) or -_EXACT < numbers.min() <= numbers.max() < _EXACT:  # each is a number of its own
            return _invert(np.argsort(numbers, kind="stable"))
    texts = level_texts(levels) if texts is None else texts
    # Text breaks ties between equal numbers, such as 1 and 01.
    by_text = pc.array_sort_indices(pa.array(texts, pa.string())).to_numpy()
    values = _parse_numbers(texts, are_numbers=pa.types.is_floating(levels.type))
    return _invert(by_text if values is None else by_text[np.argsort(values[by_text], kind="stable")])


def _parse_numbers(texts: list[str], *, are_numbers: bool) -> Floats | None:
    """Return the numbers that texts stand for; None, as soon as one stands for none, if they need not be numbers."""
    values = np.empty(len(texts))
    for i, text in enumerate(texts):
        values[i] = number = _parse_number(text)
        if np.isnan(number) and not are_numbers:
            return None
    return values


def _invert(order: Rows) -> Rows:
    """Return the place of each element in the order."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


def replace_values(column: pa.ChunkedArray, rows: Rows, values: pa.Array) -> pa.ChunkedArray:
    """Return the column with ``values[i]`` in row ``rows[i]``; rows are distinct, in any order. The type is kept.

    >>> column = pa.chunked_array([["a", "b"], ["c", None]])
    >>> replace_values(column, np.array([3, 0]), pa.array(["x", None])).to_pylist()
    [None, 'b', 'c', 'x']
    """
    if pa.types.is_dictionary(column.type) and column.num_chunks > 1:
        column = unify_dictionaries(column)
    ascending = rows
    if not (rows[1:] > rows[:-1]).all():
        order = np.argsort(rows, kind="stable")
        ascending, values = rows[order], values.take(pa.array(order))
    if not pa.types.is_dictionary(column.type) and values.type != column.type:
        values = values.cast(column.type)
    chunks, start = [], 0
    for chunk in column.chunks:
        first, last = np.searchsorted(ascending, [start, start + len(chunk)])
        chunks.append(
            _replace_in_chunk(chunk, ascending[first:last] - start, values[first:last]) if last > first else chunk
        )
        start += len(chunk)
    return pa.chunked_array(chunks, type=column.type)


def _replace_in_chunk(chunk: pa.Array, rows: Rows, values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(chunk.type):
        plain = values.dictionary if pa.types.is_dictionary(values.type) else values
        places = pc.index_in(plain.cast(chunk.dictionary.type), value_set=chunk.dictionary, skip_nulls=True)
        places = places.take(values.indices) if pa.types.is_dictionary(values.type) else places
        indices = _replace_in_chunk(chunk.indices, rows, places.cast(chunk.indices.type))
        return pa.DictionaryArray.from_arrays(indices, chunk.dictionary, ordered=chunk.type.ordered)
    if is_plain_number(chunk.type) and not chunk.null_count and not values.null_count:
        changed = chunk.to_numpy().copy()
        changed[rows] = values.to_numpy()
        return pa.array(changed)
    mask = np.zeros(len(chunk), dtype=np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(chunk, pa.array(mask), values)


def is_plain_number(kind: pa.DataType) -> bool:
    """Return whether NumPy has numbers of this type."""
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


_DENSE = 1 << 22


def coarsening(before: Microdata, after: Microdata, name: str) -> Int64s | None:
    """Return the code after of each code before (missing last) if the attribute was recoded, else None.

    A recoded attribute has another description: other levels, or another kind. Values blanked in some records do not
    count against it. None if the description is the same, if one value became several, or if values only changed
    places.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> ages = (("17", "18", "40"), ("<20", "20+"))
    >>> described = [Schema(attributes=(Attribute(name="Age", levels=levels),)) for levels in ages]
    >>> fine = Microdata(pa.table({"Age": ["17", "18", "40"]}), described[0])
    >>> coarse = Microdata(pa.table({"Age": ["<20", "<20", None]}), described[1])
    >>> coarsening(fine, coarse, "Age").tolist(), coarsening(fine, fine, "Age")
    ([0, 0, 1, 1], None)
    """
    if len(before) != len(after) or name not in after.schema or before.schema[name] == after.schema[name]:
        return None
    old, new = before.coded(name), after.coded(name)
    olds, news = set(level_texts(old.levels)), set(level_texts(new.levels))
    missing = len(new.levels)
    then, now = _distinct_pairs(old.codes.astype(np.int64), new.codes.astype(np.int64), missing + 1)
    seen = now < missing
    if len(np.unique(then[seen])) < np.count_nonzero(seen):
        return None
    if news == olds and len(np.unique(now[seen])) == np.count_nonzero(seen):
        return None
    lookup = np.full(len(old.levels) + 1, missing, dtype=np.int64)
    lookup[then[seen]] = now[seen]
    return lookup


def _distinct_pairs(then: Int64s, now: Int64s, radix: int) -> tuple[Int64s, Int64s]:
    """Return the pairs of codes that occur."""
    codes = then * radix + now
    possible = int(codes.max(initial=0)) + 1
    found = np.flatnonzero(np.bincount(codes, minlength=possible)) if possible <= _DENSE else np.unique(codes)
    old, new = np.divmod(found, radix)
    return old, new


def decode_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of values, whether or not it is stored as codes."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
