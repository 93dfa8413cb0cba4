"""A synthetic household survey: persons in households, with weights, strata, areas, dates, codes and money.

Nobody in it exists, nor does the country. Composition, work and income depend on each other as they do in surveys of
labour and living conditions, so that regressions mean something; the figures are invented.

All draws are uniform numbers of NumPy's PCG64, whose stream is fixed, and everything else is computed from them and
rounded, so that the file is the same on every machine. A digest in the tests pins it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from safeswap.arrays.types import Flags, Floats, Int64s
from safeswap.model.checked import check_types

if TYPE_CHECKING:
    from safeswap.model.microdata import Microdata
    from safeswap.model.schema import Schema

SURVEY_KEYS = ("municipality", "sex", "age", "marital_status", "occupation", "country_of_birth")
"""The attributes of a person that an intruder is assumed to know."""

SURVEY_GEOGRAPHY = ("region", "district", "municipality", "settlement")
"""The areas of the household survey, from coarse to fine; a code begins with that of the area around it."""

_SEED = 2023
_HOUSEHOLDS = 1_560
_POPULATION = (480_000, 360_000, 240_000, 120_000)  # persons by region, to which the weights add up
_FIRST_DAY = np.datetime64("2023-01-09")
_ORIGINS = ("XB", "XC", "XD", "XE", "XF", "XG")
_HOME = "XA"
SINGLE, OLD_SINGLE, COUPLE, OLD_COUPLE, PARENTS, LONE_PARENT, THREE_GENERATIONS = range(7)
HEAD, PARTNER, CHILD, GRANDPARENT = range(4)
# Households by type, in towns and elsewhere; the youngest and oldest head of each type.
_TYPES = ((0.13, 0.09, 0.11, 0.09, 0.40, 0.10, 0.08), (0.06, 0.08, 0.09, 0.10, 0.45, 0.06, 0.16))
_YOUNGEST = np.array([20.0, 65.0, 22.0, 65.0, 24.0, 22.0, 30.0])
_OLDEST = np.array([64.9, 96.0, 64.9, 90.0, 61.0, 57.0, 58.0])
# Labour status by age: up to 17, 18-24, 25-54 women, 25-54 men, 55-64, 65 and over.
_LABOUR = (
    (0.06, 0.00, 0.02, 0.91, 0.00, 0.005, 0.005),
    (0.40, 0.02, 0.10, 0.42, 0.00, 0.05, 0.01),
    (0.67, 0.07, 0.06, 0.01, 0.00, 0.16, 0.03),
    (0.73, 0.13, 0.07, 0.01, 0.00, 0.02, 0.04),
    (0.45, 0.11, 0.05, 0.00, 0.26, 0.07, 0.06),
    (0.03, 0.03, 0.00, 0.00, 0.90, 0.03, 0.01),
)
# Major group of occupation (0 armed forces to 9 elementary) by education.
_MAJOR = (
    (0.001, 0.01, 0.00, 0.01, 0.03, 0.22, 0.12, 0.20, 0.16, 0.249),
    (0.004, 0.02, 0.01, 0.04, 0.07, 0.27, 0.07, 0.22, 0.136, 0.16),
    (0.006, 0.04, 0.03, 0.16, 0.15, 0.24, 0.04, 0.17, 0.10, 0.064),
    (0.006, 0.09, 0.31, 0.30, 0.12, 0.10, 0.01, 0.03, 0.014, 0.02),
    (0.005, 0.14, 0.68, 0.10, 0.03, 0.02, 0.005, 0.01, 0.005, 0.005),
)
# The two-digit groups of each major group with their shares; some are rare on purpose.
_MINOR = (
    (("01", 0.3), ("02", 0.5), ("03", 0.2)),
    (("11", 0.1), ("12", 0.35), ("13", 0.4), ("14", 0.15)),
    (("21", 0.2), ("22", 0.2), ("23", 0.3), ("24", 0.18), ("25", 0.1), ("26", 0.02)),
    (("31", 0.28), ("32", 0.2), ("33", 0.4), ("34", 0.08), ("35", 0.04)),
    (("41", 0.4), ("42", 0.2), ("43", 0.36), ("44", 0.04)),
    (("51", 0.3), ("52", 0.45), ("53", 0.2), ("54", 0.05)),
    (("61", 0.93), ("62", 0.05), ("63", 0.02)),
    (("71", 0.4), ("72", 0.35), ("73", 0.03), ("74", 0.15), ("75", 0.07)),
    (("81", 0.35), ("82", 0.1), ("83", 0.55)),
    (("91", 0.45), ("92", 0.04), ("93", 0.36), ("94", 0.1), ("95", 0.01), ("96", 0.04)),
)
_PAY = np.array([0.10, 0.42, 0.30, 0.14, -0.02, -0.14, -0.25, -0.05, -0.08, -0.28])  # logarithm, by major group


@cache
def household_survey() -> Microdata:
    """Generate the household survey: 4,939 fictitious persons in 1,560 households of a fictitious country.

    The weights add up to its population of 1,200,000. Education, labour status, occupation and income are missing of
    persons under 15, occupation of those without work; some answers are missing at random.

    >>> survey = household_survey()
    >>> survey.attributes[:9]
    ('person_id', 'household', 'weight', 'stratum', 'psu', 'region', 'district', 'municipality', 'settlement')
    >>> len(survey), len(survey.table["household"].unique())
    (4939, 1560)
    """
    import pyarrow as pa

    from safeswap.model.microdata import Microdata

    draw = _Draws(np.random.Generator(np.random.PCG64(_SEED)))
    homes = _draw_homes(draw, _make_areas(draw))
    persons = _draw_persons(draw, homes)
    columns = _survey_columns(homes, persons) | _answers(draw, homes, persons)
    schema = household_survey_schema()
    return Microdata(pa.table({name: columns[name] for name in schema.names}), schema)


@check_types
def write_household_survey(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write the household survey to a file, in the format of its suffix: .parquet, .csv, .sav and others.

    >>> import tempfile, pathlib, safeswap
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "survey.parquet"
    >>> write_household_survey(path)
    >>> len(safeswap.read(path, schema=household_survey_schema()))
    4939
    """
    from safeswap.files.write import write

    write(household_survey(), path, force=force)


@dataclass(frozen=True)
class _Draws:
    generator: np.random.Generator

    def uniform(self, number: int) -> Floats:
        return self.generator.random(number)

    def normal(self, number: int) -> Floats:
        quantile = NormalDist().inv_cdf
        return np.array([quantile(u) for u in (0.5 + (self.uniform(number) - 0.5) * (1 - 1e-9)).tolist()])

    def chance(self, probability: Floats | float, number: int) -> Flags:
        return self.uniform(number) < probability

    def pick(self, shares: Any, row: Int64s) -> Int64s:
        """Draw a level for each row, with the shares in that row of a table."""
        upto = np.cumsum(np.asarray(shares, dtype=np.float64), axis=1)
        upto /= upto[:, -1:]
        return np.asarray((self.uniform(len(row))[:, None] >= upto[row, :-1]).sum(axis=1))


@dataclass(frozen=True, kw_only=True)
class _Areas:
    """The settlements: their codes, stratum (region by town or country), population, and main origin of immigrants."""

    codes: npt.NDArray[np.str_]
    stratum: Int64s
    population: Floats
    origin: Int64s


def _make_areas(draw: _Draws) -> _Areas:
    """Divide regions into districts, municipalities and settlements, of which the first is always the largest."""
    codes, stratum, population = [], [], []
    for region, (districts, persons) in enumerate(zip((4, 3, 3, 2), _POPULATION, strict=True), start=1):
        for i, of_region in enumerate(_zipf(districts), start=1):
            for j, of_district in enumerate(_zipf(4 + (region + i) % 4), start=1):
                for k, of_place in enumerate(_zipf(2 + (i + j) % 4), start=1):
                    codes.append(f"{region}{i}{j:02d}{k:02d}")
                    stratum.append(10 * region + (1 if j == 1 else 2))
                    population.append(persons * of_region * of_district * of_place)
    people = np.array(population)
    origin = np.full(len(codes), -1)
    for number in range(len(_ORIGINS)):
        homes = (draw.uniform(2) * (8 * number + 8)).astype(np.int64)
        origin[np.argsort(-people, kind="stable")[homes]] = number
    return _Areas(codes=np.array(codes), stratum=np.array(stratum), population=people, origin=origin)


def _zipf(number: int) -> Floats:
    shares = 1 / np.arange(1, number + 1)
    return np.asarray(shares / shares.sum())


@dataclass(frozen=True, kw_only=True)
class _Homes:
    """The households, in the order of their areas."""

    areas: _Areas
    area: Int64s
    psu: Int64s
    sort: Int64s
    day: npt.NDArray[np.datetime64]
    origin: Int64s  # -1: of this country
    well_off: Floats

    @property
    def town(self) -> Flags:
        return np.asarray(self.areas.stratum[self.area] % 10 == 1)


def _draw_homes(draw: _Draws, areas: _Areas) -> _Homes:
    """Draw areas in their strata, small strata in larger shares, and of each area the households."""
    place = np.unique(areas.stratum, return_inverse=True)[1]
    root = np.sqrt(np.bincount(place, weights=areas.population))
    share = areas.population * (root / root.sum() / root**2)[place]
    area = np.sort(draw.pick(share[None, :], np.zeros(_HOUSEHOLDS, dtype=np.int64)))
    first = np.searchsorted(area, area)
    stratum = areas.stratum[area]
    psu = _number_units(stratum, area, (np.arange(len(area)) - first) // 25)
    week = (draw.uniform(int(psu.max()) + 1) * 47).astype(np.int64)[psu]
    day = _FIRST_DAY + 7 * week + (draw.uniform(len(area)) * 12).astype(np.int64)
    cluster = areas.origin[area]
    abroad = draw.chance(np.where(cluster >= 0, 0.38, 0.025), len(area))
    anywhere = draw.pick(_zipf(len(_ORIGINS))[None, :], np.zeros(len(area), dtype=np.int64))
    return _Homes(
        areas=areas,
        area=area,
        psu=psu,
        sort=draw.pick(_TYPES, (stratum % 10 != 1).astype(np.int64)),
        day=day,
        origin=np.where(abroad, np.where(cluster >= 0, cluster, anywhere), -1),
        well_off=draw.normal(len(area)),
    )


def _number_units(stratum: Int64s, area: Int64s, part: Int64s) -> Int64s:
    """Number the primary sampling units within their stratum: areas, of which large ones are divided."""
    units, unit = np.unique(np.stack([stratum, area, part]), axis=1, return_inverse=True)
    within = np.arange(units.shape[1]) - np.searchsorted(units[0], units[0]) + 1
    return np.asarray((100 * units[0] + within)[unit.ravel()])


@dataclass(frozen=True, kw_only=True)
class _Persons:
    """The persons, household by household: head, partner, children, grandparents."""

    home: Int64s
    role: Int64s
    woman: Flags
    birth: npt.NDArray[np.datetime64]
    age: Int64s
    same_sex: Flags  # of the couple at the head of the household

    def __len__(self) -> int:
        return len(self.home)


def _draw_persons(draw: _Draws, homes: _Homes) -> _Persons:
    sort, number = homes.sort, len(homes.sort)
    old = np.isin(sort, (OLD_SINGLE, OLD_COUPLE))
    place = draw.uniform(number)
    head = _YOUNGEST[sort] + (_OLDEST - _YOUNGEST)[sort] * np.where(old, place * place, place)
    woman = draw.chance(np.array([0.47, 0.72, 0.4, 0.35, 0.4, 0.84, 0.42])[sort], number)
    older = np.where(woman, 2.4, -2.4) + 3.2 * draw.normal(number)
    partner = np.clip(head + older, np.where(sort == OLD_COUPLE, 55.0, 19.1), 97.0)
    same_sex = draw.chance(0.06, number) & (sort == COUPLE)
    with_partner = np.isin(sort, (COUPLE, OLD_COUPLE, PARENTS, THREE_GENERATIONS))
    mother = np.where(with_partner, np.minimum(head, partner), head)
    parts = [
        (np.arange(number), HEAD, head, woman),
        (np.flatnonzero(with_partner), PARTNER, partner, woman ^ ~same_sex),
    ]
    parts += _draw_children(draw, sort, mother)
    parts += _draw_grandparents(draw, sort, np.maximum(head, np.where(with_partner, partner, 0.0)))
    home = np.concatenate([rows for rows, *_ in parts])
    role = np.concatenate([np.full(len(rows), role) for rows, role, *_ in parts])
    order = np.lexsort((np.arange(len(home)), role, home))
    years = np.concatenate([ages[rows] for rows, _, ages, _ in parts])[order]
    women = np.concatenate([sexes[rows] for rows, *_, sexes in parts])[order]
    home, role = home[order], role[order]
    birth = homes.day[home] - np.floor(years * 365.2425).astype(np.int64)
    age = completed_years(birth, homes.day[home])
    return _Persons(home=home, role=role, woman=women, birth=birth, age=age, same_sex=same_sex[home])


def _draw_children(draw: _Draws, sort: Int64s, mother: Floats) -> list[tuple[Int64s, int, Floats, Flags]]:
    """Draw children, the eldest first, at least nine months apart and born to a mother of at least 17."""
    shares = ((0.30, 0.42, 0.18, 0.07, 0.03), (0.55, 0.32, 0.13, 0.0, 0.0))
    wanted = 1 + draw.pick(shares, (sort == LONE_PARENT).astype(np.int64))
    most = np.minimum(mother - 17.1, 27.0)
    number = np.minimum(wanted, 1 + np.floor(np.maximum(most, 0.0) / 3.2).astype(np.int64))
    least = 2.9 * (number - 1)
    eldest = least + (most - least) * np.sqrt(draw.uniform(len(sort)))
    parts = []
    for k in range(5):
        age = eldest * (1 - 0.75 * (k + 0.2 * draw.uniform(len(sort))) / number)
        rows = np.flatnonzero(np.isin(sort, (PARENTS, LONE_PARENT, THREE_GENERATIONS)) & (k < number))
        parts.append((rows, CHILD, age, draw.chance(0.488, len(sort))))
    return parts


def _draw_grandparents(draw: _Draws, sort: Int64s, parent: Floats) -> list[tuple[Int64s, int, Floats, Flags]]:
    age = np.minimum(parent + 20.5 + 14 * draw.uniform(len(sort)), 97.0)
    two = draw.chance(0.35, len(sort)) & (sort == THREE_GENERATIONS)
    alone = two | draw.chance(0.78, len(sort))
    second = np.minimum(age + 3 * draw.uniform(len(sort)), 98.0)
    rows = np.flatnonzero(sort == THREE_GENERATIONS)
    return [(rows, GRANDPARENT, age, alone), (np.flatnonzero(two), GRANDPARENT, second, ~alone)]


def completed_years(birth: npt.NDArray[np.datetime64], day: npt.NDArray[np.datetime64]) -> Int64s:
    """Return ages in completed years; who was born on 29 February is a year older from 1 March.

    >>> completed_years(np.array(["2000-02-29"], "M8[D]"), np.array(["2023-02-28"], "M8[D]")).tolist()
    [22]
    """
    months = [dates.astype("M8[M]") for dates in (birth, day)]
    days = [(dates - month.astype("M8[D]")).astype(np.int64) for dates, month in zip((birth, day), months, strict=True)]
    elapsed = (months[1] - months[0]).astype(np.int64) - (days[1] < days[0])
    return np.asarray(elapsed // 12)


def _draw_marital(draw: _Draws, homes: _Homes, persons: _Persons) -> Int64s:
    """Draw marital status: 1 never married, 2 married, 3 widowed, 4 divorced, 5 registered partnership."""
    home, role, age = persons.home, persons.role, persons.age
    sort = homes.sort[home]
    # Both partners are married or neither, so the draw is that of the household.
    heads = age[role == HEAD]
    weds = draw.chance(np.clip(0.2 + 0.024 * (heads - 22), 0.15, 0.94), len(heads))[home]
    late = (age > 35) & draw.chance(0.33, len(age))
    unwed = np.where(late, 4, 1)
    coupled = np.where(weds, np.where(persons.same_sex, 5, 2), unwed)
    old = 1 + draw.pick(((0.18, 0.0, 0.62, 0.20),), np.zeros(len(age), dtype=np.int64))
    lone = 1 + draw.pick(((0.42, 0.0, 0.09, 0.49),), np.zeros(len(age), dtype=np.int64))
    lone = np.where((lone == 4) & (age < 25), 1, lone)
    two = np.bincount(home[role == GRANDPARENT], minlength=len(heads))[home] == 2
    with_partner = np.isin(sort, (COUPLE, OLD_COUPLE, PARENTS, THREE_GENERATIONS)) & (role <= PARTNER)
    return np.select(
        [role == CHILD, with_partner, (role == GRANDPARENT) & two, role == GRANDPARENT, sort == LONE_PARENT],
        [np.ones_like(age), coupled, np.full_like(age, 2), np.where(old == 1, 3, old), lone],
        np.where(sort == OLD_SINGLE, old, unwed),
    )


def _survey_columns(homes: _Homes, persons: _Persons) -> dict[str, Any]:
    """Return the design of the survey and what is known of everybody."""
    import pyarrow as pa

    home, number = persons.home, len(persons)
    codes = homes.areas.codes[homes.area][home]
    cut = {"region": 1, "district": 2, "municipality": 4, "settlement": 6}
    return {
        "person_id": 10**7 + np.arange(1, number + 1, dtype=np.int64) * 6_180_339 % 10**7,
        "household": home.astype(np.int32) + 1,
        "stratum": homes.areas.stratum[homes.area][home].astype(np.int8),
        "psu": homes.psu[home].astype(np.int16),
        **{name: _category(codes.astype(f"<U{length}")) for name, length in cut.items()},
        "interview_date": pa.array(homes.day[home]),
        "birth_date": pa.array(persons.birth),
        "relationship": (persons.role + 1).astype(np.int8),
        "sex": np.where(persons.woman, 2, 1).astype(np.int8),
        "age": persons.age.astype(np.int16),
        "household_size": np.bincount(home)[home].astype(np.int8),
    }


def _answers(draw: _Draws, homes: _Homes, persons: _Persons) -> dict[str, Any]:
    """Draw what persons do, own and earn, and who gives no answer."""
    import pyarrow as pa

    home, age, number = persons.home, persons.age, len(persons)
    child = age < 15
    marital = _draw_marital(draw, homes, persons)
    work = _draw_work(draw, homes, persons)
    income = np.where(child, 0.0, _draw_income(draw, homes, persons, work))
    together = np.maximum(np.bincount(home, weights=income), 0.0)
    size = np.bincount(home)
    spent = (380 + 230 * np.sqrt(size) + 0.42 * together / 12) * np.exp(0.22 * draw.normal(len(size)))
    tenure = _draw_tenure(draw, homes, persons, together)
    born, citizen = _draw_countries(draw, homes, persons)
    told = {
        name: ~draw.chance(p, number) for name, p in (("education", 0.02), ("occupation", 0.03), ("country", 0.006))
    }
    pays = ~draw.chance(np.where(work.status == 2, 0.16, np.where(income > 45_000, 0.10, 0.04)), number)
    spends, owns = (~draw.chance(p, len(size)) for p in (0.035, 0.015))
    return {
        "marital_status": marital.astype(np.int8),
        "weight": _weigh(draw, homes, home),
        "education": pa.array(np.where(told["education"], work.education, 9).astype(np.int8), mask=child),
        "labour_status": pa.array(work.status.astype(np.int8), mask=child),
        "occupation": _category(np.where(told["occupation"], work.occupation, "99"), missing=child | (work.status > 2)),
        "nationality": _category(np.where(told["country"], citizen, "ZZ")),
        "country_of_birth": _category(np.where(told["country"], born, "ZZ")),
        "tenure": np.where(owns, tenure, 9).astype(np.int8)[home],
        "income": pa.array(np.rint(income).astype(np.int32), mask=child | ~pays),
        "expenditure": pa.array((10 * np.rint(spent / 10)).astype(np.int32)[home], mask=~spends[home]),
    }


@dataclass(frozen=True, kw_only=True)
class _Work:
    """Education, labour status, major group of occupation and its code, as they would be of adults."""

    education: Int64s
    status: Int64s
    major: Int64s
    occupation: npt.NDArray[np.str_]


def _draw_work(draw: _Draws, homes: _Homes, persons: _Persons) -> _Work:
    education = _draw_education(draw, homes, persons)
    status = _draw_labour(draw, persons, education)
    major, occupation = _draw_occupation(draw, education)
    return _Work(education=education, status=status, major=major, occupation=occupation)


def _draw_education(draw: _Draws, homes: _Homes, persons: _Persons) -> Int64s:
    """Draw education from 1 to 5: partners are alike, the old have less, towns more."""
    home, age = persons.home, persons.age
    score = 0.6 * homes.well_off[home] + 0.8 * draw.normal(len(age)) + 0.35 * homes.town[home]
    score = score - 0.022 * np.maximum(age - 42, 0) - 0.25 * (homes.origin[home] >= 0)
    level = 1 + np.searchsorted([-1.5, -0.55, 0.8, 1.55], score)
    return np.asarray(np.minimum(level, np.array([2, 3, 4, 5])[np.searchsorted([18, 21, 24], age, side="right")]))


def _draw_labour(draw: _Draws, persons: _Persons, education: Int64s) -> Int64s:
    group = np.searchsorted([18, 25, 55, 65], persons.age, side="right")
    row = np.where(group >= 3, group + 1, group + ((group == 2) & ~persons.woman))
    status = 1 + draw.pick(_LABOUR, row)
    hired = (status == 3) & draw.chance(np.asarray(0.13 * (education - 1), dtype=np.float64), len(persons))
    return np.where(hired, 1, status)


def _draw_occupation(draw: _Draws, education: Int64s) -> tuple[Int64s, npt.NDArray[np.str_]]:
    """Return the major group and the two-digit code of an occupation."""
    major = draw.pick(_MAJOR, education - 1)
    widest = max(map(len, _MINOR))
    shares = [[share for _, share in minor] + [0.0] * (widest - len(minor)) for minor in _MINOR]
    codes = np.array([[code for code, _ in minor] + [""] * (widest - len(minor)) for minor in _MINOR])
    return major, codes[major, draw.pick(shares, major)]


def _draw_income(draw: _Draws, homes: _Homes, persons: _Persons, work: _Work) -> Floats:
    """Draw yearly income: lognormal by education, experience, occupation, sex and area; losses of the self-employed."""
    number, home = len(persons), persons.home
    education, labour = work.education, work.status
    years = np.clip(persons.age - np.array([15, 16, 19, 22, 25])[education - 1], 0, 45)
    level = 9.55 + 0.11 * (education - 1) + 0.038 * years - 0.00058 * years * years + _PAY[work.major]
    level = (
        level - 0.16 * persons.woman + 0.12 * homes.town[home] - 0.04 * (homes.areas.stratum[homes.area][home] // 10)
    )
    noise, some = draw.normal(number), draw.uniform(number)
    wage = np.exp(level + 0.38 * noise)
    own = 1.25 * np.exp(level + 0.75 * noise) - np.where(some < 0.09, 1.6, 0.12) * np.exp(level)
    pension = np.exp(9.25 + 0.16 * (education - 1) - 0.10 * persons.woman + 0.3 * noise)
    benefit = np.where(some < 0.7, 7_200 + 2_400 * some + 900 * noise, 0.0)
    little = np.where(some < 0.3, np.exp(8.0 + 0.6 * noise), 0.0)
    return np.select(
        [labour == 1, labour == 2, labour == 5, np.isin(labour, (3, 7))], [wage, own, pension, benefit], little
    )


def _draw_tenure(draw: _Draws, homes: _Homes, persons: _Persons, income: Floats) -> Int64s:
    """Draw tenure: 1 owned, 2 with a mortgage, 3 rented, 4 rented at a reduced price, 5 free."""
    age = persons.age[persons.role == HEAD]
    owner = np.clip(0.28 + 0.006 * (age - 30) + income / 160_000 - 0.18 * homes.town, 0.05, 0.95)
    free = draw.chance(np.clip(0.15 + 0.017 * (age - 35), 0.05, 0.95), len(age))
    poor = draw.chance(np.where(income < 18_000, 0.4, 0.12), len(age))
    rent = np.where(draw.chance(0.06, len(age)), 5, np.where(poor, 4, 3))
    return np.where(draw.chance(owner, len(age)), np.where(free, 1, 2), rent)


def _draw_countries(draw: _Draws, homes: _Homes, persons: _Persons) -> tuple[Any, Any]:
    """Return country of birth and nationality; children are mostly born here, and some of the others are citizens."""
    origin = homes.origin[persons.home]
    names = np.array([*_ORIGINS, _HOME])
    abroad = draw.chance(np.where(persons.age < 18, 0.25, 0.88), len(persons)) & (origin >= 0)
    alien = draw.chance(np.where(abroad, 0.66, 0.2), len(persons)) & (origin >= 0)
    return names[np.where(abroad, origin, -1)], names[np.where(alien, origin, -1)]


def _weigh(draw: _Draws, homes: _Homes, home: Int64s) -> Floats:
    """Return weights that add up to the population of each stratum; persons of a household have the same."""
    size = np.bincount(home)
    stratum = homes.areas.stratum[homes.area]
    factor = (1.0 + 0.15 * (size == 1) - 0.06 * (size >= 5)) * np.clip(1 + 0.09 * draw.normal(len(size)), 0.75, 1.3)
    people = np.bincount(homes.areas.stratum, weights=homes.areas.population)
    raised = np.bincount(stratum, weights=factor * size)
    return np.asarray(np.round(factor * people[stratum] / raised[stratum], 4)[home])


def _category(values: npt.NDArray[np.str_], missing: Flags | None = None) -> Any:
    import pyarrow as pa

    known = values if missing is None else values[~missing]
    levels, place = np.unique(known, return_inverse=True)
    codes = np.zeros(len(values), dtype=np.int16)
    codes[slice(None) if missing is None else ~missing] = place
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=missing), pa.array(levels.tolist()))


_LABELS: dict[str, dict[str, str]] = {
    "relationship": {"1": "reference person", "2": "partner", "3": "child", "4": "parent"},
    "sex": {"1": "male", "2": "female"},
    "marital_status": {
        "1": "never married",
        "2": "married",
        "3": "widowed",
        "4": "divorced",
        "5": "registered partnership",
    },
    "education": {
        "1": "primary or less",
        "2": "lower secondary",
        "3": "upper secondary",
        "4": "bachelor or short tertiary",
        "5": "master or doctorate",
        "9": "not stated",
    },
    "labour_status": {
        "1": "employee",
        "2": "self-employed",
        "3": "unemployed",
        "4": "in education",
        "5": "retired",
        "6": "doing housework",
        "7": "unable to work",
    },
    "tenure": {
        "1": "owned outright",
        "2": "owned with a mortgage",
        "3": "rented at market price",
        "4": "rented at a reduced price",
        "5": "free",
        "9": "not stated",
    },
    "region": {"1": "Capital", "2": "Coast", "3": "Plains", "4": "Mountains"},
    "country": {_HOME: "this country", **{code: f"country {code[1]}" for code in _ORIGINS}, "ZZ": "not stated"},
}


@cache
def household_survey_schema() -> Schema:
    """Return the schema of the household survey.

    >>> household_survey_schema()["settlement"].geography_level
    3
    """
    from safeswap.model.schema import Attribute, Kind, Schema

    described = (
        ("person_id", Kind.IDENTIFIER, "person"),
        ("household", Kind.HOUSEHOLD, "household"),
        ("weight", Kind.WEIGHT, "survey weight, calibrated to 1,200,000 persons by stratum"),
        ("stratum", Kind.NOMINAL, "stratum of the sample: region, and 1 for towns or 2 for the country"),
        ("psu", Kind.NOMINAL, "primary sampling unit; its code begins with that of its stratum"),
        ("region", Kind.GEOGRAPHY, "region"),
        ("district", Kind.GEOGRAPHY, "district, with the code of its region"),
        ("municipality", Kind.GEOGRAPHY, "municipality, with the code of its district"),
        ("settlement", Kind.GEOGRAPHY, "settlement, with the code of its municipality"),
        ("interview_date", Kind.DATE, "date of the interview; the same in a household"),
        ("birth_date", Kind.DATE, "date of birth"),
        ("relationship", Kind.NOMINAL, "relationship to the reference person of the household"),
        ("sex", Kind.NOMINAL, "sex"),
        ("age", Kind.NUMERIC, "age in completed years on the date of the interview"),
        ("marital_status", Kind.NOMINAL, "legal marital status"),
        ("education", Kind.ORDINAL, "highest level of education, from 15 years of age"),
        ("labour_status", Kind.NOMINAL, "labour status, from 15 years of age"),
        ("occupation", Kind.NOMINAL, "occupation of those who work, two digits like those of ISCO-08"),
        ("nationality", Kind.NOMINAL, "nationality"),
        ("country_of_birth", Kind.NOMINAL, "country of birth"),
        ("household_size", Kind.ORDINAL, "persons in the household"),
        ("tenure", Kind.NOMINAL, "tenure of the dwelling"),
        ("income", Kind.NUMERIC, "net income of a year from 15 years of age; a loss is negative"),
        ("expenditure", Kind.NUMERIC, "expenditure of the household in a month"),
    )
    answers = ("interview_date", "household_size", "tenure", "expenditure")
    shared = {"weight", "stratum", "psu", *SURVEY_GEOGRAPHY, *answers}
    levels = {"education": tuple("12345"), "household_size": tuple("123456789")}
    missing = {"education": ("9",), "tenure": ("9",), "occupation": ("99",)}
    missing |= dict.fromkeys(("nationality", "country_of_birth"), ("ZZ",))
    labels = _LABELS | dict.fromkeys(("nationality", "country_of_birth"), _LABELS["country"])
    return Schema(
        name="household_survey",
        label="Synthetic household survey (not real people)",
        attributes=tuple(
            Attribute(
                name=name,
                kind=kind,
                label=label,
                levels=levels.get(name, ()),
                labels=labels.get(name, {}),
                missing=missing.get(name, ()),
                geography_level=SURVEY_GEOGRAPHY.index(name) if kind is Kind.GEOGRAPHY else None,
                household=name in shared,
                design=name if name in ("stratum", "psu") else "",
            )
            for name, kind, label in described
        ),
    )
