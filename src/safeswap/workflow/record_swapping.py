"""Record swapping with the arguments of sdcMicro's ``recordSwap``, for those who know them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Annotated, Any, TypedDict, Unpack

import numpy as np
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.errors import SpecError
from safeswap.methods.household_swap.spec import HouseholdSwapSpec
from safeswap.model.checked import Default, check_types
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.workflow.masking import mask, read


class RiskOptions(TypedDict, total=False):
    """Options that say which households are at risk, and what moves with them."""

    risk: Annotated[Any, Default(None)]
    risk_threshold: Annotated[float | None, Default(None)]
    k_anonymity: Annotated[int, Default(3)]
    risk_variables: Annotated[Sequence[str], Default(())]
    carry_along: Annotated[Sequence[str], Default(())]


@check_types
def record_swap(
    data: Any,
    *,
    hid: str,
    hierarchy: Sequence[str],
    similar: str | Sequence[Any],
    swaprate: float = 0.05,
    key: Key | None = None,
    insecure_seed: int | None = None,
    **options: Unpack[RiskOptions],
) -> Masked:
    """Swap households as ``recordSwap`` of sdcMicro does, by the method ``household_swap``.

    The arguments are those of sdcMicro, columns by name: ``similar`` is one profile or a list of profiles, ``risk``
    names columns or is a matrix with a column per level of ``hierarchy``, in place of ``risk_variables`` and
    ``k_anonymity``. What differs:

    - Partners are near rather than anywhere in the country, and every household at risk that can be swapped is, by as
      few swaps as that takes; so fewer households move, and tables of large areas change less.
    - Profiles must nest, each a part of the one before. A household at risk is covered under the loosest profile if
      any pairing can; sdcMicro tries profiles one after the other and leaves out who finds nobody.
    - ``similar`` and ``carry_along`` are the same for all members of a household, or refused, not the first one's.
    - Households of different areas only are swapped, whatever the level; a person's own cell counts, as there.
    - Draws come from a secret key, not from a seed; the result can be undone from the audit record.

    >>> from safeswap import datasets
    >>> people = datasets.synthetic_population(2_000)
    >>> levels = ["REGION", "DISTRICT", "MUNICIPALITY", "AREA"]
    >>> masked = record_swap(
    ...     people,
    ...     hid="HID",
    ...     hierarchy=levels,
    ...     similar=["TENURE"],
    ...     risk_variables=["ORIGIN"],
    ...     swaprate=0.1,
    ...     insecure_seed=1,
    ... )
    >>> masked.audit.facts["at_risk_left"]
    0
    """
    risk, risk_threshold, profiles = options["risk"], options["risk_threshold"], _as_profiles(similar)
    categories = {*options["risk_variables"], *(name for names in profiles for name in names)}
    original = _as_categories(read(data), tuple(hierarchy), categories)
    values: dict[str, Any] = {"household": hid, "geography": tuple(hierarchy), "similar": profiles}
    values |= {"rate": swaprate, "carry_along": tuple(options["carry_along"]), "match_size": False, "rounds": 1}
    extended = original
    if risk is None and risk_threshold is not None:
        raise SpecError(
            "risk_threshold needs risk",
            code="bad-argument",
            hint="give risk too, or k_anonymity and risk_variables instead of both",
            argument="risk_threshold",
        )
    if risk is None:
        values |= {"k": options["k_anonymity"], "risk_variables": tuple(options["risk_variables"])}
    else:
        extended, names = _with_risk(original, risk, len(hierarchy))
        values |= {"risk": names, "threshold": risk_threshold}
    masked = mask(extended, HouseholdSwapSpec(**values), key=key, insecure_seed=insecure_seed)
    if extended is original:
        return masked
    kept = masked.data.table.select(list(original.attributes))
    return replace(masked, original=original, data=replace(masked.data, table=kept, schema=original.schema, _coded={}))


def _as_profiles(similar: str | Sequence[Any]) -> tuple[Names, ...]:
    """Return one profile, or the profiles that are listed."""
    if isinstance(similar, str):
        return ((similar,),)
    if all(isinstance(each, str) for each in similar):
        return (tuple(similar),)
    profiles = tuple((each,) if isinstance(each, str) else each for each in similar)
    if all(isinstance(each, Sequence) and all(isinstance(name, str) for name in each) for each in profiles):
        return tuple(tuple(each) for each in profiles)
    raise SpecError(
        "similar does not name columns",
        code="bad-argument",
        hint='give names, or a list of profiles: similar=[["size", "type"], ["size"]]',
        argument="similar",
    )


def _as_categories(data: Microdata, hierarchy: Names, categories: Set[str]) -> Microdata:
    """Return the data with named roles as areas and categories, where another kind was guessed."""
    said = []
    for each in (each for each in data.schema.attributes if each.inferred):
        if each.name in hierarchy and (each.kind is Kind.NUMERIC or each.kind.is_categorical):
            said.append(each.model_copy(update={"kind": Kind.GEOGRAPHY}))
        elif each.name in categories and each.kind is Kind.NUMERIC:
            said.append(each.model_copy(update={"kind": Kind.NOMINAL}))
    return replace(data, schema=data.schema.replace(*said), _coded={}) if said else data


def _with_risk(data: Microdata, risk: Any, levels: int) -> tuple[Microdata, Names]:
    """Return the data with a matrix as columns during the swap; named columns are left alone."""
    if isinstance(risk, str) or (isinstance(risk, Sequence) and all(isinstance(each, str) for each in risk)):
        return data, (risk,) if isinstance(risk, str) else tuple(risk)
    try:
        matrix = np.asarray(risk, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.zeros(0)
    if matrix.shape != (len(data), levels):
        raise SpecError(
            "risk is not a matrix with a row per record and a column per level",
            code="bad-argument",
            hint="give numbers, one row per record and one column per level of the hierarchy; or names of columns",
            argument="risk",
        )
    names = tuple(f"risk at level {level}" for level in range(levels))
    while set(names) & set(data.attributes):
        names = tuple(f"{name} " for name in names)
    table, attributes = data.table, data.schema.attributes
    for place, name in enumerate(names):
        table = table.append_column(name, pa.array(matrix[:, place]))
        attributes = (*attributes, Attribute(name=name, kind=Kind.NUMERIC))
    schema = Schema(name=data.schema.name, label=data.schema.label, attributes=attributes)
    return Microdata(table, schema, data.origin), names
