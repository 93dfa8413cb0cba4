"""Swapping against its definition (Gomatam, Karr & Sanil 2003), told a second time on plain values."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from tests.conformance.strategies import Tried, swap_example, swap_inputs, values_of
from tests.conformance.swap_by_hand import Rules, keyed_order, margin, most_pairs, stratified_pairs, uniform_pairs

from safeswap.errors import InfeasibleError
from safeswap.methods.swap import Swap
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.model.spec import SwapSpec, Targeting

KEY = Key(bytes(range(32)))
FEW = 16  # records: the blossom algorithm in plain Python is slow


def swap(data: Microdata, spec: SwapSpec, key: Key = KEY) -> Masked:
    return Swap().apply(data, spec, key=key)


def pairs_of(masked: Masked, stage: int = 0) -> list[tuple[int, int]]:
    return [(a, b) for a, b in masked.audit.exchanges[stage].pairs.tolist()]


@given(swap_inputs())
def test_margins_are_kept(tried: Tried) -> None:
    data, spec = tried
    after = swap(data, spec).data
    others = [name for name in data.attributes if name not in spec.swap]
    sets = [[name] for name in data.attributes] + [[*names, *spec.fixed] for names in spec.stages]
    sets += [list(some) for some in combinations(others, 2)]
    for names in filter(None, [*sets, others]):
        assert margin(after, names) == margin(data, names)


@given(swap_inputs())
def test_pairs_are_disjoint_and_obey_the_roles(tried: Tried) -> None:
    data, spec = tried
    masked = swap(data, spec)
    event(f"pairs made: {min(masked.audit.made, 5)}")
    for stage, names in enumerate(spec.stages):
        rules = Rules(data, spec, names)
        pairs = pairs_of(masked, stage)
        rows = [row for pair in pairs for row in pair]
        assert len(set(rows)) == len(rows)
        assert all(rules.allow(a, b) for a, b in pairs)


@given(swap_inputs())
def test_exactly_the_records_of_the_pairs_change_and_hold_each_others_values(tried: Tried) -> None:
    data, spec = tried
    masked = swap(data, spec)
    for stage, names in enumerate(spec.stages):
        pairs = pairs_of(masked, stage)
        before = list(zip(*(values_of(data, name) for name in names), strict=True))
        after = list(zip(*(values_of(masked.data, name) for name in names), strict=True))
        expected = list(before)
        for a, b in pairs:
            expected[a], expected[b] = before[b], before[a]
        assert after == expected
        assert sum(x != y for x, y in zip(before, after, strict=True)) == 2 * len(pairs)


@given(swap_inputs())
def test_no_more_pairs_than_asked_for(tried: Tried) -> None:
    data, spec = tried
    masked = swap(data, spec)
    assert all(len(exchange.pairs) <= spec.pairs_for(len(data)) for exchange in masked.audit.exchanges)
    assert masked.audit.made == min(len(exchange.pairs) for exchange in masked.audit.exchanges)
    assert masked.audit.asked == spec.pairs_for(len(data))


@settings(max_examples=60)
@given(swap_inputs(most_records=FEW, pairing="repaired"))
def test_the_true_maximum_is_known_and_reached(tried: Tried) -> None:
    data, spec = tried
    masked = swap(data, spec)
    asked = spec.pairs_for(len(data))
    assert masked.plan.feasible == most_pairs(data, spec)
    for stage, names in enumerate(spec.stages):
        assert len(pairs_of(masked, stage)) == min(asked, Rules(data, spec, names).most_pairs())


@given(swap_inputs(pairing="uniform", targeting=None))
def test_uniform_pairs_are_consecutive_records_of_one_keyed_order(tried: Tried) -> None:
    data, spec = tried
    masked = swap(data, spec)
    for stage, names in enumerate(spec.stages):
        expected = uniform_pairs(Rules(data, spec, names), keyed_order(data, KEY, stage=stage))
        assert pairs_of(masked, stage) == expected[: spec.pairs_for(len(data))]


@given(swap_inputs(pairing="repaired", targeting=None))
def test_repair_changes_nothing_where_one_random_pass_through_the_strata_suffices(tried: Tried) -> None:
    data, spec = tried
    asked = spec.pairs_for(len(data))
    repaired = swap(data, spec)
    for stage, names in enumerate(spec.stages):
        passed = stratified_pairs(Rules(data, spec, names), keyed_order(data, KEY, stage=stage))
        if len(passed) >= asked:
            assert pairs_of(repaired, stage) == passed[:asked]


@given(swap_inputs(most_records=FEW, pairing="repaired", targeting=None, mode="simultaneous"))
def test_repair_keeps_as_many_random_pairs_as_the_target_allows(tried: Tried) -> None:
    data, spec = tried
    asked = spec.pairs_for(len(data))
    rules = Rules(data, spec, spec.swap)
    passed = stratified_pairs(rules, keyed_order(data, KEY))[:asked]
    repaired = pairs_of(swap(data, spec))
    target = min(asked, rules.most_pairs())

    def leaves_enough(kept: int) -> bool:
        used = [row for pair in passed[:kept] for row in pair]
        return kept + rules.most_pairs(without=used) >= target

    kept = max(q for q in range(len(passed) + 1) if leaves_enough(q))
    event("repaired" if len(passed) < target else "one pass sufficed")
    assert repaired[:kept] == passed[:kept]
    assert len(repaired) == target


@settings(max_examples=50)
@given(swap_inputs(most_records=FEW, on_shortfall="error", pairing="repaired"))
def test_a_shortfall_is_refused_with_what_binds_and_what_would_help(tried: Tried) -> None:
    data, spec = tried
    asked, feasible = spec.pairs_for(len(data)), most_pairs(data, spec)
    if asked <= feasible:
        assert swap(data, spec).audit.made == asked
        return
    with pytest.raises(InfeasibleError) as caught:
        swap(data, spec)
    error = caught.value
    assert error.code == "shortfall"
    assert (error.fields["asked"], error.fields["feasible"]) == (asked, feasible)
    *changes, lower = error.fields["relaxations"]
    expected = {change: (frees, most_pairs(data, relaxed)) for change, frees, relaxed in single_changes(spec)}
    assert {r["change"]: r["feasible"] for r in changes} == {change: n for change, (_, n) in expected.items()}
    assert len(changes) == len(expected)
    assert_cheapest_first([r["feasible"] for r in changes], asked)
    assert_binding(error.fields["binds"], expected, spec, feasible, len(data))
    assert lower["feasible"] == feasible
    rate = float(lower["change"].split("(rate ")[1].split(" ")[0])
    assert feasible - 1 <= spec.replace(pairs=None, rate=rate or 1e-9).pairs_for(len(data)) <= feasible
    assert all(r["change"] in error.hint for r in changes[:3] if r["feasible"] >= asked)


def single_changes(spec: SwapSpec) -> list[tuple[str, str, SwapSpec]]:
    def without(role: str, name: str) -> SwapSpec:
        return spec.replace(**{role: [other for other in getattr(spec, role) if other != name]})

    changes: list[tuple[str, str, SwapSpec]] = []
    for name in spec.fixed:
        changes.append((f"no longer hold {name} fixed", name, without("fixed", name)))
    for name in spec.differ:
        changes.append((f"no longer require {name} to differ", name, without("differ", name)))
    if len(spec.swap) > 1 and (spec.mode == "sequential" or spec.true_swap == "all"):
        changes += [(f"do not swap {name}", name, without("swap", name)) for name in spec.swap]
    if len(spec.swap) > 1 and spec.mode == "simultaneous" and spec.true_swap == "all":
        text = 'count a pair if any swap attribute differs (true_swap="any")'
        changes.append((text, "", spec.replace(true_swap="any")))
    return changes


def assert_cheapest_first(numbers: list[int], asked: int) -> None:
    enough = [n for n in numbers if n >= asked]
    assert numbers[: len(enough)] == sorted(enough)
    assert numbers[len(enough) :] == sorted(numbers[len(enough) :], reverse=True)


def assert_binding(
    binds: list[str], expected: dict[str, tuple[str, int]], spec: SwapSpec, feasible: int, records: int
) -> None:
    gains: dict[str, int] = {}  # an attribute that is swapped and has to differ is freed in two ways
    for frees, number in expected.values():
        if frees and number > feasible:
            gains[frees] = max(number, gains.get(frees, 0))
    if gains:
        assert len(binds) == 1
        assert gains[binds[0]] == max(gains.values())
    elif feasible == records // 2:
        assert binds == []
    else:
        assert tuple(binds) in spec.stages


@given(swap_inputs(pairing="uniform", on_shortfall="error", mode="simultaneous"))
def test_a_uniform_pass_that_falls_short_is_refused(tried: Tried) -> None:
    data, spec = tried
    taken = swap(data, spec.replace(on_shortfall="take"))
    if taken.audit.made == taken.audit.asked:
        assert pairs_of(swap(data, spec)) == pairs_of(taken)
        return
    with pytest.raises(InfeasibleError) as caught:
        swap(data, spec)
    if taken.audit.asked <= taken.plan.feasible:
        assert caught.value.code == "uniform-shortfall"
        assert caught.value.fields["feasible"] == taken.audit.made
        assert caught.value.fields["maximum"] == taken.plan.feasible
    else:
        assert caught.value.code == "shortfall"


@given(swap_inputs(mode="sequential", targeting=None))
def test_sequential_stages_are_swaps_of_one_attribute_with_draws_of_their_own(tried: Tried) -> None:
    data, spec = tried
    masked = swap(data, spec)
    assert [exchange.attributes for exchange in masked.audit.exchanges] == [(name,) for name in spec.swap]
    alone = swap(data, spec.replace(swap=spec.swap[:1], mode="simultaneous"))
    assert pairs_of(masked) == pairs_of(alone)


def test_stages_are_not_all_the_same_pairs() -> None:
    data, spec = swap_example()
    masked = swap(data, spec.replace(mode="sequential", fixed=(), differ=()))
    assert set(pairs_of(masked, 0)).isdisjoint(pairs_of(masked, 1))


@given(swap_inputs())
def test_compensating_records_are_those_that_moved_without_moving_the_table(tried: Tried) -> None:
    data, spec = tried
    masked = swap(data, spec)
    names = data.schema.categorical
    rows = [list(zip(*(values_of(d, n) for n in names), strict=True)) for d in (data, masked.data)]
    moved = sum(was != now for was, now in zip(*rows, strict=True))
    net = (margin(masked.data, names) - margin(data, names)).total()
    assert masked.audit.compensating == moved - net


@given(swap_inputs(targeting=Targeting(weight=1.0)))
def test_targeting_of_no_weight_is_no_targeting(tried: Tried) -> None:
    data, spec = tried
    targeted, plain = swap(data, spec), swap(data, spec.replace(targeting=None))
    assert [e.pairs.tolist() for e in targeted.audit.exchanges] == [e.pairs.tolist() for e in plain.audit.exchanges]


@pytest.mark.parametrize("keys", [(), ("Race", "Age", "Town")])
def test_targeting_takes_more_of_the_records_in_small_cells(keys: tuple[str, ...]) -> None:
    data, spec = swap_example()
    small = at_risk(data, keys or data.schema.categorical)
    assert 10 < len(small) < 150
    plain = spec.replace(rate=0.2, differ=(), fixed=())
    targeted = plain.replace(targeting=Targeting(keys=keys, n=3, weight=30))
    share = {name: [] for name in ("plain", "targeted")}
    for i in range(20):
        key = Key.insecure(seed=i)
        for name, chosen in (("plain", plain), ("targeted", targeted)):
            rows = {row for pair in pairs_of(swap(data, chosen, key)) for row in pair}
            share[name].append(len(rows & small) / len(rows))
    assert min(share["targeted"]) > max(share["plain"])


def at_risk(data: Microdata, keys: tuple[str, ...]) -> set[int]:
    cells = margin(data, keys)
    rows: list[Any] = list(zip(*(values_of(data, name) for name in keys), strict=True))
    return {row for row, cell in enumerate(rows) if cells[cell] < 3}


def test_every_pair_is_as_likely_as_any_other() -> None:
    data, _ = swap_example()
    numbers = data.table.select(["id"]).slice(0, 12).append_column("number", pa.array(range(12)))
    schema = Schema(attributes=(data.schema["id"], Attribute(name="number")))
    spec = SwapSpec(swap=["number"], pairs=1)
    possible = list(combinations(range(12), 2))
    draws = 60 * len(possible)
    found = Counter()
    for i in range(draws):
        found[tuple(sorted(pairs_of(swap(Microdata(numbers, schema), spec, Key.insecure(seed=i)))[0]))] += 1
    square = sum((found[pair] - 60) ** 2 / 60 for pair in possible)
    freedom = len(possible) - 1  # chi-square: its mean, and half its variance
    assert set(found) <= set(possible)
    assert abs(square - freedom) < 4 * (2 * freedom) ** 0.5
