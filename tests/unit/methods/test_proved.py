"""A bound that is printed is at most what was reached: anything else is an error of the program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeswap.errors import InternalError, SafeswapError
from safeswap.methods.safe.spec import SafeTables
from safeswap.methods.suppress import method
from safeswap.methods.suppress.solver import Answer, blank_least
from safeswap.model.score import proved_bound
from safeswap.workflow import mask, safe_table


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_bound_is_never_above_the_value_beside_it(bound: float, value: float) -> None:
    if bound > value + 2e-6 * max(1.0, value):
        with pytest.raises(InternalError) as caught:
            proved_bound(bound, value)
        assert caught.value.code == "false-bound"
    elif bound <= value:
        assert proved_bound(bound, value) == bound


def test_an_answer_of_suppression_with_a_false_bound_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def false(*args: Any, **terms: Any) -> Answer:
        found = blank_least(*args, **terms)
        return replace(found, bound=found.cost + 1)

    spec = {"method": "suppress", "keys": ["A"], "tolerance": 2}
    data = pa.table({"A": ["x", "x", "y"]})
    assert mask(data, spec, insecure_seed=1).audit.facts["least_possible"] == 1
    monkeypatch.setattr(method, "blank_least", false)
    with pytest.raises(InternalError) as caught:
        mask(data, spec, insecure_seed=1)
    assert caught.value.code == "false-bound"


def test_a_safe_table_with_a_false_bound_is_not_given() -> None:
    found: SafeTables = safe_table(np.array([[1, 2], [6, 9]]), tolerance=3)
    with pytest.raises(InternalError):
        replace(found, bound=found.value + 1)
    with pytest.raises(InternalError):
        replace(found, violation_bound=found.violation + 1)


@settings(max_examples=40)
@given(
    counts=st.lists(st.lists(st.integers(0, 7), min_size=2, max_size=3), min_size=2, max_size=2).filter(
        lambda rows: len({len(row) for row in rows}) == 1
    ),
    tolerance=st.integers(2, 4),
    objective=st.sampled_from(["total", "largest"]),
    keep=st.booleans(),
)
def test_bounds_of_safe_tables_are_at_most_their_values(
    counts: list[list[int]], tolerance: int, objective: str, keep: bool
) -> None:
    terms = {} if keep else {"keep": []}
    try:
        found = safe_table(np.array(counts), tolerance=tolerance, objective=objective, **terms)
    except SafeswapError as error:
        assert not isinstance(error, InternalError)  # noqa: PT017
        return
    assert 0 <= found.bound <= found.value
    assert (found.status == "optimal") == (found.bound == found.value)
