"""Microaggregation: similar records get the mean of their group.

Sources: Domingo-Ferrer & Mateo-Sanz 2002; Domingo-Ferrer & Torra 2005 (MDAV); Hansen & Mukherjee 2003 (univariate).
The key determines only the order of records with equal values.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from safeswap.arrays import moments
from safeswap.arrays.compiled import njit
from safeswap.arrays.kd_tree import Tree, build
from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Floats, Rows
from safeswap.errors import InfeasibleError
from safeswap.methods.numeric.rank_swap import order_records
from safeswap.methods.numeric.spec import GroupsOfAtLeast, KeptMean, MicroaggregationSpec, MissingStays
from safeswap.methods.value_change import (
    ValuePlan,
    make_draws,
    make_masked,
    numeric_columns,
    rounding_step,
    stated_decimals,
)
from safeswap.model.effect import Effect, Replaced
from safeswap.model.invariant import Invariant, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import Change, changed_numbers
from safeswap.model.schema import Schema
from safeswap.model.text import plural

# MDAV (Domingo-Ferrer & Torra 2005) groups the record furthest from the centre with its k − 1 nearest, then the one
# furthest from that with its nearest, and so on. The searches use a k-d tree whose boxes shrink as records are
# removed, so no matrix of distances and no pass over all records per group is needed.
#
# What is left soon is a ball around its centre, with very many records nearly as far out as the furthest: boxes do not
# tell them apart. But the centre moves little, and by the triangle inequality no record gets further from it than it
# was, plus the way the centre has gone since. That bound is kept for every node, and renewed for the leaves visited.
#
# For one attribute the groups with the least sum of squares are runs of k to 2k − 1 sorted values (Domingo-Ferrer &
# Mateo-Sanz 2002), and the best runs are a shortest path (Hansen & Mukherjee 2003).

_DEPTH = 128
_ROUNDING = 1e-12  # far above the relative error of a distance
_UNDERFLOW = 1e-150  # and above its absolute error where squares are too small to be told from 0


def mdav(points: Floats, k: int) -> tuple[Rows, int]:
    """Return the group of each point, and the number of groups. Ties in distance go by the order of the points.

    >>> groups, number = mdav(np.array([[0.0], [9.0], [0.1], [8.9], [5.0]]), 2)
    >>> number, groups[0] == groups[2]
    (2, np.True_)
    """
    groups = np.zeros(len(points), dtype=np.int64)
    if len(points) < 2 * k or k < 2:
        return (groups, min(1, len(points))) if k > 1 else (np.arange(len(points)), len(points))
    given = np.ascontiguousarray(points)
    return groups, int(_mdav(given, _Remaining.of(build(given)), k, groups))


def best_runs(ordered: Floats, k: int) -> tuple[Rows, int]:
    """Return the group of each sorted value, and the number of groups, with the least sum of squares within groups.

    >>> best_runs(np.array([1.0, 1.1, 1.2, 9.0, 9.1]), 2)[0].tolist()
    [0, 0, 0, 1, 1]
    """
    number = len(ordered)
    # Made here and not in the kernel: NumPy asks for huge pages, which large files need.
    cost, groups = np.empty(number + 1), np.empty(number, dtype=np.int64)
    size = np.empty(number + 1, dtype=np.min_scalar_type(max(2 * k - 1, 0)))
    return groups, int(_find_runs(ordered, k, cost, size, groups))


@njit(cache=True, nogil=True)
def _find_runs(ordered, k, cost, size, groups):  # type: ignore[no-untyped-def]
    """Fill in the groups, of which each ends where the cheapest one of its last value begins; return their number."""
    number = len(ordered)
    cost[:] = np.inf
    size[:] = 0
    cost[0] = 0.0
    for stop in range(k, number + 1):
        mean, within = 0.0, 0.0
        for count in range(1, min(2 * k, stop + 1)):
            step = ordered[stop - count] - mean
            mean += step / count
            within += step * (ordered[stop - count] - mean)
            if count >= k and cost[stop - count] + within < cost[stop]:
                cost[stop], size[stop] = cost[stop - count] + within, count
    groups[:] = 0
    found = 0
    end = np.int64(number)
    while end > 0 and size[end] > 0:
        first = end - np.int64(size[end])  # sizes are unsigned
        groups[first:end] = found
        end = first
        found += 1
    for i in range(number if found else 0):
        groups[i] = found - 1 - groups[i]
    return max(found, min(1, number))


class _Remaining(NamedTuple):
    """The points not yet in a group: the first ``left`` of each leaf, with tight boxes around them.

    Boxes hold low and high corners. ``reach`` bounds the distance of a node's points to the centre, less the length of
    the way that the centre had gone by then. Both start at 1, so that two children share a line of the cache.
    """

    points: Floats
    rows: Rows
    starts: Rows
    left: Rows
    boxes: Floats
    reach: Floats
    stack: Rows
    bounds: Floats

    @classmethod
    def of(cls, tree: Tree) -> _Remaining:
        boxes = np.empty((len(tree.starts) + 1, 2, tree.points.shape[1]))
        boxes[1:, 0], boxes[1:, 1] = tree.low, tree.high
        left = (tree.ends - tree.starts)[len(tree.starts) // 2 :]
        reach = np.full(len(boxes), np.inf)
        stack, bounds = np.empty(_DEPTH, dtype=np.int64), np.empty(_DEPTH)
        return cls(tree.points, tree.rows, tree.starts, left, boxes, reach, stack, bounds)


@njit(cache=True, nogil=True)
def _mdav(given: Floats, tree: _Remaining, k: int, groups: Rows) -> int:
    number, sides = given.shape
    total = np.zeros(sides)
    for row in range(number):
        total += given[row]
    centre, query = total / number, np.empty(sides)
    way = 0.0
    nearest = np.empty(k), np.empty((k, 2), dtype=np.int64)
    remaining, group = number, 0
    while remaining >= 2 * k:
        query[:] = total / remaining
        # Rounded upwards, both the step and the sum.
        way = (way + (1.0 + _ROUNDING) * np.sqrt(_squared_distance(query, centre))) * (1.0 + 1e-15)
        centre[:] = query
        pivot = _furthest_from_centre(centre, way, tree)
        for half in range(2 if remaining >= 3 * k else 1):
            if half:
                pivot = _furthest(query, tree)
            query[:] = tree.points[pivot]
            _find_nearest(query, tree, *nearest)
            for place in nearest[1][:, 0]:
                groups[tree.rows[place]] = group
                total -= tree.points[place]
            _remove(nearest[1], tree)
            remaining -= k
            group += 1
    for leaf in range(len(tree.left)):
        start = tree.starts[leaf + len(tree.starts) // 2]
        groups[tree.rows[start : start + tree.left[leaf]]] = group
    return int(group + (remaining > 0))


@njit(cache=True, nogil=True, inline="always")
def _squared_distance(query, point):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(query.size):
        step = query[j] - point[j]
        total += step * step
    return total


@njit(cache=True, nogil=True, inline="always")
def _near_corner(query, box):  # type: ignore[no-untyped-def]
    """Return the squared distance to a box; rounding is monotone, so no point of the box seems nearer."""
    total = 0.0
    for j in range(query.size):
        step = max(box[0, j] - query[j], query[j] - box[1, j], 0.0)
        total += step * step
    return total


@njit(cache=True, nogil=True, inline="always")
def _far_corner(query, box):  # type: ignore[no-untyped-def]
    """Return the squared distance to the far corner of a box, beyond all its points; −1 for an empty box."""
    if box[0, 0] > box[1, 0]:
        return -1.0
    total = 0.0
    for j in range(query.size):
        step = max(query[j] - box[0, j], box[1, j] - query[j])
        total += step * step
    return total


@njit(cache=True, nogil=True)
def _furthest_from_centre(centre: Floats, way: float, tree: _Remaining) -> int:
    """Return the place of the furthest point, the lowest row of several, and renew the bounds on its way."""
    points, rows, reach, stack = tree.points, tree.rows, tree.reach, tree.stack
    inner = len(tree.starts) // 2
    best, found, limit = -1.0, -1, -np.inf
    stack[0] = 0
    height = 1
    while height:
        height -= 1
        node = stack[height]
        if reach[node + 1] < limit:
            continue
        while node < inner:
            one, two = 2 * node + 1, 2 * node + 2
            if reach[one + 1] < reach[two + 1]:
                one, two = two, one
            if reach[two + 1] >= limit:
                stack[height] = two
                height += 1
            node = one
        most = -1.0
        for i in range(tree.starts[node], tree.starts[node] + tree.left[node - inner]):
            distance = _squared_distance(centre, points[i])
            most = max(most, distance)
            if distance > best or (distance == best and rows[i] < rows[found]):
                best, found = distance, i
        if found >= 0:  # a leaf may have become empty
            radius = np.sqrt(best)
            limit = radius - way - _ROUNDING * (radius + way) - _UNDERFLOW
        reach[node + 1] = np.sqrt(most) - way if most >= 0.0 else -np.inf
        _renew_bounds(node, reach)
    return found


@njit(cache=True, nogil=True)
def _renew_bounds(node: int, reach: Floats) -> None:
    while node > 0:
        node = (node - 1) // 2
        bound = max(reach[2 * node + 2], reach[2 * node + 3])
        if bound == reach[node + 1]:
            return
        reach[node + 1] = bound


@njit(cache=True, nogil=True)
def _furthest(query: Floats, tree: _Remaining) -> int:
    """Return the place of the furthest point, the lowest row of several."""
    points, rows, boxes, stack, bounds = tree.points, tree.rows, tree.boxes, tree.stack, tree.bounds
    inner = len(tree.starts) // 2
    best, found = 0.0, -1
    stack[0], bounds[0] = 0, np.inf
    height = 1
    while height:
        height -= 1
        node, bound = stack[height], bounds[height]
        while node < inner and bound >= best:
            one, two = 2 * node + 1, 2 * node + 2
            bound, other = _far_corner(query, boxes[one + 1]), _far_corner(query, boxes[two + 1])
            if bound < other:  # the more promising node is visited first
                one, two, bound, other = two, one, other, bound
            if other >= best:
                stack[height], bounds[height] = two, other
                height += 1
            node = one
        if bound < best:
            continue
        for i in range(tree.starts[node], tree.starts[node] + tree.left[node - inner]):
            distance = _squared_distance(query, points[i])
            if found < 0 or distance > best or (distance == best and rows[i] < rows[found]):
                best, found = distance, i
    return found


@njit(cache=True, nogil=True)
def _find_nearest(query: Floats, tree: _Remaining, distances: Floats, found: Rows) -> None:
    """Find the nearest points, as many as there is room for, in ascending order: their places, and their leaves."""
    points, rows, boxes, stack, bounds = tree.points, tree.rows, tree.boxes, tree.stack, tree.bounds
    inner, k = len(tree.starts) // 2, len(distances)
    distances[:] = np.inf
    stack[0], bounds[0] = 0, 0.0
    height = 1
    while height:
        height -= 1
        node, bound = stack[height], bounds[height]
        while node < inner and bound <= distances[-1]:
            one, two = 2 * node + 1, 2 * node + 2
            bound, other = _near_corner(query, boxes[one + 1]), _near_corner(query, boxes[two + 1])
            if bound > other:
                one, two, bound, other = two, one, other, bound
            if other <= distances[-1]:
                stack[height], bounds[height] = two, other
                height += 1
            node = one
        if bound > distances[-1]:
            continue
        for i in range(tree.starts[node], tree.starts[node] + tree.left[node - inner]):
            distance = _squared_distance(query, points[i])
            j = k
            while j > 0 and (
                distance < distances[j - 1] or (distance == distances[j - 1] and rows[i] < rows[found[j - 1, 0]])
            ):
                j -= 1
            if j < k:
                for s in range(k - 1, j, -1):
                    distances[s], found[s, 0], found[s, 1] = distances[s - 1], found[s - 1, 0], found[s - 1, 1]
                distances[j], found[j, 0], found[j, 1] = distance, i, node


@njit(cache=True, nogil=True)
def _remove(found: Rows, tree: _Remaining) -> None:
    """Fill the places with the last points of their leaves, and tighten the boxes above them."""
    inner = len(tree.starts) // 2
    for i in range(1, len(found)):  # from the last place to the first, so that none is filled by one to be removed
        place, node = found[i]
        j = i
        while j > 0 and found[j - 1, 0] < place:
            found[j, 0], found[j, 1] = found[j - 1, 0], found[j - 1, 1]
            j -= 1
        found[j, 0], found[j, 1] = place, node
    for j in range(len(found)):
        place, node = found[j]
        tree.left[node - inner] -= 1
        last = tree.starts[node] + tree.left[node - inner]
        tree.points[place], tree.rows[place] = tree.points[last], tree.rows[last]
        if j + 1 == len(found) or found[j + 1, 1] != node:
            _tighten(node, tree.points[tree.starts[node] : last], tree.boxes)


@njit(cache=True, nogil=True)
def _tighten(node: int, points: Floats, boxes: Floats) -> None:
    """Measure the box of a leaf, and those above it as far up as they change."""
    for s in range(points.shape[1]):
        low, high = np.inf, -np.inf
        for i in range(len(points)):
            low, high = min(low, points[i, s]), max(high, points[i, s])
        boxes[node + 1, 0, s], boxes[node + 1, 1, s] = low, high
    is_changed = True
    while node > 0 and is_changed:
        node = (node - 1) // 2
        is_changed = False
        for s in range(points.shape[1]):
            low = min(boxes[2 * node + 2, 0, s], boxes[2 * node + 3, 0, s])
            high = max(boxes[2 * node + 2, 1, s], boxes[2 * node + 3, 1, s])
            is_changed |= low != boxes[node + 1, 0, s] or high != boxes[node + 1, 1, s]
            boxes[node + 1, 0, s], boxes[node + 1, 1, s] = low, high


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
        sizes = [int(np.count_nonzero(_flag_complete(columns, names))) for names in _blocks(spec)]
        if min(sizes) < spec.k:
            raise InfeasibleError(
                f"groups of {plural(spec.k, 'record')} were requested, but "
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
        blocks = _blocks(spec) if spec.k > 1 else []
        words = make_draws(data, key, self.name, replicate=replicate).lazy_words(
            data, ["+".join(names) for names in blocks]
        )
        for names in blocks:
            own_words = words["+".join(names)]
            complete = _flag_complete(columns, names)
            # So that the order of the file does not matter.
            if complete.all():
                rows = order_records([columns[name] for name in names], own_words)
            else:
                known = np.flatnonzero(complete)
                rows = known[order_records([columns[name][known] for name in names], own_words.take(known))]
            ordered = [columns[name][rows] for name in names]
            groups = _group_records(ordered, spec)
            for name, own in zip(names, ordered, strict=True):
                values = columns[name].copy()
                values[rows] = _group_means(own, groups)[groups]
                changes[name] = changed_numbers(
                    data, name, values, columns[name], decimals=spec.decimals, written=complete
                )
        return make_masked(data, spec, plan, changes, key=key, replicate=replicate)

    def effects(self, schema: Schema, spec: MicroaggregationSpec) -> tuple[Effect, ...]:
        """Return that values were replaced, by means of groups."""
        return (Replaced(spec.attributes),)

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
                KeptMean(name, rounding_step(values, stated_decimals(data.schema, name, spec.decimals)))
                for name, values in zip(spec.attributes, columns, strict=True)
            ),
        )


def _blocks(spec: MicroaggregationSpec) -> list[Names]:
    """Return the blocks of attributes that are grouped together."""
    return [spec.attributes] if spec.groups == "mdav" else [(name,) for name in spec.attributes]


def _flag_complete(columns: dict[str, Floats], names: Names) -> Flags:
    missing: Flags = np.logical_or.reduce([np.isnan(columns[name]) for name in names])
    return ~missing


def _group_records(columns: list[Floats], spec: MicroaggregationSpec) -> Rows:
    """Return the group of each record; several attributes are each scaled by their standard deviation."""
    if spec.groups == "univariate":
        return np.asarray(best_runs(columns[0], spec.k)[0])
    scaled = [values / (moments.standard_deviation(values) or 1.0) for values in columns]
    return mdav(np.stack(scaled, axis=1), spec.k)[0]


def _group_means(values: Floats, groups: Rows) -> Floats:
    return np.asarray(np.bincount(groups, weights=values) / np.bincount(groups))
