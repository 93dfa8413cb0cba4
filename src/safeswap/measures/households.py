"""Risk where the household is the unit: what is to be found is a whole household.

A household is described by the keys that are its own and by the multiset of its members' keys, and counted as one
record. The risk of a household is the probability that any of its members is found, 1 − ∏(1 − r); the risk of a file
is the mean of it over persons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.arrays.types import Floats
from safeswap.model.combination import Combinations, KeyCombination
from safeswap.model.households import Households, compositions, find_households, household_weights
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema, household_attributes
from safeswap.model.score import Comparison, Score
from safeswap.model.text import plural


def household_risks(risks: Floats, homes: Households) -> Floats:
    """Return, for each household, the probability that any member is found, given the risks of the records.

    >>> from safeswap.model.schema import Schema
    >>> schema = Schema(attributes=(Attribute(name="home", kind="household"),))
    >>> homes = find_households(Microdata(pa.table({"home": [1, 1, 2]}), schema))
    >>> household_risks(np.array([0.5, 0.5, 1.0]), homes).tolist()
    [0.75, 1.0]
    """
    with np.errstate(divide="ignore"):
        safe = np.log1p(-np.minimum(risks, 1.0))
    return np.asarray(-np.expm1(np.bincount(homes.of_record, safe, len(homes))))


@dataclass(frozen=True, eq=False)
class Described:
    """A file of households and the names of its keys: the household's own, then those of its members."""

    data: Microdata
    keys: Names


def describe_households(
    data: Microdata, keys: Sequence[str], homes: Households, *, groups: Sequence[Names] | None = None
) -> Described:
    """Return the file of households, described by their own keys and by the multisets of their members' keys.

    ``groups`` are the members' keys that are taken together, by default all. A key that is said to be the household's
    and yet differs between members is told by their multiset too.
    """
    own, theirs = divide_keys(data, keys, homes)
    together = ((theirs,) if theirs else ()) if groups is None else tuple(groups)
    first = pa.array(homes.first)
    columns = {name: data.table.column(name).take(first) for name in household_attributes(data.schema)}
    described = {name: data.schema[name] for name in columns}
    for weight in data.schema.iter_kind(Kind.WEIGHT):
        columns[weight.name] = household_weights(data, weight.name, homes)
        described[weight.name] = weight
    names = []
    for group in together:
        names.append(name_members(group, taken=data.attributes))
        columns[names[-1]] = compositions(data, group, homes)
        described[names[-1]] = Attribute(name=names[-1])
    schema = Schema(name=data.schema.name, attributes=tuple(described[name] for name in columns))
    return Described(Microdata(pa.table(columns), schema), (*own, *names))


def divide_keys(data: Microdata, keys: Sequence[str], homes: Households) -> tuple[Names, Names]:
    """Return the keys that belong to the household, and those of its members."""
    shared = set(household_attributes(data.schema))
    own = tuple(name for name in keys if name in shared and _is_constant(data, name, homes))
    return own, tuple(name for name in keys if name not in own)


def _is_constant(data: Microdata, name: str, homes: Households) -> bool:
    codes = data.coded(name).codes
    return bool((codes == codes[homes.first][homes.of_record]).all())


def name_members(names: Names, *, taken: Sequence[str] = ()) -> str:
    """Return the name of the multiset of the members' values of some keys.

    >>> name_members(("age", "sex"))
    "members' age × sex"
    """
    name = "members' " + " × ".join(names)
    while name in taken:
        name += "_"
    return name


def compare_households(seen: Comparison, keys: Names, *, jointly: bool = True) -> Comparison:
    """Return the comparison of the files of households, one record each; touched if any member was.

    The members' keys are one multiset of their joint values, or with ``jointly`` false a multiset for each key.
    """
    homes = find_households(seen.before)
    groups = None if jointly else tuple((name,) for name in divide_keys(seen.after, keys, homes)[1])
    after = describe_households(seen.after, keys, homes, groups=groups)
    before = after if seen.before is seen.after else describe_households(seen.before, keys, homes, groups=groups)
    touched = None
    if seen.touched is not None:
        touched = np.bincount(homes.of_record[seen.touched], minlength=len(homes)) > 0
    return replace(
        seen, before=before.data, after=after.data, attributes=after.keys, touched=touched, recoded=None, scenario=None
    )


def tell_unit(score: Score, households: int) -> Score:
    """Return a score with its unit in the sentence."""
    told = f"Counting {plural(households, 'household')}, each as one record: {score.sentence}"
    return replace(score, sentence=told)


def combine_households(data: Microdata, asked: Combinations, homes: Households) -> tuple[Microdata, Combinations]:
    """Return the file of households and the combinations to protect, with the members' keys of each taken together."""
    stated = asked.stated()
    parts = [(keys, tolerance, *divide_keys(data, keys, homes)) for keys, tolerance in stated]
    groups = tuple(dict.fromkeys(theirs for _, _, _, theirs in parts if theirs))
    every = tuple(dict.fromkeys(chain.from_iterable(keys for keys, _ in stated)))
    described = describe_households(data, every, homes, groups=groups)
    members = {theirs: name_members(theirs, taken=data.attributes) for theirs in groups}
    named = tuple(
        KeyCombination(keys=(*own, *((members[theirs],) if theirs else ())), tolerance=tolerance)
        for _, tolerance, own, theirs in parts
    )
    return described.data, Combinations(combinations=named, missing=asked.missing, weight=asked.weight)
