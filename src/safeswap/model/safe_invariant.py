"""The promise that a table has no small cell."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from safeswap.kernels.types import Names
from safeswap.model.equality import bitwise
from safeswap.model.evidence import Evidence
from safeswap.model.invariant import Invariant
from safeswap.model.several import several


@dataclass(frozen=True)
class SafeCells(Invariant):
    """In the file after masking no combination of these attributes has fewer records than the tolerance.

    Counted anew from the columns of the file, without the code that changed it. Values are told apart to the bit.
    """

    attributes: Names
    tolerance: int

    @property
    def sentence(self) -> str:
        """What is promised."""
        return f"Every cell of the table by {', '.join(self.attributes)} is 0 or at least {self.tolerance:,}."

    def problem(self, evidence: Evidence) -> str:
        """The number of cells that are small."""
        columns = {f"k{i}": _codes(evidence.after.table.column(name)) for i, name in enumerate(self.attributes)}
        counted = pa.table(columns).group_by(list(columns)).aggregate([([], "count_all")])
        small = pc.sum(pc.less(counted["count_all"], self.tolerance)).as_py() or 0
        names = ", ".join(self.attributes)
        too_small = several(small, f"cell by {names} has", f"cells by {names} have")
        return f"{too_small} fewer than {self.tolerance:,} records" if small else ""

    def for_users_of(self, names: Names) -> Invariant | None:
        """The table by those of the attributes that are released: its cells are sums of safe ones."""
        left = tuple(name for name in self.attributes if name in names)
        return SafeCells(left, self.tolerance) if left else None


def _codes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Integers that are equal where the values are; of a dictionary whose entries are distinct, its own."""
    if pa.types.is_dictionary(column.type) and column.num_chunks:
        column = column.unify_dictionaries()
        levels = bitwise(pa.chunked_array([column.chunk(0).dictionary]))
        if not levels.null_count and len(levels.unique()) == len(levels):
            return pa.chunked_array([chunk.indices for chunk in column.chunks])
    encoded = bitwise(column).dictionary_encode().unify_dictionaries()
    return pa.chunked_array([chunk.indices for chunk in encoded.chunks], type=pa.int32())
