"""SUDA2: the share of records that are unique in a few keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations as choices
from math import comb, prod
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.combinations import Classes, decode_mask, mask_of, matching_sizes
from safeswap.arrays.compiled import njit
from safeswap.arrays.types import Floats, Int64s
from safeswap.errors import SpecError
from safeswap.measures.households import compare_households, tell_unit
from safeswap.measures.key_cells import KeyCells, KeyMeasure, check_keys, key_cells
from safeswap.model.combination import Missing
from safeswap.model.microdata import Microdata
from safeswap.model.score import Axis, Comparison, Score
from safeswap.model.text import Scoring, plural

# Minimal sample uniques: the smallest sets of keys in which a record is unique.
#
# Records come as classes, each a distinct combination of codes with its number of records. Sets of keys are the bits
# of an integer. They are visited in ascending order of that integer, so that every subset comes before its supersets;
# each set refines the groups of the set without its lowest bit. A record that is alone in its group needs no further
# key and is removed, so groups shrink quickly, and a group without a record that could become unique is pruned.

_FIRST_ROOM = 1 << 12
_MARKED_KEYS = 9  # one bit per set of up to this many keys: the marks of a record then fit a cache line


@dataclass(frozen=True, eq=False)
class MinimalUniques:
    """Every pair of a class and a set of keys, as bits, in which it is unique but in no proper subset."""

    classes: Int64s
    masks: Int64s
    keys: int

    def __len__(self) -> int:
        return self.masks.size

    @property
    def sizes(self) -> Int64s:
        """Number of keys in each set."""
        return np.bitwise_count(self.masks).astype(np.int64)


def minimal_uniques(found: Classes, *, most: int, missing: str = "own") -> MinimalUniques:
    """Find the minimal uniques of up to ``most`` keys.

    A blank is a value (own), is in no set (none, any) or matches every value (vouching).

    >>> from safeswap.arrays.combinations import group_records
    >>> town, job = np.array([0, 0, 1, 1, 2], np.uint8), np.array([0, 1, 0, 0, 0], np.uint8)
    >>> unique = minimal_uniques(group_records([town, job], [3, 2], [9, 9]), most=2)
    >>> sorted(zip(unique.classes.tolist(), unique.masks.tolist()))
    [(0, 3), (1, 2), (3, 1)]
    """
    keys = len(found.columns)
    most = min(most, keys)
    if missing == "vouching" and found.complete(range(keys)) is not None:
        return _search_wildcards(found, most)
    # The key with most levels splits best, so most sets of keys begin with it.
    order = np.argsort(found.cardinalities, kind="stable")
    width = np.dtype(np.uint16 if max(found.cardinalities) <= 1 << 16 else np.uint32)  # each costs a compilation
    codes = np.stack([found.columns[j].astype(width, copy=False) for j in order])
    outside = np.array([-1 if missing == "own" else found.blanks[j] for j in order], np.int64)
    classes, masks = _search(codes, outside, np.minimum(found.sizes, 2).astype(np.int8), max(found.cardinalities), most)
    return MinimalUniques(classes, _move_bits(masks, order), keys)


def totals(unique: MinimalUniques, classes: int, weights: Floats) -> Floats:
    """Return, for each class, the sum of weights over its minimal uniques; ``weights[k]`` is that of k keys."""
    return np.bincount(unique.classes, weights[unique.sizes], classes).astype(np.float64, copy=False)


def key_totals(unique: MinimalUniques, classes: int, weights: Floats) -> Floats:
    """Return the sums of :func:`totals` by class and key: over the minimal uniques that contain the key."""
    table = np.zeros((classes, unique.keys))
    each = weights[unique.sizes]
    for key in range(unique.keys):
        holds = (unique.masks >> key) & 1 == 1
        table[:, key] = np.bincount(unique.classes[holds], each[holds], classes)
    return table


def smallest_uniques(unique: MinimalUniques, classes: int) -> Int64s:
    """Return the size of each class's smallest minimal unique, 0 if it has none."""
    found = np.full(classes, unique.keys + 1, np.int64)
    np.minimum.at(found, unique.classes, unique.sizes)
    found[found > unique.keys] = 0
    return found


def _move_bits(masks: Int64s, places: Sequence[int] | npt.NDArray[Any]) -> Int64s:
    """Return the masks with bit i moved to position ``places[i]``."""
    moved = np.zeros_like(masks)
    for i, place in enumerate(places):
        moved |= ((masks >> i) & 1) << int(place)
    return moved


def _search_wildcards(found: Classes, most: int) -> MinimalUniques:
    """Search where a blank matches every value: without groups to refine, each set of keys is counted separately."""
    keys = len(found.columns)
    counted = replace(found, sizes=found.sizes.astype(np.int64))
    smaller: dict[tuple[int, ...], npt.NDArray[np.bool_]] = {}
    rows, masks = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for size in range(1, most + 1):
        unique = {}
        for chosen in choices(range(keys), size):
            alone = matching_sizes(counted, chosen) == 1
            parts = [smaller[part] for part in choices(chosen, size - 1) if part]
            new = np.flatnonzero(alone & ~np.logical_or.reduce(parts)) if parts else np.flatnonzero(alone)
            unique[chosen] = alone
            rows.append(new)
            masks.append(np.full(new.size, mask_of(chosen), np.int64))
        smaller = unique
    return MinimalUniques(np.concatenate(rows), np.concatenate(masks), keys)


@njit(cache=True, nogil=True)
def _search(codes, outside, weights, levels, most):  # type: ignore[no-untyped-def]
    """Walk over the sets of keys depth first; each depth keeps the groups of its set."""
    keys, classes = codes.shape
    members = np.empty((most, classes), np.int32)
    starts = np.empty((most, classes // 2 + 2), np.int32)
    groups, child, limit = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64)
    masks_at = np.zeros(most, np.int64)
    tally, singles = np.zeros((levels, 2), np.int32), np.zeros(levels, np.int32)
    touched = np.empty(max(levels, 1), np.int32)
    alone = np.empty(classes, np.int32)
    members[0] = np.arange(classes)
    starts[0, 0], starts[0, 1] = 0, classes
    groups[0], limit[0] = 1, keys
    marks = np.zeros((classes, max(1, (1 << keys) >> 6) if keys <= _MARKED_KEYS else 0), np.uint64)
    last = np.full(0 if marks.shape[1] else classes, -1, np.int64)
    owners, masks = np.empty(_FIRST_ROOM, np.int64), np.empty(_FIRST_ROOM, np.int64)
    before = np.empty(_FIRST_ROOM, np.int64)
    found, depth = 0, 0
    while depth >= 0:
        key = child[depth]
        if key == limit[depth] or classes == 0:
            depth -= 1
            continue
        child[depth] += 1
        leaf = depth + 1 == most or key == 0
        below = depth if leaf else depth + 1
        mask = masks_at[depth] | (np.int64(1) << key)
        number, kept = _refine(
            members[depth],
            starts[depth],
            groups[depth],
            codes[key],
            outside[key],
            weights,
            tally,
            singles,
            touched,
            leaf,
            members[below],
            starts[below],
            alone,
        )
        if found + number > masks.size:
            room = 2 * (found + number)
            owners, masks, before = _extend(owners, room), _extend(masks, room), _extend(before, room)
        for i in range(number):
            row = alone[i]
            if marks.shape[1]:
                if _has_marked_subset(marks[row], mask):
                    continue
                marks[row, mask >> 6] |= np.uint64(1) << np.uint64(mask & 63)
            else:
                if _has_listed_subset(masks, before, last[row], mask):
                    continue
                before[found] = last[row]
                last[row] = found
            owners[found], masks[found] = row, mask
            found += 1
        if not leaf and kept > 0:
            depth += 1
            groups[depth], child[depth], limit[depth], masks_at[depth] = kept, 0, key, mask
    return owners[:found].copy(), masks[:found].copy()


@njit(cache=True, nogil=True)
def _refine(  # type: ignore[no-untyped-def]
    members, starts, groups, column, outside, weights, tally, singles, touched, leaf, next_members, next_starts, alone
):
    """Split each group by one key: list the unique classes and (unless at a leaf) the groups worth splitting further.

    A class of several records weighs 2: it is never unique, and neither is a class that matches it. ``tally`` holds
    the weight and one class per code, later its position in the next groups.
    """
    number, kept, filled = 0, 0, 0
    if not leaf:
        next_starts[0] = 0
    for group in range(groups):
        first, end = starts[group], starts[group + 1]
        if end - first == 2:  # most groups soon are pairs, which need no counting
            one, other = members[first], members[first + 1]
            if column[one] == column[other]:
                if not leaf and column[one] != outside:
                    next_members[filled], next_members[filled + 1] = one, other
                    filled += 2
                    kept += 1
                    next_starts[kept] = filled
                continue
            for row in (one, other):
                if weights[row] == 1 and column[row] != outside:
                    alone[number] = row
                    number += 1
            continue
        codes_met = 0
        for i in range(first, end):
            row = members[i]
            code = column[row]
            if code == outside:
                continue
            if tally[code, 0] == 0:
                touched[codes_met] = code
                codes_met += 1
            tally[code, 0] += weights[row]
            tally[code, 1] = row
            singles[code] += 1 if weights[row] == 1 else 0
        for t in range(codes_met):
            code = touched[t]
            if tally[code, 0] == 1:
                alone[number] = tally[code, 1]
                number += 1
                singles[code] = 0
            elif not leaf and singles[code] > 0:
                # Each single weighs 1 and each other class 2.
                size = singles[code] + (tally[code, 0] - singles[code]) // 2
                tally[code, 1] = filled
                filled += size
                kept += 1
                next_starts[kept] = filled
        if not leaf:
            for i in range(first, end):
                row = members[i]
                code = column[row]
                if code != outside and singles[code] > 0:
                    next_members[tally[code, 1]] = row
                    tally[code, 1] += 1
        for t in range(codes_met):
            tally[touched[t], 0] = 0
            singles[touched[t]] = 0
    return number, kept


@njit(cache=True, nogil=True)
def _has_marked_subset(marks, mask):  # type: ignore[no-untyped-def]
    """Return whether a proper subset of these keys is marked."""
    part = (mask - 1) & mask
    while part:
        if (marks[part >> 6] >> np.uint64(part & 63)) & np.uint64(1):
            return True
        part = (part - 1) & mask
    return False


@njit(cache=True, nogil=True)
def _has_listed_subset(masks, before, at, mask):  # type: ignore[no-untyped-def]
    """Return whether a proper subset of these keys is in a record's linked list."""
    while at >= 0:
        if masks[at] & mask == masks[at]:
            return True
        at = before[at]
    return False


@njit(cache=True, nogil=True)
def _extend(array, room):  # type: ignore[no-untyped-def]
    longer = np.empty(room, array.dtype)
    longer[: array.size] = array
    return longer


MOST_SETS = 100_000


@dataclass(frozen=True, eq=False, repr=False)
class SpecialUniques:
    """Minimal sample uniques and scores by cell; only a cell of a single record can have any.

    ``file_dis`` is the chance, by data intrusion simulation, that a unique match between an intruder's record and the
    file is correct; ``dis`` distributes it over the records by their scores.
    """

    cells: KeyCells
    unique: MinimalUniques
    scores: Floats
    dis: Floats
    file_dis: float
    sample_uniques: int
    weights: Floats

    @property
    def special(self) -> int:
        """Number of records with a minimal unique."""
        return int(np.unique(self.unique.classes).size)

    def __repr__(self) -> str:
        return f"<SpecialUniques: {self.special:,} of {plural(self.cells.records, 'record')}>"

    @property
    def by_size(self) -> pa.Table:
        """Return the minimal uniques by number of keys, and the records for which they are the smallest."""
        sizes = np.arange(1, self.weights.size)
        smallest = smallest_uniques(self.unique, len(self.cells.classes))
        return pa.table(
            {
                "keys": sizes,
                "minimal_uniques": np.bincount(self.unique.sizes, minlength=self.weights.size)[1:],
                "records": np.bincount(smallest, minlength=self.weights.size)[1:],
            }
        )

    @property
    def by_key(self) -> pa.Table:
        """Return, for each key, its number of minimal uniques and its share of the total score."""
        each, total = self.weights[self.unique.sizes], max(float(self.scores.sum()), 1.0)
        holds = [(self.unique.masks >> j) & 1 == 1 for j in range(self.unique.keys)]
        return pa.table(
            {
                "key": list(self.cells.names),
                "minimal_uniques": [int(np.count_nonzero(held)) for held in holds],
                "share_of_score": [float(each[held].sum() / total) for held in holds],
            }
        )

    @property
    def by_keys(self) -> pa.Table:
        """Return the number of records that each set of keys makes unique."""
        masks, counts = np.unique(self.unique.masks, return_counts=True)
        order = np.lexsort((masks, -counts))
        names = [[self.cells.names[j] for j in decode_mask(int(mask))] for mask in masks[order]]
        return pa.table({"keys": pa.array(names, pa.list_(pa.string())), "minimal_uniques": counts[order]})

    def table(self, *, contributions: bool = False) -> pa.Table:
        """Return one row per record, in file order, optionally with each key's share of its score. Confidential."""
        cells, of_record = len(self.cells.classes), self.cells.of_record
        columns = {
            "minimal_uniques": np.bincount(self.unique.classes, minlength=cells)[of_record],
            "smallest": smallest_uniques(self.unique, cells)[of_record],
            "score": self.scores[of_record],
            "dis": self.dis[of_record],
        }
        if contributions:
            parts = key_totals(self.unique, cells, self.weights) / np.where(self.scores > 0, self.scores, 1)[:, None]
            columns |= {f"share of {name}": parts[of_record, j] for j, name in enumerate(self.cells.names)}
        return pa.table(columns)


def special_uniques(
    data: Microdata,
    keys: Sequence[str],
    *,
    most: int = 3,
    sampling_fraction: float = 0.01,
    scoring: Scoring = "elliot",
    missing: Missing = "none",
) -> SpecialUniques:
    """Find every minimal unique of up to ``most`` keys, and the score and DIS score of each record.

    ``sampling_fraction`` is the share of the population that is in the file.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex"), Attribute(name="Town"), Attribute(name="Job")))
    >>> columns = {"Sex": ["f", "m", "m", "m"], "Town": ["a", "a", "b", "b"], "Job": ["x", "x", "x", "x"]}
    >>> special_uniques(Microdata(pa.table(columns), schema), ["Sex", "Town", "Job"]).table()["score"].to_pylist()
    [2.0, 1.0, 0.0, 0.0]
    """
    cells = key_cells(data, keys, missing=missing)
    weights = score_weights(len(cells.names), check_size(most, len(cells.names)), scoring)
    unique = minimal_uniques(cells.classes, most=weights.size - 1, missing=missing)
    scores = totals(unique, len(cells.classes), weights)
    alone = int(np.count_nonzero(cells.like == 1))
    pairs = int(cells.members[cells.like == 2].sum())
    file_dis = intrusion(alone, pairs, sampling_fraction)
    dis = spread(scores, file_dis, alone, len(cells.names))
    return SpecialUniques(cells, unique, scores, dis, file_dis, alone, weights)


def check_size(most: int, keys: int) -> int:
    """Return the maximum size of a minimal unique; refuse one that is impossible or gives too many sets of keys."""
    if most < 1:
        raise SpecError("a unique has at least one key", code="bad-spec", hint="max_size=3")
    most = min(most, keys)
    if sum(comb(keys, size) for size in range(1, most + 1)) > MOST_SETS:
        raise SpecError(
            f"these are more than {MOST_SETS:,} sets of keys",
            code="too-many-combinations",
            hint="name fewer keys, or search for uniques on fewer keys",
        )
    return most


def score_weights(keys: int, most: int, scoring: Scoring) -> Floats:
    """Return the weights of minimal uniques of k keys, at index k; 0 at index 0.

    >>> score_weights(4, 3, "elliot").tolist(), score_weights(4, 3, "ihsn").tolist()
    ([0.0, 6.0, 2.0, 1.0], [0.0, 1.75, 0.5, 0.25])
    """
    if scoring not in get_args(Scoring):
        raise SpecError(
            f"there is no scoring {scoring!r}", code="bad-spec", hint="one of: " + ", ".join(get_args(Scoring))
        )
    if scoring == "ihsn":
        # A unique of all keys adds nothing to the fact that the record is unique: its weight is 0.
        return np.array([0.0, *((2.0 ** (keys - k) - 1) / comb(keys, k) for k in range(1, most + 1))])
    last = min(most, keys - 1)
    return np.array([0.0, *(float(prod(keys - i for i in range(k, last + 1))) for k in range(1, most + 1))])


def intrusion(uniques: int, in_pairs: int, sampling_fraction: float) -> float:
    """Return the chance that a unique match is correct: U π / (U π + P (1 − π)), with P the records in pairs.

    >>> round(intrusion(4, 6, 0.01), 6)
    0.006689
    """
    if not 0 < sampling_fraction <= 1:
        raise SpecError(
            "the sampling fraction must be above 0 and at most 1", code="bad-fraction", hint="sampling_fraction=0.05"
        )
    expected = uniques * sampling_fraction
    return expected / (expected + in_pairs * (1 - sampling_fraction)) if uniques else 0.0


def spread(scores: Floats, file_dis: float, uniques: int, keys: int) -> Floats:
    """Return the DIS score of each cell: 1 / (1 + U (1/DIS − 1) / (s^g Σ s^−g)) with g = 1 + (8 − keys) / 20.

    The sum is over all records with a score; a record without a score has no DIS score. The exponent g was calibrated
    for about a dozen keys; it would be negative for more than 28 and is kept at 1/20 or above, so that a higher score
    is a higher risk.
    """
    found = np.zeros_like(scores)
    some = scores > 0
    if file_dis > 0 and some.any():
        # Use logarithms: scores of many keys are factorials.
        steepness = max(1 + (8 - keys) / 20, 1 / 20)
        logs = steepness * np.log(scores[some])
        factor = np.exp(logs - logs.min()) * np.exp(logs.min() - logs).sum()
        found[some] = 1 / (1 + uniques * (1 / file_dis - 1) / factor)
    return found


class Suda2(KeyMeasure):
    """Records with a minimal sample unique of at most M keys, as a share of all; or their mean DIS score.

    A minimal sample unique is a set of keys in which the record is unique, while it is not in any proper subset.

    >>> Suda2(max_size=2, keys=("Age", "Sex")).text
    'suda2:keys=Age+Sex,max_size=2'
    """

    name: ClassVar[str] = "suda2"
    title: ClassVar[str] = "share of special uniques"
    axis: ClassVar[Axis] = Axis.RISK
    sources: ClassVar[tuple[str, ...]] = (
        "Elliot, Manning, Mayes, Gurd & Bane (2005), SUDA: A program for detecting special uniques, UNECE/Eurostat",
        "Manning, Haglin & Keane (2008), A recursive search algorithm for statistical disclosure assessment, DMKD 16",
        "Skinner & Elliot (2002), A measure of disclosure risk for microdata, JRSS B 64(4)",
    )

    max_size: Annotated[int, Field(ge=1, le=62, description="M: maximum number of keys of a minimal unique")] = 3
    sampling_fraction: Annotated[
        float, Field(gt=0, le=1, description="share of the population that is in the file, for the DIS scores")
    ] = 0.01
    scoring: Annotated[Scoring, Field(description="weights of minimal uniques in a score: elliot or ihsn")] = "elliot"
    figure: Annotated[
        Literal["share", "dis"], Field(description="the share of special uniques, or the mean DIS score of all records")
    ] = "share"

    def score_households(self, comparison: Comparison) -> Score:
        """Score the file of households, described by their own keys and, for each key of members, by its multiset."""
        keys = check_keys(comparison.after, self._names(comparison))
        seen = compare_households(comparison, keys, jointly=False)
        return tell_unit(self.model_copy(update={"keys": ()}).score(seen), len(seen.after))

    def score(self, comparison: Comparison) -> Score:
        """Score the file; the detail has the minimal uniques by number of keys."""
        found = special_uniques(
            comparison.after,
            self._names(comparison),
            most=self.max_size,
            sampling_fraction=self.sampling_fraction,
            scoring=self.scoring,
            missing=self.missing,
        )
        names, records = found.cells.names, found.cells.records
        total = found.special if self.figure == "share" else float(found.dis.sum())
        value = total / records if records else 0.0
        most = min(self.max_size, len(names))
        sentence = (
            f"{found.special:,} of {plural(records, 'record is', 'records are')} unique in at most {most} of "
            f"{plural(len(names), 'key')}, "
            f"{found.sample_uniques:,} in all of them; the highest DIS score is {np.max(found.dis, initial=0.0):.3g}, "
            f"a unique match is correct with a chance of {found.file_dis:.3g}."
        )
        return self._score(value, self._complete_sentence(sentence, comparison, found.cells), names, found.by_size)
