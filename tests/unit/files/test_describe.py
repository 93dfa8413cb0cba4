"""A description tells what a file is like and nothing of any record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap import datasets
from safeswap.arrays.cells import count_cells
from safeswap.errors import SpecError
from safeswap.files.describe import cell_sizes, describe
from safeswap.files.read import read
from safeswap.model.schema import Kind


def everything(description: object) -> str:
    return repr(description) + description._repr_html_() + json.dumps(description.as_dict())  # type: ignore[attr-defined]


def test_cps8d_is_described() -> None:
    found = describe(datasets.cps8d())
    assert (found.records, found.cells.possible, found.cells.occupied, found.cells.small) == (
        48842,
        2880,
        1695,
        (361, 186),
    )
    assert [level.level for level in found["Edu"].levels] == ["<HS", "HS", "Coll", "Bach", "Bach+"]
    assert found["Edu"].levels[0].label == "less than high school"
    assert found["Age"].letter == "A"
    assert "Age (A)" in repr(found)


def test_levels_below_tolerance_are_counted_and_not_shown() -> None:
    column = ["common"] * 5 + ["CANARY1"] * 2 + ["CANARY2"]
    found = describe(read(pa.table({"x": column}), kinds={"x": "nominal"}))
    assert [level.level for level in found["x"].levels] == ["common"]
    assert found["x"].levels_below == 2
    assert "CANARY" not in everything(found)
    assert "2 levels <3" in repr(found)
    assert found.as_dict()["attributes"][0]["levels_below_tolerance"] == {"number": 2, "count": "<3"}


def test_the_tolerance_is_the_callers() -> None:
    data = read(pa.table({"x": ["a"] * 5 + ["b"] * 2}), kinds={"x": "nominal"})
    assert [level.count for level in describe(data, tolerance=2)["x"].levels] == [5, 2]
    assert describe(data, tolerance=6)["x"].levels == ()
    with pytest.raises(SpecError):
        describe(data, tolerance=0)


@pytest.mark.parametrize("kind", [Kind.IDENTIFIER, Kind.NUMERIC, Kind.WEIGHT, Kind.HOUSEHOLD])
def test_of_numbers_and_identifiers_only_their_number_is_told(kind: Kind) -> None:
    table = pa.table({"x": [471100 + i for i in range(10)], "y": ["a"] * 10})
    found = describe(read(table, kinds={"x": kind}))
    assert found["x"].distinct == 10
    assert found["x"].levels == ()
    assert "4711" not in everything(found)


def test_missing_values_and_missing_codes_are_counted() -> None:
    table = pa.table({"x": ["a", "a", "a", None, "-9", "-9"]})
    found = describe(read(table, kinds={"x": "nominal"}, missing=["-9"]), tolerance=1)["x"]
    assert (found.missing, found.missing_codes, found.distinct) == (1, 2, 2)


@pytest.mark.parametrize(
    ("values", "kind", "missing", "codes", "hidden"),
    [
        (["a"] * 9 + ["b"] * 5 + [None] * 4, "nominal", 4, 0, []),
        (["a"] * 9 + ["b"] * 5 + [None] * 2, "nominal", None, 0, ["b"]),  # 2 = 16 − 9 − 5
        (["a"] * 9 + ["-9"] * 2 + [None] * 5, "nominal", None, None, []),  # 2 = 16 − 9 − 5
        (["1.5"] * 9 + [None] * 2, "numeric", None, 0, []),
        (["1.5"] * 2 + [None] * 9, "numeric", None, 0, []),
        (["1.5"] * 9 + [None] * 9, "numeric", 9, 0, []),
    ],
)
def test_few_missing_values_are_hidden_and_do_not_come_back_by_subtraction(
    values, kind, missing, codes, hidden
) -> None:
    data = read(pa.table({"x": values}), kinds={"x": kind}, missing=["-9"])
    description = describe(data, tolerance=3)
    found = description["x"]
    assert (found.missing, found.missing_codes) == (missing, codes)
    assert [level.level for level in found.levels if level.count is None] == hidden
    assert ("hidden" in description.rows()[0][3]) == (missing is None)


def test_unused_categories_are_not_mentioned() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0, 2], pa.int8()), ["a", "CANARY", "b"])
    found = describe(read(pa.table({"x": column}), kinds={"x": "nominal"}), tolerance=1)
    assert found["x"].distinct == 2
    assert "CANARY" not in everything(found)


def test_cells_can_be_formed_from_stated_keys() -> None:
    found = describe(datasets.cps8d(), keys=["Race", "Sex"])
    assert (found.cells.possible, found.cells.occupied, found.cells.small) == (4, 4, (0, 0))


def test_without_categorical_attributes_there_are_no_cells() -> None:
    found = describe(read(pa.table({"x": [1, 2]}), kinds={"x": "numeric"}))
    assert found.cells.occupied == 0
    assert "no cells" in found.cells.sentence


def test_a_guessed_column_with_a_comma_in_its_name_reads_as_one() -> None:
    data = read(pa.table({"Straße, Haus": ["a", "b"], "Ort": ["c", "d"]}))
    assert 'The kinds of 2 attributes are guesses ("Straße, Haus", Ort): check them.' in describe(data).warnings


def test_what_is_printed_can_do_no_harm() -> None:
    nasty = "\x1b[31m<script>\n"
    found = describe(read(pa.table({nasty: [nasty] * 5}), kinds={nasty: "nominal"}))
    assert "\x1b" not in repr(found)
    assert "<script>" not in found._repr_html_()
    assert repr(found).count("\n") == repr(found).replace(nasty, "").count("\n")


@pytest.mark.parametrize(
    ("column", "kind", "words"),
    [
        (["a"] * 30, "nominal", "same value"),
        ([None] * 30, "nominal", "every value is missing"),
        ([f"n{i}" for i in range(30)], "nominal", "hardly a category"),
        (["a", "A"] * 15, "nominal", "case, spaces or accents"),
        (["a", "a "] * 15, "nominal", "case, spaces or accents"),
        (["é", "e\u0301"] * 15, "nominal", "case, spaces or accents"),
        (["low", "high"] * 15, "ordinal", "order of its levels is not stated"),
        (["a", "", None] * 10, "nominal", "some are empty strings"),
        (["a", "NA", "?"] * 10, "nominal", "2 levels look like a mark"),
    ],
)
def test_what_gives_reason_to_look_twice_is_said(column: list[str | None], kind: str, words: str) -> None:
    found = describe(read(pa.table({"x": column}), kinds={"x": kind}))
    assert any(words in warning for warning in found.warnings)
    calm = describe(read(pa.table({"x": ["a", "b"] * 15}), kinds={"x": "nominal"}))
    assert not any(words in warning for warning in calm.warnings)


def test_a_guess_that_would_release_the_numbers_of_persons_is_doubted() -> None:
    """Confirming the guess by one click would make it a quantity."""
    table = pa.table(
        {"post": [10_000_000 + 7 * i for i in range(60)], "income": [i * i % 613 + 0.5 for i in range(60)]}
    )
    guessed = read(table)
    assert guessed.schema["post"].kind.value == "numeric"
    words = "looks like the number of a person"
    assert [w.partition(":")[0] for w in describe(guessed).warnings if words in w] == ["post"]
    stated = read(table, kinds={"post": "numeric"})
    assert not any(words in w for w in describe(stated).warnings)


def test_guesses_are_called_guesses(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n" + "x,y\n" * 5)
    assert any("guesses (a, b)" in w for w in describe(read(tmp_path / "x.csv")).warnings)
    assert "nominal ?" in repr(describe(read(tmp_path / "x.csv")))
    assert not any("guess" in w for w in describe(datasets.cps8d()).warnings)


@given(data=st.data(), rows=st.integers(1, 40), width=st.integers(1, 12))
def test_cells_are_counted_as_the_kernel_counts_them(data: st.DataObject, rows: int, width: int) -> None:
    cardinalities = data.draw(st.lists(st.sampled_from([1, 2, 3, 200, 60_000]), min_size=width, max_size=width))
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, c, rows).astype(np.uint16) for c in cardinalities]
    assert sorted(cell_sizes(columns, cardinalities)) == sorted(count_cells(columns, cardinalities).counts)
