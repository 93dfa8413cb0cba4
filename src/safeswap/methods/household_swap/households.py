"""Make households of coded columns: numbers, areas, profiles, draws; refuse files that have none to speak of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from safeswap.arrays import cells, keyed, order, sparse
from safeswap.arrays.compiled import is_worth_compiling, njit, python_if_little
from safeswap.arrays.geography import count_straddling, find_parents
from safeswap.arrays.integer_codes import mark, take
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Flags, Int32s, Int64s, Integers, Rows, UInt64s
from safeswap.errors import InfeasibleError, InputError, SpecError
from safeswap.methods.exchange import require_categorical
from safeswap.methods.household_swap.pairing import pair_risky
from safeswap.methods.household_swap.spec import HouseholdSwapSpec
from safeswap.methods.household_swap.swapping import STEPS_PER_PERSON, Areas, Population, Risk
from safeswap.model.columns import missing_codes, to_numbers
from safeswap.model.geography import find_straddling, not_nested_error
from safeswap.model.households import absent_numbers
from safeswap.model.key import Key
from safeswap.model.microdata import Coded, Microdata, column_identity
from safeswap.model.schema import Schema, level_texts
from safeswap.model.text import plural

_SHOWN = 5
_MOST_ODDS = 1_000_000  # a risk below one in this many counts as that


@dataclass(frozen=True, eq=False, kw_only=True)
class Households:
    """The households of a file, as kernels take them, and what is needed to move their members."""

    population: Population
    risk: Risk
    numbers: Int32s  # by row of the file: its household, −1 outside of any
    immovable: int  # households without geography
    communal: int  # establishments left out of this run
    outside: int  # persons without a household

    def __len__(self) -> int:
        return len(self.population.area)

    @cached_property
    def size(self) -> Integers:
        """The number of members by household: counted again when needed, not kept while partners are chosen."""
        with python_if_little(len(self.numbers), pair_risky):
            return _count_members(self.numbers, len(self))


def read_households(records: Loadable, spec: HouseholdSwapSpec, key: Key, draw_key: bytes) -> Households:
    """Code the households of a file for a specification with all names; refuse what cannot be swapped.

    Columns are loaded when they are needed, and what is read from disk is freed as soon as it is told by household.
    """
    check_columns(records.schema, spec)
    with python_if_little(STEPS_PER_PERSON * len(records), pair_risky):
        return _read(records, spec, key, draw_key)


def _read(records: Loadable, spec: HouseholdSwapSpec, key: Key, draw_key: bytes) -> Households:
    numbers, draw = _number_households(records, spec, key, draw_key)
    row_area, paths = _number_areas(records.load(spec.geography), spec)
    row_area, area = _place_households(spec, numbers, row_area, len(draw))
    inside, outside = _split_persons(numbers, row_area)
    outside_area = row_area[outside].astype(np.int32)
    del row_area
    placed = area >= 0
    paths = _order_areas(area, paths, outside_area, draw, placed)
    size = _count_members(numbers, len(draw))
    constant = {n: _constant(records.load((n,)), n, numbers, len(draw)) for n in _constant_names(spec)}
    is_communal = _find_communal(spec, constant, len(draw))
    movable = placed & (is_communal if spec.units == "communal" else ~is_communal)
    profiles = tuple(_profile(names, constant, size, match_size=spec.match_size) for names in spec.profiles)
    del constant, is_communal, size
    cell, number_of_cells = _risk_cells(records, spec)
    population = Population(
        household=numbers[inside],
        cell=cell[inside],
        cells=number_of_cells,
        area=area,
        paths=paths,
        profiles=profiles,
        draw=draw,
        movable=None if movable.all() else movable,
        outside_area=outside_area,
        outside_cell=cell[outside],
    )
    _refuse_lonely(population, spec)
    risk = _own_risk(records, spec, population, inside) if spec.risk else _counted_risk(population, spec)
    return Households(
        population=population,
        risk=risk,
        numbers=numbers,
        immovable=int(np.count_nonzero(~placed)),
        communal=int(np.count_nonzero(placed & ~movable)),
        outside=int(np.count_nonzero(numbers < 0)),
    )


class Loadable(Protocol):
    """Records of which some attributes can be loaded."""

    @property
    def schema(self) -> Schema:
        """The schema."""
        ...

    def __len__(self) -> int: ...

    def load(self, names: Names) -> Microdata:
        """Load some attributes."""
        ...


def _split_persons(numbers: Int32s, row_area: Integers) -> tuple[Flags | slice, Flags | slice]:
    """Return which persons of a known area are in a household and which are not; usually all are."""
    if numbers.min(initial=0) >= 0 and row_area.min(initial=0) >= 0:
        return slice(None), slice(0)
    counted = row_area >= 0
    return counted & (numbers >= 0), counted & (numbers < 0)


def check_columns(schema: Schema, spec: HouseholdSwapSpec) -> None:
    """Refuse unknown attributes, and attributes of a kind that does not fit their role."""
    for name in (spec.household, *spec.carry_along, *spec.risk):
        schema[name]
    require_categorical(schema, spec.geography, what="a level of the geography", code="not-geography")
    require_categorical(schema, spec.risk_variables, what="a risk variable", code="key-not-categorical")
    similar = tuple(name for name in spec.profiles[0])
    require_categorical(schema, similar, what="an attribute of a profile", code="key-not-categorical")
    if spec.communal is not None:
        require_categorical(schema, (spec.communal,), what="the mark of an establishment", code="key-not-categorical")
    if spec.risk and len(spec.risk) not in (1, len(spec.geography)):
        raise SpecError(
            f"risk names {plural(len(spec.risk), 'column')} for {plural(len(spec.geography), 'level')}",
            code="bad-spec",
            hint="name one column for all levels, or one per level, from coarse to fine",
        )


def _constant_names(spec: HouseholdSwapSpec) -> Names:
    communal = () if spec.communal is None else (spec.communal,)
    return tuple(dict.fromkeys((*spec.profiles[0], *spec.carry_along, *communal)))


def _number_households(records: Loadable, spec: HouseholdSwapSpec, key: Key, draw_key: bytes) -> tuple[Int32s, UInt64s]:
    """Return the household of each row, −1 outside of any, and the draw of each household."""
    assert spec.household is not None  # noqa: S101  (resolved)
    data = records.load((spec.household,))
    coded = data.coded(spec.household)
    absent = absent_numbers(data, spec.household)
    if not absent.any():
        is_wide = coded.codes.dtype == np.uint32
        numbers = coded.codes.view(np.int32) if is_wide else coded.codes.astype(np.int32)
        return numbers, _draw(coded.levels, key, draw_key)
    codes = np.full(len(absent), -1, dtype=np.int32)
    known = np.flatnonzero(~absent)
    codes[known] = np.arange(len(known), dtype=np.int32)
    numbers = codes[coded.codes]
    rows = np.flatnonzero(numbers < 0)
    if len(rows) and spec.missing_household == "refuse":
        raise InputError(
            f"{plural(len(rows), 'person has', 'persons have')} no household number {spec.household!r}, "
            f"the first in {_records(rows)}",
            code="missing-household",
            hint='give every person one, or set missing_household="outside" to leave them where they are',
            attribute=spec.household,
            persons=len(rows),
            records=_positions(rows),
        )
    return numbers, _draw(coded.levels.take(pa.array(known)), key, draw_key)


def _number_areas(data: Microdata, spec: HouseholdSwapSpec) -> tuple[Integers, Int64s]:
    """Return the bottom area of each row, −1 where a level is missing, and the code of each level by bottom area.

    Codes that name areas by themselves are returned as they are: a copy in wider integers would be 400 MB for a hundred
    million persons.
    """
    codes = [data.coded(name).codes for name in spec.geography]
    absent = [missing_codes(data, name) for name in spec.geography]
    unknown = np.zeros(len(data), dtype=np.bool_)
    for column, flags in zip(codes, absent, strict=True):
        if flags.any():
            unknown |= flags[column]
    missing = int(np.count_nonzero(unknown))
    if missing and spec.missing_geography == "refuse":
        rows = np.flatnonzero(unknown)
        raise InputError(
            f"{plural(missing, 'person lacks', 'persons lack')} a code of the geography, the first in {_records(rows)}",
            code="missing-geography",
            hint='give every household a code at every level, or set missing_geography="immovable" to leave it there',
            persons=missing,
            records=_positions(rows),
        )
    paths = _nested_paths(data, spec, codes) if spec.geography_codes == "unique" and not missing else None
    if paths is not None:
        return codes[-1], paths
    return _packed_paths(data, spec, codes, unknown)


def _nested_paths(data: Microdata, spec: HouseholdSwapSpec, codes: Sequence[Codes]) -> Int64s:
    """Return the path of each area of the finest level; refuse areas that lie in two of the level above."""
    number = data.coded(spec.geography[-1]).cardinality
    path = [np.arange(number)]
    for place in range(len(codes) - 1, 0, -1):
        coarse, fine = spec.geography[place - 1], spec.geography[place]
        parents = find_parents(codes[place], codes[place - 1], data.coded(fine).cardinality)
        if parents is None:
            raise _straddling(data, coarse, fine)
        path.append(np.maximum(parents, 0)[path[-1]])
    return np.stack(path[::-1], axis=1).astype(np.int64)


def _packed_paths(
    data: Microdata, spec: HouseholdSwapSpec, codes: Sequence[Codes], unknown: Flags
) -> tuple[Int32s, Int64s]:
    """Number the combinations of all levels; codes that restart in each coarser area name areas together only."""
    known = np.flatnonzero(~unknown)
    some = [column[known] for column in codes]
    if spec.geography_codes == "unique":
        for place in range(1, len(some)):
            fine = data.coded(spec.geography[place])
            if count_straddling(some[place], some[place - 1], fine.cardinality):
                raise _straddling(data, spec.geography[place - 1], spec.geography[place])
    ranks, number = sparse.rank_codes(cells.pack(some, [data.coded(n).cardinality for n in spec.geography])[0])
    paths = np.zeros((max(number, 1), len(codes)), dtype=np.int64)
    for place, column in enumerate(some):
        paths[ranks, place] = column
    area = np.full(len(data), -1, dtype=np.int32)
    area[known] = ranks
    return area, paths


def _straddling(data: Microdata, coarse: str, fine: str) -> SpecError:
    inner, outer = data.coded(fine), data.coded(coarse)
    compared = inner.codes, outer.codes, len(inner.levels)
    return not_nested_error(coarse, fine, count_straddling(*compared), find_straddling(*compared))


def _place_households(
    spec: HouseholdSwapSpec, numbers: Int32s, row_area: Integers, households: int
) -> tuple[Integers, Int32s]:
    """Return the area of each row and household, unknown for all members if for one; refuse split households."""
    every = bool(row_area.min(initial=0) >= 0)
    known = slice(None) if every else row_area >= 0
    area = np.full(households, -1, dtype=np.int32)
    differs = _find_first(numbers[known], row_area[known], area)
    if differs.any():
        raise _varies(numbers, differs, "live in more than one area", spec.geography[-1], code="household-split")
    if households and not every:
        inside = (row_area < 0) & (numbers >= 0)
        area[numbers[inside]] = -1
        row_area = np.where((numbers >= 0) & (area[numbers] < 0), -1, row_area).astype(np.int32)
    return row_area, area


def _order_areas(area: Int32s, paths: Int64s, outside: Int32s, draw: UInt64s, placed: Flags) -> Int64s:
    """Number the areas in keyed order, in place, an unknown one as the first; return the paths in that order."""
    known = slice(None) if placed.all() else placed  # whose area is unknown has no say in the order
    rank = Areas.of(paths, area[known], draw[known]).rank
    np.maximum(area, 0, out=area)
    for numbers in (area, outside):
        take(rank, numbers, numbers)
    area[~placed] = 0
    return paths[np.argsort(rank)]


def _constant(data: Microdata, name: str, numbers: Int32s, households: int) -> Coded:
    """Return the value of each household; refuse an attribute that differs between members."""
    coded = data.coded(name)
    first = np.zeros(households, dtype=coded.codes.dtype)
    differs = _find_first(numbers, coded.codes, first)
    if differs.any():
        raise _varies(numbers, differs, f"differ in {name!r}", name, code="varies-within-household")
    return replace(coded, codes=first)


def _varies(numbers: Int32s, differs: Flags, what: str, name: str, *, code: str) -> InputError:
    rows, count = np.flatnonzero((numbers >= 0) & differs[numbers]), int(np.count_nonzero(differs))
    return InputError(
        f"the members of {plural(count, 'household')} {what}, the first in {_records(rows)}",
        code=code,
        hint="name an attribute that all members of a household share, or correct the household numbers",
        attribute=name,
        households=count,
        records=_positions(rows),
    )


def _find_communal(spec: HouseholdSwapSpec, constant: dict[str, Coded], households: int) -> Flags:
    if spec.communal is None:
        return np.zeros(households, dtype=np.bool_)
    texts = [*level_texts(constant[spec.communal].levels), ""]
    marks = np.array([text in spec.communal_values for text in texts], dtype=np.bool_)
    if not marks.any():
        raise SpecError(
            f"no value of {spec.communal!r} is one of communal_values",
            code="unknown-level",
            hint="name the values as the schema lists them",
            attribute=spec.communal,
        )
    found: Flags = marks[constant[spec.communal].codes]
    return found


def _risk_cells(records: Loadable, spec: HouseholdSwapSpec) -> tuple[Codes, int]:
    """Return the combination of the risk variables of each person, and a number above all."""
    if not spec.risk_variables:
        return np.zeros(len(records), dtype=np.uint8), 1
    packed, number = cells.pack(*records.load(spec.risk_variables).coded_columns(spec.risk_variables))
    if number <= max(1 << 12, len(records) // 64):
        return packed, number
    ranks, number = sparse.rank_codes(packed)
    return ranks, max(number, 1)


def _count_members(numbers: Int32s, households: int) -> Integers:
    """Return the number of members of each household, in two bytes where that suffices, as nearly everywhere."""
    size = np.zeros(households, dtype=np.uint32)
    _add_members(numbers, size)
    return size.astype(np.uint16) if size.max(initial=0) < 1 << 16 else size


def _profile(names: Names, constant: dict[str, Coded], size: Integers, *, match_size: bool) -> Integers:
    """Number the combinations of a profile by household."""
    columns: list[Any] = [constant[name].codes for name in names]
    sizes = [constant[name].cardinality for name in names]
    if match_size:
        columns.append(size)
        sizes.append(int(size.max(initial=0)) + 1)
    if not columns:
        return np.zeros(len(size), dtype=np.uint16)
    packed, number = cells.pack(columns, sizes)
    if number > len(packed):
        ranks, number = sparse.rank_codes(packed)
        return ranks.astype(_profile_type(number))
    occurs = np.zeros(number, dtype=np.bool_)
    mark(occurs, packed)
    table = np.cumsum(occurs) - 1
    profile = np.empty(len(size), dtype=_profile_type(int(table[-1]) + 1))
    take(table, packed, profile)
    return profile


def _profile_type(number: int) -> type[np.integer[Any]]:
    """Return the type for this many cells: one of two, since kernels are compiled for each."""
    return np.uint16 if number <= 1 << 16 else np.int32


def _draw(levels: pa.Array, key: Key, draw_key: bytes) -> UInt64s:
    """Return a distinct keyed draw per household, a function of its number alone."""
    identity = column_identity(pa.chunked_array([levels]), keyed.derive(key.secret, "identity"))
    draws = np.empty(len(identity), dtype=np.uint64)
    for start, some in keyed.draw_chunks(identity, draw_key):
        draws[start : start + len(some)] = some
    if not _are_some_equal(draws):
        return draws
    # Two 64-bit draws are equal: the whole cipher text, which is unique, decides.
    words = keyed.encrypt(order.as_blocks(identity), draw_key)
    spread = np.uint64((1 << 64) // len(draws))
    draws[np.lexsort((words[:, 1], words[:, 0]))] = np.arange(len(draws), dtype=np.uint64) * spread
    return draws


def _are_some_equal(draws: UInt64s) -> bool:
    """Return whether two draws are equal; of many, only those that begin with the same bits as another are sorted."""
    suspects = draws
    if is_worth_compiling(8 * len(draws)):
        bits = min(27, 5 + len(draws).bit_length())
        seen, again = (np.zeros(1 << (bits - 3), dtype=np.uint8) for _ in range(2))
        suspects = draws[_share_place(draws, np.uint64(64 - bits), seen, again)]
    suspects = np.sort(suspects)
    return bool((suspects[1:] == suspects[:-1]).any())


def _counted_risk(population: Population, spec: HouseholdSwapSpec) -> Risk:
    if spec.k and spec.risk_variables:
        return Risk.of(population, spec.k)
    risk = Risk.of(population, 0) if spec.risk_variables else None
    depth, number = population.areas.depth, len(population.area)
    smallest = np.ones(number, dtype=np.int32) if risk is None else risk.smallest
    return Risk(required=np.full(number, depth, dtype=np.uint8), smallest=smallest)


def _own_risk(records: Loadable, spec: HouseholdSwapSpec, population: Population, inside: Flags | slice) -> Risk:
    """Return the topmost level at which a member's own risk reaches the threshold; 1 / risk stands for its cell."""
    assert spec.threshold is not None  # noqa: S101  (the specification has checked it)
    depth, number = population.areas.depth, len(population.area)
    required, smallest = np.full(number, depth, dtype=np.uint8), np.full(number, _MOST_ODDS, dtype=np.int32)
    names = spec.risk if len(spec.risk) > 1 else spec.risk * depth
    data = records.load(spec.risk)
    for level in range(depth - 1, -1, -1):
        numbers = to_numbers(data, names[level])
        values = numbers[inside]
        if np.isnan(values).any():
            counted = np.zeros(len(numbers), dtype=np.bool_)
            counted[inside] = True
            rows = np.flatnonzero(counted & np.isnan(numbers))
            raise InputError(
                f"{plural(len(rows), 'person has', 'persons have')} no risk in {names[level]!r}, "
                f"the first in {_records(rows)}",
                code="missing-risk",
                hint="give every person a number",
                attribute=names[level],
                persons=len(rows),
                records=_positions(rows),
            )
        risky = np.unique(population.household[values >= spec.threshold])
        required[risky] = level
        odds = 1 / np.clip(values, 1 / _MOST_ODDS, 1)
        np.minimum.at(smallest, population.household, odds.round().astype(np.int32))
    return Risk(required=required, smallest=smallest)


def _refuse_lonely(population: Population, spec: HouseholdSwapSpec) -> None:
    """Refuse a file of one household or one area, if anything is to be swapped."""
    if not spec.rate and not spec.risk and not (spec.k and spec.risk_variables):
        return
    movable = np.ones(len(population.area), np.bool_) if population.movable is None else population.movable
    first = int(np.argmax(movable)) if len(movable) else 0
    if (movable & (population.area != population.area[first : first + 1])).any():
        return
    number = int(np.count_nonzero(movable))
    what = "one area" if number > 1 else "one household" if number else "no household"
    raise InfeasibleError(
        f"there is {what} to swap: households are exchanged between areas",
        code="single-area" if number > 1 else "single-household",
        hint="give a file with at least two households in different areas",
        households=number,
        areas=min(number, 1),
    )


def _positions(rows: Rows) -> list[int]:
    return [int(row) + 1 for row in rows[:_SHOWN]]


def _records(rows: Rows) -> str:
    shown = ", ".join(f"{n:,}" for n in _positions(rows))
    return f"record{'s' * (len(rows) > 1)} {shown}" + (" …" if len(rows) > _SHOWN else "")


@njit(cache=True, nogil=True)
def _add_members(numbers, size):  # type: ignore[no-untyped-def]
    for h in numbers:
        if h >= 0:
            size[h] += 1


@njit(cache=True, nogil=True)
def _find_first(numbers, values, first):  # type: ignore[no-untyped-def]
    """Set the value of each household to its first member's; return whether another member's differs."""
    seen, differs = np.zeros(len(first), np.bool_), np.zeros(len(first), np.bool_)
    for i in range(len(numbers)):
        h = numbers[i]
        if h < 0:
            continue
        if not seen[h]:
            seen[h] = True
            first[h] = values[i]
        elif first[h] != values[i]:
            differs[h] = True
    return differs


@njit(cache=True, nogil=True)
def _share_place(draws, shift, seen, again):  # type: ignore[no-untyped-def]
    """Return the positions of draws whose first bits are also those of another one."""
    number = 0
    for draw in draws:
        place = draw >> shift
        bit = np.uint8(1 << (place & np.uint64(7)))
        place >>= np.uint64(3)
        if seen[place] & bit and not again[place] & bit:
            again[place] |= bit
        number += (seen[place] & bit) != 0
        seen[place] |= bit
    found = np.empty(2 * number, np.int64)
    number = 0
    for i in range(len(draws)):
        place = draws[i] >> shift
        if again[place >> np.uint64(3)] & np.uint8(1 << (place & np.uint64(7))):
            found[number] = i
            number += 1
    return found[:number]
