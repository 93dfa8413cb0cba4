"""Keyed draws: a record's random number is AES of its identifier under a derived key.

Claim: without the key, the draws of distinct records are indistinguishable from independent uniform numbers, since AES
is a pseudorandom permutation and distinct records have distinct blocks. With the key, a draw is a pure function of the
record, so the order of the draws does not depend on row order, threads, partitions or retries.

A block is 16 bytes, here two little-endian 64-bit words:

======================  =====================================================================
identifier              block
======================  =====================================================================
64-bit integer          the integer, then the tag 1 in the last byte
text of up to 14 bytes  the bytes, then their number, then the tag 2
longer text             CBC-MAC under a key of its own over (number of bytes, bytes), 16 bytes
======================  =====================================================================

Text that is exactly the decimal form of an integer counts as that integer, so a file gives the same draws whether its
identifiers were read as text or as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from safeswap.arrays.compiled import inner, is_worth_compiling, njit
from safeswap.arrays.types import Floats, Identity, Integers, Words

ALGORITHM = "safeswap-draw-1"
"""The version of the rules in this module; any change to them is a new version."""


CHUNK = 1 << 16
"""Records per chunk: blocks and cipher text stay in the second-level cache."""

_BLOCK = 16
_TAG_INTEGER, _TAG_TEXT = 1, 2
_LONGEST_SHORT = 14  # bytes
_INTEGER_TEXT = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_TENS = np.array([float(f"1e{power}") for power in range(23)])
NUMBER, MISSING = np.uint64(4 << 56), np.uint64(5 << 56)
"""The tags of a number and of a missing value, where blocks are of values and not of identifiers."""

_TEXT_COST = 500  # in Python, a text costs as much as this many elements in NumPy


def derive(secret: bytes, *context: str | int) -> bytes:
    """Return a 32-byte key for one purpose (HKDF-SHA256). Different contexts give unrelated keys.

    >>> a, b = derive(bytes(32), "swap", 1), derive(bytes(32), "swap", 2)
    >>> len(a), a == b, a == derive(bytes(32), "swap", 1)
    (32, False, True)
    """
    # Each part carries its length: ("ab", "c") and ("a", "bc") must not collide.
    info = b"".join(len(part).to_bytes(4, "big") + part for part in (str(c).encode() for c in (ALGORITHM, *context)))
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)


def integer_blocks(identifiers: npt.NDArray[np.int64]) -> Words:
    """Return the blocks of integer identifiers.

    >>> integer_blocks(np.array([7])).tolist()
    [[7, 72057594037927936]]
    """
    blocks = np.empty((len(identifiers), 2), dtype=np.uint64)
    blocks[:, 0] = identifiers.view(np.uint64)
    blocks[:, 1] = np.uint64(_TAG_INTEGER << 56)
    return blocks


def text_blocks(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], mac_key: bytes) -> Words:
    """Return the blocks of text identifiers in Arrow's layout: text i is ``data[offsets[i]:offsets[i+1]]``.

    >>> text = np.frombuffer(b"7" + b"007" + b"a rather long identifier", dtype=np.uint8)
    >>> blocks = text_blocks(np.array([0, 1, 4, 28]), text, bytes(32))
    >>> blocks[0].tolist() == integer_blocks(np.array([7]))[0].tolist()
    True
    """
    blocks = np.zeros((len(offsets) - 1, 2), dtype=np.uint64)
    fill = _short_blocks if is_worth_compiling(_TEXT_COST * len(blocks)) else _few_short_blocks
    kind = fill(offsets, data, blocks.view(np.uint8))
    long_rows = np.flatnonzero(kind == 0)
    if len(long_rows):
        blocks[long_rows] = _mac(offsets[long_rows], offsets[long_rows + 1], data, mac_key)
    return blocks


def value_blocks(
    offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], blocks: Words, *, fold: bool
) -> npt.NDArray[np.bool_]:
    """Fill the blocks of texts that need no second look, by what they mean; return which texts are left over.

    Blanks around a text do not count. A number in plain decimals is that number; with ``fold``, letters are small, and
    an empty text and ``nan`` are missing. Left over are texts that are long or not plain ASCII, and numbers with
    exponents or so many digits that one division does not give the nearest float; and all, if they are too few to load
    compiled code for.

    >>> text = np.frombuffer(b" 1.50" + b"Ab" + b"1e9", dtype=np.uint8)
    >>> bool(value_blocks(np.array([0, 5, 7, 10]), text, np.zeros((3, 2), dtype=np.uint64), fold=True)[2])
    True
    """
    left = np.ones(len(blocks), dtype=np.bool_)
    if is_worth_compiling(_TEXT_COST * len(blocks)):
        _fill_value_blocks(offsets, data, blocks, left, fold, _TENS)
    return left


def encrypt(blocks: Words, key: bytes) -> Words:
    """Encrypt each block with AES-256."""
    out = np.empty(len(blocks) * _BLOCK + _BLOCK, dtype=np.uint8)
    cipher = _cipher(key)
    step = CHUNK * _BLOCK
    source = np.ascontiguousarray(blocks).view(np.uint8).reshape(-1)
    for start in range(0, len(source), step):
        # update_into needs one block of slack after its output.
        cipher.update_into(source[start : start + step], out[start : start + step + _BLOCK])
    return out[: len(source)].view(np.uint64).reshape(-1, 2)


def draws(blocks: Words, key: bytes) -> Words:
    """Return the 64-bit draw of each record: the first word of its cipher text.

    >>> d = draws(integer_blocks(np.arange(4)), bytes(32))
    >>> d.dtype, len(set(d.tolist()))
    (dtype('uint64'), 4)
    """
    return np.ascontiguousarray(encrypt(blocks, key)[:, 0])


def draw_chunks(
    identifiers: npt.NDArray[np.int64] | Words, key: bytes, *, chunk: int = CHUNK
) -> Iterator[tuple[int, Words]]:
    """Yield the draws in chunks of records as (first row, draws), as :func:`word_chunks` does."""
    for start, words in word_chunks(identifiers, key, chunk=chunk):
        yield start, words[:, 0]


def word_chunks(
    identifiers: npt.NDArray[np.int64] | Words, key: bytes, *, chunk: int = CHUNK
) -> Iterator[tuple[int, Words]]:
    """Yield two words per record in chunks as (first row, words), so that they are never all in memory.

    ``identifiers`` are integers or blocks. The buffer of words is reused by the next chunk: copy what must outlast the
    step.
    """
    cipher = _cipher(key)
    chunk = min(chunk, max(len(identifiers), 1))
    blocks = np.empty((chunk, 2), dtype=np.uint64)
    blocks[:, 1] = np.uint64(_TAG_INTEGER << 56)
    out = np.empty(chunk * _BLOCK + _BLOCK, dtype=np.uint8)
    for start in range(0, len(identifiers), chunk):
        part = identifiers[start : start + chunk]
        if part.ndim == 1:
            blocks[: len(part), 0] = part.view(np.uint64)
            source = blocks[: len(part)]
        else:
            source = np.ascontiguousarray(part)
        written = len(part) * _BLOCK
        cipher.update_into(source.view(np.uint8).reshape(-1), out[: written + _BLOCK])
        yield start, out[:written].view(np.uint64).reshape(-1, 2)


def _cipher(key: bytes) -> Any:
    # Each block is encrypted once and on its own: ECB here is the pseudorandom permutation itself, not a mode for text.
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305


def _mac(
    starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], mac_key: bytes
) -> Words:
    """Return the CBC-MAC of each text, its length first (prefix-free, as the proof of CBC-MAC requires)."""
    lengths = ends - starts
    state = np.zeros((len(starts), 2), dtype=np.uint64)
    state[:, 0] = lengths.view(np.uint64)
    state = encrypt(state, mac_key)
    for number in range(int(-(-lengths.max() // _BLOCK))):
        rows = np.flatnonzero(lengths > number * _BLOCK)
        block = np.zeros((len(rows), 2), dtype=np.uint64)
        fill = _nth_block if is_worth_compiling(_BLOCK * len(rows)) else _few_nth_blocks
        fill(starts[rows], ends[rows], data, number, block.view(np.uint8))
        state[rows] = encrypt(state[rows] ^ block, mac_key)
    return state


def _few_nth_blocks(
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    number: int,
    out: npt.NDArray[np.uint8],
) -> None:
    """Like :func:`_nth_block`, in NumPy."""
    places = (starts + number * _BLOCK)[:, None] + np.arange(_BLOCK)
    inside = places < ends[:, None]
    out[inside] = data[places[inside]]


def _few_short_blocks(
    offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Like :func:`_short_blocks`, in Python."""
    kind = np.zeros(len(offsets) - 1, dtype=np.uint8)
    first = int(offsets[0])
    content, places = data[first : offsets[-1]].tobytes(), (offsets - first).tolist()
    for i, (start, end) in enumerate(pairwise(places)):
        text = content[start:end]
        value = int(text) if _INTEGER_TEXT.fullmatch(text) else None
        if value is not None and -(1 << 63) <= value < 1 << 63:
            block, kind[i] = value.to_bytes(8, "little", signed=True).ljust(15, b"\0"), _TAG_INTEGER
        elif len(text) <= _LONGEST_SHORT:
            block, kind[i] = text.ljust(_LONGEST_SHORT, b"\0") + bytes([len(text)]), _TAG_TEXT
        else:
            continue
        out[i] = np.frombuffer(block + bytes([kind[i]]), dtype=np.uint8)
    return kind


@njit(cache=True, nogil=True)
def _nth_block(
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    number: int,
    out: npt.NDArray[np.uint8],
) -> None:
    for i in range(len(starts)):
        first = starts[i] + number * 16
        for j in range(min(16, ends[i] - first)):
            out[i, j] = data[first + j]


@njit(cache=True, nogil=True)
def _short_blocks(
    offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Fill the blocks of integers and short texts; return the tag used, 0 for texts that are too long."""
    kind = np.zeros(len(offsets) - 1, dtype=np.uint8)
    for i in range(len(offsets) - 1):
        start, end = offsets[i], offsets[i + 1]
        is_integer, value = _canonical_integer(data, start, end)
        if is_integer:
            for j in range(8):
                out[i, j] = (value >> np.uint64(8 * j)) & np.uint64(255)
            out[i, 15] = 1
            kind[i] = 1
        elif end - start <= 14:
            for j in range(end - start):
                out[i, j] = data[start + j]
            out[i, 14] = end - start
            out[i, 15] = 2
            kind[i] = 2
    return kind


@njit(cache=True, nogil=True)
def _canonical_integer(data: npt.NDArray[np.uint8], start: int, end: int) -> tuple[bool, np.uint64]:
    """Return whether a text is exactly the decimal form of a signed 64-bit integer, and its two's complement."""
    zero = np.uint64(0)
    negative = end > start and data[start] == 45
    first = start + 1 if negative else start
    digits = end - first
    if digits < 1 or digits > 19 or (data[first] == 48 and (digits > 1 or negative)):
        return False, zero
    value = zero
    for i in range(first, end):
        if data[i] < 48 or data[i] > 57:
            return False, zero
        value = value * np.uint64(10) + np.uint64(data[i] - 48)
    largest = np.uint64(9223372036854775807)
    if value > largest + np.uint64(negative):
        return False, zero
    return True, (~value + np.uint64(1)) if negative else value


@njit(cache=True, nogil=True)
def _fill_value_blocks(offsets, data, blocks, left, fold, tens):  # type: ignore[no-untyped-def]
    numbers = blocks.view(np.float64)
    for i in range(len(blocks)):
        start, end = offsets[i], offsets[i + 1]
        while start < end and data[start] == 32:
            start += 1
        while start < end and data[end - 1] == 32:
            end -= 1
        size = end - start
        is_inside = start + 16 <= data.size  # words can be read without looking where the text ends
        first = data[start] if size else 0
        if 43 <= first <= 57:  # a digit, a sign or a point: perhaps a number
            is_number, is_plain, value = False, True, 0.0
            if size <= 8 and is_inside:
                is_number, value = _short_decimal(word_at(data, start), size, tens)
            if not is_number:
                is_number, is_plain, value = _plain_decimal(data, start, end, tens)
            if is_number:
                left[i] = not is_plain
                numbers[i, 0] = value
                blocks[i, 1] = NUMBER
                continue
        if size > 14:
            left[i] = True
            continue
        low, high = np.uint64(0), np.uint64(0)
        if is_inside:
            low, high = word_at(data, start), word_at(data, start + 8)
        else:
            for j in range(size):
                byte = np.uint64(data[start + j]) << np.uint64(8 * (j % 8))
                if j < 8:
                    low |= byte
                else:
                    high |= byte
        is_plain, low = _as_text_word(low, min(size, 8), fold)
        is_also_plain, high = _as_text_word(high, max(size - 8, 0), fold)
        left[i] = not (is_plain and is_also_plain)
        blocks[i, 0] = low
        blocks[i, 1] = high | np.uint64(size) << np.uint64(48) | np.uint64(2 << 56)
        if fold and (size == 0 or _is_nan(data, start, end)):
            blocks[i, 0], blocks[i, 1] = np.uint64(0), MISSING


# Eight bytes are looked at together, as one word with the first byte in its lowest place.
_EACH = np.uint64(0x0101010101010101)
_HIGHEST = np.uint64(0x8080808080808080)
_ZEROS = np.uint64(0x3030303030303030)


@inner
def word_at(data, start):  # type: ignore[no-untyped-def]
    """Return eight bytes as a word; the compiler makes one load of them."""
    at = np.uint64(start)
    word = np.uint64(data[at])
    for j in range(1, 8):
        word |= np.uint64(data[at + np.uint64(j)]) << np.uint64(8 * j)
    return word


@inner
def _as_text_word(word, size, fold):  # type: ignore[no-untyped-def]
    """Return whether the first bytes of a word are plain ASCII, and these, in small letters with ``fold``."""
    own = (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1) if size < 8 else ~np.uint64(0)
    filled = (word & own) | (_EACH * np.uint64(97) & ~own)
    odd = filled | (filled - _EACH * np.uint64(32)) | (filled + _EACH)  # above 127, below 32, 127
    if fold:
        capital = (filled + _EACH * np.uint64(63)) & ~(filled + _EACH * np.uint64(37)) & _HIGHEST
        filled += capital >> np.uint64(2)
    return odd & _HIGHEST == 0, filled & own


@inner
def _short_decimal(word, size, tens):  # type: ignore[no-untyped-def]
    """Return whether the first bytes of a word, at most eight, are digits with at most one point; and their value."""
    if size < 8:
        word &= (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
    unlike = word ^ (_EACH * np.uint64(46))
    points = (unlike - _EACH) & ~unlike & _HIGHEST
    decimals = np.uint64(0)
    if points:
        before = ((points & (~points + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)  # the bytes before the first
        word = (word & before) | (word >> np.uint64(8) & ~before)
        size -= 1
        decimals = np.uint64(size) - ((before & _EACH) * _EACH >> np.uint64(56))
    if size == 0:
        return False, 0.0
    if size < 8:  # zeros before the first digit
        word = word << np.uint64(64 - 8 * size) | _ZEROS >> np.uint64(8 * size)
    nibbles = np.uint64(0xF0F0F0F0F0F0F0F0)
    if word & nibbles != _ZEROS or (word + _EACH * np.uint64(6)) & nibbles != _ZEROS:
        return False, 0.0
    word -= _ZEROS
    word = word * np.uint64(10) + (word >> np.uint64(8))  # numbers of two digits, then of eight
    pairs = np.uint64(0x000000FF000000FF)
    word = (word & pairs) * np.uint64(0x000F424000000064) + (word >> np.uint64(16) & pairs) * np.uint64(0x271000000001)
    return True, np.float64(word >> np.uint64(32) & np.uint64(0xFFFFFFFF)) / tens[decimals]


@njit(cache=True, nogil=True)
def _is_nan(data, start, end):  # type: ignore[no-untyped-def]
    if end - start != 3:
        return False
    return data[start] | 32 == 110 and data[start + 1] | 32 == 97 and data[start + 2] | 32 == 110


@njit(cache=True, nogil=True)
def _plain_decimal(data, start, end, tens):  # type: ignore[no-untyped-def]
    """Return whether a text may be a number, whether it is one that a division gives exactly rounded, and its value.

    A whole number below 2⁵³ and a power of ten up to 10²² are floats, so their quotient is the float nearest to it.
    """
    at = start + 1 if end > start and (data[start] == 45 or data[start] == 43) else start
    mantissa, digits, significant, decimals, has_point = np.int64(0), 0, 0, 0, False
    for place in range(at, end):
        byte = data[place]
        if 48 <= byte <= 57:
            digits += 1
            significant += significant > 0 or byte != 48
            decimals += has_point
            if significant <= 15:
                mantissa = mantissa * 10 + np.int64(byte - 48)
        elif byte == 46 and not has_point:
            has_point = True
        else:
            # Perhaps an exponent: the caller looks again.
            return digits > 0 and byte | 32 == 101, False, 0.0
    if digits == 0:
        return False, False, 0.0
    if significant > 15 or decimals > 22:
        return True, False, 0.0
    value = np.float64(mantissa) / tens[decimals]
    return True, True, value if data[start] != 45 or mantissa == 0 else -value


def record_words(identity: npt.NDArray[np.int64] | Words, key: bytes) -> Words:
    """Return two uniform 64-bit words per record, a function of the key and the record's identity alone.

    >>> words = record_words(np.array([3, 1, 2]), bytes(32))
    >>> words.shape, words[1].tolist() == record_words(np.array([1]), bytes(32))[0].tolist()
    ((3, 2), True)
    """
    if identity.ndim == 2:
        return encrypt(identity.view(np.uint64), key)
    out = np.empty(len(identity) * _BLOCK + _BLOCK, dtype=np.uint8)
    cipher = _cipher(key)
    blocks = integer_blocks(identity[:CHUNK].view(np.int64))
    for start in range(0, len(identity), CHUNK):
        part = identity[start : start + CHUNK].view(np.uint64)
        blocks[: len(part), 0] = part
        source = blocks[: len(part)].view(np.uint8).reshape(-1)
        cipher.update_into(source, out[start * _BLOCK : (start + len(part) + 1) * _BLOCK])
    return out[:-_BLOCK].view(np.uint64).reshape(-1, 2)


@dataclass(frozen=True)
class KeyedWords:
    """The words of :func:`record_words`, made where they are used: two for each record take much memory at once.

    >>> words = KeyedWords(np.array([3, 1, 2]), bytes(32))
    >>> words.take(np.array([1])).whole().tolist() == words.whole()[1:2].tolist()
    True
    """

    identity: Identity = field(repr=False)
    key: bytes = field(repr=False)

    def whole(self) -> Words:
        """Return all of them."""
        return record_words(self.identity, self.key)

    def chunks(self) -> Iterator[tuple[int, Words]]:
        """Yield some at a time, with the first row, in a buffer that the next ones reuse."""
        return word_chunks(self.identity, self.key)

    def take(self, rows: Integers) -> KeyedWords:
        """Return those of some records."""
        return KeyedWords(self.identity[rows], self.key)


def uniforms(words: Words) -> Floats:
    """Map words to numbers strictly between 0 and 1, in steps of 2⁻⁵².

    >>> bool(uniforms(np.array([0], np.uint64))[0] > 0), bool(uniforms(np.array([2**64 - 1], np.uint64))[0] < 1)
    (True, True)
    """
    found = (words >> np.uint64(12)).astype(np.float64)
    found += 0.5
    found *= 2.0**-52
    return found


def normals(words: Words) -> Floats:
    """Map words to standard normal deviates by the inverse distribution function.

    >>> normals(np.array([2**63], np.uint64)).round(9).tolist()
    [0.0]
    """
    from scipy.special import ndtri

    found = uniforms(words)
    return np.asarray(ndtri(found, out=found))
