"""Find a person's record.

By the keys: the intruder has the keys of everyone, and links them to the release. Or by what was left as it was:
numbers that are all different, and rare combinations.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from safeswap.arrays.compiled import is_worth_compiling, njit
from safeswap.arrays.types import Floats, Int64s
from safeswap.attacks.base import Outcome, Setting, Skipped
from safeswap.model.columns import to_numbers
from safeswap.model.microdata import Microdata
from safeswap.model.text import list_names, plural

_MOST_PAIRS = 4_000_000
"""Maximum number of pairs that are weighed by Fellegi and Sunter."""

_PASSES = 4
"""Cost of linking records in NumPy, in simple passes."""


class Linkage:
    """Link by the scenario's keys to the records that agree in all of them, one at random among equals.

    The intruder has the true keys of everyone, which is the worst case. A number counts as a level of its own. Who
    finds no record that agrees takes any record.
    """

    name: ClassVar[str] = "linkage"
    title: ClassVar[str] = "Find a person's record by the keys"
    intruder: ClassVar[str] = "the true keys of every person"
    quick: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"original", "scenario"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Link everyone; count correct links, precision on uniques, and P(claimed match true)."""
        assert setting.scenario is not None  # noqa: S101  (a need)
        before, after = setting.cells(setting.scenario.keys)
        return link_cells(self.name, before, after, f"by {list_names(setting.scenario.keys)}")


def link_cells(name: str, before: Int64s, after: Int64s, how: str) -> Outcome:
    """Link every original record to the released ones of its cell."""
    records = len(before)
    size = np.bincount(after, minlength=int(before.max(initial=0)) + 1)
    if is_worth_compiling(_PASSES * records):
        right: Floats = np.empty(records)
        claimed, true = _link(before, after, size, right)
    else:
        alike, own = size[before], before == after
        right = np.where(own, 1 / np.maximum(alike, 1), 0.0) + (alike == 0) / records
        claimed, true = (int(np.count_nonzero(each)) for each in (alike == 1, (alike == 1) & own))
    precision = true / max(claimed, 1)
    unique = f"of {claimed:,} that seem unique, {precision:.1%} are the person's own"
    found = f"are found {how}; {unique if claimed else 'none seems unique'}"
    detail = {"claimed": claimed, "claimed_true": true, "precision_on_uniques": precision}
    return judge_links(name, right, found, **detail)


@njit(cache=True, nogil=True)
def _link(before, after, size, right):  # type: ignore[no-untyped-def]
    """Fill each record's chance of being found; return how many cells are unique, and how many of these are true."""
    claimed, true = 0, 0
    for i in range(before.size):
        alike, is_own = size[before[i]], before[i] == after[i]
        right[i] = (1 / max(alike, 1) if is_own else 0.0) + (1 / before.size if alike == 0 else 0.0)
        claimed += alike == 1
        true += alike == 1 and is_own
    return claimed, true


def judge_links(name: str, right: Floats, found: str, **detail: Any) -> Outcome:
    """Return the outcome of linking every record, given the chance of each to be linked to its own."""
    return Outcome(
        attack=name,
        success=float(right.mean()),
        baseline=1 / len(right),
        trials=len(right),
        against="naming any record",
        sentence=f"{right.mean():.2%} of the records {found}.",
        detail={**detail, "correct_links": float(right.sum()), "records": len(right)},
    )


class NearestRecord:
    """Link by numeric keys to the nearest released record, each key in units of its deviation.

    The intruder has the true numbers of everyone.
    """

    name: ClassVar[str] = "nearest_record"
    title: ClassVar[str] = "Find a person's record by the nearest numbers"
    intruder: ClassVar[str] = "the true numeric keys of every person"
    quick: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"original", "scenario"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Link every released record to the nearest original one."""
        assert setting.scenario is not None  # noqa: S101  (a need)
        keys = setting.scenario.numeric
        if not keys:
            return Skipped(attack=self.name, reason="needs numeric keys")
        before, after = (
            np.column_stack([to_numbers(d, k) for k in keys]) for d in (setting.original, setting.released)
        )
        known = np.isfinite(before).all(axis=1) & np.isfinite(after).all(axis=1)
        if not known.any():
            return Skipped(attack=self.name, reason="no record has all numeric keys")
        nearest, ties = _nearest(before[known], after[known])
        right = np.where(nearest, 1 / ties, 0.0)
        return judge_links(self.name, right, f"are nearest to their own original by {list_names(keys)}")


_ROUNDING = 1e-12


def _nearest(archive: Floats, queries: Floats) -> tuple[Any, Int64s]:
    """Return whether no other original is nearer than a record's own, and how many are equally near."""
    from scipy.spatial import cKDTree

    scale = archive.std(axis=0)
    scale[scale == 0] = 1.0
    archive, queries = archive / scale, queries / scale
    tree = cKDTree(archive)
    own = np.sqrt(((queries - archive) ** 2).sum(axis=1))
    # Equal distances differ by rounding, which depends on the order of the records.
    reach = own + _ROUNDING * (own + max(np.abs(archive).max(), np.abs(queries).max()))
    near = own <= tree.query(queries)[0] + (reach - own)
    ties = tree.query_ball_point(queries, reach, return_length=True)
    return near, np.maximum(np.asarray(ties, dtype=np.int64), 1)


class FellegiSunter:
    """Link by match weights: the best weight names the record. A difference in one key need not spoil a link.

    The worst case: the intruder has the true keys of everyone, and weights counted over the true pairs, which nobody
    but the agency has. On a small file such weights fit by chance: a tiny advantage need not be one.
    """

    name: ClassVar[str] = "fellegi_sunter"
    title: ClassVar[str] = "Find a person's record by match weights"
    intruder: ClassVar[str] = "the true keys of every person, and how often each key agrees"
    quick: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"original", "scenario"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Weigh all pairs of a small file."""
        from importlib.util import find_spec

        assert setting.scenario is not None  # noqa: S101  (a need)
        if len(setting.released) ** 2 > _MOST_PAIRS:
            return Skipped(attack=self.name, reason=f"compares up to {_MOST_PAIRS:,} pairs of records")
        if find_spec("splink") is None:
            return Skipped(attack=self.name, reason="needs the extra safeswap[linkage]")
        from safeswap.measures.plot.fellegi_sunter import fellegi_sunter_plot

        known = setting.comparison.recoded or setting.original  # the intruder sees how the release was recoded
        plot = fellegi_sunter_plot(known, setting.released, setting.scenario.keys)
        right = np.where(plot.nearest_true, 1 / np.maximum(plot.ties, 1), 0.0)
        return judge_links(self.name, right, "get the largest weight with their own original")


_SAMPLE = 2000
_DISTINCT = 0.5
"""Least number of distinct values per record that makes a column worth joining on."""


class DistinctNumbers:
    """Join on one column that is different in most records. The intruder has that column, with names, elsewhere."""

    name: ClassVar[str] = "distinct_numbers"
    title: ClassVar[str] = "Join on a column that is different in most records"
    intruder: ClassVar[str] = "one untouched column with names"
    quick: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"original"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Join on every such column that is not a key; the one that joins most counts."""
        keys = setting.scenario.keys if setting.scenario is not None else ()
        names = [name for name in setting.names if name not in keys and _is_distinct(setting.released, name)]
        if not names:
            return Skipped(attack=self.name, reason="no column is different in most records")
        found = [link_cells(self.name, *setting.cells((name,)), f"by {name} alone") for name in names]
        return max(found, key=lambda outcome: outcome.advantage)


def _is_distinct(data: Microdata, name: str) -> bool:
    """Return whether most values are different, from a sample first: coding a column of numbers takes time."""
    rows = np.unique(np.linspace(0, len(data) - 1, _SAMPLE).astype(np.int64))
    sample = data.table.column(name).take(pa.array(rows))
    if len(sample.unique()) < _DISTINCT * len(sample):
        return False
    return len(rows) == len(data) or data.coded(name).cardinality >= _DISTINCT * len(data)


class UnusualCombinations:
    """Link by attributes that are not keys: all categorical ones outside the scenario's keys that were left unchanged.

    The intruder has a file with just these attributes, and names.
    """

    name: ClassVar[str] = "unusual_combinations"
    title: ClassVar[str] = "Link by untouched attributes that are not keys"
    intruder: ClassVar[str] = "the attributes that are not keys, with names"
    quick: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"original", "scenario"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Link everyone by the combination."""
        assert setting.scenario is not None  # noqa: S101  (a need)
        kept = [name for name in setting.names if name not in setting.scenario.keys and name not in setting.changed]
        names = [name for name in kept if setting.released.schema[name].kind.is_categorical]
        if not names:
            return Skipped(attack=self.name, reason="no categorical attribute outside the keys was left as it was")
        return link_cells(self.name, *setting.cells(names), f"by {plural(len(names), 'attribute')} outside the keys")
