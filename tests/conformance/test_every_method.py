"""What every registered method promises, tried in memory and on files on every engine.

Nothing here knows what a method does: its invariants, and what must be true of any masking by a secret key.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from tests.conformance.on_files import EVERY_ENGINE, IN_A_SESSION, check_on_file, is_supported
from tests.conformance.strategies import CASES, Tried

from safeswap import registry
from safeswap.arrays import compiled
from safeswap.arrays.keyed import derive
from safeswap.methods.base import Method
from safeswap.methods.exchange import ExchangingMethod
from safeswap.model.audit import undo
from safeswap.model.invariant import verify
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.on_disk.job import ENGINES

KEY = Key(bytes(range(32)))


METHODS = registry.methods()
every_method = pytest.mark.parametrize("method", [pytest.param(m, id=n) for n, m in METHODS.items()])
every_engine = pytest.mark.parametrize("engine", EVERY_ENGINE)


def mask(method: Method, tried: Tried, *, key: Key = KEY, replicate: int = 0) -> Masked:
    data, spec = tried
    return method.apply(data, spec, key=key, replicate=replicate)


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
    assert {*EVERY_ENGINE, *IN_A_SESSION} == set(ENGINES)


@every_method
def test_a_method_says_who_it_is_and_where_it_comes_from(method: Method) -> None:
    assert method.name == method.spec_type.method
    assert method.title
    assert method.sources


@every_method
@given(data=st.data())
def test_every_promise_holds_on_the_result(method: Method, data: st.DataObject) -> None:
    """What the method promises, and what any masking must do: be undone, leave its input alone, print no record."""
    microdata, spec = data.draw(CASES[method.name].inputs)
    before = serialised(microdata.table)
    codes = {name: microdata.coded(name).codes.copy() for name in microdata.attributes}
    masked = mask(method, (microdata, spec))
    promises = method.invariants(masked.original, masked.spec)
    found = verify(promises, before=masked.original, after=masked.data, audit=masked.audit)
    assert promises
    assert [finding for finding in found if not finding.ok] == []
    assert same_values(undo(masked.data, masked.audit).table, masked.original.table)
    assert masked.original is microdata
    assert serialised(microdata.table) == before
    assert all((microdata.coded(name).codes == codes[name]).all() for name in codes)
    check_codes(masked.data)
    check_printed(masked)


def check_codes(masked: Microdata) -> None:
    """The codes of the result are those of its columns."""
    for name in masked.schema.categorical:
        coded = masked.coded(name)
        levels = [*(repr(level) for level in coded.levels.to_pylist()), "None"]
        assert [levels[code] for code in coded.codes] == [repr(v) for v in masked.table.column(name).to_pylist()]


def check_printed(masked: Masked) -> None:
    """What is printed holds totals only."""
    spoken = f"{masked!r} {masked.audit!r} {masked.as_dict()}"
    assert KEY.secret.hex() not in spoken
    assert repr(KEY.secret) not in spoken
    assert "pairs=" not in repr(masked.audit)
    assert "array" not in spoken


@every_method
@given(data=st.data())
def test_the_same_key_gives_the_same_result_whatever_else_differs(method: Method, data: st.DataObject) -> None:
    """Other chunks, another order of the rows, other names of levels and unrelated columns play no part."""
    microdata, spec = data.draw(CASES[method.name].inputs)
    records = len(microdata)
    one = mask(method, (microdata, spec))
    assert serialised(mask(method, (microdata, spec)).data.table) == serialised(one.data.table)

    copied = mask(method, (with_rows(microdata, np.arange(records)), spec))
    assert exchanges(copied) == exchanges(one)
    assert same_values(copied.data.table, one.data.table)

    renamed = mask(method, (relabelled(microdata), spec))
    assert exchanges(renamed) == exchanges(one)
    assert same_values(undo(renamed.data, renamed.audit).table, relabelled(microdata).table)

    wider = mask(method, (with_more_columns(microdata), spec))
    assert exchanges(wider) == exchanges(one)
    assert same_values(wider.data.table.select(microdata.attributes), one.data.table)

    if microdata.schema.identifier is not None:
        rows = np.array(data.draw(st.permutations(range(records))), dtype=np.int64)
        shuffled = mask(method, (with_rows(microdata, rows), spec))
        assert same_values(one.data.table.take(pa.array(rows)), shuffled.data.table)
        back = [(names, [[int(rows[row]) for row in pair] for pair in pairs]) for names, pairs in exchanges(shuffled)]
        assert back == exchanges(one)


@every_method
@given(data=st.data())
def test_asking_for_nothing_changes_nothing(method: Method, data: st.DataObject) -> None:
    microdata, spec = data.draw(CASES[method.name].inputs)
    masked = mask(method, (microdata, CASES[method.name].idle(spec)))
    assert same_values(masked.data.table, microdata.table)
    assert not masked.audit.touched().any()


def with_flipped(bit: int) -> Key:
    return Key((int.from_bytes(KEY.secret, "big") ^ (1 << bit)).to_bytes(32, "big"))


def test_every_bit_of_the_key_changes_what_is_derived() -> None:
    derived = {derive(key.secret, "draw") for key in (KEY, *map(with_flipped, range(256)))}
    assert len(derived) == 257


@every_method
def test_a_flipped_bit_in_any_byte_of_the_key_changes_the_result(method: Method) -> None:
    tried = CASES[method.name].example()
    flipped = [with_flipped(8 * byte + 5 * byte % 8) for byte in range(32)]
    results = {outcome(mask(method, tried, key=key)) for key in (KEY, *flipped)}
    assert len(results) == (33 if CASES[method.name].drawn else 1)


@every_method
def test_replicates_and_names_of_data_sets_have_draws_of_their_own(method: Method) -> None:
    data, spec = CASES[method.name].example()
    renamed = Microdata(data.table, data.schema.replace(name="another name"))
    results = [mask(method, (data, spec), replicate=i) for i in range(3)]
    results.append(mask(method, (renamed, spec)))
    assert len({outcome(masked) for masked in results}) == (4 if CASES[method.name].drawn else 1)


@every_method
@pytest.mark.parametrize("number", [1, 2, 8])
def test_the_number_of_threads_plays_no_part(method: Method, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = CASES[method.name].example()
    expected = mask(method, tried)
    started: list[int] = []
    monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 10)
    monkeypatch.setattr(compiled, "_most_threads", lambda: started.append(number) or number)
    masked = mask(method, (with_rows(tried[0], np.arange(len(tried[0]))), tried[1]))
    assert started or not CASES[method.name].threaded
    assert exchanges(masked) == exchanges(expected)
    assert serialised(masked.data.table) == serialised(expected.data.table)


@every_method
def test_what_an_insecure_seed_makes_is_not_for_release(method: Method) -> None:
    tried = CASES[method.name].example()
    assert mask(method, tried).audit.releasable
    assert not mask(method, tried, key=Key.insecure(seed=1)).audit.releasable


@every_method
@every_engine
def test_a_file_is_masked_as_in_memory_or_refused_as_declared(method: Method, engine: str, tmp_path: Path) -> None:
    check_on_file(method, engine, CASES[method.name].example(), tmp_path)


@every_method
@every_engine
@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_awkward_files_are_masked_as_in_memory(
    method: Method, engine: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tried = data.draw(CASES[method.name].inputs)
    own = tried[0].schema.identifier
    assume(own is None or "" not in tried[0].table[own.name].to_pylist())  # refused as missing, by every engine
    check_on_file(method, engine, tried, tmp_path_factory.mktemp("awkward"))


def test_a_method_that_exchanges_masks_files() -> None:
    """Memory lacks nothing; what counts and pairs on its own runs on every engine."""
    schema = CASES["swap"].example()[0].schema
    exchanging = {name: method for name, method in METHODS.items() if isinstance(method, ExchangingMethod)}
    assert {"swap", "edit_1990", "edit_targeted"} <= set(exchanging)
    for method in exchanging.values():
        assert is_supported(method, "memory", schema)
        assert all(is_supported(method, engine, schema) for engine in ENGINES) == (not method.needs)
