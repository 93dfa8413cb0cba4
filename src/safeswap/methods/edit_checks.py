"""What the targeted Confidentiality Edit asks of a file and its specification before anything is sorted."""

from __future__ import annotations

import numpy as np

from safeswap.errors import InputError, SpecError
from safeswap.kernels.types import Names
from safeswap.model.edit_spec import EditTargetedSpec
from safeswap.model.geography import check_nesting, geography_levels
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.model.value_order import missing_codes


def check_edit(data: Microdata, spec: EditTargetedSpec) -> Names:
    """Refuse what makes no sense on these data; the attributes that will be exchanged."""
    for name in (*spec.keys, *spec.within):
        _check_categorical(data, name)
    if spec.missing_keys == "refuse":
        _check_complete(data, tuple(dict.fromkeys((*spec.within, *spec.keys))))
    if spec.exchange == "categorical":
        return spec.sorted_keys
    if spec.exchange == "continuous":
        return _continuous(data, spec)
    levels = _geography(data, spec)
    if spec.geography_codes == "unique":
        check_nesting(data, levels)
    return levels


def _geography(data: Microdata, spec: EditTargetedSpec) -> Names:
    levels = spec.geography or tuple(name for name in geography_levels(data) if name not in spec.within)
    if not levels:
        raise SpecError(
            "there is no geographic code to exchange",
            code="no-geography",
            hint="name the codes, from coarse to fine: geography=[…]; or exchange something else",
        )
    for name in levels:
        if not data.schema[name].kind.is_categorical:
            raise SpecError(
                f"{name!r} is {data.schema[name].kind.value} and no geographic code",
                code="not-geography",
                hint="describe it as geography in the schema, or leave it out",
                attribute=name,
            )
    return levels


def _continuous(data: Microdata, spec: EditTargetedSpec) -> Names:
    items = spec.continuous or tuple(attribute.name for attribute in data.schema.iter_kind(Kind.NUMERIC))
    if not items:
        raise SpecError(
            "there is no continuous item to exchange",
            code="no-continuous-item",
            hint="describe some attributes as numeric and name them: continuous=[…]; or exchange something else",
        )
    for name in items:
        if data.schema[name].kind is not Kind.NUMERIC:
            raise SpecError(
                f"{name!r} is {data.schema[name].kind.value} and not numeric",
                code="not-numeric",
                hint="name numeric attributes as continuous items",
                attribute=name,
            )
    return items


def _check_categorical(data: Microdata, name: str) -> None:
    kind = data.schema[name].kind
    if not kind.is_categorical:
        raise SpecError(
            f"{name!r} is {kind.value}: a key variable is categorical",
            code="key-not-categorical",
            hint="a count such as the number of rooms is ordinal: describe it so; recode a continuous item to ranges",
            attribute=name,
        )


def _check_complete(data: Microdata, names: Names) -> None:
    counts = {}
    for name in names:
        flags = missing_codes(data, name)
        if flags.any():
            counts[name] = int(np.count_nonzero(flags[data.coded(name).codes]))
    counts = {name: count for name, count in counts.items() if count}
    if counts:
        listed = ", ".join(f"{name} ({count:,} records)" for name, count in counts.items())
        raise InputError(
            f"key variables have missing values: {listed}",
            code="missing-keys",
            hint='edit or impute them first, or say missing_keys="level" to take missing as a value of its own',
            records=counts,
        )
