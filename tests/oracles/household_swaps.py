"""Small files of persons in households in awkward areas, and what a swap of them may and must do, by brute force.

Written from the definitions alone, on dictionaries and texts: it shares no code with the product.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

_PROFILES: tuple[list[list[str]], ...] = (
    [],
    [["pa"]],
    [["pa", "pb"], ["pa"]],
    [["pa", "pb", "pc"], ["pb", "pc"], []],
    [["pa"], []],
)


def draw_case(seed: int) -> tuple[Microdata, dict[str, Any]]:
    """Return up to fourteen households in skewed, nested areas and a specification; codes may be missing or local."""
    rng = np.random.default_rng(seed)
    depth, number, local = int(rng.integers(1, 5)), int(rng.integers(2, 15)), bool(rng.random() < 0.2)
    power = 3 if rng.random() < 0.6 else 0
    fans = [1 / (np.arange(int(rng.integers(1, 4))) + 1.0) ** power for _ in range(depth)]
    sizes = rng.integers(1, 4, number) if rng.random() < 0.5 else np.ones(number, dtype=int)
    variables, levels = int(rng.integers(0, 3)), int(rng.integers(1, 4))
    communal = rng.random(number) < (0.2 if rng.random() < 0.3 else 0)
    lost = rng.random(number) < (0.2 if rng.random() < 0.3 else 0)
    rows = []
    for household in range(number):
        path = [str(rng.choice(len(fan), p=fan / fan.sum())) for fan in fans]
        codes: list[Any] = path if local else [".".join(path[: level + 1]) for level in range(depth)]
        if lost[household]:
            codes[int(rng.integers(0, depth))] = None
        kinds = [None if rng.random() < 0.03 else f"p{rng.integers(0, levels)}" for _ in range(3)]
        shared = [f"h{household}", *codes, *kinds, "c" if communal[household] else "n", f"g{household}"]
        for _ in range(int(sizes[household])):
            own = [None if rng.random() < 0.05 else f"v{rng.integers(0, levels)}" for _ in range(2)]
            rows.append([*shared, *own, rng.integers(0, 10) / 10])
    if rng.random() < 0.25:
        for place in rng.integers(0, len(rows), 3):
            rows.append([None, *rows[place][1 : depth + 1], *[None] * 3, "n", "gx", "v0", "v0", 0.9])
    names = ["hh", *(f"l{level}" for level in range(depth)), "pa", "pb", "pc", "com", "grid", "v0", "v1", "risk"]
    columns = zip(*(rows[row] for row in rng.permutation(len(rows))), strict=True)
    types = {"risk": pa.float64()}
    table = pa.table({n: pa.array(c, types.get(n, pa.string())) for n, c in zip(names, columns, strict=True)})
    kind = {"hh": Kind.HOUSEHOLD, "risk": Kind.NUMERIC}
    attributes = (
        Attribute(name=n, kind=Kind.GEOGRAPHY, geography_level=int(n[1:]))
        if n[0] == "l"
        else Attribute(name=n, kind=kind.get(n, Kind.NOMINAL))
        for n in names
    )
    spec: dict[str, Any] = {
        "method": "household_swap",
        "k": int(rng.integers(0, 5)),
        "risk_variables": [f"v{place}" for place in range(variables)],
        "similar": _PROFILES[rng.integers(0, len(_PROFILES))],
        "match_size": bool(rng.random() < 0.5),
        "partner": "near" if rng.random() < 0.5 else "risky",
        "crowd": int(rng.choice([0, 1, 2, 10])),
        "spread": int(rng.integers(0, 4)),
        "rate": float(rng.choice([0, 0, 0.1, 0.3, 0.5, 1])),
        "carry_along": ["grid"] if rng.random() < 0.4 else [],
        "geography_codes": "local" if local else "unique",
        "missing_household": "outside",
        "missing_geography": "immovable",
    }
    if rng.random() < 0.2:
        spec |= {"risk_variables": [], "risk": ["risk"], "threshold": float(rng.choice([0.0, 0.5, 0.8]))}
    if communal.any():
        units = "communal" if rng.random() < 0.3 else "households"
        spec |= {"communal": "com", "communal_values": ["c"], "units": units}
    return Microdata(table, Schema(name="small", attributes=tuple(attributes))), spec


class Definition:
    """What the definitions say of a file and a specification."""

    def __init__(self, data: Microdata, spec: dict[str, Any]) -> None:
        self.rows = data.table.to_pylist()
        self.levels = [name for name in data.attributes if name[0] == "l"]
        self.local = spec["geography_codes"] == "local"
        self.members: dict[str, list[int]] = defaultdict(list)
        for row, person in enumerate(self.rows):
            if person["hh"] is not None:
                self.members[person["hh"]].append(row)
        self.lost = {h for h, rows in self.members.items() if any(None in self._codes(row) for row in rows)}
        communal = {
            h for h, rows in self.members.items() if self.rows[rows[0]]["com"] in spec.get("communal_values", ())
        }
        units = communal if spec.get("units") == "communal" else set(self.members) - communal
        self.movable = sorted(units - self.lost)
        self.required = {h: self._topmost(h, spec) for h in self.movable}
        self.at_risk = [h for h in self.movable if self.required[h] < len(self.levels)]
        loosest = spec["similar"][-1] if spec["similar"] else []
        self.alike = {
            h: (*(self.rows[rows[0]][name] for name in loosest), len(rows) if spec["match_size"] else 0)
            for h, rows in self.members.items()
        }

    def _codes(self, row: int) -> list[Any]:
        return [self.rows[row][level] for level in self.levels]

    def area(self, household: str, level: int) -> Any:
        codes = self._codes(self.members[household][0])
        return tuple(codes[: level + 1]) if self.local else codes[level]

    def _cells(self, level: int, names: list[str]) -> list[Any]:
        return [
            None
            if None in self._codes(row) or person["hh"] in self.lost
            else (
                *(self._codes(row)[: level + 1] if self.local else [self._codes(row)[level]]),
                *map(person.get, names),
            )
            for row, person in enumerate(self.rows)
        ]

    def _topmost(self, household: str, spec: dict[str, Any]) -> int:
        members, names = self.members[household], spec["risk_variables"]
        if "risk" in spec:
            return 0 if any(self.rows[m]["risk"] >= spec["threshold"] for m in members) else len(self.levels)
        for level in range(len(self.levels) if names else 0):
            cells = self._cells(level, names)
            counts = Counter(cells)
            if any(counts[cells[m]] < spec["k"] for m in members):
                return level
        return len(self.levels)

    def may_swap(self, one: str, other: str) -> bool:
        level = min(self.required[one], self.required[other], len(self.levels) - 1)
        return self.alike[one] == self.alike[other] and self.area(one, level) != self.area(other, level)

    def most_covered(self) -> int:
        """Return how many households at risk the best of all pairings covers."""
        worth = [int(h in self.at_risk) for h in self.movable]
        allowed = {
            (i, j)
            for (i, one), (j, other) in combinations(enumerate(self.movable), 2)
            if worth[i] + worth[j] and self.may_swap(one, other)
        }

        @cache
        def best(free: int) -> int:
            if not free:
                return 0
            first = free.bit_length() - 1
            rest = free & ~(1 << first)
            pairs = (o for o in range(first) if rest >> o & 1 and (o, first) in allowed)
            return max([best(rest), *(worth[first] + worth[o] + best(rest & ~(1 << o)) for o in pairs)])

        return best((1 << len(self.movable)) - 1)

    def check(self, masked: Masked, spec: dict[str, Any]) -> dict[str, str]:
        """Check every pair and every record of the result; return the partner of each household that moved."""
        partner: dict[str, str] = {}
        for exchange in masked.audit.exchanges:
            for pair in exchange.pairs.tolist():
                one, other = (self.rows[row]["hh"] for row in pair)
                for a, b in ((one, other),) if exchange.directed else ((one, other), (other, one)):
                    assert partner.setdefault(a, b) == b
        for one, other in partner.items():
            assert partner[other] == one != other
            assert one in self.movable
            assert self.may_swap(one, other)
        moved = [*self.levels, *spec["carry_along"]]
        for row, found in enumerate(masked.data.table.to_pylist()):
            person = self.rows[row]
            source = self.rows[self.members[partner[person["hh"]]][0]] if person["hh"] in partner else person
            assert found == {**person, **{name: source[name] for name in moved}}
        return partner
