"""What comparing two releases of the same records would tell, counted on the confidential records of both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from safeswap.io.audit import AUDIT, read_audit
from safeswap.model.audit import Audit
from safeswap.model.equality import aligned_columns, different
from safeswap.model.ledger import Entry, Likeness, digest_columns
from safeswap.model.masked import Masked
from safeswap.model.several import several
from safeswap.model.undo import replay


@dataclass(frozen=True, kw_only=True)
class Differencing:
    """An earlier release of the same records, and what somebody who compares the two sees.

    ``differ`` is None where the two cannot be laid side by side: the records were in another order, or values or
    columns have changed. ``touched_earlier`` is None where the audit record of the earlier release is not at hand.
    """

    likeness: Likeness
    touched_now: int
    touched_earlier: int | None = None
    differ: int | None = None

    @property
    def earlier(self) -> str:
        """The name of the earlier release."""
        return self.likeness.release

    @property
    def sentence(self) -> str:
        """The finding in words."""
        return f"{self.likeness.sentence} {self._figures}"

    @property
    def _figures(self) -> str:
        if self.touched_earlier is None:
            return "Its audit record is not at hand, so what comparing the two would show cannot be counted."
        if self.differ is None:
            most = self.touched_earlier + self.touched_now
            return f"Comparing this release with it would show up to {several(most, 'exchanged record')}."
        if self.differ == 0:
            return "This release has the same values: it tells nothing more, in another form."
        return (
            f"Comparing this release with it shows {several(self.differ, 'record')} with different values: each was "
            f"exchanged in one of the two ({self.touched_earlier:,} then, {self.touched_now:,} now), and the records "
            "in which both agree are very likely true."
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "earlier": self.earlier,
            "share": round(self.likeness.share, 3),
            "side": self.likeness.side,
            "identifiers": round(self.likeness.identifiers, 3),
            "touched_earlier": self.touched_earlier,
            "touched_now": self.touched_now,
            "differ": self.differ,
            "sentence": self.sentence,
        }


def difference(masked: Masked, likeness: Likeness, earlier: Entry, *, secret: bytes) -> Differencing:
    """What comparing a new release with an earlier one would tell."""
    touched_now = int(np.count_nonzero(masked.audit.touched()))
    directory = Path(earlier.record)
    if not earlier.record or not (directory / AUDIT).is_file():
        return Differencing(likeness=likeness, touched_now=touched_now)
    audit = read_audit(directory)
    same_rows = dict(earlier.columns) == digest_columns(masked.original, tuple(earlier.columns), secret)
    return Differencing(
        likeness=likeness,
        touched_now=touched_now,
        touched_earlier=int(np.count_nonzero(audit.touched())),
        differ=_count_differing(masked, audit) if same_rows and audit.records == len(masked.original) else None,
    )


def _count_differing(masked: Masked, earlier: Audit) -> int:
    then = replay(masked.original, earlier.exchanges)
    flags = np.zeros(len(then), dtype=np.bool_)
    exchanges = (*earlier.exchanges, *masked.audit.exchanges)
    for name in {name for exchange in exchanges for name in exchange.attributes}:
        flags |= different(*aligned_columns(then.table.column(name), masked.data.table.column(name)))
    for replacement in (*earlier.replacements, *masked.audit.replacements):
        flags[replacement.rows] = True  # what stood there after the earlier masking is not kept: taken to differ
    return int(np.count_nonzero(flags))
