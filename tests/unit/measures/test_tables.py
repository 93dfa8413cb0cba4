"""Every small table at once says what each table says alone."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from tests.unit.measures.samples import compare, microdata, swapped_files

from safeswap.arrays import divergence
from safeswap.errors import SpecError
from safeswap.measures import aligned as cross
from safeswap.measures.aligned import TABLE_MEASURES, align, distortion_tables, level_order
from safeswap.model.score import Comparison


@pytest.mark.parametrize("ways", [1, 2, 3])
@given(comparison=swapped_files())
def test_one_row_per_table_with_the_values_of_a_plain_count(ways: int, comparison: Comparison) -> None:
    rows = distortion_tables(comparison, ways=ways).to_pylist()
    assert [tuple(row["attributes"]) for row in rows] == list(combinations(comparison.attributes, ways))
    for row in rows:
        names = row["attributes"]
        sides = []
        for data in (comparison.before, comparison.after):
            sides.append(list(zip(*(data.table[name].to_pylist() for name in names), strict=True)))
        cells = sorted({*sides[0], *sides[1]}, key=repr)
        before, after = (np.array([side.count(cell) for cell in cells]) for side in sides)
        assert row["hellinger"] == pytest.approx(divergence.hellinger(before, after), abs=1e-12)
        assert row["total_variation"] == pytest.approx(divergence.total_variation(before, after), abs=1e-12)
        assert row["entropy_change"] == pytest.approx(divergence.entropy_change(before, after), abs=1e-12)
        if ways != 2:
            assert row["adV"] is row["adC"] is None
            continue
        places = [[sorted({c[i] for c in cells}, key=repr).index(c[i]) for c in cells] for i in range(2)]
        tables = [(np.array(places[0]), np.array(places[1]), counts) for counts in (before, after)]
        v = [divergence.cramers_v(*table) for table in tables]
        c = [divergence.contingency_c(*table) for table in tables]
        assert row["adV"] == pytest.approx(v[0] - v[1], abs=1e-7)
        assert row["adC"] == pytest.approx(c[0] - c[1], abs=1e-7)


@given(swapped_files())
def test_a_table_without_a_changed_attribute_is_exactly_zero(comparison: Comparison) -> None:
    for row in distortion_tables(comparison, ways=2).to_pylist():
        if "edu" not in row["attributes"]:
            assert not row["changed"]
            assert [row[m] for m in TABLE_MEASURES] == [0, 0, 0, 0, 0, None]


@given(swapped_files())
def test_swapping_keeps_every_margin_and_so_every_one_way_table(comparison: Comparison) -> None:
    for row in distortion_tables(comparison, ways=1).to_pylist():
        assert row["hellinger"] == row["total_variation"] == row["entropy_change"] == 0
        assert row["ordinal"] == (0 if row["attributes"] == ["edu"] else None)


@pytest.mark.parametrize("ways", [1, 2, 3])
@given(comparison=swapped_files())
def test_summing_cells_and_counting_records_give_the_same_tables(ways: int, comparison: Comparison) -> None:
    for names, table in cross.cross_tables(comparison, comparison.attributes, ways):
        if table is None:
            continue
        counted = cross.cross_table(comparison, names)
        for summed, plain in zip(table.levels, counted.levels, strict=True):
            np.testing.assert_array_equal(summed, plain)
        np.testing.assert_array_equal(table.before, counted.before)
        np.testing.assert_array_equal(table.after, counted.after)


def test_the_audit_is_not_asked_what_changed() -> None:
    comparison = compare({"x": ["a", "b"], "y": ["c", "d"]}, {"x": ["b", "a"], "y": ["c", "d"]})
    blind = Comparison(
        before=comparison.before,
        after=comparison.after,
        attributes=comparison.attributes,
        touched=np.zeros(2, dtype=np.bool_),
    )
    assert align(blind, "x").changed
    assert distortion_tables(blind)["total_variation"].to_pylist() == [1]


def test_many_levels_are_counted_without_a_dense_table() -> None:
    records = 3_000
    rng = np.random.default_rng(1)
    x, y, z = (rng.integers(0, 2_000, records) for _ in range(3))
    before = {"x": x.tolist(), "y": y.tolist(), "z": z.tolist()}
    comparison = compare(before, {**before, "y": y[::-1].tolist()})
    rows = distortion_tables(comparison, ways=2, measures=["total_variation", "adV"]).to_pylist()
    assert [row["changed"] for row in rows] == [True, False, True]
    pairs = [set(zip(x.tolist(), side.tolist(), strict=True)) for side in (y, y[::-1])]
    assert len(pairs[0] & pairs[1]) < 50
    assert rows[0]["total_variation"] > 0.95


def test_an_ordinal_attribute_far_from_home_counts_more() -> None:
    sex = ["m", "m", "f", "f"]
    before = {"sex": sex, "edu": ["low", "low", "low", "middle"]}
    near = {"sex": sex, "edu": ["low", "middle", "low", "low"]}
    far_before = {"sex": sex, "edu": ["low", "low", "low", "top"]}
    far = {"sex": sex, "edu": ["low", "top", "low", "low"]}
    values = [
        distortion_tables(compare(b, a, edu="ordinal"), measures=["ordinal"])["ordinal"][0].as_py()
        for b, a in ((before, near), (far_before, far))
    ]
    assert values == pytest.approx([0.5 / 3, 0.5])


def test_order_comes_from_the_description_or_from_numbers_and_is_never_guessed() -> None:
    numbers = compare({"x": ["10", "9", "2"]}, {"x": ["10", "9", "2"]})
    ordinal = {"x": "ordinal"}
    attribute = numbers.before.schema["x"].model_copy(update={"kind": "ordinal"})
    assert level_order(numbers, "x") is None  # nominal
    for values, ranks in ((["10", "9", "2"], [2, 1, 0]), (["ten", "nine", "two"], None)):
        data = microdata({"x": values})
        data = type(data)(data.table, data.schema.replace(attribute.model_copy(update={"kind": "ordinal"})))
        order = level_order(Comparison(before=data, after=data, attributes=("x",)), "x")
        assert (None if order is None else order.ranks.tolist()) == ranks
    stated = compare({"x": ["top", "low", "odd", None]}, {"x": ["top", "low", "odd", None]}, **ordinal)
    order = level_order(stated, "x")
    assert order is not None
    assert (order.ranks.tolist(), order.levels) == ([3, 0, -1, -1], 4)


@pytest.mark.parametrize(("ways", "measure", "code"), [(4, "hellinger", "bad-ways"), (2, "D", "unknown-measure")])
def test_what_no_table_has_is_refused(ways: int, measure: str, code: str) -> None:
    comparison = compare({"x": ["a"], "y": ["b"]}, {"x": ["a"], "y": ["b"]})
    with pytest.raises(SpecError) as caught:
        distortion_tables(comparison, ways=ways, measures=[measure])
    assert caught.value.code == code
