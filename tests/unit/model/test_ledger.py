"""The ledger recognises the same records in any dress, and only them.

A small version of ``bench/bench_ledger.py``; the rates are measured there.
"""

import numpy as np
import pyarrow as pa
import pytest
from tests.hand_made import masked_survey, survey
from tests.ledger_cases import HARD, NOT_THE_SAME, SEEN, as_file, files, trial

from safeswap.arrays.sketch import estimate_overlap
from safeswap.model.ledger import Entry, compare, hash_values, make_entry, sketch_content
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

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
