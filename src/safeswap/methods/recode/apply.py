"""Apply a recoding step to the values of an attribute and to the file.

A step never sees records: given the values that occur and their counts, it returns what each becomes. So the cost
grows with the number of distinct values, and two records with the same value can never differ afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays.types import Floats
from safeswap.errors import SpecError
from safeswap.methods.recode import rules
from safeswap.methods.recode.rules import Values, band_labels, map_values, pin_ranges, pin_to
from safeswap.methods.recode.rules import place_in_ranges as range_places
from safeswap.methods.recode.steps import (
    Blank,
    ByHierarchy,
    DateBand,
    Drop,
    GlobalRecode,
    Ranges,
    Recode,
    Round,
    Step,
    TopBottomCode,
    Truncate,
    as_step,
)
from safeswap.model.columns import rank_of_code, same_memory
from safeswap.model.dates import is_text
from safeswap.model.microdata import Coded, Microdata, PastStep, add_step, smallest_code_type
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.schema import Attribute, Kind, Schema, level_texts, refuse_date
from safeswap.model.text import plural


def is_by_number(data: Microdata, step: Step) -> bool:
    """Return whether the step can work on numbers instead of texts: no codes among them, and they stay numbers."""
    if not isinstance(step, Round | TopBottomCode | Blank) or (isinstance(step, Blank) and step.values):
        return False
    attribute = data.schema[step.attribute]
    plain = attribute.kind in (Kind.NUMERIC, Kind.WEIGHT) and not (attribute.missing or attribute.labels)
    return plain and bool(pa.types.is_float64(data.table.column(step.attribute).type))


def recode_numbers(data: Microdata, step: Step) -> Microdata:
    """Apply a step for which :func:`is_by_number` holds, on arrays of numbers instead of texts.

    >>> from safeswap.model.schema import Schema
    >>> schema = Schema(attributes=(Attribute(name="x", kind="numeric"),))
    >>> data = Microdata(pa.table({"x": [1.2, None, 7.5]}), schema)
    >>> recode_numbers(data, Round(attribute="x", base=5)).table["x"].to_pylist()
    [0.0, None, 10.0]
    """
    (name,) = step.names
    before, column = data.schema[name], data.table.column(name)
    absent = column.is_null().to_numpy()
    if isinstance(step, Blank):
        if absent.all():
            return data
        return _put_numbers(data, before, pa.chunked_array([pa.nulls(len(data), column.type)]))
    map_values(step, Values(attribute=before, counts={}))  # refuses invalid bounds
    numbers = finite_numbers(data, name)
    made = _round_or_clip(step, numbers)
    if np.array_equal(made, numbers, equal_nan=True):
        return data
    return _put_numbers(data, before, pa.chunked_array([pa.array(made, mask=absent)]))


def _round_or_clip(step: Step, numbers: Floats) -> Floats:
    if isinstance(step, TopBottomCode):
        low = -np.inf if step.bottom is None else float(step.bottom)
        high = np.inf if step.top is None else float(step.top)
        bounded: Floats = np.clip(numbers, low, high)
        return bounded
    assert isinstance(step, Round)  # noqa: S101  (there is no other)
    found, place = np.unique(numbers, return_inverse=True)
    known: npt.NDArray[np.bool_] = ~np.isnan(found)
    found[known] = rules.round_all(found[known], step.base, step.how)
    rounded: Floats = found[place]
    return rounded


def _put_numbers(data: Microdata, before: Attribute, column: pa.ChunkedArray) -> Microdata:
    return replace(data.with_columns({before.name: column}, {}), schema=data.schema.replace(_renew(before)))


def _renew(before: Attribute, **stated: Any) -> Attribute:
    """Return an attribute with new values: what described the old ones is stated again.

    Equal values stay equal, so what members of a household share they still share.
    """
    kept = before.model_dump(include={"name", "kind", "label", "letter", "geography_level", "household"})
    return Attribute(**{**kept, **stated})


Target = Mapping[str, str | None]

_CODES_ONLY = (Recode, ByHierarchy, Truncate)
_DATES_TOO = (DateBand, TopBottomCode, Blank)
_WEIGHTS_TOO = (Round, TopBottomCode, Blank)


def apply_step(data: Microdata, step: Step | Mapping[str, Any]) -> Microdata:
    """Return the file after the step. Deterministic; the given file is not changed.

    >>> schema = Schema(attributes=(Attribute(name="Age", kind="numeric"),))
    >>> data = Microdata(pa.table({"Age": [17, 42, None, 80]}), schema)
    >>> after = apply_step(data, {"step": "ranges", "attribute": "Age", "breaks": [20, 65]})
    >>> after.table["Age"].to_pylist(), after.schema["Age"].kind.value, after.schema["Age"].levels
    (['<20', '20-64', None, '>=65'], 'ordinal', ('<20', '20-64', '>=65'))
    """
    step = as_step(step)
    check_step(data.schema, step)
    after = _drop(data, step) if isinstance(step, Drop) else _recode(data, step)
    kept = (
        name in after.schema and same_memory(data.table.column(name), after.table.column(name)) for name in step.names
    )
    if all(kept):
        return after
    return add_step(data, PastStep(method="recode", attributes=step.names), after)


def _recode(data: Microdata, step: Step) -> Microdata:
    (name,) = step.names
    if isinstance(step, Ranges) and _is_plain_number(data.schema[name]):
        return _cut_ranges(data, step)
    if is_by_number(data, step):
        return recode_numbers(data, step)
    values = values_of(data, name)
    step = pin_ranges(step, values) if isinstance(step, Ranges) else step
    target = _require_complete(map_values(step, values), values)
    kind = data.table.column(name).type
    if isinstance(step, DateBand) and not is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
        kind = pa.int64()  # years and ages are numbers where dates are
    return _put_values(data, describe_result(step, values, target), target, kind)


def pin(data: Microdata, step: Step) -> Step:
    """Return the step with everything it takes from the data fixed, so that it treats another file the same way."""
    check_step(data.schema, step)
    if not isinstance(step, Ranges):
        return step
    if _is_plain_number(data.schema[step.attribute]):
        return pin_to(step, *_count_numbers(finite_numbers(data, step.attribute)))
    return pin_ranges(step, values_of(data, step.attribute))


def unmapped(data: Microdata, step: Step | Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values that occur but are not covered by the step. Confidential: these are values of records."""
    step = as_step(step)
    check_step(data.schema, step)
    if isinstance(step, Drop | Ranges):
        return ()
    values = values_of(data, step.names[0])
    target = map_values(step, values)
    return tuple(text for text in values.texts if text not in target and values.counts[text])


def check_step(schema: Schema, step: Step) -> None:
    """Refuse a step on an attribute that does not exist or whose kind it does not support."""
    for name in step.names:
        kind = schema[name].kind
        if kind is Kind.IDENTIFIER:
            raise SpecError(
                f"{name!r} is the record identifier and is not recoded",
                code="identifier-role",
                hint="a release gives new identifiers or none",
                attribute=name,
            )
        if isinstance(step, DateBand) and kind is not Kind.DATE:
            raise SpecError(
                f"{name!r} is {kind.value}, not a date",
                code="not-a-date",
                hint="describe it as date in the schema if its values are dates (YYYY-MM-DD)",
                attribute=name,
            )
        if kind.is_categorical or isinstance(step, Drop) or (kind is Kind.DATE and isinstance(step, _DATES_TOO)):
            continue
        refuse_date(schema, name)
        if isinstance(step, _CODES_ONLY) or (kind is not Kind.NUMERIC and not isinstance(step, _WEIGHTS_TOO)):
            raise SpecError(
                f"{name!r} is {kind.value}: {step.step} is for categorical attributes",
                code="not-categorical",
                hint="use ranges or round, or describe it as ordinal if its values are categories",
                attribute=name,
            )


def values_of(data: Microdata, name: str) -> Values:
    """Return the values of an attribute in order, with their counts; stated levels also if their count is 0."""
    attribute, coded = data.schema[name], data.coded(name)
    texts = level_texts(coded.levels)
    numbers = np.bincount(coded.codes, minlength=len(texts) + 1)[: len(texts)]
    by_rank = np.argsort(rank_of_code(data, name)[: len(texts)])
    counts = {texts[i]: int(numbers[i]) for i in by_rank}
    stated = [text for text in attribute.levels if text not in attribute.missing]
    ordered = dict.fromkeys([*stated, *counts])
    return Values(attribute=attribute, counts={text: counts.get(text, 0) for text in ordered})


def describe_result(step: Step, values: Values, target: Target) -> Attribute:
    """Return the attribute after the step: kind, ordered levels, labels, missing codes, hierarchy."""
    before = values.attribute
    if all(new == old for old, new in target.items()):
        return before
    kind = _kind_after(step, before.kind)
    news = dict.fromkeys(new for new in target.values() if new is not None)
    missing = _missing_after(step, before, news)
    ranges = step.labels if isinstance(step, Ranges) else band_labels(step) if isinstance(step, DateBand) else ()
    levels = [*ranges, *news]
    levels = [text for text in dict.fromkeys(levels) if text not in missing]
    sources: dict[str, int] = {}
    for new in target.values():
        sources[new or ""] = sources.get(new or "", 0) + 1
    # Keep the label of a value that is unchanged; a value merged with others has another meaning.
    kept = {text: word for text, word in before.labels.items() if target.get(text) == text and sources[text] == 1}
    stated = step.labels if isinstance(step, GlobalRecode) else {}
    return _renew(
        before,
        kind=kind,
        levels=tuple(levels) if kind.is_categorical else (),
        labels={**kept, **{text: word for text, word in stated.items() if text in news}},
        missing=missing,
        hierarchy=_hierarchy(step, before),
    )


def _kind_after(step: Step, before: Kind) -> Kind:
    if isinstance(step, DateBand):
        return Kind.NUMERIC if step.by == "age" and not step.breaks else Kind.ORDINAL
    by_number = isinstance(step, GlobalRecode) and before is Kind.NUMERIC
    return Kind.ORDINAL if isinstance(step, Ranges) or by_number else before


def _missing_after(step: Step, before: Attribute, news: Mapping[str, None]) -> tuple[str, ...]:
    if isinstance(step, GlobalRecode) and step.missing:
        kept = before.missing[len(step.missing) :]
        return tuple(dict.fromkeys([*step.missing, *kept]))
    if isinstance(step, Recode):
        return tuple(text for text in before.missing if text in news or text not in step.target)
    return before.missing


def _hierarchy(step: Step, before: Attribute) -> tuple[dict[str, str], ...]:
    if isinstance(step, ByHierarchy):
        return (step.tree.steps if step.tree else before.hierarchy)[step.level :]
    return ()


def _require_complete(target: dict[str, str | None], values: Values) -> Target:
    """Return what each value becomes, in the order of the values; refuse if a value that occurs is not covered."""
    forgotten = [text for text in values.texts if text not in target and values.counts[text]]
    if forgotten:
        records = sum(values.counts[text] for text in forgotten)
        raise SpecError(
            f"the step does not cover {len(forgotten):,} of the values of {values.attribute.name!r} that occur, "
            f"in {plural(records, 'record')}",
            code="value-not-recoded",
            hint='add them to the step, or set otherwise to "keep" or "blank"',
            attribute=values.attribute.name,
            values=len(forgotten),
            records=records,
        )
    return {text: target[text] for text in values.texts if text in target}


def _drop(data: Microdata, step: Drop) -> Microdata:
    left = [attribute for attribute in data.schema.attributes if attribute.name not in step.attributes]
    if not left:
        raise SpecError("every attribute would be dropped", code="nothing-left", hint="keep at least one")
    names = [attribute.name for attribute in left]
    coded = {name: found for name, found in data._coded.items() if name in names}
    schema = Schema(name=data.schema.name, label=data.schema.label, attributes=tuple(left))
    return Microdata(data.table.select(names), schema, data.origin, coded, data.past, data.first)


def _is_plain_number(attribute: Attribute) -> bool:
    return attribute.kind is Kind.NUMERIC and not attribute.missing


def _count_numbers(numbers: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    found, counts = np.unique(numbers[~np.isnan(numbers)], return_counts=True)
    return found, counts


def _cut_ranges(data: Microdata, step: Ranges) -> Microdata:
    """Cut a quantity into ranges by its numbers, not their texts: there may be as many values as records."""
    numbers = finite_numbers(data, step.attribute)
    step = pin_to(step, *_count_numbers(numbers))
    places = np.where(np.isnan(numbers), len(step.labels), range_places(numbers, step.breaks, closed=step.closed))
    codes = places.astype(smallest_code_type(len(step.labels) + 1))
    made = _build_column(data.table.column(step.attribute).type, list(step.labels), codes)
    return _replace_column(data, _renew(data.schema[step.attribute], kind=Kind.ORDINAL, levels=step.labels), made)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Column:
    column: pa.ChunkedArray
    coded: Coded


def _put_values(data: Microdata, attribute: Attribute, target: Target, kind: pa.DataType) -> Microdata:
    name = attribute.name
    coded = data.coded(name)
    texts = level_texts(coded.levels)
    if all(target[text] == text for text in texts):
        return replace(data, schema=data.schema.replace(attribute))
    news = list(dict.fromkeys(new for new in target.values() if new is not None))
    place = {new: i for i, new in enumerate(news)}
    lookup = np.array([*(len(news) if target[t] is None else place[target[t] or ""] for t in texts), len(news)])
    made = _build_column(kind, news, lookup.astype(smallest_code_type(len(news) + 1))[coded.codes])
    return _replace_column(data, attribute, made)


def _replace_column(data: Microdata, attribute: Attribute, made: _Column) -> Microdata:
    columns, coded = {attribute.name: made.column}, {attribute.name: made.coded}
    return replace(data.with_columns(columns, coded), schema=data.schema.replace(attribute))


def _build_column(kind: pa.DataType, news: list[str], codes: npt.NDArray[Any]) -> _Column:
    """Return the new values in the type of the column if they all fit it, else as text."""
    levels = _cast_levels(kind.value_type if pa.types.is_dictionary(kind) else kind, news)
    missing = codes == len(news)
    indices = pa.array(np.where(missing, 0, codes).astype(np.int32), mask=missing)
    column = pa.DictionaryArray.from_arrays(indices, levels, ordered=pa.types.is_dictionary(kind) and kind.ordered)
    made = column if pa.types.is_dictionary(kind) else levels.take(indices)
    return _Column(column=pa.chunked_array([made]), coded=Coded(codes, levels, bool(missing.any())))


def _cast_levels(kind: pa.DataType, news: list[str]) -> pa.Array:
    texts = pa.array(news, pa.string())
    try:
        levels = texts.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return texts
    return levels if level_texts(levels) == news else texts
