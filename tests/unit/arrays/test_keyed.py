"""A draw is AES of an identifier, to the letter of the page that says so, and nothing else."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import keyed

KEY = bytes(range(32))
MAC_KEY = bytes(range(100, 132))
INT64 = st.integers(-(2**63), 2**63 - 1)


def aes(block: bytes, key: bytes = KEY) -> bytes:
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def cbc_mac(text: bytes, key: bytes = MAC_KEY) -> bytes:
    message = len(text).to_bytes(16, "little") + text + bytes(-len(text) % 16)
    return Cipher(algorithms.AES(key), modes.CBC(bytes(16))).encryptor().update(message)[-16:]


def blocks_of(*texts: bytes, mac_key: bytes = MAC_KEY) -> list[bytes]:
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    data = np.frombuffer(b"".join(texts), dtype=np.uint8)
    return [block.tobytes() for block in keyed.text_blocks(offsets, data, mac_key)]


def block_of(text: str) -> bytes:
    return blocks_of(text.encode())[0]


def integer_block(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True) + bytes(7) + b"\x01"


def test_encryption_is_aes_256_as_in_the_standard() -> None:
    # FIPS 197, appendix C.3
    plain = bytes.fromhex("00112233445566778899aabbccddeeff")
    cipher = keyed.encrypt(np.frombuffer(plain, dtype=np.uint64).reshape(1, 2), KEY)
    assert cipher.tobytes().hex() == "8ea2b7ca516745bfeafc49904b496089"


def test_derived_keys_are_hkdf_sha256() -> None:
    secret = bytes(range(7, 39))
    info = b"".join(len(p).to_bytes(4, "big") + p for p in (keyed.ALGORITHM.encode(), b"swap", b"3"))
    extracted = hmac.digest(bytes(32), secret, hashlib.sha256)
    expanded = hmac.digest(extracted, info + b"\x01", hashlib.sha256)
    assert keyed.derive(secret, "swap", 3) == expanded


@given(st.lists(st.lists(st.text(max_size=3), max_size=4).map(tuple), min_size=2, max_size=8, unique=True))
def test_different_purposes_have_different_keys(contexts: list[tuple[str, ...]]) -> None:
    assert len({keyed.derive(KEY, *context) for context in contexts}) == len(contexts)


@given(st.lists(INT64, min_size=1, max_size=20))
def test_the_block_of_an_integer_is_its_bytes_and_a_tag(values: list[int]) -> None:
    blocks = keyed.integer_blocks(np.array(values, dtype=np.int64))
    assert [b.tobytes() for b in blocks] == [integer_block(v) for v in values]
    drawn = keyed.draws(blocks, KEY)
    assert drawn.tolist() == [int.from_bytes(aes(integer_block(v))[:8], "little") for v in values]


@given(INT64)
def test_a_number_read_as_text_is_the_same_record(value: int) -> None:
    assert block_of(str(value)) == integer_block(value)


@pytest.mark.parametrize(
    "text",
    [
        *["", "007", "00", "-0", "-07", "+7", " 7", "7 ", "7.0", "7e0", "-", "--7", "７", "1_000"],
        *[
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "18446744073709551623",
            "99999999999999999999",
        ],
    ],
)
def test_text_that_no_integer_prints_as_is_text(text: str) -> None:
    data = text.encode()
    expected = data + bytes(14 - len(data)) + bytes([len(data), 2]) if len(data) <= 14 else cbc_mac(data)
    assert block_of(text) == expected


@given(st.lists(st.binary(min_size=15, max_size=70).map(lambda b: b"x" + b), min_size=1, max_size=6))
def test_the_block_of_a_long_text_is_its_cbc_mac(texts: list[bytes]) -> None:
    assert blocks_of(*texts) == [cbc_mac(text) for text in texts]


@given(st.lists(st.text(max_size=40) | INT64.map(str), unique=True, max_size=30))
def test_no_two_identifiers_share_a_block(texts: list[str]) -> None:
    assert len(set(blocks_of(*(text.encode() for text in texts)))) == len(texts)


def test_texts_that_differ_in_length_only_do_not_share_a_block() -> None:
    texts = [b"a" * whole + bytes(zeros) for whole in range(50) for zeros in range(20)]
    distinct = list(dict.fromkeys(texts))
    assert len(set(blocks_of(*distinct))) == len(distinct)


def test_a_text_does_not_change_with_its_neighbours() -> None:
    texts = [b"7", b"a", b"", b"a rather long identifier", b"another one that is longer than two blocks", b"-12"]
    assert blocks_of(*texts) == [blocks_of(text)[0] for text in texts]


@given(st.integers(0, 300), st.integers(1, 120), st.booleans())
def test_draws_do_not_depend_on_how_records_are_cut_into_chunks(records: int, chunk: int, as_blocks: bool) -> None:
    identifiers = np.arange(records, dtype=np.int64) * 7919 - 50
    given_as = keyed.integer_blocks(identifiers) if as_blocks else identifiers
    parts = [(start, drawn.copy()) for start, drawn in keyed.draw_chunks(given_as, KEY, chunk=chunk)]
    assert [start for start, _ in parts] == list(range(0, records, min(chunk, max(records, 1))))
    together = np.concatenate([np.zeros(0, dtype=np.uint64), *(drawn for _, drawn in parts)])
    assert together.tolist() == keyed.draws(keyed.integer_blocks(identifiers), KEY).tolist()


def test_more_blocks_than_one_chunk_are_encrypted_one_by_one_alike() -> None:
    identifiers = np.arange(200_001, dtype=np.int64)
    cipher = keyed.encrypt(keyed.integer_blocks(identifiers), KEY)
    for row in (0, 65_535, 65_536, 131_071, 131_072, 200_000):
        assert cipher[row].tobytes() == aes(integer_block(row))


@pytest.mark.parametrize("key", [bytes(32), KEY, bytes(31) + b"\x01"])
def test_draws_of_consecutive_numbers_look_uniform(key: bytes) -> None:
    drawn = keyed.draws(keyed.integer_blocks(np.arange(1 << 16)), key)
    assert len(np.unique(drawn)) == 1 << 16
    for shift in (0, 24, 56):  # low, middle and high bits
        counts = np.bincount(((drawn >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
        # Chi-square with 255 degrees of freedom: mean 255, standard deviation 22.6.
        assert 255 - 5 * 22.6 < ((counts - 256) ** 2 / 256).sum() < 255 + 5 * 22.6
    uniform = drawn / 2.0**64
    lag = np.corrcoef(uniform[:-1], uniform[1:])[0, 1]
    assert abs(lag) < 5 / np.sqrt(1 << 16)


def test_draws_of_one_flipped_key_bit_have_nothing_in_common() -> None:
    blocks = keyed.integer_blocks(np.arange(1 << 14))
    one = keyed.draws(blocks, KEY)
    other = keyed.draws(blocks, bytes([KEY[0] ^ 1]) + KEY[1:])
    flipped = np.bitwise_count(one ^ other)
    assert not (one == other).any()
    assert abs(flipped.mean() - 32) < 5 * 4 / np.sqrt(1 << 14)
