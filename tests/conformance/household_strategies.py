"""Files of persons in households in nested areas, and specifications of the swap of households."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from safeswap.methods.household_swap.spec import HouseholdSwapSpec
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema


def persons(
    seed: int, households: int, *, depth: int = 3, fan: int = 3, identified: bool = True, kinds: str = "text"
) -> Microdata:
    """Households of one to four persons in nested areas, rows shuffled; minorities live in some areas only."""
    rng = np.random.default_rng(seed)
    path = np.cumsum(rng.integers(0, fan, (households, depth)) * fan ** np.arange(depth - 1, -1, -1), axis=1)
    path = np.array([[int("1" + "0" * level) + 7 * code for level, code in enumerate(row)] for row in path])
    path = path.reshape(households, depth)
    size = rng.integers(1, 5, households)
    rows = rng.permutation(np.repeat(np.arange(households), size))
    number = rng.permutation(households) * 13 + 5
    origin = np.minimum(rng.geometric(0.5, len(rows)), 5) - 1
    columns: dict[str, Any] = {
        "id": pa.array(rng.permutation(len(rows)) + 1_000),
        "hh": pa.array(number[rows]) if kinds == "numbers" else pa.array([f"h{n}" for n in number[rows]]),
        "origin": pa.array([f"o{code}" for code in origin]),
        "age": pa.array(rng.integers(0, 3, len(rows)).astype(np.int8)),
        "tenure": pa.array(rng.choice(["own", "rent", "other"], households)[rows]),
        "kind": pa.array(rng.integers(0, 2, households)[rows]),
        "grid": pa.array((rng.random(households) * 100)[rows]),
    }
    for level in range(depth):
        codes = pa.array([f"a{code}" for code in path[rows, level]])
        columns[f"level{level}"] = codes.dictionary_encode() if level == 1 else codes
    known = {"id": Kind.IDENTIFIER, "hh": Kind.HOUSEHOLD, "grid": Kind.NUMERIC, "age": Kind.ORDINAL}
    attributes = [
        Attribute(name=n, kind=Kind.GEOGRAPHY, geography_level=int(n[5:]))
        if n.startswith("level")
        else Attribute(name=n, kind=known.get(n, Kind.NOMINAL))
        for n in columns
        if identified or n != "id"
    ]
    table = pa.table({attribute.name: columns[attribute.name] for attribute in attributes})
    return Microdata(table, Schema(name="population", attributes=tuple(attributes)))


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Microdata, HouseholdSwapSpec]:
    """A small population with at least two areas, and any specification."""
    depth = draw(st.integers(1, 3))
    data = persons(
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(8, 40)),
        depth=depth,
        fan=draw(st.integers(2, 3)),
        identified=draw(st.booleans()),
        kinds=draw(st.sampled_from(["text", "numbers"])),
    )
    if len(set(data.table.column(f"level{depth - 1}").to_pylist())) < 2:
        data = persons(1, 30, depth=depth)
    spec = HouseholdSwapSpec(
        risk_variables=draw(st.sampled_from([("origin",), ("origin", "age"), ()])),
        k=draw(st.integers(0, 4)),
        similar=draw(st.sampled_from([(), (("tenure",),), (("tenure", "kind"), ("kind",)), (("kind",), ())])),
        rate=draw(st.floats(0, 1)),
        over_rate=draw(st.sampled_from(["swap", "riskiest"])),
        partner=draw(st.sampled_from(["risky", "near"])),
        crowd=draw(st.integers(0, 10)),
        spread=draw(st.integers(0, 3)),
        rounds=draw(st.integers(1, 3)),
        carry_along=draw(st.sampled_from([(), ("grid",)])),
        match_size=draw(st.integers(0, 4)) > 0,
    )
    return data, spec


def example() -> tuple[Microdata, HouseholdSwapSpec]:
    """A few hundred households of which a fifth is swapped."""
    return persons(3, 400), HouseholdSwapSpec(
        risk_variables=("origin", "age"), similar=(("tenure", "kind"), ("tenure",)), rate=0.2, carry_along=("grid",)
    )


def nothing_asked(spec: HouseholdSwapSpec) -> HouseholdSwapSpec:
    """Return the specification with nobody at risk and a rate of nothing."""
    return spec.replace(rate=0.0, k=0)
