"""One scenario, one figure: by every measure, before and after, against counts by hand."""

from collections import Counter
from math import ceil

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safeswap as ss
from safeswap.errors import InputError, SpecError
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario
from safeswap.model.schema import Attribute, Schema

NAMES = ("age", "sex", "town", "income")


def microdata(rows, kinds=("ordinal", "nominal", "nominal", "numeric")):
    columns = {name: [row[i] for row in rows] for i, name in enumerate(NAMES)}
    attributes = tuple(Attribute(name=name, kind=kind) for name, kind in zip(NAMES, kinds, strict=True))
    return Microdata(pa.table(columns), Schema(attributes=attributes))


ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("fm"), st.sampled_from("xyz"), st.integers(0, 3)),
    min_size=2,
    max_size=25,
)


def below(rows, places, tolerance):
    """Return the share of rows whose values in these places fewer rows share."""
    counts = Counter(tuple(row[i] for i in places) for row in rows)
    return sum(counts[tuple(row[i] for i in places)] < tolerance for row in rows) / len(rows)


@settings(deadline=None, max_examples=40)
@given(before=ROWS, data=st.data(), keys=st.sets(st.integers(0, 3), min_size=1), tolerance=st.floats(1.5, 6))
def test_before_and_after_are_counted_with_the_keys_of_the_scenario(before, data, keys, tolerance):
    after = data.draw(st.lists(st.sampled_from(before), min_size=len(before), max_size=len(before)))
    places = sorted(keys)
    scenario = Scenario(name="prosecutor", keys=[NAMES[i] for i in places], tolerance=tolerance)
    found = ss.assess(
        microdata(before), microdata(after), scenario=scenario, measures=["k_anonymity"], match="position"
    )
    low = ceil(tolerance)
    assert found["k_anonymity"].value == pytest.approx(below(after, places, low))
    assert found["k_anonymity"].before == pytest.approx(below(before, places, low))
    same = ss.assess(microdata(before), microdata(before), scenario=scenario, measures=["n_rule"], match="position")
    assert same["n_rule"].before == same["n_rule"].value == pytest.approx(below(before, places, low))
    assert {score.scenario for score in found} == {"prosecutor"}
    assert all(("income" in scenario.keys) == ("distinct value" in score.sentence) for score in found)


SURVEY = microdata([("a", "f", "x", 1), ("a", "f", "x", 2), ("b", "m", "y", 2), ("b", "f", "y", 2), ("b", "m", "z", 3)])


def drop(*names):
    spec = {"method": "recode", "steps": [{"step": "drop", "attributes": list(names)}]}
    return ss.mask(SURVEY, spec, insecure_seed=1)


def without(*names):
    kept = [name for name in NAMES if name not in names]
    schema = Schema(attributes=tuple(SURVEY.schema[name] for name in kept))
    return Microdata(SURVEY.table.select(kept), schema)


@pytest.mark.parametrize("released", [drop("town"), (SURVEY, without("town"))], ids=["emptied", "gone"])
def test_a_dropped_key_is_told_with_the_figure(released):
    files = released if isinstance(released, tuple) else (released,)
    scenario = {"name": "journalist", "keys": ["sex", "town"], "tolerance": 2}
    score = ss.assess(*files, scenario=scenario, measures=["k_anonymity"])["k_anonymity"]
    assert (score.before, score.value) == (3 / 5, 0.0)
    assert score.sentence.endswith("Without town, which is not released.")
    assert score.attributes == ("sex",)


@pytest.mark.parametrize("measure", ["k_anonymity", "n_rule", "individual_risk", "suda2", "unsafe_share"])
def test_without_any_key_the_risk_is_0(measure):
    score = ss.assess(SURVEY, without("town"), scenario={"keys": ["town"]}, measures=[measure])[measure]
    assert (score.value, score.before > 0) == (0.0, True)
    assert score.sentence == "Without town, which is not released: no key is left to find anybody by."


def test_a_banded_number_is_a_key_of_the_release():
    spec = {"method": "recode", "steps": [{"step": "ranges", "attribute": "income", "breaks": [2]}]}
    banded = ss.mask(SURVEY, spec, insecure_seed=1)
    scenario = Scenario(keys=["income"], tolerance=2)
    found = ss.assess(banded, scenario=scenario, measures=["k_anonymity", "unsafe_share"])
    assert (found["k_anonymity"].before, found["k_anonymity"].value) == (2 / 5, 1 / 5)
    assert "distinct" not in found["k_anonymity"].sentence


def test_what_a_measure_states_itself_wins_and_is_told():
    scenario = Scenario(name="prosecutor", keys=["sex", "town"], tolerance=4)
    texts = ["k_anonymity:k=2", "k_anonymity:keys=sex", "k_anonymity:keys=sex+town,k=4"]
    one, two, same = ss.assess(SURVEY, SURVEY, scenario=scenario, measures=texts)
    assert one.sentence.endswith("Set for this figure instead of by the scenario: k.")
    assert two.sentence.endswith("Set for this figure instead of by the scenario: keys.")
    assert "Stated" not in same.sentence
    assert [score.measure for score in (one, two)] == texts[:2]


def test_each_sensitive_attribute_has_its_score():
    scenario = Scenario(keys=["town"], sensitive=["sex", "income"])
    found = ss.assess(SURVEY, without("income"), scenario=scenario, measures=["l_diversity"])
    assert [(s.measure, s.value, s.before) for s in found] == [
        ("l_diversity:sensitive=sex", 3 / 5, 3 / 5),
        ("l_diversity:sensitive=income", 0.0, 3 / 5),
    ]
    assert "income, which is not released" in found["l_diversity:sensitive=income"].sentence


def test_weight_population_and_missing_values_come_from_the_scenario():
    rows = {"a": ["x", "x", None, "y"], "w": [10.0, 20.0, 30.0, 40.0]}
    data = Microdata(pa.table(rows), Schema(attributes=(Attribute(name="a"), Attribute(name="w", kind="weight"))))
    scenario = Scenario(keys=["a"], weight="w", missing="own", population=1_000)
    found = ss.assess(data, data, scenario=scenario, measures=["individual_risk:model=inverse", "suda2"])
    assert found.scores[0].value == pytest.approx((1 / 30 + 1 / 30 + 1 / 30 + 1 / 40) / 4)
    direct = ss.assess(data, data, keys=["a"], measures=["suda2:sampling_fraction=0.004,missing=own"]).scores[0]
    assert found["suda2"].detail.equals(direct.detail)
    assert found["suda2"].sentence == direct.sentence


@pytest.mark.parametrize(
    ("scenario", "code"),
    [
        ({"keys": ["job"]}, "unknown-attribute"),
        ({"keys": ["sex"], "unit": "household"}, "no-household"),
        ({}, "bad-spec"),
        ({"keys": ["sex"], "tolerance": -1}, "bad-spec"),
    ],
)
def test_a_scenario_that_cannot_be_used_is_refused(scenario, code):
    for measures in (None, ["k_anonymity"]):
        with pytest.raises(SpecError) as caught:
            ss.assess(SURVEY, SURVEY, scenario=scenario, measures=measures)
        assert caught.value.code == code


def test_the_table_shows_both_values_and_the_name():
    found = ss.assess(SURVEY, without("town"), scenario={"name": "nosy neighbour", "keys": ["sex", "town"]})
    assert "→" in repr(found)
    assert "(nosy neighbour)" in repr(found)
    assert "nosy neighbour" in found._repr_html_()
    plain = found.as_dict()["scores"][0]
    assert (plain["scenario"], plain["before"]) == ("nosy neighbour", found.scores[0].before)


def test_advice_bands_a_number_and_counts_as_the_recoded_file_does():
    from safeswap.workflow import recode, risky
    from safeswap.workflow.recode_advice import advice

    firms = ss.datasets.synthetic_enterprises(400)
    scenario = Scenario(keys=["division", "employees"], tolerance=4)
    found = [each for each in advice(firms, scenario) if "employees to" in each.step.sentence]
    assert len(found) == 1
    assert risky(recode(firms, [found[0].step]), scenario=scenario).unsafe == found[0].unsafe


def test_risky_without_any_key_left_finds_nothing():
    from safeswap.workflow import risky

    found = risky(drop("town", "sex"), scenario=Scenario(name="journalist", keys=["town", "sex"]))
    assert (found.unsafe, found.unsafe_records, found.scenario) == (0, 0, "journalist")
    assert "no key is left" in found.note
    assert "no combination of values is unsafe" in repr(found)
    assert found.to_frame("dimensions").num_rows == 0
    assert len(found.rows()) == 0


def test_a_tolerance_above_the_records_is_refused():
    from safeswap.workflow import risky

    with pytest.raises(SpecError) as caught:
        risky(SURVEY, scenario=Scenario(keys=["sex"], tolerance=6))
    assert caught.value.code == "tolerance-above-records"


def test_numbers_count_by_their_values_in_risky():
    from safeswap.workflow import risky

    found = risky(SURVEY, scenario=Scenario(keys=["income"], tolerance=2))
    assert (found.unsafe, found.unsafe_records) == (2, 2)
    with pytest.raises(SpecError) as caught:
        risky(SURVEY, keys=["income"], tolerance=2)
    assert caught.value.code == "key-not-categorical"


def test_specifications_keep_the_name_and_what_they_state_themselves():
    from safeswap import registry

    scenario = Scenario(name="prosecutor", keys=["sex", "town"], up_to=2, threshold=1)
    whole = registry.make_spec({"method": "suppress", "scenario": scenario})
    assert whole.stated() == scenario.stated()
    assert registry.make_spec(whole.as_dict()) == whole
    part = registry.make_spec({"method": "suppress", "scenario": scenario.as_dict(), "keys": ["town"]})
    assert (part.keys, part.up_to, part.threshold) == (("town",), None, 1)
    assert part.scenario == "prosecutor (with its own keys)"
    edit = registry.make_spec({"method": "edit_targeted", "scenario": scenario})
    assert (edit.keys, edit.tolerance, edit.scenario) == (("sex", "town"), 2, "prosecutor")
    swap = ss.SwapSpec(swap=["town"], rate=0.5, targeting={"scenario": scenario, "n": 4})
    assert (swap.targeting.keys, swap.targeting.n) == (("sex", "town"), 4)
    plain = ss.mask(
        SURVEY, {"method": "suppress", "keys": ["sex", "town"], "up_to": 2, "threshold": 1}, insecure_seed=1
    )
    assert ss.mask(SURVEY, whole, insecure_seed=1).data.table.equals(plain.data.table)


def test_a_weight_that_a_step_dropped_is_told_with_the_step():
    recode = {"method": "recode", "name": "tidy", "steps": [{"step": "drop", "attributes": ["income"]}]}
    swap = {"method": "swap", "swap": ["town"], "pairs": 1}
    data = microdata([("a", "f", "x", 1), ("a", "f", "y", 2), ("b", "m", "y", 2), ("b", "m", "x", 2)] * 3)
    scenario = Scenario(name="own", keys=["age", "sex"], weight="income")
    for steps, name in ((ss.Pipeline([swap, recode]), "tidy"), ({**recode}, "recode")):
        if name == "recode":
            steps.pop("name")
        masked = ss.mask(data, steps, insecure_seed=1)
        with pytest.raises(InputError) as error:
            ss.assess(masked, scenario=scenario, measures=["individual_risk"])
        assert error.value.code == "bad-weight"
        assert f"the step {name!r} drops it" in error.value.message
        with pytest.raises(InputError) as error:
            ss.assess(data, masked.data, scenario=scenario, measures=["individual_risk"], match="position")
        assert "is not in the masked file" in error.value.message


def test_a_key_that_is_a_date_counts_by_its_days_and_banded_by_its_bands():
    import datetime as dt

    from safeswap.workflow import risky

    days = [dt.date(1980 + i * i % 4 % 3, 1 + i % 4, 1 + i % 2) if i % 9 else None for i in range(60)]
    sexes = ["fm"[i * i % 7 % 2] for i in range(60)]
    data = ss.read(pa.table({"born": days, "sex": sexes}), kinds={"born": "date", "sex": "nominal"})
    scenario = ss.Scenario(name="neighbour", keys=["born", "sex"], tolerance=4, missing="own")
    banded = ss.mask(data, {"method": "recode", "steps": [{"step": "date_band", "attribute": "born"}]}, insecure_seed=1)
    years = [None if day is None else day.year for day in days]
    assert len(set(banded.data.table["born"].to_pylist())) == len(set(years)) == 3

    def count(born):
        tables = [Counter(zip(*columns, strict=True)) for columns in ((born,), (sexes,), (born, sexes))]
        unsafe = sum(number < 4 for table in tables for number in table.values())
        return unsafe, sum(tables[2][row] < 4 for row in zip(born, sexes, strict=True)) / 60

    before, after = count(days), count(years)
    assert (risky(data, scenario=scenario).unsafe, risky(banded.data, scenario=scenario).unsafe) == (
        before[0],
        after[0],
    )
    score = ss.assess(banded, scenario=scenario, measures=["k_anonymity"])["k_anonymity"]
    assert (score.before, score.value) == pytest.approx((before[1], after[1]))
    assert before != after
    told = ss.assess(data, data, scenario=scenario, measures=["k_anonymity"])["k_anonymity"].sentence
    number = len({*days} - {None})
    assert f"born is a level of its own: {number} distinct values; band it by year, quarter, month or age." in told
    found = ss.study(data, attributes=["sex"], rates=[0.2], scenario=scenario, risk=["k_anonymity"], insecure_seed=1)
    assert found.facts["before"]["k_anonymity"] == pytest.approx(before[1])
