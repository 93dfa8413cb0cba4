"""Propose a project for a data file: kinds of columns, a scenario and first steps, each guess with its evidence.

The evidence consists of counts and names of columns. No value of a record is told: not even the smallest or largest
number of a column, which may be one person's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from safeswap.files.formats import existing_file
from safeswap.files.identifiers import split_groups
from safeswap.files.read import read
from safeswap.measures.risk.suggest_keys import KeySuggestions, rank_keys
from safeswap.model.columns import to_numbers
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario, propose_bands
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.text import list_names, plural, quote_name
from safeswap.model.two_files import merge_files
from safeswap.on_disk.masking import digest_of_both
from safeswap.projects.project import Project
from safeswap.projects.settings import DataSource, ReleaseSettings

SCENARIO = "prosecutor"
KEYS = 5
UP_TO = 3
_MOST_KEY_VALUES = 200  # a number with more values, such as an income, is hardly known to anyone outside
SHARED = "the same for all members of a household: changed for all or none"
_NEARLY_ALL = 0.95
_READING = {"delimiter", "encoding", "quote", "decimal", "missing"}
_MOST_NAMED = 4
_DESIGN = {
    **dict.fromkeys(("stratum", "strata"), ("stratum", "a stratum of the sample by its name")),
    **dict.fromkeys(("psu", "cluster"), ("psu", "a primary sampling unit by its name")),
}
"""Names of columns that say which part they have in the design of the sample."""


def looks_like_identifier(data: Microdata, name: str) -> bool:
    """Return whether the values of nearly all records differ, so that each can be found by its own.

    >>> import pyarrow as pa
    >>> table = pa.table({"code": [str(n) for n in range(50)], "sex": ["f", "m"] * 25})
    >>> data = read(table)
    >>> looks_like_identifier(data, "code"), looks_like_identifier(data, "sex")
    (True, False)
    """
    kind = data.schema[name].kind
    return kind is Kind.IDENTIFIER or len(data.coded(name).levels) >= max(_NEARLY_ALL * len(data), 2)


def propose(
    file: Path, folder: Path, *, households: Path | None = None, on: str | None = None, **reading: Any
) -> Project:
    """Return a project for the file; paths are relative to ``folder``, where the project file is to lie.

    With ``households``, the file has persons, and ``on`` numbers the households in both.
    """
    files = [existing_file(each) for each in (file, households) if each is not None]
    places = [Path(os.path.relpath(each, folder)).as_posix() for each in files]
    stated = {name: reading[name] for name in _READING & reading.keys()}
    named = {"identifier": reading.get("identifier"), "household": on}
    source = DataSource(**dict(zip(("file", "households"), places, strict=False)), **named, **stated)
    data = read(files[0], **reading)
    guessed = data.schema
    if households is not None:
        homes = read(files[1], **source.layout_of(files[1]))
        data = merge_files(homes, data, on)
        # That a column of this file is the household's is no guess; its kind may be one.
        shared = [data.schema[each.name] for each in homes.schema.attributes if data.schema[each.name].household]
        told = [{"household": False, "inferred": homes.schema[each.name].inferred} for each in shared]
        guessed = data.schema.replace(*(a.model_copy(update=update) for a, update in zip(shared, told, strict=True)))
    levels, design = dict(_nest_areas(data)), _find_design(guessed)
    found = {each.name: _describe(data, each, levels, design) for each in guessed.attributes}
    guesses = {f"schema.{name}": text for name, text in found.items() if text}
    given: dict[str, Any] = {}
    for kind in (Kind.IDENTIFIER, Kind.HOUSEHOLD):
        if (own := next(data.schema.iter_kind(kind), None)) is not None:
            given[kind.value] = own.name
            if text := guesses.pop(f"schema.{own.name}", ""):
                guesses[f"data.{kind.value}"] = text
    ranked = rank_keys(data, among=_possible_keys(data), most=KEYS)
    keys = ranked.names
    steps = list(_recodes(data, keys))
    if keys:
        guesses[f"scenario.{SCENARIO}.keys"] = _tell_ranks(ranked)
    if steps:
        guesses["step.recode.steps"] = "proposed, so that no key has a value for each record; edit the breaks"
    pipeline: Any = [{"method": "recode", "steps": steps}] if steps else []
    pipeline += [{"method": "suppress", "scenario": SCENARIO, "solver": "greedy"}] if keys else []
    digest = digest_of_both(files[0], files[1] if households is not None else None)
    scenario = Scenario(name=SCENARIO, keys=keys, up_to=min(UP_TO, len(keys)), tolerance=3) if keys else None
    return Project(
        title=data.schema.label or data.schema.name,
        data=source.model_copy(update={"sha256": digest, **given}),
        schema=_as_stated(data.schema, levels, design, given),
        scenarios=() if scenario is None else (scenario,),
        pipeline=pipeline,
        release=ReleaseSettings(require={SCENARIO: "risky <= 0"} if keys else {}),
        guesses=guesses,
    )


def _as_stated(
    schema: Schema, levels: dict[str, int], design: dict[str, tuple[str, str]], given: dict[str, Any]
) -> Schema:
    """Return the schema as the file states it; what the section data says of a column is said there only."""
    attributes = []
    for each in schema.attributes:
        changed: dict[str, Any] = {"inferred": False}
        if each.name in (given.get("identifier"), given.get("household")):
            changed["kind"] = Kind.NOMINAL
        if each.name in levels:
            changed["geography_level"] = levels[each.name]
        if each.name in design:  # a number of a unit is a code
            changed["design"] = design[each.name][0]
            changed["kind"] = Kind.NOMINAL if each.kind is Kind.NUMERIC else each.kind
        attributes.append(each.model_copy(update=changed))
    return Schema(name=schema.name, label=schema.label, attributes=tuple(attributes))


def _describe(data: Microdata, attribute: Attribute, levels: dict[str, int], design: dict[str, tuple[str, str]]) -> str:
    """Return the evidence for what is guessed of a column; empty if nothing is."""
    name, kind = attribute.name, attribute.kind
    if not attribute.inferred:
        return ""
    distinct = plural(len(data.coded(name).levels), "distinct value")
    counted = f"{distinct} in {plural(len(data), 'record')}"
    told = {
        Kind.IDENTIFIER: counted,
        Kind.GEOGRAPHY: f"an area by its name: {distinct}",
        Kind.WEIGHT: f"a weight by its name; {distinct}",
        Kind.ORDINAL: f"{plural(len(attribute.levels), 'level')} in an order",
        Kind.DATE: f"all values are dates; {distinct}",
        Kind.NUMERIC: f"all values are numbers; {distinct}",
    }
    if kind is Kind.HOUSEHOLD:
        same = _constant_within(data, name)
        return f"repeats: {counted}" + (f"; constant within: {list_names(same)}" if same else "")
    text = told.get(kind, "")
    if name in design:
        text = f"{design[name][1]}: {distinct}"
    elif kind in (Kind.NOMINAL, Kind.NUMERIC, Kind.DATE) and looks_like_identifier(data, name):
        text = f"{counted}: each record can be found by it if it is released"
    text += f", level {levels[name]} of the nested areas" if name in levels else ""
    text += ("; " if text else "") + SHARED if attribute.household else ""
    return text + (f"; taken as missing: {', '.join(attribute.missing)}" if attribute.missing and text else "")


def _find_design(schema: Schema) -> dict[str, tuple[str, str]]:
    """Return the columns that are, by their names, parts of the sample design: the part, and how it was recognised."""
    codes = (Kind.NOMINAL, Kind.ORDINAL, Kind.NUMERIC, Kind.GEOGRAPHY)
    found: dict[str, tuple[str, str]] = {each.design: (each.name, "") for each in schema.attributes if each.design}
    for each in schema.attributes:
        part, text = _DESIGN.get(each.name.lower(), ("", ""))
        if part and each.inferred and each.kind in codes:
            found.setdefault(part, (each.name, text))  # a sample has one of each
    return {name: (part, text) for part, (name, text) in found.items() if text}


def _constant_within(data: Microdata, household: str) -> list[str]:
    """Return the columns that are constant within households of several persons: evidence that they are households."""
    groups = data.coded(household)
    others = [name for name in data.attributes if name != household and len(data.coded(name).levels) > 1]
    found = [name for name in others if not split_groups(groups, data.coded(name)).any()]
    return [*found[:_MOST_NAMED], *(["…"] if len(found) > _MOST_NAMED else [])]


def _nest_areas(data: Microdata) -> Iterator[tuple[str, int]]:
    """Yield areas that are nested in each other with their levels, the coarsest first."""
    names = sorted((a.name for a in data.schema.iter_kind(Kind.GEOGRAPHY)), key=lambda n: len(data.coded(n).levels))
    chain: list[str] = []
    for name in names:
        finer = not chain or len(data.coded(name).levels) > len(data.coded(chain[-1]).levels)
        if finer and (not chain or not split_groups(data.coded(name), data.coded(chain[-1])).any()):
            chain.append(name)
    yield from ((name, level) for level, name in enumerate(chain)) if len(chain) > 1 else ()


def _possible_keys(data: Microdata) -> tuple[str, ...]:
    """Return the columns that an outsider might know: no number with very many values."""
    kinds = {each.name: each.kind for each in data.schema.attributes}
    return tuple(
        name
        for name, kind in kinds.items()
        if kind is not Kind.NUMERIC or len(data.coded(name).levels) <= _MOST_KEY_VALUES
    )


def _tell_ranks(ranked: KeySuggestions) -> str:
    told = ", ".join(f"{quote_name(each.name)} +{each.added:.1%}" for each in ranked)
    return f"ranked by the records each adds to those that are unique: {told}; remove what no outsider can know"


def _recodes(data: Microdata, keys: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield a step for each key that is a number or a date: bands instead of single values."""
    for name in keys:
        if data.schema[name].kind is Kind.DATE:
            yield {"step": "date_band", "attribute": name, "by": "year"}
        elif data.schema[name].kind is Kind.NUMERIC:
            values = to_numbers(data, name)
            if breaks := propose_bands(values[np.isfinite(values)]):
                yield {"step": "ranges", "attribute": name, "breaks": list(breaks)}
