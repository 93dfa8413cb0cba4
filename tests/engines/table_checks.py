"""Every operation of records and tables against plain Python: rows as dictionaries of text, draws by AES itself."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from safeswap.arrays.cells import CellSet
from safeswap.engines.base import DRAW, KEEP, Ends, Records
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEY = Key(bytes(range(32)))
DRAW_KEY = bytes(reversed(range(32)))
NAMES = ("text", "whole", "real")
ROOMY = Ends(below=2**62, since=3 * 2**62)


def make_data(seed: int, records: int, *, identified: bool) -> Microdata:
    """A small file with missing values, both zeros, and NaN."""
    random = np.random.default_rng(seed)

    def some(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([values[i] for i in random.integers(0, len(values), records)], kind)

    table = pa.table(
        {
            "id": pa.array(random.permutation(records) * 1_000_003 - 7),
            "text": some(["a", "b", "", None], pa.string()),
            "whole": some([-(2**62), 0, 5, None], pa.int64()),
            "real": some([0.0, -0.0, 1.5, float("nan"), None], pa.float64()),
            "same": pa.DictionaryArray.from_arrays(np.zeros(records, np.int32), ["x", "unused"]),
            "own": pa.array([f"n{i}" for i in random.permutation(records)]),
            "almost": pa.array([None, *range(records - 1)], pa.int64()),
        }
    )
    kinds = {"id": Kind.IDENTIFIER if identified else Kind.NOMINAL}
    attributes = tuple(Attribute(name=name, kind=kinds.get(name, Kind.NOMINAL)) for name in table.column_names)
    return Microdata(table, Schema(name="small", attributes=attributes))


@dataclass(frozen=True)
class Halves:
    """Tell low draws (−1) from high ones (0), count records, and drop a quarter of them."""

    adds: tuple[str, ...] = ("half", "one", KEEP)

    def __call__(self, draws: Any, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        half = (draws >> np.uint64(63)).astype(np.int64) - 1
        return {"half": half, "one": np.ones(len(draws), np.int64), KEEP: draws % np.uint64(4) != 0}


@dataclass(frozen=True)
class FirstAndLast:
    """Pair the first and the last record of each group, and tell its size."""

    needs: tuple[str, ...] = ("half",)
    adds: tuple[str, ...] = ("mate", "first", "size", "late")
    partner: str = "mate"

    def __call__(self, bounds: Any, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        number = int(bounds[-1])
        mate, first, size = np.full(number, -1, np.int64), np.zeros(number, np.int64), np.zeros(number, np.int64)
        for low, high in pairwise(bounds.tolist()):
            size[low:high] = high - low
            if high - low > 1:
                mate[low], mate[high - 1], first[low] = high - 1, low, 1
        return {"mate": mate, "first": first, "size": size, "late": columns["half"].astype(np.int64)}


@dataclass(frozen=True)
class Sizes:
    """Tell the size of each group; there are no partners."""

    needs: tuple[str, ...] = ()
    adds: tuple[str, ...] = ("size",)
    partner: str = ""

    def __call__(self, bounds: Any, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"size": np.repeat(np.diff(bounds), np.diff(bounds)).astype(np.int64)}


Row = dict[str, Any]


def reference_rows(data: Microdata) -> list[Row]:
    """The records as text, with their draw: AES of the identifier, or of the position."""
    names = data.table.column_names
    own = data.table["id"].to_pylist() if data.schema.identifier else range(len(data))
    cipher = Cipher(algorithms.AES(DRAW_KEY), modes.ECB()).encryptor()
    rows = []
    for place, (number, *values) in enumerate(zip(own, *(c.to_pylist() for c in data.table.columns), strict=True)):
        draw = struct.unpack("<QQ", cipher.update(struct.pack("<q", number) + bytes(7) + b"\1"))
        rows.append({**dict(zip(names, map(repr, values), strict=True)), "row": place, "draw": draw})
    return rows


def check_every_operation(data: Microdata, records: Records, rows_of: Callable[[Any], list[list[int]]]) -> None:
    """Compare an engine with the reference; ``rows_of`` turns its pairs into rows of the file."""
    rows = reference_rows(data)
    assert len(records) == len(rows)
    codes = _check_counts(records, rows)
    _check_columns(records, rows)
    _check_draws(records, rows, codes)
    _check_groups(records, rows, codes, rows_of)


def _check_counts(records: Records, rows: list[Row]) -> dict[str, dict[str, int]]:
    """Cells have the counts of the values; return the code of each value, the same in every count."""
    alone, together = [(name,) for name in NAMES], (NAMES, ("real", "text"))
    counted = records.count(*alone, *together)
    codes: dict[str, dict[str, int]] = {}
    for name, cells in zip(NAMES, counted, strict=False):
        values = [repr(value) for value in cells.values[name].to_pylist()]
        codes[name] = dict(zip(values, cells.column(name).tolist(), strict=True))
        assert len(set(codes[name].values())) == len(values) == len(cells)
    for names, cells in zip((*alone, *together), counted, strict=True):
        values = [[repr(v) for v in cells.values[name].to_pylist()] for name in names]
        found = Counter(dict(zip(zip(*values, strict=True), cells.counts.tolist(), strict=True)))
        assert found == Counter(tuple(row[name] for name in names) for row in rows)
        assert [tuple(c) for c in cells.codes.tolist()] == [
            tuple(codes[n][v] for n, v in zip(names, value, strict=True)) for value in zip(*values, strict=True)
        ]
    return codes


def _check_columns(records: Records, rows: list[Row]) -> None:
    for name in (*NAMES, "same", "own", "almost"):
        values = [row[name] for row in rows]
        assert records.is_constant(name) == (len(set(values)) < 2), name
        assert records.is_unique(name) == ("None" not in values and len(set(values)) == len(values)), name


def _coded(rows: list[Row], names: tuple[str, ...], codes: dict[str, dict[str, int]]) -> set[tuple[int, ...]]:
    return {tuple(codes[name][row[name]] for name in names) for row in rows}


def _half(row: Row) -> int:
    return -1 if row["draw"][0] < 2**63 else 0


def _within(row: Row, ends: Ends) -> bool:
    return bool(row["draw"][0] < ends.below or row["draw"][0] >= ends.since)


def _check_draws(records: Records, rows: list[Row], codes: dict[str, dict[str, int]]) -> None:
    names = ("text", "whole")
    chosen = {(row["text"], row["whole"]) for row in rows[::3]}
    among = CellSet(names, np.array(sorted(_coded(rows[::3], names, codes)), dtype=np.int64))
    nobody = CellSet(names, np.zeros((0, 2), dtype=np.int64))
    every: list[tuple[dict[str, Any], Callable[[Row], bool]]] = [
        ({}, lambda row: True),
        ({"keep": ROOMY}, lambda row: _within(row, ROOMY)),
        ({"among": among}, lambda row: (row["text"], row["whole"]) in chosen),
        ({"keep": ROOMY, "among": among}, lambda row: _within(row, ROOMY) and (row["text"], row["whole"]) in chosen),
        ({"among": nobody}, lambda row: False),
    ]
    for options, holds in every:
        expected = [row for row in rows if holds(row)]
        table = records.draw(NAMES, DRAW_KEY, **options)
        assert {tuple(r) for r in table.distinct(NAMES).tolist()} == _coded(expected, NAMES, codes), options
        kept = [row for row in expected if row["draw"][0] % 4]
        derived = records.draw(NAMES, DRAW_KEY, derive=Halves(), **options)
        assert derived.totals("one", "half") == (len(kept), sum(_half(row) for row in kept)), options
        assert {tuple(r) for r in derived.distinct(("real", "half")).tolist()} == {
            (codes["real"][row["real"]], _half(row)) for row in kept
        }


def _check_groups(
    records: Records, rows: list[Row], codes: dict[str, dict[str, int]], rows_of: Callable[[Any], list[list[int]]]
) -> None:
    by = ("real", "text")
    kept = [row for row in rows if row["draw"][0] % 4]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in sorted(kept, key=lambda row: (_half(row), row["draw"])):
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    sizes = [len(group) for group in groups.values() for _ in group]
    paired = sorted((_half(g[0]), g[0]["draw"], g[0]["row"], g[-1]["row"]) for g in groups.values() if g[1:])

    found = records.draw(NAMES, DRAW_KEY, derive=Halves()).map_groups(by, ("half", DRAW), FirstAndLast())
    assert found.totals("first", "size") == (len(paired), sum(sizes))
    assert {tuple(r) for r in found.distinct(by).tolist()} == _coded(kept, by, codes)
    pairs = found.pairs("first", "mate", ("late", DRAW))
    assert len(pairs) == len(paired)
    assert rows_of(pairs) == [[a, b] for *_, a, b in paired]

    ones, twos = found.where("size", 1), found.where("size", 2)
    assert twos.totals("size", "first") == (2 * sizes.count(2), sizes.count(2) // 2)
    both = ones.union(twos)
    assert both.totals("size") == (sizes.count(1) + 2 * sizes.count(2),)
    assert {tuple(r) for r in both.distinct(("size",)).tolist()} == {(s,) for s in sizes if s < 3}
    pairs = both.pairs("first", "mate", (DRAW,))
    twins = sorted((g[0]["draw"], g[0]["row"], g[-1]["row"]) for g in groups.values() if len(g) == 2)
    assert rows_of(pairs) == [[a, b] for _, a, b in twins]
    assert found.where("size", len(rows) + 1).totals("size") == (0,)

    counted = records.draw(("text",), DRAW_KEY).map_groups(("text",), (DRAW,), Sizes())
    assert {tuple(r) for r in counted.distinct(("text", "size")).tolist()} == {
        (codes["text"][value], number) for value, number in Counter(row["text"] for row in rows).items()
    }
