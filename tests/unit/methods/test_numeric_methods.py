"""Rank swapping, noise, microaggregation, top and bottom coding, post-randomisation: what each does to numbers."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from tests.conformance.numeric_strategies import enterprises

from safeswap import datasets, workflow
from safeswap.errors import InfeasibleError, InputError, SpecError
from safeswap.methods.numeric import pram
from safeswap.methods.value_change import record_words
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEYS = ("turnover", "employees")
KEY = Key(bytes(range(32)))


def numbers(data, name):
    return data.table[name].to_numpy().astype(float)


def mask(method, data=None, **parameters):
    data = datasets.synthetic_enterprises() if data is None else data
    return workflow.mask(data, {"method": method, **parameters}, key=KEY)


def column(values, kind=Kind.NUMERIC):
    return Microdata(pa.table({"x": values}), Schema(attributes=(Attribute(name="x", kind=kind),)))


def columns(names, values):
    schema = Schema(attributes=tuple(Attribute(name=name, kind=Kind.NUMERIC) for name in names))
    return Microdata(pa.table(dict(zip(names, values.T, strict=True))), schema)


def test_rank_swapping_moves_nearly_everybody_and_nobody_far():
    masked = mask("rank_swap", attributes=KEYS, window=0.05)
    for name in KEYS:
        before, after = numbers(masked.original, name), numbers(masked.data, name)
        assert sorted(before) == sorted(after)
        ranks = np.argsort(np.argsort(before, kind="stable"), kind="stable")
        moved = np.abs(np.searchsorted(np.sort(before), after) - np.searchsorted(np.sort(before), before))
        assert moved.max() <= 157 + np.bincount(ranks).max() + np.unique(before, return_counts=True)[1].max()
        assert (before != after).mean() > 0.98


def test_a_wider_window_swaps_further():
    moved = []
    for window in (0.01, 0.1):
        masked = mask("rank_swap", attributes=["turnover"], window=window)
        moved.append(np.abs(np.log(numbers(masked.data, "turnover") / numbers(masked.original, "turnover"))).mean())
    assert moved[1] > 4 * moved[0]


def test_top_and_bottom_groups_are_off_unless_asked_for():
    plain = mask("rank_swap", attributes=["turnover"])
    assert plain.audit.replacements == ()
    levelled = mask("rank_swap", attributes=["turnover"], top=0.01, bottom=0.01)
    after = np.sort(numbers(levelled.data, "turnover"))
    assert len(np.unique(after[-31:])) == 1
    assert len(np.unique(after[:31])) == 1
    assert after.mean() == pytest.approx(numbers(plain.original, "turnover").mean(), abs=0.1)
    assert workflow.undo(levelled).table.equals(levelled.original.table)


def test_an_ordinal_attribute_is_swapped_in_the_order_of_its_levels():
    data = column(["low", "high", "middle"] * 40, Kind.ORDINAL)
    schema = Schema(attributes=(Attribute(name="x", kind=Kind.ORDINAL, levels=("low", "middle", "high")),))
    masked = mask("rank_swap", Microdata(data.table, schema), attributes=["x"], window=0.3)
    moves = set(zip(data.table["x"].to_pylist(), masked.data.table["x"].to_pylist(), strict=True))
    assert ("low", "middle") in moves
    assert ("low", "high") not in moves, "more than a third of the ranks lie between them"


def test_values_that_many_share_are_swapped_at_the_edge_of_their_rank_only():
    data = column([0.0] * 50 + [float(i) for i in range(1, 51)])
    masked = mask("rank_swap", data, attributes=["x"], window=0.1)
    after = numbers(masked.data, "x")
    assert (after[:50] > 0).sum() == (after[50:] == 0).sum() > 0
    assert after[:50].max() <= 10


@pytest.mark.parametrize("kind", ["additive", "correlated"])
def test_noise_has_the_moments_that_are_stated(kind):
    data = datasets.synthetic_enterprises(20_000)
    masked = mask("noise", data, attributes=KEYS, size=0.5, kind=kind)
    before, after = (np.column_stack([numbers(d, name) for name in KEYS]) for d in (data, masked.data))
    noise = after - before
    assert np.abs(noise.mean(axis=0)).max() < 5 * (0.5 * before.std(axis=0) / np.sqrt(20_000)).max()
    assert noise.std(axis=0) == pytest.approx(0.5 * before.std(axis=0), rel=0.03)
    told = np.corrcoef(before.T)[0, 1] if kind == "correlated" else 0.0
    assert np.corrcoef(noise.T)[0, 1] == pytest.approx(told, abs=0.03)


def test_noise_is_normal():
    from scipy.stats import kstest

    data = column(np.random.default_rng(2).normal(size=5000))
    masked = mask("noise", data, attributes=["x"], size=1.0)
    noise = (numbers(masked.data, "x") - numbers(data, "x")) / numbers(data, "x").std(ddof=1)
    assert kstest(noise, "norm").pvalue > 1e-6


@pytest.mark.parametrize("count", [15, 16, 17, 24])
def test_correlated_noise_is_the_deviates_times_the_root_of_the_covariance_with_many_attributes(count):
    """The noise is Z·S, with S the symmetric root of size²·Σ and Z the deviates, known from independent noise."""
    rng = np.random.default_rng(count)
    names = [f"x{j}" for j in range(count)]
    values = rng.normal(size=(400, count)) @ rng.normal(size=(count, count))
    data = columns(names, values)
    options = {"attributes": names, "size": 0.5, "decimals": 12}
    noise = {
        kind: np.column_stack([numbers(mask("noise", data, kind=kind, **options).data, name) for name in names])
        - values
        for kind in ("additive", "correlated")
    }
    deviates = noise["additive"] / (0.5 * values.std(axis=0, ddof=1))
    scale, vectors = np.linalg.eigh(np.corrcoef(values.T))
    root = vectors @ np.diag(np.sqrt(scale.clip(0))) @ vectors.T
    expected = np.einsum("ij,jk->ik", deviates, root) * (0.5 * values.std(axis=0, ddof=1))
    np.testing.assert_allclose(noise["correlated"], expected, atol=1e-8)


def test_noise_with_many_attributes_keeps_its_result():
    count = 20
    rng = np.random.default_rng(3)
    names = [f"x{j}" for j in range(count)]
    data = columns(names, np.round(rng.normal(100, 10, size=(60, count)), 1))
    masked = mask("noise", data, attributes=names, size=0.3, kind="correlated", decimals=1)
    text = json.dumps([masked.data.table[name].to_pylist() for name in names])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "323e70b3bd3b3af2"


def test_noise_on_text_leaves_no_trace_of_how_a_number_was_written():
    data = column(["10.50", "7.00", "3.25", "8.10"] * 30)
    masked = mask("noise", data, attributes=["x"], size=0.001)
    written = masked.data.table["x"].to_pylist()
    assert not [text for text in written if text.endswith("0") and "." in text]
    assert workflow.undo(masked).table.equals(data.table)


@pytest.mark.parametrize("groups", ["mdav", "univariate"])
def test_microaggregation_keeps_means_and_hides_everybody_in_a_group(groups):
    masked = mask("microaggregation", attributes=KEYS, k=5, groups=groups, decimals=6)
    for name in KEYS:
        assert numbers(masked.data, name).mean() == pytest.approx(numbers(masked.original, name).mean(), abs=1e-5)
    columns = [masked.data.table.select(KEYS)] if groups == "mdav" else [masked.data.table.select([n]) for n in KEYS]
    for table in columns:
        counts = table.group_by(table.column_names).aggregate([([], "count_all")])["count_all"].to_numpy()
        assert counts.min() >= 5


def test_microaggregating_one_attribute_loses_less_than_all_together():
    lost = {}
    for groups in ("mdav", "univariate"):
        masked = mask("microaggregation", attributes=KEYS, k=5, groups=groups, decimals=6)
        lost[groups] = ((numbers(masked.data, "turnover") - numbers(masked.original, "turnover")) ** 2).sum()
    assert lost["univariate"] < lost["mdav"]


def test_groups_larger_than_the_file_are_refused():
    with pytest.raises(InfeasibleError) as caught:
        mask("microaggregation", column([1.0, 2.0, None]), attributes=["x"], k=3)
    assert caught.value.code == "too-few-records"
    assert caught.value.fields["feasible"] == 2


def test_records_with_a_missing_value_are_counted_and_left_alone():
    data = column([1.0, 2.0, None, 5.0, 6.0])
    spec = {"method": "microaggregation", "attributes": ["x"], "k": 2}
    assert "1 record with a missing value stays" in workflow.plan(data, spec).sentence
    assert mask("microaggregation", data, attributes=["x"], k=2).data.table["x"].to_pylist() == [2, 2, None, 6, 6]


def test_top_coding_cuts_at_the_bound_or_puts_the_mean_there():
    bound = mask("top_bottom", attributes=["employees"], top=500)
    assert numbers(bound.data, "employees").max() == 500
    mean = mask("top_bottom", attributes=["turnover"], top_share=0.01, bottom_share=0.01, replace_by="mean")
    before, after = numbers(mean.original, "turnover"), numbers(mean.data, "turnover")
    assert after.mean() == pytest.approx(before.mean(), abs=0.05)
    assert (before != after).sum() == 62
    assert len(np.unique(after[after > np.sort(before)[-32]])) == 1


def test_a_mean_of_one_or_two_values_is_refused():
    with pytest.raises(InfeasibleError) as caught:
        mask("top_bottom", column([1.0, 2.0, 3.0, 99.0]), attributes=["x"], top=50, replace_by="mean")
    assert caught.value.code == "group-too-small"
    with pytest.raises(InfeasibleError):
        mask("rank_swap", column([float(i) for i in range(30)]), attributes=["x"], top=0.05)


def test_what_equals_the_bound_is_written_like_what_was_cut_off():
    masked = mask("top_bottom", column(["10.0", "5", "12", "7.50"]), attributes=["x"], top=10)
    assert masked.data.table["x"].to_pylist() == ["10", "5", "10", "7.50"]


def test_post_randomisation_changes_as_many_as_it_says_and_keeps_margins_on_average():
    data = datasets.cps8d()
    sums = np.zeros(4)
    for replicate in range(20):
        masked = workflow.mask(
            data, {"method": "pram", "attributes": ["EmpTyp"], "keep": 0.7}, key=KEY, replicate=replicate
        )
        levels = data.coded("EmpTyp").levels.to_pylist()
        after = masked.data.table["EmpTyp"].to_pylist()
        sums += [after.count(level) for level in levels]
    before = np.bincount(data.coded("EmpTyp").codes)
    assert sums / 20 == pytest.approx(before, rel=0.02)
    share = before / before.sum()
    expected = 0.3 * (1 - (share**2).sum()) * len(data)
    assert masked.audit.made == pytest.approx(expected, rel=0.05)


def test_post_randomisation_within_strata_never_leaves_what_occurs_there():
    data = datasets.cps8d()
    masked = mask("pram", data, attributes=["Edu"], within=["AnnSal", "Age"], keep=0.0)
    pairs = [
        set(zip(*(d.table[n].to_pylist() for n in ("AnnSal", "Age", "Edu")), strict=True)) for d in (data, masked.data)
    ]
    assert pairs[1] <= pairs[0]


@pytest.mark.parametrize("method", ["noise", "microaggregation", "top_bottom", "rank_swap"])
def test_what_makes_no_sense_is_refused_in_plain_words(method):
    options = {"top_share": 0.1} if method == "top_bottom" else {}
    for name, codes in (("division", {"no-order", "not-numeric"}), ("nowhere", {"unknown-attribute"})):
        with pytest.raises(SpecError) as caught:
            mask(method, attributes=[name], **options)
        assert caught.value.code in codes
    with pytest.raises(SpecError) as caught:
        mask(method, attributes=["turnover", "turnover"], **options)
    assert caught.value.code == "bad-spec"
    with pytest.raises(InfeasibleError) as caught:
        mask(method, column([4.0, 4.0, None]), attributes=["x"], **options)
    assert caught.value.code == "constant-attribute"
    with pytest.raises(SpecError) as caught:
        mask(method, enterprises(), attributes=["id"], **options)
    assert caught.value.code == "identifier-role"


def test_post_randomisation_needs_categories():
    with pytest.raises(SpecError) as caught:
        mask("pram", attributes=["turnover"])
    assert caught.value.code == "not-categorical"


@pytest.mark.parametrize(
    "spec",
    [
        {"method": "rank_swap", "attributes": KEYS, "top": 0.02},
        {"method": "noise", "attributes": KEYS, "kind": "correlated"},
        {"method": "microaggregation", "attributes": KEYS},
        {"method": "top_bottom", "attributes": KEYS, "top_share": 0.05},
        {"method": "pram", "attributes": ["region"]},
    ],
    ids=lambda spec: spec["method"],
)
def test_every_one_can_be_released_undone_and_verified(spec, tmp_path):
    masked = workflow.mask(datasets.synthetic_enterprises(), spec, key=KEY)
    published = workflow.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=KEY)
    assert all(finding.ok for finding in published.findings)
    workflow.verify(published.public)
    assert workflow.undo(masked.data, published.audit).table.equals(masked.original.table)


def test_the_result_says_records_where_it_counts_records():
    assert "records changed" in repr(mask("noise", attributes=KEYS))
    assert "pairs exchanged" in repr(mask("rank_swap", attributes=KEYS))


NUMERIC_SPECS = [
    {"method": "noise", "size": 0.3},
    {"method": "noise", "size": 0.3, "kind": "correlated"},
    {"method": "microaggregation", "k": 3},
    {"method": "microaggregation", "k": 3, "groups": "univariate"},
    {"method": "rank_swap", "window": 0.2},
    {"method": "rank_swap", "window": 0.2, "top": 0.1, "bottom": 0.1},
    {"method": "top_bottom", "top_share": 0.2},
    {"method": "top_bottom", "top_share": 0.2, "replace_by": "mean"},
    {"method": "top_bottom", "top": 1.0},
]


@pytest.mark.parametrize("spec", NUMERIC_SPECS, ids=lambda spec: "-".join(str(value) for value in spec.values()))
@pytest.mark.parametrize("power", [-323, -308, -200, -150, -100, 0, 100, 149, 154, 200, 307, 308])
def test_values_of_any_size_stay_finite_or_are_refused(spec, power):
    rng = np.random.default_rng(1)
    drawn = np.rint(rng.normal(size=(2, 60)) * 50) * float(f"1e{power - 2}" if power > -320 else f"1e{power}")
    data = Microdata(
        pa.table({"x": drawn[0], "y": drawn[1] + drawn[0] / 2}),
        Schema(name="any", attributes=tuple(Attribute(name=name, kind=Kind.NUMERIC) for name in "xy")),
    )
    refused = ""
    try:
        masked = workflow.mask(data, {**spec, "attributes": ["x", "y"]}, insecure_seed=1)
    except InputError as error:
        refused = error.code
    if refused:
        assert (refused, abs(power) >= 149) == ("out-of-range", True)
        return
    for name in "xy":
        assert np.isfinite(masked.data.table[name].to_numpy()).all()


def test_top_and_bottom_coding_without_an_end_is_refused():
    with pytest.raises(SpecError) as caught:
        mask("top_bottom", attributes=["turnover"])
    assert "top_share" in str(caught.value) + caught.value.hint


@pytest.mark.parametrize("within", [(), ("size",)])
@pytest.mark.parametrize("keep", [0.0, 0.37, 1 - 2**-53])
def test_pram_draws_a_position_in_the_sorted_values_of_the_stratum(keep, within):
    rng = np.random.default_rng(7)
    levels = [None if level == 11 else f"level {level:02}" for level in range(12)]
    table = pa.table(
        {
            "x": [levels[place] for place in (rng.random(30_000) ** 3 * 12).astype(int)],
            "size": [f"size {size}" for size in rng.integers(0, 3, 30_000)],
        }
    )
    data = Microdata(table, Schema(name="drawn", attributes=(Attribute(name="x"), Attribute(name="size"))))
    after = mask("pram", data, attributes=["x"], within=within, keep=keep).data.table["x"].to_pylist()
    words = record_words(data, KEY, "pram", "x", replicate=0).tolist()
    before = table["x"].to_pylist()
    strata = table["size"].to_pylist() if within else [""] * len(before)
    known = sorted((stratum, value) for stratum, value in zip(strata, before, strict=True) if value is not None)
    starts = {stratum: bisect_left(known, (stratum, "")) for stratum in set(strata)}
    sizes = Counter(stratum for stratum, _ in known)
    for value, new, stratum, (first, second) in zip(before, after, strata, words, strict=True):
        is_kept = value is None or Fraction(2 * (first >> 12) + 1, 2**53) < Fraction(keep)
        drawn = known[starts[stratum] + ((second >> 32) * sizes[stratum] >> 32)][1]
        assert new == (value if is_kept else drawn)


@pytest.mark.parametrize("cells", [1, 40, 20_000])
def test_cells_are_found_as_by_a_search(cells):
    rng = np.random.default_rng(cells)
    ends = np.cumsum(rng.integers(1, 200, cells))
    positions = rng.integers(0, ends[-1], 50_000)
    expected = [bisect_right(ends.tolist(), position) for position in positions.tolist()]
    assert pram._find_cells(ends, positions).tolist() == expected
