"""The reports of SAFE: every table before and after, the cells that changed marked and no others."""

from __future__ import annotations

import re

import numpy as np
from tests.conformance.safe_strategies import safe_example

from safeswap import workflow
from safeswap.files.schema_file import write_schema
from safeswap.files.write import write
from safeswap.model.key import Key
from safeswap.reports.masking import write_masking_report
from safeswap.reports.safe import grid, safe_sections, write_safe_report
from safeswap.workflow.masking import keep, recall

MOORE = [[19, 10, 10, 15], [4, 10, 10, 1], [11, 14, 8, 2], [15, 1, 2, 2]]


def test_exactly_the_changed_cells_are_marked():
    result = workflow.safe_table(MOORE, 5)
    section = grid(result.tables[0], 5)
    assert {(row, column - 1) for row, column in section.marked_cells} == set(
        map(tuple, np.argwhere(result.counts != np.array(MOORE)).tolist())
    )
    for row, column in section.marked_cells:
        before, after = section.rows[row][column].split(" → ")
        assert (int(before), int(after)) == (MOORE[row][column - 1], result.counts[row, column - 1])


def test_a_table_too_wide_to_print_lists_its_changes():
    counts = np.full((3, 40), 9)
    counts[0, :5] = 1
    result = workflow.safe_table(counts, 5)
    section = grid(result.tables[0], 5)
    assert section.columns == ("axis 0", "axis 1", "before", "after")
    assert len(section.rows) == int((result.counts != counts).sum())


def test_the_report_of_records_shows_tables_and_what_moved(tmp_path):
    data, spec = safe_example()
    masked = workflow.mask(data, spec, key=Key(bytes(32)))
    overview, moved, *tables = safe_sections(masked)
    assert len(overview.rows) == len(tables) == len(spec.tables)
    assert [row[0] for row in moved.rows if row[2] == "changed"] == masked.audit.facts["univariate_margins_moved"]
    for section, told in zip(tables, masked.audit.facts["tables"], strict=True):
        assert len(section.marked_cells) == told["changed_cells"]
    text = write_masking_report(masked, tmp_path / "report.html", assessment=workflow.assess(masked)).read_text()
    assert len(re.findall('class="num changed"', text)) == sum(len(section.marked_cells) for section in tables)
    assert "The tables before and after" in text


def test_a_file_that_was_kept_and_taken_up_again_has_the_same_report(tmp_path):
    data, spec = safe_example()
    write(data, tmp_path / "original.parquet")
    original = workflow.read(tmp_path / "original.parquet", schema=data.schema)
    masked = workflow.mask(original, spec, key=Key(bytes(32)))
    reading = {"schema": str(tmp_path / "schema.toml")}
    write_schema(original.schema, tmp_path / "schema.toml")
    keep(masked, tmp_path / "masked.parquet", audit=tmp_path / "audit", reading=reading)
    again = recall(tmp_path / "original.parquet", tmp_path / "masked.parquet", audit=tmp_path / "audit")
    assert safe_sections(again)[2:] == safe_sections(masked)[2:]


def test_violated_margins_are_listed(tmp_path):
    result = workflow.safe_table([[1, 3], [2, 3]], 3, soft=True)
    text = write_safe_report(result, tmp_path / "soft.html").read_text()
    assert "Kept figures that are off" in text
    assert "No safe table is off by fewer than" in text
