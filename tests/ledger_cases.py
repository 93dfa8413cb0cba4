"""Pairs of files on which the ledger is tried: what must be recognised, what must not, and what cannot be.

The population is a mixture of latent classes: each class has level probabilities of its own for every categorical
column, numbers that depend on the class, heaping and missing values. Two people are alike only as far as their class
makes them so; no column identifies anybody on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

CLASSES = 12
LEVELS = {
    "sex": 2,
    "marital": 5,
    "education": 8,
    "industry": 21,
    "occupation": 120,
    "tenure": 4,
    "born_in": 60,
    "town": 300,
    "health": 5,
    "car": 3,
    "language": 12,
}
Columns = dict[str, np.ndarray]


class Population:
    """A country from which samples are drawn."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 77])
        self.classes = rng.dirichlet(np.full(CLASSES, 2.0))
        self.levels = {
            name: np.cumsum(rng.dirichlet(np.full(size, 0.6), CLASSES), axis=1) for name, size in LEVELS.items()
        }
        self.income, self.birth = rng.normal(10, 0.5, CLASSES), rng.integers(1940, 2000, CLASSES)

    def draw(self, records: int, rng: np.random.Generator) -> Columns:
        """Independent people."""
        kind = rng.choice(CLASSES, records, p=self.classes)
        columns: Columns = {}
        for name, edges in self.levels.items():
            drawn, codes = rng.random(records), np.empty(records, dtype=np.int64)
            for each in range(CLASSES):
                codes[kind == each] = np.searchsorted(edges[each, :-1], drawn[kind == each])
            columns[name] = np.char.add(name[:2].upper(), codes.astype(str))
        columns["region"] = np.char.add("R", (np.char.lstrip(columns["town"], "TO").astype(int) // 34).astype(str))
        columns["birth"] = self.birth[kind] + np.rint(rng.normal(0, 9, records)).astype(int)
        columns["income"] = np.rint(np.exp(rng.normal(self.income[kind], 0.7)) / 10) * 10
        columns["hours"] = np.clip(np.rint(rng.normal(36, 9, records)), 0, 80)
        rent = np.rint(rng.gamma(4, 150, records) / 5) * 5
        columns["rent"] = np.where(rng.random(records) < 0.3, np.nan, rent)
        columns["commute"] = np.rint(rng.exponential(25, records) / 5) * 5
        columns["children"] = rng.poisson(0.9, records)
        return columns


def as_file(columns: Columns, *, first: int = 1, shuffle: np.random.Generator | None = None) -> Microdata:
    """The columns as a file with a declared identifier that numbers the records as they stand."""
    records = len(next(iter(columns.values())))
    order = np.arange(records) if shuffle is None else shuffle.permutation(records)
    table = pa.table({"id": np.arange(first, first + records), **{n: pa.array(c[order]) for n, c in columns.items()}})
    kinds = {"id": {"kind": Kind.IDENTIFIER}}
    attributes = tuple(Attribute(name=name, **kinds.get(name, {})) for name in table.column_names)
    return Microdata(table, Schema(name="file", attributes=attributes))


@dataclass(frozen=True)
class Trial:
    """One population, a file that was released before, and randomness for what comes of it."""

    population: Population
    columns: Columns
    rng: np.random.Generator

    @property
    def records(self) -> int:
        return len(self.columns["sex"])

    def some(self, share: float) -> Columns:
        rows = self.rng.permutation(self.records)[: round(share * self.records)]
        return {name: values[rows] for name, values in self.columns.items()}

    def others(self, records: int) -> Columns:
        return self.population.draw(records, self.rng)

    def with_more(self, kept: Columns, share: float) -> Columns:
        more = self.others(round(share * self.records))
        return {name: np.concatenate([kept[name], more[name]]) for name in kept}

    def without(self, number: int, columns: Columns | None = None) -> Columns:
        columns = columns or self.columns
        gone = set(self.rng.choice(list(columns), number, replace=False))
        return {name: values for name, values in columns.items() if name not in gone}


def _renamed(trial: Trial) -> Columns:
    order = trial.rng.permutation(list(trial.columns))
    return {f"v{place}": trial.columns[name] for place, name in enumerate(order)}


def _recoded(trial: Trial, number: int) -> Columns:
    chosen = set(trial.rng.choice(list(trial.columns), number, replace=False))
    return {name: _recode(values) if name in chosen else values for name, values in trial.columns.items()}


def _recode(values: np.ndarray) -> np.ndarray:
    """Numbers in bands, codes under other labels."""
    if values.dtype.kind in "if":
        bands = np.floor(np.nan_to_num(values.astype(float), nan=-1.0) / 7)
        return np.char.add("band ", bands.astype(int).astype(str))
    return np.char.add("level ", values)


def _next_year(trial: Trial) -> Columns:
    """Four in five are asked again; income, hours, rent and health have moved, a tenth has another job or town."""
    wave = trial.with_more(trial.some(0.8), 0.2)
    wave["income"] = np.rint(wave["income"] * trial.rng.normal(1.03, 0.05, trial.records) / 10) * 10
    wave["hours"] = np.clip(wave["hours"] + trial.rng.integers(-2, 3, trial.records), 0, 80)
    fresh, moved = trial.others(trial.records), trial.rng.random(trial.records) < 0.1
    for name in ("rent", "health", "commute"):
        wave[name] = fresh[name]
    for name in ("occupation", "industry", "town", "region"):
        wave[name] = np.where(moved, fresh[name], wave[name])
    return wave


def _unrelated(trial: Trial) -> Columns:
    """Another survey about other things, which happens to have two of the columns."""
    rng, records = trial.rng, trial.records
    columns: Columns = {
        f"q{i}": np.char.add(f"Q{i}-", rng.integers(0, 2 + 3 * i, records).astype(str)) for i in range(9)
    }
    columns |= {"turnover": np.rint(rng.lognormal(8, 1, records)), "staff": rng.poisson(6, records)}
    return columns | {name: trial.others(records)[name] for name in ("sex", "region")}


def _narrow(columns: Columns) -> Columns:
    return {name: columns[name] for name in ("sex", "tenure", "car", "marital")}


def _numbered(one: Columns, other: Columns) -> tuple[Columns, Columns]:
    """Both files with the same numbers from a sampling frame, which nobody has declared to be an identifier."""
    numbers = np.sort(np.random.default_rng(5).choice(10**9, len(one["sex"]), replace=False))
    return one | {"frame": numbers}, other | {"frame": numbers}


Case = Callable[[Trial], Columns | tuple[Columns, Columns]]
SEEN: dict[str, tuple[Case, float]] = {
    "re-ordered and re-numbered": (lambda t: t.columns, 1.0),
    "1% of records dropped": (lambda t: t.some(0.99), 1.0),
    "1% of records added": (lambda t: t.with_more(t.columns, 0.01), 1.0),
    "20% of records dropped": (lambda t: t.some(0.8), 1.0),
    "20% of records added": (lambda t: t.with_more(t.columns, 0.2), 1.0),
    "20% dropped, 20% others added": (lambda t: t.with_more(t.some(0.8), 0.2), 0.8),
    "6 of 18 columns dropped": (lambda t: t.without(6), 1.0),
    "columns renamed and moved": (_renamed, 1.0),
    "6 of 18 columns recoded": (lambda t: _recoded(t, 6), 1.0),
    "next year's panel, 80% the same people": (_next_year, 0.8),
    "half of the file": (lambda t: t.some(0.5), 1.0),
}
NOT_THE_SAME: dict[str, Case] = {
    "unrelated file with equal ids": _unrelated,
    "unrelated file, equal undeclared numbers": lambda t: _numbered(t.columns, _unrelated(t)),
    "another sample, equal undeclared numbers": lambda t: _numbered(t.columns, t.others(t.records)),
    "another sample of the population": lambda t: t.others(t.records),
    "another sample, 20% the same people": lambda t: t.with_more(t.some(0.2), 0.8),
}
HARD: dict[str, Case] = {  # stated as limits: not or not always seen
    "12 of 18 columns dropped": lambda t: t.without(12),
    "12 of 18 columns recoded": lambda t: _recoded(t, 12),
    "a third of the file": lambda t: t.some(0.33),
    "a tenth of the file": lambda t: t.some(0.1),
    "every column recoded": lambda t: _recoded(t, len(t.columns)),
    "4 coarse columns, 1% dropped": lambda t: _narrow(t.some(0.99)),
    "4 coarse columns, re-ordered": lambda t: (_narrow(t.columns), _narrow(t.columns)),
}


def trial(records: int, seed: int) -> Trial:
    """One trial; every number of it follows from the seed."""
    population, rng = Population(seed), np.random.default_rng([seed, 1])
    return Trial(population, population.draw(records, rng), rng)


def files(case: Case, one: Trial) -> tuple[Microdata, Microdata]:
    """The file that left before, and the one that is to leave now, in another order and with new numbers."""
    made = case(one)
    before, after = made if isinstance(made, tuple) else (one.columns, made)
    return as_file(before), as_file(after, shuffle=one.rng)
