"""Draws whose first words are equal are ordered by the whole cipher text, never by rows, on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.conformance.on_files import KEY, check_on_file, exchanges
from tests.conformance.strategies import edit_1990_example, swap_example

from safeswap import registry
from safeswap.arrays import keyed
from safeswap.methods.swap import stage_key
from safeswap.model.microdata import Microdata
from safeswap.model.spec import SwapSpec, Targeting

BITS = 6
SWAPS = {
    "all": SwapSpec(swap=("Race",), fixed=("Sex",), rate=1 / 3),
    "uniform": SwapSpec(swap=("Race",), rate=0.9, pairing="uniform", on_shortfall="take"),
    "repaired": SwapSpec(swap=("Race",), differ=("Town",), rate=1.0, on_shortfall="take"),
    "targeted": SwapSpec(swap=("Race",), rate=0.2, targeting=Targeting(keys=("Age", "Town"), n=20, weight=3.0)),
    "targeted, fixed": SwapSpec(swap=("Age",), fixed=("Sex",), rate=0.4, targeting=Targeting(keys=("Race",), n=60)),
    "targeted, repaired": SwapSpec(
        swap=("Race",), rate=1.0, on_shortfall="take", targeting=Targeting(keys=("Age",), n=60)
    ),
}
CASES = {name: (swap_example()[0], spec) for name, spec in SWAPS.items()}
CASES["edit_1990"] = edit_1990_example()
every_case = pytest.mark.parametrize("name", CASES)


@pytest.fixture
def tied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first bits of the first word of a draw are left; other uses of the cipher keep all of it."""
    mask = np.uint64((2**BITS - 1) << (64 - BITS))
    keys = set()
    for data, _ in CASES.values():
        keys.add(stage_key(data, KEY, stage=0, replicate=0))
        keys.add(keyed.derive(KEY.secret, "data", data.schema.name, len(data), "edit_1990", "sample", 0))
    encrypt, chunks = keyed.encrypt, keyed.draw_chunks

    def encrypt_few(blocks: Any, key: bytes) -> Any:
        words = encrypt(blocks, key)
        if key in keys:
            words[:, 0] &= mask
        return words

    def few_chunks(identifiers: Any, key: bytes, **options: Any) -> Iterator[tuple[int, Any]]:
        for start, draws in chunks(identifiers, key, **options):
            yield start, draws & mask if key in keys else draws

    monkeypatch.setattr(keyed, "encrypt", encrypt_few)
    monkeypatch.setattr(keyed, "draw_chunks", few_chunks)


@every_case
def test_files_have_the_pairs_of_memory(name: str, tied: None, tmp_path: Path) -> None:
    data, spec = CASES[name]
    check_on_file(registry.method(spec.method), "duckdb", (data, spec), tmp_path)


@every_case
def test_rows_do_not_break_ties(name: str, tied: None) -> None:
    data, spec = CASES[name]
    method = registry.method(spec.method)
    rows = np.random.default_rng(1).permutation(len(data))
    moved = Microdata(data.table.take(pa.array(rows)), data.schema)
    ((names, pairs),) = exchanges(method.apply(data, spec, key=KEY).audit)
    ((_, found),) = exchanges(method.apply(moved, spec, key=KEY).audit)
    assert pairs
    assert [[int(rows[a]), int(rows[b])] for a, b in found] == pairs, names


def test_the_draws_are_tied(tied: None) -> None:
    data = CASES["all"][0]
    key = stage_key(data, KEY, stage=0, replicate=0)
    words = keyed.encrypt(keyed.integer_blocks(np.arange(len(data))), key)
    assert len(np.unique(words[:, 0])) <= 2**BITS < len(np.unique(words[:, 1])) == len(data)
