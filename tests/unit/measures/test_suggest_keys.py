"""Suggested keys, against a count by hand that shares no code."""

from collections import Counter
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safeswap as ss
from safeswap.errors import SpecError
from safeswap.measures.risk import suggest_keys as ranking
from safeswap.measures.risk.suda2 import score_weights
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema

COLUMNS = st.integers(2, 5).flatmap(
    lambda width: st.lists(
        st.tuples(*[st.sampled_from([None, "a", "b", "c", "?"]) for _ in range(width)]), min_size=1, max_size=20
    )
)


def microdata(rows, **kinds):
    names = [f"c{i}" for i in range(len(rows[0]))]
    columns = {name: pa.array([row[i] for row in rows], pa.string()) for i, name in enumerate(names)}
    attributes = tuple(Attribute(name=name, missing=("?",), **kinds) for name in names)
    return Microdata(pa.table(columns), Schema(attributes=attributes))


def by_hand(rows, below=2):
    """Return the names in greedy order, with records in cells of fewer than so many and cells after each."""
    rows = [tuple("?" if value is None else value for value in row) for row in rows]  # both mean: no answer
    left = [i for i in range(len(rows[0])) if len({row[i] for row in rows} - {None}) > 0]
    chosen, found = [], []
    while left:
        counts = {i: Counter(tuple(row[j] for j in (*chosen, i)) for row in rows) for i in left}
        values = {i: len({row[i] for row in rows} - {"?"}) for i in left}
        best = max(left, key=lambda i: (len(counts[i]), values[i], -i))
        alone = sum(size for size in counts[best].values() if size < below)
        chosen.append(best)
        left.remove(best)
        found.append((f"c{best}", alone / len(rows), len(counts[best]) / len(rows)))
    return found, chosen, rows


def suda_by_hand(rows, chosen):
    """Return each column's share of the weights of minimal uniques of up to three columns."""
    weights, shares, total = score_weights(len(chosen), min(3, len(chosen)), "elliot"), Counter(), 0.0
    for row in rows:
        minimal = []
        for size in range(1, min(3, len(chosen)) + 1):
            for places in combinations(chosen, size):
                alone = sum(all(row[i] == other[i] for i in places) for other in rows) == 1
                if alone and not any(set(less) <= set(places) for less in minimal):
                    minimal.append(places)
        for places in minimal:
            total += weights[len(places)]
            for i in places:
                shares[i] += weights[len(places)]
    return [shares[i] / max(total, 1.0) for i in chosen]


@settings(deadline=None, max_examples=60)
@given(COLUMNS, st.sampled_from([2, 2, 3, 5]))
def test_ranks_and_figures_are_those_counted_by_hand(rows, below):
    known = [i for i in range(len(rows[0])) if len({row[i] for row in rows} - {None}) > 1]
    rows = [tuple(row[i] for i in known) for row in rows]
    if not known:
        return
    found = ranking.rank_keys(microdata(rows), below=below)
    expected, chosen, plain = by_hand(rows, below)
    assert [(each.name, each.unique, each.found) for each in found] == [
        (name, pytest.approx(unique), pytest.approx(cells)) for name, unique, cells in expected
    ]
    assert sum(each.added for each in found) == pytest.approx(found[-1].unique)
    if len(chosen) > 1:
        assert [each.suda for each in found] == pytest.approx(suda_by_hand(plain, chosen))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.one_of(st.none(), st.floats(-50, 50)), min_size=2, max_size=60))
def test_numbers_are_ranked_in_groups_of_neighbours(values):
    if len({value for value in values if value is not None}) < 2:
        return
    schema = Schema(attributes=(Attribute(name="x", kind="numeric"),))
    found = ranking.rank_keys(Microdata(pa.table({"x": values}), schema))
    assert found[0].banded
    assert found[0].levels <= 10
    column = ranking._code(Microdata(pa.table({"x": values}), schema), "x")
    pairs = sorted(
        (value, code) for value, code in zip(values, column.codes.tolist(), strict=True) if value is not None
    )
    assert [code for _, code in pairs] == sorted(code for _, code in pairs)
    assert "groups of its values" in found[0].sentence or "1 group" in found[0].sentence


def test_what_cannot_be_a_key_is_left_out_with_the_reason():
    count = 60
    table = pa.table(
        {
            "id": range(count),
            "hid": [i // 2 for i in range(count)],
            "w": [1.5] * count,
            "name": [f"person {i}" for i in range(count)],
            "land": ["x"] * count,
            "sex": ["f", "m"] * (count // 2),
        }
    )
    kinds = {"id": "identifier", "hid": "household", "w": "weight"}
    schema = Schema(attributes=tuple(Attribute(name=n, kind=kinds.get(n, "nominal")) for n in table.column_names))
    found = ss.suggest_keys(Microdata(table, schema))
    assert found.names == ("sex",)
    assert [name for name, _ in found.skipped] == ["id", "hid", "w", "name", "land"]
    assert "person 1" not in repr(found) + str(found.as_dict())
    assert "Left out: land (one value only)." in repr(found)


def test_a_wide_file_is_cut_to_the_attributes_with_most_values(monkeypatch):
    monkeypatch.setattr(ranking, "MOST_COLUMNS", 3)
    rng = np.random.default_rng(3)
    columns = {f"c{i}": rng.integers(0, 2 + i, 400).astype(str) for i in range(6)}
    data = Microdata(pa.table(columns), Schema(attributes=tuple(Attribute(name=name) for name in columns)))
    found = ss.suggest_keys(data)
    assert set(found.names) == {"c3", "c4", "c5"}
    assert found.note == "Of 6 attributes, the 3 with the most values were ranked."


def test_some_may_be_named_and_few_asked_for():
    data = ss.datasets.cps8d()
    assert ss.suggest_keys(data, among=["Sex", "Race"]).names == ("Sex", "Race")
    assert len(ss.suggest_keys(data, most=2)) == 2
    for wrong in ({"among": ["Job"]}, {"most": 0}):
        with pytest.raises(SpecError):
            ss.suggest_keys(data, **wrong)


def test_a_file_without_records_or_keys_has_no_suggestion():
    empty = microdata([("a", "b")]).table.slice(0, 0)
    schema = Schema(attributes=tuple(Attribute(name=name) for name in empty.column_names))
    found = ss.suggest_keys(Microdata(empty, schema))
    assert len(found) == 0
    assert "no attribute to suggest" in repr(found)


def test_dates_are_ranked_in_groups_too():
    days = pa.array(range(10_000, 10_200), pa.int32()).cast(pa.date32())
    data = ss.read(pa.table({"born": days, "sex": ["m", "f"] * 100}))
    found = ranking.rank_keys(data)
    assert found.names == ("born", "sex")
    assert found[0].banded
    assert found[0].unique == 0.0
