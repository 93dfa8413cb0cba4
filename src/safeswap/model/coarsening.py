"""Whether a column says the same as before in fewer words."""

from __future__ import annotations

import numpy as np

from safeswap.kernels.types import Int64s
from safeswap.model.levels import level_texts
from safeswap.model.microdata import Microdata

_DENSE = 1 << 22


def coarsening(before: Microdata, after: Microdata, name: str) -> Int64s | None:
    """For each code before (missing last) its code after, where each value became one value and that is a recoding.

    A recoded attribute is described anew: other levels, or another kind. Values that were blanked in some records do
    not count against it. None where the description is the same, where one value became several, or where values only
    changed places.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> ages = (("17", "18", "40"), ("<20", "20+"))
    >>> described = [Schema(attributes=(Attribute(name="Age", levels=levels),)) for levels in ages]
    >>> fine = Microdata(pa.table({"Age": ["17", "18", "40"]}), described[0])
    >>> coarse = Microdata(pa.table({"Age": ["<20", "<20", None]}), described[1])
    >>> coarsening(fine, coarse, "Age").tolist(), coarsening(fine, fine, "Age")
    ([0, 0, 1, 1], None)
    """
    if len(before) != len(after) or name not in after.schema or before.schema[name] == after.schema[name]:
        return None
    old, new = before.coded(name), after.coded(name)
    olds, news = set(level_texts(old.levels)), set(level_texts(new.levels))
    missing = len(new.levels)
    then, now = _pairs(old.codes.astype(np.int64), new.codes.astype(np.int64), missing + 1)
    seen = now < missing
    if len(np.unique(then[seen])) < np.count_nonzero(seen):
        return None
    if news == olds and len(np.unique(now[seen])) == np.count_nonzero(seen):
        return None
    lookup = np.full(len(old.levels) + 1, missing, dtype=np.int64)
    lookup[then[seen]] = now[seen]
    return lookup


def _pairs(then: Int64s, now: Int64s, radix: int) -> tuple[Int64s, Int64s]:
    """The pairs of codes that occur."""
    codes = then * radix + now
    possible = int(codes.max(initial=0)) + 1
    found = np.flatnonzero(np.bincount(codes, minlength=possible)) if possible <= _DENSE else np.unique(codes)
    old, new = np.divmod(found, radix)
    return old, new
