"""The distortion of every table of one, two or three attributes at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from safeswap.errors import SpecError
from safeswap.kernels import divergence
from safeswap.measures.base import chosen_attributes
from safeswap.measures.cross import CrossTable, association_change, cross_tables, ordinal_distance
from safeswap.measures.order import Order, level_order
from safeswap.model.score import Comparison

Orders = Mapping[str, Order | None]

_VALUES: dict[str, Callable[[CrossTable, Orders], float | None]] = {
    "hellinger": lambda table, _: divergence.hellinger(table.before, table.after),
    "total_variation": lambda table, _: divergence.total_variation(table.before, table.after),
    "entropy_change": lambda table, _: divergence.entropy_change(table.before, table.after),
    "adV": lambda table, _: association_change(table, divergence.cramers_v),
    "adC": lambda table, _: association_change(table, divergence.contingency_c),
    "ordinal": ordinal_distance,
}
TABLE_MEASURES = tuple(_VALUES)
"""What :func:`distortion_tables` can say of each table; adV and adC are for two-way tables."""

_KEPT: WeakKeyDictionary[Comparison, dict[tuple[tuple[str, ...], int], pa.Table]] = WeakKeyDictionary()


def distortion_tables(
    comparison: Comparison,
    *,
    ways: int = 2,
    measures: Sequence[str] = TABLE_MEASURES,
    attributes: tuple[str, ...] = (),
) -> pa.Table:
    """The distortion of every table of ``ways`` attributes, one row per table. For use inside the agency.

    A value is null where its measure is not defined: adV and adC need two-way tables, the ordinal one an attribute
    with an order. A table in which no attribute changed is exactly 0 in every measure.

    >>> from safeswap.model.microdata import Microdata
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex"), Attribute(name="Race")))
    >>> before = Microdata(pa.table({"Sex": ["m", "f", "m", "f"], "Race": ["a", "a", "b", "b"]}), schema)
    >>> after = Microdata(pa.table({"Sex": ["m", "m", "f", "f"], "Race": ["a", "a", "b", "b"]}), schema)
    >>> comparison = Comparison(before=before, after=after, attributes=("Sex", "Race"))
    >>> distortion_tables(comparison, measures=["total_variation"]).to_pylist()
    [{'attributes': ['Sex', 'Race'], 'changed': True, 'total_variation': 0.5}]
    """
    names = chosen_attributes(comparison, attributes)
    _check(ways, measures, names)
    kept = _KEPT.setdefault(comparison, {})
    if (names, ways) not in kept:
        # All measures together: counting the cells is what costs.
        kept[names, ways] = _tables(comparison, names, ways)
    return kept[names, ways].select(["attributes", "changed", *measures])


def _tables(comparison: Comparison, names: tuple[str, ...], ways: int) -> pa.Table:
    orders = {name: level_order(comparison, name) for name in names}
    rows: dict[str, list[Any]] = {"attributes": [], "changed": [], **{measure: [] for measure in _VALUES}}
    for table_names, table in cross_tables(comparison, names, ways):
        rows["attributes"].append(list(table_names))
        rows["changed"].append(table is not None)
        for measure, value in _VALUES.items():
            defined = _is_defined(measure, table_names, orders)
            rows[measure].append((0.0 if table is None else value(table, orders)) if defined else None)
    types = {"attributes": pa.list_(pa.string()), "changed": pa.bool_()}
    return pa.table({name: pa.array(values, types.get(name, pa.float64())) for name, values in rows.items()})


def _is_defined(measure: str, names: tuple[str, ...], orders: Orders) -> bool:
    if measure in ("adV", "adC"):
        return len(names) == 2
    return measure != "ordinal" or any(orders[name] is not None for name in names)


def _check(ways: int, measures: Sequence[str], names: tuple[str, ...]) -> None:
    unknown = [measure for measure in measures if measure not in _VALUES]
    if unknown:
        raise SpecError(
            f"{unknown[0]!r} is not a measure of tables",
            code="unknown-measure",
            hint="the measures of tables are: " + ", ".join(TABLE_MEASURES),
        )
    if not 1 <= ways <= 3 or ways > len(names):
        raise SpecError(
            f"tables of {ways} attributes cannot be made from {len(names)}",
            code="bad-ways",
            hint="tables have one, two or three attributes, and no more than there are",
        )
