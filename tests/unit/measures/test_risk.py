"""The n-rule counts what it says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.measures.samples import compare, swapped_files

import safeswap
from safeswap import registry
from safeswap.errors import SpecError
from safeswap.measures.risk.risky import find_under
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario, resolve_files
from safeswap.model.schema import Attribute, Schema
from safeswap.model.score import Axis, Comparison


@given(swapped_files(), st.integers(2, 6), st.sampled_from([(), ("sex", "edu"), ("area",)]))
def test_unswapped_records_in_small_cells_over_all_unswapped_records(
    comparison: Comparison, n: int, keys: tuple[str, ...]
) -> None:
    names = keys or comparison.attributes
    cells = list(zip(*(comparison.after.table[name].to_pylist() for name in names), strict=True))
    sizes = Counter(cells)
    assert comparison.touched is not None
    unswapped = [cell for cell, touched in zip(cells, comparison.touched, strict=True) if not touched]
    small = sum(sizes[cell] < n for cell in unswapped)
    score = registry.measure("n_rule", n=n, keys=keys).score(comparison)
    assert score.axis is Axis.RISK
    assert score.value == pytest.approx(small / len(unswapped) if unswapped else 0)
    assert score.detail is not None
    assert sum(score.detail["unswapped_records"].to_pylist()) == small
    assert score.detail["cells"].to_pylist() == [Counter(sizes.values())[size] for size in range(1, n)]


def test_with_every_record_swapped_nothing_is_left_at_risk() -> None:
    score = registry.measure("n_rule").score(compare({"x": ["a", "b"]}, {"x": ["b", "a"]}))
    assert score.value == 0
    assert "Every record" in score.sentence


def test_the_risk_of_cps8d_before_any_swap() -> None:
    table = pq.read_table(Path(safeswap.__file__).parent / "datasets" / "cps8d.parquet")
    data = Microdata(table, Schema(attributes=tuple(Attribute(name=name) for name in table.column_names)))
    untouched = np.zeros(len(data), dtype=np.bool_)
    comparison = Comparison(before=data, after=data, attributes=data.attributes, touched=untouched)
    score = registry.measure("n_rule").score(comparison)
    assert score.value == pytest.approx(733 / 48_842, abs=1e-15)
    assert score.detail is not None
    assert score.detail["cells"].to_pylist() == [361, 186]


@pytest.mark.parametrize(
    ("stated", "unsafe", "told"),
    [
        ({"missing": "none"}, 0, "since it counts a missing value as a value of its own."),
        ({"missing": "own"}, 2, ""),
        ({"missing": "own", "up_to": 1}, 1, "since it takes all keys together, more than any combination"),
    ],
)
def test_why_the_n_rule_differs_from_the_unsafe_combinations_is_said(
    stated: dict[str, Any], unsafe: int, told: str
) -> None:
    sex, area = ["m", "m", "m", "f", "f", "f", None], ["a", "a", "a", "b", "b", "b", "b"]
    files = compare({"sex": sex, "area": area, "x": list("abcdefg")}, {"sex": sex, "area": area, "x": list("bacdefg")})
    resolved = resolve_files(Scenario(keys=["sex", "area"], tolerance=2, **stated), files.before, files.after)
    score = registry.measure("n_rule", n=2, keys=("sex", "area")).score(replace(files, scenario=resolved))
    assert score.value == pytest.approx(1 / 5)  # the record without a sex, of the five that took no part
    assert find_under(files.after, resolved).unsafe == unsafe
    assert ("It can differ" in score.sentence) == bool(told)
    assert told in score.sentence


def test_who_was_swapped_must_be_known() -> None:
    known = compare({"x": ["a", "b"]}, {"x": ["b", "a"]})
    unknown = Comparison(before=known.before, after=known.after, attributes=("x",))
    assert registry.measure("n_rule").needs == {"touched"}
    with pytest.raises(SpecError) as caught:
        registry.measure("n_rule").score(unknown)
    assert caught.value.code == "needs-touched"
