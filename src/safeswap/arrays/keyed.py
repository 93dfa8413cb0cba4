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
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from safeswap.arrays.compiled import is_worth_compiling, njit
from safeswap.arrays.types import Floats, Words

ALGORITHM = "safeswap-draw-1"
"""The version of the rules in this module; any change to them is a new version."""


_BLOCK = 16
_CHUNK = 1 << 16  # records per chunk: blocks and cipher text stay in the second-level cache
_TAG_INTEGER, _TAG_TEXT = 1, 2
_LONGEST_SHORT = 14  # bytes
_INTEGER_TEXT = re.compile(rb"0|-?[1-9][0-9]{0,18}")
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


def encrypt(blocks: Words, key: bytes) -> Words:
    """Encrypt each block with AES-256."""
    out = np.empty(len(blocks) * _BLOCK + _BLOCK, dtype=np.uint8)
    cipher = _cipher(key)
    step = _CHUNK * _BLOCK
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
    identifiers: npt.NDArray[np.int64] | Words, key: bytes, *, chunk: int = _CHUNK
) -> Iterator[tuple[int, Words]]:
    """Yield the draws in chunks of records as (first row, draws), so that they are never all in memory.

    ``identifiers`` are integers or blocks. The buffer of draws is reused by the next chunk: copy what must outlast the
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
        yield start, out[:written].view(np.uint64)[::2]


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
    """Do as :func:`_nth_block` does, in NumPy."""
    places = (starts + number * _BLOCK)[:, None] + np.arange(_BLOCK)
    inside = places < ends[:, None]
    out[inside] = data[places[inside]]


def _few_short_blocks(
    offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Do as :func:`_short_blocks` does, in Python."""
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
    for start in range(0, len(identity), _CHUNK):
        blocks = integer_blocks(identity[start : start + _CHUNK].view(np.int64))
        end = start + len(blocks)
        cipher.update_into(blocks.view(np.uint8).reshape(-1), out[start * _BLOCK : (end + 1) * _BLOCK])
    return out[:-_BLOCK].view(np.uint64).reshape(-1, 2)


def uniforms(words: Words) -> Floats:
    """Map words to numbers strictly between 0 and 1, in steps of 2⁻⁵².

    >>> bool(uniforms(np.array([0], np.uint64))[0] > 0), bool(uniforms(np.array([2**64 - 1], np.uint64))[0] < 1)
    (True, True)
    """
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def normals(words: Words) -> Floats:
    """Map words to standard normal deviates by the inverse distribution function.

    >>> normals(np.array([2**63], np.uint64)).round(9).tolist()
    [0.0]
    """
    from scipy.special import ndtri

    return np.asarray(ndtri(uniforms(words)), dtype=np.float64)
