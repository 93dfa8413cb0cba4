"""The memory engine: counts classes, pairs along the order, exchanges; a prefix of the order is as good as all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays import order
from safeswap.arrays.cells import CellSet
from safeswap.engines import memory
from safeswap.engines.base import Constraint, PairRequest
from safeswap.engines.memory import MemoryRecords, exchange
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEY = bytes(range(32))
EVERYTHING = 10**9


def microdata(**columns: Any) -> Microdata:
    attributes = [Attribute(name=n, kind=Kind.IDENTIFIER if n == "id" else Kind.NOMINAL) for n in columns]
    return Microdata(pa.table(columns), Schema(attributes=tuple(attributes)))


def persons(records: int, *, text: bool = False) -> Microdata:
    rng = np.random.default_rng(records)
    identifiers: Any = rng.permutation(records) * 11
    return microdata(
        id=pa.array([f"person {i:09d}" for i in identifiers] if text else identifiers),
        Race=pa.array(rng.choice(["white", "black"], records, p=[0.9, 0.1])).dictionary_encode(),
        Sex=pa.array(rng.choice(["f", "m"], records)),
        Age=pa.array(rng.integers(0, 90, records).astype(np.int16)),
    )


def request(wanted: int, *, equal: tuple[str, ...] = (), repair: bool = True, **options: Any) -> PairRequest:
    unequal = options.pop("unequal", (("Race",),))
    constraint = Constraint(equal=equal, unequal=unequal)
    return PairRequest(constraint=constraint, wanted=wanted, repair=repair, draw_key=KEY, **options)


def pairs_of(data: Microdata, asked: PairRequest) -> np.ndarray:
    return MemoryRecords(data, Key(KEY)).pair(asked)


def test_classes_are_counted_by_stratum_and_coordinates() -> None:
    data = persons(500)
    found = MemoryRecords(data).classes(Constraint(equal=("Sex",), unequal=(("Race", "Age"), ("Age",))))
    rows = list(zip(*(data.table[name].to_pylist() for name in ("Sex", "Race", "Age")), strict=True))
    assert sorted(found.counts.tolist()) == sorted(Counter(rows).values())
    assert (np.diff(found.strata) >= 0).all()
    assert len({(s, *c) for s, c in zip(found.strata.tolist(), found.coordinates.tolist(), strict=True)}) == len(
        found.counts
    )
    by_stratum = Counter(dict.fromkeys(found.strata.tolist(), 0))
    for stratum, count in zip(found.strata.tolist(), found.counts.tolist(), strict=True):
        by_stratum[stratum] += count
    assert sorted(by_stratum.values()) == sorted(Counter(data.table["Sex"].to_pylist()).values())


def test_classes_that_no_word_can_number_are_counted_alike() -> None:
    rng = np.random.default_rng(3)
    half = {name: rng.permutation(300) for name in "abcdefgh"}  # 300 levels each: 300 ** 8 classes are possible
    twice = {name: pa.array(np.r_[codes, codes]) for name, codes in half.items()}
    data = microdata(**twice, x=pa.array(["m"] * 450 + ["n"] * 150))
    found = MemoryRecords(data).classes(Constraint(equal=tuple("abcd"), unequal=(tuple("efgh"), ("x",))))
    assert sorted(found.counts.tolist()) == [1] * 300 + [2] * 150
    assert (np.diff(found.strata) >= 0).all()
    assert len(np.unique(found.strata)) == 300


@pytest.mark.parametrize("equal", [(), ("Sex",), ("Sex", "Age")])
@pytest.mark.parametrize("text", [False, True])
def test_a_large_file_needs_a_prefix_only_and_gives_the_same_pairs(
    equal: tuple[str, ...], text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = persons(150_000, text=text)
    looked_at: list[float] = []
    prefix = order.draw_prefix
    monkeypatch.setattr(order, "draw_prefix", lambda i, k, share: looked_at.append(share) or prefix(i, k, share))
    short = {wanted: pairs_of(data, request(wanted, equal=equal)) for wanted in (1, 3_000)}
    assert max(looked_at) < 1.0
    monkeypatch.setattr(memory, "_WHOLE_FILE", EVERYTHING)
    for wanted, pairs in short.items():
        assert len(pairs) == wanted
        assert pairs.tolist() == pairs_of(data, request(wanted, equal=equal)).tolist()


@pytest.mark.parametrize("guess", [1e-6, 0.01, 0.09, 0.5])
def test_a_wrong_guess_of_how_much_is_needed_costs_time_and_nothing_else(
    guess: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = persons(30_000)
    expected = pairs_of(data, request(1500))
    monkeypatch.setattr(memory, "_WHOLE_FILE", 100)
    assert pairs_of(data, request(1500, pairs_per_record=guess)).tolist() == expected.tolist()


def test_repair_of_a_large_file_works_on_the_whole_order(monkeypatch: pytest.MonkeyPatch) -> None:
    data = persons(30_000)
    rare = data.table["Race"].to_pylist().count("black")
    expected = pairs_of(data, request(rare))
    assert len(expected) == rare
    monkeypatch.setattr(memory, "_WHOLE_FILE", 100)
    assert pairs_of(data, request(rare)).tolist() == expected.tolist()


def test_strata_that_no_array_can_number_are_renumbered() -> None:
    # 90 × 90 × 90 possible strata of 200 records: far more than records.
    rng = np.random.default_rng(2)
    columns = {name: pa.array(rng.integers(0, 90, 200)) for name in ("a", "b", "c")}
    doubled = {name: pa.concat_arrays([column, column]) for name, column in columns.items()}
    data = microdata(id=pa.array(range(400)), Race=pa.array(["x"] * 200 + ["y"] * 200), **doubled)
    pairs = pairs_of(data, request(1000, equal=("a", "b", "c")))
    assert sorted(map(sorted, pairs.tolist())) == [[i, i + 200] for i in range(200)]


def test_no_pairs_wanted_none_drawn() -> None:
    assert pairs_of(persons(50), request(0)).shape == (0, 2)


def test_without_repair_one_pass_is_all() -> None:
    data = persons(1000)
    one_pass = pairs_of(data, request(500, repair=False))
    repaired = pairs_of(data, request(500))
    assert len(one_pass) < len(repaired) == data.table["Race"].to_pylist().count("black")


COLUMNS = {
    "text": pa.array(["a", None, "b", "", "c", "a"]),
    "dictionary": pa.array(["a", "b", "a", "c", "c", "b"]).dictionary_encode(),
    "dictionary with missing values": pa.array(["a", None, "a", "c", None, "b"]).dictionary_encode(),
    "ordered": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 0, 1, 2], pa.uint8()), pa.array(["x", "y", "z"]), ordered=True
    ),
    "a dictionary that holds a missing value": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 0, 1, None]), pa.array(["x", None, "x"])
    ),
    "floats": pa.array([0.0, -0.0, float("nan"), 1.0, None, 2.0]),
    "booleans": pa.array([True, False, None, True, False, False]),
    "timestamps": pa.array([1, 2, 3, None, 5, 6], pa.timestamp("ns", "UTC")),
    "decimals": pa.array([1, 2, 3, None, 5, 6], pa.decimal128(5, 0)),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("chunks", [1, 3])
def test_values_are_moved_and_never_remade(name: str, chunks: int) -> None:
    array = COLUMNS[name]
    cut = pa.chunked_array([array[i : i + 6 // chunks] for i in range(0, 6, 6 // chunks)])
    data = microdata(x=cut, y=pa.array(range(6)))
    after = exchange(data, ("x",), np.array([[0, 4], [5, 2]]))
    moved = after.table.column("x")
    values = array.to_pylist()
    assert repr(moved.to_pylist()) == repr([values[i] for i in (4, 1, 5, 3, 0, 2)])
    assert moved.type == array.type
    assert after.table.schema.field("x").equals(data.table.schema.field("x"))
    assert repr(data.table.column("x").to_pylist()) == repr(values)
    assert after.table.column("y").chunk(0).buffers()[1].address == data.table.column("y").chunk(0).buffers()[1].address


def test_an_empty_column_is_exchanged_into_an_empty_one() -> None:
    nothing = np.zeros((0, 2), dtype=np.int64)
    for column in (pa.chunked_array([], type=pa.string()), pa.chunked_array([pa.array([], pa.int8())])):
        assert exchange(microdata(x=column), ("x",), nothing).table.column("x").to_pylist() == []


@given(st.permutations(range(12)), st.integers(0, 6))
def test_exchanging_twice_gives_the_file_back(rows: list[int], pairs: int) -> None:
    data = microdata(x=pa.array(list("abcdefghijkl")), y=pa.array(range(12)))
    chosen = np.array(rows[: 2 * pairs], dtype=np.int64).reshape(-1, 2)
    once = exchange(data, ("x", "y"), chosen)
    twice = exchange(once, ("x", "y"), chosen)
    assert once.table.equals(data.table) == (pairs == 0)
    assert twice.table.equals(data.table)


@pytest.mark.parametrize("most", [0, memory._CELLS_PER_RECORD])
def test_records_of_some_cells_are_flagged_by_an_array_or_a_hash_table(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_CELLS_PER_RECORD", most)
    rng = np.random.default_rng(6)
    columns = [rng.integers(0, size, 500).astype(np.uint8) for size in (7, 11)]
    wanted = CellSet(("a", "b"), np.array([[0, 0], [6, 10], [3, 4]]))
    flags = memory._flag_cells(wanted, columns, (7, 11))
    pairs = zip(columns[0].tolist(), columns[1].tolist(), strict=True)
    assert flags.tolist() == [pair in {(0, 0), (6, 10), (3, 4)} for pair in pairs]
