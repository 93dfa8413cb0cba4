"""Safe tables: the printed example, every table of a tiny size against trying all, refusals with their reasons."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.safe_tables import best, random_case

from safeswap import datasets, workflow
from safeswap.errors import InfeasibleError, InputError, SpecError
from safeswap.model.table import CountTable, Programme

MOORE = [[19, 10, 10, 15], [4, 10, 10, 1], [11, 14, 8, 2], [15, 1, 2, 2]]
"""The example of Moore 1996, section V: tolerance 5, regions in rows."""

IMPOSSIBLE = [[1, 3], [2, 3]]
"""Rows add up to 4 and 5, columns to 3 and 6: with tolerance 3 no cell can be other than 0, 3 or 4 to 6."""


def is_safe(counts: np.ndarray, tolerance: int) -> bool:
    return bool(((counts == 0) | (counts >= tolerance)).all())


def same_margins(one: np.ndarray, other: np.ndarray) -> bool:
    return all(np.array_equal(np.sum(one, axis=axis), np.sum(other, axis=axis)) for axis in range(np.ndim(one)))


def every_safe_table(counts: np.ndarray, tolerance: int) -> list[np.ndarray]:
    """All safe tables with the (n−1)-way margins of a tiny table, by trying every value of every cell."""
    most = np.minimum(counts.sum(axis=1)[:, None], counts.sum(axis=0)[None, :])
    values = [[0, *range(tolerance, int(top) + 1)] for top in most.ravel()]
    tried = np.stack(np.meshgrid(*values, indexing="ij"), axis=-1).reshape(-1, *counts.shape)
    fits = (tried.sum(axis=1) == counts.sum(axis=0)).all(axis=1) & (tried.sum(axis=2) == counts.sum(axis=1)).all(axis=1)
    return list(tried[fits])


def test_the_printed_example_is_solved_as_well_as_possible():
    result = workflow.safe_table(MOORE, 5)
    assert (result.total, result.largest, result.status, result.gap) == (14, 3, "optimal", 0.0)
    assert is_safe(result.counts, 5)
    assert same_margins(result.counts, np.array(MOORE))


def test_the_largest_change_of_the_printed_example_is_proved():
    result = workflow.safe_table(MOORE, 5, objective="largest")
    assert (result.value, result.bound, result.status) == (3, 3, "optimal")
    assert same_margins(result.counts, np.array(MOORE))


def test_margins_that_no_safe_table_has_are_named():
    with pytest.raises(InfeasibleError) as caught:
        workflow.safe_table(IMPOSSIBLE, 3)
    assert caught.value.code == "no-safe-table"
    assert caught.value.fields["minimal"]
    assert "cannot be met together" in str(caught.value)
    figures = caught.value.fields["figures"]
    assert 2 <= len(figures) <= 4
    # The certificate holds: no safe table has these figures, and one has all but the last of them.
    assert not meeting(figures)
    assert all(meeting([f for f in figures if f is not left]) for left in figures)


def meeting(figures):
    """The tables of 0 and 3 to 9 that have these figures."""
    found = []
    for cells in product([0, *range(3, 10)], repeat=4):
        table = np.array(cells).reshape(2, 2)
        sums = {"axis 0": table.sum(axis=1), "axis 1": table.sum(axis=0)}
        if all(sums[f["margin"][0]][f["at"][0]] == f["total"] for f in figures):
            found.append(table)
    return found


def test_soft_margins_are_off_by_the_least_and_listed():
    result = workflow.safe_table(IMPOSSIBLE, 3, soft=True)
    assert is_safe(result.counts, 3)
    listed = {(v.margin, v.at): v.after - v.before for v in result.violations}
    assert sum(map(abs, listed.values())) == result.violation == result.violation_bound
    least = min(
        sum(np.abs(np.array(cells).reshape(2, 2).sum(axis=a) - np.sum(IMPOSSIBLE, axis=a)).sum() for a in (0, 1))
        for cells in product([0, *range(3, 10)], repeat=4)
    )
    assert result.violation == least


def asked(case, **options):
    """The product's answer to a case."""
    one = len(case.counts) == 1
    tables = [
        CountTable.from_array(counts, names=[f"v{axis}" for axis in axes])
        for axes, counts in zip(case.axes, case.counts, strict=True)
    ]
    stated = {name: value[0] if one else value for name, value in case.options.items()}
    keep = None if case.keep is None else [[f"v{axis}" for axis in each] for each in case.keep]
    options = {"keep": keep, "objective": case.objective, "soft": case.soft, **stated, **options}
    return workflow.safe_table(tables[0] if one else Programme(tables=tuple(tables)), case.tolerance, **options)


def disagreement(case, **options) -> str:
    """What is untrue of the product's answer, found by trying all tables; nothing where all is true."""
    least = best(case)
    try:
        found = asked(case, **options)
    except InfeasibleError as refused:
        proved = refused.code in ("no-safe-table", "margin-below-tolerance")
        return "" if least is None or not proved else f"refused with {refused.code}, {least} exists"
    if least is None:
        return "a table was found where none exists"
    off, value = least
    wrong = []
    if not found.violation_bound <= off <= found.violation:
        wrong.append(f"violation {found.violation}, at least {found.violation_bound}; the least is {off}")
    if found.violation == off and not found.bound - 1e-9 <= value <= found.value + 1e-9:
        wrong.append(f"value {found.value}, at least {found.bound}; the least is {value}")
    if found.status == "optimal" and (found.violation, found.value) != (off, pytest.approx(value)):
        wrong.append(f"{found.violation}, {found.value} called optimal; {off}, {value} is")
    return "; ".join(wrong)


@pytest.mark.parametrize("seed", range(80))
def test_values_and_bounds_agree_with_trying_all_tables(seed):
    case = random_case(np.random.default_rng(seed))
    assert disagreement(case) == ""
    assert disagreement(case, time_limit=1e-3) == ""
    if len(case.counts) == 1:
        assert disagreement(case, solver="heuristic") == ""


@pytest.mark.parametrize(
    ("counts", "tolerance", "least"), [([[3, 3, 2]], 4, 4), ([[2, 1], [6, 1]], 3, 2), (IMPOSSIBLE, 3, 2)]
)
def test_a_soft_table_may_exceed_kept_figures(counts, tolerance, least):
    result = workflow.safe_table(counts, tolerance, soft=True)
    assert (result.violation, result.violation_bound, result.status) == (least, least, "optimal")
    assert result.sentence.endswith(f"off, by {least} together; the least possible")


@settings(max_examples=40)
@given(
    st.sampled_from([(2, 2), (2, 3), (3, 2)]).flatmap(
        lambda shape: (
            st.lists(
                st.integers(0, 5 if shape == (2, 2) else 3), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]
            )
            .filter(any)
            .map(lambda cells: np.array(cells).reshape(shape))
        )
    ),
    st.integers(2, 4),
)
def test_every_tiny_table_is_as_near_as_trying_all_tables_finds(counts, tolerance):
    possible = every_safe_table(counts, tolerance)
    if not possible:
        with pytest.raises(InfeasibleError) as caught:
            workflow.safe_table(counts, tolerance)
        assert caught.value.code in ("no-safe-table", "margin-below-tolerance")
        return
    by_total = workflow.safe_table(counts, tolerance)
    by_largest = workflow.safe_table(counts, tolerance, objective="largest")
    changes = [np.abs(table - counts) for table in possible]
    assert by_total.value == by_total.bound == min(int(change.sum()) for change in changes)
    assert by_largest.value == by_largest.bound == min(int(change.max()) for change in changes)
    for result in (by_total, by_largest):
        assert is_safe(result.counts, tolerance)
        assert same_margins(result.counts, counts)


@settings(max_examples=10)
@given(st.lists(st.integers(0, 9), min_size=12, max_size=12), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_weights_decide_which_cells_change(cells, tolerance, seed):
    counts = np.array(cells).reshape(3, 4) + 2
    weights = np.random.default_rng(seed).integers(1, 6, counts.shape)
    try:
        weighted = workflow.safe_table(counts, tolerance, objective="weighted", weights=weights)
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            workflow.safe_table(counts, tolerance)
        return
    plain = workflow.safe_table(counts, tolerance)
    assert weighted.value == (weights * np.abs(weighted.counts - counts)).sum()
    assert weighted.value <= (weights * np.abs(plain.counts - counts)).sum()
    assert weighted.status == "optimal"


def thirds(shape, seed=3, tolerance=5):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < 1 / 3, rng.integers(1, tolerance, shape), rng.integers(tolerance, 60, shape))


def test_the_heuristic_keeps_every_promise_and_knows_its_distance():
    counts = thirds((24, 20))
    result = workflow.safe_table(counts, 5, solver="heuristic")
    assert is_safe(result.counts, 5)
    assert same_margins(result.counts, counts)
    assert result.bound <= result.value
    assert result.gap < 0.05
    assert result.status in ("heuristic", "optimal")


def test_the_exact_solver_is_no_worse_and_its_bound_no_lower():
    counts = thirds((8, 7), seed=4)
    exact, quick = (workflow.safe_table(counts, 5, solver=solver) for solver in ("exact", "heuristic"))
    assert exact.status == "optimal"
    assert quick.bound <= exact.value <= quick.value


def test_three_way_margins_are_kept():
    counts = thirds((3, 4, 4), seed=5)
    result = workflow.safe_table(counts, 5)
    assert is_safe(result.counts, 5)
    assert same_margins(result.counts, counts)
    loose = workflow.safe_table(counts, 5, keep=[["axis 0"], ["axis 1", "axis 2"]])
    assert loose.value <= result.value
    assert (loose.counts.sum(axis=0) == counts.sum(axis=0)).all()
    assert (loose.counts.sum(axis=(1, 2)) == counts.sum(axis=(1, 2))).all()


def test_structural_zeros_stay_and_bounds_hold():
    counts = thirds((6, 6), seed=6)
    counts[0, 0] = counts[3, 4] = 0
    zeros = counts == 0
    lower, upper = np.maximum(counts - 4, 0), counts + 6
    result = workflow.safe_table(counts, 5, structural_zeros=zeros, bounds=(lower, upper))
    assert (result.counts[zeros] == 0).all()
    assert ((result.counts >= lower) & (result.counts <= upper)).all()
    assert is_safe(result.counts, 5)
    by_position = workflow.safe_table(counts, 5, structural_zeros=[(0, 0), ("3", "4")], bounds=(lower, upper))
    assert by_position.value == result.value


def test_a_dataframe_comes_back_in_its_own_type():
    rows = pd.DataFrame({"Sex": ["f", "m", "f", "m"], "n": [4, 9, 9, 9], "Region": ["N", "N", "S", "S"]})
    result = workflow.safe_table(rows, 5, count="n")
    frame = workflow.to_frame(result)
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == ["Sex", "n", "Region"]
    assert is_safe(frame["n"].to_numpy(), 5)
    assert frame.groupby("Region")["n"].sum().to_dict() == {"N": 13, "S": 18}


def test_microdata_are_tabulated_and_several_tables_come_out_alike():
    data = datasets.cps8d()
    tables = [["Edu", "Age", "AvgHrs", "MS"], ["Edu", "Age", "Race", "EmpTyp"]]
    result = workflow.safe_table(data, 8, attributes=tables, keep=[["Edu"], ["Race"], ["MS"]])
    first, second = (changed.after for changed in result.tables)
    assert is_safe(first.counts, 8)
    assert is_safe(second.counts, 8)
    assert np.array_equal(first.margin(["Edu", "Age"]), second.margin(["Edu", "Age"]))
    before = result.tables[0].before
    assert before.total == first.total == len(data)
    assert np.array_equal(before.margin(["Edu"]), first.margin(["Edu"]))
    assert result.total > 0
    assert workflow.to_frame(result).column_names[:2] == ["Edu", "Age"]


def test_a_safe_table_is_left_as_it_is():
    result = workflow.safe_table([[5, 0], [7, 9]], 5)
    assert result.total == 0
    assert result.status == "optimal"


def test_the_same_table_gives_the_same_result():
    counts = thirds((12, 15), seed=9)
    one, other = (workflow.safe_table(counts, 5, solver="heuristic").counts for _ in range(2))
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        ([[1, -2], [3, 4]], "negative-count"),
        ([[1, 2.5], [3, 4]], "fractional-count"),
        ([[1, float("nan")], [3, 4]], "missing-count"),
        ([], "empty-table"),
        ([[0, 0], [0, 0]], "empty-table"),
        ([["a", "b"]], "bad-table"),
        (7, "bad-table"),
        ([[2.0**60, 1]], "too-large"),
    ],
)
def test_what_is_no_table_of_counts_is_refused(counts, code):
    with pytest.raises((InputError, SpecError)) as caught:
        workflow.safe_table(counts if counts != 7 else np.array("seven"), 3)
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize("tolerance", [1, 0, -3, 2.5, True, "3"])
def test_a_tolerance_below_two_is_refused(tolerance):
    for verb in (
        lambda: workflow.safe_table(MOORE, tolerance),
        lambda: workflow.check_tables(MOORE, tolerance=tolerance),
        lambda: workflow.safe_records(datasets.cps8d(), [["Sex"]], tolerance, insecure_seed=1),
    ):
        with pytest.raises(SpecError) as caught:
            verb()
        assert caught.value.code == "bad-tolerance"


def test_a_kept_margin_below_tolerance_is_explained():
    with pytest.raises(InfeasibleError) as caught:
        workflow.safe_table([[1, 1, 0], [9, 9, 9]], 5)
    assert caught.value.code == "margin-below-tolerance"
    assert "never add up" in str(caught.value)
    assert {"margin": ["axis 0"], "at": [0]} in caught.value.fields["margins"]


def test_margins_that_do_not_add_up_are_refused():
    with pytest.raises(InputError) as caught:
        workflow.safe_table(MOORE, 5, keep={("axis 0",): [54, 25, 35, 21]})
    assert caught.value.code == "margins-do-not-add-up"
    assert caught.value.fields["figures"] == 1
    assert workflow.safe_table(MOORE, 5, keep={("axis 0",): [54, 25, 35, 20]}).status == "optimal"


def test_linked_tables_that_disagree_are_refused():
    one = CountTable.from_array([[4, 9], [5, 6]], names=("Region", "Sex"))
    other = CountTable.from_array([[4, 8], [5, 6]], names=("Region", "Age"))
    with pytest.raises(InputError) as caught:
        Programme(tables=(one, other))
    assert caught.value.code == "margins-disagree"


def misshapen(shape):
    """Arrays that numpy would stretch or read otherwise, without a word, until they fit the shape."""
    return st.sampled_from([(1,), (shape[-1],), (1, shape[-1]), (shape[0], 1), (1, *shape), shape[::-1]]).filter(
        lambda other: other != shape
    )


@given(st.sampled_from([(2, 3), (3, 3), (4, 2)]).flatmap(lambda shape: st.tuples(st.just(shape), misshapen(shape))))
def test_what_is_stated_for_cells_has_the_shape_of_the_table(shapes):
    shape, other = shapes
    counts, wrong = np.full(shape, 7), np.ones(other)
    for options, code in (
        ({"objective": "weighted", "weights": wrong}, "bad-weights"),
        ({"bounds": (0 * wrong, 99)}, "bad-bounds"),
        ({"bounds": (0, 99 * wrong)}, "bad-bounds"),
        ({"structural_zeros": wrong == 0}, "bad-table"),
    ):
        with pytest.raises(SpecError) as caught:
            workflow.safe_table(counts, 5, **options)
        assert caught.value.code == code
        assert caught.value.hint


@pytest.mark.parametrize("name", ["weights", "bounds", "structural_zeros"])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_of_several_tables_each_has_its_own(name, number):
    one = CountTable.from_array([[4, 9], [5, 6]], names=("Region", "Sex"))
    other = CountTable.from_array([[4, 9], [5, 6]], names=("Region", "Age"))
    each = {"weights": np.ones((2, 2)), "bounds": (0, 99), "structural_zeros": np.zeros((2, 2), bool)}[name]
    options = {"objective": "weighted"} if name == "weights" else {}
    with pytest.raises(SpecError) as caught:
        workflow.safe_table([one, other], 3, **options, **{name: [each] * number})
    assert caught.value.code == "bad-spec"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"objective": "smallest"}, "bad-spec"),
        ({"solver": "guess"}, "bad-spec"),
        ({"time_limit": 0}, "bad-spec"),
        ({"soft": True, "objective": "largest"}, "bad-spec"),
        ({"keep": [["Region"]]}, "unknown-variable"),
        ({"weights": np.ones((4, 4))}, "bad-weights"),
        ({"objective": "weighted", "weights": -np.ones((4, 4))}, "bad-weights"),
        ({"bounds": (5, 3)}, "bad-bounds"),
        ({"bounds": (np.zeros(3), np.ones(7))}, "bad-bounds"),
        ({"structural_zeros": [(0, 9)]}, "bad-table"),
        ({"structural_zeros": [(0, 0)]}, "structural-zero-counted"),
    ],
)
def test_what_makes_no_sense_is_refused(options, code):
    with pytest.raises((InputError, SpecError)) as caught:
        workflow.safe_table(MOORE, 5, **options)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (pa.table({"Region": ["N"], "n": [4]}), "no-count-column"),
        (pa.table({"count": [4, 5]}), "empty-table"),
        (pa.table({"Region": ["N", "N"], "count": [4, 5]}), "repeated-cell"),
        (pa.table({"Region": ["N", "S"], "count": [4, None]}), "missing-count"),
        (pa.table({"Region": ["N", "S"], "count": ["4", "many"]}), "bad-table"),
        (pa.table({"Region": ["N", "S"], "count": [4, -5]}), "negative-count"),
    ],
)
def test_rows_that_form_no_table_are_refused(rows, code):
    with pytest.raises(InputError) as caught:
        workflow.safe_table(rows, 3)
    assert caught.value.code == code
