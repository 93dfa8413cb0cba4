"""Methods give the same pairs under random codes, orders and batches; kernels that break the rules do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.strategies import CASES, swap_example
from tests.engines.shuffled import ShuffledRecords

from safeswap import registry
from safeswap.engines.base import DRAW, Kernel, Records
from safeswap.engines.memory import MemoryRecords
from safeswap.methods.exchange import ExchangingMethod
from safeswap.model.key import Key

KEY = Key(bytes(range(32)))
METHODS = {
    name: method
    for name, method in registry.methods().items()
    if isinstance(method, ExchangingMethod) and not method.needs & set(ShuffledRecords.lacks)
}


def drawn(method: ExchangingMethod, records: Records, spec: Any) -> tuple[Any, ...]:
    found = method.draw(records, spec, KEY)
    facts = {name: value for name, value in dict(found.facts).items() if name != "diagnosis"}
    # An estimate that decides nothing; its last digits depend on the order in which classes are added up.
    plan = replace(found.plan, pairs_per_record=())
    return plan, found.made, facts, [(move.names, move.pairs.tolist()) for move in found.moves]


def test_methods_that_run_everywhere_are_tried() -> None:
    assert {"swap", "edit_1990"} <= set(METHODS)


@pytest.mark.parametrize("method", [pytest.param(m, id=n) for n, m in METHODS.items()])
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_codes_orders_and_batches_change_nothing(method: ExchangingMethod, data: st.DataObject, seed: int) -> None:
    microdata, spec = data.draw(CASES[method.name].inputs)
    expected = drawn(method, MemoryRecords(microdata, KEY), spec)
    assert drawn(method, ShuffledRecords(microdata, KEY, seed), spec) == expected


@pytest.mark.parametrize("method", [pytest.param(m, id=n) for n, m in METHODS.items()])
def test_the_example_has_the_same_pairs(method: ExchangingMethod) -> None:
    microdata, spec = CASES[method.name].example()
    expected = drawn(method, MemoryRecords(microdata, KEY), spec)
    assert expected[1] > 0
    for seed in range(5):
        assert drawn(method, ShuffledRecords(microdata, KEY, seed), spec) == expected


@dataclass(frozen=True)
class Neighbours:
    """Pair the first two records of each group: a kernel as it should be."""

    needs: tuple[str, ...] = ("Race",)
    adds: tuple[str, ...] = ("mate", "first")
    partner: str = "mate"

    def __call__(self, bounds: np.ndarray, columns: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        mate, first = (np.full(int(bounds[-1]), value, dtype=np.int64) for value in (-1, 0))
        for low, high in pairwise(bounds):
            if high - low > 1:
                a, b = self.choose(low, high, columns["Race"])
                mate[[a, b]], first[a] = [b, a], 1
        return {"mate": mate, "first": first}

    def choose(self, low: int, high: int, codes: np.ndarray) -> tuple[int, int]:
        return low, low + 1


class LeastCode(Neighbours):
    """Compares codes for order: the record with the least code comes first."""

    def choose(self, low: int, high: int, codes: np.ndarray) -> tuple[int, int]:
        least = low + int(np.argmin(codes[low:high]))
        return least, low + (least == low)


class AcrossGroups(Neighbours):
    """Looks into the next group: pairs what stands together, whatever the group."""

    def __call__(self, bounds: np.ndarray, columns: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        return super().__call__(np.unique([*range(0, int(bounds[-1]), 2), int(bounds[-1])]), columns)


class RowParity(Neighbours):
    """Looks at rows, as far as a kernel can: the position in the batch decides."""

    def choose(self, low: int, high: int, codes: np.ndarray) -> tuple[int, int]:
        return (low, high - 1) if low % 2 else (low, low + 1)


def pairs_of(records: Records, kernel: Kernel) -> list[list[int]]:
    table = records.draw(("Race", "Age", "Town"), bytes(32)).map_groups(("Age", "Town"), (DRAW,), kernel)
    found: Any = table.pairs("first", "mate", (DRAW,))
    return found.tolist()


def is_caught(kernel: Kernel) -> bool:
    data = swap_example()[0]
    expected = pairs_of(MemoryRecords(data, KEY), kernel)
    assert expected
    return any(pairs_of(ShuffledRecords(data, KEY, seed), kernel) != expected for seed in range(5))


def test_a_kernel_that_keeps_the_rules_is_not_blamed() -> None:
    assert not is_caught(Neighbours())


@pytest.mark.parametrize("kernel", [LeastCode(), AcrossGroups(), RowParity()], ids=lambda each: type(each).__name__)
def test_a_kernel_that_breaks_a_rule_is_caught(kernel: Kernel) -> None:
    assert is_caught(kernel)
