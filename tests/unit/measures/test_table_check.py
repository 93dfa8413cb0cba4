"""Which small cells of tables can be worked out: against all tables that have the published figures."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.oracles.published_figures import intervals, random_case

from safeswap import datasets, workflow
from safeswap.errors import SpecError
from safeswap.measures import table_check
from safeswap.model.table import CountTable, Programme


def checked(case):
    """The check of a case, by the product."""
    tables = tuple(CountTable.from_array(counts, names=tuple("ABC"[i] for i in axes)) for axes, counts in case.tables)
    return table_check.check_programme(Programme(tables=tables), tolerance=case.tolerance, margins=case.margins)


@pytest.mark.parametrize("number", range(60))
def test_intervals_are_those_of_all_tables_with_the_published_figures(number):
    case = random_case(np.random.default_rng(number))
    found = checked(case)
    assert found.is_exact
    for table, (low, high) in zip(found.tables, intervals(case), strict=True):
        assert table.lower.tolist() == low.tolist()
        assert table.upper.tolist() == high.tolist()
        assert table.derived == int(((low == high) & table.table.small(case.tolerance)).sum())


def test_a_withheld_cell_is_at_least_1_and_below_the_tolerance():
    found = workflow.check_tables([[1, 2], [3, 3]], tolerance=4)
    assert (found.small, found.derived) == (4, 4)


def test_a_single_small_cell_is_given_back_by_its_margin():
    found = workflow.check_tables([[1, 4], [6, 9]], tolerance=3)
    assert (found.small, found.derived, found.way) == (1, 1, "interval propagation")
    assert found.sentence == (
        "one cell of the table is above 0 and below 3; were it withheld, the published figures would give it back "
        "(found by interval propagation)"
    )
    assert not found.is_safe


def test_four_small_cells_in_a_square_protect_one_another():
    found = workflow.check_tables([[1, 2, 9], [2, 1, 9], [9, 9, 9]], tolerance=3)
    assert (found.small, found.derived) == (4, 0)
    assert (found.way, found.is_exact) == ("integer programming", True)
    (table,) = found.tables
    assert table.lower[0, 0] == 1
    assert table.upper[0, 0] == 2


def test_without_published_margins_only_the_number_of_records_tells_anything():
    counts = [[1, 9], [9, 2]]
    assert workflow.check_tables(counts, tolerance=3).derived == 2
    assert workflow.check_tables(counts, tolerance=3, margins=False).derived == 0


def test_a_second_table_gives_back_what_the_first_withholds():
    # In the first table two cells of a line are withheld; the second has one of them as a figure of its own.
    rng = np.random.default_rng(1)
    cube = rng.integers(5, 9, (2, 2, 2))
    cube[0, 0] = (1, 0)
    cube[0, 1] = (0, 2)
    first = CountTable.from_array(cube.sum(axis=2), names=("A", "B"))
    second = CountTable.from_array(cube, names=("A", "B", "C"))
    alone = table_check.check_programme(Programme(tables=(first,)), tolerance=3, margins=False)
    both = table_check.check_programme(Programme(tables=(first, second)), tolerance=3)
    assert alone.derived == 0
    assert both.tables[0].derived == 2


def test_propagation_alone_claims_nothing_false(monkeypatch):
    counts = np.random.default_rng(2).integers(0, 9, (6, 7))
    sharp = workflow.check_tables(counts, tolerance=4)
    monkeypatch.setattr(table_check, "MOST_PROGRAMMES", 0)
    rough = workflow.check_tables(counts, tolerance=4)
    assert (rough.way, rough.is_exact) == ("interval propagation", False)
    assert f"at least {rough.derived} of them back" in rough.sentence
    assert (rough.tables[0].lower <= sharp.tables[0].lower).all()
    assert (rough.tables[0].upper >= sharp.tables[0].upper).all()
    assert (rough.tables[0].lower <= counts).all()
    assert (rough.tables[0].upper >= counts).all()


def test_the_cells_are_written_for_inside_and_totals_are_shown(tmp_path):
    found = workflow.check_tables(datasets.cps8d(), [["Race", "EmpTyp", "MS", "Edu", "Age"], ["Sex", "Edu"]], 5)
    assert found.small == 26
    found.write(tmp_path / "small.parquet")
    rows = workflow.read(tmp_path / "small.parquet").table
    assert rows.num_rows == 26
    assert max(int(count) for count in rows["count"].to_pylist()) < 5
    assert "Govt" not in str(found.as_dict())
    assert "Govt" not in repr(found)


def test_a_table_in_rows_is_checked():
    rows = pa.table({"Region": ["N", "N", "S", "S"], "Sex": ["f", "m", "f", "m"], "n": [1, 9, 9, 9]})
    assert workflow.check_tables(rows, tolerance=3, count="n").small == 1


def test_a_file_without_tables_is_refused():
    with pytest.raises(SpecError) as caught:
        workflow.check_tables(datasets.cps8d())
    assert caught.value.code == "no-table"


def test_small_cells_of_a_weighted_file_have_their_estimate_in_the_population():
    columns = {"area": list("aaaabbbb"), "sex": list("ffmmffmf"), "w": [1.5, 2.0, 1.0, 3.0, 2.5, 1.0, 4.25, 1.0]}
    data = workflow.read(pa.table(columns), kinds={"w": "weight"})
    (table,) = workflow.check_tables(data, ["area", "sex"], tolerance=3).tables
    rows = {(row["area"], row["sex"]): row["weighted"] for row in table.long().to_pylist()}
    assert rows == {("a", "f"): 3.5, ("a", "m"): 4.0, ("b", "m"): 4.25}
    without = workflow.read(pa.table({**columns, "w": [0.0, *columns["w"][1:]]}), kinds={"w": "weight"})
    assert "weighted" not in workflow.check_tables(without, ["area", "sex"], tolerance=3).tables[0].long().column_names
