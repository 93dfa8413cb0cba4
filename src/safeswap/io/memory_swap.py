"""A swap of a file of which only the columns that play a part are held in memory."""

from __future__ import annotations

from safeswap.io.held_exchanges import CodedEngine, HeldExchanges, held, part_of
from safeswap.io.parquet_files import ParquetFiles
from safeswap.kernels.types import Names
from safeswap.methods.swap import Swap
from safeswap.model.audit import Exchange
from safeswap.model.invariant import Invariant
from safeswap.model.key import Key
from safeswap.model.schema import Schema
from safeswap.model.spec import SwapSpec

__all__ = ["MemorySwap", "needed", "part_of"]


def needed(schema: Schema, spec: SwapSpec) -> tuple[str, ...]:
    """The columns without which pairs cannot be drawn: identifier, roles, keys of targeting."""
    named = _named(schema, spec)
    if schema.identifier:
        named.add(schema.identifier.name)
    for name in named - set(schema.names):
        schema[name]  # an unknown attribute gets its own clear error
    return tuple(name for name in schema.names if name in named)


def _named(schema: Schema, spec: SwapSpec) -> set[str]:
    named = {*spec.swap, *spec.fixed, *spec.differ}
    return named | set(spec.targeting.keys or schema.categorical) if spec.targeting else named


class MemorySwap(HeldExchanges):
    """The pairs of a swap, and the columns after it."""

    def __init__(self, files: ParquetFiles, schema: Schema, spec: SwapSpec, *, key: Key, replicate: int) -> None:
        super().__init__(files, schema, held(files, schema, _named(schema, spec)))
        self.spec = spec
        engine = CodedEngine()
        self.plan, drawn = Swap().drawn(self.before, spec, key=key, engine=engine, replicate=replicate)
        self.exchanges = tuple(Exchange(attributes=n, pairs=p) for n, p in zip(spec.stages, drawn, strict=True))
        for exchange in self.exchanges:
            self.after = engine.exchange(self.after, exchange.attributes, exchange.pairs)

    @property
    def names(self) -> Names:
        """The swapped columns, in the order of the file."""
        return tuple(name for name in self.schema.names if name in self.spec.swap)

    def _promises(self) -> tuple[Invariant, ...]:
        return Swap().invariants(self.before, self.spec)
