"""Files with small cells and programmes of tables for SAFE, as awkward as agencies have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from safeswap.errors import InfeasibleError
from safeswap.methods.safe.records.method import Safe
from safeswap.methods.safe.spec import SafeSpec
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema


@st.composite
def any_safe_inputs(draw: st.DrawFn, files: st.SearchStrategy[Microdata]) -> tuple[Microdata, SafeSpec]:
    """A file and any programme of tables, with kept margins or without; it need not be possible."""
    data = draw(files)
    names = data.schema.categorical
    subsets = st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True).map(tuple)
    tables = draw(st.lists(subsets, min_size=1, max_size=3, unique_by=frozenset))
    keep = draw(st.just([]) | st.lists(subsets, max_size=2, unique_by=frozenset))
    return data, SafeSpec(
        tables=tuple(tables),
        keep=tuple(keep),
        tolerance=draw(st.integers(2, 6)),
        search=draw(st.sampled_from(["thorough", "quick"])),
    )


def is_possible(tried: tuple[Microdata, SafeSpec]) -> bool:
    """Tell whether the tables can be made safe: the quick search finds out, the thorough one only asks for less."""
    data, spec = tried
    try:
        Safe().apply(data, spec.replace(search="quick"), key=Key(bytes(range(32))))
    except InfeasibleError:
        return False
    return True


def safe_inputs(files: st.SearchStrategy[Microdata]) -> st.SearchStrategy[tuple[Microdata, SafeSpec]]:
    """Only programmes that can be made safe, since a refusal is all that the others have to show."""
    return any_safe_inputs(files).filter(is_possible)


def safe_example() -> tuple[Microdata, SafeSpec]:
    """Four hundred persons in two tables, some of whose cells are small."""
    rng = np.random.default_rng(23)
    table = pa.table(
        {
            "id": pa.array(rng.permutation(400) + 6_000_000_000),
            "Region": pa.array((rng.random(400) ** 2 * 8).astype(np.int8)),
            "Origin": pa.array(rng.choice(["a", "b", "c", None], 400, p=[0.6, 0.2, 0.15, 0.05])),
            "Sex": pa.array(rng.choice(["f", "m"], 400)).dictionary_encode(),
            "Age": pa.array((rng.random(400) ** 1.5 * 9).astype(np.int16)),
        }
    )
    kinds = {"id": Kind.IDENTIFIER, "Region": Kind.GEOGRAPHY, "Age": Kind.ORDINAL}
    attributes = tuple(Attribute(name=name, kind=kinds.get(name, Kind.NOMINAL)) for name in table.column_names)
    # Proving the fewest records takes a second; the suite masks this file some hundred times.
    spec = SafeSpec(tables=(("Region", "Origin"), ("Age", "Sex")), tolerance=4, keep=(("Sex",),), search="quick")
    return Microdata(table, Schema(name="inhabitants", attributes=attributes)), spec


def no_tables(spec: Any) -> SafeSpec:
    found: SafeSpec = spec.replace(tables=(), keep=())
    return found
