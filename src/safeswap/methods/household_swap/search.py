"""Edmonds' search: the last resort for unmatched households that must move, in the graph of one profile cell.

Claim: the sets of households that some pairing covers are the independent sets of a matroid (the matching matroid).
So households may be tried one by one: one that is covered stays covered, one whose search fails can never be added,
and the number covered in the end is the largest possible. A vertex beside every household that need not move lets a
path end by releasing it.

Households of one kind (required level, and area at that level) are twins: they have the same neighbours. If the search
from one fails, it fails from its twins; and of pairs between the same two kinds a few are enough for any path.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from safeswap.arrays.compiled import inner, njit
from safeswap.arrays.types import Flags, Int32s, Int64s
from safeswap.methods.household_swap.pairing import FIXED, FREE, Ground, Profile, find_key

SMALL_CELL = 64
"""Largest cell, in households, that is searched whole."""

PAIRS_PER_KIND = 4
LARGEST_CELL = 6_000
"""A cell that has more households even after leaving out twins is not searched: the optimum is then not proved."""


def cover_rest(left: Int32s, ground: Ground, profile: Profile) -> bool:
    """Cover as many of the unmatched households as any pairing can; return whether every cell could be searched."""
    proved = True
    areas = ground.levels.shape[1]
    for cell in np.unique(profile.cell[left]).tolist():
        begin, end = (find_key(profile, key) for key in (cell * areas, (cell + 1) * areas))
        members = profile.order[begin:end]
        members = members[ground.partner[members] != FIXED]
        members = members[np.argsort(ground.draw[members])]
        proved &= _cover_cell(members, ground)
    return proved


def _cover_cell(members: Int32s, g: Ground) -> bool:
    bottom = g.levels.shape[0] - 1
    level = np.minimum(g.required[members], bottom - 1)
    kinds = g.required[members].astype(np.int64) * g.levels.shape[1] + g.levels[level, g.area[members]]
    mates = _positions_of_partners(members, g)
    if len(members) > SMALL_CELL:
        kept = np.flatnonzero(_leave_out_twins(kinds, mates, g.required[members] < bottom))
        members, kinds = members[kept], kinds[kept]
        mates = _positions_of_partners(members, g)
    if len(members) > LARGEST_CELL:
        return False
    match = np.append(mates, np.int64(-1))
    required = g.required[members].astype(np.int64)
    classes = np.ascontiguousarray(g.levels[:bottom, g.area[members]], dtype=np.int64)
    waiting = np.flatnonzero((required < bottom) & (mates < 0))
    failed: set[int] = set()
    for root in waiting[np.argsort(required[waiting], kind="stable")].tolist():
        kind = int(kinds[root])
        if match[root] < 0 and kind not in failed and not search(root, match, required, classes):
            failed.add(kind)
    partners = np.where(match[:-1] >= 0, members[match[:-1]], FREE)
    g.partner[members] = partners
    return True


def _positions_of_partners(members: Int32s, g: Ground) -> Int64s:
    """Return where the partner of each member is among the members, −1 if it has none."""
    by_number = np.argsort(members)
    partner = g.partner[members]
    found = by_number[np.searchsorted(members, np.maximum(partner, 0), sorter=by_number) % len(members)]
    mates: Int64s = np.where(partner >= 0, found, -1).astype(np.int64)
    return mates


def _leave_out_twins(kinds: Int64s, mates: Int64s, is_risky: Flags) -> Flags:
    """Flag a few pairs between each two kinds, a few free donors of each kind, and all unmatched ones."""
    places = np.arange(len(kinds))
    partner_kind = np.where(mates >= 0, kinds[mates], -1)
    low, high = np.minimum(kinds, partner_kind), np.maximum(kinds, partner_kind)
    leads = np.flatnonzero((mates < 0) | (mates > places))
    _, group = np.unique(np.stack([low[leads], high[leads]]), axis=1, return_inverse=True)
    group = group.ravel()
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.r_[True, group[order][1:] != group[order][:-1]])
    rank = np.empty(len(leads), np.int64)
    rank[order] = np.arange(len(leads)) - np.repeat(starts, np.diff(np.r_[starts, len(leads)]))
    chosen = leads[(rank < PAIRS_PER_KIND) | ((mates[leads] < 0) & is_risky[leads])]
    kept = np.zeros(len(kinds), dtype=np.bool_)
    kept[chosen] = True
    kept[mates[chosen][mates[chosen] >= 0]] = True
    return kept


@njit(cache=True, nogil=True)
def search(root: int, match: Int64s, required: Int64s, classes: npt.NDArray[np.int64]) -> bool:
    """Look for an augmenting path from ``root``; if there is one, change ``match`` along it and return True.

    ``match`` has one more place than there are households, for the vertex beside all that need not move, never matched
    when a search begins or ends.
    """
    number = len(match)
    extra = number - 1
    parent, base = np.full(number, -1), np.arange(number)
    queue, used = np.empty(number, np.int64), np.zeros(number, np.bool_)
    used[root], queue[0] = True, root
    head, tail, end = 0, 1, -1
    while head < tail and end < 0:
        v = queue[head]
        head += 1
        for w in range(extra, -1, -1):  # the extra vertex first: then no further household moves
            if base[v] == base[w] or match[v] == w or not _are_adjacent(v, w, extra, required, classes):
                continue
            if w == root or (match[w] != -1 and parent[match[w]] != -1):
                tail = _contract(v, w, base, match, parent, used, queue, tail)
            elif parent[w] == -1:
                parent[w] = v
                if match[w] == -1:
                    end = w
                    break
                used[match[w]], queue[tail] = True, match[w]
                tail += 1
    if end < 0:
        return False
    while end != -1:
        before = parent[end]
        after = match[before]
        match[end], match[before] = before, end
        end = after
    if match[extra] != -1:
        match[match[extra]] = -1
        match[extra] = -1
    return True


@inner
def _are_adjacent(v, w, extra, required, classes):  # type: ignore[no-untyped-def]
    bottom = classes.shape[0]
    if extra in (v, w):
        return v != w and required[v if w == extra else w] >= bottom
    level = min(required[v], required[w], bottom - 1)
    return classes[level, v] != classes[level, w]


@inner
def _contract(v, w, base, match, parent, used, queue, tail):  # type: ignore[no-untyped-def]
    """Shrink the odd cycle that closes between v and w; return the new end of the queue."""
    top = _common_base(v, w, base, match, parent)
    in_blossom = np.zeros(len(base), np.bool_)
    _mark_path(v, top, w, base, match, parent, in_blossom)
    _mark_path(w, top, v, base, match, parent, in_blossom)
    for i in range(len(base)):
        if in_blossom[base[i]]:
            base[i] = top
            if not used[i]:
                used[i], queue[tail] = True, i
                tail += 1
    return tail


@inner
def _common_base(a, b, base, match, parent):  # type: ignore[no-untyped-def]
    seen = np.zeros(len(base), np.bool_)
    while True:
        a = base[a]
        seen[a] = True
        if match[a] == -1:
            break
        a = parent[match[a]]
    while True:
        b = base[b]
        if seen[b]:
            return b
        b = parent[match[b]]


@inner
def _mark_path(v, top, child, base, match, parent, in_blossom):  # type: ignore[no-untyped-def]
    while base[v] != top:
        in_blossom[base[v]] = in_blossom[base[match[v]]] = True
        parent[v] = child
        child = match[v]
        v = parent[match[v]]
