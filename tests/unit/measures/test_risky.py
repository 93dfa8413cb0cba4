"""Unsafe combinations against a count of plain values, one record after the other."""

from itertools import combinations

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.methods.blanking_by_hand import matches

from safeswap.errors import InputError, SpecError
from safeswap.measures.risk.risky import risky
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.workflow import risky as verb

NAMES = ("A", "B", "C")
MEANINGS = ["none", "own", "any", "vouching"]


def microdata(records, weights=None):
    columns = {
        name: pa.array([None if r[j] is None else f"v{r[j]}" for r in records], pa.string())
        for j, name in enumerate(NAMES)
    }
    attributes = [Attribute(name=name) for name in NAMES]
    if weights is not None:
        columns["w"] = pa.array(weights, pa.float64())
        attributes.append(Attribute(name="w", kind=Kind.WEIGHT))
    return Microdata(pa.table(columns), Schema(attributes=tuple(attributes)))


def by_hand(records, keys, tolerance, meaning, weights):
    """The unsafe combinations of values with their size, and the records behind them."""
    cells, rows = {}, set()
    for i, record in enumerate(records):
        if meaning == "none" and any(record[k] is None for k in keys):
            continue
        size = sum(w for other, w in zip(records, weights, strict=True) if matches(record, other, keys, meaning))
        if size < tolerance:
            cells[tuple(record[k] for k in keys)] = size
            rows.add(i)
    return cells, rows


files = st.lists(st.tuples(*[st.sampled_from([0, 1, 2, None])] * 3), min_size=3, max_size=14)


@pytest.mark.parametrize("meaning", MEANINGS)
@pytest.mark.parametrize("weighted", [False, True])
@given(records=files, tolerance=st.integers(1, 3), up_to=st.integers(1, 3))
def test_the_list_is_that_of_counting_by_hand(records, meaning, weighted, tolerance, up_to):
    weights = [1 + i % 3 for i in range(len(records))] if weighted else [1] * len(records)
    data = microdata(records, weights if weighted else None)
    asked = {"keys": NAMES, "up_to": up_to, "tolerance": tolerance, "missing": meaning}
    found = risky(data, {**asked, **({"weight": "w"} if weighted else {})})
    everywhere, behind, lists = {}, set(), {}
    for size in range(1, up_to + 1):
        for keys in combinations(range(3), size):
            cells, rows = by_hand(records, keys, tolerance, meaning, weights)
            lists[keys] = rows
            behind |= rows
            everywhere |= {(keys, values): number for values, number in cells.items()}
    told = {
        (
            tuple(NAMES.index(k) for k in row["keys"]),
            tuple(None if v is None else int(v[1:]) for v in row["values"]),
        ): row["count"]
        for row in found.listed().to_pylist()
    }
    assert told == everywhere
    assert set(found.rows().tolist()) == behind
    assert found.unsafe_records == len(behind)
    for j, key in enumerate(found.keys):
        with_it = set().union(*(rows for keys, rows in lists.items() if j in keys))
        without = set().union(*(rows for keys, rows in lists.items() if j not in keys))
        assert (key.records, key.alone) == (len(with_it), len(behind - without))


def test_a_code_for_no_answer_is_missing_unless_it_is_a_value_of_its_own():
    schema = Schema(attributes=(Attribute(name="A", missing=("?",)),))
    data = Microdata(pa.table({"A": ["x", "x", "?"]}), schema)
    assert risky(data, {"keys": ["A"], "tolerance": 2}).unsafe == 0
    assert risky(data, {"keys": ["A"], "tolerance": 2, "missing": "own"}).unsafe == 1


def test_a_list_of_its_own_tolerance_is_counted_by_it():
    data = microdata([(0, 0, 0)] * 4 + [(1, 0, 0)] * 2)
    found = risky(data, [{"keys": ("A",), "tolerance": 3}, ("A", "B")])
    assert [(each.tolerance, each.unsafe) for each in found.combinations] == [(3, 1), (3, 1)]
    assert risky(data, {"combinations": [{"keys": ("A",), "tolerance": 2}]}).unsafe == 0


FRAME = pd.DataFrame({"id": [70, 80, 90], "Town": ["here", "here", "there"], "Job": ["x", None, "y"]})


def test_parts_come_in_the_type_of_the_caller():
    found = verb(FRAME, [("Town",), ("Town", "Job")], tolerance=2, missing="own")
    for part in ("dimensions", "keys", "combinations", "unsafe", "records"):
        assert isinstance(found.to_frame(part), pd.DataFrame)
    unsafe = found.to_frame("unsafe")
    assert unsafe["count"].tolist() == [1] * 4
    assert found.to_frame("dimensions")["unsafe"].tolist() == [1, 3]


def test_records_are_known_by_their_identifier():
    from safeswap.workflow import read

    found = verb(read(FRAME, identifier="id"), [("Town",)], tolerance=2)
    assert found.to_frame("records").to_dict("list") == {"id": [90], "row": [2], "unsafe_combinations": [1]}


def test_names_of_attributes_do_not_get_in_the_way():
    found = verb(
        pd.DataFrame({"count": ["a", "b"], "combination": ["c", "c"]}), [("count", "combination")], tolerance=2
    )
    assert list(found.to_frame("unsafe").columns) == ["combination_", "count_", "tolerance", "count", "combination"]


def test_what_is_printed_holds_no_value_and_no_row():
    found = verb(FRAME, keys=["Town", "Job"], up_to=2, tolerance=2)
    assert "there" not in repr(found) + str(found.as_dict())
    assert "records" in repr(found)


def test_a_weight_must_be_a_number_for_every_record():
    data = microdata([(0, 0, 0)] * 3, [1.0, None, 1.0])
    with pytest.raises(InputError) as caught:
        risky(data, {"keys": ["A"], "weight": "w"})
    assert caught.value.code == "bad-weight"


def test_a_tolerance_below_every_weight_is_told_to_mean_nothing():
    records = [(0, 0, 0), (1, 1, 1), (1, 0, 1)]
    weighed = {"keys": ["A", "B"], "weight": "w", "tolerance": 3}
    blind = risky(microdata(records, [250.0, 3.0, 90.0]), weighed)
    assert blind.unsafe == 0
    assert "nothing can be unsafe: state the tolerance as a sum of w" in blind.note
    assert blind.note in repr(blind)
    assert risky(microdata(records, [250.0, 2.5, 90.0]), weighed).note == ""
    assert risky(microdata(records), {"keys": ["A", "B"], "tolerance": 2}).note == ""


def test_what_was_not_looked_at_is_not_known():
    found = verb(FRAME, [("Town",)])
    with pytest.raises(SpecError, match="not among"):
        found.rows("Job")
    with pytest.raises(SpecError, match="no part"):
        found.to_frame("everything")


def test_a_mapping_goes_alone():
    with pytest.raises(SpecError) as caught:
        verb(FRAME, {"keys": ["Town"]}, tolerance=2)
    assert caught.value.code == "bad-spec"
