"""What every registered method promises, tried on every engine.

Nothing here knows what a method does: its invariants, and what must be true of any masking by a secret key.
"""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.conformance.strategies import CASES, Tried

from safeswap import engines, registry
from safeswap.arrays import threads
from safeswap.engines.base import Engine
from safeswap.methods.base import Method
from safeswap.model.audit import undo
from safeswap.model.invariant import verify
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEY = Key(bytes(range(32)))


def every_engine() -> dict[str, type[Engine]]:
    """The engines that mask records in memory.

    An engine that needs a place on disk or a cluster is told so when it is made; it masks files, and is held to the
    bytes of the memory engine.
    """
    modules = [import_module(f"safeswap.engines.{found.name}") for found in pkgutil.iter_modules(engines.__path__)]
    classes = [c for module in modules for _, c in inspect.getmembers(module, inspect.isclass)]
    known = {c.name: c for c in classes if isinstance(getattr(c, "name", None), str) and hasattr(c, "exchange")}
    return {name: c for name, c in known.items() if not needs_something(c)}


def needs_something(engine: type[Engine]) -> bool:
    empty = inspect.Parameter.empty
    options = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(p.default is empty and p.kind not in options for p in inspect.signature(engine).parameters.values())


METHODS = registry.methods()
ENGINES = every_engine()
every_pair = pytest.mark.parametrize(
    ("method", "engine"),
    [pytest.param(m, e(), id=f"{n}-{k}") for n, m in METHODS.items() for k, e in ENGINES.items()],
)


def mask(method: Method, engine: Engine, tried: Tried, *, key: Key = KEY, replicate: int = 0) -> Masked:
    data, spec = tried
    return method.apply(data, spec, key=key, engine=engine, replicate=replicate)


def with_rows(data: Microdata, rows: np.ndarray) -> Microdata:
    return Microdata(data.table.take(pa.array(rows)), data.schema)


def relabelled(data: Microdata) -> Microdata:
    """Every nominal value under another name; what sorted first now sorts last, missing stays missing."""
    table = data.table
    for position, attribute in enumerate(data.schema.attributes):
        if attribute.kind is Kind.NOMINAL:
            values = data.coded(attribute.name)
            names = pa.array([f"level {len(values.levels) - i}" for i in range(len(values.levels))] + [None])
            column = pa.chunked_array([names.take(pa.array(values.codes.astype(np.int64)))])
            table = table.set_column(position, attribute.name, column)
    return Microdata(table, data.schema)


def with_more_columns(data: Microdata) -> Microdata:
    """A categorical attribute in front and a numeric one behind, of which no specification knows."""
    records = len(data)
    category = pa.array([f"c{i % 3}" if i % 4 else None for i in range(records)], pa.string())
    table = data.table.add_column(0, "unrelated category", category)
    table = table.append_column("unrelated number", pa.array(np.arange(records) * 0.5))
    attributes = (
        Attribute(name="unrelated category"),
        *data.schema.attributes,
        Attribute(name="unrelated number", kind=Kind.NUMERIC),
    )
    return Microdata(table, Schema(name=data.schema.name, attributes=attributes))


def exchanges(masked: Masked) -> list[tuple[tuple[str, ...], list[list[int]]]]:
    return [(exchange.attributes, exchange.pairs.tolist()) for exchange in masked.audit.exchanges]


def outcome(masked: Masked) -> tuple[str, bytes]:
    """What was exchanged and what came out."""
    return str(exchanges(masked)), serialised(masked.data.table)


def same_values(one: pa.Table, other: pa.Table) -> bool:
    """Equal to the bit, NaN and −0.0 included; how a column is cut into chunks does not matter."""
    return [[repr(v) for v in column.to_pylist()] for column in one.columns] == [
        [repr(v) for v in column.to_pylist()] for column in other.columns
    ] and one.schema.equals(other.schema)


def serialised(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_every_method_is_tried() -> None:
    assert set(CASES) >= set(METHODS), "add how to try it out to tests/conformance/strategies.py"
    assert "memory" in ENGINES


@pytest.mark.parametrize("method", [pytest.param(m, id=n) for n, m in METHODS.items()])
def test_a_method_says_who_it_is_and_where_it_comes_from(method: Method) -> None:
    assert method.name == method.spec_type.method
    assert method.title
    assert method.sources


@every_pair
@given(data=st.data())
def test_every_promise_holds_on_the_result(method: Method, engine: Engine, data: st.DataObject) -> None:
    masked = mask(method, engine, data.draw(CASES[method.name].inputs))
    promises = method.invariants(masked.original, masked.spec)
    found = verify(promises, before=masked.original, after=masked.data, audit=masked.audit)
    assert promises
    assert [finding for finding in found if not finding.ok] == []


@every_pair
@given(data=st.data())
def test_the_same_key_gives_the_same_bytes(method: Method, engine: Engine, data: st.DataObject) -> None:
    tried = data.draw(CASES[method.name].inputs)
    one, other = (
        mask(method, engine, tried),
        mask(method, engine, (with_rows(tried[0], np.arange(len(tried[0]))), tried[1])),
    )
    assert exchanges(one) == exchanges(other)
    assert same_values(one.data.table, other.data.table)
    assert serialised(mask(method, engine, tried).data.table) == serialised(one.data.table)


@every_pair
@given(data=st.data())
def test_the_order_of_the_rows_plays_no_part(method: Method, engine: Engine, data: st.DataObject) -> None:
    microdata, spec = data.draw(CASES[method.name].inputs)
    assume(microdata.schema.identifier is not None)
    rows = np.array(data.draw(st.permutations(range(len(microdata)))), dtype=np.int64)
    one = mask(method, engine, (microdata, spec))
    other = mask(method, engine, (with_rows(microdata, rows), spec))
    assert same_values(one.data.table.take(pa.array(rows)), other.data.table)
    back = [(names, [[int(rows[row]) for row in pair] for pair in pairs]) for names, pairs in exchanges(other)]
    assert back == exchanges(one)


@every_pair
@given(data=st.data())
def test_names_of_levels_play_no_part(method: Method, engine: Engine, data: st.DataObject) -> None:
    microdata, spec = data.draw(CASES[method.name].inputs)
    one = mask(method, engine, (microdata, spec))
    other = mask(method, engine, (relabelled(microdata), spec))
    assert exchanges(one) == exchanges(other)
    assert same_values(undo(other.data, other.audit).table, relabelled(microdata).table)


@every_pair
@given(data=st.data())
def test_an_unrelated_column_changes_nothing(method: Method, engine: Engine, data: st.DataObject) -> None:
    microdata, spec = data.draw(CASES[method.name].inputs)
    one = mask(method, engine, (microdata, spec))
    other = mask(method, engine, (with_more_columns(microdata), spec))
    assert exchanges(one) == exchanges(other)
    assert same_values(other.data.table.select(microdata.attributes), one.data.table)


@every_pair
@given(data=st.data())
def test_the_audit_gives_the_original_back(method: Method, engine: Engine, data: st.DataObject) -> None:
    masked = mask(method, engine, data.draw(CASES[method.name].inputs))
    assert same_values(undo(masked.data, masked.audit).table, masked.original.table)


@every_pair
@given(data=st.data())
def test_asking_for_nothing_changes_nothing(method: Method, engine: Engine, data: st.DataObject) -> None:
    microdata, spec = data.draw(CASES[method.name].inputs)
    masked = mask(method, engine, (microdata, CASES[method.name].idle(spec)))
    assert same_values(masked.data.table, microdata.table)
    assert not masked.audit.touched().any()


@every_pair
@given(data=st.data())
def test_the_input_is_left_alone(method: Method, engine: Engine, data: st.DataObject) -> None:
    microdata, spec = data.draw(CASES[method.name].inputs)
    before = serialised(microdata.table)
    codes = {name: microdata.coded(name).codes.copy() for name in microdata.attributes}
    masked = mask(method, engine, (microdata, spec))
    assert serialised(microdata.table) == before
    assert all((microdata.coded(name).codes == codes[name]).all() for name in codes)
    assert masked.original is microdata


@every_pair
@given(data=st.data())
def test_codes_of_the_result_are_those_of_its_columns(method: Method, engine: Engine, data: st.DataObject) -> None:
    masked = mask(method, engine, data.draw(CASES[method.name].inputs)).data
    for name in masked.schema.categorical:
        coded = masked.coded(name)
        levels = [*(repr(level) for level in coded.levels.to_pylist()), "None"]
        assert [levels[code] for code in coded.codes] == [repr(v) for v in masked.table.column(name).to_pylist()]


@every_pair
def test_one_flipped_key_bit_changes_the_result(method: Method, engine: Engine) -> None:
    tried = CASES[method.name].example()
    results = {outcome(mask(method, engine, tried))}
    for bit in range(256):
        flipped = bytes(byte ^ (1 << (bit % 8) if i == bit // 8 else 0) for i, byte in enumerate(KEY.secret))
        results.add(outcome(mask(method, engine, tried, key=Key(flipped))))
    assert len(results) == (257 if CASES[method.name].drawn else 1)


@every_pair
def test_replicates_and_names_of_data_sets_have_draws_of_their_own(method: Method, engine: Engine) -> None:
    data, spec = CASES[method.name].example()
    renamed = Microdata(data.table, data.schema.replace(name="another name"))
    results = [mask(method, engine, (data, spec), replicate=i) for i in range(3)]
    results.append(mask(method, engine, (renamed, spec)))
    assert len({outcome(masked) for masked in results}) == (4 if CASES[method.name].drawn else 1)


@every_pair
@pytest.mark.parametrize("number", [1, 2, 8])
def test_the_number_of_threads_plays_no_part(
    method: Method, engine: Engine, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = CASES[method.name].example()
    expected = mask(method, engine, tried)
    started: list[int] = []
    monkeypatch.setattr(threads, "_WORTH_A_THREAD", 10)
    monkeypatch.setattr(threads, "_most_threads", lambda: started.append(number) or number)
    masked = mask(method, engine, (with_rows(tried[0], np.arange(len(tried[0]))), tried[1]))
    assert started or not CASES[method.name].threaded
    assert exchanges(masked) == exchanges(expected)
    assert serialised(masked.data.table) == serialised(expected.data.table)


@every_pair
def test_what_an_insecure_seed_makes_is_not_for_release(method: Method, engine: Engine) -> None:
    tried = CASES[method.name].example()
    assert mask(method, engine, tried).audit.releasable
    assert not mask(method, engine, tried, key=Key.insecure(seed=1)).audit.releasable


@every_pair
@given(data=st.data())
def test_what_is_printed_holds_totals_only(method: Method, engine: Engine, data: st.DataObject) -> None:
    masked = mask(method, engine, data.draw(CASES[method.name].inputs))
    spoken = f"{masked!r} {masked.audit!r} {masked.as_dict()}"
    assert KEY.secret.hex() not in spoken
    assert repr(KEY.secret) not in spoken
    assert "pairs=" not in repr(masked.audit)
    assert "array" not in spoken
