import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hand_made import apply_by_hand, audit_of, masked_by, masked_survey, survey, true_pairs

from safeswap.model.audit import Exchange, undo
from safeswap.model.invariant import (
    ChangedRecords,
    DisjointPairs,
    KeptMargin,
    PairsAgree,
    PairsDiffer,
    ReplaysFromAudit,
    SameRows,
    UntouchedColumns,
    verify,
)
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema


def holds(invariant, masked: Masked) -> bool:
    finding = invariant.check(masked.original, masked.data, masked.audit)
    assert finding.ok == (finding.problem == "")
    return finding.ok


def with_cell(data: Microdata, name: str, row: int, value: object) -> Microdata:
    column = data.table.column(name)
    values = column.to_pylist()
    values[row] = value
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    table = data.table.set_column(data.table.column_names.index(name), name, pa.array(values, kind))
    return Microdata(table, data.schema)


def tampered(masked: Masked, name: str, row: int, value: object) -> Masked:
    data = with_cell(masked.data, name, row, value)
    return Masked(original=masked.original, data=data, spec=masked.spec, plan=masked.plan, audit=masked.audit)


EVERYTHING = (
    SameRows(),
    UntouchedColumns(("id", "household", "Sex", "Age", "Town", "Income")),
    *(KeptMargin((name,)) for name in ("Race", "Sex", "Age", "Town", "Income")),
    DisjointPairs(),
    PairsDiffer(("Race",), "all"),
    ChangedRecords(),
    ReplaysFromAudit(),
)


def test_all_promises_hold_for_an_honest_swap():
    masked = masked_survey()
    findings = verify(EVERYTHING, before=masked.original, after=masked.data, audit=masked.audit)
    assert [f.problem for f in findings] == [""] * len(EVERYTHING)
    assert all(f.ok and f.sentence for f in findings)


@pytest.mark.parametrize("layout", ["chunks", "text", "other dictionary", "copied"])
def test_promises_do_not_depend_on_how_the_columns_are_laid_out(layout):
    masked = masked_survey()
    table = masked.data.table
    if layout == "chunks":
        table = pa.concat_tables([table.slice(0, 7), table.slice(7, 100), table.slice(107)])
    elif layout == "text":
        table = table.set_column(2, "Race", table.column("Race").cast(pa.string()))
    elif layout == "other dictionary":
        levels = pa.array(["never", *sorted(set(table.column("Race").to_pylist()))])
        codes = pa.array([levels.to_pylist().index(v) for v in table.column("Race").to_pylist()], pa.int32())
        table = table.set_column(2, "Race", pa.DictionaryArray.from_arrays(codes, levels))
    else:
        table = table.take(pa.array(range(len(table))))
    after = Microdata(table, masked.data.schema)
    findings = verify(EVERYTHING, before=masked.original, after=after, audit=masked.audit)
    assert [f.problem for f in findings] == [""] * len(EVERYTHING)


def test_one_changed_value_breaks_the_promise_about_its_column():
    masked = tampered(masked_survey(), "Age", 11, None)
    assert not holds(UntouchedColumns(("Sex", "Age")), masked)
    assert not holds(KeptMargin(("Age",)), masked)
    assert not holds(ReplaysFromAudit(), masked)
    assert holds(UntouchedColumns(("Sex", "Town")), masked)
    assert holds(KeptMargin(("Race",)), masked)


@pytest.mark.parametrize(("row", "value"), [(1, 0.0), (2, -0.0), (0, 1.0), (0, None)])
def test_signed_zero_nan_and_missing_are_told_apart(row, value):
    assert not holds(UntouchedColumns(("Income",)), tampered(masked_survey(), "Income", row, value))


def test_nan_equals_itself_and_missing_equals_missing():
    data = survey()
    data = with_cell(data, "Income", 5, None)
    copied = Microdata(data.table.take(pa.array(range(len(data)))), data.schema)
    finding = UntouchedColumns(data.attributes).check(data, copied, audit_of(data))
    assert finding.ok


def test_a_column_of_another_type_counts_as_changed():
    masked = masked_survey()
    table = masked.data.table.set_column(3, "Sex", masked.data.table.column("Sex").cast(pa.int32()))
    finding = UntouchedColumns(("Sex",)).check(masked.original, Microdata(table, masked.data.schema), masked.audit)
    assert not finding.ok


def test_a_joint_margin_is_kept_only_where_pairs_agree():
    data = survey()
    agree = masked_by(data, Exchange(attributes=("Race",), pairs=true_pairs(data, "Race", ["Sex", "Town"])))
    free = masked_survey(data)
    assert holds(KeptMargin(("Race", "Sex", "Town")), agree)
    assert holds(PairsAgree(("Sex", "Town")), agree)
    assert not holds(KeptMargin(("Race", "Sex", "Town")), free)
    assert not holds(PairsAgree(("Sex", "Town")), free)


def test_margin_counts_missing_as_a_value_of_its_own():
    masked = masked_survey(swap="Town")
    assert masked.original.table.column("Town").null_count > 0
    assert holds(KeptMargin(("Town",)), masked)
    missing = masked.data.table.column("Town").to_pylist().index(None)
    assert not holds(KeptMargin(("Town",)), tampered(masked, "Town", missing, "town 1"))


def test_a_record_in_two_pairs_is_found():
    data = survey()
    once = true_pairs(data, "Race")
    twice = np.vstack([once, [[once[0, 0], once[1, 1]]]])
    itself = np.vstack([once[1:], [[once[0, 0], once[0, 0]]]])
    for pairs in (twice, itself):
        audit = audit_of(data, Exchange(attributes=("Race",), pairs=pairs))
        assert not DisjointPairs().check(data, data, audit).ok
    two_stages = [Exchange(attributes=(name,), pairs=once) for name in ("Race", "Town")]
    assert DisjointPairs().check(data, data, audit_of(data, *two_stages)).ok


@pytest.mark.parametrize("row", [-1, 400])
def test_rows_outside_the_file_fail_every_promise(row):
    data = survey()
    audit = audit_of(data, Exchange(attributes=("Race",), pairs=np.array([[0, row]])))
    assert not any(f.ok for f in verify(EVERYTHING, before=data, after=data, audit=audit))


def test_differ_reads_any_and_all():
    data = survey()
    rows = data.table.select(["Race", "Sex"]).to_pylist()
    partner = next(i for i, r in enumerate(rows) if r["Race"] != rows[0]["Race"] and r["Sex"] == rows[0]["Sex"])
    masked = masked_by(data, Exchange(attributes=("Race", "Sex"), pairs=np.array([[0, partner]])))
    assert holds(PairsDiffer(("Race", "Sex"), "any"), masked)
    assert not holds(PairsDiffer(("Race", "Sex"), "all"), masked)
    assert holds(ChangedRecords(), masked)


def test_a_pair_of_equal_values_is_no_true_swap():
    data = survey()
    races = data.table.column("Race").to_pylist()
    partner = races.index(races[0], 1)
    masked = masked_by(data, Exchange(attributes=("Race",), pairs=np.array([[0, partner]])))
    assert not holds(ChangedRecords(), masked)
    assert not holds(PairsDiffer(("Race",)), masked)
    assert holds(ReplaysFromAudit(), masked)


def test_differing_attributes_that_are_not_exchanged_count_in_every_stage():
    data = survey()
    pairs = true_pairs(data, "Race", ["Sex"])
    masked = masked_by(data, Exchange(attributes=("Race",), pairs=pairs), Exchange(attributes=("Town",), pairs=pairs))
    assert not holds(PairsDiffer(("Sex",), "all"), masked)
    assert holds(PairsDiffer(("Race",), "all"), masked)


def test_stages_are_judged_by_the_values_just_before_them():
    data = survey()
    pairs = true_pairs(data, "Race")[:4]
    # The second stage puts the first back: seen from outside nothing has changed, stage by stage all has.
    twice = [Exchange(attributes=("Race",), pairs=pairs)] * 2
    masked = masked_by(data, *twice)
    assert masked.data.table["Race"].equals(data.table["Race"])
    assert holds(ChangedRecords(), masked)
    assert holds(PairsDiffer(("Race",), "all"), masked)
    assert holds(ReplaysFromAudit(), masked)


def test_sequential_stages_change_two_records_per_pair_each():
    data = survey()
    stages = [Exchange(attributes=(n,), pairs=true_pairs(data, n, seed=s)) for s, n in enumerate(("Race", "Town"))]
    masked = masked_by(data, *stages)
    assert holds(ChangedRecords(), masked)
    assert holds(PairsDiffer(("Race", "Town"), "all"), masked)
    assert holds(ReplaysFromAudit(), masked)


def test_an_audit_that_leaves_out_a_pair_does_not_replay():
    masked = masked_survey()
    short = audit_of(masked.original, Exchange(attributes=("Race",), pairs=masked.audit.exchanges[0].pairs[1:]))
    assert not ReplaysFromAudit().check(masked.original, masked.data, short).ok
    assert not ChangedRecords().check(masked.original, masked.data, short).ok


def test_shuffled_or_lost_records_are_found():
    masked = masked_survey()
    shuffled = Microdata(masked.data.table.take(pa.array([1, 0, *range(2, 400)])), masked.data.schema)
    lost = Microdata(masked.data.table.slice(1), masked.data.schema)
    renamed = Microdata(
        masked.data.table.rename_columns(["id", "household", "Race", "Sex", "Age", "Town", "Pay"]),
        Schema(attributes=(*masked.data.schema.attributes[:-1], Attribute(name="Pay"))),
    )
    for after in (shuffled, lost, renamed):
        assert not SameRows().check(masked.original, after, masked.audit).ok


def test_findings_hold_no_value_of_a_record():
    masked = tampered(tampered(masked_survey(), "Town", 3, "a secret place"), "Age", 4, "a secret age")
    masked = tampered(masked, "id", 5, 1)
    promises = (*EVERYTHING, PairsAgree(("Town", "Age")), PairsDiffer(("Sex",), "all"))
    findings = verify(promises, before=masked.original, after=masked.data, audit=masked.audit)
    text = " ".join(f.problem for f in findings)
    values = {str(v) for c in masked.original.table.columns for v in c.to_pylist() if len(str(v)) > 2}
    assert sum(not f.ok for f in findings) >= 6
    assert "secret" not in text
    assert not [v for v in values if v in text]


def test_users_are_told_only_of_columns_they_see():
    assert KeptMargin(("Race", "Ward")).for_users_of(("Race", "Sex")) == KeptMargin(("Race",))
    assert UntouchedColumns(("Ward", "Sex")).for_users_of(("Race", "Sex")) == UntouchedColumns(("Sex",))
    assert KeptMargin(("Ward",)).for_users_of(("Race",)) is None
    assert PairsAgree(("Race",)).for_users_of(("Race",)) is None


@given(st.data())
def test_undo_gives_back_what_any_exchanges_made(data):
    records = data.draw(st.integers(2, 30))
    before = survey(max(records, 4))
    names = ("Race", "Town", "Income")
    stages = []
    for _ in range(data.draw(st.integers(1, 4))):
        order = data.draw(st.permutations(range(len(before))))
        count = data.draw(st.integers(0, len(before) // 2))
        pairs = np.array(order[: 2 * count], dtype=np.int64).reshape(-1, 2)
        stages.append(Exchange(attributes=tuple(data.draw(st.sets(st.sampled_from(names), min_size=1))), pairs=pairs))
    after = apply_by_hand(before, *stages)
    audit = audit_of(before, *stages)
    assert ReplaysFromAudit().check(before, after, audit).ok
    assert UntouchedColumns(before.attributes).check(before, undo(after, audit), audit).ok
    for name in names:
        assert KeptMargin((name,)).check(before, after, audit).ok


@given(st.data())
def test_margins_are_recounted_right(data):
    values = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=6, max_size=6)
    columns = [{"x": data.draw(values), "y": data.draw(values)} for _ in range(2)]
    schema = Schema(attributes=(Attribute(name="x"), Attribute(name="y")))
    before, after = (
        Microdata(pa.table(c, schema=pa.schema([("x", pa.string()), ("y", pa.string())])), schema) for c in columns
    )
    for names in (("x",), ("y",), ("x", "y")):
        counts = [sorted(map(str, zip(*(c[n] for n in names), strict=True))) for c in columns]
        assert KeptMargin(names).check(before, after, audit_of(before)).ok == (counts[0] == counts[1])
