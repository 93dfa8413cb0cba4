"""The promise about rare combinations notices what is left."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.dwellings import KEYS, dwellings, edit

from safeswap.methods.edit_targeted import method
from safeswap.methods.edit_targeted.method import TreatedClasses


def test_it_holds_after_an_edit_and_not_before() -> None:
    data = dwellings(2000)
    masked = edit(data)
    promise = TreatedClasses(KEYS, 3)
    assert promise.check(data, masked.data, masked.audit).ok
    untouched = promise.check(data, data, masked.audit)
    assert not untouched.ok
    assert "no changed record" in untouched.problem


def test_a_wrong_count_in_the_audit_is_found() -> None:
    data = dwellings(2000)
    masked = edit(data, keep_fraction=0.5)
    facts = dict(masked.audit.facts)
    assert TreatedClasses(KEYS, 3).check(data, masked.data, masked.audit).ok
    for wrong in (facts["left"] - 1, facts["left"] + 1, None):
        lying = replace(masked.audit, facts={**facts, "left": wrong})
        assert not TreatedClasses(KEYS, 3).check(data, masked.data, lying).ok


@pytest.mark.parametrize("fraction", [0.3, 1.0])
def test_columns_with_dictionaries_are_counted_alike(fraction: float, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dwellings(2000)
    masked = edit(data, keep_fraction=fraction)
    coded = {name: data.table.column(name).combine_chunks().dictionary_encode() for name in KEYS}
    columns = {name: pa.chunked_array([column]) for name, column in coded.items()}
    before, after = (each.with_columns(columns, {}) for each in (data, masked.data))
    promise = TreatedClasses(KEYS, 3)
    asked = []
    counted = method._left_by_places
    monkeypatch.setattr(method, "_STEP", 300)
    monkeypatch.setattr(method, "_BLOCK", 64)
    monkeypatch.setattr(method, "_left_by_places", lambda *given: asked.append(1) or counted(*given))
    assert promise.check(before, after, masked.audit).ok
    assert not promise.check(before, before, masked.audit).ok
    assert len(asked) == 2


def test_another_tolerance_is_another_promise() -> None:
    data = dwellings(2000)
    masked = edit(data, tolerance=2)
    assert TreatedClasses(KEYS, 2).check(data, masked.data, masked.audit).ok
    assert not TreatedClasses(KEYS, 4).check(data, masked.data, masked.audit).ok


def test_nothing_of_it_reaches_the_public() -> None:
    assert TreatedClasses(KEYS, 3).for_users_of(KEYS) is None
