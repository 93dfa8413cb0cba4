"""Who exchanges with whom when the key decides: partners drawn from windows along the sorted file."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from safeswap.engines.identity import record_identity
from safeswap.engines.sorted_classes import Flags, Int64s, SortedClasses, Walked
from safeswap.kernels import keyed, window
from safeswap.model.microdata import Microdata

UInt64s = npt.NDArray[np.uint64]

_WORTH_A_PART = 4  # the surroundings of failing classes are walked alone if they are at most a quarter of the file


@dataclass(frozen=True, kw_only=True)
class DrawKeys:
    """The derived keys of one edit: which record of a class, which partner, which classes are kept."""

    identity: bytes = field(repr=False)
    record: bytes = field(repr=False)
    partner: bytes = field(repr=False)
    keep: bytes = field(repr=False)

    @classmethod
    def derived(cls, secret: bytes, data: Microdata, *, replicate: int) -> DrawKeys:
        """The keys of one file and replicate."""

        def key(purpose: str) -> bytes:
            return keyed.derive(secret, "data", data.schema.name, len(data), "edit_targeted", purpose, replicate)

        return cls(
            identity=keyed.derive(secret, "identity"), record=key("record"), partner=key("partner"), keep=key("keep")
        )


def record_draws(data: Microdata, keys: DrawKeys) -> UInt64s:
    """The draw of every record that decides its place among those of its class."""
    return _draws(record_identity(data, keys.identity), keys.record)


def kept(data: Microdata, classes: SortedClasses, failing: Flags, *, fraction: float, keys: DrawKeys) -> Flags:
    """A keyed random fraction of the failing classes: those with the lowest draws, so that fractions are nested."""
    if fraction >= 1 or not failing.any():
        return failing
    identity = record_identity(data, keys.identity)
    found = np.flatnonzero(failing)
    order = np.argsort(_draws(identity[_leaders(classes, found, identity, keys.record)], keys.keep))
    flags = np.zeros_like(failing)
    flags[found[order[: int(fraction * found.size + 0.5)]]] = True
    return flags


@dataclass(frozen=True, eq=False, kw_only=True)
class _Walk:
    """The sorted file while partners are being found; the arrays are brought up to date on the way."""

    classes: SortedClasses
    choosers: UInt64s  # a draw for each class that decides among its candidates
    rows: npt.NDArray[np.uint32]  # these three by position, rearranged within classes
    labels: UInt64s
    draws: UInt64s

    def in_windows(self, wanting: Flags, candidates: int, *, is_whole: bool) -> tuple[Int64s, Flags, Flags]:
        """Pairs of positions, positions used and classes treated by what windows offer."""
        of = self.classes
        places = (self.rows, self.labels, self.draws)
        return window.pair_in_windows(of.starts, of.strata, wanting, self.choosers, *places, candidates, is_whole)


def keyed_walk(
    data: Microdata, classes: SortedClasses, wanting: Flags, labels: UInt64s, *, candidates: int, keys: DrawKeys
) -> Walked:
    """Partners by the key; ``labels`` are equal, row by row, where an exchange would change nothing.

    Most classes find a partner in their window, the others in the whole stratum; the second stage is for those whose
    every possible partner has exchanged already.
    """
    if not wanting.any():
        return Walked(rows=classes.rows, stages=())
    identity = record_identity(data, keys.identity)
    found = np.flatnonzero(wanting)
    choosers = np.zeros(wanting.size, dtype=np.uint64)
    choosers[found] = _draws(identity[_leaders(classes, found, identity, keys.record)], keys.partner)
    nearby = _nearby_walk(classes, wanting, choosers, labels, identity, candidates=candidates, keys=keys)
    if nearby is not None:
        return nearby
    ordered, draws = window.in_order(classes.rows, labels, _draws(identity, keys.record))
    walk = _Walk(classes=classes, choosers=choosers, rows=classes.rows.copy(), labels=ordered, draws=draws)
    pairs, used, treated = walk.in_windows(wanting, candidates, is_whole=True)
    left = np.flatnonzero(wanting & ~treated)
    if left.size:
        pairs = np.concatenate([pairs, _with_anyone(walk, left, used, treated)])
        left = np.flatnonzero(wanting & ~treated)
    return Walked(rows=walk.rows, stages=(pairs, _with_used(walk, left, pairs)))


def _nearby_walk(
    classes: SortedClasses,
    wanting: Flags,
    choosers: UInt64s,
    labels: UInt64s,
    identity: Int64s | UInt64s,
    *,
    candidates: int,
    keys: DrawKeys,
) -> Walked | None:
    """The walk over the surroundings of the wanting classes alone, where these are a small part of the file.

    None where they are not, or where a class finds no window there: then the whole file is walked.
    """
    reach = window.MOST_CLASSES
    found = np.flatnonzero(wanting)
    covered = np.zeros(wanting.size + 1, dtype=np.int64)
    np.add.at(covered, np.maximum(found - reach, 0), 1)
    np.add.at(covered, np.minimum(found + reach + 1, wanting.size), -1)
    near = np.flatnonzero(np.cumsum(covered[:-1]) > 0)
    sizes = classes.sizes[near]
    if sizes.sum() > classes.rows.size // _WORTH_A_PART:
        return None
    starts = np.concatenate([[0], np.cumsum(sizes)])
    positions = np.repeat(classes.starts[near] - starts[:-1], sizes) + np.arange(sizes.sum())
    rows = classes.rows[positions]
    part = SortedClasses(rows=rows, starts=starts, strata=classes.strata[near])
    draws = _draws(identity[rows], keys.record)
    walk = _Walk(classes=part, choosers=choosers[near], rows=rows, labels=labels[rows], draws=draws)
    pairs, _, treated = walk.in_windows(wanting[near], candidates, is_whole=False)
    if (wanting[near] & ~treated).any():
        return None
    arranged = classes.rows.copy()
    arranged[positions] = rows
    return Walked(rows=arranged, stages=(positions[pairs],))


def _with_anyone(walk: _Walk, left: Int64s, used: Flags, treated: Flags) -> Int64s:
    """Partners from the whole stratum, for classes that have no window."""
    starts, strata_of = walk.classes.starts, walk.classes.strata
    class_of = np.repeat(np.arange(strata_of.size), walk.classes.sizes)
    strata = strata_of[class_of]
    concerned = np.flatnonzero(np.isin(strata, strata_of[left]) & ~used)
    places = _by_label(concerned, strata, walk.labels, walk.draws)
    bounds = np.searchsorted(strata[places], np.arange(strata_of[-1] + 2))
    return window.pair_with_anyone(
        starts, strata_of, class_of, left, walk.choosers, walk.labels, used, treated, places, bounds
    )


def _by_label(places: Int64s, strata: Int64s, labels: UInt64s, draws: UInt64s) -> Int64s:
    """Positions by stratum, those of one label side by side; labels in the order of their lowest draw.

    What number a label has depends on the order of the rows; its lowest draw does not.
    """
    places = places[np.lexsort((draws[places], labels[places], strata[places]))]
    begins = np.ones(places.size, dtype=np.bool_)
    begins[1:] = (labels[places[1:]] != labels[places[:-1]]) | (strata[places[1:]] != strata[places[:-1]])
    lowest = draws[places[begins]][np.cumsum(begins) - 1]
    return places[np.lexsort((draws[places], lowest, strata[places]))]


def _with_used(walk: _Walk, left: Int64s, pairs: Int64s) -> Int64s:
    """Second exchanges, for classes whose every possible partner has exchanged already.

    A record that now holds y instead of its own x exchanges with one that holds v, if v is neither: both then hold
    what is not their own. Needed only where next to nobody is left, as in a file of three unique records.
    """
    classes, labels = walk.classes, walk.labels
    strata = classes.strata[classes.class_of(pairs[:, 0])] if left.size else np.zeros(0, dtype=np.int64)
    pools: dict[int, list[tuple[int, int, int]]] = {}
    concerned = np.flatnonzero(np.isin(strata, classes.strata[left]))
    for stratum, (a, b) in zip(strata[concerned].tolist(), pairs[concerned].tolist(), strict=True):
        x, y = int(labels[a]), int(labels[b])
        pools.setdefault(stratum, []).extend([(a, x, y), (b, y, x)])
    hopeless: set[tuple[int, int]] = set()
    found = []
    for c in left.tolist():
        stratum, a = int(classes.strata[c]), int(classes.starts[c])
        pool, own = pools.get(stratum, []), int(labels[a])
        if not pool or (stratum, own) in hopeless:
            continue
        first = int(walk.choosers[c]) % len(pool)
        turn = [*range(first, len(pool)), *range(first)]
        place = next((i for i in turn if own not in pool[i][1:]), None)
        if place is None:
            hopeless.add((stratum, own))
        else:
            found.append((a, pool.pop(place)[0]))
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _leaders(
    classes: SortedClasses, found: Int64s, identity: Int64s | UInt64s, record_key: bytes
) -> npt.NDArray[np.uint32]:
    """The row of the lowest draw in each of these classes, which are small."""
    sizes = classes.sizes[found]
    begins = np.cumsum(sizes) - sizes
    positions = np.repeat(classes.starts[found] - begins, sizes) + np.arange(sizes.sum())
    rows = classes.rows[positions]
    draws = _draws(identity[rows], record_key)
    lowest = np.flatnonzero(draws == np.repeat(np.minimum.reduceat(draws, begins), sizes))
    owner = np.repeat(np.arange(found.size), sizes)[lowest]
    leaders: npt.NDArray[np.uint32] = rows[lowest[np.diff(owner, prepend=-1) > 0]]
    return leaders


def _draws(identity: Int64s | UInt64s, key: bytes) -> UInt64s:
    parts = [values.copy() for _, values in keyed.draw_chunks(identity, key)]
    return np.concatenate([np.zeros(0, dtype=np.uint64), *parts])
