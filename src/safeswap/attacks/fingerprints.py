"""Recognise a record by what was left as it was: numbers that are all different, and rare combinations."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from safeswap.attacks.base import Outcome, Setting, Skipped
from safeswap.attacks.linkage import link_cells
from safeswap.model.microdata import Microdata
from safeswap.model.text import plural

_SAMPLE = 2000
_DISTINCT = 0.5
"""A column with so many distinct values per record is worth joining on."""


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
    """Link by what is no key: all categorical attributes outside the scenario's keys that were left as they were.

    The intruder has a file with just these attributes, and names.
    """

    name: ClassVar[str] = "unusual_combinations"
    title: ClassVar[str] = "Link by untouched attributes that are no keys"
    intruder: ClassVar[str] = "the attributes that are no keys, with names"
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
