"""A file of households and a file of persons: joined to one person file, and divided again.

The person file holds everything that a job needs; what the household file has is marked as the household's, so that
methods change it for all members or for none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.types import Flags
from safeswap.errors import InputError, SpecError
from safeswap.model.households import absent_numbers, check_constant, find_household_attributes, find_households
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, Schema, household_attributes, household_column, level_texts, require_household
from safeswap.model.text import plural

_SHOWN = 5


def merge_files(homes: Microdata, people: Microdata, on: str | None = None) -> Microdata:
    """Return the person file with the attributes of the household file, marked as the household's."""
    own = _find_key(homes.schema, people.schema, on)
    twice = [name for name in homes.attributes if name != own and name in people.schema]
    if twice:
        raise SpecError(
            f"both files have a column {twice[0]!r}",
            code="column-in-both",
            hint="drop it from one of them, or rename it",
            columns=twice,
        )
    people = _number_households(people, own)
    _refuse_repeated(homes, own)
    outside = absent_numbers(people, own)[people.coded(own).codes]
    place = _look_up(people, homes, own, outside)
    added = {name: homes.table.column(name).take(place) for name in homes.attributes if name != own}
    table = people.table
    for name, column in added.items():
        table = table.append_column(name, column)
    marked = (homes.schema[name].model_copy(update={"household": True, "inferred": False}) for name in added)
    schema = people.schema
    attributes = tuple(_as_attribute(each) for each in (*schema.attributes, *marked))
    return Microdata(table, Schema(name=schema.name, label=schema.label, attributes=attributes))


def _number_households(people: Microdata, own: str) -> Microdata:
    """Return the persons with ``own`` as the number of their household.

    If it was not known to be, what else they have in common with their mates is guessed now, unless it was stated.
    """
    before = people.schema[own]
    number = before.model_copy(update={"kind": Kind.HOUSEHOLD, "inferred": False, "household": False})
    if number == before:
        return people
    numbered = Microdata(people.table, people.schema.replace(number))
    if before.kind is Kind.HOUSEHOLD:
        return numbered
    guessed = [name for name in find_household_attributes(numbered) if numbered.schema[name].inferred]
    marked = (numbered.schema[name].model_copy(update={"household": True}) for name in guessed)
    return Microdata(people.table, numbered.schema.replace(*marked))


def _as_attribute(attribute: Any) -> Any:
    """Return the description; what identifies or groups records of the household file is an attribute here."""
    is_other = attribute.household and attribute.kind in (Kind.IDENTIFIER, Kind.HOUSEHOLD)
    return attribute.model_copy(update={"kind": Kind.NOMINAL}) if is_other else attribute


def _find_key(homes: Schema, people: Schema, on: str | None) -> str:
    own = on if on is not None else household_column(people)
    if own is None:
        raise SpecError(
            "the person file does not say who lives together",
            code="no-household",
            hint='name the number of the household, a column of both files: on="hhid"',
        )
    for schema, what in ((people, "person"), (homes, "household")):
        if own not in schema:
            raise SpecError(
                f"the {what} file has no column {own!r}",
                code="unknown-attribute",
                hint="name the column that numbers households in both files",
                attribute=own,
            )
    return own


def _refuse_repeated(homes: Microdata, own: str) -> None:
    """Refuse household numbers that are missing or occur twice in the household file."""
    coded = homes.coded(own)
    missing = absent_numbers(homes, own)[coded.codes]
    repeated = np.bincount(coded.codes, minlength=coded.cardinality)[coded.codes] > 1
    rows = np.flatnonzero(missing | repeated)
    if rows.size:
        raise InputError(
            f"{plural(rows.size, 'household has', 'households have')} a number {own!r} that is missing or "
            f"occurs twice, the first in record {rows[0] + 1:,}",
            code="household-repeats",
            hint="give a file with one record per household",
            column=own,
            households=len(rows),
            records=(rows[:_SHOWN] + 1).tolist(),
        )


def _look_up(people: Microdata, homes: Microdata, own: str, outside: Flags) -> pa.Array:
    """Return the record of each person's household; null outside households."""
    known = {text: place for place, text in enumerate(_texts(homes, own))}
    places = np.array([known.get(text, -1) for text in _texts(people, own)], dtype=np.int64)
    rows = np.flatnonzero((places < 0) & ~outside)
    if rows.size:
        raise InputError(
            f"{plural(rows.size, 'person lives', 'persons live')} in a household that the household file "
            f"does not have, the first in record {rows[0] + 1:,}",
            code="no-such-household",
            hint="add the households, or set the number of persons outside households to missing",
            column=own,
            persons=len(rows),
            records=(rows[:_SHOWN] + 1).tolist(),
        )
    empty = np.setdiff1d(np.arange(len(homes)), places[~outside])
    if empty.size:
        raise InputError(
            f"{plural(empty.size, 'household has', 'households have')} no person in the person file, and would be "
            f"lost; the first in record {empty[0] + 1:,} of the household file",
            code="empty-household",
            hint="remove them from the file first",
            households=int(empty.size),
            records=(empty[:_SHOWN] + 1).tolist(),
        )
    return pa.array(places, mask=outside)


def _texts(data: Microdata, name: str) -> list[str]:
    coded = data.coded(name)
    texts = [*level_texts(coded.levels), ""]
    return [texts[code] for code in coded.codes.tolist()]


def split_file(source: Microdata, columns: Collection[str] | None = None) -> tuple[Microdata, Microdata]:
    """Return the file of households and that of persons; households come in the order in which they first appear.

    The file of households gets these ``columns``, by default all that are the household's.
    """
    of_homes, of_people = divide_schema(source.schema, columns)
    shared = [name for name in of_homes.names if name not in of_people]
    check_constant(source, shared)
    refuse_lost(source, shared)
    homes = find_households(source)
    numbered = pa.array(homes.first[~homes.outside[homes.first]])
    return (
        Microdata(source.table.select(of_homes.names).take(numbered), of_homes),
        Microdata(source.table.select(of_people.names), of_people),
    )


def divide_schema(schema: Schema, columns: Collection[str] | None = None) -> tuple[Schema, Schema]:
    """Return the descriptions of the file of households and of that of persons, both with the household's number.

    A file of persons may have attributes of the household too: ``columns`` are those of the file of households, by
    default all that are the household's.
    """
    own = require_household(schema)
    shared = set(household_attributes(schema) if columns is None else columns) - {own}
    number = schema[own].model_copy(update={"kind": Kind.IDENTIFIER, "missing": ()})
    names = [name for name in schema.names if name == own or name in shared]
    described = (number if name == own else _unmark(schema[name]) for name in names)
    return (
        Schema(name=schema.name, attributes=tuple(described)),
        schema.select([name for name in schema.names if name not in shared]),
    )


def refuse_lost(data: Microdata, shared: Sequence[str]) -> None:
    """Refuse household attributes of persons outside households: no record of the household file could hold them."""
    outside, lost = find_households(data).outside, np.zeros(len(data), dtype=np.bool_)
    for name in shared:
        lost |= outside & pc.is_valid(data.table.column(name)).to_numpy()
    rows = np.flatnonzero(lost)
    if rows.size:
        raise InputError(
            f"{plural(rows.size, 'person has', 'persons have')} household attributes outside households, the first in "
            f"record {rows[0] + 1:,}: no household could hold them",
            code="person-outside-households",
            hint="give each of them a household number of their own",
            persons=len(rows),
            records=(rows[:_SHOWN] + 1).tolist(),
        )


def _unmark(attribute: Any) -> Any:
    return attribute.model_copy(update={"household": False})


def order_like(split: Microdata, homes: Microdata) -> Microdata:
    """Return a file of households in the order of another one."""
    own = split.attributes[0] if split.schema.identifier is None else split.schema.identifier.name
    place = {text: row for row, text in enumerate(_texts(split, own))}
    rows = pa.array([place[text] for text in _texts(homes, own)], pa.int64())
    order = [name for name in homes.attributes if name in split.schema]
    return Microdata(split.table.select(order).take(rows), split.schema.select(order))
