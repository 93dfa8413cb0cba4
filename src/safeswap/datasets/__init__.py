"""Data to learn and to test with, inside the package.

``cps8d`` is the table on which the swapping papers of the National Institute of Statistical Sciences work: 48,842
records of the public "Adult" census extract (Becker and Kohavi, CC BY 4.0) in eight categorical attributes.
``SOURCES.md`` next to this file says where it comes from and how it was recoded.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safeswap.model.microdata import Microdata
    from safeswap.model.schema import Schema

__all__ = ["available", "cps8d"]

_AVAILABLE = MappingProxyType(
    {
        "cps8d": "48,842 persons, 8 categorical attributes: the Adult census extract as in Gomatam & Karr (2003)",
    }
)


def available() -> Mapping[str, str]:
    """The names of the data sets and a line about each.

    >>> list(available())
    ['cps8d']
    """
    return _AVAILABLE


@cache
def cps8d() -> Microdata:
    """CPS-8d: 48,842 persons, 8 attributes, no identifier.

    The attributes and the letters by which the papers call them: Age (A), EmpTyp (W), Edu (E), MS (M), Race (R),
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
