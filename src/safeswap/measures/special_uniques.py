"""Special uniques: records that are like no other in few keys already, and how much that tells an intruder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, prod
from typing import get_args

import numpy as np
import pyarrow as pa

from safeswap.errors import SpecError
from safeswap.kernels import suda
from safeswap.kernels.combinations import positions
from safeswap.kernels.types import Floats
from safeswap.measures.key_cells import KeyCells, key_cells
from safeswap.model.combination import Missing
from safeswap.model.microdata import Microdata
from safeswap.model.words import Scoring

MOST_SETS = 100_000


@dataclass(frozen=True, eq=False, repr=False)
class SpecialUniques:
    """Minimal sample uniques and scores, by cell; only a cell of a single record can have any.

    ``file_dis`` is the chance that a unique match between an intruder's record and the file is a correct one, by data
    intrusion simulation; ``dis`` spreads it over the records by their scores.
    """

    cells: KeyCells
    unique: suda.MinimalUniques
    scores: Floats
    dis: Floats
    file_dis: float
    sample_uniques: int
    weights: Floats

    @property
    def special(self) -> int:
        """How many records have a minimal unique."""
        return int(np.unique(self.unique.classes).size)

    def __repr__(self) -> str:
        return f"<SpecialUniques: {self.special:,} of {self.cells.records:,} records are one>"

    @property
    def by_size(self) -> pa.Table:
        """Minimal uniques by number of keys, and the records of which they are the smallest."""
        sizes = np.arange(1, self.weights.size)
        smallest = suda.smallest(self.unique, len(self.cells.classes))
        return pa.table(
            {
                "keys": sizes,
                "minimal_uniques": np.bincount(self.unique.sizes, minlength=self.weights.size)[1:],
                "records": np.bincount(smallest, minlength=self.weights.size)[1:],
            }
        )

    @property
    def by_key(self) -> pa.Table:
        """For each key in how many minimal uniques it is, and its share of the total score."""
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
        """For each set of keys that makes records unique, how many."""
        masks, counts = np.unique(self.unique.masks, return_counts=True)
        order = np.lexsort((masks, -counts))
        names = [[self.cells.names[j] for j in positions(int(mask))] for mask in masks[order]]
        return pa.table({"keys": pa.array(names, pa.list_(pa.string())), "minimal_uniques": counts[order]})

    def table(self, *, contributions: bool = False) -> pa.Table:
        """One row per record, in the order of the file; with the share of each key in its score. Confidential."""
        cells, of_record = len(self.cells.classes), self.cells.of_record
        columns = {
            "minimal_uniques": np.bincount(self.unique.classes, minlength=cells)[of_record],
            "smallest": suda.smallest(self.unique, cells)[of_record],
            "score": self.scores[of_record],
            "dis": self.dis[of_record],
        }
        if contributions:
            parts = (
                suda.key_totals(self.unique, cells, self.weights) / np.where(self.scores > 0, self.scores, 1)[:, None]
            )
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
    """Every minimal unique of up to ``most`` keys, the score of each record, and its DIS score.

    ``sampling_fraction`` is the share of the population that is in the file.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex"), Attribute(name="Town"), Attribute(name="Job")))
    >>> columns = {"Sex": ["f", "m", "m", "m"], "Town": ["a", "a", "b", "b"], "Job": ["x", "x", "x", "x"]}
    >>> special_uniques(Microdata(pa.table(columns), schema), ["Sex", "Town", "Job"]).table()["score"].to_pylist()
    [2.0, 1.0, 0.0, 0.0]
    """
    cells = key_cells(data, keys, missing=missing)
    weights = score_weights(len(cells.names), checked_size(most, len(cells.names)), scoring)
    unique = suda.minimal_uniques(cells.classes, most=weights.size - 1, missing=missing)
    scores = suda.totals(unique, len(cells.classes), weights)
    alone = int(np.count_nonzero(cells.like == 1))
    pairs = int(cells.members[cells.like == 2].sum())
    file_dis = intrusion(alone, pairs, sampling_fraction)
    dis = spread(scores, file_dis, alone, len(cells.names))
    return SpecialUniques(cells, unique, scores, dis, file_dis, alone, weights)


def checked_size(most: int, keys: int) -> int:
    """How many keys a minimal unique may have; refused where that cannot be, or leads to too many sets of keys."""
    if most < 1:
        raise SpecError("a unique has at least one key", code="bad-spec", hint="max_size=3")
    most = min(most, keys)
    if sum(comb(keys, size) for size in range(1, most + 1)) > MOST_SETS:
        raise SpecError(
            f"these are more than {MOST_SETS:,} sets of keys",
            code="too-many-combinations",
            hint="name fewer keys, or look for uniques of fewer keys",
        )
    return most


def score_weights(keys: int, most: int, scoring: Scoring) -> Floats:
    """What a minimal unique of k keys adds to the score, at place k; 0 at place 0.

    >>> score_weights(4, 3, "elliot").tolist(), score_weights(4, 3, "ihsn").tolist()
    ([0.0, 6.0, 2.0, 1.0], [0.0, 1.75, 0.5, 0.25])
    """
    if scoring not in get_args(Scoring):
        raise SpecError(
            f"there is no scoring {scoring!r}", code="bad-spec", hint="one of: " + ", ".join(get_args(Scoring))
        )
    if scoring == "ihsn":
        # A unique of all keys says nothing that the record's being unique does not say: its weight is 0.
        return np.array([0.0, *((2.0 ** (keys - k) - 1) / comb(keys, k) for k in range(1, most + 1))])
    last = min(most, keys - 1)
    return np.array([0.0, *(float(prod(keys - i for i in range(k, last + 1))) for k in range(1, most + 1))])


def intrusion(uniques: int, in_pairs: int, sampling_fraction: float) -> float:
    """The chance that a unique match is correct: U π / (U π + P (1 − π)), with P the records in pairs.

    >>> round(intrusion(4, 6, 0.01), 6)
    0.006689
    """
    if not 0 < sampling_fraction <= 1:
        raise SpecError(
            "the sampling fraction lies above 0 and is at most 1", code="bad-fraction", hint="sampling_fraction=0.05"
        )
    expected = uniques * sampling_fraction
    return expected / (expected + in_pairs * (1 - sampling_fraction)) if uniques else 0.0


def spread(scores: Floats, file_dis: float, uniques: int, keys: int) -> Floats:
    """The DIS score of each cell: 1 / (1 + U (1/DIS − 1) / (s^g Σ s^−g)) with g = 1 + (8 − keys) / 20.

    The sum is over all records with a score; a record without has none. The exponent g was found by trial for a dozen
    keys or so; it would be negative for more than 28 and is kept at 1/20 or above, so that more score is more risk.
    """
    found = np.zeros_like(scores)
    some = scores > 0
    if file_dis > 0 and some.any():
        # Logarithms, since scores of many keys are factorials.
        steepness = max(1 + (8 - keys) / 20, 1 / 20)
        logs = steepness * np.log(scores[some])
        factor = np.exp(logs - logs.min()) * np.exp(logs.min() - logs).sum()
        found[some] = 1 / (1 + uniques * (1 / file_dis - 1) / factor)
    return found
