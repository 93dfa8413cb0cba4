"""Example data for learning and testing.

``cps8d`` is the table on which the swapping papers of the National Institute of Statistical Sciences work: 48,842
records of the public "Adult" census extract (Becker and Kohavi, CC BY 4.0) in eight categorical attributes.
``SOURCES.md`` next to this file says where it comes from and how it was recoded.

``household_survey`` generates fictitious persons in households as a survey of living conditions has them: with weights,
strata, nested areas, dates, rare codes, incomes and missing answers. ``write_household_survey`` writes it to a file.

``synthetic_census`` and ``synthetic_housing_survey`` generate fictitious people, modelled on the data on which the
Confidentiality Edit of the 1990 Census of the United States and its improvement were tested (Moore 1996).
``synthetic_population`` generates fictitious persons in households in nested areas, for the swap of households.
``synthetic_enterprises`` generates fictitious enterprises, for the confidentiality plot and for methods that change
numbers.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.resources import as_file, files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safeswap.datasets.census import CENSUS_GEOGRAPHY as CENSUS_GEOGRAPHY
    from safeswap.datasets.census import CENSUS_KEYS as CENSUS_KEYS
    from safeswap.datasets.census import synthetic_census as synthetic_census
    from safeswap.datasets.census import synthetic_census_chunks as synthetic_census_chunks
    from safeswap.datasets.census import synthetic_census_schema as synthetic_census_schema
    from safeswap.datasets.census import write_synthetic_census as write_synthetic_census
    from safeswap.datasets.households import SURVEY_GEOGRAPHY as SURVEY_GEOGRAPHY
    from safeswap.datasets.households import SURVEY_KEYS as SURVEY_KEYS
    from safeswap.datasets.households import household_survey as household_survey
    from safeswap.datasets.households import household_survey_schema as household_survey_schema
    from safeswap.datasets.households import write_household_survey as write_household_survey
    from safeswap.datasets.surveys import ENTERPRISE_KEYS as ENTERPRISE_KEYS
    from safeswap.datasets.surveys import HOUSING_ITEMS as HOUSING_ITEMS
    from safeswap.datasets.surveys import HOUSING_KEYS as HOUSING_KEYS
    from safeswap.datasets.surveys import POPULATION_GEOGRAPHY as POPULATION_GEOGRAPHY
    from safeswap.datasets.surveys import POPULATION_RISK as POPULATION_RISK
    from safeswap.datasets.surveys import synthetic_enterprises as synthetic_enterprises
    from safeswap.datasets.surveys import synthetic_housing_survey as synthetic_housing_survey
    from safeswap.datasets.surveys import synthetic_population as synthetic_population
    from safeswap.datasets.surveys import synthetic_population_schema as synthetic_population_schema
    from safeswap.datasets.surveys import write_synthetic_population as write_synthetic_population
    from safeswap.model.microdata import Microdata
    from safeswap.model.schema import Schema

_HOME = {
    "CENSUS_GEOGRAPHY": "census",
    "CENSUS_KEYS": "census",
    "ENTERPRISE_KEYS": "surveys",
    "HOUSING_ITEMS": "surveys",
    "HOUSING_KEYS": "surveys",
    "POPULATION_GEOGRAPHY": "surveys",
    "POPULATION_RISK": "surveys",
    "SURVEY_GEOGRAPHY": "households",
    "SURVEY_KEYS": "households",
    "household_survey": "households",
    "household_survey_schema": "households",
    "synthetic_census": "census",
    "synthetic_census_chunks": "census",
    "synthetic_census_schema": "census",
    "synthetic_enterprises": "surveys",
    "synthetic_housing_survey": "surveys",
    "synthetic_population": "surveys",
    "synthetic_population_schema": "surveys",
    "write_household_survey": "households",
    "write_synthetic_census": "census",
    "write_synthetic_population": "surveys",
}

__all__ = sorted(["available", "cps8d", *_HOME])  # noqa: PLE0605  (the names of the table above, and two more)

_AVAILABLE = MappingProxyType(
    {
        "cps8d": "48,842 persons, 8 categorical attributes: the Adult census extract as in Gomatam & Karr (2003)",
        "household_survey": "4,939 persons in 1,560 households: weights, strata, nested areas, dates, income",
        "synthetic_census": "households in a nested geography with the keys of the 1990 edit, any number of them",
        "synthetic_enterprises": "skewed turnover and employees in NACE divisions, 157 of them in division 18",
        "synthetic_housing_survey": "64,998 dwellings, 4 keys and 5 continuous items, as in Moore (1996)",
        "synthetic_population": "persons in households in nested areas, minorities together, any number of them",
    }
)


def __getattr__(name: str) -> Any:
    # Loaded on first use: a list of the data sets must not wait for NumPy.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


def available() -> Mapping[str, str]:
    """Return the names of the data sets with a line about each.

    >>> list(available())[:3]
    ['cps8d', 'household_survey', 'synthetic_census']
    """
    return _AVAILABLE


@cache
def cps8d() -> Microdata:
    """Load CPS-8d: 48,842 persons, 8 attributes, no identifier.

    The attributes with their letters in the papers: Age (A), EmpTyp (W), Edu (E), MS (M), Race (R),
    Sex (S), AvgHrs (H), AnnSal (I). Age, Edu, AvgHrs and AnnSal are ordinal.

    Source: B. Becker and R. Kohavi, "Adult", UCI Machine Learning Repository (1996), licensed CC BY 4.0; both parts
    together, recoded to the categories of S. Gomatam and A. F. Karr, "Distortion Measures for Categorical Data
    Swapping" (2003).

    >>> data = cps8d()
    >>> data
    <Microdata 'cps8d': 48,842 records × 8 attributes: Age, EmpTyp, Edu, MS, Race, Sex, AvgHrs, AnnSal>
    >>> data.schema["Edu"].levels
    ('<HS', 'HS', 'Coll', 'Bach', 'Bach+')
    """
    from pyarrow import parquet

    from safeswap.model.microdata import Microdata

    with as_file(files(__name__) / "cps8d.parquet") as path, parquet.ParquetFile(path) as file:
        return Microdata(file.read().unify_dictionaries(), _cps8d_schema())


def _cps8d_schema() -> Schema:
    from safeswap.model.schema import Attribute, Kind, Schema

    rows = (
        ("Age", "A", "age in years", True, ("<25", "25-55", ">55")),
        ("EmpTyp", "W", "type of employer", False, ("Govt", "Priv", "Self-Emp", "Other")),
        ("Edu", "E", "education", True, ("<HS", "HS", "Coll", "Bach", "Bach+")),
        ("MS", "M", "marital status", False, ("Married", "Other")),
        ("Race", "R", "race", False, ("White", "Non-White")),
        ("Sex", "S", "sex", False, ("Female", "Male")),
        ("AvgHrs", "H", "average hours worked per week", True, ("<40", "40", ">40")),
        ("AnnSal", "I", "annual salary in dollars", True, ("<50K", "50K+")),
    )
    labels = {
        "EmpTyp": {"Govt": "government", "Priv": "private", "Self-Emp": "self-employed"},
        "Edu": {
            "<HS": "less than high school",
            "HS": "high school",
            "Coll": "some college",
            "Bach": "associate or bachelor's degree",
            "Bach+": "more than a bachelor's degree",
        },
        "Age": {"<25": "under 25", "25-55": "25 to 54", ">55": "55 and over"},
        "AnnSal": {"<50K": "at most 50,000", "50K+": "more than 50,000"},
    }
    return Schema(
        name="cps8d",
        attributes=tuple(
            Attribute(
                name=name,
                letter=letter,
                label=label,
                kind=Kind.ORDINAL if ordinal else Kind.NOMINAL,
                levels=levels,
                labels=labels.get(name, {}),
            )
            for name, letter, label, ordinal, levels in rows
        ),
    )
