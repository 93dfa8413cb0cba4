"""The register of maskings: it knows tables that safeswap has masked, and every step that made them.

A public report must tell every step that the values went through, also if each step was done in another directory, by
another person, or on a copy. So the agency's ledger file (:mod:`safeswap.releases.ledger`) has a second table with what
every masked file went through, and the file that was masked is looked up before it is masked again or released. It is
found by any of three names:

* its bytes: the file itself, wherever it was moved;
* its records in any order, whatever the format, and whatever the columns are called;
* one of the columns that were changed, in the order of its records, whatever happened to the other columns.

A name is a keyed digest, and the steps (method, attributes, whether they may be released) are sealed, so the register
holds no value, no path and nothing readable. Without the key it shows how many tables and changed columns there were.

What was masked is entered together with what it was before, and the first entry of a name stays: a masking that
restores the original does not turn the original into a masked file.

A part of the records is not recognised, nor a table that was sorted and changed.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.keyed import derive
from safeswap.arrays.types import Rows
from safeswap.model.columns import same_memory
from safeswap.model.ledger import AS_WRITTEN, Ledger, LevelWords, Spelling, Words, hash_blocks, hash_values
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata, PastStep, is_bytes, join_pasts
from safeswap.releases.ledger import LedgerFile

if TYPE_CHECKING:
    from safeswap.on_disk.job import Announcement, ChangedColumn

Past: TypeAlias = tuple[PastStep, ...]

_MISSING_TEXTS = pa.array(["", "nan"], pa.large_string())  # an empty text and NaN are missing in some format
_TIME = r"^\d{4}-\d\d-\d\d[t ]\d\d:\d\d:\d\d"
_TRIED = 1000  # records by which a column of times is recognised
_FEWEST_CHANGES = 20  # a column whose value changes less often from record to record may occur in any file
_MIXED_AT_ONCE = 1 << 14  # words; with room to mix them they fit the cache
_FEW = 4  # of so many records at most one has changed
_PLACE_FACTOR, _WORD_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFF51AFD7ED558CCD)
_SEALED_SIZE = 1024  # sealed steps are padded to multiples of this: their length tells nothing


class Register(Protocol):
    """A store of steps by name."""

    @property
    def secret(self) -> bytes:
        """The secret of the names."""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was entered yet."""

    def read(self, names: Sequence[bytes]) -> list[Past]:
        """Return the steps of the names that are known, in the order in which they were entered."""

    def write(self, entries: Mapping[bytes, Past]) -> None:
        """Add entries durably, except those whose name is known."""


@dataclass(frozen=True, eq=False)
class TableNames:
    """A table, the sum of the words of each record, and the names of its columns in a register."""

    register: Register
    table: pa.Table
    rows: Words
    columns: Mapping[str, list[bytes]]

    @cached_property
    def records(self) -> bytes:
        """The name of the records, in any order."""
        return _name_rows(self.rows, self.register)


@dataclass(frozen=True)
class FileRegister:
    """The register in an agency's ledger file; a table that is looked up and then entered is hashed once."""

    ledger: LedgerFile
    first: list[TableNames] = field(default_factory=list, repr=False)

    @property
    def secret(self) -> bytes:
        """The secret of the names."""
        return derive(self.ledger.secret, "register names")

    @property
    def is_empty(self) -> bool:
        """Return whether there is no ledger yet; reading does not create one."""
        return not self.ledger.path.exists()

    def read(self, names: Sequence[bytes]) -> list[Past]:
        """Return the steps of the names that are known, in the order in which they were entered."""
        return [load_steps(content) for content in self.ledger.read_maskings(names)]

    def write(self, entries: Mapping[bytes, Past]) -> None:
        """Add entries durably, except those whose name is known."""
        self.ledger.write_maskings({name: dump_steps(past) for name, past in entries.items()})


@dataclass(frozen=True)
class MemoryRegister:
    """A register that lasts as long as the process."""

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _entries: dict[bytes, Past] = field(default_factory=dict, repr=False)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was entered yet."""
        return not self._entries

    def read(self, names: Sequence[bytes]) -> list[Past]:
        """Return the steps of the names that are known, in the order in which they were entered."""
        wanted = set(names)
        return [past for name, past in self._entries.items() if name in wanted]

    def write(self, entries: Mapping[bytes, Past]) -> None:
        """Add entries, except those whose name is known."""
        for name, past in entries.items():
            self._entries.setdefault(name, past)


EXPORTED = MemoryRegister()
"""Data exported as a dataframe, which may come back as one, without its history."""


def find_past(data: Microdata, register: Register | None, *, digest: str = "") -> Past:
    """Return all known steps of a file, by its content, its bytes and what was done since it was read."""
    found: list[Past] = []
    for each in (EXPORTED, *([] if register is None else [register])):
        if not each.is_empty:
            found += each.read(list_names(data, each, digest=digest))
    return join_pasts([*found, data.past])


def list_names(data: Microdata, register: Register, *, digest: str = "") -> list[bytes]:
    """Return every name by which a register may know a file: its bytes, its records, its columns."""
    table, named = data.table if data.first is None else data.first, data.named
    if named is not None and named.table is table and named.register == _identify(register):
        return [*_name_bytes(digest, register), *named.names]
    return [*_name_bytes(digest, register), *_name_all(table, register)]


def note_names(data: Microdata, register: Register) -> dict[str, Any]:
    """Return the names of the records and columns of a file that was read, for the record of its masking.

    A release of the masking has the same file by its digest, and need not hash every value of it again.
    """
    if data.first is not None:
        return {}
    return {"register": {"of": _identify(register), "names": [name.hex() for name in list_names(data, register)]}}


def _identify(register: Register) -> str:
    return _digest(register, "register", b"").hex()


def registers_of(ledger: Ledger) -> tuple[Register, ...]:
    """Return the registers that learn of a release: the one in the ledger file, or those that the ledger brings."""
    found: tuple[Register, ...] = getattr(ledger, "registers", ())
    return (FileRegister(ledger),) if isinstance(ledger, LedgerFile) else found


def with_known_past(masked: Masked, register: Register | None, *, digest: str = "") -> Masked:
    """Return the masking with all known steps before it; ``digest`` is that of the file that was masked."""
    past = find_past(masked.original, register, digest=digest)
    return masked if past == masked.original.past else replace(masked, original=replace(masked.original, past=past))


def find_past_of_file(digest: str, register: Register) -> Past:
    """Return the known steps of a file with these bytes."""
    return () if register.is_empty else join_pasts(register.read(_name_bytes(digest, register)))


def enter(made: Masked | Microdata, register: Register, *, known: Register | None = None) -> None:
    """Enter data with all that is known of their history; ``known`` is where to look it up, if elsewhere."""
    known = register if known is None else known
    if isinstance(made, Masked):
        enter_masked(with_known_past(made, known), register)
    elif made.past:
        enter_table(replace(made, past=find_past(made, known)), register)


def enter_masked(masked: Masked, register: Register, *, digest: str = "") -> None:
    """Enter a masked table and the one that it was made from; ``digest`` is that of the masked file."""
    if not masked.data.past:
        return
    before, after = _name_both(masked.original.table, masked.data.table, register)
    entries = {name: _past_of(column, masked.original.past) for name, column in before.items()}
    entries |= {name: masked.data.past for name in (*after, *_name_bytes(digest, register)) if name not in entries}
    register.write(entries)


def enter_table(data: Microdata, register: Register) -> None:
    """Enter a table with its history, if it has one."""
    if data.past:
        changed = {name for step in data.past for name in step.attributes}
        register.write(dict.fromkeys(_name_all(data.table, register, columns=changed), data.past))


def enter_files(masking: Announcement, register: Register) -> None:
    """Enter files masked on disk: by bytes and by the columns that changed, which need not fit in memory."""
    before: dict[bytes, str | None] = dict.fromkeys(_name_bytes(masking.source_digest, register))
    after = _name_bytes(masking.masked_digest, register)
    for column in masking.columns:
        old, new = _name_sides(column, register)
        before |= dict.fromkeys(old, column.name)
        after += new
    past = () if register.is_empty else join_pasts(register.read(list(before)))
    entries = {name: _past_of(column, past) for name, column in before.items()}
    entries |= {name: (*past, *masking.steps) for name in after if name not in entries}
    register.write(entries)


def _past_of(column: str | None, past: Past) -> Past:
    """Return the history of a column, or of the table: a column that was left alone is still that of the original."""
    return past if column is None or any(column in step.attributes for step in past) else ()


def _name_bytes(digest: str, register: Register) -> list[bytes]:
    return [_digest(register, "bytes", digest.encode())] if digest else []


def _name_all(table: pa.Table, register: Register, *, columns: Collection[str] | None = None) -> list[bytes]:
    """Return the names of a table and of its columns (default: all)."""
    wanted = table.column_names if columns is None else columns
    named = _name_table(table, register, wanted)
    return [named.records, *_names_of(named, wanted)]


def _name_both(before: pa.Table, after: pa.Table, register: Register) -> tuple[dict[bytes, str | None], list[bytes]]:
    """Return the names of two tables and of the columns in which they differ; those before with their columns."""
    both = [name for name in before.column_names if name in after.column_names]
    shared = {name for name in both if same_memory(before.column(name), after.column(name))}
    old, new = ([name for name in table.column_names if name not in shared] for table in (before, after))
    one = _name_table(before, register, old)
    left = one.rows - _sum_words(before.select(old), register)
    other = _name_table(after.select(new), register, new)
    columns: dict[bytes, str | None] = {name: column for column in old for name in one.columns.get(column, ())}
    return {one.records: None, **columns}, [
        _name_rows(left + other.rows, register),
        *_names_of(other, new),
    ]


def _name_table(table: pa.Table, register: Register, wanted: Collection[str]) -> TableNames:
    """Hash a table, column by column, and name the ``wanted`` ones.

    A register in a file keeps the first table, which is looked up and then entered.
    """
    kept: list[TableNames] = register.first if isinstance(register, FileRegister) else []
    if kept and kept[0].table is table and kept[0].columns.keys() >= set(wanted) & set(table.column_names):
        return kept[0]
    rows, columns = np.zeros(table.num_rows, np.uint64), {}
    for name in table.column_names:
        blocks = _add_words(hash_blocks(*_spell(table.column(name), register)), rows)
        if name in wanted:
            columns[name] = _name_column(blocks, register)
        else:
            deque(blocks, maxlen=0)
    named = TableNames(register, table, rows, columns)
    if not kept:
        kept.append(named)
    return named


def _sum_words(table: pa.Table, register: Register) -> Words:
    """Return the sum of the words of each record."""
    rows = np.zeros(table.num_rows, np.uint64)
    for column in table.columns:
        deque(_add_words(hash_blocks(*_spell(column, register)), rows), maxlen=0)
    return rows


def _add_words(blocks: Iterable[Words], rows: Words) -> Iterator[Words]:
    """Add the words of a column to those of the records, and pass them on."""
    start = 0
    for words in blocks:
        rows[start : start + len(words)] += words
        start += len(words)
        yield words


def _names_of(named: TableNames, columns: Iterable[str]) -> list[bytes]:
    return [name for column in columns for name in named.columns.get(column, ())]


def _name_rows(rows: Words, register: Register) -> bytes:
    """Name a table by its records in any order: sums of what each record is hashed to."""
    words = hash_values(pa.chunked_array([rows]), derive(register.secret, "records"))
    sums = [len(words), int(words.sum(dtype=np.uint64)), int(np.bitwise_xor.reduce(words))]
    return _digest(register, "records", b"".join(each.to_bytes(8, "little") for each in sums))


def _name_sides(column: ChangedColumn, register: Register) -> tuple[list[bytes], list[bytes]]:
    """Name a column before and after, read in pieces; where they lie side by side, only changed values are hashed."""
    known, old, new = (LevelWords(), LevelWords()), _WordsDigest(), _WordsDigest()
    for before, after in zip_longest(column.before, column.after):
        rows = _find_few_changes(before, after) if old.number == new.number else None
        words = np.empty(0, np.uint64) if before is None else _hash_column(before, register, known[0])
        sums = old.add(words)
        if rows is not None:
            fresh = pa.chunked_array([after.chunk(0).take(pa.array(rows))])
            new.add_changed(words, sums, rows, _hash_column(fresh, register, known[0]))
        elif after is not None:
            new.add(_hash_column(after, register, known[1]))
    return old.name(register), new.name(register)


def _find_few_changes(before: pa.ChunkedArray | None, after: pa.ChunkedArray | None) -> Rows | None:
    """Return the rows in which two pieces differ; None if these are many, or need not be spelled alike."""
    if before is None or after is None or len(before) != len(after) or before.type != after.type:
        return None
    if before.num_chunks != 1 or after.num_chunks != 1:
        return None
    one, other = before.chunk(0), after.chunk(0)
    if pa.types.is_dictionary(before.type):
        levels = (pa.chunked_array([side.dictionary]) for side in (one, other))
        if not same_memory(*levels):
            return None
        one, other = one.indices, other.indices
    if not pa.types.is_integer(one.type) or one.null_count or other.null_count:
        return None
    rows = np.flatnonzero(one.to_numpy() != other.to_numpy())
    return rows if _FEW * len(rows) < len(before) else None


def _name_column(blocks: Iterable[Words], register: Register) -> list[bytes]:
    """Name a column by its values in order; no name if it holds too little to be distinguished from others."""
    digest = _WordsDigest()
    for words in blocks:
        digest.add(words)
    return digest.name(register)


class _WordsDigest:
    """A digest of words in their order, however they come in pieces: sums of each word mixed with its place.

    Words are keyed, hence random: two columns have the same sums with a chance of 2⁻⁶⁴. SHA-256 took a fifteenth of the
    time of masking a file, and could not make use of the sums of a column that differs in a few places.

    >>> one, other = _WordsDigest(), _WordsDigest()
    >>> sums = one.add(np.array([5, 7, 5], np.uint64))
    >>> _ = other.add(np.array([5, 7], np.uint64))
    >>> _ = other.add(np.array([5], np.uint64))
    >>> one.content == other.content
    True
    >>> _ = other.add(np.array([5], np.uint64))
    >>> one.content == other.content
    False
    """

    _places = np.arange(_MIXED_AT_ONCE, dtype=np.uint64) * _PLACE_FACTOR

    def __init__(self) -> None:
        self.number, self._sum, self._xor = 0, 0, 0
        self._changes = 0
        self._last: np.uint64 | None = None

    def add(self, words: Words) -> tuple[int, int]:
        """Take in the next words; return what they add to either sum."""
        if len(words) and self._changes < _FEWEST_CHANGES:
            self._changes += int(np.count_nonzero(words[1:] != words[:-1]))
            self._changes += self._last is not None and self._last != words[0]
        total = mixture = 0
        for start in range(0, len(words), _MIXED_AT_ONCE):
            some = words[start : start + _MIXED_AT_ONCE]
            begin = np.uint64((self.number + start) * int(_PLACE_FACTOR) % 2**64)
            sums = _mix(self._places[: len(some)] + begin, some)
            total, mixture = total + sums[0], mixture ^ sums[1]
        self._take(words, total, mixture)
        return total, mixture

    def add_changed(self, words: Words, sums: tuple[int, int], rows: Rows, new: Words) -> None:
        """Take in the next words, some replaced by ``new``; ``sums`` is what they added to a digest as long as this."""
        if self._changes < _FEWEST_CHANGES or (len(rows) and rows[-1] == len(words) - 1):
            words = words.copy()
            words[rows] = new
            self.add(words)
            return
        places = (rows + self.number).view(np.uint64) * _PLACE_FACTOR
        gone, come = _mix(places.copy(), words[rows]), _mix(places, new)
        self._take(words, sums[0] - gone[0] + come[0], sums[1] ^ gone[1] ^ come[1])

    def name(self, register: Register) -> list[bytes]:
        """Return the name of the column; none if it holds too little to be distinguished from others."""
        return [_digest(register, "column", self.content)] if self._changes >= _FEWEST_CHANGES else []

    @property
    def content(self) -> bytes:
        """The number of words and both sums."""
        return b"".join(each.to_bytes(8, "little") for each in (self.number, self._sum, self._xor))

    def _take(self, words: Words, total: int, mixture: int) -> None:
        self.number += len(words)
        self._sum = (self._sum + total) % 2**64
        self._xor ^= mixture
        self._last = words[-1] if len(words) else self._last


def _mix(mixed: Words, words: Words) -> tuple[int, int]:
    """Return two sums of words mixed with their places, which are overwritten."""
    high = np.empty_like(mixed)
    np.bitwise_xor(mixed, words, out=mixed)
    np.right_shift(mixed, np.uint64(32), out=high)
    np.bitwise_xor(mixed, high, out=mixed)
    np.multiply(mixed, _WORD_FACTOR, out=mixed)
    np.right_shift(mixed, np.uint64(32), out=high)
    np.bitwise_xor(mixed, high, out=mixed)
    return int(mixed.sum(dtype=np.uint64)), int(np.bitwise_xor.reduce(mixed))


def _hash_column(column: pa.ChunkedArray, register: Register, known: LevelWords | None = None) -> Words:
    """Return a word per record that does not depend on how a format writes the value."""
    return hash_values(*_spell(column, register), known=known)


def _spell(column: pa.ChunkedArray, register: Register) -> tuple[pa.ChunkedArray, bytes, Spelling]:
    """Return a column as it is hashed, the key, and the spelling of its texts."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        numbers = column.cast(pa.float32())
        column = pc.if_else(pc.is_nan(numbers), None, numbers).cast(pa.string())  # 0.1, not 0.100000001490116
    spelling = AS_WRITTEN
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_bytes(kind)):
        spelling = _TIMES if _holds_times(column) else _FOLDED
    return column, derive(register.secret, "values"), spelling


def _holds_times(column: pa.ChunkedArray) -> bool:
    """Return whether some of the first values are times."""
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array([chunk.dictionary for chunk in column.chunks[:1]], column.type.value_type)
    first = _fold(column.slice(0, _TRIED).cast(pa.large_string()))
    return bool(pc.any(pc.match_substring_regex(first, _TIME)).as_py())


# Values as text in one spelling: formats differ in case, in missing values and in how they write times.


def _fold(text: pa.Array) -> pa.Array:
    """Return texts in small letters and without blanks around; missing where a format would call them missing.

    >>> _fold(pa.array(["True", " ", "NaN"])).to_pylist()
    ['true', None, None]
    """
    return _drop_missing(pc.utf8_lower(pc.utf8_trim_whitespace(text)))


def _drop_missing(text: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_in(text, value_set=_MISSING_TEXTS.cast(text.type)), None, text)


def _fold_times(text: pa.Array) -> pa.Array:
    """Return times, and other texts, in one spelling.

    >>> times = ["2020-01-01T00:00:00.000", "2020-01-01 12:30:00", "2020-01-01 12:30:00.0500Z"]
    >>> _fold_times(pa.array(times)).to_pylist()
    ['2020-01-01', '2020-01-01 12:30:00', '2020-01-01 12:30:00.05']
    """
    text = pc.utf8_lower(pc.utf8_trim_whitespace(text))
    text = pc.replace_substring_regex(text, r"^(\d{4}-\d\d-\d\d)[t ](\d\d:\d\d:\d\d)", r"\1 \2")
    text = pc.replace_substring_regex(text, r"^(.{19})\.([0-9]*?)0*z?$", r"\1.\2")
    return _drop_missing(pc.replace_substring_regex(text, r"( 00:00:00)?\.?$", ""))


_FOLDED, _TIMES = Spelling(_fold, folds=True), Spelling(_fold_times, is_compiled=False)


def _digest(register: Register, kind: str, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32, key=derive(register.secret, kind)).digest()


def dump_steps(past: Past) -> bytes:
    """Return steps as bytes to be sealed."""
    text = json.dumps([asdict(step) for step in past]).encode()
    return text + b" " * (-len(text) % _SEALED_SIZE)


def load_steps(content: bytes) -> Past:
    """Return the steps that :func:`dump_steps` wrote."""
    steps: list[dict[str, Any]] = json.loads(content)
    return tuple(PastStep(**{**step, "attributes": tuple(step["attributes"])}) for step in steps)
