"""The ledger: past releases, recognised by content, so that the same records are not released twice unnoticed.

Every further release of the same records lets a reader average the noise away. Names, numbers and keys do not show
whether two files hold the same records: files are renamed, sorted, converted, truncated and renumbered. So each release
leaves an entry with keyed sketches (:mod:`safeswap.arrays.sketch`) of the original and of the released file. Before
the next release its original is compared with all of them: with the originals, to find the same records, and with the
released files, to find a release that is used as input.

Identifiers are sketched separately. Their agreement is reported, never an alarm: unrelated files are numbered 1 to N.

An entry is as confidential as the audit record. A store keeps it sealed under the ledger's own key.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.compiled import run_all
from safeswap.arrays.keyed import MISSING, NUMBER, derive, draw_chunks, text_blocks, value_blocks
from safeswap.arrays.sketch import (
    ALARM_SHARE,
    CELLS,
    SAMPLE,
    WIDEST,
    Columns,
    LevelCodes,
    Sketch,
    choose_columns,
    estimate_overlap,
    share_of_identifiers,
    sketch_blocks,
)
from safeswap.errors import InputError
from safeswap.model.audit import Audit
from safeswap.model.columns import same_memory
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata, share_dictionary
from safeswap.model.schema import Kind

# A value has the same keyed word wherever it occurs: 1, 1.0 and "1" are one value, and so is a text in any column
# type, with or without surrounding blanks. Without the key a word reveals nothing about its value (AES, see
# :mod:`safeswap.arrays.keyed`).

_NUMBER_TEXT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
Words: TypeAlias = npt.NDArray[np.uint64]
Identifiers: TypeAlias = tuple[Words, Words]
"""The lowest words of a file's identifiers, ascending, and the ceiling below which all are listed."""

Hashed: TypeAlias = LevelCodes | Callable[[int, int], Words]
"""A column's codes with the word of each, or what hashes a number of its rows from some row on."""

_IDENTIFIERS = 2048
_RECORDS_AT_ONCE = 1 << 16
_TEXTS_AT_ONCE = 1 << 17
_NUMBERS_AT_ONCE = 1 << 15
_FEW_NUMBERS = 1 << 12  # levels, whose words stay in the cache
_FEWEST_PER_RUN = 4  # equal numbers in a row, from which on each run is hashed once
_NOT_CONTENT = (Kind.IDENTIFIER, Kind.HOUSEHOLD)
# A numbering: whole numbers with few gaps, and more of them than a classification has.
_FEWEST_NUMBERS, _SHARE_OF_RECORDS, _LONGEST_SPAN, _FILLED = 300, 0.02, 1.3, 0.9
_DISTINCT_IN_SAMPLE = 250


def sketch_content(data: Microdata, secret: bytes, *, drop: Sequence[str] = ()) -> Sketch:
    """Sketch a file's content, without identifiers, household numbers and columns that only number records.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> table = pa.table({"age": [30, 40, 50], "sex": ["f", "m", "f"]})
    >>> data = Microdata(table, Schema(attributes=(Attribute(name="age"), Attribute(name="sex"))))
    >>> sketch_content(data, bytes(32)).records
    3
    """
    key = derive(secret, "ledger values")
    return _sketch_files([(data, _sample_content(data, key, drop))], key)[0]


def sketch_release(
    original: Microdata, released: Microdata, secret: bytes, *, drop: Sequence[str] = ()
) -> tuple[Sketch, Sketch]:
    """Sketch two files, the second without some columns; a column that they share is hashed once."""
    key = derive(secret, "ledger values")
    files = [(original, _sample_content(original, key, ())), (released, _sample_content(released, key, drop))]
    if len(original) == len(released):
        before, after = _sketch_files(files, key)
    else:
        (before,), (after,) = (_sketch_files([file], key) for file in files)
    return before, after


def _sample_content(data: Microdata, key: bytes, drop: Sequence[str]) -> dict[str, Words]:
    """Return the columns to sketch, each with its words in a sample of the records."""
    rows = _sample_rows(len(data))
    names = [name for name in data.attributes if data.schema[name].kind not in _NOT_CONTENT and name not in drop]
    sampled = {name: data.table.column(name).take(rows) for name in names}
    samples = {name: hash_values(column, key) for name, column in sampled.items()}
    content = [name for name in names if not _is_numbering(data.table.column(name), sampled[name], samples[name])]
    return {content[place]: samples[content[place]] for place in choose_columns([samples[name] for name in content])}


def _sketch_files(files: Sequence[tuple[Microdata, Mapping[str, Words]]], key: bytes) -> list[Sketch]:
    """Sketch files of the same records, given samples of their columns; a column that they share is hashed once."""
    rows: list[tuple[Microdata, str]] = []
    columns = []
    for data, samples in files:
        places = []
        for name in samples:
            known = (place for place, (other, its) in enumerate(rows) if its == name and _is_shared(data, other, name))
            places.append(next(known, len(rows)))
            rows += [(data, name)] if places[-1] == len(rows) else []
        columns.append(Columns(list(samples.values()), places))
    records, hashed = len(files[0][0]), [_hash_rows(*row, key) for row in rows]
    coded = {place: each for place, each in enumerate(hashed) if isinstance(each, LevelCodes)}
    return sketch_blocks(_hash_blocks(hashed, records), records, columns, coded)


def _is_shared(data: Microdata, other: Microdata, name: str) -> bool:
    return data is other or same_memory(data.table.column(name), other.table.column(name))


def _hash_blocks(columns: Sequence[Hashed], records: int) -> Iterator[Words]:
    """Yield a keyed word per value, ``words[column, record]``, some records at a time, in memory that is used again."""
    words = np.empty((0, 0), np.uint64)
    for start in range(0, records if columns else 0, _RECORDS_AT_ONCE):
        number = min(_RECORDS_AT_ONCE, records - start)
        words = words if words.shape[1] == number else np.empty((len(columns), number), np.uint64)

        def fill(places: range, words: Words = words, start: int = start) -> None:
            for place in places:
                words[place] = _hash_some_rows(columns[place], start, words.shape[1])

        threads = min(os.cpu_count() or 1, len(columns)) if records > SAMPLE else 1
        run_all(fill, [range(first, len(columns), threads) for first in range(threads)])
        yield words


def _hash_rows(data: Microdata, name: str, key: bytes) -> Hashed:
    """Return what hashes some rows of a column: by codes a column of text, and one of numbers that has few."""
    column = data.table.column(name)
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    known = data.cached_codes(name)
    if is_number and (known is None or known.cardinality > _FEW_NUMBERS):
        return lambda start, number: hash_values(column.slice(start, number), key)
    if is_text and known is None and _is_mostly_distinct(column):
        return lambda start, number: _hash_texts(column.slice(start, number), key)
    coded = data.coded(name)
    return LevelCodes(coded.codes, _append_missing(_hash_levels(coded.levels, key), key)[: coded.cardinality])


def _hash_some_rows(column: Hashed, start: int, number: int) -> Words:
    if isinstance(column, LevelCodes):
        return column.words.take(column.codes[start : start + number])
    return column(start, number)


def _hash_column(data: Microdata, name: str, key: bytes) -> Words:
    return _hash_some_rows(_hash_rows(data, name, key), 0, len(data))


def sketch_identifiers(data: Microdata, secret: bytes) -> Identifiers:
    """Return the lowest words of the identifiers; none if the file has no identifier."""
    identifier = data.schema.identifier
    words = np.empty(0, np.uint64)
    if identifier is not None:
        column, key = data.table.column(identifier.name), derive(secret, "ledger identifiers")
        # Hardly any identifier occurs twice, so coding them first would only add work.
        hash_part = _hash_texts if pa.types.is_string(column.type) else hash_values
        for start in range(0, len(column), _TEXTS_AT_ONCE):
            part = hash_part(column.slice(start, _TEXTS_AT_ONCE), key)
            if len(words) > _IDENTIFIERS:
                part = part[part < words[-1]]
            words = np.unique(np.append(words, part))[: _IDENTIFIERS + 1]
    ceiling = words[_IDENTIFIERS] if len(words) > _IDENTIFIERS else np.uint64(2**64 - 1)
    return words[:_IDENTIFIERS], np.array([ceiling], np.uint64)


def _digest(words: Words, key: bytes) -> str:
    """Return a keyed digest of a column's words, in the order of the records."""
    return hashlib.sha256(key + words.tobytes()).hexdigest()


class Spelling(NamedTuple):
    """The spelling in which texts are hashed. The compiled form, where there is one, is for plain short texts."""

    rewrite: Callable[[pa.Array], pa.Array] = lambda text: text
    folds: bool = False
    is_compiled: bool = True


AS_WRITTEN = Spelling()


class LevelWords:
    """The words of the dictionary met last: the pieces of a column share theirs."""

    def __init__(self) -> None:
        self._levels: pa.ChunkedArray | None = None
        self._words: Words = np.empty(0, dtype=np.uint64)

    def of(self, levels: pa.Array, key: bytes, spelling: Spelling) -> Words:
        """Return the word of each level, and that of a missing value; of one key and spelling only."""
        column = pa.chunked_array([levels])
        if self._levels is None or not same_memory(column, self._levels):
            self._levels, self._words = column, _append_missing(_hash_levels(levels, key, spelling), key)
        return self._words


def hash_values(
    column: pa.ChunkedArray, key: bytes, spelling: Spelling = AS_WRITTEN, *, known: LevelWords | None = None
) -> Words:
    """Return a keyed word per record; ``known`` are the words of the levels of another piece of the column.

    >>> one, other = (
    ...     [hash_values(pa.chunked_array([values]), bytes(32)).tolist() for values in pair]
    ...     for pair in (([1, 2, None], ["1.0", " 2", None]), (["a"], ["b"]))
    ... )
    >>> one[0] == one[1], other[0] == other[1]
    (True, False)
    """
    words, start = np.empty(len(column), dtype=np.uint64), 0
    for some in hash_blocks(column, key, spelling, known=known):
        words[start : start + len(some)] = some
        start += len(some)
    return words


def hash_blocks(
    column: pa.ChunkedArray, key: bytes, spelling: Spelling = AS_WRITTEN, *, known: LevelWords | None = None
) -> Iterator[Words]:
    """Yield the words of :func:`hash_values` in blocks that fit the cache; the next block may reuse the memory."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        for start in range(0, len(column), _NUMBERS_AT_ONCE):
            yield _hash_numbers(_as_floats(column.slice(start, _NUMBERS_AT_ONCE)), key)
        return
    if not pa.types.is_dictionary(kind):
        if _is_mostly_distinct(column):  # looking each value up would cost more than hashing it
            for start in range(0, len(column), _TEXTS_AT_ONCE):
                yield _hash_texts(column.slice(start, _TEXTS_AT_ONCE), key, spelling)
            return
        column = _as_text(column).dictionary_encode()
    coded = share_dictionary(column)
    if not len(coded):
        return
    levels = (known or LevelWords()).of(coded.chunk(0).dictionary, key, spelling)
    room = np.empty(min(len(coded), _NUMBERS_AT_ONCE), dtype=np.uint64)
    for chunk in coded.chunks:
        codes = _fill_missing(chunk.indices, len(levels) - 1)
        for start in range(0, len(codes), _NUMBERS_AT_ONCE):
            some = codes[start : start + _NUMBERS_AT_ONCE]
            yield levels.take(some, out=room[: len(some)], mode="clip")  # checks and copies nothing


def _append_missing(levels: Words, key: bytes) -> Words:
    return np.append(levels, _hash_numbers(np.array([np.nan]), key))


def _fill_missing(codes: pa.Array, missing: int) -> npt.NDArray[Any]:
    filled = codes.cast(pa.int64()).fill_null(missing) if codes.null_count else codes
    found: npt.NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return found


def _is_mostly_distinct(column: pa.ChunkedArray) -> bool:
    some = column.take(_sample_rows(len(column))) if len(column) > SAMPLE else column
    return bool(2 * len(some.unique()) > len(some))


def _hash_levels(levels: pa.Array, key: bytes, spelling: Spelling = AS_WRITTEN) -> Words:
    if pa.types.is_integer(levels.type) or pa.types.is_floating(levels.type):
        return _hash_numbers(_as_floats(pa.chunked_array([levels])), key)
    return _hash_texts(pa.chunked_array([levels]), key, spelling)


def _hash_texts(column: pa.ChunkedArray, key: bytes, spelling: Spelling = AS_WRITTEN) -> Words:
    words = np.empty(len(column), dtype=np.uint64)
    for start in range(0, len(column), _TEXTS_AT_ONCE):  # copies of the texts are many times as long as their words
        part = _as_text(column.slice(start, _TEXTS_AT_ONCE)).combine_chunks()
        words[start : start + len(part)] = _hash_text(part, key, spelling)
    return words


def _hash_text(text: pa.Array, key: bytes, spelling: Spelling) -> Words:
    blocks = np.zeros((len(text), 2), dtype=np.uint64)
    left = np.ones(len(text), dtype=np.bool_)
    if spelling.is_compiled:
        left = value_blocks(*_content(text), blocks, fold=spelling.folds)
    if text.null_count:
        missing = text.is_null().to_numpy(zero_copy_only=False)
        blocks[missing] = (np.uint64(0), MISSING)
        left &= ~missing
    if left.all():
        return _hash_rewritten(spelling.rewrite(text), key)
    words = _encrypt(blocks, key)
    if left.any():
        words[left] = _hash_rewritten(spelling.rewrite(text.filter(pa.array(left))), key)
    return words


def _hash_rewritten(text: pa.Array, key: bytes) -> Words:
    """Hash texts in steps that take any text; :func:`value_blocks` is faster and gives the same."""
    text = pc.utf8_trim_whitespace(text)
    numbers = _parse(text)
    words = _hash_numbers(numbers, key)
    wordy = np.isnan(numbers) & text.is_valid().to_numpy(zero_copy_only=False)
    if wordy.any():
        rest = text.filter(pa.array(wordy))
        words[wordy] = _encrypt(text_blocks(*_content(rest), derive(key, "long texts")), key)
    return words


def _content(text: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return where each text begins and ends, and the bytes of all."""
    offsets = np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + len(text) + 1]
    return offsets, np.frombuffer(text.buffers()[2] or b"", np.uint8)


def _parse(text: pa.Array) -> npt.NDArray[np.float64]:
    """Parse texts as numbers, NaN where they are not numbers.

    >>> _parse(pa.array(["12", "+.5", "-1e3", "1,5", "inf", "0x1", "", None])).tolist()
    [12.0, 0.5, -1000.0, nan, nan, nan, nan, nan]
    """
    known = pc.fill_null(pc.match_substring_regex(text, _NUMBER_TEXT), fill_value=False)
    numbers = np.full(len(text), np.nan)
    numbers[known.to_numpy(zero_copy_only=False)] = text.filter(known).cast(pa.float64()).to_numpy()
    return numbers


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        texts = [None if value is None else value.hex() for value in column.to_pylist()]
        return pa.chunked_array([texts], pa.large_string())
    return column.cast(pa.large_string())


def _as_floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    if column.num_chunks == 1 and not column.null_count:  # without a copy by Arrow, and of doubles without any
        own: npt.NDArray[Any] = column.chunk(0).to_numpy(zero_copy_only=False)
        return own.astype(np.float64, copy=False)
    numbers: npt.NDArray[np.float64] = pc.cast(column, pa.float64(), safe=False).to_numpy()
    return numbers


def _hash_numbers(numbers: npt.NDArray[np.float64], key: bytes) -> Words:
    """Return a word per number; missing and NaN have their own, and -0 is 0."""
    words = np.empty(len(numbers), dtype=np.uint64)
    for start in range(0, len(numbers), _NUMBERS_AT_ONCE):
        part = numbers[start : start + _NUMBERS_AT_ONCE]
        begins = np.append(0, np.flatnonzero(part[1:] != part[:-1]) + 1)
        if _FEWEST_PER_RUN * len(begins) < len(part):  # as in a file sorted by area
            runs = np.diff(np.append(begins, len(part)))
            words[start : start + len(part)] = np.repeat(_hash_some(part[begins], key), runs)
        else:
            words[start : start + len(part)] = _hash_some(part, key)
    return words


def _hash_some(numbers: npt.NDArray[np.float64], key: bytes) -> Words:
    blocks = np.empty((len(numbers), 2), dtype=np.uint64)
    blocks[:, 0], blocks[:, 1] = (numbers + 0.0).view(np.uint64), NUMBER
    blocks[np.isnan(numbers)] = (np.uint64(0), MISSING)
    return _encrypt(blocks, key)


def _encrypt(blocks: Words, key: bytes) -> Words:
    words = np.empty(len(blocks), dtype=np.uint64)
    for start, draws in draw_chunks(blocks, key):
        words[start : start + len(draws)] = draws
    return words


def _sample_rows(records: int) -> npt.NDArray[Any]:
    if records <= SAMPLE:
        return np.arange(records)
    return np.sort(np.random.default_rng(0).choice(records, SAMPLE, replace=False))


def _is_numbering(column: pa.ChunkedArray, sampled: pa.ChunkedArray, sample: Words) -> bool:
    """Return whether a column only numbers the records, or groups of them: 1, 2, 3, … in whatever order."""
    if len(np.unique(sample)) < min(_DISTINCT_IN_SAMPLE, _FILLED * len(sample)):
        return False
    numbers = _whole_numbers(column) if _whole_numbers(sampled) is not None else None
    if numbers is None or not len(numbers):
        return False
    first = float(numbers.min())
    span = float(numbers.max()) - first + 1  # not a number if both are infinite, which Python says without a warning
    if not max(_FEWEST_NUMBERS, _SHARE_OF_RECORDS * len(column)) <= span <= _LONGEST_SPAN * len(column):
        return False
    there = np.zeros(int(span), dtype=np.bool_)
    there[(numbers - first).astype(np.int64)] = True
    return bool(np.count_nonzero(there) > _FILLED * span)


def _whole_numbers(column: pa.ChunkedArray) -> npt.NDArray[np.float64] | None:
    """Return the numbers of a column, or None if some values are not whole numbers."""
    numbers = _known_numbers(column)
    return None if numbers is None or bool((numbers != np.floor(numbers)).any()) else numbers


def _known_numbers(column: pa.ChunkedArray) -> npt.NDArray[np.float64] | None:
    """Return the numbers of a column, or None if some values are not numbers."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    known = column.drop_null()
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        numbers = _as_floats(known)
        return numbers[np.isfinite(numbers)]
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    numbers = _parse(known.combine_chunks()) if len(known) else np.empty(0)
    return None if np.isnan(numbers).any() else numbers


FORMAT = "safeswap-ledger-1"

NOT_SEEN = (
    "The ledger does not recognise a part of less than 40% of a released file, a file in which every column was "
    "recoded, or a file of a few coarse columns that was changed."
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Entry:
    """The ledger's entry of one release.

    ``release`` is the SHA-256 of its manifest, ``record`` the location of its audit record, and ``columns`` holds keyed
    digests of the original columns that were changed: only if they agree can two releases be compared row by row.
    """

    release: str
    original: Sketch = field(repr=False)
    released: Sketch = field(repr=False)
    identifiers: Identifiers = field(repr=False)
    columns: Mapping[str, str] = field(default_factory=dict, repr=False)
    record: str = ""
    at: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        """The name of the release: that of its audit record."""
        return f"release-{self.release[:16]}"

    def to_bytes(self) -> bytes:
        """Serialise the entry, to be sealed."""
        facts = {"release": self.release, "record": self.record, "at": self.at, "reason": self.reason}
        sketches = [self.original, self.released]
        shapes = [[sketch.records, len(sketch.groups), len(sketch.views)] for sketch in sketches]
        head = {"format": FORMAT, **facts, "columns": dict(self.columns), "sketches": shapes}
        text = json.dumps({**head, "identifiers": len(self.identifiers[0])}).encode()
        arrays = [array for sketch in sketches for array in sketch[1:]] + list(self.identifiers)
        return b"".join([struct.pack("<q", len(text)), text, *(_as_little_endian(array).tobytes() for array in arrays)])

    @classmethod
    def from_bytes(cls, content: bytes) -> Entry:
        """Restore an entry from its bytes."""
        (length,) = struct.unpack_from("<q", content)
        head = json.loads(content[8 : 8 + length])
        if head.pop("format") != FORMAT:
            raise InputError(
                "the ledger has an entry of a later version", code="ledger-version", hint="use a newer safeswap"
            )
        take = _Reader(content, 8 + length)
        original, released = (_read_sketch(take, *shape) for shape in head.pop("sketches"))
        identifiers = (take("<u8", head.pop("identifiers")), take("<u8", 1))
        return cls(original=original, released=released, identifiers=identifiers, **head)


class _Reader:
    """A reader of consecutive arrays from bytes."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content, self._at = content, at

    def __call__(self, kind: str, *shape: int) -> Any:
        size = int(np.prod(shape))
        found = np.frombuffer(self._content, kind, size, self._at).reshape(shape)
        self._at += found.nbytes
        return found.astype(found.dtype.newbyteorder("="))


def _as_little_endian(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))


def _read_sketch(take: _Reader, records: int, columns: int, views: int) -> Sketch:
    return Sketch(
        records,
        take("<i8", columns),
        take("<i8", views, WIDEST),
        take("<u8", views, CELLS),
        take("<u4", views, CELLS),
        take("<u8", views),
    )


class Book(Protocol):
    """A ledger that is open for one release."""

    def entries(self) -> Iterator[Entry]:
        """Return all entries, oldest first."""

    def enter(self, entry: Entry) -> None:
        """Add an entry durably; rolled back if the block in which the ledger is open fails."""


class Ledger(Protocol):
    """The store of entries: a file, or the database of the service."""

    @property
    def secret(self) -> bytes:
        """The secret under which contents are hashed."""

    @property
    def alarm_share(self) -> float:
        """The share of records in common from which a release is refused."""

    def open(self) -> AbstractContextManager[Book]:
        """Open the ledger exclusively: no one else compares or adds entries until the block ends."""


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """The overlap of a file with an earlier release. ``side`` names the file of the release that is more alike."""

    release: str
    share: float
    side: Literal["original", "released"]
    identifiers: float
    alarm: bool
    agreeing: int = 0
    compared: int = 0

    @property
    def sentence(self) -> str:
        """The likeness in words."""
        if not self.alarm:
            return (
                f"{self.identifiers:.0%} of the identifiers are also in {self.release}; the contents differ, so this "
                "is no alarm."
            )
        of = "the records behind" if self.side == "original" else "the released records of"
        beside = f"; {self.identifiers:.0%} of the identifiers agree too" if self.identifiers else ""
        return f"About {self.share:.0%} of these records are also among {of} {self.release}{beside}."


def make_entry(masked: Masked, secret: bytes, *, drop: Sequence[str] = (), original: Microdata | None = None) -> Entry:
    """Return the entry of a release that has no name yet; ``original`` is the file before any recipe, if any."""
    first = masked.original if original is None else original
    before, after = sketch_release(first, masked.data, secret, drop=drop)
    return Entry(
        release="",
        original=before,
        released=after,
        identifiers=sketch_identifiers(first, secret),
        columns=digest_columns(masked.original, changed_attributes(masked.audit), secret),
    )


def changed_attributes(audit: Audit) -> tuple[str, ...]:
    """Return the attributes that a masking changed."""
    exchanged = (name for exchange in audit.all_exchanges for name in exchange.attributes)
    return tuple(dict.fromkeys((*exchanged, *(each.attribute for each in audit.all_replacements))))


def digest_columns(data: Microdata, names: Sequence[str], secret: bytes) -> dict[str, str]:
    """Return keyed digests of columns, in the order of the records."""
    key = derive(secret, "ledger order")
    return {name: _digest(_hash_column(data, name, key), key) for name in names if name in data.attributes}


def compare(now: Entry, earlier: Entry, *, alarm_share: float = ALARM_SHARE) -> Likeness:
    """Compare the original of a release with an earlier release."""
    sides: list[tuple[Literal["original", "released"], Sketch]]
    sides = [("original", earlier.original), ("released", earlier.released)]
    found = [(side, estimate_overlap(now.original, sketch, alarm_share=alarm_share)) for side, sketch in sides]
    side, best = max(found, key=lambda each: (each[1].alarm, each[1].closeness))
    return Likeness(
        release=earlier.name,
        share=best.share,
        side=side,
        identifiers=share_of_identifiers(now.identifiers, earlier.identifiers),
        alarm=best.alarm,
        agreeing=best.agreeing,
        compared=best.compared,
    )
