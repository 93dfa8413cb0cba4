"""Exchanges on the memory engine: only the relevant columns of the file are held.

The method itself is that of :func:`safeswap.mask`: it gets the columns it needs, and no others.
"""

from __future__ import annotations

from safeswap.arrays.names import Names
from safeswap.files.parquet import ParquetFiles
from safeswap.methods.base import Method
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.methods.edit_targeted.method import EditTargetedSpec
from safeswap.methods.swap import Swap
from safeswap.model.audit import Exchange
from safeswap.model.invariant import Invariant
from safeswap.model.key import Key
from safeswap.model.schema import Kind, Schema
from safeswap.model.spec import SwapSpec
from safeswap.on_disk.held_exchanges import CodedEngine, HeldExchanges, load_columns, part_of

__all__ = ["MemorySwap", "needed_columns", "part_of"]


def needed_columns(schema: Schema, spec: SwapSpec) -> tuple[str, ...]:
    """Return the columns needed to draw pairs: identifier, roles, keys of targeting, all levels of a geography."""
    named = _named_columns(schema, spec)
    if schema.identifier:
        named.add(schema.identifier.name)
    for name in named - set(schema.names):
        schema[name]  # an unknown attribute gets its own clear error
    return tuple(name for name in schema.names if name in named)


def _named_columns(schema: Schema, spec: SwapSpec) -> set[str]:
    named = {*spec.swap, *spec.fixed, *spec.differ}
    areas = {attribute.name for attribute in schema.iter_kind(Kind.GEOGRAPHY)}
    if areas & set(spec.swap):
        named |= areas  # levels of one geography move together, which the plan checks
    return named | set(spec.targeting.keys or schema.categorical) if spec.targeting else named


class MemorySwap(HeldExchanges):
    """The pairs of a swap, and the resulting columns."""

    def __init__(self, files: ParquetFiles, schema: Schema, spec: SwapSpec, *, key: Key, replicate: int) -> None:
        super().__init__(files, schema, load_columns(files, schema, _named_columns(schema, spec)))
        self.spec = spec
        engine = CodedEngine()
        self.plan, drawn = Swap().drawn(self.before, spec, key=key, engine=engine, replicate=replicate)
        self.exchanges = tuple(Exchange(attributes=n, pairs=p) for n, p in zip(spec.stages, drawn, strict=True))
        for exchange in self.exchanges:
            self.after = engine.exchange(self.after, exchange.attributes, exchange.pairs)

    @property
    def names(self) -> Names:
        """The swapped columns, in file order."""
        return tuple(name for name in self.schema.names if name in self.spec.swap)

    def _promises(self) -> tuple[Invariant, ...]:
        return Swap().invariants(self.before, self.spec)


EditSpec = Edit1990Spec | EditTargetedSpec


class MemoryEdit(HeldExchanges):
    """The pairs of an edit, the resulting columns, and the facts found on the way."""

    def __init__(self, files: ParquetFiles, schema: Schema, spec: EditSpec, *, key: Key, replicate: int) -> None:
        super().__init__(files, schema, load_columns(files, schema, read_columns(schema, spec)))
        self.spec = spec
        masked = _method(spec).apply(self.before, spec, key=key, engine=CodedEngine(), replicate=replicate)
        self.plan, self.after = masked.plan, masked.data
        self.exchanges = masked.audit.exchanges
        self.facts = dict(masked.audit.facts)  # computed now, so that their inputs can be freed

    @property
    def names(self) -> Names:
        """The columns in which something was exchanged, in file order; at least one that could have been."""
        made = {name for exchange in self.exchanges for name in exchange.attributes}
        found = tuple(name for name in self.schema.names if name in made)
        return found or exchanged_columns(self.schema, self.spec)[:1]

    def _promises(self) -> tuple[Invariant, ...]:
        return _method(self.spec).invariants(self.before, self.spec)


def read_columns(schema: Schema, spec: EditSpec) -> set[str]:
    """Return the columns that the result depends on, or that it changes.

    >>> from safeswap.model.schema import Attribute
    >>> places = [Attribute(name=name, kind=Kind.GEOGRAPHY) for name in ("State", "Tract")]
    >>> schema = Schema(attributes=(*places, Attribute(name="Beds"), Attribute(name="Roof")))
    >>> sorted(read_columns(schema, EditTargetedSpec(keys=["Beds"], within=["State"])))
    ['Beds', 'State', 'Tract']
    """
    named = {*spec.keys, *exchanged_columns(schema, spec)}
    if isinstance(spec, Edit1990Spec):
        return named | {*spec.geography, *(each.name for each in schema.iter_kind(Kind.HOUSEHOLD))}
    return named | {*spec.within, *(spec.order_by if spec.order == "near_optimal" else ())}


def exchanged_columns(schema: Schema, spec: EditSpec) -> Names:
    """Return the columns that an edit may change, including those taken from the schema."""
    if isinstance(spec, Edit1990Spec):
        return spec.exchanged
    if spec.exchange == "categorical":
        return spec.sorted_keys
    stated = spec.geography if spec.exchange == "geography" else spec.continuous
    kind = Kind.GEOGRAPHY if spec.exchange == "geography" else Kind.NUMERIC
    return stated or tuple(each.name for each in schema.iter_kind(kind) if each.name not in spec.within)


def _method(spec: EditSpec) -> Method:
    from safeswap import registry

    return registry.method(spec.method)
