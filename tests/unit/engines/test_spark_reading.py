"""What Spark's workers do with a piece of the files, without Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from safeswap.engines.spark.draws import Draw, IdentifierCheck, LowDraws, value_codes
from safeswap.engines.spark.exchange import COMPARED, Compare, CountPairs, Route, Write, part_name
from safeswap.engines.spark.session import (
    cut_pieces,
    pack,
    pieces_of,
    receive,
    unpack,
)
from safeswap.files.parquet import open_parquet

VALUES = [
    pa.array([1, None, 2**63 - 1]),
    pa.array([1, None, 2**64 - 1], pa.uint64()),
    pa.array([True, None, False]),
    pa.array([1.5, None, -0.0], pa.float32()),
    pa.array(np.array([1.5, -0.0], np.float16)),
    pa.array(["a", None, "é"]),
    pa.array(["a", None], pa.large_string()),
    pa.array([b"a", None], pa.large_binary()),
    pa.array([b"ab", None], pa.binary(2)),
    pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
    pa.array([dt.date(2020, 1, 1), None]),
    pa.array([1, None], pa.timestamp("ms", "UTC")),
    pa.array([1, None], pa.time64("ns")),
    pa.array([1, None], pa.duration("ns")),
    pa.nulls(2),
]


@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.type))
def test_a_value_of_any_type_arrives_as_it_was(values: pa.Array) -> None:
    for part in (values, values.slice(1), values.slice(0, 0)):
        packed = pack(part)
        assert packed.type in (pa.int64(), pa.binary())
        assert unpack(packed, part.type).equals(part)


def write_files(folder: Path, sizes: list[list[int]]) -> Any:
    """Files with row groups of these sizes, numbered throughout."""
    first = 0
    for number, groups in enumerate(sizes):
        path = folder / f"{number}.parquet"
        with pq.ParquetWriter(path, pa.schema({"id": pa.int64(), "x": pa.string()})) as out:
            for size in groups:
                rows = range(first, first + size)
                out.write_table(pa.table({"id": list(rows), "x": [str(row % 3) for row in rows]}))
                first += size
    return open_parquet(folder)


@pytest.mark.parametrize("most", [1, 4, 5, 100])
def test_pieces_hold_every_record_once_and_in_order(most: int, tmp_path: Path) -> None:
    files = write_files(tmp_path, [[3, 2, 2], [1], [6, 1]])
    pieces = cut_pieces(files, most=most)
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    read = [piece.read(["id"]).column(0).to_pylist() for piece in pieces]
    assert [value for part in read for value in part] == list(range(15))
    assert [part[0] for part in read] == [piece.first for piece in pieces]
    assert all(piece.records <= most or len(piece.groups) == 1 for piece in pieces)
    places = pieces_of(np.arange(15), pieces)
    assert all(row in read[place] for row, place in enumerate(places.tolist()))


@pytest.mark.parametrize(
    ("values", "missing", "expected"),
    [
        ([1, 2, 3, 9], (), (0, True)),
        ([1, 3, 2, 9], (), (0, False)),
        ([1, 2, 2, 9], (), (0, False)),
        ([1, 9, 2, 3], (), (0, False)),
        ([1, None, 2, 3], (), (1, False)),
        (["a", "NaN", "", "b"], (), (1, False)),
        (["a", "NaN", "b", "c"], ("NaN",), (1, False)),
        (["a", "NaN", "b", "c"], (), (0, False)),
    ],
)
def test_missing_and_ascending_identifiers_are_told(
    values: list[Any], missing: tuple[str, ...], expected: tuple[int, bool], tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": values}), tmp_path / "x.parquet", row_group_size=2)
    pieces = cut_pieces(open_parquet(tmp_path), most=2)
    check = IdentifierCheck(pieces, "id", missing)
    told = [check(np.arange(p.first, p.first + 2), [p.read(["id"]).column(0).combine_chunks()]) for p in pieces]
    absent = sum(batch["absent"][0].as_py() for batch in told)
    assert (absent, all(batch["ascends"][0].as_py() for batch in told)) == expected


def test_codes_are_equal_exactly_where_values_are() -> None:
    values = [0.0, -0.0, float("nan"), -float("nan"), None, 1.5, 1.5]
    codes = value_codes(pa.array(values), bytes(32)).tolist()
    names = [repr(value).replace("-nan", "nan") for value in values]
    assert [[a == b for b in codes] for a in codes] == [[a == b for b in names] for a in names]
    assert codes[4] == 0


def test_draws_do_not_show_their_keys() -> None:
    secret = bytes(range(200, 232))
    shown = repr(LowDraws(Draw(secret, secret, secret), 1, 0))
    assert "\\x" not in shown
    assert secret.hex() not in shown


def damage(table: pa.Table, how: str) -> pa.Table:
    """Change what a worker wrote."""
    x = table["x"].to_pylist()
    if how == "another value":
        x[4] = "9"
    elif how == "a pair undone":
        x[0], x[1] = x[1], x[0]
    return table.set_column(1, "x", pa.array(x))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("how", ["", "another value", "a pair undone"])
def test_what_is_counted_of_the_pairs_is_what_plain_python_counts(how: str, parts: int, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    files = write_files(tmp_path / "in", [[4, 3], [5]])
    pieces, pairs = cut_pieces(files, most=4), [(0, 1), (11, 3), (2, 6)]
    before = files.table(["x"])["x"].to_pylist()
    after = list(before)
    for a, b in pairs:
        after[a], after[b] = after[b], after[a]
    route = pa.record_batch({"k": range(1, 4), "a": [a for a, _ in pairs], "b": [b for _, b in pairs]})
    sent = list(Route(pieces, 0)([route]))
    members = np.concatenate([rows for (rows,) in receive(sent, (5,)).values()])
    every = pa.table({"piece": [piece.number for piece in pieces]})
    news = {"piece": pieces_of(members[:, 0], pieces), "i": members[:, 0], "m": members[:, 2]}
    values = pa.array([before[row] for row in members[:, 1]]).cast(pa.binary())
    news = pa.table(news).append_column("v0", values)
    writing = pa.concat_tables([every, news], promote_options="default").combine_chunks().to_batches()
    assert (
        sum(
            n for b in Write(pieces, ("x",), (("x",),), tmp_path / "out", tmp_path)(writing) for n in b["n"].to_pylist()
        )
        == 12
    )
    written = [pq.read_table(tmp_path / "out" / part_name(piece)) for piece in pieces]
    assert [value for table in written for value in table["x"].to_pylist()] == after
    pq.write_table(
        damage(written[0], how) if how != "another value" else written[0], tmp_path / "out" / part_name(pieces[0])
    )
    if how == "another value":
        pq.write_table(damage(written[-1], how), tmp_path / "out" / part_name(pieces[-1]))
    now = [v for piece in pieces for v in pq.read_table(tmp_path / "out" / part_name(piece))["x"].to_pylist()]

    step = Compare(
        pieces=pieces,
        written=tmp_path / "out",
        names=("x",),
        others=(),
        directed=(False,),
        margins=(("x",),),
        parts=parts,
    )
    unsent = pa.record_batch(
        [every["piece"].combine_chunks(), pa.array([0] * len(pieces)), pa.nulls(len(pieces))], [*"pkc"]
    )
    told = pa.Table.from_batches(list(CountPairs(1, 0, (False,))(step([unsent, *sent])))).to_pylist()
    assert list(told[0]) == [column.split()[0] for column in COMPARED.split(", ")]
    changed = sum(a != b for a, b in zip(before, now, strict=True))
    counts = [sum(row["total"] for row in told if (row["kind"], row["x"]) == (0, x)) for x in range(3)]
    assert counts == [changed, changed, 0]
    gained = [now.count(level) - before.count(level) for level in set(before) | set(now)]
    net = [[row[name] for name in ("total", "size", "cells")] for row in told if row["kind"] == 1]
    assert [sum(column) for column in zip(*net, strict=True)] in (
        [0, sum(map(abs, gained)), sum(map(bool, gained))],
        [] if not any(gained) else None,
    )
    pairs_of = [row for row in told if row["kind"] == 2]
    bits = [np.unpackbits(np.frombuffer(row["bits"], np.uint8))[:5].tolist() for row in pairs_of]
    found = sorted(mask for mask, row in zip(bits, pairs_of, strict=True) for _ in range(row["total"]))
    assert found == sorted(
        [
            1,
            before[a] == before[b],
            now[a] == before[b] and now[b] == before[a],
            now[a] != before[a],
            now[b] != before[b],
        ]
        for a, b in pairs
    )
