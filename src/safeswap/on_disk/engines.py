"""The engines by name, and the refusal of what one lacks; the table in the reference is made from the same facts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from safeswap import registry
from safeswap.engines.base import Need
from safeswap.errors import EngineError, SpecError
from safeswap.methods.base import Method
from safeswap.methods.by_household import changed_by_household
from safeswap.methods.exchange import ExchangingMethod
from safeswap.methods.value_change import ValueChangingMethod
from safeswap.model.checked import check_types
from safeswap.model.schema import Schema
from safeswap.model.spec import MaskSpec
from safeswap.on_disk.job import OpenFile

ENGINES = {
    "memory": "safeswap.on_disk.memory:MemoryFile",
    "duckdb": "safeswap.on_disk.duckdb:DuckDBFile",
    "spark": "safeswap.on_disk.spark:SparkFile",
}


@check_types
def find_engine(name: str) -> type[OpenFile]:
    """Return the engine of that name.

    >>> find_engine("duckdb").title
    'records sorted and exchanged on disk under a memory limit'
    """
    if name not in ENGINES:
        raise SpecError(
            f"there is no engine {name!r}", code="unknown-engine", hint="the engines are: " + ", ".join(ENGINES)
        )
    module, _, found = ENGINES[name].partition(":")
    engine: type[OpenFile] = getattr(import_module(module), found)
    return engine


def check_supported(
    engine: type[OpenFile], method: Method, *, schema: Schema | None = None, spec: MaskSpec | None = None
) -> None:
    """Refuse what an engine cannot do to a file on disk, and name the engines that can.

    >>> check_supported(find_engine("duckdb"), registry.method("swap"))
    >>> check_supported(find_engine("duckdb"), registry.method("edit_targeted"))
    Traceback (most recent call last):
    safeswap.errors.EngineError: the engine 'duckdb' cannot do this: methods that need the whole file in memory
    """
    if not isinstance(method, ExchangingMethod | ValueChangingMethod):
        raise EngineError(
            f"{method.name!r} does not mask files on any engine",
            code="not-supported",
            hint="read the file and mask it in memory: mask(read(path), spec)",
            engine=engine.name,
            engines=[],
        )
    identified = schema is None or schema.identifier is not None
    for need in sorted(method.needs | (set() if identified else {Need.POSITIONS})):
        check_need(engine, need)
    if schema is not None and spec is not None and changed_by_household(method, schema, spec):
        check_need(engine, Need.HOUSEHOLDS)


def check_need(engine: type[OpenFile], need: Need) -> None:
    """Refuse what an engine lacks.

    >>> check_need(find_engine("spark"), Need.POSITIONS)
    Traceback (most recent call last):
    safeswap.errors.EngineError: the engine 'spark' cannot do this: files without an identifier
    """
    if need not in engine.lacks:
        return
    able = [name for name in ENGINES if need not in find_engine(name).lacks]
    raise EngineError(
        f"the engine {engine.name!r} cannot do this: {need.value}",
        code="not-supported",
        hint=f"{engine.lacks[need]}; engines that can: {', '.join(able)}",
        engine=engine.name,
        engines=able,
    )


def check_countable(name: str, *, by_counts: bool) -> None:
    """Refuse measures that need the records themselves on an engine that gives counts only.

    >>> check_countable("spark", by_counts=True)
    """
    engine = find_engine(name)
    if not by_counts:
        check_need(engine, Need.RECORDS)


def list_abilities() -> Iterator[tuple[str, tuple[bool, ...]]]:
    """Yield what can be done to files, and for each engine whether it can, for the reference.

    >>> dict(list_abilities())["the method edit_targeted on Parquet files"]
    (True, False, False)
    """
    engines = [find_engine(name) for name in ENGINES]
    for method in registry.methods().values():
        if isinstance(method, ExchangingMethod | ValueChangingMethod):
            yield f"the method {method.name} on Parquet files", tuple(not method.needs & set(e.lacks) for e in engines)
    for need in Need:
        yield need.value, tuple(need not in engine.lacks for engine in engines)
