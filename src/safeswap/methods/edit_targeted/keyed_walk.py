"""The keyed walk: partners drawn from windows along the sorted file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from safeswap.arrays import cells, keyed
from safeswap.arrays.types import Flags, Int64s, Integers, UInt64s
from safeswap.methods.edit_targeted import classes as walk
from safeswap.methods.edit_targeted import window
from safeswap.methods.edit_targeted.classes import SortedClasses, Walked
from safeswap.model.microdata import Microdata, record_identity


class RowLabels(Protocol):
    """A number for each record; an exchange of two records with the same one would change nothing."""

    def at(self, rows: Integers) -> UInt64s:
        """Return the labels of some rows, comparable within one call only."""
        ...

    def all(self) -> UInt64s:
        """Return the labels of all rows."""
        ...


class CellLabels:
    """The combination of some attributes as the label.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> data = Microdata(pa.table({"Place": ["a", "b", "b"]}), Schema(attributes=(Attribute(name="Place"),)))
    >>> CellLabels(data, ("Place",)).at(np.array([2, 0, 1])).tolist()
    [1, 0, 1]
    """

    def __init__(self, data: Microdata, names: tuple[str, ...]) -> None:
        self._columns, self._sizes = data.coded_columns(names)

    def at(self, rows: Integers) -> UInt64s:
        """Return the labels of some rows."""
        return cells.pack([column[rows] for column in self._columns], self._sizes)[0].astype(np.uint64)

    def all(self) -> UInt64s:
        """Return the labels of all rows."""
        return cells.pack(self._columns, self._sizes)[0].astype(np.uint64, copy=False)


class ClassLabels:
    """The class of a sorted file as the label."""

    def __init__(self, classes: SortedClasses) -> None:
        self._classes = classes

    def at(self, rows: Integers) -> UInt64s:
        """Return the labels of some rows."""
        return self._classes.class_of(rows).view(np.uint64)

    def all(self) -> UInt64s:
        """Return the labels of all rows."""
        return self.at(np.arange(self._classes.codes.size))


def mixed_strata(classes: SortedClasses, chosen: Flags, labels: RowLabels) -> Flags:
    """Flag the chosen classes whose stratum has several classes and several labels.

    Two chosen records of a stratum with different labels suffice; without them the whole file is checked.
    """
    found = np.flatnonzero(chosen)
    if not found.size:
        return chosen
    rows = classes.rows_of(found)
    owners = np.repeat(found, classes.sizes[found])
    part = _flag_known(classes, owners, labels.at(rows))
    if part[found].all():
        return part
    return walk.flag_mixed(classes.starts, classes.strata, classes.rows, labels.all())


def _flag_known(classes: SortedClasses, owners: Int64s, labels: UInt64s) -> Flags:
    """Flag the classes whose stratum is known to have records of several labels and classes."""
    strata = classes.strata[owners]
    differ = (strata[1:] == strata[:-1]) & (labels[1:] != labels[:-1])
    several = np.bincount(classes.strata) > 1
    told = np.zeros(several.size, dtype=np.bool_)
    told[strata[1:][differ]] = True
    flags: Flags = (told & several)[classes.strata]
    return flags


_WORTH_A_PART = 4  # walk only the surroundings of failing classes if they are at most a quarter of the file
_WORTH_SELECTING = 1 << 17  # in a smaller file sorting all records is faster than selecting the lowest draws
_SELECTED = 16  # multiple of what a window takes of a class: ample, as few windows share a class


@dataclass(frozen=True, kw_only=True)
class DrawKeys:
    """The derived keys of one edit: for the record of a class, the partner, and the classes kept."""

    identity: bytes = field(repr=False)
    record: bytes = field(repr=False)
    partner: bytes = field(repr=False)
    keep: bytes = field(repr=False)

    @classmethod
    def derive(cls, secret: bytes, data: Microdata, *, replicate: int) -> DrawKeys:
        """Derive the keys of one file and replicate."""

        def key(purpose: str) -> bytes:
            return keyed.derive(secret, "data", data.schema.name, len(data), "edit_targeted", purpose, replicate)

        return cls(
            identity=keyed.derive(secret, "identity"), record=key("record"), partner=key("partner"), keep=key("keep")
        )


def record_draws(data: Microdata, keys: DrawKeys) -> UInt64s:
    """Return the draw of every record that decides its place within its class."""
    return _draws(record_identity(data, keys.identity), keys.record)


def draw_kept(data: Microdata, classes: SortedClasses, failing: Flags, *, fraction: float, keys: DrawKeys) -> Flags:
    """Flag a keyed random fraction of the failing classes: those with the lowest draws, so fractions are nested."""
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
    """The sorted file while partners are sought; the arrays are updated on the way."""

    starts: Int64s
    strata: Int64s
    choosers: UInt64s  # a draw for each class that decides among its candidates
    rows: npt.NDArray[np.uint32]  # these three by position, rearranged within classes
    labels: UInt64s
    draws: UInt64s

    def pair_in_windows(self, wanting: Flags, candidates: int) -> tuple[Int64s, Flags, Flags]:
        """Return pairs of positions, positions used and classes treated, from windows."""
        positions = window.Positions(self.rows, self.labels, self.draws)
        places = (self.starts, self.strata, wanting, self.choosers, positions)
        return window.pair_in_windows(*places, candidates, is_whole=True)


def keyed_walk(
    data: Microdata, classes: SortedClasses, wanting: Flags, labels: RowLabels, *, candidates: int, keys: DrawKeys
) -> Walked:
    """Draw partners by the key; ``labels`` are equal for rows whose exchange would change nothing.

    Most classes find a partner in their window, the others in the whole stratum; the second stage is for those whose
    possible partners have all exchanged already.
    """
    if not wanting.any():
        return Walked(pairs=())
    identity = record_identity(data, keys.identity)
    for some in (_walk_nearby, _walk_lowest):
        walked = some(classes, wanting, labels, identity, candidates=candidates, keys=keys)
        if walked is not None:
            return walked
    found = np.flatnonzero(wanting)
    choosers = np.zeros(wanting.size, dtype=np.uint64)
    choosers[found] = _draws(identity[_leaders(classes, found, identity, keys.record)], keys.partner)
    ordered, draws = window.gather_in_order(classes.rows, labels.all(), _draws(identity, keys.record))
    whole = _Walk(
        starts=classes.starts,
        strata=classes.strata,
        choosers=choosers,
        rows=classes.rows.copy(),
        labels=ordered,
        draws=draws,
    )
    pairs, used, treated = whole.pair_in_windows(wanting, candidates)
    left = np.flatnonzero(wanting & ~treated)
    if left.size:
        pairs = np.concatenate([pairs, _pair_with_anyone(whole, left, used, treated)])
        left = np.flatnonzero(wanting & ~treated)
    return Walked.of(whole.rows, (pairs, _exchange_used(whole, left, pairs)))


def _walk_nearby(
    classes: SortedClasses,
    wanting: Flags,
    labels: RowLabels,
    identity: Int64s | UInt64s,
    *,
    candidates: int,
    keys: DrawKeys,
) -> Walked | None:
    """Walk only the surroundings of the wanting classes, if these are a small part of the file.

    None if they are not, or if a class finds no window there: then the whole file is walked.
    """
    near = _surroundings(wanting, window.MOST_CLASSES)
    sizes = classes.sizes[near]
    if sizes.sum() > classes.codes.size // _WORTH_A_PART:
        return None
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows = classes.rows_of(near)
    draws = _draws(identity[rows], keys.record)
    choosers = _choosers(starts, wanting[near], rows, draws, identity=identity, keys=keys)
    places = (wanting[near], choosers, window.Positions(rows, labels.at(rows), draws), candidates)
    pairs, _, treated = window.pair_in_windows(starts, classes.strata[near], *places, is_whole=False)
    return None if (wanting[near] & ~treated).any() else Walked.of(rows, (pairs,))


def _surroundings(wanting: Flags, reach: int) -> Int64s:
    """Return the classes within reach of a wanting one, in ascending order."""
    found = np.flatnonzero(wanting)
    covered = np.zeros(wanting.size + 1, dtype=np.int64)
    np.add.at(covered, np.maximum(found - reach, 0), 1)
    np.add.at(covered, np.minimum(found + reach + 1, wanting.size), -1)
    return np.flatnonzero(np.cumsum(covered[:-1]) > 0)


def _walk_lowest(
    classes: SortedClasses,
    wanting: Flags,
    labels: RowLabels,
    identity: Int64s | UInt64s,
    *,
    candidates: int,
    keys: DrawKeys,
) -> Walked | None:
    """Walk only the lowest draws of each class, which is all that windows look at: the file need not be sorted.

    None if that is not worthwhile, or if a window would have to look further: then the whole file is walked.
    """
    if not classes.is_counted or classes.codes.size < _WORTH_SELECTING:
        return None
    rows, draws = _low_draws(classes, identity, keys.record, _SELECTED * candidates)
    sizes = np.bincount(classes.class_of(rows), minlength=wanting.size)
    if not sizes.all():
        return None
    order = classes.group_positions(classes.codes[rows], np.arange(wanting.size), sizes)
    rows, draws = rows[order], draws[order]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    choosers = _choosers(starts, wanting, rows, draws, identity=identity, keys=keys)
    places = (wanting, choosers, window.Positions(rows, labels.at(rows), draws), candidates)
    pairs, is_complete = window.pair_among_lowest(starts, classes.strata, sizes < classes.sizes, *places)
    return Walked.of(rows, (pairs,)) if is_complete else None


def _low_draws(
    classes: SortedClasses, identity: Int64s | UInt64s, key: bytes, number: int
) -> tuple[npt.NDArray[np.uint32], UInt64s]:
    """Return the records with low draws in file order, and the draws: about ``number`` per class."""
    bounds = np.zeros(classes.possible, dtype=np.uint32)
    shares = np.where(classes.sizes > 2 * number, number / classes.sizes, 1.0)
    bounds[classes.names] = shares * (2**32 - 1)
    found: list[npt.NDArray[np.uint32]] = []
    values: list[UInt64s] = []
    for start, draws in keyed.draw_chunks(identity, key):
        room = np.empty(draws.size, dtype=np.uint32)
        taken = room[: walk.take_low(classes.codes[start : start + draws.size], draws, bounds, room)]
        values.append(draws[taken])
        found.append(taken + np.uint32(start))
    return np.concatenate(found), np.concatenate(values)


def _pair_with_anyone(whole: _Walk, left: Int64s, used: Flags, treated: Flags) -> Int64s:
    """Draw partners from the whole stratum, for classes without a window."""
    starts, strata_of = whole.starts, whole.strata
    class_of = np.repeat(np.arange(strata_of.size), np.diff(starts))
    strata = strata_of[class_of]
    concerned = np.flatnonzero(np.isin(strata, strata_of[left]) & ~used)
    places = _sort_by_label(concerned, strata, whole.labels, whole.draws)
    bounds = np.searchsorted(strata[places], np.arange(strata_of[-1] + 2))
    return window.pair_with_anyone(
        starts, strata_of, class_of, left, whole.choosers, whole.labels, used, treated, places, bounds
    )


def _sort_by_label(places: Int64s, strata: Int64s, labels: UInt64s, draws: UInt64s) -> Int64s:
    """Sort positions by stratum, grouped by label; labels in the order of their lowest draw.

    A label's number depends on row order; its lowest draw does not.
    """
    places = places[np.lexsort((draws[places], labels[places], strata[places]))]
    begins = np.ones(places.size, dtype=np.bool_)
    begins[1:] = (labels[places[1:]] != labels[places[:-1]]) | (strata[places[1:]] != strata[places[:-1]])
    lowest = draws[places[begins]][np.cumsum(begins) - 1]
    return places[np.lexsort((draws[places], lowest, strata[places]))]


def _exchange_used(whole: _Walk, left: Int64s, pairs: Int64s) -> Int64s:
    """Return second exchanges, for classes whose possible partners have all exchanged already.

    A record that now holds y instead of its own x exchanges with one that holds v, if v is neither: neither then holds
    its own value. Needed only where almost no partner is left, as in a file of three unique records.
    """
    labels = whole.labels
    owners = np.searchsorted(whole.starts, pairs[:, 0], side="right") - 1 if left.size else np.zeros(0, dtype=np.int64)
    strata = whole.strata[owners]
    pools: dict[int, list[tuple[int, int, int]]] = {}
    concerned = np.flatnonzero(np.isin(strata, whole.strata[left]))
    for stratum, (a, b) in zip(strata[concerned].tolist(), pairs[concerned].tolist(), strict=True):
        x, y = int(labels[a]), int(labels[b])
        pools.setdefault(stratum, []).extend([(a, x, y), (b, y, x)])
    hopeless: set[tuple[int, int]] = set()
    found = []
    for c in left.tolist():
        stratum, a = int(whole.strata[c]), int(whole.starts[c])
        pool, own = pools.get(stratum, []), int(labels[a])
        if not pool or (stratum, own) in hopeless:
            continue
        first = int(whole.choosers[c]) % len(pool)
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
    """Return the row of the lowest draw in each of these (small) classes."""
    sizes = classes.sizes[found]
    rows = classes.rows_of(found)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return _find_lowest(starts, np.arange(found.size), rows, _draws(identity[rows], record_key))


def _choosers(
    starts: Int64s,
    wanting: Flags,
    rows: npt.NDArray[np.uint32],
    draws: UInt64s,
    *,
    identity: Int64s | UInt64s,
    keys: DrawKeys,
) -> UInt64s:
    """Return, for each wanting class, the draw that selects its candidate: a second draw of the record drawn first."""
    found = np.flatnonzero(wanting)
    choosers = np.zeros(wanting.size, dtype=np.uint64)
    choosers[found] = _draws(identity[_find_lowest(starts, found, rows, draws)], keys.partner)
    return choosers


def _find_lowest(
    starts: Int64s, chosen: Int64s, rows: npt.NDArray[np.uint32], draws: UInt64s
) -> npt.NDArray[np.uint32]:
    """Return the row of the lowest draw in each of the chosen classes, given their rows and draws."""
    sizes = np.diff(starts)[chosen]
    begins = np.cumsum(sizes) - sizes
    positions = np.repeat(starts[chosen] - begins, sizes) + np.arange(sizes.sum())
    drawn = draws[positions]
    lowest = np.flatnonzero(drawn == np.repeat(np.minimum.reduceat(drawn, begins), sizes))
    owner = np.repeat(np.arange(chosen.size), sizes)[lowest]
    leaders: npt.NDArray[np.uint32] = rows[positions[lowest[np.diff(owner, prepend=-1) > 0]]]
    return leaders


def _draws(identity: Int64s | UInt64s, key: bytes) -> UInt64s:
    parts = [values.copy() for _, values in keyed.draw_chunks(identity, key)]
    return np.concatenate([np.zeros(0, dtype=np.uint64), *parts])
