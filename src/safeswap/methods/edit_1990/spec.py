"""Specification of the Confidentiality Edit of 1990, and its preconditions, checked before any household is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from safeswap.arrays import sparse
from safeswap.arrays.cells import CellSet
from safeswap.arrays.compiled import njit
from safeswap.arrays.names import Names
from safeswap.arrays.types import Identity
from safeswap.engines.base import Cells, Records
from safeswap.errors import InfeasibleError, InputError
from safeswap.methods.exchange import MISSING_KEYS, refuse_missing, require_categorical
from safeswap.model.columns import missing_codes
from safeswap.model.geography import not_nested_error
from safeswap.model.microdata import Microdata, record_identity
from safeswap.model.scenario import ScenarioName, fill_in
from safeswap.model.schema import Kind, Schema
from safeswap.model.spec import CATEGORIES, GeographyCodes, MaskSpec, MissingKeys, refuse_repeats, takes
from safeswap.model.text import plural


class Edit1990Spec(MaskSpec):
    """Sample households and exchange the geography of each with a household of the same key elsewhere.

    >>> spec = Edit1990Spec(
    ...     keys=["Persons", "Adults"],
    ...     geography=["State", "County", "Place", "Tract", "Block"],
    ...     across="Place",
    ...     rate=0.01,
    ... )
    >>> spec.within_level, spec.across_level, spec.exchanged
    ('State', 'Place', ('County', 'Place', 'Tract', 'Block'))
    """

    method: ClassVar[str] = "edit_1990"

    keys: Annotated[
        Names,
        Field(
            min_length=1,
            description="key characteristics, equal in both households of a pair",
            json_schema_extra=takes(*CATEGORIES),
        ),
    ]
    geography: Annotated[
        Names,
        Field(
            min_length=2,
            description="levels of the geography, from coarse to fine",
            json_schema_extra=takes("geography", ordered=True),
        ),
    ]
    within: Annotated[
        str | None,
        Field(
            description="level across whose areas nothing is exchanged; default: the coarsest",
            json_schema_extra=takes("geography"),
        ),
    ] = None
    across: Annotated[
        str | None,
        Field(
            description="level in whose areas the households of a pair differ; default: the one after within",
            json_schema_extra=takes("geography"),
        ),
    ] = None
    rate: Annotated[
        float,
        Field(ge=0, le=1, description="share of households to sample; partners from outside the sample move too"),
    ]
    small_block_units: Annotated[
        int, Field(ge=0, description="an area of the finest level with fewer households is a small block")
    ] = 0
    small_block_rate: Annotated[
        float | None, Field(ge=0, le=1, description="share of households of small blocks to sample")
    ] = None
    geography_codes: GeographyCodes = "unique"
    missing_keys: MissingKeys = "refuse"
    single_areas: Annotated[
        Literal["refuse", "leave"],
        Field(
            description="households without a possible partner, because all of one within area lie in one across area: "
            "refuse, or leave them unchanged"
        ),
    ] = "refuse"
    on_unmatched: Annotated[
        Literal["report", "error"],
        Field(description="sampled households without a partner: report how many, or refuse"),
    ] = "report"
    scenario: ScenarioName = ""

    @model_validator(mode="before")
    @classmethod
    def _reads_scenario(cls, values: Any) -> Any:
        return fill_in(values, keys="names")

    @model_validator(mode="after")
    def _is_consistent(self) -> Edit1990Spec:
        refuse_repeats(self, "keys", "geography")
        for role in ("within", "across"):
            name = getattr(self, role)
            if name is not None and name not in self.geography:
                raise ValueError(f"{role} names {name!r}, which is not a level of the geography")
        if self.within_level == self.geography[-1]:
            raise ValueError(f"within names the finest level, {self.within_level!r}: nothing is left to exchange")
        if self.across_level not in self.exchanged:
            raise ValueError(f"across must be finer than within: {self.across_level!r} is not")
        moved = sorted(set(self.keys) & set(self.exchanged))
        if moved:
            raise ValueError(f"{moved[0]!r} is exchanged and cannot be a key")
        if (self.small_block_units > 0) != (self.small_block_rate is not None):
            raise ValueError("small_block_units and small_block_rate belong together: give both or neither")
        if self.small_block_rate is not None and self.small_block_rate < self.rate:
            raise ValueError("small_block_rate must not be below rate: small blocks are sampled at the higher rate")
        return self

    @property
    def within_level(self) -> str:
        """The level across whose areas nothing is exchanged."""
        return self.within if self.within is not None else self.geography[0]

    @property
    def across_level(self) -> str:
        """The level in which the two households of a pair differ."""
        if self.across is not None:
            return self.across
        place = self.geography.index(self.within_level) + 1
        return self.geography[min(place, len(self.geography) - 1)]

    @property
    def exchanged(self) -> Names:
        """The levels whose codes are exchanged together: all finer than ``within``."""
        return self.geography[self.geography.index(self.within_level) + 1 :]

    @property
    def matched(self) -> Names:
        """The attributes equal in both households of a pair: geography down to ``within``, and the keys."""
        coarse = self.geography[: self.geography.index(self.within_level) + 1]
        return (*coarse, *(name for name in self.keys if name not in coarse))

    @property
    def differing(self) -> Names:
        """The attributes of which at least one differs within a pair: those that name the area across."""
        return tuple(name for name in self.area(self.across_level) if name in self.exchanged)

    def area(self, level: str) -> Names:
        """Return the attributes that together name an area of a level."""
        if self.geography_codes == "unique":
            return (level,)
        return self.geography[: self.geography.index(level) + 1]


_SPARSEST = 64  # bits per name: a bitmap should not be larger than the names themselves


def has_duplicates(names: Identity) -> bool:
    """Return True if any name occurs twice. Names are integers, or rows of two words.

    >>> has_duplicates(np.array([3, 1, 2])), has_duplicates(np.array([3, 1, 3]))
    (False, True)
    >>> has_duplicates(np.array([[1, 2], [2, 1], [1, 2]], np.uint64))
    True
    """
    if len(names) < 2:
        return False
    if names.ndim == 2:
        return _repeated_pairs(names)
    numbers = names.view(np.int64)
    if _ascends(numbers):
        return False
    least, most = int(numbers.min()), int(numbers.max())
    if most - least < _SPARSEST * len(numbers):
        return bool(_marked_twice(numbers, least, np.zeros((most - least) // 8 + 1, dtype=np.uint8)))
    return len(sparse.count_distinct(numbers.view(np.uint64))[0]) < len(numbers)


def _repeated_pairs(names: Identity) -> bool:
    """Compare rows that agree in a hash of their words word by word."""
    words = np.ascontiguousarray(names).view(np.uint64)
    mixture = words[:, 0] ^ (words[:, 1] * np.uint64(0x9E3779B97F4A7C15))
    suspects = words[sparse.count_occurrences(mixture) > 1]
    return len(np.unique(suspects, axis=0)) < len(suspects)


@njit(cache=True, nogil=True)
def _ascends(numbers: npt.NDArray[np.int64]) -> bool:
    for i in range(1, len(numbers)):  # noqa: SIM110  (a loop that Numba compiles)
        if numbers[i] <= numbers[i - 1]:
            return False
    return True


@njit(cache=True, nogil=True)
def _marked_twice(numbers: npt.NDArray[np.int64], least: int, marks: npt.NDArray[np.uint8]) -> bool:
    for number in numbers:
        place = number - least
        bit = np.uint8(1) << np.uint8(place & 7)
        if marks[place >> 3] & bit:
            return True
        marks[place >> 3] |= bit
    return False


@dataclass(frozen=True, eq=False)
class Areas:
    """The result of counting areas: the small blocks, and the number of areas with no other to exchange with."""

    small_blocks: CellSet
    single: int


def check_records(records: Records, spec: Edit1990Spec) -> Areas:
    """Refuse, from counts alone, what the edit cannot work with; return what it needs to know of the areas.

    Refused are keys and levels that are not categorical, missing values in them, households that repeat, levels that
    do not nest, and areas that have nobody to exchange with.
    """
    schema = records.schema
    require_categorical(schema, spec.keys, what="a key", code="key-not-categorical")
    require_categorical(schema, spec.geography, what="a level of the geography", code="not-geography")
    # One count by the whole geography: those by a level are margins of it, and much smaller than the file.
    keys = tuple(name for name in spec.keys if name not in spec.geography)
    blocks, *by_key = records.count(spec.geography, *((name,) for name in keys))
    levels = _margins(blocks, spec.geography)
    counted = {**levels, **dict(zip(keys, by_key, strict=True))}
    missing = {name: _count_missing(cells, name, schema) for name, cells in counted.items()}
    levels_missing = {name: missing[name] for name in spec.geography}
    refuse_missing(levels_missing, code="missing-geography", hint="give every household a code at every level")
    if spec.missing_keys == "refuse":
        refuse_missing({name: missing[name] for name in spec.keys}, code="missing-keys", hint=MISSING_KEYS)
    for attribute in schema.iter_kind(Kind.HOUSEHOLD):
        if not records.is_unique(attribute.name):
            raise _household_repeats(attribute.name)
    if spec.geography_codes == "unique":
        for coarse, fine in pairwise(spec.geography):
            if areas := _count_straddling(levels[fine], coarse, fine):
                raise not_nested_error(coarse, fine, areas)
    single, households = _count_single(levels[spec.across_level], spec.area(spec.within_level))
    if spec.rate or spec.small_block_rate:
        _refuse_single(single, households, spec)
    if records.held is not None:
        _check_identity(records.held)
    return Areas(_find_small_blocks(blocks, spec), single)


def _margins(blocks: Cells, geography: Names) -> dict[str, Cells]:
    """Return the counts by each level and all above it, each made from the next finer one."""
    levels = {geography[-1]: blocks}
    for place in range(len(geography) - 1, 0, -1):
        levels[geography[place - 1]] = levels[geography[place]].margin(geography[:place])
    return levels


def _count_straddling(cells: Cells, coarse: str, fine: str) -> int:
    """Count the areas of a level that lie in several of the level above."""
    areas = np.sort(cells.column(fine))
    if not (areas[1:] == areas[:-1]).any():
        return 0
    pairs = np.unique(np.stack([cells.column(fine), cells.column(coarse)], axis=1), axis=0)
    return int(np.count_nonzero(np.unique(pairs[:, 0], return_counts=True)[1] > 1))


def _find_small_blocks(blocks: Cells, spec: Edit1990Spec) -> CellSet:
    if spec.small_block_rate is None:
        return CellSet((), np.zeros((0, 1), np.int64))
    names = spec.area(spec.geography[-1])
    small = blocks.counts < spec.small_block_units
    return CellSet(names, np.stack([blocks.column(name)[small] for name in names], axis=1))


def _count_missing(cells: Cells, name: str, schema: Schema) -> int:
    column = cells.values.column(name)
    if not schema[name].missing and not column.null_count and not pa.types.is_floating(column.type):
        return 0  # as usual: the names of a country's blocks need not be looked at
    values = Microdata(cells.values.select([name]), Schema(attributes=(schema[name],)))
    flags = missing_codes(values, name)
    return int(cells.counts[flags[values.coded(name).codes]].sum())


def _count_single(cells: Cells, within: Names) -> tuple[int, int]:
    """Count the areas with several households but no other area to exchange with, and their households."""
    place = np.unique(np.stack([cells.column(name) for name in within], axis=1), axis=0, return_inverse=True)[1].ravel()
    areas, households = np.bincount(place), np.bincount(place, weights=cells.counts).astype(np.int64)
    single = (areas == 1) & (households > 1)
    return int(single.sum()), int(households[single].sum())


def _check_identity(data: Microdata) -> None:
    """Refuse data in which a record identifier occurs twice: two records would share a draw."""
    attribute = data.schema.identifier
    if attribute is not None and has_duplicates(record_identity(data, bytes(32))):
        raise InputError(
            f"the identifier {attribute.name!r} occurs more than once in some records",
            code="duplicate-identifier",
            hint="an identifier must be unique; name another column, or none to know records by their position",
            column=attribute.name,
        )


def _refuse_single(single: int, households: int, spec: Edit1990Spec) -> None:
    if spec.single_areas == "leave" or not single:
        return
    finer = spec.geography[spec.geography.index(spec.across_level) + 1 :]
    raise InfeasibleError(
        f"{plural(single, 'area')} of {spec.within_level!r}, with {plural(households, 'household')}, "
        f"{'has' if single == 1 else 'have'} one area of {spec.across_level!r} only: nobody there can "
        "have a partner in another one",
        code="single-area",
        hint="; or ".join(
            [
                *([f"exchange across {finer[0]}"] if finer else []),
                *(["exchange within a coarser level"] if spec.within_level != spec.geography[0] else []),
                'single_areas="leave" to leave these households as they are',
            ]
        ),
        areas=single,
        households=households,
        within=spec.within_level,
        across=spec.across_level,
    )


def _household_repeats(name: str) -> InputError:
    return InputError(
        f"households repeat in {name!r}: this edit moves one record per household",
        code="household-repeats",
        hint="give a file of households, with the persons counted by their characteristics",
        attribute=name,
    )
