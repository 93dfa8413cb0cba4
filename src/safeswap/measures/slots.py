"""Who stands now where a record stood: the other half of every exchange, from the audit or from the two files."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from safeswap.errors import SpecError
from safeswap.kernels import cells
from safeswap.kernels.types import Names, Rows
from safeswap.measures.aligned import aligned
from safeswap.model.audit import Exchange
from safeswap.model.score import Comparison
from safeswap.model.value_order import ranked_columns


def occupants_by_audit(exchanges: Iterable[Exchange], records: int) -> Rows:
    """For each record the one that stands in its place after these exchanges.

    >>> first = Exchange(attributes=("Place",), pairs=np.array([[0, 1]]))
    >>> second = Exchange(attributes=("Place",), pairs=np.array([[1, 2]]))
    >>> occupants_by_audit([first, second], 4).tolist()
    [2, 0, 1, 3]
    """
    place = np.arange(records, dtype=np.int64)
    for exchange in exchanges:
        a, b = exchange.pairs[:, 0], exchange.pairs[:, 1]
        place[a], place[b] = place[b], place[a]
    occupant = np.empty(records, dtype=np.int64)
    occupant[place] = np.arange(records)
    return occupant


def occupants_by_files(comparison: Comparison, keys: Names) -> Rows:
    """The same from the files alone: what left a place for another is matched with what came from there.

    Where several records made the same way, they are matched in the order of their keys: in a targeted edit partners
    are near each other in that order.
    """
    changed = [name for name in comparison.before.schema.categorical if aligned(comparison, name).changed]
    occupant = np.arange(len(comparison.before), dtype=np.int64)
    if not changed or _match(comparison, changed, keys, occupant):
        return occupant
    seen = np.zeros(occupant.size, dtype=np.int64)
    for name in changed:
        seen[_changed_rows(comparison, [name])] += 1
        if seen.max(initial=0) > 1 or not _match(comparison, [name], keys, occupant):
            raise SpecError(
                "the file was not made by exchanging values between records: nobody stands in another one's place",
                code="not-an-exchange",
                hint='use reading="class", which compares the means of classes',
            )
    return occupant


def _changed_rows(comparison: Comparison, names: list[str]) -> Rows:
    flags = np.zeros(len(comparison.before), dtype=np.bool_)
    for name in names:
        column = aligned(comparison, name)
        flags |= column.before != column.after
    return np.flatnonzero(flags)


def _match(comparison: Comparison, names: list[str], keys: Names, occupant: Rows) -> bool:
    """Match the rows that changed in these attributes together; False where what left is not what came."""
    rows = _changed_rows(comparison, names)
    columns = [aligned(comparison, name) for name in names]
    together = [np.concatenate([c.before[rows], c.after[rows]]) for c in columns]
    packed, _ = cells.pack(together, [c.cardinality for c in columns])
    left, came = packed[: rows.size], packed[rows.size :]
    ranks, numbers = ranked_columns(comparison.before, keys)
    order, _ = cells.pack([column[rows] for column in ranks], numbers) if keys else (rows, 0)
    standing, arriving = np.lexsort((order, came, left)), np.lexsort((order, left, came))
    if not np.array_equal(left[standing], came[arriving]):
        return False
    occupant[rows[standing]] = rows[arriving]
    return True
