"""Suppression on files small enough to see through, and on one that is not."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.methods import blanking_by_hand as by_hand
from tests.unit.methods import suppress_by_hand as by_trying
from tests.unit.methods.suppress_compared import disagreements

import safeswap as ss
from safeswap import registry
from safeswap.errors import InfeasibleError, SpecError
from safeswap.methods.suppress.method import SuppressSpec
from safeswap.methods.suppress.promises import EnoughByPublishedKeys, NothingUnsafe, OnlyBlanks, recount_unsafe
from safeswap.model.audit import Replacement
from safeswap.model.invariant import verify
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.workflow import assess, mask, risky, study

NAMES = ("A", "B", "C")
MEANINGS = ["none", "own", "any", "vouching"]
OF_OTHER_ATTRIBUTES = (
    *("percentage_bias", "correct_links", "l_diversity"),
    *("mean_change", "deviation_change", "correlation_change"),
    *("ci_overlap", "coefficients", "indicators", "il1s", "eigen", "correlations"),
    *("t_closeness", "population_risk"),
)


def microdata(records, names=NAMES, weights=None):
    columns = {
        name: pa.array([None if r[j] is None else f"v{r[j]}" for r in records], pa.string())
        for j, name in enumerate(names)
    }
    attributes = [Attribute(name=name) for name in names]
    if weights is not None:
        columns["w"] = pa.array(weights, pa.float64())
        attributes.append(Attribute(name="w", kind=Kind.WEIGHT))
    return Microdata(pa.table(columns), Schema(attributes=tuple(attributes)))


def plain(data, names=NAMES):
    columns = [data.table.column(name).to_pylist() for name in names]
    return [tuple(None if v is None else int(v[1:]) for v in record) for record in zip(*columns, strict=True)]


def suppressed(data, **stated):
    return mask(data, SuppressSpec(**stated), insecure_seed=1)


def broken_promises(masked):
    promises = registry.method("suppress").invariants(masked.original, masked.spec)
    found = verify(promises, before=masked.original, after=masked.data, audit=masked.audit)
    return [finding.problem for finding in found if not finding.ok]


def blanks(masked):
    return sum(len(each.rows) for each in masked.audit.replacements)


SIX_BY_TWO = [(0, 0), (0, 0), (1, 1), (1, 1), (2, 0), (2, 1)]


def test_six_records_of_two_keys_need_one_blank():
    masked = suppressed(microdata(SIX_BY_TWO, NAMES[:2]), keys=["A", "B"], tolerance=2, missing="vouching")
    assert blanks(masked) == 1
    assert masked.audit.facts["answer"] == "optimal: nothing less would do"
    assert broken_promises(masked) == []


def test_several_lists_are_satisfied_together():
    # Each list alone is satisfied by one blank; the blanks that serve one list make another unsafe.
    rng = np.random.default_rng(5)
    records = [tuple(map(int, row)) for row in (rng.random((60, 3)) ** 2 * 5).astype(int)]
    lists = [("A", "B"), ("B", "C"), ("A", "C"), ("A", "B", "C"), ("C",)]
    for missing in MEANINGS:
        masked = suppressed(microdata(records), combinations=lists, tolerance=3, missing=missing, time_limit=5)
        places = [tuple(NAMES.index(name) for name in names) for names in lists]
        assert by_hand.safe(plain(masked.data), [(keys, 3) for keys in places], missing)
        assert broken_promises(masked) == []
        assert risky(masked, lists, tolerance=3, missing=missing).unsafe == 0


@st.composite
def tiny(draw):
    width = draw(st.integers(1, 3))
    values = st.sampled_from([0, 1, 2, None] if draw(st.booleans()) else [0, 1, 2])
    records = [tuple(draw(values) for _ in range(width)) for _ in range(draw(st.integers(3, 12 // width)))]
    keys = [chosen for size in range(1, width + 1) for chosen in combinations(range(width), size)]
    lists = draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3, unique=True))
    importance = {NAMES[k]: draw(st.sampled_from([0.5, 1.0, 2.0])) for k in set().union(*lists)}
    return records, [(keys, draw(st.integers(2, 3))) for keys in lists], importance


@pytest.mark.parametrize("missing", MEANINGS)
@settings(max_examples=40)
@given(asked=tiny())
def test_no_file_that_is_safe_costs_less(asked, missing):
    records, lists, importance = asked
    names = NAMES[: len(records[0])]
    costs = [importance.get(name, 1.0) for name in names]
    used = sorted({k for keys, _ in lists for k in keys})
    least = by_hand.least(records, lists, missing, costs, used)
    assume(least is not None)
    stated = [{"keys": [names[k] for k in keys], "tolerance": q} for keys, q in lists]
    masked = suppressed(microdata(records, names), combinations=stated, importance=importance, missing=missing)
    after = plain(masked.data, names)
    assert by_hand.safe(after, lists, missing)
    lost = [
        costs[k]
        for b, a in zip(records, after, strict=True)
        for k in range(len(names))
        if b[k] is not None and a[k] is None
    ]
    assert sum(lost) == pytest.approx(least)
    assert masked.audit.facts["least_possible"] == pytest.approx(least)
    assert broken_promises(masked) == []


@pytest.mark.parametrize("missing", ["own", "any", "vouching"])
def test_a_list_that_another_implies_costs_nothing(missing):
    data = ss.datasets.cps8d()
    small = Microdata(data.table.slice(0, 300), data.schema)
    stated = {"keys": data.schema.categorical[:3], "missing": missing}
    alone, with_parts = suppressed(small, **stated, up_to=3, exactly=True), suppressed(small, **stated)
    assert blanks(alone) == blanks(with_parts) > 0
    assert broken_promises(with_parts) == []


def test_what_matters_more_is_kept():
    records = [(0, 0)] * 3 + [(1, 1)] * 3 + [(0, 1), (1, 0)]
    dear = suppressed(microdata(records, NAMES[:2]), keys=["A", "B"], importance={"A": 5})
    kept = suppressed(microdata(records, NAMES[:2]), keys=["A", "B"], keep=["A"])
    for masked in (dear, kept):
        assert [each.attribute for each in masked.audit.replacements] == ["B"]
        assert masked.data.table["A"].equals(masked.original.table["A"])


def test_the_fewest_values_can_be_asked_for_by_name():
    assert suppressed(microdata(SIX_BY_TWO, NAMES[:2]), keys=["A", "B"], tolerance=2, objective="values")
    with pytest.raises(SpecError, match="importance applies"):
        SuppressSpec(keys=["A"], objective="values", importance={"A": 2})


@pytest.mark.parametrize("missing", MEANINGS)
@given(
    records=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=4, max_size=10),
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.5]), min_size=10, max_size=10),
)
@settings(max_examples=25)
def test_weights_are_summed_and_the_sums_suffice(records, weights, missing):
    used = weights[: len(records)]
    assume(sum(used) >= 3)
    data = microdata(records, NAMES[:2], used)
    masked = suppressed(data, keys=["A", "B"], up_to=2, tolerance=3, weight="w", missing=missing)
    assert broken_promises(masked) == []
    assert risky(masked.data, masked.spec).unsafe == 0
    assert masked.data.table["w"].equals(data.table["w"])


def test_greedy_is_never_better_than_optimal_and_says_its_gap():
    data = ss.datasets.cps8d()
    names = data.schema.categorical
    quick = suppressed(data, keys=names, missing="own", solver="greedy")
    assert broken_promises(quick) == []
    assert "could be saved" in quick.audit.facts["answer"]
    assert blanks(quick) >= quick.audit.facts["least_possible"]
    assert quick.audit.facts["unsafe_combinations"][-1] == {"keys": 8, "lists": 1, "before": 547, "after": 0}
    assert sum(row["lists"] for row in quick.audit.facts["unsafe_combinations"]) == 255


def test_undo_gives_the_frame_back():
    frame = pd.DataFrame({"A": ["x", "x", "y"], "n": [1, 1, 2], "other": [0.5, None, 2.5]})
    data = ss.read(frame, kinds={"n": "ordinal"})
    masked = suppressed(data, combinations=[["A"], ["n"]], tolerance=2)
    out = ss.to_frame(masked)
    assert out["A"].isna().tolist() == out["n"].isna().tolist() == [False, False, True]
    assert out["other"].equals(frame["other"])
    assert ss.to_frame(ss.undo(masked.data, masked.audit), like="pandas").equals(frame)


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ({"keys": ["A"], "importance": {"A": 0}}, "must be above 0"),
        ({"keys": ["A"], "importance": {"A": -1}}, "must be above 0"),
        ({"keys": ["A"], "importance": {"B": 1}}, "in no combination"),
        ({"keys": ["A", "B"], "keep": ["C"]}, "in no combination"),
        ({"keys": ["A"], "keep": ["A"]}, "nothing left to blank"),
        ({"keys": ["A"], "time_limit": 0}, "must be above 0"),
        ({"keys": ["A"], "gap": 1}, "must be below 1"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(stated, problem):
    with pytest.raises(SpecError, match=problem):
        SuppressSpec(**stated)


@pytest.mark.parametrize(
    ("stated", "code"),
    [
        ({"keys": ["Nobody"]}, "unknown-attribute"),
        ({"keys": ["A", "w"]}, "key-not-categorical"),
        ({"keys": ["A"], "tolerance": 7}, "tolerance-above-records"),
    ],
)
def test_what_does_not_fit_the_file_is_refused(stated, code):
    data = microdata(SIX_BY_TWO, NAMES[:2], [1.0] * 6)
    with pytest.raises(SpecError) as caught:
        suppressed(data, **stated)
    assert caught.value.code == code


@pytest.mark.parametrize("missing", MEANINGS)
def test_a_file_that_blanking_cannot_make_safe_says_so(missing):
    data = microdata([(0, 0), (0, 0), (1, 0), (1, 1)], NAMES[:2])
    stated = {"combinations": [("A",), ("A", "B"), ("B",)], "tolerance": 3, "keep": ["A"], "missing": missing}
    plan = registry.method("suppress").plan(data, SuppressSpec(**stated))
    assert not plan.is_feasible
    with pytest.raises(InfeasibleError) as caught:
        suppressed(data, **stated)
    assert caught.value.code == "cannot-be-safe"
    assert caught.value.fields["combinations"][0] == "A"


@pytest.mark.parametrize("missing", MEANINGS)
def test_a_tolerance_above_the_sum_of_all_weights_is_refused(missing):
    data = microdata([(0, 0), (0, 0)], NAMES[:2], [1.0, 1.0])
    with pytest.raises(SpecError) as caught:
        suppressed(data, keys=["A"], tolerance=5, weight="w", missing=missing)
    assert caught.value.code == "tolerance-above-records"


def test_few_whole_records_serve_all_where_a_blank_matches_all_and_records_weigh_little():
    data = microdata([(i, i) for i in range(40)], NAMES[:2], [0.5] * 40)
    masked = suppressed(data, keys=["A", "B"], tolerance=2, weight="w", missing="vouching", time_limit=1e-6)
    assert blanks(masked) <= 2 * 4
    assert broken_promises(masked) == []


def test_the_recount_finds_what_was_left_or_changed():
    masked = suppressed(microdata(SIX_BY_TWO, NAMES[:2]), keys=["A", "B"], tolerance=2, missing="none")
    for missing in MEANINGS:
        promise = NothingUnsafe((((("A", "B")), 2.0),), missing)
        assert not promise.check(masked.original, masked.original, masked.audit).ok
    assert "for instance some of A × B" in promise.check(masked.original, masked.original, masked.audit).problem
    other = masked.original.with_columns({"A": pa.chunked_array([["v0"] * 6])}, {})
    assert not OnlyBlanks(("A", "B")).check(masked.original, other, masked.audit).ok


@given(
    records=st.lists(st.tuples(*[st.sampled_from([0, 1, None])] * 3), min_size=2, max_size=10),
    tolerance=st.integers(1, 3),
)
@pytest.mark.parametrize("missing", MEANINGS)
def test_the_recount_agrees_with_counting_by_hand(records, tolerance, missing):
    data = microdata(records)
    lists = tuple((names, float(tolerance)) for size in (1, 2, 3) for names in combinations(NAMES, size))
    for names, left in recount_unsafe(data, NothingUnsafe(lists, missing)):
        keys = tuple(NAMES.index(name) for name in names)
        assert (left == 0) == by_hand.safe(records, [(keys, tolerance)], missing)


def test_a_blanked_record_earns_its_weight_in_the_bound():
    # The heaviest record, blanked, serves all: the bound took every record for one of weight 1 and called two optimal.
    data = microdata([(0,), (1,), (0,), (1,)], NAMES[:1], [1.0, 0.5, 2.0, 0.5])
    masked = suppressed(data, keys=["A"], tolerance=3, weight="w", missing="vouching")
    assert blanks(masked) == masked.audit.facts["least_possible"] == 1


@pytest.mark.parametrize("case", list(by_trying.cases(seed=3, number=48, cells=8)), ids=lambda case: case.missing)
def test_costs_bounds_and_counts_are_those_of_trying_everything(case):
    assert disagreements(case) == []
    assert disagreements(case, solver="greedy") == []


def published_below(data, names, k):
    """Records that fewer than k share the published keys with, counted one after the other."""
    rows = list(zip(*(data.table[name].to_pylist() for name in names), strict=True))
    counts = Counter()
    patterns = {tuple(v is not None for v in row) for row in rows}
    for pattern in patterns:
        for row in rows:
            if all(v is not None for v, shown in zip(row, pattern, strict=True) if shown):
                counts[tuple(v if shown else None for v, shown in zip(row, pattern, strict=True))] += 1
    return sum(counts[row] < k for row in rows)


@pytest.mark.parametrize("missing", MEANINGS)
def test_no_record_of_cps_is_below_k_on_the_keys_published_of_it(missing):
    data = ss.datasets.cps8d()
    names = data.schema.categorical
    masked = suppressed(data, keys=names, missing=missing, solver="greedy")
    below = published_below(masked.data, names, 3)
    assert masked.audit.facts["records_still_below_tolerance"] == below
    assert masked.audit.facts["protected"] == "every combination of up to all 8 keys"
    assert (below == 0) == (missing != "vouching")
    unsafe = set(risky(data, keys=names, missing=missing).rows().tolist())
    touched = set().union(*(each.rows.tolist() for each in masked.audit.replacements))
    if missing in ("none", "any"):
        assert touched == unsafe
    assert broken_promises(masked) == []


def test_the_whole_table_alone_leaves_records_below_and_says_so():
    data = ss.datasets.cps8d()
    names = data.schema.categorical
    masked = suppressed(data, combinations=[names], solver="greedy")
    below = published_below(masked.data, names, 3)
    assert masked.audit.facts["records_still_below_tolerance"] == below > 0
    assert broken_promises(masked) == []


def test_a_record_that_lacks_a_key_may_need_others_to_be_blanked_with_it():
    # The last record makes the first two safe; whichever key it blanks, one of them has to follow.
    data = microdata([(0, None), (None, 1), (0, 1)], NAMES[:2])
    masked = suppressed(data, combinations=[("A", "B")], tolerance=2, missing="any")
    assert blanks(masked) == 2
    assert risky(masked, [("A", "B")], tolerance=2, missing="any").unsafe == 0


def test_the_promise_on_published_keys_is_checked_on_the_result():
    data = microdata(SIX_BY_TWO, NAMES[:2])
    masked = suppressed(data, keys=["A", "B"], tolerance=2)
    promise = EnoughByPublishedKeys(("A", "B"), 2.0)
    assert promise.check(data, masked.data, masked.audit).ok
    assert promise.check(data, data, masked.audit).problem == "2 records are below 2"
    assert promise.for_users_of(("A",)) == EnoughByPublishedKeys(("A",), 2.0)
    assert promise.for_users_of(("C",)) is None


def test_too_many_parts_of_a_combination_are_refused():
    names = [f"k{i}" for i in range(16)]
    data = microdata([tuple(range(16))] * 2 + [tuple(range(1, 17))], names)
    with pytest.raises(SpecError) as caught:
        suppressed(data, combinations=[names], tolerance=2, missing="any")
    assert caught.value.code == "too-many-combinations"


def test_what_users_of_some_columns_are_told():
    promise = NothingUnsafe(((("A", "B"), 3.0), (("A",), 5.0)), "none")
    assert promise.for_users_of(("A",)) == NothingUnsafe(((("A",), 5.0),), "none")
    assert promise.for_users_of(("C",)) is None
    assert OnlyBlanks(("A", "B")).for_users_of(("B",)) == OnlyBlanks(("B",))


@pytest.fixture(scope="module")
def blanked():
    data = ss.datasets.cps8d()
    masked = suppressed(data, combinations=[data.schema.categorical[:5]], tolerance=20)
    assert blanks(masked) > 100
    return masked


@pytest.mark.parametrize("name", registry.measure_names())
def test_every_measure_takes_a_file_with_blanks(blanked, name):
    if name in OF_OTHER_ATTRIBUTES:  # they say what they need, blanks or not
        with pytest.raises(SpecError) as refused:
            assess(blanked, measures=[name])
        assert refused.value.hint
        return
    (score,) = assess(blanked, measures=[name])
    assert np.isfinite(score.value)
    assert score.value != 0 or name == "best_attack"  # it has no keys to attack by


def test_suppression_is_a_candidate_on_the_map():
    data = ss.datasets.cps8d()
    other = {"method": "suppress", "keys": data.schema.categorical, "tolerance": 5}
    found = study(data, attributes=["Race"], rates=[0.01], others=[other], insecure_seed=1)
    assert found.rejected().num_rows == 0
    risk, distortion = found.axes()
    place = [spec.method for spec in found.specs].index("suppress")
    assert distortion[place] > 0
    assert risk[place] < risk[1 - place]


def test_which_of_equal_records_are_blanked_is_drawn():
    records = [(0, 0)] * 40 + [(0, 1)]
    data = microdata(records, NAMES[:2])
    spec = SuppressSpec(combinations=[("A", "B")], tolerance=2, missing="own", importance={"A": 3})
    chosen = set()
    for seed in range(12):
        replaced = mask(data, spec, insecure_seed=seed).audit.replacements
        assert all(isinstance(each, Replacement) for each in replaced)
        chosen.add(tuple(replaced[0].rows.tolist()))
    assert len(chosen) > 6
