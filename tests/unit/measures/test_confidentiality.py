"""The confidentiality plot against its definition, computed pair by pair."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap import datasets, workflow
from safeswap.errors import InputError, SafeswapError, SpecError
from safeswap.measures.plot.numeric_keys import confidentiality_plot, rank_links
from safeswap.measures.plot.plots import make_plot, plots_by_keys
from safeswap.measures.plot.values import Policy
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEYS = ("turnover", "employees")


def file(columns, identifiers=None):
    kinds = dict.fromkeys(columns, Kind.NUMERIC)
    if identifiers is not None:
        columns, kinds = {**columns, "id": identifiers}, {**kinds, "id": Kind.IDENTIFIER}
    schema = Schema(name="x", attributes=tuple(Attribute(name=n, kind=k) for n, k in kinds.items()))
    return Microdata(pa.table(columns), schema)


def pair(seed, records=40, **noise):
    """Skewed enterprises and a perturbed copy of theirs."""
    rng = np.random.default_rng(seed)
    employees = np.ceil(rng.lognormal(2.5, 1.0, records)) + 1
    turnover = np.round(employees * rng.lognormal(4, 0.8, records), 1) + 2
    size = noise.get("size", 0.2)
    y = turnover * rng.lognormal(0, size, records) + 2, np.ceil(employees * rng.lognormal(0, size, records)) + 1
    ids = rng.permutation(records) + 1000
    return (
        file({"turnover": turnover, "employees": employees}, ids),
        file({"turnover": y[0], "employees": y[1]}, ids),
    )


def values(data, scale="log"):
    found = np.column_stack([data.table[name].to_numpy() for name in KEYS])
    return np.log(found) if scale == "log" else found


def by_definition(x, y, archive, alpha):
    """Seri's formulas (2) to (4), one pair at a time."""
    norm = np.linalg.norm
    z = np.array([[norm(b - a) / norm(b) for a in archive] for b in y])
    apart = ~np.eye(len(y), len(archive), dtype=bool)
    delta = float(np.quantile(z[apart], alpha))
    return {
        "delta": delta,
        "perturbation": [norm(b - a) / norm(a) for a, b in zip(x, y, strict=True)],
        "neighbours": (z < delta).sum(axis=1).tolist(),
        "nearest": [bool(z[i, i] == z[i].min()) for i in range(len(y))],  # also where it shares that place
        "within": [bool(z[i, i] < delta) for i in range(len(y))],
    }


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.01, 0.05, 0.3]))
def test_every_figure_is_that_of_the_definition(seed, alpha):
    original, released = pair(seed)
    plot = confidentiality_plot(original, released, KEYS, alpha=alpha)
    told = by_definition(values(original), values(released), values(original), alpha)
    assert plot.threshold == pytest.approx(told["delta"], rel=1e-12)
    assert plot.perturbation.tolist() == pytest.approx(told["perturbation"])
    assert plot.across.tolist() == told["neighbours"]
    assert plot.nearest_true.tolist() == told["nearest"]
    assert plot.within.tolist() == told["within"]
    totals = plot.as_dict()
    assert totals["empty_neighbourhoods"] == told["neighbours"].count(0)
    assert totals["links_within_neighbourhoods"] == sum(told["within"])


def test_the_share_of_wrong_pairs_within_delta_is_alpha():
    original, released = pair(5, records=200)
    plot = confidentiality_plot(original, released, KEYS, alpha=0.05)
    wrong = plot.across.sum() - plot.within.sum()
    assert wrong / (200 * 199) == pytest.approx(0.05, abs=1e-4)


def test_the_largest_unit_is_the_one_with_the_largest_first_key():
    original, released = pair(6)
    plot = confidentiality_plot(original, released, KEYS)
    assert plot.largest == int(np.argmax(original.table["turnover"].to_numpy()))


def test_files_in_another_order_and_of_another_length_are_matched_by_identifier():
    original, released = pair(7)
    whole = confidentiality_plot(original, released, KEYS)
    rng = np.random.default_rng(8)
    order = rng.permutation(len(released))[:30]
    some = Microdata(released.table.take(pa.array(order)), released.schema)
    plot = confidentiality_plot(original, some, KEYS)
    assert plot.perturbation.tolist() == whole.perturbation[order].tolist()
    assert plot.labels.to_pylist() == [whole.labels[int(i)].as_py() for i in order]
    as_text = Microdata(original.table.set_column(2, "id", original.table["id"].cast(pa.string())), original.schema)
    assert confidentiality_plot(as_text, released, KEYS).across.tolist() == whole.across.tolist()


def test_the_order_of_either_file_plays_no_part_in_an_estimated_delta():
    original, released = pair(9)
    once = confidentiality_plot(original, released, KEYS, exact_up_to=1)
    turned = Microdata(original.table.take(pa.array(np.arange(39, -1, -1))), original.schema)
    again = confidentiality_plot(turned, released, KEYS, exact_up_to=1)
    assert once.threshold == again.threshold
    assert once.across.tolist() == again.across.tolist()


def test_an_estimated_delta_is_within_its_standard_error_of_the_exact_one():
    original, released = pair(10, records=300)
    exact = confidentiality_plot(original, released, KEYS)
    errors = []
    for i in range(12):
        plot = confidentiality_plot(original, released, KEYS, exact_up_to=1, secret=bytes([i] * 32), densities=False)
        errors.append((plot.threshold - exact.threshold) / plot.threshold_error)
        assert plot.settings["exact"] is False
    assert np.abs(errors).max() < 5
    assert 0.3 < np.std(errors) < 3


def test_without_identifiers_records_are_matched_by_position_or_not_at_all():
    one = file({"turnover": [2.0, 3.0, 4.0], "employees": [2.0, 3.0, 4.0]})
    short = file({"turnover": [2.0, 3.0], "employees": [2.0, 3.0]})
    assert "position" in confidentiality_plot(one, one, KEYS).notes[0]
    with pytest.raises(InputError) as caught:
        confidentiality_plot(one, short, KEYS)
    assert caught.value.code == "different-length"
    with pytest.raises(SpecError) as caught:
        confidentiality_plot(one, one, KEYS, archive=one)
    assert caught.value.code == "no-identifier"


def test_identifiers_that_have_nothing_in_common_are_refused():
    original, released = pair(11)
    strangers = Microdata(released.table.set_column(2, "id", pa.array(range(40))), released.schema)
    with pytest.raises(InputError) as caught:
        confidentiality_plot(original, strangers, KEYS)
    assert caught.value.code == "identifiers-differ"


def test_an_external_archive_stands_in_for_the_original():
    original, released = pair(12)
    rng = np.random.default_rng(13)
    rows = rng.permutation(40)[:25]
    archive = Microdata(original.table.take(pa.array(rows)), original.schema)
    plot = confidentiality_plot(original, released, KEYS, archive=archive)
    whole = confidentiality_plot(original, released, KEYS)
    assert plot.perturbation.tolist() == whole.perturbation.tolist(), "what was lost does not depend on the intruder"
    absent = np.setdiff1d(np.arange(40), rows)
    assert not plot.within[absent].any()
    assert not plot.nearest_true[absent].any()
    assert plot.across.max() <= 25


@pytest.mark.parametrize("distance", ["standardised", "mahalanobis"])
def test_other_distances_do_not_depend_on_units(distance):
    original, released = pair(14)
    plot = confidentiality_plot(original, released, KEYS, distance=distance, scale="linear")
    metric = [
        Microdata(d.table.set_column(0, "turnover", pa.array(d.table["turnover"].to_numpy() * 1000)), d.schema)
        for d in (original, released)
    ]
    again = confidentiality_plot(*metric, KEYS, distance=distance, scale="linear")
    assert again.across.tolist() == plot.across.tolist()
    assert again.perturbation.tolist() == pytest.approx(plot.perturbation.tolist(), rel=1e-9)
    x, y = values(original, "linear"), values(released, "linear")
    scale = np.linalg.inv(np.cov(x.T)) if distance == "mahalanobis" else np.diag(1 / x.var(axis=0, ddof=1))
    moved = [float(np.sqrt((b - a) @ scale @ (b - a))) for a, b in zip(x, y, strict=True)]
    assert plot.perturbation.tolist() == pytest.approx(moved)


def test_zero_vectors_follow_the_stated_rule():
    original = file({"turnover": [0.0, 0.0, 3.0, 5.0], "employees": [0.0, 0.0, 4.0, 12.0]}, [1, 2, 3, 4])
    released = file({"turnover": [0.0, 1.0, 0.0, 5.0], "employees": [0.0, 0.0, 0.0, 12.0]}, [1, 2, 3, 4])
    plot = confidentiality_plot(original, released, KEYS, scale="linear", alpha=0.2)
    assert plot.perturbation.tolist() == [0.0, np.inf, 1.0, 0.0]
    assert plot.across[0] == plot.across[2] == 2, "the zero vectors of the archive"
    assert plot.within.tolist()[0] is True
    assert any("zero vectors" in note for note in plot.notes)


def test_a_missing_value_takes_a_record_out_of_the_plot():
    original = file({"turnover": [2.0, 3.0, None, 9.0], "employees": [2.0, 3.0, 4.0, 9.0]}, [1, 2, 3, 4])
    released = file({"turnover": [2.0, None, 4.0, 9.5], "employees": [2.0, 3.0, 4.0, 9.0]}, [1, 2, 3, 4])
    plot = confidentiality_plot(original, released, KEYS, alpha=0.5)
    assert plot.placed.tolist() == [True, False, False, True]
    assert plot.as_dict()["placed"] == 2
    assert sum("omitted" in note for note in plot.notes) == 2
    assert plot.table()["neighbours"].null_count == 2


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"alpha": 0.0}, "bad-alpha"),
        ({"alpha": 1.0}, "bad-alpha"),
        ({"alpha": float("nan")}, "bad-alpha"),
        ({"scale": "cubic"}, "bad-scale"),
        ({"distance": "taxi"}, "bad-distance"),
        ({"keys": ()}, "bad-keys"),
        ({"keys": ("turnover", "turnover")}, "bad-keys"),
        ({"keys": ("nowhere",)}, "unknown-attribute"),
        ({"keys": ("id",)}, "key-not-numeric"),
    ],
)
def test_what_makes_no_sense_is_refused(options, code):
    original, released = pair(15)
    options = {"keys": KEYS, **options}
    with pytest.raises(SafeswapError) as caught:
        confidentiality_plot(original, released, **options)
    assert caught.value.code == code
    assert caught.value.hint


def test_a_number_without_a_logarithm_is_refused_with_a_way_out():
    original = file({"turnover": [0.0, 3.0, 7.0], "employees": [1.0, 2.0, 3.0]})
    with pytest.raises(SpecError) as caught:
        confidentiality_plot(original, original, KEYS)
    assert caught.value.code == "no-logarithm"
    assert "asinh" in caught.value.hint
    assert confidentiality_plot(original, original, KEYS, scale="asinh").placed.all()


def test_keys_that_do_not_vary_or_follow_from_each_other_have_no_such_distance():
    same = file({"turnover": [2.0, 3.0, 4.0], "employees": [5.0, 5.0, 5.0]})
    with pytest.raises(SpecError) as caught:
        confidentiality_plot(same, same, KEYS, distance="standardised")
    assert caught.value.code == "constant-key"
    double = file({"turnover": [2.0, 3.0, 5.0, 8.0], "employees": [4.0, 6.0, 10.0, 16.0]})
    with pytest.raises(SpecError) as caught:
        confidentiality_plot(double, double, KEYS, scale="linear", distance="mahalanobis")
    assert caught.value.code == "singular-keys"


def test_equally_near_records_share_the_link():
    original = file({"turnover": [2.0, 2.0, 9.0], "employees": [3.0, 3.0, 9.0]})
    plot = confidentiality_plot(original, original, KEYS)
    assert plot.ties.tolist() == [2, 2, 1]
    assert plot.links.tolist() == [False, False, True]
    assert plot.correct_link_share == pytest.approx(2 / 3)
    assert plot.as_dict()["shared_links"] == 2


def test_densities_add_up_and_cross_near_delta():
    original, released = pair(16, records=400)
    for exact_up_to in (20_000, 1):
        table = confidentiality_plot(original, released, KEYS, exact_up_to=exact_up_to).densities
        assert sum(table["m_share"].to_pylist()) == pytest.approx(1)
        assert sum(table["u_share"].to_pylist()) == pytest.approx(1)
        below = [
            u
            for u, end in zip(table["u_share"].to_pylist(), table["to"].to_pylist(), strict=True)
            if end is not None and end <= 1.0001 * table["to"][19].as_py()
        ]
        assert sum(below) == pytest.approx(0.05, abs=0.005), "a quarter of the steps up to 4δ"


def test_the_largest_units_are_found_by_rank_where_ranks_are_kept():
    rng = np.random.default_rng(17)
    x = rng.lognormal(3, 1, (50, 2))
    kept = rank_links((x * 2.5, x, np.arange(50)), units=10)
    assert kept["correct"].to_pylist() == [True] * 10
    moved = x.copy()
    first, second = np.argsort(-x[:, 0])[:2]
    moved[[first, second]] = x[[second, first]]
    assert rank_links((moved, x, np.arange(50)), units=3)["correct"].to_pylist() == [False, False, True]


def test_neighbours_of_a_record_are_named_nearest_first():
    original, released = pair(18)
    plot = confidentiality_plot(original, released, KEYS, alpha=0.2)
    x, y = values(original), values(released)
    for row in range(5):
        z = np.linalg.norm(y[row] - x, axis=1) / np.linalg.norm(y[row])
        near = [i for i in np.argsort(z) if z[i] < plot.threshold]
        found = plot.neighbours(row, most=100)
        assert found["record"].to_pylist() == [str(original.table["id"][int(i)].as_py()) for i in near]
        assert len(found) == plot.across[row]


def test_key_sets_make_a_table_of_totals():
    original, released = pair(19)
    table = plots_by_keys(original, released, [["turnover"], ["employees"], KEYS], policy=Policy(k=5))
    assert table["keys"].to_pylist() == ["turnover", "employees", "turnover, employees"]
    expected = confidentiality_plot(original, released, KEYS, policy=Policy(k=5)).as_dict()["unsafe"]
    assert table["unsafe"].to_pylist()[2] == expected


def test_the_verb_takes_a_masked_result_and_one_division():
    data = datasets.synthetic_enterprises()
    masked = workflow.mask(data, {"method": "noise", "attributes": ["turnover"], "size": 0.02}, insecure_seed=1)
    plot = workflow.confidentiality(masked, keys=KEYS, scale="asinh", only={"division": "18"})
    assert len(plot) == 157
    assert "157" in repr(plot)
    assert not [label for label in plot.labels.to_pylist() if label in repr(plot) + str(plot.as_dict())]
    with pytest.raises(SpecError) as caught:
        workflow.confidentiality(masked, keys=KEYS, only={"division": "99"})
    assert caught.value.code == "no-records"


def test_mixed_keys_and_options_of_another_way_are_refused():
    data = datasets.synthetic_enterprises()
    with pytest.raises(SpecError) as caught:
        make_plot(data, data, ["turnover", "region"])
    assert caught.value.code == "mixed-keys"
    with pytest.raises(SpecError) as caught:
        make_plot(data, data, ["region"], alpha=0.1)
    assert caught.value.code == "bad-option"
    with pytest.raises(SpecError) as caught:
        make_plot(data, data, ["region"], linkage="telepathy")
    assert caught.value.code == "bad-linkage"


def test_records_can_be_called_by_their_place_instead_of_their_identifiers():
    rng = np.random.default_rng(3)
    table = pa.table({"id": [f"p{i}" for i in range(60)], "a": rng.normal(10, 2, 60), "b": rng.normal(5, 1, 60)})
    masked = workflow.mask(
        workflow.read(table, identifier="id"), {"method": "rank_swap", "attributes": ["a", "b"]}, insecure_seed=1
    )
    plot = workflow.confidentiality(masked, keys=["a", "b"])
    numbered = plot.numbered()
    row = int(np.argmax(plot.across))
    named = [int(name[1:]) + 1 for name in plot.neighbours(row)["record"].to_pylist()]
    assert len(named) > 1
    assert numbered.neighbours(row)["record"].to_pylist() == named
    assert numbered.labels.to_pylist() == list(range(1, 61))
