"""The share of records that masking changed."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from safeswap.measures.aligned import require_same_records
from safeswap.measures.base import Situation
from safeswap.measures.utility.base import DistortionMeasure
from safeswap.model.columns import aligned_columns, flag_changes
from safeswap.model.schema import Kind
from safeswap.model.score import Comparison, Score


class ShareChanged(DistortionMeasure):
    """The share of records that differ from the original in at least one of the attributes, record by record.

    >>> ShareChanged(attributes=("Race",)).text
    'share_changed:attributes=Race'
    """

    name: ClassVar[str] = "share_changed"
    title: ClassVar[str] = "share of records changed"
    default_for: ClassVar[frozenset[Situation]] = frozenset({"categories", "numbers"})
    sources: ClassVar[tuple[str, ...]] = (
        "Gomatam & Karr (2003), section 2: a true swap changes the record, a false one does not",
    )

    def score(self, comparison: Comparison) -> Score:
        """Score the masking; the detail has one row per attribute."""
        require_same_records(comparison)
        names = self._names(comparison) if self._is_stated(comparison) else _all_columns(comparison)
        anywhere = np.zeros(len(comparison.before), dtype=np.bool_)
        shares = []
        for name in names:
            columns = (side.table.column(name) for side in (comparison.before, comparison.after))
            differs = flag_changes(*aligned_columns(*columns))
            anywhere |= differs
            shares.append(_share(differs))
        value = _share(anywhere)
        among = f" of {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" if self._is_stated(comparison) else ""
        sentence = f"{value:.2%} of the records differ from the original in at least one attribute{among}."
        detail = pa.table({"attribute": list(names), "value": pa.array(shares, pa.float64())})
        return self._score(value, sentence, names, detail)

    def _is_stated(self, comparison: Comparison) -> bool:
        """Return whether attributes were stated; else all columns count, also numbers, since no cells are formed."""
        default = comparison.before.schema.categorical
        return bool(self.attributes) or comparison.attributes not in ((), default)


def _all_columns(comparison: Comparison) -> tuple[str, ...]:
    known = comparison.after.schema
    return tuple(
        a.name for a in comparison.before.schema.attributes if a.kind is not Kind.IDENTIFIER and a.name in known
    )


def _share(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    return float(np.count_nonzero(flags) / flags.size) if flags.size else 0.0
