"""Join a file of households and a file of persons to one person file, and divide it again.

The person file holds everything that a job needs; what the household file has is marked as the household's, so that
methods change it for all members or for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.types import Flags
from safeswap.errors import InputError, SpecError
from safeswap.model.checked import check_types
from safeswap.model.columns import missing_codes
from safeswap.model.households import check_constant, find_households
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, Schema, household_attributes, household_column, level_texts, require_household
from safeswap.model.spec import MaskSpec
from safeswap.model.text import plural
from safeswap.workflow.masking import mask, undo
from safeswap.workflow.reading import read

_SHOWN = 5


@check_types
def merge_households(households: Any, persons: Any, *, on: str | None = None) -> Microdata:
    """Return the person file with the attributes of the household file, marked as the household's.

    ``on`` names the number of the household, a column of both files; by default it is the person file's attribute of
    kind household. A person without a number, or with one that the schema lists as missing, lives outside households
    and gets no values. Every other number must be in the household file exactly once.

    >>> homes = pa.table({"home": [1, 2], "tenure": ["own", "rent"]})
    >>> people = pa.table({"id": ["a", "b", "c"], "home": [2, 1, 2]})
    >>> merged = merge_households(homes, people, on="home")
    >>> merged.table["tenure"].to_pylist(), merged.schema["tenure"].household
    (['rent', 'own', 'rent'], True)
    """
    homes, people = read(households), read(persons)
    own = _find_key(homes.schema, people.schema, on)
    twice = [name for name in homes.attributes if name != own and name in people.schema]
    if twice:
        raise SpecError(
            f"both files have a column {twice[0]!r}",
            code="column-in-both",
            hint="leave it out of one of them, or rename it",
            columns=twice,
        )
    _refuse_repeated(homes, own)
    outside = missing_codes(people, own)[people.coded(own).codes]
    place = _look_up(people, homes, own, outside)
    added = {name: homes.table.column(name).take(place) for name in homes.attributes if name != own}
    table = people.table
    for name, column in added.items():
        table = table.append_column(name, column)
    marked = (homes.schema[name].model_copy(update={"household": True, "inferred": False}) for name in added)
    number = people.schema[own].model_copy(update={"kind": Kind.HOUSEHOLD, "inferred": False, "household": False})
    schema = people.schema.replace(number)
    attributes = tuple(_as_attribute(each) for each in (*schema.attributes, *marked))
    return Microdata(table, Schema(name=schema.name, label=schema.label, attributes=attributes))


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
    missing = missing_codes(homes, own)[coded.codes]
    repeated = np.bincount(coded.codes, minlength=coded.cardinality)[coded.codes] > 1
    rows = np.flatnonzero(missing | repeated)
    if rows.size:
        raise InputError(
            f"{plural(rows.size, 'household has', 'households have')} a number {own!r} that is missing or "
            f"occurs twice, the first in record {rows[0] + 1:,}",
            code="household-repeats",
            hint="give a file with one record per household",
            column=own,
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
            records=(rows[:_SHOWN] + 1).tolist(),
        )
    empty = len(homes) - len(np.unique(places[~outside]))
    if empty:
        raise InputError(
            f"{plural(empty, 'household has', 'households have')} no person in the person file, and would be lost",
            code="empty-household",
            hint="leave them out of the file first",
            households=empty,
        )
    return pa.array(places, mask=outside)


def _texts(data: Microdata, name: str) -> list[str]:
    coded = data.coded(name)
    texts = [*level_texts(coded.levels), ""]
    return [texts[code] for code in coded.codes.tolist()]


@check_types
def split_households(data: Any) -> tuple[Microdata, Microdata]:
    """Return the file of households and the file of persons of a person file, both with the household's number.

    What is marked as the household's goes to the file of households, one record each in the order in which they first
    appear. A masking gives the two files of its result.

    >>> homes = pa.table({"home": [1, 2], "tenure": ["own", "rent"]})
    >>> people = pa.table({"id": ["a", "b", "c"], "home": [2, 1, 2]})
    >>> first, second = split_households(merge_households(homes, people, on="home"))
    >>> first.table.to_pydict(), second.attributes
    ({'home': [2, 1], 'tenure': ['rent', 'own']}, ('id', 'home'))
    """
    source = read(data.data if isinstance(data, Masked) else data)
    own, shared = require_household(source.schema), household_attributes(source.schema)
    check_constant(source, shared)
    homes = find_households(source)
    lost = np.zeros(len(source), dtype=np.bool_)
    for name in shared:
        lost |= homes.outside & pc.is_valid(source.table.column(name)).to_numpy()
    rows = np.flatnonzero(lost)
    if rows.size:
        raise InputError(
            f"{plural(rows.size, 'person has', 'persons have')} household attributes outside households, the first in "
            f"record {rows[0] + 1:,}: no household could hold them",
            code="person-outside-households",
            hint="give each of them a household number of their own",
            records=(rows[:_SHOWN] + 1).tolist(),
        )
    numbered = pa.array(homes.first[~homes.outside[homes.first]])
    names = [name for name in source.attributes if name == own or name in shared]
    number = source.schema[own].model_copy(update={"kind": Kind.IDENTIFIER, "missing": ()})
    described = (number if name == own else _unmark(source.schema[name]) for name in names)
    of_homes = Schema(name=source.schema.name, attributes=tuple(described))
    others = [name for name in source.attributes if name not in shared]
    return (
        Microdata(source.table.select(names).take(numbered), of_homes),
        Microdata(source.table.select(others), source.schema.select(others)),
    )


def _unmark(attribute: Any) -> Any:
    return attribute.model_copy(update={"household": False})


@dataclass(frozen=True, kw_only=True)
class MaskedHouseholds:
    """The masking of a household file and a person file in one job: both results, and the masking of the merged file.

    ``masked`` is assessed, reported, attacked and released like any other; its audit record undoes both files.
    """

    masked: Masked
    households: Microdata
    persons: Microdata

    def keep(
        self,
        households: str | PathLike[str],
        persons: str | PathLike[str],
        *,
        audit: str | PathLike[str],
        source: str | PathLike[str] | None = None,
        force: bool = False,
    ) -> Path:
        """Write both files and the confidential record, all or nothing; return the path of the record.

        ``source`` is the person file that was masked.
        """
        from safeswap.files.atomic import atomic_write
        from safeswap.files.write import write
        from safeswap.on_disk.masking import digest_of, note, write_both
        from safeswap.releases.ledger import configured_ledger
        from safeswap.releases.register import FileRegister, enter_masked, with_known_past

        register = FileRegister(configured_ledger())
        source_digest = "" if source is None else digest_of(Path(source))
        known = with_known_past(self.masked, register, digest=source_digest)
        with (
            write_both(Path(audit), Path(persons)) as records,
            atomic_write(persons, force=force) as people,
            atomic_write(households, force=force) as homes,
        ):
            write(self.households, homes, force=True)
            write(self.persons, people, force=True)
            digest = digest_of(people)
            notes = {"households_sha256": digest_of(homes)}
            digests = {"digest": digest, "source_digest": source_digest}
            record = note(known, people, audit=Path(audit), reading={}, records=records, notes=notes, **digests)
            enter_masked(known, register, digest=digest)
        return record


@check_types
def mask_households(
    households: Any,
    persons: Any,
    spec: MaskSpec | Mapping[str, Any],
    *,
    on: str | None = None,
    key: Key | None = None,
    insecure_seed: int | None = None,
    replicate: int = 0,
) -> MaskedHouseholds:
    """Mask a household file and a person file in one job, by any method or pipeline; both keep their order.

    The specification may name columns of either file. ``on`` numbers the households in both.

    >>> homes = pa.table({"home": [1, 2, 3, 4], "town": ["x", "y", "y", "x"]})
    >>> people = pa.table({"id": ["a", "b", "c", "d", "e"], "home": [2, 1, 2, 3, 4]})
    >>> spec = {"method": "swap", "swap": ["town"], "pairs": 1}
    >>> done = mask_households(homes, people, spec, on="home", insecure_seed=1)
    >>> sorted(done.households.table["town"].to_pylist()), done.persons.table.equals(people)
    (['x', 'x', 'y', 'y'], True)
    """
    homes = read(households)
    masked = mask(
        merge_households(homes, persons, on=on), spec, key=key, insecure_seed=insecure_seed, replicate=replicate
    )
    return split_masked(masked, homes)


def split_masked(masked: Masked, households: Microdata) -> MaskedHouseholds:
    """Divide the masking of a merged file; households come in the order of the household file that was merged."""
    after, people = split_households(masked)
    return MaskedHouseholds(masked=masked, households=_in_order_of(after, households), persons=people)


@check_types
def undo_households(
    households: Any, persons: Any, record: str | PathLike[str], *, on: str | None = None
) -> tuple[Microdata, Microdata]:
    """Restore a household file and a person file from their masked files and the audit record of the job."""
    homes = read(households)
    before, people = split_households(undo(merge_households(homes, persons, on=on), record))
    return _in_order_of(before, homes), people


def _in_order_of(split: Microdata, homes: Microdata) -> Microdata:
    """Return a file of households in the order of another one."""
    own = split.attributes[0] if split.schema.identifier is None else split.schema.identifier.name
    place = {text: row for row, text in enumerate(_texts(split, own))}
    rows = pa.array([place[text] for text in _texts(homes, own)], pa.int64())
    order = [name for name in homes.attributes if name in split.schema]
    return Microdata(split.table.select(order).take(rows), split.schema.select(order))
