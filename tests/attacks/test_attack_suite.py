"""Attacks on maskings and bundles, what they are judged by, and the gate of a release."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.hand_made import masked_by

import safeswap as ss
from safeswap.attacks.base import Attacked, Outcome, Setting, advantage_of, wilson
from safeswap.attacks.inference import Votes
from safeswap.attacks.run import ATTACKS, DEFAULT_LIMITS, ReleasePolicy, read_policy, run_attacks
from safeswap.errors import InputError, SpecError, UnsafeRelease
from safeswap.model.audit import Exchange
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.model.score import Comparison

KEY = Key(bytes(range(32)))


def make(columns: dict[str, Any], **kinds: str) -> Microdata:
    names = tuple(Attribute(name=name, kind=kinds.get(name, "nominal")) for name in columns)
    return Microdata(pa.table({name: pa.array(values) for name, values in columns.items()}), Schema(attributes=names))


def people(records: int = 240, seed: int = 1) -> Microdata:
    """Persons with three keys of many levels, a sensitive value, a number that is all different, and a home."""
    rng = np.random.default_rng(seed)
    homes = np.repeat(np.arange(records // 4), 4)
    region = np.repeat(rng.integers(0, 3, records // 4), 4)
    return make(
        {
            "id": np.arange(records),
            "home": homes,
            "region": region,
            "area": region * 4 + np.repeat(rng.integers(0, 4, records // 4), 4),
            "a": rng.integers(0, 8, records),
            "b": rng.integers(0, 8, records),
            "ill": rng.choice(5, records, p=[0.5, 0.2, 0.1, 0.1, 0.1]),
            "number": rng.permutation(records) * 1.5,
            "w": 10.0 + region,
        },
        id="identifier",
        home="household",
        region="geography",
        area="geography",
        number="numeric",
        w="weight",
    )


SCENARIO = {"keys": ["a", "b"], "sensitive": ["ill"]}


def attacked(masked: Masked, name: str, **more: Any) -> Outcome:
    return ss.attack(masked, attacks=[name], **more)[name]


def permuted(data: Microdata, *swap: str, key: Key = KEY, p: float = 1.0) -> Masked:
    steps = [{"method": "swap_permutation", "swap": [name], "probability": p} for name in swap]
    if len(steps) == 1:
        return ss.mask(data, steps[0], key=key)
    return ss.mask(data, ss.Pipeline(steps), key=key)


def exchanged(data: Microdata, names: tuple[str, ...], pairs: Any) -> Masked:
    return masked_by(data, Exchange(attributes=names, pairs=np.asarray(pairs)))


def random_pairs(records: int, number: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).permutation(records)[: 2 * number].reshape(-1, 2)


def whole_homes(data: Microdata) -> list[tuple[int, int]]:
    """Pairs of persons by which whole homes of four change places."""
    homes = np.arange(len(data)).reshape(-1, 4)
    return [
        (a, b) for one, other in zip(homes[::2], homes[1::2], strict=False) for a, b in zip(one, other, strict=True)
    ]


def test_keys_that_stay_are_found_and_keys_that_move_are_not() -> None:
    fine = make({"a": np.arange(100), "b": np.arange(100) % 3, "ill": np.arange(100) % 5})
    weak = attacked(ss.swap(fine, swap=["b"], rate=0.1, key=KEY), "linkage", scenario={"keys": ["a"]})
    assert weak.advantage == 1
    assert weak.detail["precision_on_uniques"] == 1
    safe = attacked(permuted(fine, "a"), "linkage", scenario={"keys": ["a"]})
    assert safe.success == 0
    assert safe.detail["claimed_true"] == 0


def test_a_sensitive_value_that_stays_with_unique_keys_is_told() -> None:
    rng = np.random.default_rng(2)
    data = make({"a": np.arange(300), "b": rng.integers(0, 4, 300), "ill": rng.integers(0, 5, 300)})
    weak = ss.swap(data, swap=["b"], rate=0.2, key=KEY)
    scenario = {"keys": ["a"], "sensitive": ["ill"]}
    assert attacked(weak, "attribute_inference", scenario=scenario).advantage > 0.9
    safe = attacked(permuted(data, "ill"), "attribute_inference", scenario=scenario)
    assert safe.advantage < 0.1


def test_a_number_is_learned_from_one_that_is_near() -> None:
    """Noise of a thousandth hides no income, though hardly any is exactly as it was."""
    rng = np.random.default_rng(3)
    numbers = {"a": np.arange(200), "pay": np.exp(rng.normal(8, 1, 200))}
    masked = ss.mask(make(numbers, pay="numeric"), {"method": "noise", "attributes": ["pay"], "size": 0.001}, key=KEY)
    found = attacked(masked, "attribute_inference", scenario={"keys": ["a"], "sensitive": ["pay"]})
    assert found.advantage > 0.9
    assert "pay is guessed within 5%" in found.sentence


@pytest.mark.parametrize("seed", range(6))
def test_sensitive_values_are_guessed_as_by_hand(seed: int) -> None:
    """Of persons who have a value: by the most frequent one of their keys, or by the median within 5%."""
    rng = np.random.default_rng(seed)
    pay = [
        None if gap else float(value) for gap, value in zip(rng.random(90) < 0.3, rng.integers(0, 12, 90), strict=True)
    ]
    ill = [
        None if gap else "?xyz"[code] for gap, code in zip(rng.random(90) < 0.2, rng.integers(0, 4, 90), strict=True)
    ]
    kinds = (Attribute(name="a"), Attribute(name="pay", kind="numeric"), Attribute(name="ill", missing=("?",)))
    data = Microdata(pa.table({"a": rng.integers(0, 9, 90), "pay": pay, "ill": ill}), Schema(attributes=kinds))
    masked = ss.swap(data, swap=["pay" if seed % 2 else "ill"], rate=0.4, key=KEY)
    name, is_near = ("ill", False) if seed % 2 == 0 else ("pay", True)
    found = attacked(masked, "attribute_inference", scenario={"keys": ["a"], "sensitive": [name]})
    keys, truth = ([*data.table.column(each).to_pylist()] for each in ("a", name))
    seen = masked.data.table.column(name).to_pylist()
    outcomes = []
    for near in (False, True) if is_near else (False,):
        asked = [row for row in range(90) if truth[row] not in (None, "?")]
        rates = []
        for own in (True, False):
            right = 0.0
            for row in asked:
                others = [seen[r] for r in range(90) if keys[r] == keys[row] and (own or r != row)]
                known = [value for value in others if value not in (None, "?")]
                known = known or [value for value in seen if value not in (None, "?")]
                if near:
                    guess = sorted(known)[(len(known) - 1) // 2]
                    right += abs(guess - truth[row]) <= 0.05 * abs(truth[row])
                else:
                    most = max(known.count(value) for value in known)
                    best = {value for value in known if known.count(value) == most}
                    right += (truth[row] in best) / len(best)
            rates.append(right / len(asked))
        outcomes.append((advantage_of(*rates), *rates, len(asked)))
    assert (found.advantage, found.success, found.baseline, found.trials) == pytest.approx(max(outcomes))


def test_without_any_value_there_is_nothing_to_learn() -> None:
    kinds = (Attribute(name="a"), Attribute(name="b"), Attribute(name="pay", kind="numeric"))
    empty = pa.array([None] * 40, pa.float64())
    data = Microdata(pa.table({"a": [*range(40)], "b": [0, 1] * 20, "pay": empty}), Schema(attributes=kinds))
    masked = ss.swap(data, swap=["b"], rate=0.2, key=KEY)
    found = ss.attack(
        masked, scenario={"keys": ["a"], "sensitive": ["pay"]}, attacks=["attribute_inference"], earlier=[]
    )
    assert [each.reason for each in found.skipped] == ["no sensitive value is known"]
    few = ss.assess(
        masked, measures=["best_attack:attacks=attribute_inference"], scenario={"keys": ["a"], "sensitive": ["pay"]}
    )
    assert few["best_attack:attacks=attribute_inference"].sentence.startswith("No attack could be tried.")


def test_attacks_with_too_few_guesses_are_not_called_untried() -> None:
    data = make({"a": np.arange(12), "b": np.arange(12) % 3})
    score = ss.assess(ss.swap(data, swap=["b"], rate=0.5, key=KEY), measures=["best_attack"], scenario={"keys": ["a"]})
    assert score["best_attack"].sentence.startswith("No attack had enough guesses to be conclusive; the largest advan")


def test_descriptions_that_occur_once_fit_one_person_unless_the_values_moved() -> None:
    data = people(400)
    weak = ss.swap(data, swap=["region", "area"], rate=0.1, key=KEY)
    scenario = {"keys": ["a", "b", "ill"]}
    assert attacked(weak, "singling_out", scenario=scenario).success == 1
    assert attacked(weak, "singling_out", scenario=scenario).advantage > 0.5


def test_mates_tell_unless_the_home_moves_as_a_whole() -> None:
    data = people()
    weak = attacked(exchanged(data, ("region", "area"), random_pairs(240, 20)), "household_mates")
    assert weak.advantage > 0.8
    assert attacked(exchanged(data, ("region", "area"), whole_homes(data)), "household_mates").advantage < 0.1


def test_a_smaller_area_tells_a_larger_one_unless_both_move() -> None:
    data = people()
    pairs = whole_homes(data)[:80]
    assert attacked(exchanged(data, ("region",), pairs), "geography_nesting").advantage > 0.5
    assert attacked(exchanged(data, ("region", "area"), pairs), "geography_nesting").advantage < 0.1


def test_a_weight_tells_its_stratum_unless_it_moves_too() -> None:
    data, pairs = people(), random_pairs(240, 30)
    weak = attacked(exchanged(data, ("region", "area"), pairs), "weights")
    assert weak.detail["attribute"] == "region"
    assert weak.advantage > 0.8
    safe = attacked(exchanged(data, ("region", "area", "w"), pairs), "weights")
    assert safe.advantage < 0.1


def test_rules_name_the_swapped_where_only_a_swap_breaks_them() -> None:
    age = np.arange(400) % 80
    married = np.where(age < 16, "no", np.where(np.arange(400) % 3 == 0, "yes", "no"))
    data = make({"age": age, "married": married}, age="numeric")
    rules = [{"age": {"max": 15}, "married": ["yes"]}]
    weak = ss.swap(data, swap=["married"], rate=0.5, key=KEY)
    found = attacked(weak, "edit_rules", rules=rules)
    assert found.success == 1
    assert found.advantage == 1
    harmless = attacked(weak, "edit_rules", rules=[{"age": {"min": 16}, "married": ["no"]}])
    assert harmless.interval[0] < 0.1


def test_an_untouched_number_joins_and_a_moved_one_does_not() -> None:
    data = people()
    weak = ss.swap(data, swap=["a"], rate=0.2, key=KEY)
    assert attacked(weak, "distinct_numbers").advantage == 1
    assert attacked(permuted(data, "number"), "distinct_numbers").success == 0


def test_untouched_attributes_outside_the_keys_are_a_fingerprint() -> None:
    data = make({"a": np.arange(200) % 2, "b": np.arange(200), "c": np.arange(200) % 7})
    weak = attacked(ss.swap(data, swap=["a"], rate=0.3, key=KEY), "unusual_combinations", scenario={"keys": ["a"]})
    assert weak.advantage == 1
    few = make({"a": np.arange(200), "b": np.arange(200) % 2})
    safe = attacked(ss.swap(few, swap=["a"], rate=0.3, key=KEY), "unusual_combinations", scenario={"keys": ["a"]})
    assert safe.advantage < 0.02


def test_pairs_that_occur_once_name_the_swapped() -> None:
    kind = np.arange(2000) % 100
    tied = make({"u": kind, "v": kind + 1000})
    found = attacked(ss.swap(tied, swap=["v"], rate=0.05, key=KEY), "swapped_records")
    assert found.success == 1
    assert found.trials > 50


def test_a_small_seed_is_found_and_a_secret_key_is_not() -> None:
    data = make({"s": np.arange(300) % 2, "v": np.arange(300) % 7})
    spec: dict[str, Any] = {"swap": ["v"], "fixed": ["s"], "rate": 0.5}
    assert attacked(ss.swap(data, **spec, insecure_seed=7), "seed_search").success == 1
    assert attacked(ss.swap(data, **spec, key=KEY), "seed_search").success < 0.5


def test_a_deterministic_edit_is_replayed_and_a_keyed_one_is_not() -> None:
    rng = np.random.default_rng(9)
    data = make(
        {"k": rng.integers(0, 60, 400), "x": rng.normal(size=400), "y": rng.normal(size=400)}, x="numeric", y="numeric"
    )
    spec = {"method": "edit_targeted", "keys": ["k"], "exchange": "continuous", "tolerance": 8}
    weak = attacked(ss.mask(data, {**spec, "variant": "letter"}, key=KEY), "replay")
    safe = attacked(ss.mask(data, spec, key=KEY), "replay")
    assert weak.advantage > 0.9
    assert safe.advantage < weak.advantage / 2


def test_several_releases_tell_more_than_one() -> None:
    data = people()
    one, two, three = (ss.swap(data, swap=["a"], rate=0.3, key=Key(bytes([n]) * 32)) for n in (1, 2, 3))
    assert attacked(one, "several_releases", earlier=[two, three]).advantage > 0.4
    assert attacked(one, "several_releases", earlier=[one]).success == 0


def test_rows_in_their_order_are_found_out(tmp_path: Path) -> None:
    masked = ss.swap(people(), swap=["a"], rate=0.2, key=KEY)
    setting = Setting(comparison=Comparison(before=masked.original, after=masked.data, attributes=()))
    sorted_rows = run_attacks(replace(setting, order=np.arange(240)), ["row_order"])["row_order"]
    mixed = run_attacks(replace(setting, order=np.random.default_rng(1).permutation(240)), ["row_order"])["row_order"]
    assert sorted_rows.advantage == 1
    assert mixed.interval[0] < 0.1


def release(tmp_path: Path, masked: Masked | None = None, **terms: Any) -> Any:
    masked = masked or ss.swap(people(), swap=["a"], rate=0.2, key=KEY)
    drop = ["home", "region", "area", "w"]
    tmp_path.mkdir(exist_ok=True)
    return ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=KEY, drop=drop, **terms)


def test_a_bundle_is_attacked_alone_and_with_its_record(tmp_path: Path) -> None:
    done = release(tmp_path)
    alone = ss.attack(done.public)
    assert [outcome.attack for outcome in alone] == ["bundle_traces"]
    assert alone["bundle_traces"].success == 0
    judged = ss.attack(done.public, people(), audit=done.audit, scenario=SCENARIO)
    assert {"linkage", "row_order", "attribute_inference"} <= {outcome.attack for outcome in judged}
    assert judged["row_order"].interval[0] < 0.1
    with pytest.raises(InputError) as refused:
        ss.attack(done.public, people())
    assert refused.value.code == "no-audit"
    os.utime(done.public / "data.csv", (0, 0))
    assert ss.attack(done.public)["bundle_traces"].success == 1


def test_small_counts_are_derived_where_margins_tell_them() -> None:
    data = make({"r": ["x"] * 5 + ["y"] * 15, "s": ["p"] * 1 + ["q"] * 4 + ["p"] * 6 + ["q"] * 9})
    masked = ss.swap(data, swap=["s"], fixed=["r"], pairs=1, true_swap="any", key=KEY)
    assert attacked(masked, "published_tables", tables=[["r", "s"]]).success == 1


def test_every_release_is_attacked_and_the_record_keeps_the_table(tmp_path: Path) -> None:
    done = release(tmp_path, scenario=SCENARIO)
    names = {each.outcome.attack for each in done.attacks}
    assert {"linkage", "swapped_records", "row_order"} <= names
    notes = json.loads((done.audit / "audit.json").read_text("utf-8"))["notes"]
    assert {row["attack"] for row in notes["attacks"]} == names
    assert {"success", "baseline", "advantage", "interval", "allowed"} <= set(notes["attacks"][0])
    public = b"".join(path.read_bytes() for path in done.public.iterdir())
    assert b"linkage" not in public


def test_above_the_policy_a_release_is_refused_until_an_officer_says_why(tmp_path: Path) -> None:
    policy = {"limits": {"distinct_numbers": 0.2}}
    with pytest.raises(UnsafeRelease) as refused:
        release(tmp_path, policy=policy)
    assert refused.value.code == "attack-above-policy"
    assert refused.value.fields["attacks"][0]["attack"] == "distinct_numbers"
    assert not list(tmp_path.iterdir())
    done = release(tmp_path, policy=policy, override="The number is public anyway.")
    assert [each.outcome.attack for each in done.attacks if each.is_above] == ["distinct_numbers"]


def test_the_gate_takes_earlier_releases_from_the_ledger(tmp_path: Path) -> None:
    one, two, three = (ss.swap(people(), swap=["a"], rate=0.5, key=Key(bytes([n]) * 32)) for n in (1, 2, 3))
    assert ss.attack(one, attacks=["several_releases"]).skipped[0].reason.startswith("needs earlier releases")
    first = release(tmp_path / "one", one)
    assert "several_releases" not in {each.outcome.attack for each in first.attacks}
    alone = ss.attack(two, attacks=["several_releases"])["several_releases"]
    stated = ss.attack(two, attacks=["several_releases"], earlier=[one])["several_releases"]
    assert alone.as_dict() == stated.as_dict()
    assert ss.attack(two, attacks=["several_releases"], earlier=[]).skipped
    release(tmp_path / "two", two, second_release="on purpose")
    last = release(tmp_path / "three", three, second_release="on purpose")
    found = {each.outcome.attack: each.outcome for each in last.attacks}["several_releases"]
    assert found.as_dict() == ss.attack(three, attacks=["several_releases"], earlier=[one, two])[found.attack].as_dict()
    assert found.interval[0] > 0.2
    # An earlier release of other records tells nothing of these.
    other = ss.swap(people(seed=5), swap=["a"], rate=0.5, key=KEY)
    assert ss.attack(other, attacks=["several_releases"]).skipped
    with pytest.raises(InputError) as refused:
        ss.attack(one, earlier=[people(200)])
    assert refused.value.code == "files-differ"


def test_a_record_that_differs_between_releases_is_named_and_counted_as_by_hand() -> None:
    rng = np.random.default_rng(8)
    for _ in range(20):
        data = make({"a": rng.integers(0, 4, 60), "b": rng.integers(0, 5, 60)})
        now, then = (exchanged(data, ("a",), random_pairs(60, int(rng.integers(4, 25)), seed)) for seed in (1, 2))
        found = attacked(now, "several_releases", earlier=[then])
        truth, one, two = (each.table["a"].to_pylist() for each in (data, now.data, then.data))
        differ = [i for i in range(60) if one[i] != two[i]]
        changed = [i for i in range(60) if one[i] != truth[i]]
        named = sum(i in changed for i in differ) / len(differ)
        votes = np.mean([0.5 if two[i] == truth[i] else 0.0 for i in changed])
        success = {"naming anyone": named, "the most frequent value": votes}[found.against]
        assert found.success == pytest.approx(success)


def test_the_gate_looks_at_the_bundle_that_is_about_to_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safeswap.releases import publish

    done = release(tmp_path / "good")
    assert {each.outcome.attack: each.outcome.success for each in done.attacks}["bundle_traces"] == 0
    write = publish.fill_bundle

    def write_late(*given: Any, **more: Any) -> Any:
        bundle = write(*given, **more)
        os.utime(bundle.directory / "data.csv", (0, 0))
        return bundle

    monkeypatch.setattr(publish, "fill_bundle", write_late)
    with pytest.raises(UnsafeRelease) as refused:
        release(tmp_path / "bad", second_release="on purpose")
    assert refused.value.code == "attack-above-policy"
    assert refused.value.fields["attacks"][0]["attack"] == "bundle_traces"
    assert not (tmp_path / "bad" / "public").exists()


def test_members_whose_household_is_not_released_do_not_stand_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    columns = {"home": np.arange(240) // 4, "town": rng.integers(0, 9, 60).repeat(4), "ill": rng.integers(0, 5, 240)}
    kinds = {"home": "household", "town": "nominal", "ill": "nominal"}
    names = tuple(Attribute(name=name, kind=kinds[name], household=name == "town") for name in columns)
    data = Microdata(pa.table({name: pa.array(values) for name, values in columns.items()}), Schema(attributes=names))
    masked = ss.swap(data, swap=["ill"], rate=0.5, key=KEY)
    for drop, together in (([], True), (["home"], False)):
        folder = tmp_path / str(together)
        folder.mkdir()
        where = {"audit": folder / "audit", "key": KEY, "drop": drop, "second_release": "on purpose"}
        done = ss.release(masked, folder / "public", **where)
        towns = [line.split(",")[-2] for line in (done.public / "data.csv").read_text("utf-8").splitlines()[1:]]
        alike = sum(one == other for one, other in pairwise(towns)) / 239
        assert (alike > 0.7) == together, alike


def test_parquet_that_tells_of_programs_and_sorted_blocks_is_found_out(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    data = people()
    setting = Setting(
        comparison=Comparison(before=data, after=data, attributes=()),
        bundle=tmp_path,
        order=np.random.default_rng(3).permutation(240),
    )
    mixed = data.table.take(pa.array(setting.order))
    for table, number in ((mixed, 0), (mixed.replace_schema_metadata({"pandas": "{}"}), 1), (data.table, 2)):
        pq.write_table(table, tmp_path / "data.parquet", row_group_size=60)
        traces = run_attacks(setting, ["bundle_traces"])["bundle_traces"].detail["traces"]
        assert len(traces) == number, traces  # sorted by record and by home


def test_new_identifiers_that_number_the_rows_of_a_parquet_file_are_no_trace(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    data = people()
    setting = Setting(
        comparison=Comparison(before=data, after=data, attributes=()),
        bundle=tmp_path,
        order=np.random.default_rng(3).permutation(240),
    )
    mixed = data.table.take(pa.array(setting.order))
    for first, number in ((1, 0), (2, 1)):  # numbers from 2 on are not those of the rows
        table = mixed.set_column(0, "id", pa.array(np.arange(first, 240 + first)))
        pq.write_table(table, tmp_path / "data.parquet", row_group_size=70)
        traces = run_attacks(setting, ["bundle_traces"])["bundle_traces"].detail["traces"]
        assert len(traces) == number, traces


def test_control_records_judge_a_release_in_its_categories(tmp_path: Path) -> None:
    data, rows = people(), np.arange(240)
    held, kept = (Microdata(data.table.take(pa.array(rows[part])), data.schema) for part in (rows < 80, rows >= 80))
    groups = {"low": ["0", "1", "2", "3"], "high": ["4", "5", "6", "7"]}
    recode = {"method": "recode", "steps": [{"step": "recode", "attribute": "a", "groups": groups}]}
    pipeline = ss.Pipeline([recode, {"method": "swap", "swap": ["ill"], "rate": 0.2}])
    masked = ss.mask(kept, pipeline, key=KEY)
    done = release(tmp_path, masked, scenario=SCENARIO, control=held)
    found = {each.outcome.attack: each.outcome for each in done.attacks}["attribute_inference"]
    coarse = {value: name for name, values in groups.items() for value in values}
    votes: dict[tuple[str, str], list[str]] = {}
    for a, b, ill in zip(*(map(str, masked.data.table[n].to_pylist()) for n in ("a", "b", "ill")), strict=True):
        votes.setdefault((a, b), []).append(ill)
    everyone = [ill for told in votes.values() for ill in told]
    right = []
    for a, b, ill in zip(*(map(str, held.table[n].to_pylist()) for n in ("a", "b", "ill")), strict=True):
        said = votes.get((coarse[a], b), everyone)
        most = max(said.count(value) for value in said)
        best = {value for value in said if said.count(value) == most}
        right.append((ill in best) / len(best))
    assert (found.against, found.control) == ("control records", 80)
    assert found.baseline == pytest.approx(np.mean(right))


def test_control_records_without_numbers_are_recognised_by_their_contents() -> None:
    rng = np.random.default_rng(4)
    data = make({name: rng.integers(0, 12, 400) for name in "abc"})
    rows = np.arange(400)
    held, kept = (Microdata(data.table.take(pa.array(rows[part])), data.schema) for part in (rows < 100, rows >= 100))
    masked = ss.swap(kept, swap=["a"], rate=0.2, key=KEY)
    scenario = {"keys": ["a", "b"], "sensitive": ["c"]}
    assert attacked(masked, "attribute_inference", scenario=scenario, control=held).control == 100
    with pytest.raises(InputError) as refused:
        attacked(masked, "attribute_inference", scenario=scenario, control=data)
    assert refused.value.code == "control-overlaps"
    coarse = make({name: rng.integers(0, 2, 400) for name in "abc"})  # twins by the dozen prove nothing
    parts = [Microdata(coarse.table.take(pa.array(rows[part])), coarse.schema) for part in (rows < 100, rows >= 100)]
    masked = ss.swap(parts[1], swap=["a"], rate=0.2, key=KEY)
    assert attacked(masked, "attribute_inference", scenario=scenario, control=parts[0]).control == 100


def test_a_policy_is_read_from_toml_and_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('name = "ours"\n[limits]\nlinkage = 0.05\n', encoding="utf-8")
    assert read_policy(path).limit_of("linkage") == 0.05
    assert read_policy(path).limit_of("weights") is None
    path.write_text("[limits]\ndistinct_numbers = 0.1\n", encoding="utf-8")
    monkeypatch.setenv("SAFESWAP_POLICY", str(path))
    with pytest.raises(UnsafeRelease):
        release(tmp_path)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[limits]\nlinkages = 0.1\n", "unknown-attack"),
        ("[limits]\nlinkage = 2\n", "bad-spec"),
        ("[limit]\nlinkage = 0.1\n", "bad-spec"),
        ("limits = [", "bad-policy"),
    ],
)
def test_a_bad_policy_is_refused(text: str, code: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((SpecError, InputError)) as refused:
        read_policy(path)
    assert refused.value.code == code


def test_control_records_are_disjoint_from_what_was_masked_and_enough() -> None:
    data = people()
    rows = np.arange(240)
    held, kept = (Microdata(data.table.take(pa.array(rows[part])), data.schema) for part in (rows < 40, rows >= 40))
    masked = ss.swap(kept, swap=["a"], rate=0.2, key=KEY)
    found = attacked(masked, "attribute_inference", scenario=SCENARIO, control=held)
    assert found.against == "control records"
    assert found.control == 40
    few = Microdata(held.table.slice(0, 10), held.schema)
    assert "too few" in attacked(masked, "attribute_inference", scenario=SCENARIO, control=few).note
    with pytest.raises(InputError) as refused:
        attacked(masked, "attribute_inference", scenario=SCENARIO, control=data)
    assert refused.value.code == "control-overlaps"


def test_an_unknown_attack_and_a_bad_rule_are_refused() -> None:
    masked = ss.swap(people(), swap=["a"], rate=0.2, key=KEY)
    with pytest.raises(SpecError) as refused:
        ss.attack(masked, attacks=["linkege"])
    assert refused.value.code == "unknown-attack"
    for rule in ({}, {"a": {}}, {"a": []}, {"a": {"least": 1}}):
        with pytest.raises(SpecError) as refused:
            ss.attack(masked, attacks=["edit_rules"], rules=[rule])
        assert refused.value.code == "bad-rule"


def test_a_guess_without_the_targets_own_record_is_counted_as_by_hand() -> None:
    rng = np.random.default_rng(6)
    for _ in range(60):
        number = int(rng.integers(1, 9))
        cells, now, then, was = (rng.integers(0, 3, number) for _ in range(4))
        votes = Votes(cells, now, 3)
        right = votes.guess(then, was)
        without = votes.without_own(then, was, cells, now)
        for row in range(number):
            for found, left in ((right[row], range(number)), (without[row], [i for i in range(number) if i != row])):
                said = [now[i] for i in left if cells[i] == then[row]]
                if not said:
                    said = list(now)  # nobody to ask: the favourite of all
                counts = {value: said.count(value) for value in said}
                best = [value for value, count in counts.items() if count == max(counts.values())]
                assert found == pytest.approx((was[row] in best) / len(best))


def test_intervals_hold_the_advantage_and_shrink_with_the_number_of_guesses() -> None:
    for success, baseline in ((0.0, 0.5), (0.5, 0.5), (1.0, 0.0), (0.3, 0.1)):
        wide, narrow = (
            Outcome(
                attack="x", success=success, baseline=baseline, trials=n, control=n, against="", sentence=""
            ).interval
            for n in (50, 5000)
        )
        assert wide[0] <= narrow[0] <= advantage_of(success, baseline) <= narrow[1] <= wide[1]
    certain = Outcome(attack="x", success=0.0, baseline=1.0, trials=50, control=50, against="", sentence="")
    assert certain.interval[0] < certain.advantage == certain.interval[1] == 0
    assert wilson(0.5, 0) == (0.0, 1.0)


def test_the_best_attack_is_a_measure() -> None:
    masked = ss.swap(people(), swap=["a"], rate=0.2, key=KEY)
    score = ss.assess(masked, measures=["best_attack"])["best_attack"]
    assert score.value == 1.0  # the number joins everyone
    assert "distinct_numbers" in score.sentence


def test_every_attack_states_what_the_intruder_has() -> None:
    assert set(DEFAULT_LIMITS) <= set(ATTACKS)
    for name, attack in ATTACKS.items():
        assert name == attack.name
        assert attack.title
        assert attack.intruder
        assert type(attack).__doc__
    assert ReleasePolicy().limit_of("linkage") is None
    assert isinstance(Attacked(outcomes=()).best, type(None))


def test_votes_are_counted_alike_in_a_table_and_by_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    from safeswap.attacks import inference

    rng = np.random.default_rng(11)
    cells, values = rng.integers(0, 9, 400), rng.integers(0, 6, 400)
    asked_cells, asked_values = rng.integers(0, 9, 300), rng.integers(0, 8, 300)  # some values nobody has
    found = []
    for dense in (True, False):
        monkeypatch.setattr(inference, "is_dense", lambda _cells, _records, dense=dense: dense)
        votes = inference.Votes(cells, values, 9)
        counted = votes.count(asked_cells, asked_values).tolist()
        right = votes.guess(asked_cells, asked_values).tolist()
        own = votes.without_own(cells, values, cells, values).tolist()
        found.append((counted, right, own, votes.most.tolist(), votes.tied.tolist(), votes.next.tolist()))
    assert found[0] == found[1]
    by_hand = [int(((cells == c) & (values == v)).sum()) for c, v in zip(asked_cells, asked_values, strict=True)]
    assert found[0][0] == by_hand


@pytest.mark.parametrize("seed", range(30))
def test_the_nearest_record_is_that_of_exact_arithmetic_and_equal_distances_share_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    number, columns = int(rng.integers(2, 40)), int(rng.integers(1, 4))
    before = rng.integers(0, int(rng.choice([3, 20, 1000])), (number, columns))
    after = before + rng.integers(-2, 3, (number, columns))
    names = [f"x{j}" for j in range(columns)]
    original, released = (
        make(dict(zip(names, side.T, strict=True)), **dict.fromkeys(names, "numeric")) for side in (before, after)
    )
    exact = [[Fraction(int(value)) for value in column] for column in before.T]
    means = [sum(column) / number for column in exact]
    spread = [sum((v - m) ** 2 for v in column) or 1 for column, m in zip(exact, means, strict=True)]
    chances = []
    for own, masked in enumerate(after.tolist()):
        apart = [
            sum(Fraction(a - b) ** 2 / s for a, b, s in zip(masked, each, spread, strict=True))
            for each in before.tolist()
        ]
        chances.append(Fraction(apart[own] == min(apart), apart.count(apart[own])))
    (found,) = ss.attack(released, original, scenario={"keys": names}, attacks=["nearest_record"])
    assert found.success == pytest.approx(float(sum(chances) / number), rel=1e-12)
