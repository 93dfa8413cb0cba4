"""Persons in households: who lives together, what the members share, and the file of households.

The number of a household is the attribute of kind household. Persons without one (a missing number, or a number that
the schema lists as missing) live outside households, and each is a unit of its own. An attribute marked ``household``
has one value for all members: methods change it for the whole household or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int64s, Rows
from safeswap.errors import InputError
from safeswap.model.columns import missing_codes, number_cells, rank_of_code
from safeswap.model.microdata import Microdata, code_column
from safeswap.model.schema import (
    Attribute,
    Kind,
    Schema,
    household_column,
    level_texts,
    require_household,
)
from safeswap.model.text import plural

_ENOUGH = 20.0
"""Pairs of mates times the chance to disagree: this many pairs agree by chance with a probability below exp(-20)."""

_SHOWN = 5
"""The number of records that an error lists."""


@dataclass(frozen=True, eq=False)
class Households:
    """The household of each record, in the order in which households first appear.

    ``first`` is the first record of each household, ``sizes`` its number of records; ``outside`` flags the records
    without a household, each of which is one of its own. A record that is left out has the number after the last.

    >>> schema = Schema(attributes=(Attribute(name="home", kind="household"),))
    >>> homes = find_households(Microdata(pa.table({"home": [7, None, 7, None]}), schema))
    >>> homes.of_record.tolist(), homes.sizes.tolist(), int(homes.outside.sum())
    ([0, 1, 0, 2], [2, 1, 1], 2)
    """

    of_record: Int64s
    first: Rows
    sizes: Int64s
    outside: Flags

    def __len__(self) -> int:
        return len(self.first)

    def members(self, households: Int64s) -> Rows:
        """Return the records of some households, in file order."""
        chosen = np.zeros(len(self) + 1, dtype=np.bool_)
        chosen[households] = True
        return np.flatnonzero(chosen[self.of_record])

    def leave_out(self, records: Flags) -> Households:
        """Return the households without those of which the first record is flagged."""
        kept = ~records[self.first]
        place = np.append(np.cumsum(kept) - 1, int(np.count_nonzero(kept)))
        place[:-1][~kept] = place[-1]
        return Households(place[self.of_record], self.first[kept], self.sizes[kept], self.outside)


_FOUND: WeakKeyDictionary[Microdata, Households] = WeakKeyDictionary()


def find_households(data: Microdata) -> Households:
    """Return the households of a file; refuse a file that does not number them."""
    if data not in _FOUND:
        _FOUND[data] = _find(data, require_household(data.schema))
    return _FOUND[data]


def absent_numbers(data: Microdata, name: str) -> Flags:
    """Flag the codes that number no household: missing ones, empty texts, and what is not a number in floats."""
    levels, absent = data.coded(name).levels, missing_codes(data, name)
    if pa.types.is_floating(levels.type):
        absent[: len(levels)] |= pc.is_nan(levels).to_numpy(zero_copy_only=False)
    elif pa.types.is_string(levels.type) or pa.types.is_large_string(levels.type):
        absent[: len(levels)] |= pc.equal(levels, "").to_numpy(zero_copy_only=False)
    return absent


def _find(data: Microdata, name: str) -> Households:
    coded = data.coded(name)
    outside = absent_numbers(data, name)[coded.codes]
    numbers = coded.codes.astype(np.int64)
    numbers[outside] = coded.cardinality + np.arange(int(np.count_nonzero(outside)))
    rows = np.arange(len(numbers))
    first = np.full(coded.cardinality + int(np.count_nonzero(outside)), -1, dtype=np.int64)
    first[numbers[::-1]] = rows[::-1]  # the last to be written is the first record
    starts = np.sort(first[first >= 0])
    place = np.empty(len(first), dtype=np.int64)
    place[numbers[starts]] = np.arange(len(starts))
    of_record = place[numbers]
    return Households(of_record, starts, np.bincount(of_record, minlength=len(starts)), outside)


def find_holders(data: Microdata, names: Sequence[str]) -> Households:
    """Return the households that can hold these attributes.

    A person outside households without a value of any of them, such as one that no household file describes, has
    nothing to give, and nothing that could be kept.
    """
    homes = find_households(data)
    empty = homes.outside.copy()
    for name in names:
        if empty.any():
            empty &= data.table.column(name).is_null().to_numpy()
    return homes.leave_out(empty) if empty.any() else homes


def find_varying(data: Microdata, name: str) -> Rows:
    """Return the records whose value differs from that of the first member of their household."""
    homes, codes = find_households(data), data.coded(name).codes
    return np.flatnonzero(codes != codes[homes.first][homes.of_record])


def find_split(data: Microdata, name: str, homes: Households) -> Flags:
    """Flag the households whose members have different values."""
    codes = data.coded(name).codes
    flags = np.zeros(len(homes), dtype=np.bool_)
    flags[homes.of_record[codes != codes[homes.first][homes.of_record]]] = True
    return flags


def check_constant(data: Microdata, names: Iterable[str]) -> None:
    """Refuse a household attribute of which two members of a household have different values."""
    for name in names:
        rows = find_varying(data, name)
        if not rows.size:
            continue
        homes = np.unique(find_households(data).of_record[rows])
        area = data.schema[name].kind is Kind.GEOGRAPHY
        verbs = ("household lies", "households lie") if area else ("household has", "households have")
        raise InputError(
            f"{plural(len(homes), *verbs)} {'in more than one area' if area else 'more than one value'} of {name!r}, "
            f"which is marked as the same for all members; the first in record {int(rows[0]) + 1:,}",
            code="household-split-over-areas" if area else "household-attribute-varies",
            hint="correct the data; or unmark the attribute (household = false), if members do differ in it",
            attribute=name,
            households=len(homes),
            records=[int(row) + 1 for row in rows[:_SHOWN]],
        )


def find_household_attributes(data: Microdata) -> Names:
    """Return the attributes that are the same for all members in every household, beyond what chance explains.

    >>> schema = Schema(attributes=(Attribute(name="home", kind="household"), Attribute(name="town")))
    >>> homes = [n // 2 for n in range(100)]
    >>> find_household_attributes(Microdata(pa.table({"home": homes, "town": [n % 3 for n in homes]}), schema))
    ('town',)
    """
    own = household_column(data.schema)
    if own is None:
        return ()
    others = [a.name for a in data.schema.attributes if a.kind not in (Kind.HOUSEHOLD, Kind.IDENTIFIER)]
    return tuple(name for name in others if not find_varying(data, name).size and _is_enough(data, name))


def _is_enough(data: Microdata, name: str) -> bool:
    """Return whether there are too many pairs of mates for all of them to agree by chance."""
    pairs = len(data) - len(find_households(data))
    shares = np.bincount(data.coded(name).codes) / max(len(data), 1)
    return bool(pairs * (1 - float(np.sum(shares**2))) >= _ENOUGH)


def mark_household_attributes(schema: Schema, names: Iterable[str]) -> Schema:
    """Return the schema with these attributes marked as the household's, and no others."""
    chosen = set(names)
    for unknown in chosen - set(schema.names):
        schema[unknown]
    changed = [each for each in schema.attributes if each.household != (each.name in chosen)]
    return schema.replace(*(each.model_copy(update={"household": each.name in chosen}) for each in changed))


# The file of households: one record each, with the household's own attributes. What its members have of their own is
# told by the composition of the household: the multiset of the members' values, as a number.


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """The contents of the file of households: attributes of the household, and groups of the members' attributes.

    Every attribute of a group has the joint composition of the group as its value. With ``blank``, the composition of
    a household in which a value is missing is missing; else a missing value is a value like others. ``weights`` that
    differ between members are the household's mean.
    """

    names: Names
    groups: tuple[Names, ...] = ()
    weights: Names = ()
    blank: bool = False

    def apply(self, data: Microdata, homes: Households | None = None) -> Microdata:
        """Return the file of households of a person file; ``homes`` are those of the file before a masking."""
        homes = find_households(data) if homes is None else homes
        own = require_household(data.schema)
        first = pa.array(homes.first)
        columns = {own: number_units(data, homes)}
        described = [data.schema[own].model_copy(update={"kind": Kind.IDENTIFIER, "missing": (), "levels": ()})]
        for name in self.names:
            columns[name] = data.table.column(name).take(first)
            described.append(data.schema[name])
        for name in self.weights:
            columns[name] = household_weights(data, name, homes)
            described.append(data.schema[name].model_copy(update={"missing": ()}))
        for names in self.groups:
            known = compositions(data, names, homes, blank=self.blank)
            for name in names:
                columns[name] = known
                described.append(Attribute(name=name, label=data.schema[name].label))
        order = [name for name in data.attributes if name in columns]
        by_name = {each.name: each for each in described}
        schema = Schema(name=data.schema.name, attributes=tuple(by_name[name] for name in order))
        return Microdata(pa.table({name: columns[name] for name in order}), schema)


def number_units(data: Microdata, homes: Households) -> pa.ChunkedArray:
    """Return the number of each household; a person outside households has its own identifier, else its position."""
    numbers = data.table.column(require_household(data.schema)).take(pa.array(homes.first))
    alone = homes.outside[homes.first]
    if not alone.any():
        return numbers
    person = data.schema.identifier
    known = None if person is None else data.table.column(person.name).take(pa.array(homes.first))
    persons: Any = homes.first.tolist() if known is None else code_texts(known)
    units = zip(code_texts(numbers), persons, alone.tolist(), strict=True)
    told = [f"person {who}" if is_alone else f"household {home}" for home, who, is_alone in units]
    return pa.chunked_array([pa.array(told, type=pa.large_string())])


def code_texts(column: pa.ChunkedArray) -> list[str]:
    """Return the values of a column as texts."""
    coded = code_column(column)
    texts = [*level_texts(coded.levels), ""]
    return [texts[code] for code in coded.codes.tolist()]


def compositions(data: Microdata, names: Sequence[str], homes: Households, *, blank: bool = False) -> pa.ChunkedArray:
    """Return, for each household, a number for the multiset of its members' joint values of these attributes.

    Numbers depend on the values alone, not on the order of the records.

    >>> schema = Schema(attributes=(Attribute(name="home", kind="household"), Attribute(name="sex")))
    >>> data = Microdata(pa.table({"home": [1, 1, 2, 2, 3], "sex": ["f", "m", "m", "f", "f"]}), schema)
    >>> found = compositions(data, ["sex"], find_households(data)).to_pylist()
    >>> found[0] == found[1], found[0] == found[2]
    (True, False)
    """
    joint = number_cells([_united_ranks(data, name) for name in names])
    numbers = number_multisets(joint, homes)
    if not blank:
        return pa.chunked_array([pa.array(numbers)])
    gaps = np.zeros(len(data), dtype=np.bool_)
    for name in names:
        gaps |= missing_codes(data, name)[data.coded(name).codes]
    incomplete = np.bincount(homes.of_record[gaps], minlength=len(homes))[: len(homes)] > 0
    return pa.chunked_array([pa.array(numbers, mask=incomplete)])


def _united_ranks(data: Microdata, name: str) -> Int64s:
    """Return the rank of each record's value; codes that mean "no answer" are one value with the missing ones."""
    ranks = rank_of_code(data, name).astype(np.int64)
    ranks[np.flatnonzero(missing_codes(data, name))] = len(ranks)
    return ranks[data.coded(name).codes]


def number_multisets(codes: Int64s, homes: Households) -> Int64s:
    """Number the multisets of the codes of each household's members."""
    order = np.lexsort((codes, homes.of_record))
    starts = np.concatenate([[0], np.cumsum(homes.sizes)[:-1]]).astype(np.int64)
    ranked, spread = codes[order], int(codes.max(initial=0)) + 1
    numbers, known = np.zeros(len(homes), dtype=np.int64), 1
    left = np.arange(len(homes))
    place = 0
    while left.size:  # the households with more than ``place`` members, one member at a time
        found, inverse = np.unique(numbers[left] * spread + ranked[starts[left] + place], return_inverse=True)
        numbers[left] = known + inverse.ravel()
        known += len(found)
        place += 1
        left = left[homes.sizes[left] > place]
    return numbers


def household_weights(data: Microdata, weight: str, homes: Households) -> pa.ChunkedArray:
    """Return the weight of each household: that of its members if they have the same, else their mean.

    Members without a weight do not count; a household in which nobody has one has none.
    """
    from safeswap.model.columns import to_numbers

    values = to_numbers(data, weight)
    known = np.flatnonzero(~np.isnan(values))
    number = np.bincount(homes.of_record[known], minlength=len(homes) + 1)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(homes.of_record[known], values[known], len(homes) + 1) / number
    some = np.full(len(homes) + 1, np.nan)
    some[homes.of_record[known]] = values[known]
    same = np.ones(len(homes) + 1, dtype=np.bool_)
    same[homes.of_record[known][values[known] != some[homes.of_record[known]]]] = False
    weights = np.where(same, some, mean)[: len(homes)]
    return pa.chunked_array([pa.array(weights, mask=np.isnan(weights))])


def expand(column: pa.ChunkedArray, homes: Households) -> pa.ChunkedArray:
    """Return a column of the file of households as one of the person file: the same for all members."""
    return column.take(pa.array(homes.of_record, mask=homes.of_record == len(homes)))
