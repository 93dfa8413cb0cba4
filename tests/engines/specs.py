"""Thirty ways to mask a small census, among them ones that need repair and ones that fall short."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from safeswap import datasets
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.methods.swap_permutation import SwapPermutationSpec
from safeswap.model.key import Key
from safeswap.model.spec import SwapSpec

KEY = Key(bytes(range(32)))
SCHEMA = datasets.synthetic_census_schema()
RECORDS = 2_400
_PLACES = ["STATE", "COUNTY", "PLACE", "TRACT", "BLOCK"]

SPECS: dict[str, dict[str, Any]] = {
    "one attribute": {"swap": ["TENURE"], "rate": 0.1},
    "another rate": {"swap": ["TENURE"], "rate": 0.37},
    "a number of pairs": {"swap": ["OCCUPATION"], "pairs": 17},
    "no pairs": {"swap": ["TENURE"], "pairs": 0},
    "one pair": {"swap": _PLACES, "pairs": 1},
    "two attributes, any": {"swap": ["TENURE", "OCCUPATION"], "rate": 0.2},
    "two attributes, all": {"swap": ["TENURE", "OCCUPATION"], "rate": 0.2, "true_swap": "all"},
    "three attributes, all": {"swap": ["ADULTS", "TENURE", "OCCUPATION"], "rate": 0.15, "true_swap": "all"},
    "fixed": {"swap": ["TENURE"], "fixed": ["STATE"], "rate": 0.2},
    "fixed, many strata": {"swap": ["INCOME"], "fixed": ["TRACT", "ADULTS"], "rate": 0.1},
    "fixed twice": {"swap": ["TENURE"], "fixed": ["STATE", "ADULTS"], "rate": 0.2},
    "differ": {"swap": ["TENURE"], "differ": ["STATE"], "rate": 0.2},
    "all roles": {"swap": ["TENURE", "TRAILER"], "fixed": ["STATE"], "differ": ["OCCUPATION"], "rate": 0.1},
    "geography": {"swap": ["PLACE", "TRACT", "BLOCK"], "fixed": ["COUNTY"], "rate": 0.1},
    "sequential": {"swap": ["TENURE", "OCCUPATION"], "rate": 0.2, "mode": "sequential"},
    "sequential, fixed": {"swap": ["TENURE", "ADULTS"], "fixed": ["STATE"], "rate": 0.3, "mode": "sequential"},
    "uniform, all it gives": {"swap": ["TENURE"], "rate": 1.0, "pairing": "uniform", "on_shortfall": "take"},
    "uniform, fixed": {
        "swap": ["TENURE"],
        "fixed": ["ADULTS"],
        "rate": 0.9,
        "pairing": "uniform",
        "on_shortfall": "take",
    },
    "swapped and different": {"swap": [*_PLACES, "TENURE"], "differ": ["STATE"], "rate": 0.3},
    "repaired among many classes": {
        "swap": ["TENURE", "OCCUPATION", "FAMILIES", "WHITE"],
        "true_swap": "all",
        "rate": 1.0,
        "on_shortfall": "take",
    },
    "repaired": {"swap": ["TENURE"], "fixed": ["ADULTS"], "rate": 0.62},
    "repaired to the most there are": {"swap": ["TRAILER"], "rate": 1.0, "on_shortfall": "take"},
    "repaired in several coordinates": {
        "swap": ["TENURE"],
        "differ": ["ADULTS", "FAMILIES"],
        "rate": 1.0,
        "on_shortfall": "take",
    },
    "targeted": {"swap": ["TENURE"], "rate": 0.1, "targeting": {"keys": ["ADULTS", "OCCUPATION"], "n": 20}},
    "targeted, all keys": {"swap": ["TENURE"], "fixed": ["STATE"], "rate": 0.2, "targeting": {"weight": 3.5}},
    "targeted and repaired": {
        "swap": ["TENURE"],
        "fixed": ["ADULTS"],
        "rate": 0.62,
        "targeting": {"keys": ["OCCUPATION"], "n": 100, "weight": 50.0},
    },
    "everything": {"swap": ["OCCUPATION"], "fixed": ["ADULTS"], "rate": 1.0, "on_shortfall": "take"},
}

EDITS: dict[str, dict[str, Any]] = {
    "edit": {"keys": ["ADULTS", "FAMILIES"], "geography": _PLACES, "rate": 0.1, "single_areas": "leave"},
    "edit, half of all": {"keys": ["ADULTS"], "geography": _PLACES, "rate": 0.5, "single_areas": "leave"},
    "edit, everybody": {"keys": ["ADULTS"], "geography": _PLACES, "rate": 1.0, "single_areas": "leave"},
    "edit, many keys": {
        "keys": ["ADULTS", "FAMILIES", "TENURE", "OCCUPATION"],
        "geography": _PLACES,
        "across": "TRACT",
        "rate": 0.3,
        "single_areas": "leave",
    },
    "edit, small blocks": {
        "keys": ["ADULTS", "WHITE"],
        "geography": _PLACES,
        "within": "COUNTY",
        "across": "BLOCK",
        "rate": 0.05,
        "small_block_units": 12,
        "small_block_rate": 0.4,
        "single_areas": "leave",
    },
    "edit, codes that count anew": {
        "keys": ["TENURE"],
        "geography": ["STATE", "COUNTY", "TRACT"],
        "geography_codes": "local",
        "across": "TRACT",
        "rate": 0.2,
        "single_areas": "leave",
    },
}


PERMUTATIONS: dict[str, dict[str, Any]] = {
    "permuted": {"swap": ["TENURE", "OCCUPATION"], "fixed": ["STATE", "ADULTS"], "probability": 0.3},
    "permuted, one stratum": {"swap": ["INCOME"], "probability": 0.9},
    "permuted, tiny strata": {"swap": ["TENURE"], "fixed": ["TRACT", "INCOME"], "epsilon": 3.0},
}


def spec_of(name: str) -> SwapSpec | Edit1990Spec | SwapPermutationSpec:
    if name in PERMUTATIONS:
        return SwapPermutationSpec(**PERMUTATIONS[name])
    return SwapSpec(**SPECS[name]) if name in SPECS else Edit1990Spec(**EDITS[name])


def census() -> pa.Table:
    return datasets.synthetic_census(RECORDS).table


def write_parts(data: pa.Table, folder: Path, parts: int) -> Path:
    """The records in so many files of two row groups each."""
    folder.mkdir(parents=True)
    rows = -(-data.num_rows // parts)
    for number in range(parts):
        part = data.slice(number * rows, rows)
        pq.write_table(part, folder / f"part-{number:05d}.parquet", row_group_size=max(1, rows // 2 + 1))
    return folder


def records_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The records as a multiset: order and partitions play no part."""
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
