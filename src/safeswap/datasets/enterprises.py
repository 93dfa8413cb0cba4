"""Synthetic enterprises: skewed turnover and employees in NACE divisions, modelled on a survey of innovation.

Seri demonstrates the confidentiality plot on 157 enterprises of division 18 of the Community Innovation Survey, which
are not public. Division 18 of the default file also has 157 units. All of them are fictitious.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from safeswap.arrays.types import Floats, Int64s
from safeswap.errors import SpecError
from safeswap.model.checked import check_types

if TYPE_CHECKING:
    from safeswap.model.microdata import Microdata
    from safeswap.model.schema import Schema

ENTERPRISE_KEYS = ("turnover", "employees")
"""The attributes of an enterprise that an intruder is assumed to know."""

_DEFAULT = 3_140  # a twentieth of them, 157, are in division 18
_MOST = 20_000_000
_SEED = 1969
# Division of NACE, its share of the units, and turnover per employee in thousands of euros.
_DIVISIONS = (
    ("15", 0.13, 190.0),
    ("17", 0.08, 110.0),
    ("18", 0.05, 65.0),
    ("19", 0.04, 85.0),
    ("20", 0.07, 95.0),
    ("22", 0.08, 120.0),
    ("24", 0.06, 310.0),
    ("25", 0.09, 140.0),
    ("26", 0.07, 135.0),
    ("28", 0.17, 115.0),
    ("29", 0.11, 150.0),
    ("36", 0.05, 105.0),
)
_REGIONS = tuple(f"R{number:02d}" for number in range(1, 21))
_SIZES = ("10-49", "50-249", "250+")


@check_types
@lru_cache(maxsize=4)
def synthetic_enterprises(n: int = _DEFAULT, seed: int = _SEED) -> Microdata:
    """Generate ``n`` enterprises: division, region, size class, employees, turnover, expenditure on innovation.

    >>> enterprises = synthetic_enterprises()
    >>> enterprises.attributes
    ('id', 'division', 'region', 'size_class', 'employees', 'turnover', 'innovation')
    >>> enterprises.table["division"].to_pylist().count("18")
    157
    """
    import pyarrow as pa

    from safeswap.model.microdata import Microdata

    if not 1 <= n <= _MOST:
        raise SpecError(f"n lies between 1 and {_MOST:,}", code="bad-size", hint="synthetic_enterprises(10_000)")
    if not -(2**63) <= seed < 2**63:
        raise SpecError("the seed is a whole number of at most 63 bits", code="bad-seed", hint="seed=1")
    division, region = _divisions(n, seed), _level(_draw(seed, n, 1), np.linspace(1.9, 0.1, len(_REGIONS)))
    employees = _employees(n, seed)
    turnover = _turnover(n, seed, division, employees)
    size = np.searchsorted([50, 250], employees, side="right")
    columns: dict[str, Any] = {
        "id": 10**8 + np.arange(1, n + 1, dtype=np.int64) * 61_803_399 % 10**8,
        "division": _category(division, [name for name, _, _ in _DIVISIONS]),
        "region": _category(region, _REGIONS),
        "size_class": _category(size, _SIZES),
        "employees": employees.astype(np.int32),
        "turnover": turnover,
        "innovation": _innovation(n, seed, turnover),
    }
    return Microdata(pa.table(columns), _schema())


def _draw(seed: int, n: int, purpose: int) -> Floats:
    from safeswap.arrays.counter_random import uniforms

    drawn: Floats = uniforms(seed, n, purpose)
    return drawn


def _odds(seed: int, n: int, purpose: int) -> Floats:
    """Return u / (1 − u), with u at least 1e-5 from 0 and 1: enterprises are more unequal than incomes."""
    kept = 1e-5 + (1 - 2e-5) * _draw(seed, n, purpose)
    return np.asarray(kept / (1 - kept))


def _level(u: Floats, shares: Floats) -> Int64s:
    upto = np.cumsum(shares)
    return np.searchsorted(upto[:-1] / upto[-1], u, side="right").astype(np.int64)


def _divisions(n: int, seed: int) -> Int64s:
    """Assign divisions in their exact shares, in random order."""
    upto = np.cumsum([share for _, share, _ in _DIVISIONS])
    ends = np.floor(upto / upto[-1] * n + 0.5).astype(np.int64)
    dealt = np.empty(n, dtype=np.int64)
    dealt[np.argsort(_draw(seed, n, 0), kind="stable")] = np.searchsorted(ends, np.arange(n), side="right")
    return dealt


def _employees(n: int, seed: int) -> Int64s:
    """Draw numbers of employees: at least ten; half have at most 30, a few have thousands."""
    odds = _odds(seed, n, 2)
    return np.asarray(np.floor(10 + 20 * np.sqrt(odds) * np.sqrt(np.sqrt(odds))), dtype=np.int64)


def _turnover(n: int, seed: int, division: Int64s, employees: Int64s) -> Floats:
    """Draw turnover in thousands of euros, one decimal: employees times turnover per employee, with noise."""
    each = np.array([per_head for _, _, per_head in _DIVISIONS])[division]
    return np.asarray(np.round(employees * each * np.sqrt(np.sqrt(_odds(seed, n, 3))) + 0.05, 1))


def _innovation(n: int, seed: int, turnover: Floats) -> Floats:
    """Draw expenditure on innovation: zero in three of five enterprises, else a few percent of turnover."""
    some = _draw(seed, n, 4) < 0.4
    return np.where(some, np.round(0.02 * turnover * np.sqrt(_odds(seed, n, 5)), 1), 0.0)


def _category(codes: Int64s, levels: Any) -> Any:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(list(levels)))


def _schema() -> Schema:
    from safeswap.model.schema import Attribute, Kind, Schema

    described = (
        ("id", Kind.IDENTIFIER, "enterprise", ()),
        ("division", Kind.NOMINAL, "division of economic activity, NACE revision 1", ()),
        ("region", Kind.GEOGRAPHY, "region of the head office", _REGIONS),
        ("size_class", Kind.ORDINAL, "class of employees", _SIZES),
        ("employees", Kind.NUMERIC, "number of employees", ()),
        ("turnover", Kind.NUMERIC, "turnover, thousands of euros", ()),
        ("innovation", Kind.NUMERIC, "expenditure on innovation, thousands of euros, 0 if none", ()),
    )
    return Schema(
        name="synthetic_enterprises",
        attributes=tuple(
            Attribute(
                name=name, kind=kind, label=label, levels=levels, geography_level=0 if kind is Kind.GEOGRAPHY else None
            )
            for name, kind, label, levels in described
        ),
    )
