"""Plans, refusals and the audit of swapping, on examples small enough to count by hand."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.arrays.matching_cases import seven_columns

from safeswap import datasets
from safeswap.arrays import keyed, matching, sparse
from safeswap.errors import InfeasibleError, SpecError
from safeswap.methods import exchange
from safeswap.methods.swap import Swap
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.spec import Plan, SwapSpec, Targeting
from safeswap.on_disk.audit_record import read_audit_record, write_audit

KEY = Key(bytes(range(32)))


def microdata(kinds: dict[str, Kind] | None = None, **columns: Any) -> Microdata:
    known = {"id": Kind.IDENTIFIER, **(kinds or {})}
    attributes = tuple(Attribute(name=name, kind=known.get(name, Kind.NOMINAL)) for name in columns)
    return Microdata(pa.table(columns), Schema(name="small", attributes=attributes))


def plan(data: Microdata, **parameters: Any) -> Plan:
    return Swap().plan(data, SwapSpec(**parameters))


def swap(data: Microdata, *, key: Key = KEY, replicate: int = 0, **parameters: Any) -> Masked:
    return Swap().apply(data, SwapSpec(**parameters), key=key, replicate=replicate)


def refusal(data: Microdata, **parameters: Any) -> InfeasibleError | SpecError:
    with pytest.raises((InfeasibleError, SpecError)) as caught:
        swap(data, **parameters)
    return caught.value


FAMILY = microdata(
    id=pa.array(range(10)),
    Sex=pa.array(["f", "f", "f", "f", "f", "f", "m", "m", "m", "m"]),
    Race=pa.array(["a", "a", "a", "b", "b", "b", "a", "a", "a", "a"]),
    Age=pa.array([1, 1, 1, 1, 2, 2, 2, 2, 2, 2]),
)


def test_the_maximum_is_half_the_records_or_all_but_the_largest_class() -> None:
    assert plan(FAMILY, swap=["Sex"], pairs=1).feasible == 4
    assert plan(FAMILY, swap=["Race"], pairs=1).feasible == 3
    assert plan(FAMILY, swap=["Age"], pairs=1).feasible == 4


def test_strata_are_counted_one_by_one() -> None:
    # Of the six women three are b; all men are a.
    assert plan(FAMILY, swap=["Race"], fixed=["Sex"], pairs=1).feasible == 3
    assert plan(FAMILY, swap=["Sex"], fixed=["Race"], pairs=1).feasible == 3
    assert plan(FAMILY, swap=["Age"], fixed=["Sex"], pairs=1).feasible == 2


def test_attributes_that_must_differ_are_counted_together() -> None:
    # Race and Sex both differ only between the three women of b and the four men of a.
    assert plan(FAMILY, swap=["Race"], differ=["Sex"], pairs=1).feasible == 3
    assert plan(FAMILY, swap=["Race", "Sex"], true_swap="all", pairs=1).feasible == 3
    assert plan(FAMILY, swap=["Race", "Sex"], true_swap="any", pairs=1).feasible == 5


def test_a_plan_that_suffices_says_no_more() -> None:
    found = plan(FAMILY, swap=["Race"], fixed=["Sex"], pairs=3)
    assert found.is_feasible
    assert (found.binds, found.relaxations) == ((), ())


def test_a_shortfall_says_what_binds_and_the_cheapest_change_first() -> None:
    error = refusal(FAMILY, swap=["Age"], fixed=["Sex"], differ=["Race"], pairs=3)
    assert isinstance(error, InfeasibleError)
    assert (error.fields["asked"], error.fields["feasible"]) == (3, 2)
    assert error.fields["binds"] == ["Sex"]
    # Without Sex: two of (a, 1) with (b, 2) and (b, 1) with (a, 2); without Race: two still.
    assert error.fields["relaxations"] == [
        {"change": "no longer hold Sex fixed", "feasible": 3},
        {"change": "no longer require Race to differ", "feasible": 2},
        {"change": "ask for at most 2 pairs (rate 0.4 of 10 records)", "feasible": 2},
    ]
    assert error.message == "3 pairs requested, at most 2 feasible; Sex binds"
    assert error.hint.startswith("no longer hold Sex fixed; or ask for at most 2 pairs")
    assert 'on_shortfall="take"' in error.hint
    assert "Race" not in error.hint  # it would not help


def test_relaxing_one_stage_is_not_enough_where_another_stays_short() -> None:
    # One after the other: Race alone allows 3 pairs within Sex, Age 2; without Sex 3 and 4, so 3 for both.
    error = refusal(FAMILY, swap=["Race", "Age"], fixed=["Sex"], mode="sequential", pairs=4)
    changes = {r["change"]: r["feasible"] for r in error.fields["relaxations"]}
    assert error.fields["feasible"] == 2
    assert changes["no longer hold Sex fixed"] == 3
    assert changes["do not swap Age"] == 3
    assert changes["do not swap Race"] == 2


def test_where_records_are_too_few_nothing_else_binds() -> None:
    numbers = microdata(id=pa.array(range(5)), x=pa.array(range(5)))
    error = refusal(numbers, swap=["x"], pairs=3)
    assert (error.fields["feasible"], error.fields["binds"]) == (2, [])


def test_the_swap_attribute_itself_can_bind() -> None:
    assert refusal(FAMILY, swap=["Race"], pairs=4).fields["binds"] == ["Race"]


def test_the_rate_that_is_proposed_can_be_had() -> None:
    # 0.6000016 rounded to six digits is 0.600002, which asks for a pair too many of five million records.
    shares = (3_499_996, 1_500_004)
    data = microdata(x=pa.array(np.repeat(np.arange(2, dtype=np.int8), shares)))
    found = plan(data, swap=["x"], rate=1.0)
    assert found.feasible == 1_500_004
    rate = float(found.relaxations[-1].change.split("(rate ")[1].split(" ")[0])
    assert 1_499_990 < SwapSpec(swap=["x"], rate=rate).pairs_for(sum(shares)) <= 1_500_004


def test_taking_what_there_is_says_so_in_the_audit() -> None:
    masked = swap(FAMILY, swap=["Race"], pairs=10**30, on_shortfall="take")
    assert (masked.audit.asked, masked.audit.feasible, masked.audit.made) == (10**30, 3, 3)


def test_a_uniform_pass_that_falls_short_says_how_many_it_gave() -> None:
    data = datasets.cps8d()
    error = refusal(data, swap=["Race"], pairs=7_080, pairing="uniform")
    assert error.code == "uniform-shortfall"
    assert error.fields["maximum"] == 7_080
    assert 5_500 < error.fields["feasible"] < 6_600  # 24,421 pairs of which 24.8% are true swaps
    assert swap(data, swap=["Race"], pairs=7_080).audit.made == 7_080


@pytest.mark.parametrize(
    "column",
    [pa.array(["a"] * 4), pa.array([None] * 4, pa.string()), pa.DictionaryArray.from_arrays([1] * 4, ["unused", "a"])],
)
def test_a_constant_attribute_is_refused_as_such(column: pa.Array) -> None:
    data = microdata(id=pa.array(range(4)), x=column)
    error = refusal(data, swap=["x"], pairs=1, on_shortfall="take")
    assert (error.code, error.fields["attribute"]) == ("constant-attribute", "x")
    assert swap(data, swap=["x"], pairs=0).audit.made == 0


def test_missing_in_a_fixed_attribute_is_a_value_of_its_own() -> None:
    data = microdata(id=pa.array(range(4)), x=pa.array(["a", "b", "a", "b"]), town=pa.array([None, None, "t", "u"]))
    masked = swap(data, swap=["x"], fixed=["town"], pairs=1)
    assert sorted(masked.audit.exchanges[0].pairs[0].tolist()) == [0, 1]
    assert plan(data, swap=["x"], fixed=["town"], pairs=1).feasible == 1


def test_missing_differs_from_every_value_and_not_from_missing() -> None:
    data = microdata(id=pa.array(range(4)), x=pa.array(["a", "b", "a", "b"]), town=pa.array([None, None, None, "t"]))
    assert plan(data, swap=["x"], differ=["town"], pairs=1).feasible == 1
    pair = swap(data, swap=["x"], differ=["town"], pairs=1).audit.exchanges[0].pairs[0].tolist()
    assert 3 in pair
    # A swap between missing and present is a true one.
    assert plan(data, swap=["town"], pairs=1).feasible == 1


def test_unknown_attributes_and_the_identifier_have_no_role() -> None:
    assert refusal(FAMILY, swap=["Rac"], pairs=1).code == "unknown-attribute"
    assert refusal(FAMILY, swap=["Race"], fixed=["Rac"], pairs=1).code == "unknown-attribute"
    for roles in ({"swap": ["id"]}, {"swap": ["Race"], "fixed": ["id"]}, {"swap": ["Race"], "differ": ["id"]}):
        assert refusal(FAMILY, pairs=1, **roles).code == "identifier-role"
    targeting = Targeting(keys=("id",))
    assert refusal(FAMILY, swap=["Race"], pairs=1, targeting=targeting).code == "identifier-role"


def test_targeting_needs_something_to_tell_risk_by() -> None:
    data = microdata({"x": Kind.NUMERIC}, id=pa.array(range(4)), x=pa.array([1.5, 2.5, 3.5, 4.5]))
    assert refusal(data, swap=["x"], pairs=1, targeting=Targeting()).code == "no-key-variables"
    assert swap(data, swap=["x"], pairs=1, targeting=Targeting(keys=("x",))).audit.made == 1


def test_no_refusal_holds_a_value_of_a_record() -> None:
    canary = "canary-4711"
    data = microdata(
        id=pa.array([f"{canary}-{i}" for i in range(6)]),
        x=pa.array([canary, canary, canary, canary, canary, "other canary-4711"]),
        y=pa.array([canary, f"{canary}!", None, canary, canary, canary]),
    )
    for spec in (
        {"swap": ["x"], "pairs": 3},
        {"swap": ["x", "y"], "true_swap": "all", "pairs": 3},
        {"swap": ["x"], "fixed": ["y"], "pairs": 2},
        {"swap": ["y"], "pairs": 2, "pairing": "uniform", "key": Key.insecure(seed=2)},
    ):
        error = refusal(data, **spec)
        assert canary not in f"{error} {error.hint} {error.as_dict()!r}"


def test_the_audit_names_the_key_the_algorithm_and_the_spec_and_holds_no_secret() -> None:
    masked = swap(FAMILY, swap=["Race"], pairs=2, replicate=3)
    audit = masked.audit
    assert (audit.method, audit.algorithm, audit.replicate) == ("swap", keyed.ALGORITHM, 3)
    assert (audit.key_id, audit.releasable) == (KEY.id, True)
    assert audit.spec == {"method": "swap", "swap": ["Race"], "pairs": 2}
    assert (audit.records, audit.data_name) == (10, "small")
    assert KEY.secret.hex() not in repr(vars(audit))
    assert repr(KEY.secret) not in repr(vars(audit))


def test_specs_of_one_replicate_share_their_order() -> None:
    # So that candidates of a study compare like with like: more pairs begin with those that fewer have.
    few = swap(FAMILY, swap=["Age"], pairs=1).audit.exchanges[0].pairs.tolist()
    many = swap(FAMILY, swap=["Age"], pairs=2).audit.exchanges[0].pairs.tolist()
    assert many[:1] == few


def test_the_pairs_of_a_key_never_change_while_the_algorithm_has_this_name() -> None:
    # If this fails, files made by an earlier version can no longer be made again: give the algorithm a new name.
    assert keyed.ALGORITHM == "safeswap-draw-1"
    data = datasets.cps8d()
    plain = swap(data, swap=["Race", "AnnSal"], fixed=["Sex"], rate=0.05)
    completed = swap(data, swap=["Race"], pairs=6_400)  # all pairs of one pass, and some more
    repaired = swap(data, swap=["Age"], pairs=15_000)  # the last pairs of one pass stand in the way
    targeted = swap(data, swap=["Age"], rate=0.02, targeting=Targeting(keys=("Age", "Edu"), n=5))
    digests = [
        hashlib.sha256(m.audit.exchanges[0].pairs.astype("<i8").tobytes()).hexdigest()[:16]
        for m in (plain, completed, repaired, targeted)
    ]
    assert digests == ["2e887d2d04c4fac8", "ce621b66774cfd72", "857fe9b59c9c5178", "68f1931be5d02375"]


def test_compensating_records_are_counted() -> None:
    # Two records that differ in the swapped attribute alone: both change, the table does not.
    twins = microdata(id=pa.array([1, 2]), x=pa.array(["a", "b"]), y=pa.array(["s", "s"]))
    assert swap(twins, swap=["x"], pairs=1).audit.compensating == 2
    others = microdata(id=pa.array([1, 2]), x=pa.array(["a", "b"]), y=pa.array(["s", "t"]))
    assert swap(others, swap=["x"], pairs=1).audit.compensating == 0


@pytest.mark.parametrize("areas", [3, 50, 5_000])
@pytest.mark.parametrize("multiplier", [sparse.MULTIPLIER, 0])  # 0: different values have one word
def test_compensating_records_are_counted_among_those_alike_in_a_large_file(
    monkeypatch: pytest.MonkeyPatch, areas: int, multiplier: int
) -> None:
    monkeypatch.setattr(exchange, "is_worth_compiling", lambda _: True)
    monkeypatch.setattr(sparse, "MULTIPLIER", multiplier)
    rng = np.random.default_rng(areas)
    columns = {
        "area": pa.array(rng.integers(-areas, areas, 4_000)),  # whole numbers, text and missing values
        "job": pa.array([None if x == 4 else f"job {x}" for x in rng.integers(0, 5, 4_000)]),
        "sex": pa.array(rng.choice(["f", "m"], 4_000)).dictionary_encode(),
        "x": pa.array(rng.integers(0, 3, 4_000)),
    }
    data = microdata(**columns)
    masked = swap(data, swap=["x"], rate=0.5)
    before, after = (list(zip(*d.table.to_pydict().values(), strict=True)) for d in (data, masked.data))
    moved = sum(was != now for was, now in zip(before, after, strict=True))
    assert masked.audit.compensating == moved - (Counter(after) - Counter(before)).total()


def seven_attributes() -> Microdata:
    return microdata(**{f"v{j}": pa.array(column) for j, column in enumerate(seven_columns().T)})


ALL_SEVEN = {"swap": [f"v{j}" for j in range(7)], "true_swap": "all", "rate": 1.0}


def test_the_maximum_among_hundreds_of_classes_is_planned_and_drawn() -> None:
    data = seven_attributes()
    assert (plan(data, **ALL_SEVEN).feasible, plan(data, **ALL_SEVEN).at_most) == (350, None)
    assert swap(data, **ALL_SEVEN).audit.made == 350


def test_a_maximum_that_is_not_proved_is_told_as_a_range_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "_WORK", 0)
    data = seven_attributes()
    found = plan(data, **ALL_SEVEN)
    assert found.feasible < 350 == found.at_most
    assert not found.is_feasible
    assert f"at least {found.feasible} and at most 350 feasible" in found.sentence
    error = refusal(data, **ALL_SEVEN)
    assert (error.fields["feasible"], error.fields["at_most"]) == (found.feasible, 350)
    assert error.fields["relaxations"][-1] == found.relaxations[-1].as_dict()
    assert error.fields["relaxations"][-1]["at_most"] == 350
    for relaxation in found.relaxations:
        if relaxation.at_most is None:
            assert relaxation.feasible == 350
    assert found.binds == tuple(ALL_SEVEN["swap"])  # no constraint was shown to cost a pair
    taken = swap(data, **ALL_SEVEN, on_shortfall="take")
    assert found.feasible <= taken.audit.made == taken.audit.feasible <= taken.audit.at_most == 350
    assert taken.as_dict()["at_most"] == 350
    write_audit(taken, tmp_path, row_order=np.arange(700), notes={})
    assert read_audit_record(tmp_path).audit.at_most == 350


def test_minus_zero_is_not_another_number_than_zero() -> None:
    x = pa.array([0.0, -0.0, -0.0, 0.0, 1.5])
    data = microdata(id=pa.array(range(5)), x=x)
    assert plan(data, swap=["x"], pairs=1).feasible == 1
    for pairing in ("repaired", "uniform"):
        masked = swap(data, swap=["x"], pairs=2, pairing=pairing, on_shortfall="take", key=Key.insecure(seed=4))
        assert all(4 in pair for pair in masked.audit.exchanges[0].pairs.tolist())
    zeros = microdata(id=pa.array(range(4)), x=pa.array([0.0, -0.0, -0.0, 0.0]), y=pa.array(list("abab")))
    assert plan(zeros, swap=["x"], pairs=1).feasible == 0
    assert plan(zeros, swap=["y"], differ=["x"], pairs=1).feasible == 0


def test_an_attribute_may_be_swapped_and_have_to_differ() -> None:
    data = datasets.cps8d()
    spec = {"swap": ["Race", "AnnSal"], "differ": ["Race"], "rate": 0.1}
    masked = swap(data, **spec)
    a, b = masked.audit.exchanges[0].pairs.T
    race = data.coded("Race").codes
    assert (race[a] != race[b]).all()
    assert (data.coded("AnnSal").codes[a] == data.coded("AnnSal").codes[b]).any()
    assert plan(data, **spec).feasible == 7_080
    with pytest.raises(SpecError, match="two roles"):
        SwapSpec(swap=["Race"], fixed=["Race"], rate=0.1)
    with pytest.raises(SpecError, match="named twice"):
        SwapSpec(swap=["Race"], differ=["Sex", "Sex"], rate=0.1)


def test_uniform_pairs_with_a_fixed_attribute_are_neighbours_in_one_order_of_all_records() -> None:
    data = datasets.cps8d()
    masked = swap(data, swap=["Race"], fixed=["Sex"], rate=1.0, pairing="uniform", on_shortfall="take")
    pairs = masked.audit.exchanges[0].pairs
    free = swap(data, swap=["Race"], rate=1.0, pairing="uniform", on_shortfall="take").audit.exchanges[0].pairs
    sex = data.coded("Sex").codes
    same = free[sex[free[:, 0]] == sex[free[:, 1]]]
    assert pairs.tolist() == same.tolist()
