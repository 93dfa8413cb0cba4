"""The same key, data and specification give the same records and the same totals on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from tests.conformance.strategies import Tried, swap_inputs
from tests.engines.specs import EDITS, KEY, PERMUTATIONS, SCHEMA, SPECS, census, records_of, spec_of, write_parts

from safeswap import registry, workflow
from safeswap.arrays import compiled as kernel_threads
from safeswap.engines.duckdb import store
from safeswap.errors import InfeasibleError, InputError
from safeswap.files.parquet import open_parquet
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

ENGINES = ("memory", "duckdb")


def in_memory(data: Microdata, spec: Any) -> Masked:
    return registry.method(spec.method).apply(data, spec, key=KEY)


def totals(result: Any) -> dict[str, Any]:
    return {name: value for name, value in result.as_dict().items() if name != "engine"}


def told(facts: Any) -> dict[str, Any]:
    """Which key would have found partners is told by the engine that holds all records."""
    return {name: value for name, value in dict(facts).items() if name != "diagnosis"}


def masked(source: Path, engine: str, spec: Any, *, target: str = "masked", **options: Any) -> workflow.MaskedFile:
    stated = {"schema": SCHEMA, "name": SCHEMA.name, "audit": source.parent / "audit", **options}
    return workflow.mask_file(source, source.parent / target, spec, key=KEY, engine=engine, **stated)


@contextmanager
def arrow_threads(number: int) -> Iterator[None]:
    """Arrow, and what goes by its number of threads, with so many."""
    before = pa.cpu_count()
    pa.set_cpu_count(number)
    try:
        yield
    finally:
        pa.set_cpu_count(before)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [*SPECS, *EDITS, *PERMUTATIONS])
def test_every_engine_gives_the_records_and_totals_of_the_reference(name: str, engine: str, tmp_path: Path) -> None:
    spec = spec_of(name)
    expected = in_memory(Microdata(census(), SCHEMA), spec)
    result = masked(write_parts(census(), tmp_path / "census", 3), engine, spec)
    written = open_parquet(tmp_path / "masked").table(SCHEMA.names)
    assert written.to_pydict() == expected.data.table.to_pydict()
    assert totals(result) == expected.as_dict()
    assert told(result.facts) == told(expected.audit.facts)
    assert result.made == len(expected.audit.exchanges[0].pairs)
    pairs = pq.read_table(result.audit / "pairs.parquet")
    stages = [exchange.pairs for exchange in expected.audit.exchanges]
    assert list(zip(*pairs.to_pydict().values(), strict=True)) == [
        (stage, a, b) for stage, rows in enumerate(stages) for a, b in rows.tolist()
    ]


@pytest.mark.parametrize("part", [10**12, 50_000])  # of a gigabyte: nothing, or twenty kilobytes
@pytest.mark.parametrize("name", [*EDITS, *PERMUTATIONS])
def test_drawn_rows_that_go_to_the_database_are_the_same(
    name: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_DRAWN", part)
    spec = spec_of(name)
    expected = in_memory(Microdata(census(), SCHEMA), spec)
    result = masked(write_parts(census(), tmp_path / "census", 3), "duckdb", spec)
    assert open_parquet(tmp_path / "masked").table(SCHEMA.names).to_pydict() == expected.data.table.to_pydict()
    assert totals(result) == expected.as_dict()
    assert told(result.facts) == told(expected.audit.facts)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("parts", [1, 7, 64])
def test_partitions_and_the_order_of_records_change_nothing(engine: str, parts: int, tmp_path: Path) -> None:
    shuffled = census().take(pa.array(np.random.default_rng(parts).permutation(census().num_rows)))
    for name in ("all roles", "repaired in several coordinates", "edit, small blocks", "permuted"):
        spec = spec_of(name)
        expected = in_memory(Microdata(census(), SCHEMA), spec)
        folder = tmp_path / name
        result = masked(write_parts(shuffled, folder / "census", parts), engine, spec)
        written = open_parquet(folder / "masked").table(SCHEMA.names)
        assert records_of(written) == records_of(expected.data.table)
        assert totals(result) == expected.as_dict()


@pytest.mark.parametrize("name", ["everything", "targeted", "edit, many keys"])
@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("engine", ENGINES)
def test_threads_and_memory_change_nothing(
    engine: str, threads: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(name)
    expected = in_memory(Microdata(census(), SCHEMA), spec)
    source = write_parts(census(), tmp_path / "census", 2)
    with arrow_threads(threads):
        # Few records are worth one thread only: here a hundred are worth one.
        monkeypatch.setattr(kernel_threads, "_WORTH_A_THREAD", 100)
        monkeypatch.setattr(kernel_threads, "_most_threads", lambda: threads)
        assert len(kernel_threads.split_runs(census().num_rows)) == threads
        result = masked(source, engine, spec, threads=threads, memory_limit="100MB")
    written = open_parquet(tmp_path / "masked").table(SCHEMA.names)
    assert written.to_pydict() == expected.data.table.to_pydict()
    assert totals(result) == expected.as_dict()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_shortfall_is_refused_alike(engine: str, tmp_path: Path) -> None:
    spec = spec_of("repaired to the most there are").replace(on_shortfall="error")
    with pytest.raises(InfeasibleError) as expected:
        in_memory(Microdata(census(), SCHEMA), spec)
    with pytest.raises(InfeasibleError) as caught:
        masked(write_parts(census(), tmp_path / "census", 2), engine, spec)
    assert caught.value.as_dict() == expected.value.as_dict()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["census"]


@given(swap_inputs())
@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_awkward_names_types_and_identifiers_are_the_same_on_disk(
    tmp_path_factory: pytest.TempPathFactory, tried: Tried
) -> None:
    data, spec = tried
    folder = tmp_path_factory.mktemp("awkward")
    pq.write_table(data.table, folder / "data.parquet", row_group_size=7)
    known: dict[str, Any] = {"schema": data.schema, "name": data.schema.name}
    own = data.schema.identifier
    if own is not None and "" in data.table[own.name].to_pylist():
        for engine in ENGINES:
            with pytest.raises(InputError, match="no identifier"):
                masked(folder / "data.parquet", engine, spec, **known)
        return
    expected = in_memory(workflow.read(folder / "data.parquet", **known), spec)
    for engine in ENGINES:
        result = masked(folder / "data.parquet", engine, spec, target=f"{engine}.parquet", **known)
        written = workflow.read(folder / f"{engine}.parquet", **known)
        for name in data.attributes:
            before, after = expected.data.table.column(name), written.table.column(name)
            assert [repr(v) for v in after.to_pylist()] == [repr(v) for v in before.to_pylist()]
        assert totals(result) == expected.as_dict()


def test_edits_of_tiny_files_are_the_same_whoever_is_left_over(tmp_path: Path) -> None:
    """Few households in few areas: here pairs inside the sample have to be opened for those left over."""
    places = [Attribute(name=name, kind=Kind.GEOGRAPHY) for name in ("STATE", "COUNTY", "TRACT")]
    schema = Schema(attributes=(Attribute(name="ID", kind=Kind.IDENTIFIER), *places, Attribute(name="SIZE")))
    for seed in range(40):
        random = np.random.default_rng(seed)
        counties = random.choice(3, 30, p=[0.7, 0.2, 0.1])
        tracts = counties * 3 + random.integers(0, 3, 30)
        columns = [random.permutation(30), np.zeros(30, int), counties, tracts, random.integers(0, 4, 30)]
        data = pa.table([pa.array(column) for column in columns], names=schema.names)
        spec = Edit1990Spec(keys=["SIZE"], geography=["STATE", "COUNTY", "TRACT"], rate=0.6, single_areas="leave")
        folder = tmp_path / str(seed)
        expected = in_memory(Microdata(data, schema), spec)
        result = masked(write_parts(data, folder / "data", 2), "duckdb", spec, schema=schema, name="")
        assert open_parquet(folder / "masked").table(schema.names).to_pydict() == expected.data.table.to_pydict()
        assert (totals(result), told(result.facts)) == (expected.as_dict(), told(expected.audit.facts))
