"""The capabilities of each engine, in one table that generates errors and documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from safeswap.errors import EngineError, SpecError
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.methods.edit_targeted.method import EditTargetedSpec
from safeswap.model.spec import MaskSpec, SwapSpec


@dataclass(frozen=True, kw_only=True)
class Capability:
    """One capability, and the engines that have it."""

    what: str
    engines: tuple[str, ...]


ENGINES: Mapping[str, str] = {
    "memory": "relevant columns in memory, all others copied on disk",
    "duckdb": "records sorted and exchanged on disk under a memory limit",
    "spark": "records sorted and exchanged by a Spark cluster",
}

CAPABILITIES: Mapping[str, Capability] = {
    "dataframes": Capability(what="dataframes and files of every format (mask, study, release)", engines=("memory",)),
    "swap": Capability(what="swap of a Parquet file or directory", engines=("memory", "duckdb", "spark")),
    "edit_1990": Capability(
        what="the Confidentiality Edit of 1990 of a Parquet file", engines=("memory", "duckdb", "spark")
    ),
    "edit_targeted": Capability(what="the targeted Confidentiality Edit of a Parquet file", engines=("memory",)),
    "positions": Capability(what="files without an identifier", engines=("memory", "duckdb")),
    "repair": Capability(what='pairing="repaired" beyond one random pass', engines=("memory", "duckdb", "spark")),
    "targeting": Capability(what="targeting of records at risk", engines=("memory", "duckdb", "spark")),
    "counts": Capability(
        what="n-rule, Hellinger distance, total variation and entropy of files, over all attributes together",
        engines=("memory", "duckdb", "spark"),
    ),
    "other measures": Capability(what="every other measure of files", engines=("memory",)),
    "row order": Capability(what="records in the order of the source", engines=("memory", "duckdb")),
    "other methods": Capability(what="every other method", engines=()),
}


def check_supported(engine: str, spec: MaskSpec, *, identified: bool = True) -> None:
    """Refuse what an engine cannot do to a file on disk, and name the engines that can.

    >>> check_supported("duckdb", SwapSpec(swap=["Race"], rate=0.1))
    >>> check_supported("duckdb", EditTargetedSpec(keys=["Age"]))
    Traceback (most recent call last):
    safeswap.errors.EngineError: the engine 'duckdb' cannot do this: the targeted Confidentiality Edit of a Parquet file
    """
    _check_known(engine)
    for need in _needs(spec, identified=identified):
        if engine not in CAPABILITIES[need].engines:
            raise not_supported(engine, CAPABILITIES[need])


def check_countable(engine: str, *, by_counts: bool) -> None:
    """Refuse measures that need the records themselves on an engine that gives counts only.

    >>> check_countable("spark", by_counts=True)
    """
    _check_known(engine)
    need = CAPABILITIES["counts" if by_counts else "other measures"]
    if engine not in need.engines:
        raise not_supported(engine, need)


def _check_known(engine: str) -> None:
    if engine not in ENGINES:
        raise SpecError(
            f"there is no engine {engine!r}", code="unknown-engine", hint="the engines are: " + ", ".join(ENGINES)
        )


def not_supported(engine: str, capability: Capability) -> EngineError:
    """Return the refusal, with the engines that can."""
    able = ", ".join(capability.engines)
    return EngineError(
        f"the engine {engine!r} cannot do this: {capability.what}",
        code="not-supported",
        hint=f"engines that can: {able}" if able else "read the file and mask it in memory: mask(read(path), spec)",
        engine=engine,
        engines=list(capability.engines),
    )


def _needs(spec: MaskSpec, *, identified: bool) -> list[str]:
    if isinstance(spec, Edit1990Spec | EditTargetedSpec):
        return [spec.method] if identified else [spec.method, "positions"]
    if not isinstance(spec, SwapSpec):
        return ["other methods"]
    needs = ["swap"]
    if spec.targeting is not None:
        needs.append("targeting")
    if not identified:
        needs.append("positions")
    return needs
