"""Shared by methods that exchange values between records."""

from __future__ import annotations

import numpy as np

from safeswap.arrays import cells
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Rows
from safeswap.model.audit import Exchange
from safeswap.model.microdata import Microdata


def compensating(before: Microdata, after: Microdata, exchanges: tuple[Exchange, ...]) -> int:
    """Count records that changed without changing the table: moved records minus the net change of the cells.

    Only records that took part are read, so the cost grows with the number of pairs.
    """
    rows = exchanges[0].pairs.ravel()
    if len(exchanges) > 1:
        rows = np.unique(np.concatenate([exchange.pairs.ravel() for exchange in exchanges]))
    swapped = tuple(dict.fromkeys(name for exchange in exchanges for name in exchange.attributes))
    others = tuple(name for name in before.schema.categorical if name not in swapped)
    rest, rest_size = _pack_cells(before, others, rows)
    was, size = _pack_cells(before, swapped, rows)
    now, _ = _pack_cells(after, swapped, rows)
    joint = cells.joint_counts([rest, was], [rest, now], [rest_size, size])
    net = int(np.abs(joint.after - joint.before).sum()) // 2
    return int(np.count_nonzero(was != now)) - net


def _pack_cells(data: Microdata, names: Names, rows: Rows) -> tuple[Codes, int]:
    if not names:
        return np.zeros(len(rows), dtype=np.uint8), 1
    columns, cardinalities = zip(*(data.codes_at(name, rows) for name in names), strict=True)
    return cells.pack(columns, cardinalities)
