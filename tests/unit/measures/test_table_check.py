"""Which small cells of tables can be worked out: against all tables that have the published figures."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap import datasets, workflow
from safeswap.errors import SpecError
from safeswap.measures import table_check
from safeswap.model.table import CountTable, Programme


def values_by_trying(counts: np.ndarray, tolerance: int) -> list[set[int]]:
    """For each cell the values that it has in some table with the published cells and margins."""

    def hidden(figures):
        return (figures > 0) & (figures < tolerance)

    rows, columns = counts.sum(axis=1), counts.sum(axis=0)
    free = np.flatnonzero(hidden(counts))
    found: list[set[int]] = [set() for _ in range(counts.size)]
    for values in product(range(int(counts.sum()) + 1), repeat=len(free)):
        table = counts.copy()
        table.ravel()[free] = values
        fits = table.sum() == counts.sum()
        fits &= bool((table.sum(axis=1) == rows)[~hidden(rows)].all())
        fits &= bool((table.sum(axis=0) == columns)[~hidden(columns)].all())
        if fits:
            for cell, value in enumerate(table.ravel()):
                found[cell].add(int(value))
    return found


@given(
    st.lists(st.sampled_from([0, 1, 2, 4, 5]), min_size=6, max_size=6).filter(
        lambda cells: any(cells) and sum(0 < cell < 3 for cell in cells) <= 3
    )
)
def test_bounds_are_those_of_all_tables_with_the_published_figures(cells):
    counts = np.array(cells).reshape(2, 3)
    found = workflow.check_tables(counts, tolerance=3)
    (table,) = found.tables
    tried = values_by_trying(counts, 3)
    assert table.lower.ravel().tolist() == [min(values) for values in tried]
    assert table.upper.ravel().tolist() == [max(values) for values in tried]
    assert found.small == int(((counts > 0) & (counts < 3)).sum())
    assert found.derived == sum(
        len(values) == 1 for values, count in zip(tried, counts.ravel(), strict=True) if 0 < count < 3
    )


def test_a_single_small_cell_is_given_back_by_its_margin():
    found = workflow.check_tables([[1, 4], [6, 9]], tolerance=3)
    assert (found.small, found.derived, found.way) == (1, 1, "interval propagation")
    assert found.sentence == (
        "one cell of the table is above 0 and below 3; were it withheld, subtraction from the published figures "
        "would give it back (found by interval propagation)"
    )
    assert not found.is_safe


def test_four_small_cells_in_a_square_protect_one_another():
    found = workflow.check_tables([[1, 2, 9], [2, 1, 9], [9, 9, 9]], tolerance=3)
    assert (found.small, found.derived) == (4, 0)
    assert found.way == "linear programming"
    (table,) = found.tables
    assert table.lower[0, 0] == 0
    assert table.upper[0, 0] == 3


def test_without_published_margins_only_the_number_of_records_tells_anything():
    counts = [[1, 9], [9, 2]]
    assert workflow.check_tables(counts, tolerance=3).derived == 2
    assert workflow.check_tables(counts, tolerance=3, margins=False).derived == 0


def test_a_second_table_gives_back_what_the_first_withholds():
    # In the first table two cells of a line are withheld; the second has one of them as a figure of its own.
    rng = np.random.default_rng(1)
    cube = rng.integers(5, 9, (2, 2, 2))
    cube[0, 0] = (1, 0)
    cube[0, 1] = (0, 1)
    first = CountTable.from_array(cube.sum(axis=2), names=("A", "B"))
    second = CountTable.from_array(cube, names=("A", "B", "C"))
    alone = table_check.check_programme(Programme(tables=(first,)), tolerance=3, margins=False)
    both = table_check.check_programme(Programme(tables=(first, second)), tolerance=3)
    assert alone.derived == 0
    assert both.tables[0].derived >= alone.tables[0].derived


def test_propagation_alone_claims_nothing_false(monkeypatch):
    counts = np.random.default_rng(2).integers(0, 9, (6, 7))
    sharp = workflow.check_tables(counts, tolerance=4)
    monkeypatch.setattr(table_check, "MOST_PROGRAMMES", 0)
    rough = workflow.check_tables(counts, tolerance=4)
    assert rough.way == "interval propagation"
    assert (rough.tables[0].lower <= sharp.tables[0].lower).all()
    assert (rough.tables[0].upper >= sharp.tables[0].upper).all()
    assert (rough.tables[0].lower <= counts).all()
    assert (rough.tables[0].upper >= counts).all()


def test_the_cells_are_written_for_inside_and_totals_are_shown(tmp_path):
    found = workflow.check_tables(datasets.cps8d(), [["Race", "EmpTyp", "MS", "Edu", "Age"], ["Sex", "Edu"]], 5)
    assert found.small == 26
    workflow.write_checked(found, tmp_path / "small.parquet")
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
