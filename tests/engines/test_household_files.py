"""Households change places in files as in memory: on DuckDB, in any partition and order, and by independent counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conformance.household_strategies import example, persons
from tests.conformance.on_files import check_on_file, rows_of
from tests.engines.specs import records_of, write_parts

import safeswap as ss
from safeswap import registry
from safeswap.engines.base import Move
from safeswap.engines.duckdb.store import ChangedTable, HeldPairs, Store
from safeswap.engines.stream import LevelCoder
from safeswap.errors import InputError
from safeswap.files.parquet import open_parquet
from safeswap.methods.exchange import count_in_vain
from safeswap.methods.household_swap.method import HouseholdsStayTogether, KeptHouseholds
from safeswap.methods.household_swap.spec import HouseholdSwapSpec
from safeswap.model.audit import Audit, Exchange, undo
from safeswap.model.evidence import Evidence
from safeswap.model.invariant import verify
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.on_disk.duckdb import DuckDBFile, HeldEvidence
from safeswap.on_disk.job import Job

KEY = ss.Key(bytes(range(32)))
SWAP = registry.method("household_swap")


def awkward(kinds: str = "text", *, identified: bool = True) -> Microdata:
    """Households without an area, persons without a household, and an establishment or two."""
    data = persons(11, 150, identified=identified, kinds=kinds)
    table, homes = data.table, data.table["hh"].to_pylist()
    some = sorted(set(homes))
    gone, unplaced = set(some[:4]), set(some[4:9])
    columns: dict[str, Any] = {
        "hh": [None if home in gone else home for home in homes],
        "level2": [None if home in unplaced else v for home, v in zip(homes, table["level2"].to_pylist(), strict=True)],
    }
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values, type=table.schema.field(name).type))
    return Microdata(table, data.schema)


AWKWARD = HouseholdSwapSpec(
    risk_variables=("origin", "age"),
    similar=(("tenure",), ()),
    rate=0.3,
    carry_along=("grid",),
    missing_household="outside",
    missing_geography="immovable",
    communal="kind",
    communal_values=("1",),
)


@pytest.mark.parametrize("kinds", ["text", "numbers"])
@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_gaps_and_establishments_are_treated_as_in_memory(engine: str, kinds: str, tmp_path: Path) -> None:
    for number, spec in enumerate((AWKWARD, AWKWARD.replace(units="communal"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        check_on_file(SWAP, engine, (awkward(kinds, identified=kinds == "text"), spec), folder)


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_partitions_and_the_order_of_records_change_nothing(engine: str, tmp_path: Path) -> None:
    data, spec = example()
    expected = ss.mask(data, spec, key=KEY)
    shuffled = data.table.take(pa.array(np.random.default_rng(5).permutation(len(data))))
    source = write_parts(shuffled, tmp_path / "data", 7)
    known: dict[str, Any] = {"schema": data.schema, "name": data.schema.name, "audit": tmp_path / "audit", "key": KEY}
    ss.workflow.mask_file(source, tmp_path / "masked", spec, engine=engine, memory_limit="100MB", **known)
    assert records_of(open_parquet(tmp_path / "masked").table(data.attributes)) == records_of(expected.data.table)


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
@pytest.mark.parametrize("tried", [example(), (awkward(), AWKWARD)], ids=["plain", "awkward"])
def test_partners_of_other_sizes_are_swapped_in_files_as_in_memory(
    engine: str, tried: tuple[Microdata, HouseholdSwapSpec], tmp_path: Path
) -> None:
    data, uneven = tried[0], tried[1].replace(match_size=False)
    (moved,) = ss.mask(data, uneven, key=KEY).audit.exchanges
    takers, givers = moved.pairs.T.tolist()
    assert moved.mutual
    assert len(set(takers)) == len(takers) > len(set(givers))
    check_on_file(SWAP, engine, (data, uneven), tmp_path)


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_compensating_records_are_counted_in_the_whole_table_whatever_is_measured(engine: str, tmp_path: Path) -> None:
    data, spec = example()
    source = write_parts(data.table, tmp_path / "data", 2)
    known: dict[str, Any] = {"schema": data.schema, "name": data.schema.name, "audit": tmp_path / "audit", "key": KEY}
    known |= {"engine": engine, "measures": ["total_variation"], "attributes": ("level0", "origin")}
    done = ss.workflow.mask_file(source, tmp_path / "masked", spec, **known)
    assert done.compensating == ss.mask(data, spec, key=KEY).audit.compensating > 0


def by_hand(data: Microdata, after: Microdata) -> dict[str, set[tuple[Any, ...]]]:
    """The places that the members of each household have, before and after together."""
    found: dict[str, set[tuple[Any, ...]]] = {}
    names = ["level0", "level1", "level2"]
    rows = zip(
        data.table["hh"].to_pylist(), *(f.table[n].to_pylist() for f in (data, after) for n in names), strict=True
    )
    for home, *places in rows:
        found.setdefault(home, set()).add(tuple(places))
    return found


def test_whole_households_of_other_sizes_take_each_others_place() -> None:
    data, spec = example()
    done = ss.mask(data, spec.replace(match_size=False), key=KEY)
    homes, places = data.table["hh"].to_pylist(), by_hand(data, done.data)
    assert all(len(each) == 1 for each in places.values())
    sizes, uneven = Counter(homes), 0
    for taker, giver in done.audit.exchanges[0].pairs.tolist():
        ((*was, a, b, c),), ((*gave, _, _, _),) = places[homes[taker]], places[homes[giver]]
        assert [a, b, c] == gave
        assert was != gave
        uneven += sizes[homes[taker]] != sizes[homes[giver]]
    assert uneven
    assert rows_of(undo(done.data, done.audit).table) == rows_of(data.table)


def test_a_record_of_other_sizes_that_tells_less_or_more_is_found() -> None:
    data, spec = example()
    uneven = spec.replace(match_size=False)
    done = ss.mask(data, uneven, key=KEY)
    (moved,) = done.audit.exchanges
    pairs, idle = moved.pairs, np.setdiff1d(np.arange(len(data)), moved.pairs)
    for wrong in (
        pairs[1:],
        np.vstack([pairs, [[idle[0], pairs[0, 1]]]]),
        np.roll(pairs, 1, axis=0) * [0, 1] + pairs * [1, 0],
    ):
        audit = replace(done.audit, exchanges=(replace(moved, pairs=wrong),))
        found = verify(SWAP.invariants(data, uneven), before=data, after=done.data, audit=audit)
        assert "ReplaysFromAudit" in {each.invariant for each in found if not each.ok}


def test_bad_files_are_refused_alike_with_positions(tmp_path: Path) -> None:
    data, spec = example()
    table = data.table.set_column(1, "hh", pa.array([None, *data.table["hh"].to_pylist()[1:]]))
    pq.write_table(table, tmp_path / "data.parquet")
    known: dict[str, Any] = {"schema": data.schema, "name": data.schema.name, "audit": tmp_path / "audit", "key": KEY}
    told = []
    for engine in ("memory", "duckdb"):
        with pytest.raises(InputError) as caught:
            ss.workflow.mask_file(tmp_path / "data.parquet", tmp_path / "m.parquet", spec, engine=engine, **known)
        told.append(caught.value.as_dict())
    assert told[0] == told[1]
    assert (told[0]["code"], told[0]["fields"]["records"]) == ("missing-household", [1])


# Units are counted by hand: which are torn apart, and how many there are in each cell


def tampered(seed: int) -> tuple[pa.Table, pa.Table]:
    """Two small files: units with gaps, and an area and a kind of which the area has changed at random."""
    rng = np.random.default_rng(seed)
    number = int(rng.integers(1, 30))
    home = rng.integers(0, 6, number)
    area, kind = rng.integers(0, 3, 6)[home], rng.integers(0, 2, 6)[home]
    new = np.where(rng.random(number) < rng.choice([0.0, 0.1]), rng.integers(0, 4, number), area)
    if rng.random() < 0.6:  # a whole unit
        new = np.where(home == rng.integers(0, 6), rng.integers(0, 4), new)
    columns = {"home": pa.array(home, mask=home == 5), "area": pa.array(area), "kind": pa.array(kind)}
    return pa.table(columns), pa.table({**columns, "area": pa.array(new)})


def count_by_hand(before: pa.Table, after: pa.Table) -> tuple[int, int]:
    rows = list(
        zip(
            *(t[n].to_pylist() for t, n in ((before, "home"), (before, "area"), (after, "area"), (before, "kind"))),
            strict=True,
        )
    )
    changed = {home for home, old, new, _ in rows if home is not None and old != new}
    torn = {
        home
        for home in changed
        if len({new for h, _, new, _ in rows if h == home}) > 1
        or any(h == home and old == new for h, old, new, _ in rows)
    }
    moved = [row for row in rows if row[0] is not None and row[1] != row[2]]
    was = Counter(cell for _, cell in {(home, (old, kind)) for home, old, _, kind in moved})
    now = Counter(cell for _, cell in {(home, (new, kind)) for home, _, new, kind in moved})
    return len(torn), sum(was[cell] != now[cell] for cell in {*was, *now})


@pytest.mark.parametrize("seed", range(60))
def test_torn_units_and_units_by_cell_are_those_counted_by_hand(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safeswap.model.evidence._AT_ONCE", 1 + seed % 8)
    before, after = tampered(seed)
    schema = Schema(
        attributes=(Attribute(name="home", kind=Kind.HOUSEHOLD), *(Attribute(name=n) for n in ("area", "kind")))
    )
    evidence = Evidence(Microdata(before, schema), Microdata(after, schema), Audit(records=len(before)))
    torn, moved = count_by_hand(before, after)
    assert (evidence.count_torn("home", ("area",)), evidence.count_moved_units("home", ("area", "kind"))) == (
        torn,
        moved,
    )
    store = Store(tmp_path, memory_limit="100MB", threads=1)
    table, coder = ChangedTable(store, changed=1, others=2), LevelCoder()
    rows = np.flatnonzero(before["area"].to_numpy() != after["area"].to_numpy())
    sides = [t["area"].to_numpy()[rows].astype(np.uint32) for t in (before, after)]
    with table.inserter() as add:
        homes, kinds = (before[name].combine_chunks().take(pa.array(rows)) for name in ("home", "kind"))
        add(rows, sides[:1], sides[1:], [coder.codes(homes), kinds.to_numpy().astype(np.uint32)])
    sizes = np.zeros(len(before) + 1, dtype=np.int32)
    for batch in before.to_batches(max_chunksize=4):
        coder.count(batch["home"], sizes)
    assert table.count_torn(0, [0], sizes) == torn
    assert table.count_moved_cells([0], [1], unit=0) == moved
    store.close()


def tampered_pairs(seed: int, before: pa.Table, after: pa.Table) -> tuple[pa.Table, np.ndarray[Any, Any]]:
    """Pairs of which some explain what they exchange and some do not, and the file after them."""
    rng = np.random.default_rng(seed)
    number = len(before)
    pairs = rng.permutation(number)[: 2 * int(rng.integers(0, number // 2 + 1))].reshape(-1, 2)
    if rng.random() < 0.3 and number > 1:  # of records that have a place already
        pairs = np.vstack([pairs, rng.integers(0, number, (1, 2))])
    told = Exchange(attributes=("area",), pairs=pairs.astype(np.int64)).permutation(number)
    moved = (before if rng.random() < 0.5 else after)["area"].take(pa.array(told))
    return after.set_column(1, "area", moved), pairs.astype(np.int64)


@pytest.mark.parametrize("seed", range(40))
def test_what_the_touched_records_tell_on_duckdb_is_what_the_whole_files_tell(seed: int, tmp_path: Path) -> None:
    before, after = tampered(seed)
    after, pairs = tampered_pairs(seed, before, after)
    schema = Schema(
        attributes=(Attribute(name="home", kind=Kind.HOUSEHOLD), *(Attribute(name=n) for n in ("area", "kind")))
    )
    for name, table in (("before", before), ("after", after)):
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=7)
    exchange = Exchange(attributes=("area",), pairs=pairs)
    whole = Evidence(
        Microdata(before, schema), Microdata(after, schema), Audit(records=len(before), exchanges=(exchange,))
    )
    promises = (HouseholdsStayTogether(("area",), "home"), KeptHouseholds(("area", "kind"), "home"))
    source = tmp_path / "before.parquet"
    job = Job(source=source, target=tmp_path / "x", audit=tmp_path / "y", spec=HouseholdSwapSpec(), key=KEY)
    with DuckDBFile(job, open_parquet(source), schema, tmp_path) as opened:
        opened.open(schema.names)
        opened.names, opened.moves = ("area",), (Move(("area",), HeldPairs(pairs)),)
        held = HeldEvidence(opened, open_parquet(tmp_path / "after.parquet"), promises, [HeldPairs(pairs)])
        for tell in (
            lambda e: e.count_torn("home", ("area",)),
            lambda e: e.count_moved_units("home", ("area", "kind")),
            lambda e: e.count_moved_cells(("area", "kind")),
            lambda e: [e.count_changed(name) for name in schema.names],
            lambda e: (e.count_repeated(0), e.count_moved_records(0), e.number_of_pairs(0)),
            lambda e: [count(0, names) for count in (e.count_agreeing, e.count_differing) for names in BY_NAME],
            lambda e: [(e.explains(name), e.restores(name)) for name in schema.names],
        ):
            assert tell(held) == tell(whole)
        rows = np.arange(len(before))
        kinds = whole.before.codes_at("kind", rows)
        assert held.count_in_vain() == count_in_vain(whole.before, whole.after, ("area",), rows, [kinds])


BY_NAME = [("area",), ("kind",), ("area", "kind")]
