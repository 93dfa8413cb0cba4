"""The Confidentiality Edit of 1990: who is sampled, who changes places with whom, what stays and what is told."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import safeswap as ss
from safeswap import datasets, registry
from safeswap.errors import InfeasibleError, InputError, SpecError
from safeswap.methods.edit_1990.areas import expected_moved, household_areas
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.model.invariant import verify
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

GEOGRAPHY = datasets.CENSUS_GEOGRAPHY
KEYS = datasets.CENSUS_KEYS
SPEC = Edit1990Spec(
    keys=KEYS, geography=GEOGRAPHY, across="PLACE", rate=0.02, small_block_units=6, small_block_rate=0.2
)
KEY = ss.Key(bytes(range(32)))


@pytest.fixture(scope="module")
def census():
    return datasets.synthetic_census(40_000)


@pytest.fixture(scope="module")
def masked(census):
    return ss.mask(census, SPEC, key=KEY)


def rows_of(data, names, rows=None):
    table = data.table.select(list(names))
    columns = [c.to_pylist() for c in (table if rows is None else table.take(pa.array(rows))).columns]
    return list(zip(*columns, strict=True))


def all_promises_hold(masked):
    promises = registry.method("edit_1990").invariants(masked.original, masked.spec)
    findings = verify(promises, before=masked.original, after=masked.data, audit=masked.audit)
    return [finding for finding in findings if not finding.ok] == []


def households(**columns):
    """A small file: columns named in lower case are keys, the others levels of the geography from coarse to fine."""
    number = len(next(iter(columns.values())))
    attributes = [Attribute(name="id", kind=Kind.IDENTIFIER)]
    for name in columns:
        kind = Kind.ORDINAL if name.islower() else Kind.GEOGRAPHY
        attributes.append(Attribute(name=name, kind=kind))
    return Microdata(pa.table({"id": list(range(100, 100 + number)), **columns}), Schema(attributes=tuple(attributes)))


def spec_of(data, **stated):
    names = data.schema.categorical
    levels = tuple(name for name in names if not name.islower())
    keys = tuple(name for name in names if name.islower())
    return Edit1990Spec(**{"keys": keys, "geography": levels, "rate": 1.0, **stated})


def test_every_promise_holds(masked):
    assert all_promises_hold(masked)


@pytest.mark.parametrize("level", GEOGRAPHY)
def test_in_every_area_the_counts_by_the_keys_are_exactly_as_before(masked, level):
    before, after = (Counter(rows_of(data, (level, *KEYS))) for data in (masked.original, masked.data))
    assert before == after


def test_nothing_but_the_geography_below_the_state_changes(masked):
    for name in masked.original.attributes:
        same = masked.original.table[name].equals(masked.data.table[name])
        assert same == (name not in ("COUNTY", "PLACE", "TRACT", "BLOCK"))


def test_codes_move_together(masked):
    addresses = Counter(rows_of(masked.original, GEOGRAPHY))
    assert Counter(rows_of(masked.data, GEOGRAPHY)) == addresses


def test_the_two_of_a_pair_have_one_key_one_state_and_two_places(masked):
    pairs = masked.audit.exchanges[0].pairs
    assert len(np.unique(pairs)) == pairs.size
    one, other = (rows_of(masked.original, ("STATE", *KEYS), pairs[:, side]) for side in (0, 1))
    assert one == other
    places = masked.original.table["PLACE"].to_numpy()[pairs]
    assert (places[:, 0] != places[:, 1]).all()


def test_every_sampled_household_is_accounted_for(masked):
    facts = masked.audit.facts
    assert facts["matched_in_sample"] + facts["matched_outside"] + facts["unmatched"] == facts["sampled"]
    assert masked.audit.made == facts["matched_in_sample"] // 2 + facts["matched_outside"]
    assert masked.audit.asked - masked.audit.made == facts["unmatched"]
    assert facts["match_rate"] == 1 - facts["unmatched"] / facts["sampled"]
    assert facts["match_rate"] > 0.95
    assert f"{facts['sampled']:,} of 40,000 households sampled" in masked.plan.sentence


def test_households_are_sampled_in_every_state_and_more_often_in_small_blocks():
    data = datasets.synthetic_census(150_000)
    facts = ss.mask(data, SPEC, key=KEY).audit.facts
    blocks = data.table["BLOCK"].to_numpy()
    _, inverse, sizes = np.unique(blocks, return_inverse=True, return_counts=True)
    small = int((sizes[inverse] < 6).sum())
    assert facts["small_blocks"] == int((sizes < 6).sum())
    assert abs(facts["sampled_in_small_blocks"] / small - 0.2) < 5 * np.sqrt(0.2 * 0.8 / small)
    rest = len(data) - small
    assert abs((facts["sampled"] - facts["sampled_in_small_blocks"]) / rest - 0.02) < 5 * np.sqrt(0.02 / rest)


def test_who_is_sampled_does_not_depend_on_anybody_else(census):
    whole = ss.mask(census, SPEC.replace(small_block_units=0, small_block_rate=None), key=KEY)
    other = Microdata(census.table, census.schema)
    again = ss.mask(other, SPEC.replace(small_block_units=0, small_block_rate=None, across="COUNTY"), key=KEY)
    assert whole.audit.facts["sampled"] == again.audit.facts["sampled"]


def test_the_order_of_the_rows_plays_no_part(census, masked):
    rows = np.random.default_rng(1).permutation(len(census))
    shuffled = ss.mask(Microdata(census.table.take(pa.array(rows)), census.schema), SPEC, key=KEY)
    assert shuffled.data.table.combine_chunks().equals(masked.data.table.take(pa.array(rows)).combine_chunks())
    assert (rows[shuffled.audit.exchanges[0].pairs] == masked.audit.exchanges[0].pairs).all()


def test_identifiers_as_text_give_the_same_result(census, masked):
    position = census.attributes.index("HHID")
    text = census.table["HHID"].cast(pa.string())
    as_text = Microdata(census.table.set_column(position, "HHID", text), census.schema)
    assert (ss.mask(as_text, SPEC, key=KEY).audit.exchanges[0].pairs == masked.audit.exchanges[0].pairs).all()


def test_undone_it_gives_the_file_before(census, masked):
    assert ss.undo(masked).table.equals(census.table)


def test_levels_within_and_across_can_be_chosen(census):
    masked = ss.mask(census, SPEC.replace(within="COUNTY", across="TRACT", single_areas="leave"), key=KEY)
    assert all_promises_hold(masked)
    assert masked.audit.exchanges[0].attributes == ("PLACE", "TRACT", "BLOCK")
    within = masked.audit.facts["pairs_within"]
    assert within["STATE"] == within["COUNTY"] == masked.audit.made
    assert 0 < within["PLACE"] < masked.audit.made
    assert within["TRACT"] == within["BLOCK"] == 0


def test_the_state_may_be_named_among_the_keys(census, masked):
    named = ss.mask(census, SPEC.replace(keys=("STATE", *KEYS)), key=KEY)
    assert (named.audit.exchanges[0].pairs == masked.audit.exchanges[0].pairs).all()
    assert all_promises_hold(named)


def test_codes_that_count_anew_in_each_area_are_taken_as_local(census, masked):
    digits = {"COUNTY": 1000, "PLACE": 1000, "TRACT": 10_000, "BLOCK": 10_000}
    table = census.table
    for name, base in digits.items():
        local = pa.array((table[name].to_numpy() % base).astype(np.int16))
        table = table.set_column(table.column_names.index(name), name, local)
    local = Microdata(table, census.schema)
    with pytest.raises(SpecError) as refused:
        ss.mask(local, SPEC, key=KEY)
    assert refused.value.code == "geography-not-nested"
    found = ss.mask(local, SPEC.replace(geography_codes="local"), key=KEY)
    assert (found.audit.exchanges[0].pairs == masked.audit.exchanges[0].pairs).all()
    assert found.audit.facts["pairs_within"] == masked.audit.facts["pairs_within"]
    assert all_promises_hold(found)


def test_the_diagnosis_says_which_key_is_in_the_way():
    data = households(State=[1, 1, 1, 1, 1], Place=[1, 2, 1, 2, 2], persons=[2, 2, 3, 3, 5], adults=[1, 1, 1, 2, 2])
    facts = ss.mask(data, spec_of(data), key=KEY).audit.facts
    assert facts["unmatched"] == 3
    told = {each["change"]: each["more"] for each in facts["diagnosis"]}
    assert told["drop adults"] == 2
    assert told["drop persons"] == 0
    assert facts["diagnosis"][0] == {"key": "adults", "change": "drop adults", "more": 2}


def test_coarser_keys_are_tried_by_order_and_by_hierarchy():
    data = households(State=[1] * 4, Place=[1, 2, 1, 2], persons=[2, 3, 7, 9], race=["a", "b", "c", "d"])
    parent = ({"a": "x", "b": "x"},)
    race = Attribute(name="race", kind=Kind.NOMINAL, hierarchy=parent)
    data = Microdata(data.table, data.schema.replace(race))
    spec = spec_of(data)
    facts = ss.mask(data, spec, key=KEY).audit.facts
    assert {each["change"]: each["more"] for each in facts["diagnosis"]} == {
        "drop persons": 0,
        "coarsen persons, neighbouring categories in twos": 0,
        "drop race": 0,
        "coarsen race to its parent categories": 0,
    }
    alike = households(State=[1] * 4, Place=[1, 2, 1, 2], persons=[2, 3, 7, 9])
    found = ss.mask(alike, spec_of(alike), key=KEY).audit.facts["diagnosis"]
    assert {each["change"]: each["more"] for each in found} == {
        "drop persons": 4,
        "coarsen persons, neighbouring categories in twos": 4,
    }
    alone = Microdata(data.table.drop_columns(["persons"]), Schema(attributes=(*data.schema.attributes[:3], race)))
    found = ss.mask(alone, spec_of(alone), key=KEY).audit.facts["diagnosis"]
    assert {each["change"]: each["more"] for each in found}["coarsen race to its parent categories"] == 2


def test_the_diagnosis_agrees_with_dropping_the_key(census):
    """Households left alone that drop a key find as many partners as by hand, among those nobody uses."""
    spec = SPEC.replace(small_block_units=0, small_block_rate=None, rate=0.05)
    masked = ss.mask(census, spec, key=KEY)
    told = {each["change"]: each["more"] for each in masked.audit.facts["diagnosis"]}
    assert masked.audit.facts["unmatched"] > 20
    from safeswap.arrays import keyed
    from safeswap.methods.edit_1990.areas import draw_limit
    from safeswap.model.microdata import record_identity

    derived = keyed.derive(KEY.secret, "data", census.schema.name, len(census), "edit_1990", "sample", 0)
    draws = keyed.draws(keyed.integer_blocks(record_identity(census, bytes(32))), derived)
    used = set(masked.audit.exchanges[0].pairs.ravel().tolist())
    alone = [row for row in np.flatnonzero(draws < draw_limit(spec.rate)).tolist() if row not in used]
    assert len(alone) == masked.audit.facts["unmatched"]
    free = [row for row in range(len(census)) if row not in used and row not in set(alone)]
    for name in ("ADULTS", "TRAILER", "WHITE"):
        kept = ("STATE", *(key for key in KEYS if key != name))
        keys = dict(enumerate(rows_of(census, kept)))
        places = census.table["PLACE"].to_pylist()
        most = 0
        for key in {keys[row] for row in alone}:
            own = [row for row in alone if keys[row] == key]
            others = {places[row] for row in (*own, *(row for row in free if keys[row] == key))}
            # An upper bound that is reached as a rule: everyone whose key occurs in another place.
            most += sum(len(others - {places[row]}) > 0 for row in own)
        assert told[f"drop {name}"] <= most
        assert most - told[f"drop {name}"] <= 2


def test_unmatched_households_can_be_an_error(census):
    with pytest.raises(InfeasibleError) as refused:
        ss.mask(census, SPEC.replace(on_unmatched="error"), key=KEY)
    error = refused.value
    assert error.code == "unmatched"
    assert error.fields["unmatched"] > 0
    assert "drop ADULTS" in error.hint


def test_a_state_with_one_place_is_refused_with_what_would_work():
    data = households(State=[1, 1, 1, 2, 2], Place=[1, 2, 1, 3, 3], Tract=[1, 2, 3, 4, 5], persons=[1] * 5)
    for attempt in (lambda: ss.mask(data, spec_of(data), key=KEY), lambda: ss.plan(data, spec_of(data))):
        with pytest.raises(InfeasibleError) as refused:
            attempt()
        assert refused.value.code == "single-area"
        assert refused.value.fields["areas"] == 1
        assert refused.value.fields["households"] == 2
        assert "exchange across Tract" in refused.value.hint
    across = ss.mask(data, spec_of(data, across="Tract"), key=KEY)
    assert across.audit.facts["unmatched"] == 1  # three households of the first state
    left = ss.mask(data, spec_of(data, single_areas="leave"), key=KEY)
    assert left.audit.made == 1
    assert left.audit.facts["single_areas"] == 1
    assert all_promises_hold(left)


def test_a_state_with_one_household_works():
    data = households(State=[1, 1, 2], Place=[1, 2, 3], persons=[4, 4, 4])
    masked = ss.mask(data, spec_of(data), key=KEY)
    assert masked.audit.made == 1
    assert masked.audit.facts["unmatched"] == 1
    assert masked.data.table["Place"].to_pylist() == [2, 1, 3]


def test_levels_without_households_work():
    data = households(State=[1, 1, 1, 1], Place=["a", "b", "a", "b"], persons=["1", "1", "2", "2"])
    dictionary = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2, 0], pa.int8()), ["b", "nowhere", "a", "nobody"])
    table = data.table.set_column(2, "Place", dictionary)
    masked = ss.mask(Microdata(table, data.schema), spec_of(data), key=KEY)
    assert masked.audit.made == 2
    assert masked.data.table["Place"].to_pylist() == ["b", "a", "b", "a"]
    assert all_promises_hold(masked)


def test_one_household_and_no_household_work():
    for number in (0, 1):
        data = households(State=[1] * number, Place=[1] * number, persons=[1] * number)
        table = data.table.cast(pa.schema([(name, pa.int64()) for name in data.attributes]))
        masked = ss.mask(Microdata(table, data.schema), spec_of(data), key=KEY)
        assert masked.audit.made == 0
        assert masked.audit.facts["sampled"] == number
        assert all_promises_hold(masked)


def test_a_key_that_is_not_categorical_is_refused(census):
    for name, code in (("INCOME", "key-not-categorical"), ("HHID", "key-not-categorical")):
        with pytest.raises(SpecError) as refused:
            ss.mask(census, SPEC.replace(keys=(*KEYS, name)), key=KEY)
        assert refused.value.code == code
    with pytest.raises(SpecError) as refused:
        ss.mask(census, SPEC.replace(geography=("STATE", "PLACE", "INCOME")), key=KEY)
    assert refused.value.code == "not-geography"
    with pytest.raises(SpecError) as refused:
        ss.mask(census, SPEC.replace(keys=("NOBODY",)), key=KEY)
    assert refused.value.code == "unknown-attribute"


def test_levels_that_do_not_nest_are_refused(census):
    with pytest.raises(SpecError) as refused:
        ss.mask(census, SPEC.replace(geography=("STATE", "PLACE", "COUNTY"), across="COUNTY"), key=KEY)
    assert refused.value.code == "geography-not-nested"
    assert refused.value.fields["coarse"] == "PLACE"


def test_missing_keys_are_refused_or_taken_as_a_value():
    data = households(State=[1] * 4, Place=[1, 2, 1, 2], persons=[None, None, 3, 3])
    with pytest.raises(InputError) as refused:
        ss.mask(data, spec_of(data), key=KEY)
    assert refused.value.code == "missing-keys"
    assert refused.value.fields["records"] == {"persons": 2}
    assert ss.mask(data, spec_of(data, missing_keys="level"), key=KEY).audit.made == 2
    coded = Microdata(data.table, data.schema.replace(Attribute(name="persons", kind=Kind.ORDINAL, missing=("3",))))
    with pytest.raises(InputError) as refused:
        ss.mask(coded, spec_of(coded), key=KEY)
    assert refused.value.fields["records"] == {"persons": 4}


def test_a_missing_place_is_refused():
    data = households(State=[1] * 4, Place=[1, 2, None, 2], persons=[3] * 4)
    with pytest.raises(InputError) as refused:
        ss.mask(data, spec_of(data), key=KEY)
    assert refused.value.code == "missing-geography"


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_an_identifier_that_repeats_is_refused(kind):
    data = households(State=[1] * 4, Place=[1, 2, 1, 2], persons=[3] * 4)
    table = data.table.set_column(0, "id", pa.array([7, 8, 9, 7]).cast(kind))
    with pytest.raises(InputError) as refused:
        ss.mask(Microdata(table, data.schema), spec_of(data), key=KEY)
    assert refused.value.code == "duplicate-identifier"
    assert "7" not in str(refused.value)


def test_a_household_with_several_records_is_refused():
    data = households(State=[1] * 4, Place=[1, 2, 1, 2], persons=[3] * 4)
    table = data.table.append_column("hh", pa.array([1, 1, 2, 3]))
    schema = Schema(attributes=(*data.schema.attributes, Attribute(name="hh", kind=Kind.HOUSEHOLD)))
    with pytest.raises(InputError) as refused:
        ss.mask(Microdata(table, schema), spec_of(data), key=KEY)
    assert refused.value.code == "household-repeats"


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"keys": ()}, "keys"),
        ({"keys": ("persons", "persons")}, "twice"),
        ({"geography": ("State",)}, "geography"),
        ({"within": "Nowhere"}, "not a level"),
        ({"within": "Block"}, "nothing is left to exchange"),
        ({"within": "Place", "across": "State"}, "finer"),
        ({"keys": ("persons", "Place")}, "cannot be a key"),
        ({"rate": 1.5}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"small_block_units": 5}, "belong together"),
        ({"small_block_rate": 0.5}, "belong together"),
        ({"small_block_units": 5, "small_block_rate": 0.001}, "higher rate"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(stated, words):
    sound = {"keys": ("persons",), "geography": ("State", "Place", "Block"), "rate": 0.01}
    with pytest.raises(SpecError) as refused:
        Edit1990Spec(**{**sound, **stated})
    assert words in str(refused.value)


def test_the_plan_tells_how_many_can_have_a_partner(census):
    plan = ss.plan(census, SPEC)
    masked = [ss.mask(census, SPEC, key=KEY, replicate=i).audit.facts for i in range(5)]
    sampled = np.mean([facts["sampled"] for facts in masked])
    unmatched = np.mean([facts["unmatched"] for facts in masked])
    assert abs(plan.asked - sampled) < 4 * np.sqrt(sampled / 5)
    assert 0.4 * unmatched < plan.asked - plan.feasible < 2 * unmatched + 3
    assert plan.binds == ("ADULTS",)
    assert plan.relaxations[0].change == "drop ADULTS"
    assert plan.feasible < plan.relaxations[0].feasible <= plan.asked
    assert f"about {plan.asked:,} of 40,000 households" in plan.sentence


def test_a_plan_that_nothing_stands_against_says_so():
    data = households(State=[1] * 4, Place=[1, 2, 1, 2], persons=[3] * 4)
    plan = ss.plan(data, spec_of(data))
    assert plan.is_feasible
    assert plan.sentence == (
        "about 4 of 4 households will be sampled; for each of them the same key occurs in another Place of the State; "
        "about 4 households (100.00%) will move, partners included"
    )


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.4])
def test_the_plan_counts_the_households_that_move_with_their_partners(census, rate):
    spec = SPEC.replace(rate=rate, small_block_rate=0.5)
    plan = ss.plan(census, spec)
    moved = np.mean([ss.mask(census, spec, key=KEY, replicate=i).audit.touched().sum() for i in range(4)])
    assert plan.moved > plan.feasible
    assert abs(plan.moved - moved) < 4 * np.sqrt(moved)
    assert f"about {plan.moved:,} households ({plan.moved / 40_000:.2%}) will move, partners included" in plan.sentence


def test_the_number_that_will_move_is_that_of_a_brute_force_over_all_samples():
    data = households(State=[1] * 6, Place=[1, 1, 1, 2, 2, 3], persons=[3, 3, 3, 3, 3, 4])
    rate, area = 0.3, [1, 1, 1, 2, 2]
    expected = 0.0
    for sample in range(2**5):
        inside = [area[i] for i in range(5) if sample >> i & 1]
        outside = [area[i] for i in range(5) if not sample >> i & 1]
        graph = nx.Graph([((0, i), (0, j)) for i, a in enumerate(inside) for j, b in enumerate(inside) if a < b])
        pairs = len(nx.max_weight_matching(graph, maxcardinality=True))
        left = Counter(inside).most_common(1)[0][0] if inside else 0
        alone = len(inside) - 2 * pairs
        placed = min(alone, sum(a != left for a in outside))
        expected += rate ** len(inside) * (1 - rate) ** len(outside) * 2 * (pairs + placed)
    spec = spec_of(data).replace(rate=rate)
    assert expected_moved(household_areas(data, spec), spec) == pytest.approx(expected, abs=0.5)


def test_it_stands_on_the_risk_utility_map_beside_swaps(census):
    from safeswap.model.study import StudySpec
    from safeswap.studies.run import run_study

    data = Microdata(census.table.slice(0, 5_000), census.schema)
    candidates = tuple(SPEC.replace(rate=rate, single_areas="leave").as_dict() for rate in (0.02, 0.2))
    question = StudySpec(
        attributes=("TENURE",), rates=(0.1,), others=candidates, keys=("PLACE", "ADULTS", "TENURE", "OCCUPATION")
    )
    study = run_study(data, question, key=KEY)
    assert len(study) == 3
    assert study.rejected().num_rows == 0
    _, small, large = study.scores("hellinger").tolist()
    assert 0 < small < large


def test_a_release_is_verified_and_its_audit_record_holds_the_facts(census, tmp_path):
    from safeswap.on_disk.audit_record import read_audit

    key = ss.Key.generate()
    masked = ss.mask(Microdata(census.table.slice(0, 3_000), census.schema), SPEC, key=key)
    published = ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=key, data_format="parquet")
    assert all(finding.ok for finding in published.findings)
    assert ss.verify(published.public).records == 3_000
    audit = read_audit(published.audit)
    assert dict(audit.facts) == dict(masked.audit.facts)
    report = (published.public / "report.html").read_text()
    assert "BLOCK" in report
    assert "sampled" not in report


def test_specifications_survive_as_plain_values():
    assert registry.make_spec(SPEC.as_dict()) == SPEC


def test_no_household_is_named_in_what_is_told(masked):
    spoken = f"{masked!r} {masked.plan.sentence} {dict(masked.audit.facts)} {masked.as_dict()}"
    assert "array" not in spoken
    assert all(isinstance(v, (int, float, list, dict)) for v in masked.audit.facts.values())
