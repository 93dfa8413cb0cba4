"""Pipelines on disk: the bytes of memory, one record that undoes all steps, complete or not there."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest
from pyarrow import parquet

import safeswap as ss
from safeswap.errors import InputError, SafeswapError, UnsafeRelease
from safeswap.on_disk.audit_record import read_audit_json
from safeswap.pipelines.account import account_for
from safeswap.workflow import mask_file
from safeswap.workflow.masking import keep, recall

KEY = ss.Key.insecure(seed=5)
STEPS = ss.Pipeline(
    [
        {"step": "recode", "attribute": "ADULTS", "groups": {"few": ["1", "2"]}, "otherwise": "keep"},
        {"method": "swap", "swap": ["TENURE"], "fixed": ["STATE"], "rate": 0.1},
        {"method": "pram", "attributes": ["OCCUPATION"]},
        {"method": "suppress", "keys": ["OCCUPATION", "TENURE", "STATE"], "solver": "greedy"},
        {"method": "microaggregation", "attributes": ["INCOME"], "k": 3},
        {"method": "swap", "swap": ["TENURE", "OCCUPATION"], "rate": 0.05},
    ]
)


@pytest.fixture(scope="module")
def census(tmp_path_factory):
    path = tmp_path_factory.mktemp("census") / "census.parquet"
    ss.datasets.write_synthetic_census(path, 1500)
    return path


def values(data, name):
    return [None if value is None else str(value) for value in data.table.column(name).to_pylist()]


def same_values(one, other):
    return [name for name in one.attributes if values(one, name) != values(other, name)]


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_files_are_masked_as_data_in_memory_are_and_one_record_undoes_it(census, tmp_path, engine):
    data = ss.read(census, identifier="HHID")
    meant = ss.mask(data, STEPS, key=KEY)
    done = mask_file(
        census, tmp_path / "masked.parquet", STEPS, audit=tmp_path / "audit", key=KEY, engine=engine, identifier="HHID"
    )
    assert done.records == 1500
    assert done.made == meant.audit.made
    found = ss.read(tmp_path / "masked.parquet", schema=meant.data.schema)
    assert same_values(found, meant.data) == []
    assert same_values(ss.undo(tmp_path / "masked.parquet", done.audit), data) == []
    again = recall(census, tmp_path / "masked.parquet", audit=tmp_path / "audit")
    account = account_for(again)
    assert [finding for finding in account.findings if not finding.ok] == []
    assert [promise.sentence for promise in account.statements] == [
        promise.sentence for promise in account_for(meant).statements
    ]
    assert account.changes == account_for(meant).changes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit", "masked.parquet"]


def test_a_directory_of_files_stays_a_directory(census, tmp_path):
    table = parquet.read_table(census)
    (tmp_path / "source").mkdir()
    for part in range(3):
        parquet.write_table(table.slice(part * 500, 500), tmp_path / "source" / f"part-{part}.parquet")
    meant = ss.mask(ss.read(census, identifier="HHID", name="source"), STEPS, key=KEY)
    done = mask_file(
        tmp_path / "source", tmp_path / "masked", STEPS, audit=tmp_path / "audit", key=KEY, identifier="HHID"
    )
    found = ss.read(parquet.read_table(tmp_path / "masked"), schema=meant.data.schema)
    assert same_values(found, meant.data) == []
    assert (tmp_path / "masked" / "_SUCCESS").is_file()
    assert done.made == meant.audit.made


def test_a_step_that_fails_leaves_nothing_and_is_named(census, tmp_path):
    steps = STEPS + {"method": "swap", "swap": ["STATE"], "rate": 1.0, "fixed": ["TENURE"]}
    with pytest.raises(SafeswapError) as caught:
        mask_file(census, tmp_path / "m.parquet", steps, audit=tmp_path / "audit", key=KEY, identifier="HHID")
    assert caught.value.fields["step"] == "swap-3"
    assert caught.value.message.startswith("step 7 (swap-3): ")
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_cannot_do_a_step_refuses_it_before_anything_is_read(census, tmp_path):
    steps = ss.Pipeline([STEPS[1], STEPS[2]])
    with pytest.raises(SafeswapError) as caught:
        mask_file(
            census, tmp_path / "m.parquet", steps, audit=tmp_path / "a", key=KEY, engine="spark", identifier="HHID"
        )
    assert caught.value.code == "not-supported"
    assert caught.value.fields["step"] == "pram"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["step-2/pairs.parquet", "step-3/replaced-0.parquet", "step-4"])
def test_a_damaged_record_is_refused(census, tmp_path, damage):
    masked = ss.mask(ss.read(census, identifier="HHID"), STEPS, key=KEY)
    record = keep(masked, tmp_path / "m.parquet", audit=tmp_path / "audit", source=census)
    found = record / damage
    shutil.rmtree(found) if found.is_dir() else found.write_bytes(found.read_bytes()[:-1] + b"!")
    with pytest.raises(InputError) as caught:
        ss.undo(tmp_path / "m.parquet", record)
    assert caught.value.code == "audit-damaged"


def test_the_record_says_what_it_is_and_is_for_its_owner_alone(census, tmp_path):
    masked = ss.mask(ss.read(census, identifier="HHID"), STEPS, key=KEY)
    record = keep(masked, tmp_path / "m.csv", audit=tmp_path / "audit", source=census)
    content = read_audit_json(record)
    assert content["format"] == "safeswap-audit-2"
    assert [step["name"] for step in content["audit"]["steps"]] == list(STEPS.names)
    assert all(path.stat().st_mode & 0o077 == 0 for path in record.rglob("*"))
    assert json.loads(json.dumps(content["audit"]["spec"])) == STEPS.as_dict()


def test_a_release_tells_every_step_and_column_and_warns_of_what_was_undone(census, tmp_path):
    key = ss.Key.generate()
    data = ss.read(census, identifier="HHID")
    masked = ss.mask(data, STEPS.edit("swap-2", rate=0.6, on_shortfall="take"), key=key)
    done = ss.release(masked, tmp_path / "public", audit=tmp_path / "confidential", key=key)
    report = (done.public / "report.html").read_text("utf-8")
    for title in ("Recoding", "Data swapping", "Post-randomisation", "Local suppression", "Microaggregation"):
        assert title in report
    assert "ADULTS: values were grouped; each is true." in report
    assert "TENURE: values were exchanged between records" in report
    assert "STATE: as collected, in every record." in report
    assert [remark.code for remark in done.remarks].count("undone-by-later-step") >= 1
    undone = ss.undo(masked)
    assert undone.table.equals(data.table)


def test_a_later_step_with_a_small_seed_stamps_the_whole(census, tmp_path):
    masked = ss.mask(ss.read(census, identifier="HHID"), STEPS, insecure_seed=1)
    with pytest.raises(UnsafeRelease):
        ss.release(masked, tmp_path / "public", audit=tmp_path / "confidential", key=ss.Key.generate())


def test_steps_that_do_not_fit_are_named(census):
    data = ss.read(census, identifier="HHID")
    dropped = ss.Pipeline([{"step": "drop", "attributes": ["TENURE"]}, {"method": "pram", "attributes": ["INCOME"]}])
    for verb in (lambda steps: ss.mask(data, steps, key=KEY), lambda steps: ss.plan(data, steps)):
        with pytest.raises(SafeswapError) as caught:
            verb(dropped)
        assert caught.value.message.startswith("step 2 (pram): ")
    with pytest.raises(SafeswapError) as caught:
        ss.mask(data, ss.Pipeline([{"method": "swap", "swap": ["HHID"], "rate": 0.1}]), key=KEY)
    assert caught.value.code == "identifier-role"


DROP = {"step": "drop", "attributes": ["TENURE", "OCCUPATION"]}
RANGES = {"step": "ranges", "attribute": "TAXES", "breaks": [500]}


@pytest.mark.parametrize(
    ("first", "last", "done"),
    [
        (DROP, {"method": "pram", "attributes": ["TENURE"]}, "dropped 'TENURE'"),
        (DROP, {"method": "swap", "swap": ["OCCUPATION"], "rate": 0.1}, "dropped 'OCCUPATION'"),
        (DROP, {"step": "truncate", "attribute": "TENURE"}, "dropped 'TENURE'"),
        (RANGES, {"method": "noise", "attributes": ["TAXES"]}, "recoded 'TAXES'"),
    ],
)
def test_an_error_says_which_earlier_step_changed_the_column_and_how_to_mend_it(census, tmp_path, first, last, done):
    data = ss.read(census, identifier="HHID")
    between = {"method": "pram", "attributes": ["STATE"]}
    pipeline = ss.Pipeline([{**first, "name": "earlier"}, between, {**last, "name": "later"}])
    places = {"audit": tmp_path / "audit", "identifier": "HHID", "key": KEY}
    for verb in (
        lambda: ss.plan(data, pipeline),
        lambda: ss.mask(data, pipeline, key=KEY),
        lambda: ss.workflow.mask_file(census, tmp_path / "masked.parquet", pipeline, **places),
    ):
        with pytest.raises(SafeswapError) as caught:
            verb()
        error = caught.value
        assert error.message.startswith("step 3 (later): ")
        assert error.message.endswith(f"; step 1 (earlier) has {done}")
        assert error.hint.startswith("put step 3 before step 1, or leave ")
        assert (error.fields["position"], error.fields["changed_by"]) == (3, "earlier")
    assert not list(tmp_path.iterdir())


def test_the_result_does_not_depend_on_the_caller_s_type(census):
    frame = pa.table(ss.read(census, identifier="HHID").table)
    data = ss.read(frame, identifier="HHID")
    masked = ss.mask(data, STEPS, key=KEY)
    assert ss.to_frame(masked).column_names == list(data.attributes)


def test_a_plan_says_what_each_step_would_do_and_what_needs_memory(census):
    plan = ss.plan(ss.read(census, identifier="HHID"), STEPS)
    assert [name for name, _ in plan.steps] == list(STEPS.names)
    assert plan.is_feasible
    assert plan.in_memory == ("suppress", "microaggregation")
    assert "needs the file in memory: suppress, microaggregation" in plan.sentence


def test_steps_that_did_not_change_are_not_made_again(census):
    data = ss.read(census, identifier="HHID")
    masked = ss.mask(data, STEPS, key=KEY)
    changed = STEPS.edit("swap-2", rate=0.2)
    again = ss.mask(data, changed, key=KEY, known=masked)
    assert [new is old for new, old in zip(again.stages, masked.stages, strict=True)] == [True] * 5 + [False]
    assert again.data.table.equals(ss.mask(data, changed, key=KEY).data.table)
    for other in ({"key": ss.Key.insecure(seed=6)}, {"key": KEY, "replicate": 1}):
        assert ss.mask(data, changed, known=masked, **other).stages[0] is not masked.stages[0]
    rest = ss.read(census, identifier="HHID")
    assert ss.mask(rest, changed, key=KEY, known=masked).stages[0] is not masked.stages[0], "other data, if equal ones"


def test_a_chain_on_the_shipped_survey_is_told_in_full(tmp_path):
    data = ss.datasets.household_survey()
    key = ss.Key.generate()
    chain = ss.Pipeline(
        [
            {"step": "ranges", "attribute": "age", "breaks": [15, 25, 35, 45, 55, 65, 75]},
            {"method": "suppress", "keys": ["sex", "age", "marital_status", "education"], "keep": ["sex"],
             "solver": "greedy"},
            {"method": "pram", "attributes": ["education"]},
            {"method": "microaggregation", "attributes": ["income"], "k": 5},
        ]
    )  # fmt: skip
    masked = ss.mask(data, chain, key=key)
    gone = ["birth_date", "interview_date", "psu", "settlement", "municipality"]
    done = ss.release(masked, tmp_path / "public", audit=tmp_path / "confidential", key=key, drop=gone)
    report = (done.public / "report.html").read_text("utf-8")
    for title in ("Recoding", "Local suppression", "Post-randomisation", "Microaggregation"):
        assert title in report
    status = {change.column: change.status for change in masked.changes}
    assert [status[name] for name in ("age", "education", "income", "sex", "tenure")] == [
        "blanked", "perturbed", "perturbed", "unchanged", "unchanged",
    ]  # fmt: skip
    # By independent code: what the report calls true is the original, in its bands or blank.
    bands = [15, 25, 35, 45, 55, 65, 75]
    for old, new in zip(values(data, "age"), values(masked.data, "age"), strict=True):
        at = sum(int(float(old)) >= bound for bound in bands)
        low, high = ([0, *bands][at], [*bands, 200][at])
        spelled = {f"<{bands[0]}", f"{low}-{high - 1}", f">={bands[-1]}"}
        assert new is None or (new in spelled and (new != f"<{bands[0]}" or at == 0) and (new[0] != ">" or at == 7))
