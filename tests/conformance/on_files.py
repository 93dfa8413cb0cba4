"""A method on a Parquet file: an engine masks it as in memory, or refuses what it declares that it cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conformance.strategies import Tried

from safeswap import workflow
from safeswap.errors import EngineError
from safeswap.files.parquet import open_parquet
from safeswap.methods.base import Method
from safeswap.model.audit import Audit, undo
from safeswap.model.invariant import verify
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema
from safeswap.model.spec import MaskSpec
from safeswap.on_disk.audit_record import read_audit
from safeswap.on_disk.job import ENGINES, check_supported, find_engine

KEY = Key(bytes(range(32)))
IN_A_SESSION = {"spark"}
"""Engines that are tried in tests/engines, because they need a session."""

EVERY_ENGINE = tuple(name for name in ENGINES if name not in IN_A_SESSION)


def is_supported(method: Method, engine: str, schema: Schema, spec: MaskSpec | None = None) -> bool:
    try:
        check_supported(find_engine(engine), method)
        check_supported(find_engine(engine), method, schema=schema, spec=spec)
    except EngineError:
        return False
    return True


def check_on_file(method: Method, engine: str, tried: Tried, folder: Path, **options: Any) -> None:
    """Mask a file; records, pairs, totals and facts are those in memory, and all promises hold. Or it is refused."""
    data, spec = tried
    known: dict[str, Any] = {"schema": data.schema, "name": data.schema.name}
    source, target, audit = folder / "data.parquet", folder / "masked.parquet", folder / "audit"
    pq.write_table(data.table, source, row_group_size=max(1, len(data) // 3))
    asked: dict[str, Any] = {"spec": spec, "key": KEY, "audit": audit, "engine": engine, **known, **options}
    if not is_supported(method, engine, data.schema, spec):
        with pytest.raises(EngineError) as refused:
            workflow.mask_file(source, target, **asked)
        assert refused.value.code == "not-supported"
        assert [path.name for path in folder.iterdir()] == [source.name]
        return
    expected = method.apply(workflow.read(source, **known), spec, key=KEY)
    result = workflow.mask_file(source, target, **asked)
    assert {k: v for k, v in result.as_dict().items() if k != "engine"} == expected.as_dict()
    assert _without_diagnosis(result.facts) == _without_diagnosis(expected.audit.facts)
    _check_in_place(method, expected, target, result.audit)


def _without_diagnosis(facts: Any) -> dict[str, Any]:
    """Only an engine that holds all records can tell what would have found partners."""
    return {name: value for name, value in dict(facts).items() if name != "diagnosis"}


def _check_in_place(method: Method, expected: Masked, target: Path, record: Path) -> None:
    table = open_parquet(target).table(expected.data.attributes).cast(expected.data.table.schema)
    written, audit = Microdata(table, expected.data.schema), read_audit(record)
    assert rows_of(written.table) == rows_of(expected.data.table)
    assert exchanges(audit) == exchanges(expected.audit)
    promises = method.invariants(expected.original, expected.spec)
    found = verify(promises, before=expected.original, after=written, audit=audit)
    assert promises
    assert [finding for finding in found if not finding.ok] == []
    assert rows_of(undo(written, audit).table) == rows_of(expected.original.table)


def exchanges(audit: Audit) -> list[tuple[tuple[str, ...], list[list[int]]]]:
    return [(tuple(exchange.attributes), exchange.pairs.tolist()) for exchange in audit.exchanges]


def rows_of(table: pa.Table) -> list[list[str]]:
    """Values to the bit, NaN and −0.0 included, column by column."""
    return [[repr(value) for value in table[name].to_pylist()] for name in table.column_names]
