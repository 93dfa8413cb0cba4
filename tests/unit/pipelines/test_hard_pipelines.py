"""Pipelines that are hard to account for: types that change, levels that vanish, draws that change nothing."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import safeswap as ss
from safeswap.errors import SpecError
from safeswap.pipelines.account import account_for
from safeswap.workflow import mask_file
from safeswap.workflow.masking import keep, recall

SWAP = {"method": "swap", "swap": ["region"], "fixed": ["sex"], "rate": 0.1}
RECODE = {"step": "recode", "attribute": "race", "otherwise": "keep", "groups": {"cd": ["c", "d"]}}
KINDS = {"identifier": "id", "kinds": {"inc": "numeric", "w": "weight"}}


def make_table(records: int = 300) -> pa.Table:
    rng = np.random.default_rng(7)
    born = [dt.date(1950, 1, 1) + dt.timedelta(days=int(day)) for day in rng.integers(0, 20_000, records)]
    return pa.table(
        {
            "id": [f"r{i:04}" for i in range(records)],
            "sex": rng.choice(["m", "f"], records),
            "race": rng.choice(["a", "b", "c", "d"], records, p=[0.5, 0.3, 0.15, 0.05]),
            "region": rng.choice(["N", "S", "W"], records),
            "inc": np.round(rng.lognormal(3, 1, records), 1),
            "born": born,
            "w": np.round(rng.uniform(1, 9, records), 2),
        }
    )


def read(table: pa.Table) -> ss.Microdata:
    return ss.read(table, **KINDS)


@pytest.fixture
def files(tmp_path):
    parquet.write_table(make_table(), tmp_path / "original.parquet")
    return tmp_path


def test_a_column_of_another_type_is_released_from_its_files_as_from_memory(files):
    key = ss.Key.generate()
    band = {"step": "date_band", "attribute": "born", "by": "year"}
    steps = ss.Pipeline([band, {"method": "rank_swap", "attributes": ["born"]}, RECODE, SWAP])
    masked = ss.mask(ss.read(files / "original.parquet", **KINDS), steps, key=key)
    keep(masked, files / "m.parquet", audit=files / "audit", source=files / "original.parquet")
    again = recall(files / "original.parquet", files / "m.parquet", audit=files / "audit")
    assert again.data.table.column("born").type == masked.data.table.column("born").type == pa.int64()
    assert [finding for finding in account_for(again).findings if not finding.ok] == []
    done = [
        ss.release(each, files / f"public-{i}", audit=files / f"secret-{i}", key=key, second_release="a test")
        for i, each in enumerate((masked, again))
    ]
    assert done[0].manifest_sha256 == done[1].manifest_sha256


def test_what_took_part_does_not_depend_on_how_the_file_is_read():
    plain = ss.mask(read(make_table()), ss.Pipeline([RECODE, SWAP]), insecure_seed=1)
    coded = make_table()
    for name in ("sex", "race", "region"):
        column = coded.column(name).combine_chunks().dictionary_encode()
        short = pa.DictionaryArray.from_arrays(column.indices.cast(pa.int8()), column.dictionary)
        coded = coded.set_column(coded.column_names.index(name), name, short)
    masked = ss.mask(read(coded), ss.Pipeline([RECODE, SWAP]), insecure_seed=1)
    assert masked.audit.made == plain.audit.made < len(plain.data)
    assert [change.as_dict() for change in masked.changes] == [change.as_dict() for change in plain.changes]
    assert ss.undo(masked).table.equals(coded), "levels included"


def test_a_draw_that_changed_nothing_is_not_told_to_the_public():
    steps = ss.Pipeline([{"method": "pram", "attributes": ["sex"], "keep": 1.0}, SWAP])
    masked = ss.mask(read(make_table(60)), steps, insecure_seed=1)
    assert masked.changes["sex"].status == "unchanged"
    assert masked.changes["sex"].sentence == "sex: some values were redrawn."
    assert masked.changes["region"].sentence == "region: values were exchanged between records."


def test_groups_are_counted_again_where_numbers_became_ranges():
    steps = [
        {"method": "microaggregation", "attributes": ["inc"], "k": 3},
        {"step": "ranges", "attribute": "inc", "equal_count": 4},
    ]
    account = ss.mask(read(make_table()), ss.Pipeline(steps), insecure_seed=1).account
    assert account.flags == ()
    assert any("occurs in at least 3 records" in promise.sentence for promise in account.statements)


def test_a_level_that_an_earlier_step_removed_needs_no_rule():
    table = pa.table({"x": ["a"] * 30 + ["b"] * 28 + ["c"] * 2, "y": ["p", "q"] * 30})
    steps = [
        {"method": "suppress", "keys": ["x"], "tolerance": 3},
        {"step": "recode", "attribute": "x", "groups": {"A": ["a"], "B": ["b"]}},
        {"method": "swap", "swap": ["y"], "rate": 0.1},
    ]
    account = ss.mask(ss.read(table), ss.Pipeline(steps), insecure_seed=1).account
    assert [finding for finding in account.findings if not finding.ok] == []
    assert account.changes["x"].status == "blanked"


def test_a_promise_by_weights_is_not_made_of_a_file_without_them():
    steps = [
        {"method": "suppress", "keys": ["sex", "race", "region"], "weight": "w", "tolerance": 30, "solver": "greedy"},
        {"step": "drop", "attributes": ["w"]},
    ]
    account = ss.mask(read(make_table()), ss.Pipeline(steps), insecure_seed=1).account
    assert not any("units of w" in promise.sentence for promise in account.statements)
    assert account.flags
    assert all("w is missing" in flag for flag in account.flags)


def test_an_empty_pipeline_on_files_can_be_recalled(files):
    source, target = files / "original.parquet", files / "m.parquet"
    done = mask_file(source, target, ss.Pipeline(), audit=files / "audit", insecure_seed=1, identifier="id")
    assert done.made == 0
    assert recall(source, target, audit=files / "audit").audit.steps == ()


def test_a_recode_in_short_form_can_have_a_name():
    assert ss.Pipeline([{"name": "mine", "step": "drop", "attributes": ["x"]}]).names == ("mine",)
    with pytest.raises(SpecError):
        ss.Pipeline([{"name": "", "method": "pram", "attributes": ["x"]}])


def test_an_unknown_column_of_the_changes_is_an_error_of_our_own():
    masked = ss.mask(read(make_table(60)), ss.Pipeline([SWAP]), insecure_seed=1)
    with pytest.raises(SpecError) as caught:
        masked.changes["regoin"]
    assert caught.value.code == "unknown-attribute"


def test_fixed_steps_of_a_study_may_recode_at_the_end_and_have_the_name_of_what_varies():
    data, key = ss.datasets.cps8d(), ss.Key.insecure(seed=2)
    drop = {"step": "drop", "attributes": ["AnnSal"]}
    asked = {"attributes": ["Race"], "rates": [0.02], "risk": ("n_rule",), "distortion": ("hellinger",), "key": key}
    last = ss.study(data, last=[drop], **asked)
    assert last.rejected().num_rows == 0
    named = ss.study(data, first=[{**drop, "name": "swap"}], **asked)
    assert named.specs[0].names == ("swap", "swap-2")
    for found in (last, named, ss.study(data, last=[{**drop, "name": "swap"}], **asked)):
        scores = ss.assess(ss.mask(data, found.specs[0], key=key), measures=["n_rule", "hellinger"])
        assert scores["hellinger"].value == pytest.approx(found.scores("hellinger")[0], abs=1e-12)
        assert scores["n_rule"].value == pytest.approx(found.scores("n_rule")[0], abs=1e-12)
