"""Made by hand: masked files without any method, which checks and the release step are tried on; and words to draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from safeswap.model.audit import Audit, Exchange
from safeswap.model.invariant import (
    ChangedRecords,
    DisjointPairs,
    Invariant,
    KeptMargin,
    ReplaysFromAudit,
    SameRows,
    UntouchedColumns,
)
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.release import PublicFacts, Release, prepare_release
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.spec import Plan, SwapSpec
from safeswap.pipelines.account import Account

RACES = ("white", "black", "asian", "several")
AGES = ("<25", "25-55", ">55")


def survey(records: int = 400, seed: int = 1) -> Microdata:
    """A small survey with every kind of column that makes trouble."""
    rng = np.random.default_rng(seed)
    race = pa.array(rng.choice(RACES, records)).dictionary_encode()
    income = np.round(rng.lognormal(10, 1, records), 2)
    income[:3] = (np.nan, -0.0, 0.0)
    town = [None if x < 0.1 else f"town {int(x * 9)}" for x in rng.random(records)]
    table = pa.table(
        {
            "id": pa.array(rng.permutation(records) + 70_000),
            "household": pa.array([f"hh-{i // 3:05d}" for i in range(records)]),
            "Race": race,
            "Sex": pa.array(rng.integers(1, 3, records).astype(np.int8)),
            "Age": pa.array(rng.choice(AGES, records)),
            "Town": pa.array(town),
            "Income": pa.array(income),
        }
    )
    attributes = (
        Attribute(name="id", kind=Kind.IDENTIFIER),
        Attribute(name="household", kind=Kind.HOUSEHOLD),
        Attribute(name="Race", label="Race as stated"),
        Attribute(name="Sex", labels={"1": "female", "2": "male"}),
        Attribute(name="Age", kind=Kind.ORDINAL, levels=AGES),
        Attribute(name="Town", kind=Kind.GEOGRAPHY, geography_level=0),
        Attribute(name="Income", kind=Kind.NUMERIC),
    )
    return Microdata(table, Schema(name="survey", attributes=attributes))


def true_pairs(data: Microdata, name: str, fixed: Sequence[str] = (), seed: int = 2) -> np.ndarray:
    """Random disjoint pairs that differ in one attribute and agree in others."""
    rng = np.random.default_rng(seed)
    values = data.table.select([name, *fixed]).to_pylist()
    waiting: dict[Any, list[int]] = {}
    pairs = []
    for row in rng.permutation(len(data)).tolist():
        stratum = waiting.setdefault(tuple(values[row][f] for f in fixed), [])
        partner = next((other for other in stratum if values[other][name] != values[row][name]), None)
        if partner is None:
            stratum.append(row)
        else:
            stratum.remove(partner)
            pairs.append((partner, row))
    return np.array(pairs[: max(1, len(pairs) // 2)], dtype=np.int64).reshape(-1, 2)


def audit_of(data: Microdata, *exchanges: Exchange, **fields: Any) -> Audit:
    made = sum(len(e.pairs) for e in exchanges)
    known = {"method": "swap", "spec": {"method": "swap"}, "key_id": "0123456789abcdef", "releasable": True}
    counts = {"records": len(data), "asked": made, "feasible": made, "made": made, "algorithm": "by-hand"}
    return Audit(**{**known, **counts, "exchanges": exchanges, "data_name": data.schema.name, **fields})


def apply_by_hand(data: Microdata, *exchanges: Exchange) -> Microdata:
    """Exchange values one record at a time, the plainest way there is."""
    table = data.table
    for exchange in exchanges:
        for name in exchange.attributes:
            column = table.column(name).combine_chunks()
            order = list(range(len(data)))
            for a, b in exchange.pairs.tolist():
                order[a], order[b] = order[b], order[a]
            table = table.set_column(table.column_names.index(name), name, column.take(pa.array(order, pa.int64())))
    return Microdata(table, data.schema)


def masked_survey(data: Microdata | None = None, *, swap: str = "Race", seed: int = 2, **fields: Any) -> Masked:
    """A survey in which one attribute has been exchanged between random pairs."""
    data = data if data is not None else survey()
    exchange = Exchange(attributes=(swap,), pairs=true_pairs(data, swap, seed=seed))
    return masked_by(data, exchange, **fields)


def masked_by(data: Microdata, *exchanges: Exchange, **fields: Any) -> Masked:
    audit = audit_of(data, *exchanges, **fields)
    swap = tuple(dict.fromkeys(name for e in exchanges for name in e.attributes))
    return Masked(
        original=data,
        data=apply_by_hand(data, *exchanges),
        spec=SwapSpec(swap=swap or (data.attributes[-1],), pairs=audit.made),
        plan=Plan(method="swap", records=len(data), asked=audit.asked, feasible=audit.feasible),
        audit=audit,
    )


KEY = Key(bytes(range(32)))
PROMISES = (
    SameRows(),
    UntouchedColumns(("id", "household", "Sex", "Age", "Town", "Income")),
    *(KeptMargin((name,)) for name in ("Race", "Sex", "Age", "Town")),
    DisjointPairs(),
    ChangedRecords(),
    ReplaysFromAudit(),
)


def release_of(data: Microdata | None = None, **options: Any) -> Release:
    """What may leave of a survey."""
    data = data if data is not None else masked_survey().data
    facts = PublicFacts(method="Values were swapped.", records=len(data), title="A survey", version="0")
    return prepare_release(data, key=KEY, facts=facts, **options)[0]


def account_of(masked: Masked, promises: Iterable[Invariant] = PROMISES) -> Account:
    """Return the account of a masking that promises what is stated here."""
    return Account(masked, (tuple(promises),))


class GivenWords(NamedTuple):
    """Two words for each record, as made by hand instead of by a key, in parts of two lengths."""

    words: np.ndarray

    def whole(self) -> np.ndarray:
        return self.words

    def chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        middle = 2 * len(self.words) // 3
        yield 0, self.words[:middle]
        yield middle, self.words[middle:]

    def take(self, rows: np.ndarray) -> GivenWords:
        return GivenWords(self.words[rows])
