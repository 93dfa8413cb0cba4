"""The promise that no combination below tolerance is left as it was without being counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.model.equality import bitwise, means_bits
from safeswap.model.evidence import Evidence
from safeswap.model.invariant import Invariant, Names

LEFT = "left"
"""The fact of an audit that counts the combinations below tolerance in which no record changed."""


@dataclass(frozen=True)
class TreatedClasses(Invariant):
    """Every combination of the keys with fewer records than the tolerance has a record that changed, or is counted.

    Combinations are counted anew from the columns of the file before, without the code that sorted it.
    """

    keys: Names
    tolerance: int

    @property
    def sentence(self) -> str:
        """What is promised."""
        return (
            f"Every combination of {', '.join(self.keys)} with fewer than {self.tolerance:,} records has a record that "
            "was changed, or is counted as left in the audit record."
        )

    def problem(self, evidence: Evidence) -> str:
        """How many are left, where that is not what the audit says."""
        left = self._left(evidence)
        stated = evidence.audit.facts.get(LEFT)
        if left == stated:
            return ""
        return f"{left:,} combinations below tolerance have no changed record, the audit record counts {stated}"

    def _left(self, evidence: Evidence) -> int:
        changed = np.zeros(len(evidence.before), dtype=np.bool_)
        for name in evidence.before.attributes:
            flags = evidence.changed(name)
            if flags is not None:
                changed |= flags
        columns = {f"k{i}": _codes(evidence.before.table.column(name)) for i, name in enumerate(self.keys)}
        table = pa.table({**columns, "changed": pa.array(changed)})
        classes = table.group_by(list(columns)).aggregate([("changed", "count"), ("changed", "any")])
        small = pc.less(classes["changed_count"], self.tolerance)
        return pc.sum(pc.and_(small, pc.invert(classes["changed_any"]))).as_py() or 0


def _codes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Small integers that are equal where the values are, to the bit; missing stays missing."""
    if pa.types.is_dictionary(column.type) and means_bits(column):
        return pa.chunked_array([chunk.indices.cast(pa.int32()) for chunk in column.chunks], type=pa.int32())
    encoded = bitwise(column).dictionary_encode().unify_dictionaries()
    return pa.chunked_array([chunk.indices for chunk in encoded.chunks], type=pa.int32())
