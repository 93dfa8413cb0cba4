"""How local suppression is tried out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from safeswap.methods.suppress.method import Suppress, SuppressSpec
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema


def is_possible(tried: tuple[Microdata, SuppressSpec]) -> bool:
    return Suppress().plan(*tried).is_feasible


@st.composite
def suppress_specs(draw: st.DrawFn, data: Microdata) -> SuppressSpec:
    """Lists of any shape, tolerances of their own, some attributes dearer than others, some kept."""
    names = draw(st.permutations(data.schema.categorical))[:4]
    tolerances = st.integers(1, min(4, len(data)))
    some = st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)
    up_to = draw(st.none() | st.integers(1, min(3, len(names))))
    keys = {"keys": names, **({} if up_to is None else {"up_to": up_to})}
    lists = draw(st.lists(st.tuples(some, st.none() | tolerances), min_size=1, max_size=3))
    combinations = [{"keys": chosen, **({"tolerance": q} if q else {})} for chosen, q in lists]
    stated: dict[str, Any] = draw(st.sampled_from([keys, {"combinations": combinations}]))
    spec = SuppressSpec(
        tolerance=draw(tolerances),
        missing=draw(st.sampled_from(["none", "own", "any", "vouching"])),
        solver=draw(st.sampled_from(["optimal", "optimal", "greedy"])),
        **stated,
    )
    kept = tuple(name for name in spec.names[1:] if draw(st.integers(0, 4)) == 0)
    return spec.replace(keep=kept, importance={spec.names[0]: draw(st.sampled_from([0.5, 1.0, 3.0]))})


def suppress_inputs(files: st.SearchStrategy[Microdata]) -> st.SearchStrategy[tuple[Microdata, SuppressSpec]]:
    """A file and a specification that it can satisfy."""
    return files.flatmap(lambda data: st.tuples(st.just(data), suppress_specs(data))).filter(is_possible)


def suppress_example() -> tuple[Microdata, SuppressSpec]:
    """Twelve towns with a rare job each: it is blanked, and with it that of a neighbour, whom the key chooses."""
    towns = np.repeat(np.arange(12), 31)
    jobs = np.where(np.arange(12 * 31) % 31 == 0, 100 + towns, 0)
    order = np.random.default_rng(23).permutation(towns.size)
    table = pa.table(
        {
            "id": pa.array(np.arange(towns.size) + 6_000_000_000),
            "Town": pa.array([f"town {i:02d}" for i in towns[order]]).dictionary_encode(),
            "Job": pa.array(jobs[order].astype(np.int16)),
        }
    )
    kinds = {"id": Kind.IDENTIFIER, "Town": Kind.GEOGRAPHY}
    attributes = tuple(Attribute(name=name, kind=kinds.get(name, Kind.NOMINAL)) for name in table.column_names)
    spec = SuppressSpec(combinations=[("Town", "Job")], tolerance=2, missing="own", importance={"Town": 3})
    return Microdata(table, Schema(name="workers", attributes=attributes)), spec


def everything_safe(spec: SuppressSpec) -> SuppressSpec:
    lists = tuple({"keys": each.keys} for each in spec.combinations)
    return spec.replace(tolerance=1, combinations=lists)
