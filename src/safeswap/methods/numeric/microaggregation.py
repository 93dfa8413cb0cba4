"""Microaggregation: similar records get the mean of their group.

Sources: Domingo-Ferrer & Mateo-Sanz 2002; Domingo-Ferrer & Torra 2005 (MDAV); Hansen & Mukherjee 2003 (univariate).
The key determines only the order of records with equal values.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from safeswap.arrays import moments
from safeswap.arrays.compiled import njit
from safeswap.arrays.kd_tree import build, furthest_corner, nearest_corner, squared
from safeswap.arrays.names import Names
from safeswap.arrays.types import Floats, Rows, Words
from safeswap.errors import InfeasibleError
from safeswap.methods.numeric.promises import GroupsOfAtLeast, KeptMean, MissingStays
from safeswap.methods.numeric.rank_swap import rank_order
from safeswap.methods.numeric.spec import MicroaggregationSpec
from safeswap.methods.value_change import ValuePlan, make_masked, numeric_columns, record_words, rounding_step
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change, changed_numbers
from safeswap.model.text import plural

# MDAV (Domingo-Ferrer & Torra 2005) groups the record furthest from the centre with its k − 1 nearest, then the one
# furthest from that with its nearest, and so on. Both searches use a k-d tree whose boxes shrink as records are
# removed, so no matrix of distances and no pass over all records per group is needed.
#
# For one attribute the groups with the least sum of squares are runs of k to 2k − 1 sorted values (Domingo-Ferrer &
# Mateo-Sanz 2002), and the best runs are a shortest path (Hansen & Mukherjee 2003).

_DEPTH = 128


def mdav(points: Floats, k: int) -> tuple[Rows, int]:
    """Return the group of each point, and the number of groups. Ties in distance go by the order of the points.

    >>> groups, number = mdav(np.array([[0.0], [9.0], [0.1], [8.9], [5.0]]), 2)
    >>> number, groups[0] == groups[2]
    (2, np.True_)
    """
    tree = build(points)
    groups = np.zeros(len(points), dtype=np.int64)
    if len(points) < 2 * k or k < 2:
        return (groups, min(1, len(points))) if k > 1 else (np.arange(len(points)), len(points))
    number = _mdav(np.ascontiguousarray(points), *tree, k, groups)
    return groups, int(number)


@njit(cache=True, nogil=True)
def best_runs(ordered: Floats, k: int) -> tuple[Rows, int]:
    """Return the group of each sorted value, and the number of groups, with the least sum of squares within groups.

    >>> best_runs(np.array([1.0, 1.1, 1.2, 9.0, 9.1]), 2)[0].tolist()
    [0, 0, 0, 1, 1]
    """
    number = len(ordered)
    cost = np.full(number + 1, np.inf)
    size = np.zeros(number + 1, dtype=np.int64)
    cost[0] = 0.0
    for end in range(k, number + 1):
        mean, within = 0.0, 0.0
        for count in range(1, min(2 * k, end + 1)):
            step = ordered[end - count] - mean
            mean += step / count
            within += step * (ordered[end - count] - mean)
            if count >= k and cost[end - count] + within < cost[end]:
                cost[end], size[end] = cost[end - count] + within, count
    groups = np.zeros(number, dtype=np.int64)
    found = 0
    end = number
    while end > 0 and size[end] > 0:
        groups[end - size[end] : end] = found
        end -= size[end]
        found += 1
    return found - 1 - groups if found else groups, max(found, min(1, number))


@njit(cache=True, nogil=True)
def _mdav(
    given: Floats,
    points: Floats,
    rows: Rows,
    starts: Rows,
    ends: Rows,
    low: Floats,
    high: Floats,
    k: int,
    groups: Rows,
) -> int:
    number, sides = points.shape
    place = np.empty(number, dtype=np.int64)
    leaf = np.empty(number, dtype=np.int64)
    inner = (len(starts) - 1) // 2
    for node in range(inner, len(starts)):
        for i in range(starts[node], ends[node]):
            place[rows[i]], leaf[rows[i]] = i, node
    left = ends - starts
    total = np.zeros(sides)
    for row in range(number):
        total += given[row]
    centre = np.empty((1, sides))
    remaining, group = number, 0
    while remaining >= 2 * k:
        centre[0] = total / remaining
        pivot = _furthest(centre, 0, points, rows, starts, low, high, left)
        for half in range(2 if remaining >= 3 * k else 1):
            if half:
                pivot = _furthest(given, pivot, points, rows, starts, low, high, left)
            for row in _nearest(given, pivot, points, rows, starts, low, high, left, k):
                groups[row] = group
                total -= given[row]
                _remove(row, points, rows, place, leaf, starts, left, low, high)
            remaining -= k
            group += 1
    for i in range(inner, len(starts)):
        for p in range(starts[i], starts[i] + left[i]):
            groups[rows[p]] = group
    return int(group + (remaining > 0))


@njit(cache=True, nogil=True)
def _furthest(
    queries: Floats, q: int, points: Floats, rows: Rows, starts: Rows, low: Floats, high: Floats, left: Rows
) -> int:
    inner = (len(starts) - 1) // 2
    stack = np.empty(_DEPTH, dtype=np.int64)
    bounds = np.empty(_DEPTH, dtype=np.float64)
    best, row = -1.0, -1
    stack[0], bounds[0] = 0, np.inf
    height = 1
    while height:
        height -= 1
        node = stack[height]
        if left[node] == 0 or bounds[height] < best:
            continue
        if node < inner:
            one, two = 2 * node + 1, 2 * node + 2
            a, b = -1.0, -1.0
            if left[one] > 0:
                a = furthest_corner(queries, q, low, high, one)
            if left[two] > 0:
                b = furthest_corner(queries, q, low, high, two)
            if a > b:
                one, two, a, b = two, one, b, a
            stack[height], bounds[height] = one, a
            stack[height + 1], bounds[height + 1] = two, b  # the more promising node is visited first
            height += 2
            continue
        for i in range(starts[node], starts[node] + left[node]):
            distance = squared(queries, q, points, i)
            if distance > best or (distance == best and rows[i] < row):
                best, row = distance, rows[i]
    return row


@njit(cache=True, nogil=True)
def _nearest(
    queries: Floats, q: int, points: Floats, rows: Rows, starts: Rows, low: Floats, high: Floats, left: Rows, k: int
) -> Rows:
    """Return the k nearest remaining rows, including the query."""
    inner = (len(starts) - 1) // 2
    stack = np.empty(_DEPTH, dtype=np.int64)
    bounds = np.empty(_DEPTH, dtype=np.float64)
    distances = np.full(k, np.inf)
    found = np.full(k, len(rows), dtype=np.int64)
    stack[0], bounds[0] = 0, 0.0
    height = 1
    while height:
        height -= 1
        node = stack[height]
        if left[node] == 0 or bounds[height] > distances[-1]:
            continue
        if node < inner:
            one, two = 2 * node + 1, 2 * node + 2
            a = nearest_corner(queries, q, low, high, one)
            b = nearest_corner(queries, q, low, high, two)
            if a < b:
                one, two, a, b = two, one, b, a
            stack[height], bounds[height] = one, a
            stack[height + 1], bounds[height + 1] = two, b
            height += 2
            continue
        for i in range(starts[node], starts[node] + left[node]):
            distance = squared(queries, q, points, i)
            j = k
            while j > 0 and (distance < distances[j - 1] or (distance == distances[j - 1] and rows[i] < found[j - 1])):
                j -= 1
            if j < k:
                for s in range(k - 1, j, -1):
                    distances[s], found[s] = distances[s - 1], found[s - 1]
                distances[j], found[j] = distance, rows[i]
    return found


@njit(cache=True, nogil=True)
def _remove(
    row: int,
    points: Floats,
    rows: Rows,
    place: Rows,
    leaf: Rows,
    starts: Rows,
    left: Rows,
    low: Floats,
    high: Floats,
) -> None:
    """Move the record behind the remaining ones of its leaf, and tighten the boxes above it."""
    node = leaf[row]
    i, j = place[row], starts[node] + left[node] - 1
    other = rows[j]
    for s in range(points.shape[1]):
        points[i, s], points[j, s] = points[j, s], points[i, s]
    rows[i], rows[j] = other, row
    place[row], place[other] = j, i
    left[node] -= 1
    low[node], high[node] = np.inf, -np.inf
    for p in range(starts[node], starts[node] + left[node]):
        for s in range(points.shape[1]):
            low[node, s] = min(low[node, s], points[p, s])
            high[node, s] = max(high[node, s], points[p, s])
    while node > 0:
        node = (node - 1) // 2
        left[node] -= 1
        for s in range(points.shape[1]):
            low[node, s] = min(low[2 * node + 1, s], low[2 * node + 2, s])
            high[node, s] = max(high[2 * node + 1, s], high[2 * node + 2, s])


class Microaggregation:
    """Replace values by the mean of a group of at least k records."""

    name: ClassVar[str] = "microaggregation"
    title: ClassVar[str] = "Microaggregation of numeric attributes"
    spec_type: ClassVar[type[MicroaggregationSpec]] = MicroaggregationSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Domingo-Ferrer & Mateo-Sanz 2002, Practical data-oriented microaggregation for statistical disclosure control",
        "Domingo-Ferrer & Torra 2005, Ordinal, continuous and heterogeneous k-anonymity through microaggregation",
        "Hansen & Mukherjee 2003, A polynomial algorithm for optimal univariate microaggregation",
    )

    def plan(self, data: Microdata, spec: MicroaggregationSpec) -> ValuePlan:
        """Count the records with values to group; refuse fewer than k."""
        return self._plan(dict(zip(spec.attributes, numeric_columns(data, spec.attributes), strict=True)), spec)

    def _plan(self, columns: dict[str, Floats], spec: MicroaggregationSpec) -> ValuePlan:
        records = len(columns[spec.attributes[0]])
        sizes = [len(_complete_rows(columns, names)) for names in _blocks(spec)]
        if min(sizes) < spec.k:
            raise InfeasibleError(
                f"groups of {plural(spec.k, 'record')} are asked for, and "
                f"{plural(min(sizes), 'record has', 'records have')} all the values",
                code="too-few-records",
                hint="ask for smaller groups, or group fewer attributes together",
                asked=spec.k,
                feasible=min(sizes),
            )
        some = max(sizes) if spec.k > 1 else 0
        left = records - min(sizes)
        staying = plural(left, "record with a missing value stays", "records with a missing value stay")
        rest = f"; {staying} unchanged" if left else ""
        text = f"{plural(some, 'record')} in groups of at least {spec.k:,}{rest}"
        return ValuePlan.of(spec, records, some, text)

    def apply(self, data: Microdata, spec: MicroaggregationSpec, *, key: Key, replicate: int = 0) -> Masked:
        """Group the records and write the group means."""
        columns = dict(zip(spec.attributes, numeric_columns(data, spec.attributes), strict=True))
        plan = self._plan(columns, spec)
        changes: dict[str, Change] = {}
        for names in _blocks(spec) if spec.k > 1 else ():
            words = record_words(data, key, self.name, "+".join(names), replicate=replicate)
            rows = _complete_rows(columns, names)
            rows = rows[_order_records([columns[name][rows] for name in names], words[rows])]
            groups = _group_records([columns[name][rows] for name in names], spec)
            written = np.zeros(len(data), dtype=np.bool_)
            written[rows] = True
            for name in names:
                values = columns[name].copy()
                values[rows] = _group_means(columns[name][rows], groups)[groups]
                changes[name] = changed_numbers(
                    data, name, values, columns[name], decimals=spec.decimals, written=written
                )
        return make_masked(data, spec, plan, changes, key=key, replicate=replicate)

    def invariants(self, data: Microdata, spec: MicroaggregationSpec) -> tuple[Invariant, ...]:
        """Promise groups of at least k, means kept up to rounding, and untouched columns."""
        columns = numeric_columns(data, spec.attributes)
        return (
            SameRows(),
            UntouchedColumns(tuple(name for name in data.attributes if name not in spec.attributes)),
            MissingStays(spec.attributes),
            ReplaysFromAudit(),
            *(GroupsOfAtLeast(names, spec.k) for names in _blocks(spec)),
            *(
                KeptMean(name, rounding_step(values, spec.decimals))
                for name, values in zip(spec.attributes, columns, strict=True)
            ),
        )


def _blocks(spec: MicroaggregationSpec) -> list[Names]:
    """Return the blocks of attributes that are grouped together."""
    return [spec.attributes] if spec.groups == "mdav" else [(name,) for name in spec.attributes]


def _complete_rows(columns: dict[str, Floats], names: Names) -> Rows:
    return np.flatnonzero(~np.isnan([columns[name] for name in names]).any(axis=0))


def _order_records(columns: list[Floats], words: Words) -> Rows:
    """Return the order by values and draws, so that the order of the file does not matter."""
    if len(columns) == 1:
        return rank_order(columns[0], words)
    return np.lexsort((words[:, 1], words[:, 0], *reversed(columns)))


def _group_records(columns: list[Floats], spec: MicroaggregationSpec) -> Rows:
    """Return the group of each record; several attributes are each scaled by their standard deviation."""
    if spec.groups == "univariate":
        return np.asarray(best_runs(columns[0], spec.k)[0])
    scaled = [values / (moments.standard_deviation(values) or 1.0) for values in columns]
    return mdav(np.stack(scaled, axis=1), spec.k)[0]


def _group_means(values: Floats, groups: Rows) -> Floats:
    return np.asarray(np.bincount(groups, weights=values) / np.bincount(groups))
