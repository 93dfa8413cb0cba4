"""A maximum b-matching of classes by Edmonds' search, on at most two records of each kind.

Source: Edmonds 1965, Paths, trees, and flowers; bases of blossoms by union and find as in Gabow 1976.

Records of one class are twins: they have the same possible partners, and none of them is a possible partner of another.
Pairs of one kind (class a, class b) are interchangeable.

Claim: if a larger matching exists, an augmenting path exists that meets every class at most twice, once entered along a
new pair and once along an old one. If a path enters v and later its twin w in the same way, it can continue from v as
it did from w and skip what lies between. So two copies of each kind of pair, and two unpaired records of each class,
are enough to find a path or to prove that none exists, however many records there are. A path is followed by as many
copies at once as the counts allow.

Claim: one search compares each class with all others only once. The first record v of a class that is reached from its
partner reaches everything that its twins could reach. A twin only has to join the blossom of v: one comparison.

Work is counted in comparisons of classes, not in seconds, so a search that runs out of budget gives the same result on
every machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from safeswap.arrays.compiled import njit
from safeswap.arrays.types import Counts, Flags


class Graph(NamedTuple):
    """Copies of pairs and of unpaired records.

    Vertices 2i and 2i + 1 are pair i; those from ``paired`` on have no partner.
    """

    labels: Counts
    paired: int
    class_of: Counts
    kind: Counts  # of each pair
    starts: Counts  # where the vertices of each class begin in ``members``
    members: Counts
    open_classes: Counts  # those with unpaired records


class Forest(NamedTuple):
    """The state of the searches of one phase."""

    reached: Counts  # per vertex, the search that reached it; 0: none
    is_outer: Flags
    before: Counts
    base: Counts
    mark: Counts
    queue: Counts
    trail: Counts  # the vertices that the current search has reached
    untouched: Counts  # per class, the number of vertices not reached
    asked: Counts  # per class, the search that compared it with the unpaired
    scanned: Counts  # per class, the search that compared it with all others
    met: Counts  # per class, the search that compared it with the outer classes of its tree
    neighbour: Counts  # per class, an outer class of the tree that it may be paired with
    first: Counts  # per class, the latest outer vertex of the tree; -1: none
    following: Counts  # per vertex, the next outer vertex of its class
    outer_classes: Counts
    numbers: Counts  # lengths of the queue, the trail and the outer classes; marks; comparisons


_QUEUED, _TRAIL, _OUTER, _MARKS, _WORK = range(5)


@njit(cache=True, nogil=True)
def close_gap(labels: Counts, counts: Counts, moves: Counts, bound: int, budget: int) -> tuple[Counts, int, int]:
    """Grow a matching of one stratum to a maximum; return its moves, an upper bound, and the work spent.

    ``moves`` is the initial matching, ``bound`` a known upper bound. The matching is a maximum if its size reaches the
    returned bound; it falls short only where the work exceeds ``budget``.
    """
    classes = len(counts)
    labels = labels[:, _order_by_crowd(labels, counts)].copy()
    kinds = _merge_moves(moves, classes)
    left = counts.copy()
    for k in range(len(kinds)):
        left[kinds[k, 0]] -= kinds[k, 2]
        left[kinds[k, 1]] -= kinds[k, 2]
    hopeless = np.zeros(classes, dtype=np.bool_)
    total = kinds[:, 2].sum()
    work = 0
    gained = 1
    while gained > 0 and total < bound and work < budget:
        kinds, gained, spent = _run_phase(labels, kinds, left, hopeless, bound - total, budget - work)
        total += gained
        work += spent
    waiting = 0
    for c in range(classes):
        if not hopeless[c]:
            waiting += left[c]
    return kinds, min(bound, total + waiting // 2), work


@njit(cache=True, nogil=True)
def _order_by_crowd(labels: Counts, counts: Counts) -> Counts:
    """Order coordinates by their largest label, descending, so that incompatible classes are detected early."""
    crowds = np.zeros(labels.shape[1], dtype=np.int64)
    for j in range(labels.shape[1]):
        sizes = np.zeros(labels[:, j].max() + 1, dtype=np.int64)
        for c in range(len(counts)):
            sizes[labels[c, j]] += counts[c]
        crowds[j] = -sizes.max()
    return np.argsort(crowds, kind="mergesort")


@njit(cache=True, nogil=True)
def _merge_moves(moves: Counts, classes: int) -> Counts:
    """Sum the moves between the same two classes, smaller class first, sorted; drop empty ones."""
    keys = np.empty(len(moves), dtype=np.int64)
    for m in range(len(moves)):
        keys[m] = min(moves[m, 0], moves[m, 1]) * classes + max(moves[m, 0], moves[m, 1])
    kinds = np.empty((len(moves), 3), dtype=np.int64)
    number = 0
    latest = np.int64(-1)
    for m in np.argsort(keys, kind="mergesort"):
        if moves[m, 2] == 0:
            continue
        if keys[m] == latest:
            kinds[number - 1, 2] += moves[m, 2]
        else:
            latest = keys[m]
            kinds[number] = (latest // classes, latest % classes, moves[m, 2])
            number += 1
    return kinds[:number].copy()


@njit(cache=True, nogil=True)
def _build_graph(labels: Counts, kinds: Counts, left: Counts, hopeless: Flags) -> Graph:
    pairs = np.minimum(kinds[:, 2], 2).sum()
    unpaired = 0
    for c in range(len(left)):
        unpaired += 0 if hopeless[c] else min(left[c], 2)
    class_of = np.empty(2 * pairs + unpaired, dtype=np.int64)
    kind = np.empty(pairs, dtype=np.int64)
    made = 0
    for k in range(len(kinds)):
        for _ in range(min(kinds[k, 2], 2)):
            kind[made] = k
            class_of[2 * made] = kinds[k, 0]
            class_of[2 * made + 1] = kinds[k, 1]
            made += 1
    place = 2 * pairs
    open_classes = np.empty(len(left), dtype=np.int64)
    opened = 0
    for c in range(len(left)):
        if left[c] and not hopeless[c]:
            open_classes[opened] = c
            opened += 1
            for _ in range(min(left[c], 2)):
                class_of[place] = c
                place += 1
    starts = np.zeros(len(left) + 1, dtype=np.int64)
    for c in class_of:
        starts[c + 1] += 1
    starts = np.cumsum(starts)
    members = np.argsort(class_of, kind="mergesort")
    return Graph(labels, 2 * pairs, class_of, kind, starts, members, open_classes[:opened].copy())


@njit(cache=True, nogil=True)
def _new_forest(graph: Graph) -> Forest:
    vertices = len(graph.class_of)
    classes = len(graph.labels)
    return Forest(
        np.zeros(vertices, dtype=np.int64),
        np.zeros(vertices, dtype=np.bool_),
        np.full(vertices, -1, dtype=np.int64),
        np.arange(vertices),
        np.zeros(vertices, dtype=np.int64),
        np.empty(vertices, dtype=np.int64),
        np.empty(vertices, dtype=np.int64),
        np.diff(graph.starts),
        np.zeros(classes, dtype=np.int64),
        np.zeros(classes, dtype=np.int64),
        np.zeros(classes, dtype=np.int64),
        np.full(classes, -1, dtype=np.int64),
        np.full(classes, -1, dtype=np.int64),
        np.full(vertices, -1, dtype=np.int64),
        np.empty(classes, dtype=np.int64),
        np.zeros(5, dtype=np.int64),
    )


@njit(cache=True, nogil=True)
def _run_phase(
    labels: Counts, kinds: Counts, left: Counts, hopeless: Flags, most: int, budget: int
) -> tuple[Counts, int, int]:
    """Search from each unpaired record and follow the paths found; return the new kinds, the gain and the work.

    Updates ``left`` and ``hopeless``. A class is hopeless if a search from it failed before any path of the phase was
    followed: no later change can help its unpaired records (Edmonds).
    """
    graph = _build_graph(labels, kinds, left, hopeless)
    forest = _new_forest(graph)
    forest.numbers[_WORK] = len(graph.class_of)
    added = np.empty((len(graph.class_of) + 1, 3), dtype=np.int64)
    used = np.zeros(len(kinds), dtype=np.int64)
    additions = 0
    gained = 0
    search = 0
    failed = np.zeros(len(labels), dtype=np.bool_)
    for root in range(graph.paired, len(graph.class_of)):
        own = graph.class_of[root]
        if gained >= most or forest.numbers[_WORK] >= budget:
            break
        if forest.reached[root] or failed[own]:
            continue
        search += 1
        end = _search(graph, forest, root, search, budget)
        if end >= 0:
            amount, additions = _follow(graph, forest, end, kinds, left, used, added, additions, most - gained)
            gained += amount
            _release_reached(graph, forest, search)
        elif forest.numbers[_WORK] < budget:
            failed[own] = True
            hopeless[own] = gained == 0
        _clear_search(forest)
    return _merge_moves(np.concatenate((kinds, added[:additions])), len(labels)), gained, forest.numbers[_WORK]


@njit(cache=True, nogil=True)
def _search(graph: Graph, forest: Forest, root: int, search: int, budget: int) -> int:
    """Return the unpaired end of an augmenting path from ``root``; -1 if none exists or the budget is spent."""
    _reach(graph, forest, root, search)
    _make_outer(graph, forest, root)
    end = _find_end(graph, forest, root, search)
    taken = 0
    while end < 0 and taken < forest.numbers[_QUEUED] and forest.numbers[_WORK] < budget:
        v = forest.queue[taken]
        taken += 1
        own = graph.class_of[v]
        if not forest.scanned[own]:
            end = _grow(graph, forest, v, search)
        if end < 0 and forest.met[own] != search:
            forest.met[own] = search
            end = _close_blossoms(graph, forest, v, search)
        elif end < 0 and forest.neighbour[own] >= 0:
            end = _contract(graph, forest, v, forest.first[forest.neighbour[own]], search)
    return end


@njit(cache=True, nogil=True, inline="always")
def may_pair(labels: Counts, a: int, b: int) -> bool:
    """Return whether two classes differ in every coordinate."""
    for j in range(labels.shape[1]):  # noqa: SIM110  (a loop that Numba compiles)
        if labels[a, j] == labels[b, j]:
            return False
    return True


@njit(cache=True, nogil=True)
def _reach(graph: Graph, forest: Forest, v: int, search: int) -> None:
    forest.reached[v] = search
    forest.untouched[graph.class_of[v]] -= 1
    forest.trail[forest.numbers[_TRAIL]] = v
    forest.numbers[_TRAIL] += 1


@njit(cache=True, nogil=True)
def _make_outer(graph: Graph, forest: Forest, v: int) -> None:
    own = graph.class_of[v]
    forest.is_outer[v] = True
    forest.queue[forest.numbers[_QUEUED]] = v
    forest.numbers[_QUEUED] += 1
    if forest.first[own] < 0:
        forest.outer_classes[forest.numbers[_OUTER]] = own
        forest.numbers[_OUTER] += 1
    forest.following[v] = forest.first[own]
    forest.first[own] = v


@njit(cache=True, nogil=True)
def _find_end(graph: Graph, forest: Forest, v: int, search: int) -> int:
    """Return an unpaired record that the outer vertex v may be paired with, which ends the search; -1: none."""
    own = graph.class_of[v]
    if forest.scanned[own] or forest.asked[own] == search:
        return -1
    forest.asked[own] = search
    for d in graph.open_classes:
        forest.numbers[_WORK] += 1
        if forest.untouched[d] and may_pair(graph.labels, own, d):
            # Unpaired vertices come last within their class.
            for i in range(graph.starts[d + 1] - 1, graph.starts[d] - 1, -1):
                w: int = graph.members[i]
                if w < graph.paired:
                    break
                if not forest.reached[w]:
                    _reach(graph, forest, w, search)
                    forest.before[w] = v
                    return w
    return -1


@njit(cache=True, nogil=True)
def _grow(graph: Graph, forest: Forest, v: int, search: int) -> int:
    """Reach every possible partner of v, and their partners in turn, unless one of these ends the search."""
    own = graph.class_of[v]
    for d in range(len(graph.labels)):
        forest.numbers[_WORK] += 1
        if not forest.untouched[d] or not may_pair(graph.labels, own, d):
            continue
        for i in range(graph.starts[d], graph.starts[d + 1]):
            w = graph.members[i]
            if w < graph.paired and not forest.reached[w]:
                _reach(graph, forest, w, search)
                forest.before[w] = v
                _reach(graph, forest, w ^ 1, search)
                _make_outer(graph, forest, w ^ 1)
                end = _find_end(graph, forest, w ^ 1, search)
                if end >= 0:
                    return end
    forest.scanned[own] = search
    return -1


@njit(cache=True, nogil=True)
def _close_blossoms(graph: Graph, forest: Forest, v: int, search: int) -> int:
    """Contract the blossoms that v forms with outer vertices of its tree, unless one of these ends the search."""
    own = graph.class_of[v]
    number = forest.numbers[_OUTER]
    forest.numbers[_WORK] += number
    for i in range(number):
        d = forest.outer_classes[i]
        if not may_pair(graph.labels, own, d):
            continue
        if forest.neighbour[own] < 0:
            forest.neighbour[own] = d
        if forest.neighbour[d] < 0:
            forest.neighbour[d] = own
        w = forest.first[d]
        while w >= 0:
            end = _contract(graph, forest, v, w, search)
            if end >= 0:
                return end
            w = forest.following[w]
    return -1


@njit(cache=True, nogil=True)
def _find_base(forest: Forest, v: int) -> int:
    root = v
    while forest.base[root] != root:
        root = forest.base[root]
    while v != root:
        following = forest.base[v]
        forest.base[v] = root
        v = following
    return root


@njit(cache=True, nogil=True)
def _contract(graph: Graph, forest: Forest, v: int, w: int, search: int) -> int:
    """Contract the paths from v and w, up to where they meet, into one blossom; return the end of the search or -1."""
    if _find_base(forest, v) == _find_base(forest, w):
        return -1
    forest.numbers[_MARKS] += 1
    mark = forest.numbers[_MARKS]
    a, b = _find_base(forest, v), _find_base(forest, w)
    while True:
        if a >= 0:
            if forest.mark[a] == mark:
                break
            forest.mark[a] = mark
            a = _find_base(forest, forest.before[a ^ 1]) if a < graph.paired else -1
        a, b = b, a
    begun = forest.numbers[_QUEUED]
    _reverse_path(graph, forest, v, w, a)
    _reverse_path(graph, forest, w, v, a)
    for i in range(begun, forest.numbers[_QUEUED]):
        end = _find_end(graph, forest, forest.queue[i], search)
        if end >= 0:
            return end
    return -1


@njit(cache=True, nogil=True)
def _reverse_path(graph: Graph, forest: Forest, v: int, w: int, top: int) -> None:
    """Make the path from v up to ``top`` walkable downwards too, towards w; its inner vertices become outer."""
    while _find_base(forest, v) != top:
        forest.before[v] = w
        w = v ^ 1
        if not forest.is_outer[w]:
            _make_outer(graph, forest, w)
        if forest.base[v] == v:
            forest.base[v] = top
        if forest.base[w] == w:
            forest.base[w] = top
        v = forest.before[w]


@njit(cache=True, nogil=True)
def _follow(
    graph: Graph,
    forest: Forest,
    end: int,
    kinds: Counts,
    left: Counts,
    used: Counts,
    added: Counts,
    additions: int,
    most: int,
) -> tuple[int, int]:
    """Exchange old pairs for new ones along the path to ``end``, as many copies as possible; return the number.

    The vertices of the path take no further part in the phase. If another path has used up the copies, nothing changes,
    and the next phase searches again.
    """
    amount = most
    start = end
    x = end
    while x >= 0:
        start = forest.before[x]
        x = -1
        if start < graph.paired:
            k = graph.kind[start >> 1]
            used[k] += 1
            amount = min(amount, kinds[k, 2] // used[k])
            x = start ^ 1
    own, other = graph.class_of[start], graph.class_of[end]
    amount = min(amount, left[own] // 2 if own == other else min(left[own], left[other]))
    left[own] -= amount
    left[other] -= amount
    x = end
    while x >= 0:
        u = forest.before[x]
        forest.reached[x] = forest.reached[u] = -1
        if amount:
            added[additions] = (graph.class_of[x], graph.class_of[u], amount)
            additions += 1
        x = -1
        if u < graph.paired:
            k = graph.kind[u >> 1]
            used[k] = 0
            kinds[k, 2] -= amount
            x = u ^ 1
    return amount, additions


@njit(cache=True, nogil=True)
def _release_reached(graph: Graph, forest: Forest, search: int) -> None:
    """Release the vertices that a search reached off its path, so that others can reach them."""
    for i in range(forest.numbers[_TRAIL]):
        v = forest.trail[i]
        forest.scanned[graph.class_of[v]] *= forest.scanned[graph.class_of[v]] != search
        if forest.reached[v] == search:
            forest.reached[v] = 0
            forest.is_outer[v] = False
            forest.base[v] = v
            forest.untouched[graph.class_of[v]] += 1


@njit(cache=True, nogil=True)
def _clear_search(forest: Forest) -> None:
    """Clear the lists of a finished search."""
    for i in range(forest.numbers[_OUTER]):
        forest.first[forest.outer_classes[i]] = -1
        forest.neighbour[forest.outer_classes[i]] = -1
    forest.numbers[_QUEUED] = 0
    forest.numbers[_TRAIL] = 0
    forest.numbers[_OUTER] = 0
