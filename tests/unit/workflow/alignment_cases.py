"""Random small files, masked by hand, and what becomes of their order and identifiers on the way to an assessment.

The oracle is plain Python on rows: it pairs records by a dictionary of identifiers and shares no code with the product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

Row = dict[str, Any]
What = Literal["shuffled", "subset", "renamed", "some renamed", "repeated"]
WHATS: tuple[What, ...] = ("shuffled", "subset", "renamed", "some renamed", "repeated")
KINDS = {"id": Kind.IDENTIFIER, "sex": Kind.NOMINAL, "area": Kind.NOMINAL, "income": Kind.NUMERIC}


@dataclass(frozen=True)
class Case:
    """A file, its masked version in the same order, and the masked version as it comes to be assessed."""

    what: What
    original: list[Row]
    masked: list[Row]
    given: list[Row]


def make_case(seed: int) -> Case:
    """A case; the same seed gives the same one."""
    rng = np.random.default_rng(seed)
    records = int(rng.integers(3, 25))
    ids = rng.permutation(10_000)[:records].tolist()
    original = [
        {"id": i, "sex": str(rng.choice(["m", "f"])), "area": int(rng.integers(3)), "income": float(rng.integers(50))}
        for i in ids
    ]
    masked = [dict(row) for row in original]
    for one, other in rng.permutation(records)[: 2 * int(rng.integers(0, records // 2 + 1))].reshape(-1, 2).tolist():
        for name in ("area", "income")[: int(rng.integers(1, 3))]:
            masked[one][name], masked[other][name] = masked[other][name], masked[one][name]
    what = WHATS[seed % len(WHATS)]
    given = [dict(masked[int(i)]) for i in rng.permutation(records)]
    if what == "subset":
        given = given[: int(rng.integers(1, records))]
    elif what == "renamed":
        given = [{**row, "id": 20_000 + place} for place, row in enumerate(given)]
    elif what == "some renamed":
        given[0] = {**given[0], "id": 20_000}
    elif what == "repeated":
        given[0] = {**given[0], "id": given[1]["id"]}
    return Case(what=what, original=original, masked=masked, given=given)


def aligned_by_hand(case: Case) -> list[Row] | None:
    """The given records in the order of the original, by a dictionary of identifiers; None where there is none."""
    by_id = {row["id"]: row for row in case.given}
    wanted = [row["id"] for row in case.original]
    if len(by_id) != len(case.given) or sorted(by_id) != sorted(wanted):
        return None
    return [by_id[i] for i in wanted]


def file_of(rows: list[Row], kinds: Mapping[str, Kind] = KINDS) -> Microdata:
    """The rows as a file."""
    table = pa.table({name: pa.array([row[name] for row in rows]) for name in kinds})
    return Microdata(table, Schema(attributes=tuple(Attribute(name=n, kind=kind) for n, kind in kinds.items())))
