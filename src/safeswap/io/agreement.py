"""What is said about the columns, from all sides, in one schema that agrees with the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from safeswap.errors import InputError, SpecError
from safeswap.io.identifiers import Lines, positions_of, positions_told
from safeswap.io.infer import infer_schema
from safeswap.io.ranges import order_of_levels
from safeswap.model.dates import is_date_format
from safeswap.model.levels import level_texts
from safeswap.model.microdata import Microdata, code_column
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.several import several


def described(
    table: pa.Table,
    *,
    schema: Schema | None,
    stated: Mapping[str, Attribute],
    identifier: str | None,
    kinds: Mapping[str, Kind | str],
    missing: Sequence[str],
    name: str,
    file: str,
) -> Schema:
    """The schema of the table: what the caller says counts before what the file says, and that before a guess.

    >>> table = pa.table({"Sex": ["1", "2", "9"]})
    >>> options = dict(schema=None, stated={}, identifier=None, name="", file="")
    >>> schema = described(table, kinds={"Sex": "ordinal"}, missing=["9"], **options)
    >>> schema["Sex"].kind.value, schema["Sex"].levels, schema["Sex"].missing
    ('ordinal', ('1', '2'), ('9',))
    """
    if schema is None:
        guess = infer_schema(table, name=name, identifier=identifier)
        known = guess.replace(*(_merged(guess[own.name], own) for own in stated.values()))
    else:
        known = _aligned(schema, table.column_names, name or schema.name, file)
    if identifier is not None:
        known = _identified(known, identifier)
    known = known.replace(*(_of_kind(known[attribute], table, kind, missing) for attribute, kind in kinds.items()))
    if missing:
        known = known.replace(*(_with_missing(attribute, missing) for attribute in known.attributes))
    return known


def _merged(guess: Attribute, own: Attribute) -> Attribute:
    """What a labelled file says; its silence about the kind is filled by the guess."""
    if not own.inferred:
        return own
    periods = guess.kind is Kind.NUMERIC and is_date_format(own.display)  # months as numbers are no quantity either
    return own.model_copy(update={"kind": Kind.NOMINAL if periods else guess.kind, "levels": guess.levels})


def _aligned(schema: Schema, names: Sequence[str], name: str, file: str) -> Schema:
    present, known = set(names), set(schema.names)
    absent = [n for n in schema.names if n not in present]
    unknown = [n for n in names if n not in known]
    if absent or unknown:
        raise InputError(
            f"schema and data name different columns: {len(absent)} of the schema are not in the data, "
            f"{len(unknown)} of the data are not in the schema",
            code="schema-mismatch",
            hint="the schema must describe every column of the data and no other",
            **({"file": file} if file else {}),
            not_in_data=absent[:20],
            not_in_schema=unknown[:20],
        )
    return Schema(name=name, label=schema.label, attributes=tuple(schema[n] for n in names))


def _identified(schema: Schema, identifier: str) -> Schema:
    chosen = schema[identifier].model_copy(update={"kind": Kind.IDENTIFIER, "inferred": False})
    others = [a for a in schema.iter_kind(Kind.IDENTIFIER) if a.name != identifier]
    return schema.replace(chosen, *(a.model_copy(update={"kind": Kind.NOMINAL}) for a in others))


def _of_kind(attribute: Attribute, table: pa.Table, kind: Kind | str, missing: Sequence[str]) -> Attribute:
    try:
        stated = Kind(kind)
    except ValueError:
        raise SpecError(
            f"attribute {attribute.name!r} cannot be of that kind",
            code="unknown-kind",
            hint="the kinds are: " + ", ".join(k.value for k in Kind),
            attribute=attribute.name,
        ) from None
    levels = attribute.levels
    if stated is Kind.ORDINAL and not levels:
        texts = level_texts(code_column(table.column(attribute.name)).levels)
        levels = order_of_levels(text for text in texts if text not in {*attribute.missing, *missing})
    return attribute.model_copy(update={"kind": stated, "inferred": False, "levels": levels})


def _with_missing(attribute: Attribute, codes: Iterable[str]) -> Attribute:
    return attribute.model_copy(update={"missing": tuple(dict.fromkeys((*attribute.missing, *codes)))})


def check_levels(data: Microdata, *, file: str = "", lines: Lines | None = None) -> None:
    """Refuse a column that holds values outside the levels stated for it; guessed levels are not checked."""
    for attribute in data.schema.attributes:
        if not attribute.levels or attribute.inferred:
            continue
        coded = data.coded(attribute.name)
        allowed = {*attribute.levels, *attribute.missing}
        unlisted = np.array([text not in allowed for text in level_texts(coded.levels)] + [False])
        strangers = np.flatnonzero(unlisted[coded.codes])
        if strangers.size:
            raise InputError(
                f"{several(strangers.size, 'record has', 'records have')} a value of {attribute.name!r} that is not "
                "among its levels, "
                f"the first in {positions_told(strangers, lines)}",
                code="unlisted-level",
                hint="add the level to the schema, or correct the data",
                column=attribute.name,
                **({"file": file} if file else {}),
                **positions_of(strangers, lines),
            )
