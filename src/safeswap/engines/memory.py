"""The engine for data that fit in memory: NumPy columns and Numba kernels."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import cells, matching, order, pairing
from safeswap.arrays.names import Names
from safeswap.arrays.threads import run_all
from safeswap.arrays.types import Codes, Counts, Rows, UInt32s
from safeswap.engines.base import Classes, Constraint, PairRequest
from safeswap.engines.identity import record_identity
from safeswap.model.microdata import Coded, Microdata, signed_zeros, without_signed_zero
from safeswap.model.spec import Targeting

_WHOLE_FILE = 100_000
"""Up to this many records the whole order is computed at once; above, only the prefix needed."""


class MemoryEngine:
    """Everything in one process; the reference for other engines."""

    name = "memory"

    def classes(self, data: Microdata, constraint: Constraint) -> Classes:
        """Count the records by stratum and coordinates."""
        codes, sizes = _labels(data, constraint, None)
        if prod(sizes) <= cells.MOST_CELLS:
            counted = cells.cell_counts(codes, sizes)
            labels = np.stack(np.unravel_index(counted.codes.astype(np.int64), sizes), axis=1).astype(np.int64)
            counts = counted.counts
        else:
            first, _, counts = _distinct(codes, sizes)
            labels = np.stack([column[first] for column in codes], axis=1).astype(np.int64)
        return Classes(strata=labels[:, 0], coordinates=labels[:, 1:], counts=counts)

    def pairs(self, data: Microdata, request: PairRequest) -> Rows:
        """Draw pairs along the keyed order; repair a shortfall up to the true maximum if requested."""
        if request.wanted == 0:
            return np.zeros((0, 2), dtype=np.int64)
        identity = record_identity(data, request.identity_key)
        if request.targeting is not None:
            weights = _weights(data, request.targeting)
            rows = order.weighted(identity, request.draw_key, weights)
            found = _walk(data, request, rows)[0]
        else:
            rows, found = _walk_prefixes(data, request, identity)
        if len(found) < request.wanted and request.repair:
            found = _repair(data, request, rows, found)
        paired: Rows = rows[found]
        return paired

    def exchange(self, data: Microdata, attributes: Names, pairs: Rows) -> Microdata:
        """Exchange values within each pair; all other columns are shared with the input."""
        columns: dict[str, pa.ChunkedArray] = {}
        coded: dict[str, Coded] = {}

        def exchange(name: str) -> None:
            columns[name] = _exchange_values(data.table.column(name), pairs)
            before = data.coded(name)
            codes = before.codes.copy()
            pairing.exchange(codes, pairs)
            coded[name] = Coded(codes, before.levels, before.has_missing)

        run_all(exchange, attributes)
        return data.with_columns({name: columns[name] for name in attributes}, coded)


def _labels(
    data: Microdata, constraint: Constraint, rows: Rows | None, *, exact: bool = False
) -> tuple[list[Codes], list[int]]:
    """Return the stratum and the label in each coordinate, a column each, for all records or for some rows.

    −0.0 and 0.0 have one label in a coordinate, since they do not differ, unless ``exact`` labels are requested. Those
    have the carried attributes as a last column.
    """
    records = len(data) if rows is None else len(rows)
    codes: list[Codes] = []
    sizes: list[int] = []
    groups = (constraint.equal, *constraint.unequal, *([constraint.carried] if exact and constraint.carried else []))
    for place, names in enumerate(groups):
        columns, cardinalities = data.coded_columns(names)
        if place and not exact:
            zeros = (signed_zeros(data.coded(name).levels) for name in names)
            columns = [without_signed_zero(*each) for each in zip(columns, zeros, strict=True)]
        if rows is not None:
            columns = [column[rows] for column in columns]
        label, size = cells.pack(columns, cardinalities) if names else (np.zeros(records, dtype=np.uint8), 1)
        codes.append(label)
        sizes.append(size)
    return codes, sizes


def _pair_labels(data: Microdata, constraint: Constraint, rows: Rows) -> tuple[UInt32s, int, UInt32s]:
    """Return strata, their number and coordinates of some rows, as :func:`safeswap.arrays.pairing.walk` takes them."""
    codes, sizes = _labels(data, constraint, rows)
    columns = [_narrow(code, size) for code, size in zip(codes, sizes, strict=True)]
    strata, number = columns[0] if constraint.equal else (np.zeros(0, dtype=np.uint32), 1)
    return strata, number, np.stack([column for column, _ in columns[1:]], axis=1)


def _distinct(codes: list[Codes], sizes: list[int]) -> tuple[Rows, Rows, Counts]:
    """Return the classes, sorted by stratum: the first record of each, the class of each record, the counts."""
    packed, _ = cells.pack(codes, sizes)
    _, first, inverse, counts = np.unique(packed, return_index=True, return_inverse=True, return_counts=True)
    return first, inverse, counts


def _narrow(codes: Codes, size: int) -> tuple[UInt32s, int]:
    """Return labels as 32-bit array indices, renumbered if there are too many possible ones."""
    if size <= max(4 * len(codes), 1 << 16) and size <= 1 << 32:
        return codes.astype(np.uint32, copy=False), size
    distinct, inverse = np.unique(codes, return_inverse=True)
    return inverse.astype(np.uint32), len(distinct)


def _walk(data: Microdata, request: PairRequest, rows: Rows) -> tuple[Rows, int]:
    strata, number, coordinates = _pair_labels(data, request.constraint, rows)
    found, looked_at, _ = pairing.walk(strata, number, coordinates, request.wanted, request.repair)
    return found, looked_at


def _walk_prefixes(
    data: Microdata, request: PairRequest, identity: npt.NDArray[np.int64] | npt.NDArray[np.uint64]
) -> tuple[Rows, Rows]:
    """Walk a prefix of the order that should suffice, and a longer one if it does not."""
    records = len(data)
    expected = request.pairs_per_record
    share = 0.0
    while True:
        needed = request.wanted / max(expected, 1 / records)
        # Three standard deviations of headroom; a slightly long prefix costs little.
        likely = (needed + 3 * np.sqrt(needed) + 1000) * 1.01 / records
        share = 1.0 if records <= _WHOLE_FILE else float(min(1.0, max(1.5 * share, likely)))
        rows = order.prefix(identity, request.draw_key, share)
        found, looked_at = _walk(data, request, rows)
        if len(found) >= request.wanted or share >= 1.0:
            return rows, found
        expected = (len(found) + 1) / (looked_at + 1)


def _weights(data: Microdata, targeting: Targeting) -> npt.NDArray[np.float64]:
    """Return the weight of each record: the targeting weight in a cell below ``n``, 1 elsewhere."""
    columns, cardinalities = data.coded_columns(targeting.keys or data.schema.categorical)
    small = cells.record_cell_counts(columns, cardinalities) < targeting.n
    return np.where(small, targeting.weight, 1.0)


def _repair(data: Microdata, request: PairRequest, rows: Rows, found: Rows) -> Rows:
    """Keep as many random pairs as still allow the target, and pair the rest exactly on counts of classes.

    ``rows`` is the whole keyed order. Adding a random pair never raises (pairs kept + best of the rest), so bisection
    finds the largest number that can be kept.
    """
    codes, sizes = _labels(data, request.constraint, rows, exact=True)
    class_of, classes = _canonical_classes(codes, sizes, _labels(data, request.constraint, rows)[0][1:])
    target = min(request.wanted, _best(classes, classes.counts))
    kept = _bisect(
        len(found),
        lambda q: q + _best(classes, _subtract_members(classes.counts, class_of[found[:q].ravel()])) >= target,
    )
    rest = np.ones(len(rows), dtype=np.bool_)
    rest[found[:kept].ravel()] = False
    places = np.flatnonzero(rest)
    counts = _subtract_members(classes.counts, class_of[found[:kept].ravel()])
    moves = matching.largest_matching(classes.strata, classes.coordinates, counts).moves
    dealt = places[pairing.deal(class_of[places].astype(np.uint32), moves, len(classes.counts))]
    first = np.argsort(dealt.max(axis=1), kind="stable")[: target - kept]
    repaired: Rows = np.concatenate([found[:kept], dealt[first]])
    return repaired


def _canonical_classes(codes: list[Codes], sizes: list[int], labels: list[Codes]) -> tuple[Rows, Classes]:
    """Number classes by first appearance in the keyed order: neither row order nor names of levels matter."""
    first, inverse, counts = _distinct(codes, sizes)
    strata_codes = codes[0][first]
    earliest: dict[int, int] = {}
    for place, stratum in sorted(zip(first.tolist(), strata_codes.tolist(), strict=True)):
        earliest.setdefault(stratum, place)
    stratum_place = np.array([earliest[s] for s in strata_codes.tolist()], dtype=np.int64)
    arranged = np.lexsort((first, stratum_place))
    number = np.empty(len(first), dtype=np.int64)
    number[arranged] = np.arange(len(first))
    coordinates = np.stack([column[first[arranged]] for column in labels], axis=1).astype(np.int64)
    return number[inverse], Classes(
        strata=stratum_place[arranged], coordinates=coordinates, counts=counts[arranged].astype(np.int64)
    )


def _best(classes: Classes, counts: Counts) -> int:
    return matching.largest_total(classes.strata, classes.coordinates, counts).found


def _subtract_members(counts: Counts, members: Rows) -> Counts:
    remaining: Counts = counts - np.bincount(members, minlength=len(counts))
    return remaining


def _bisect(most: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number up to ``most`` that ``holds``; it holds for 0 and never again after a failure."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _exchange_values(column: pa.ChunkedArray, pairs: Rows) -> pa.ChunkedArray:
    """Exchange values of a column; the values themselves are moved, never rebuilt from codes."""
    if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_float64(column.type)):
        values = np.concatenate([np.empty(0, column.type.to_pandas_dtype()), *(c.to_numpy() for c in column.chunks)])
        pairing.exchange(values, pairs)
        return pa.chunked_array([pa.array(values, type=column.type)])
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # the result of combining an empty column
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], type=column.type)
    if pa.types.is_dictionary(whole.type) and whole.null_count == 0:
        indices = whole.indices.to_numpy().copy()
        pairing.exchange(indices, pairs)
        return pa.chunked_array(
            [pa.DictionaryArray.from_arrays(pa.array(indices), whole.dictionary, ordered=whole.type.ordered)]
        )
    source = np.arange(len(whole), dtype=np.int64)
    pairing.exchange(source, pairs)
    return pa.chunked_array([whole.take(pa.array(source))])
