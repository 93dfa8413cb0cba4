"""The ledger recognises the same records in any dress, and only them.

A small version of ``bench/bench_ledger.py``; the rates are measured there.
"""

import random
import re
import struct

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from tests.hand_made import masked_survey, survey
from tests.ledger_cases import HARD, NOT_THE_SAME, SEEN, as_file, files, trial

from safeswap.arrays import keyed
from safeswap.arrays.sketch import estimate_overlap
from safeswap.model.ledger import AS_WRITTEN, Entry, Spelling, compare, hash_values, make_entry, sketch_content
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.releases.register import _fold

SECRET = bytes(range(32))
RECORDS = 2000


def overlap(case, seed=3):
    before, after = files(case, trial(RECORDS, seed))
    return estimate_overlap(sketch_content(after, SECRET), sketch_content(before, SECRET))


@pytest.mark.parametrize("name", SEEN)
def test_the_same_records_are_recognised(name):
    case, share = SEEN[name]
    found = overlap(case)
    assert found.alarm
    assert found.share == pytest.approx(share, abs=0.15)


@pytest.mark.parametrize("name", NOT_THE_SAME)
def test_other_records_are_not(name):
    assert not any(overlap(NOT_THE_SAME[name], seed).alarm for seed in (3, 4))


@pytest.mark.parametrize("name", ["a tenth of the file", "every column recoded", "4 coarse columns, 1% dropped"])
def test_the_limits_are_as_stated(name):
    assert not overlap(HARD[name]).alarm


def test_the_share_from_which_an_alarm_is_raised_can_be_set():
    def some(one):
        return one.with_more(one.some(0.4), 0.6)

    before, after = (sketch_content(file, SECRET) for file in files(some, trial(RECORDS, 5)))
    assert not estimate_overlap(after, before).alarm
    assert estimate_overlap(after, before, alarm_share=0.3).alarm


def test_under_another_key_nothing_agrees():
    file = as_file(trial(RECORDS, 6).columns)
    assert estimate_overlap(sketch_content(file, SECRET), sketch_content(file, bytes(32))).compared == 0


def test_a_release_that_is_used_as_input_is_recognised_by_the_released_file():
    first = masked_survey(survey(400))
    earlier = make_entry(first, SECRET)
    again = make_entry(masked_survey(Microdata(first.data.table, first.data.schema), seed=8), SECRET)
    found = compare(again, earlier)
    assert (found.alarm, found.side) == (True, "released")
    assert "released records of" in found.sentence


def test_identifiers_alone_are_mentioned_and_no_alarm():
    found = compare(make_entry(masked_survey(survey(400, seed=9)), SECRET), make_entry(masked_survey(), SECRET))
    assert (found.alarm, found.identifiers) == (False, 1.0)
    assert found.sentence.startswith("100% of the identifiers")


def test_an_entry_survives_its_bytes():
    entry = make_entry(masked_survey(), SECRET, drop=("Town",))
    again = Entry.from_bytes(entry.to_bytes())
    assert again.to_bytes() == entry.to_bytes()
    assert compare(again, entry).alarm
    assert set(again.columns) == {"Race"}


def test_a_value_has_one_word_in_every_type_and_the_word_needs_the_key():
    def words(values, kind=None, key=SECRET):
        return hash_values(pa.chunked_array([pa.array(values, kind)]), key).tolist()

    numbers = words([1, 20, None])
    assert numbers == words([1.0, 20.0, None]) == words(["1", " 20.0 ", None])
    assert numbers == hash_values(pa.chunked_array([pa.array(["1", "20", None]).dictionary_encode()]), SECRET).tolist()
    assert words([0.0]) == words([-0.0])
    assert words([None], pa.float64()) == words([float("nan")]) == words([None], pa.string())
    assert len(set(words(["a", "b", "a rather long text", "a rather long texT", "1", "true", ""]))) == 7
    assert set(words([1, 2], key=bytes(32))).isdisjoint(words([1, 2]))


TEXTS = [
    *(
        "",
        " ",
        "nan",
        "NaN",
        " nan ",
        "inf",
        "1,5",
        "0x1",
        "-0",
        "-0.0",
        "+",
        "-",
        ".",
        "-.",
        "1e",
        "e1",
        "1.2.3",
        "--1",
    ),
    *("1 2", "P000001", "p000001", "a" * 14, "a" * 15, "1" * 15, "1" * 16, "9007199254740993", "0." + "0" * 21 + "1"),
    *("0." + "0" * 22 + "1", "123456789012345", "0.000000123456789012345", "999999999999999", "0.1", "+.5", "5.", "-7"),
    *("\x1fx", "x ", " x ", "\u3000x", "TRUE", "Ä", "ä", "1E5", "1e-5", "00012.50", "\x7f", "12345678901234567890"),
]


def word_of(text: str | None, key: bytes, *, folds: bool) -> int:
    """Return the word of a text by the definition: AES of a block with the number, or the text, or neither."""
    text = text if text is None else text.strip().lower() if folds else text.strip()
    if text is None or (folds and text in ("", "nan")):
        block = bytes(15) + b"\x05"
    elif re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.ASCII | re.IGNORECASE):
        block = struct.pack("<d", float(text) + 0.0) + bytes(7) + b"\x04"
    else:
        block = text.encode().ljust(14, b"\0") + bytes([len(text.encode()), 2])
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return int.from_bytes(cipher.update(block)[:8], "little")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("spelling", [AS_WRITTEN, Spelling(_fold, folds=True)])
def test_texts_have_the_words_of_their_definition(
    spelling: Spelling, *, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "is_worth_compiling", lambda _: compiled)
    rng = random.Random(3)
    texts = [rng.choice("+- 0") + "".join(rng.choices("0123456789.", k=rng.randrange(1, 13))) for _ in range(400)]
    texts = [None, *TEXTS, *texts, *(f"{rng.uniform(-1e6, 1e6):.{places}f}" for places in range(12))]
    texts = [text for text in texts if text is None or len(text.strip()) <= 14 or text.strip().isdigit()]
    words = hash_values(pa.chunked_array([texts[:9], texts[9:]], pa.string()), SECRET, spelling)
    assert words.tolist() == [word_of(text, SECRET, folds=spelling.folds) for text in texts]


@pytest.mark.parametrize("spelling", [AS_WRITTEN, Spelling(_fold, folds=True)])
def test_compiled_or_not_a_text_has_the_same_word(spelling: Spelling, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(4)
    letters = "abXYZ@[`{019.-+eE \t\u00a0é\x7f\x1f"
    texts = ["".join(rng.choices(letters, k=rng.randrange(20))) for _ in range(2000)] + TEXTS
    both = []
    for compiled in (False, True):
        monkeypatch.setattr(keyed, "is_worth_compiling", lambda _, compiled=compiled: compiled)
        both.append(hash_values(pa.chunked_array([texts]), SECRET, spelling).tolist())
    assert both[0] == both[1]


def test_numbers_of_records_and_of_households_are_no_content():
    rng = np.random.default_rng(1)
    table = pa.table(
        {"n": rng.permutation(900) + 5, "text": [f"{i:06d}" for i in range(900)], "hh": np.arange(900) // 2}
    )
    table = table.append_column("age", pa.array(rng.integers(0, 99, 900)))
    schema = Schema(attributes=tuple(Attribute(name=name) for name in table.column_names))
    assert len(sketch_content(Microdata(table, schema), SECRET).groups) == 1
    declared = schema.replace(Attribute(name="age", kind=Kind.IDENTIFIER))
    assert len(sketch_content(Microdata(table, declared), SECRET).groups) == 0


def test_an_empty_file_is_like_nothing():
    one, none = as_file(trial(300, 1).columns), as_file({n: v[:0] for n, v in trial(300, 1).columns.items()})
    assert not estimate_overlap(sketch_content(none, SECRET), sketch_content(one, SECRET)).alarm
    assert not estimate_overlap(sketch_content(one, SECRET), sketch_content(none, SECRET)).alarm
