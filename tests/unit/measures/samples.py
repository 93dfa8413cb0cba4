"""Small files for the tests of measures, and swaps of them that need no method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.score import Comparison

LEVELS = ("low", "middle", "high", "top")


def microdata(columns: Mapping[str, Sequence[Any]], **kinds: str) -> Microdata:
    """A file whose columns are nominal unless said otherwise; ordinal ones have the order of LEVELS."""
    attributes = tuple(
        Attribute(
            name=name,
            kind=Kind(kinds.get(name, "nominal")),
            levels=LEVELS if kinds.get(name) == "ordinal" else (),
        )
        for name in columns
    )
    return Microdata(
        pa.table({name: pa.array(values) for name, values in columns.items()}), Schema(attributes=attributes)
    )


def compare(before: Mapping[str, Sequence[Any]], after: Mapping[str, Sequence[Any]], **kinds: str) -> Comparison:
    """Both files over all categorical attributes; a record that differs anywhere was touched."""
    first, second = microdata(before, **kinds), microdata(after, **kinds)
    differs = [[x != y for x, y in zip(before[name], after[name], strict=True)] for name in before]
    return Comparison(
        before=first,
        after=second,
        attributes=first.schema.categorical,
        touched=np.any(np.array(differs, dtype=np.bool_), axis=0),
    )


@st.composite
def swapped_files(draw: st.DrawFn) -> Comparison:
    """A file of four attributes of which "edu" (ordinal) was exchanged between some pairs of records."""
    records = draw(st.integers(2, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    before: dict[str, list[Any]] = {
        "sex": rng.choice(["m", "f"], records).tolist(),
        "edu": rng.choice(LEVELS, records).tolist(),
        "area": [None if x == 0 else int(x) for x in rng.integers(0, 4, records)],
        "race": rng.choice(["a", "b", "c"], records).tolist(),
    }
    order = rng.permutation(records)[: 2 * draw(st.integers(0, records // 2))].reshape(-1, 2)
    edu = list(before["edu"])
    for i, j in order.tolist():
        edu[i], edu[j] = edu[j], edu[i]
    return compare(before, {**before, "edu": edu}, edu="ordinal")
