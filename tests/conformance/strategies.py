"""How each method is tried out: files and specifications as awkward as agencies have them.

A method that is registered and has no entry in ``CASES`` fails the suite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from tests.conformance import household_strategies as households
from tests.conformance import numeric_strategies as numeric
from tests.conformance import recode_strategies as recode
from tests.conformance import safe_strategies as safe
from tests.conformance import suppress_strategies as suppress

from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.methods.edit_targeted.method import EditTargetedSpec
from safeswap.methods.swap_permutation import SwapPermutationSpec
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.spec import MaskSpec, SwapSpec, Targeting

Tried = tuple[Microdata, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the suite needs to know of a method.

    ``inputs`` gives small files with specifications that apply to them and that take what there is where they ask for
    too much. ``example`` is one of some hundred records with many possible results. ``idle`` turns a specification
    into one that asks for nothing. ``drawn`` says that the key decides the result, ``threaded`` that several threads
    work on it.
    """

    inputs: st.SearchStrategy[Tried]
    example: Callable[[], Tried]
    idle: Callable[[Any], MaskSpec]
    drawn: bool = True
    threaded: bool = True


AWKWARD_NAMES = (
    *("Sex", "sex", "SEX ", " ", "a b", "a,b", 'say "no"', "it's", "=1+1", "x;--", "SELECT", "rowid", "sign", "c0"),
    *(
        "Straße",
        "Strasse",
        "名前",
        "é",
        "e\u0301",
        "🙂",
        "tab\tname",
        "two\nlines",
        "0",
        "-1",
        "NULL",
        "None",
        "nan",
        "index",
    ),
    *("level_0", "__index_level_0__", "a" * 300),
)
TEXTS = st.sampled_from(["", " ", "a", "A", "á", "a\u0301", "007", "7", "NA", "null", "no answer", "🙂" * 9, "=1+1"])
INT64 = st.integers(-(2**63), 2**63 - 1)
IDENTIFIERS: tuple[tuple[pa.DataType, st.SearchStrategy[Any]], ...] = (
    (pa.int64(), INT64),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.string(), INT64.map(str) | st.integers(0, 999).map("{:07d}".format)),
    (pa.large_string(), st.text(max_size=14)),
    (pa.string(), st.text(min_size=15, max_size=60)),
    (pa.string(), st.text(max_size=3) | st.uuids().map(str)),
    (pa.binary(), st.binary(max_size=20)),
)
LEVELS: tuple[tuple[pa.DataType, st.SearchStrategy[Any]], ...] = (
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    (pa.dictionary(pa.int32(), pa.large_string(), ordered=True), TEXTS),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), INT64),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), 2.0])),
)


def seen_as(value: object) -> str:
    """A value as the checks tell values apart: −0.0 is not 0.0, and NaN is NaN."""
    return repr(value)


def values_of(data: Microdata, name: str) -> list[str]:
    return [seen_as(value) for value in data.table.column(name).to_pylist()]


@st.composite
def column(draw: st.DrawFn, *, records: int) -> pa.ChunkedArray:
    """One to four levels, perhaps missing ones, in one chunk or two."""
    kind, values = draw(st.sampled_from(LEVELS))
    levels = draw(st.lists(values, min_size=1, max_size=4, unique_by=seen_as))
    if draw(st.booleans()):
        levels.append(None)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = rng.dirichlet(np.full(len(levels), draw(st.sampled_from([0.3, 3.0]))))
    chosen = [levels[i] for i in rng.choice(len(levels), records, p=share)]
    value_type = kind.value_type if pa.types.is_dictionary(kind) else kind
    array = pa.array(chosen, value_type)
    array = array.cast(kind) if kind != value_type else array
    cut = draw(st.integers(0, records))
    return pa.chunked_array([array[:cut], array[cut:]] if draw(st.booleans()) else [array], type=kind)


@st.composite
def microdata(draw: st.DrawFn, *, most_records: int = 60, identified: bool | None = None) -> Microdata:
    """1 to 60 records, 1 to 5 categorical attributes, an identifier of any kind or none."""
    records = draw(st.integers(1, most_records))
    names = draw(st.lists(st.sampled_from(AWKWARD_NAMES), min_size=2, max_size=6, unique=True))
    columns = {name: draw(column(records=records)) for name in names[1:]}
    kinds = dict.fromkeys(names[1:], Kind.NOMINAL)
    if draw(st.booleans()) if identified is None else identified:
        kind, values = draw(st.sampled_from(IDENTIFIERS))
        identifiers = draw(st.lists(values, min_size=records, max_size=records, unique=True))
        columns[names[0]] = pa.chunked_array([pa.array(identifiers, kind)])
        kinds[names[0]] = Kind.IDENTIFIER
    order = draw(st.permutations(list(columns)))
    schema = Schema(name=draw(TEXTS), attributes=tuple(Attribute(name=n, kind=kinds[n]) for n in order))
    return Microdata(pa.table({name: columns[name] for name in order}), schema)


@st.composite
def swap_specs(draw: st.DrawFn, data: Microdata, **stated: Any) -> SwapSpec:
    """Any roles for any attributes; targeting only by keys that are named, so that no other attribute plays a part."""
    varied = [name for name in data.schema.categorical if len(set(values_of(data, name))) > 1]
    names = draw(st.permutations(varied))
    swap = tuple(names[: draw(st.integers(1, min(3, len(names))))])
    others = [name for name in data.schema.categorical if name not in swap]
    roles = {name: draw(st.sampled_from("FDOOO")) for name in others}
    also = tuple(name for name in swap if draw(st.integers(0, 4)) == 0)  # swapped, and yet it has to differ
    keys = tuple(name for name in data.schema.categorical if draw(st.booleans()))
    weight = draw(st.sampled_from([0.1, 10.0, 1e6]))
    targeting = Targeting(keys=keys, n=draw(st.integers(2, 5)), weight=weight) if keys else None
    amount = st.integers(0, len(data)).map(lambda k: {"pairs": k}) | st.floats(0.01, 1.0).map(lambda r: {"rate": r})
    free: dict[str, Any] = {
        "swap": swap,
        "fixed": tuple(name for name, role in roles.items() if role == "F"),
        "differ": (*(name for name, role in roles.items() if role == "D"), *also),
        "true_swap": draw(st.sampled_from(["any", "all"])),
        "pairing": draw(st.sampled_from(["repaired", "uniform"])),
        "mode": draw(st.sampled_from(["simultaneous", "sequential"])),
        "on_shortfall": "take",
        "targeting": targeting if draw(st.booleans()) else None,
        **draw(amount),
    }
    return SwapSpec(**{**free, **stated})


@st.composite
def swap_inputs(
    draw: st.DrawFn, *, most_records: int = 60, identified: bool | None = None, **stated: Any
) -> tuple[Microdata, SwapSpec]:
    """A file in which something can be swapped, and a specification of it."""
    data = draw(
        microdata(most_records=most_records, identified=identified).filter(
            lambda found: any(len(set(values_of(found, name))) > 1 for name in found.schema.categorical)
        )
    )
    return data, draw(swap_specs(data, **stated))


def swap_example() -> tuple[Microdata, SwapSpec]:
    """Three hundred persons of whom a third are swapped."""
    rng = np.random.default_rng(20)
    table = pa.table(
        {
            "id": pa.array(rng.permutation(300) + 5_000_000_000),
            "Race": pa.array(rng.choice(["white", "black", "asian"], 300, p=[0.7, 0.2, 0.1])),
            "Sex": pa.array(rng.choice(["f", "m"], 300)),
            "Age": pa.array(rng.integers(1, 6, 300).astype(np.int8)),
            "Town": pa.array(rng.choice(["a", "b", None], 300)).dictionary_encode(),
        }
    )
    kinds = {"id": Kind.IDENTIFIER, "Age": Kind.ORDINAL, "Town": Kind.GEOGRAPHY}
    attributes = tuple(Attribute(name=name, kind=kinds.get(name, Kind.NOMINAL)) for name in table.column_names)
    data = Microdata(table, Schema(name="persons", attributes=attributes))
    return data, SwapSpec(swap=("Race", "Age"), fixed=("Sex",), differ=("Town",), rate=1 / 3)


def permutation_inputs() -> st.SearchStrategy[Tried]:
    """Any file, one or two attributes that are permuted and any others held fixed, with any probability."""

    def asked(data: Microdata) -> st.SearchStrategy[Tried]:
        orders = st.permutations(data.schema.categorical)
        cuts = st.tuples(st.integers(1, 2), st.integers(0, 2))
        roles = st.tuples(orders, cuts).map(lambda one: (one[0][: one[1][0]], one[0][one[1][0] :][: one[1][1]]))
        chances = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])
        specs = st.tuples(roles, chances).map(
            lambda one: SwapPermutationSpec(swap=one[0][0], fixed=one[0][1], probability=one[1])
        )
        return st.tuples(st.just(data), specs)

    return microdata().filter(lambda data: bool(data.schema.categorical)).flatmap(asked)


def permutation_example() -> Tried:
    """Three hundred persons of whom a third change places."""
    return swap_example()[0], SwapPermutationSpec(swap=("Race", "Age"), fixed=("Sex",), probability=1 / 3)


def no_pairs(spec: SwapSpec) -> SwapSpec:
    return spec.replace(rate=None, pairs=0)


AMOUNTS = st.sampled_from([0.0, -0.0, 1.5, 2.5, -7.0, float("nan"), float("inf"), 1e300, None])


@st.composite
def targeted_edit_inputs(draw: st.DrawFn, **stated: Any) -> tuple[Microdata, EditTargetedSpec]:
    """A file with keys, areas and amounts, and any specification of the targeted edit.

    Keys and areas have an order of their own, by which the file is sorted; so none of them is nominal.
    """
    data = draw(microdata())
    names = draw(st.permutations(data.schema.categorical))
    area_count = draw(st.integers(0, len(names) - 1))
    areas, keys = tuple(names[:area_count]), tuple(names[area_count:])
    amounts = draw(st.lists(AMOUNTS, min_size=len(data), max_size=len(data)))
    kinds = {**dict.fromkeys(keys, Kind.ORDINAL), **dict.fromkeys(areas, Kind.GEOGRAPHY)}
    schema = data.schema.replace(*(Attribute(name=name, kind=kind) for name, kind in kinds.items()))
    schema = Schema(name=schema.name, attributes=(*schema.attributes, Attribute(name="amount", kind=Kind.NUMERIC)))
    data = Microdata(data.table.append_column("amount", pa.array(amounts, pa.float64())), schema)
    inside = tuple(name for name in keys if len(keys) > 1 and name == keys[0] and draw(st.booleans()))
    free = {
        "keys": (*keys, *(name for name in areas if draw(st.booleans()))),
        "exchange": draw(st.sampled_from(["geography", "continuous", "categorical"] if areas else [2, 3])),
        "geography": areas,
        "geography_codes": "local",
        "continuous": ("amount",),
        "within": inside,
        "tolerance": draw(st.integers(2, 6)),
        "variant": draw(st.sampled_from(["keyed", "keyed", "letter"])),
        "keep_fraction": draw(st.sampled_from([1.0, 1.0, 0.5])),
        "missing_keys": "level",
    }
    return data, EditTargetedSpec(**{**free, **stated})


def targeted_edit_example() -> tuple[Microdata, EditTargetedSpec]:
    """Five hundred dwellings, of which many have a combination of rooms and age of their own."""
    rng = np.random.default_rng(21)
    county = rng.integers(0, 3, 500)
    table = pa.table(
        {
            "id": pa.array([f"dwelling {i:05d}" for i in rng.permutation(500)]),
            "Beds": pa.array((rng.random(500) ** 2 * 9).astype(np.int8)),
            "Baths": pa.array((rng.random(500) ** 3 * 6).astype(np.int8)),
            "Built": pa.array([f"{1900 + 10 * int(x)}s" for x in rng.integers(0, 9, 500)]),
            "County": pa.array(county),
            "Tract": pa.array(county * 100 + rng.integers(0, 9, 500)),
            "Income": pa.array(np.round(rng.lognormal(10, 1, 500), 2)),
        }
    )
    kinds = {"id": Kind.IDENTIFIER, "County": Kind.GEOGRAPHY, "Tract": Kind.GEOGRAPHY, "Income": Kind.NUMERIC}
    attributes = tuple(Attribute(name=name, kind=kinds.get(name, Kind.ORDINAL)) for name in table.column_names)
    data = Microdata(table, Schema(name="dwellings", attributes=attributes))
    return data, EditTargetedSpec(keys=("Baths", "Beds", "Built"), geography=("County", "Tract"))


def almost_nothing_kept(spec: EditTargetedSpec) -> EditTargetedSpec:
    return spec.replace(keep_fraction=1e-9)


@st.composite
def edit_1990_inputs(draw: st.DrawFn, **stated: Any) -> tuple[Microdata, Edit1990Spec]:
    """A file with areas in areas, whose codes are unique or count anew, and any specification of the edit of 1990."""
    data = draw(microdata(most_records=40))
    keys = data.schema.categorical
    depth = draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    unique = draw(st.booleans())
    table, attributes, levels = data.table, data.schema.attributes, []
    codes = np.zeros(len(data), dtype=np.int64)
    for level in range(depth):
        own = rng.integers(0, draw(st.integers(1, 3)), len(data))
        codes = codes * 3 + own
        levels.append(f"area {level}")
        kind = draw(st.sampled_from([pa.int64(), pa.string(), pa.dictionary(pa.int8(), pa.string())]))
        values = pa.array([str(code) for code in (codes if unique else own)])
        values = values.cast(pa.int64()) if kind == pa.int64() else values.cast(kind)
        table = table.append_column(levels[-1], values)
        as_kind = draw(st.sampled_from([Kind.GEOGRAPHY, Kind.NOMINAL]))
        attributes = (*attributes, Attribute(name=levels[-1], kind=as_kind))
    within = draw(st.integers(0, depth - 2))
    small = draw(st.booleans())
    rate = draw(st.floats(0, 1))
    free = {
        "keys": keys,
        "geography": tuple(levels),
        "within": levels[within],
        "across": levels[draw(st.integers(within + 1, depth - 1))],
        "rate": rate,
        "small_block_units": draw(st.integers(1, 4)) if small else 0,
        "small_block_rate": draw(st.floats(rate, 1)) if small else None,
        "geography_codes": "unique" if unique else "local",
        "missing_keys": "level",
        "single_areas": "leave",
    }
    return Microdata(table, Schema(name=data.schema.name, attributes=attributes)), Edit1990Spec(**{**free, **stated})


def edit_1990_example() -> tuple[Microdata, Edit1990Spec]:
    """Six hundred households of which a tenth is sampled, and of small blocks a third."""
    rng = np.random.default_rng(22)
    state = rng.integers(1, 3, 600)
    place = state * 10 + rng.integers(0, 5, 600)
    table = pa.table(
        {
            "id": pa.array(rng.permutation(600) + 7_000_000_000),
            "Persons": pa.array(rng.integers(1, 5, 600).astype(np.int8)),
            "Origin": pa.array(rng.choice(["a", "b"], 600)),
            "State": pa.array([f"state {i}" for i in state]).dictionary_encode(),
            "Place": pa.array(place),
            "Block": pa.array(
                [f"{p}-{b}" for p, b in zip(place, (rng.random(600) ** 3 * 30).astype(int), strict=True)]
            ),
        }
    )
    levels = ("State", "Place", "Block")
    kinds = {"id": Kind.IDENTIFIER, "Persons": Kind.ORDINAL, **dict.fromkeys(levels, Kind.GEOGRAPHY)}
    attributes = tuple(Attribute(name=name, kind=kinds.get(name, Kind.NOMINAL)) for name in table.column_names)
    spec = Edit1990Spec(
        keys=("Persons", "Origin"), geography=levels, rate=0.1, small_block_units=4, small_block_rate=1 / 3
    )
    return Microdata(table, Schema(name="households", attributes=attributes)), spec


def no_sample(spec: Edit1990Spec) -> Edit1990Spec:
    return spec.replace(rate=0.0, small_block_units=0, small_block_rate=None)


CASES: dict[str, Case] = {
    "swap": Case(inputs=swap_inputs(), example=swap_example, idle=no_pairs),
    "swap_permutation": Case(
        inputs=permutation_inputs(),
        example=permutation_example,
        idle=lambda spec: spec.replace(probability=0.0),
    ),
    "edit_1990": Case(inputs=edit_1990_inputs(), example=edit_1990_example, idle=no_sample),
    "edit_targeted": Case(inputs=targeted_edit_inputs(), example=targeted_edit_example, idle=almost_nothing_kept),
    "household_swap": Case(
        inputs=households.inputs(), example=households.example, idle=households.nothing_asked, threaded=False
    ),
    "rank_swap": Case(
        inputs=numeric.rank_swap_inputs(), example=numeric.rank_swap_example, idle=numeric.idle_window, threaded=False
    ),
    "noise": Case(
        inputs=numeric.noise_inputs(), example=numeric.noise_example, idle=numeric.idle_noise, threaded=False
    ),
    "microaggregation": Case(
        inputs=numeric.microaggregation_inputs(),
        example=numeric.microaggregation_example,
        idle=numeric.idle_groups,
        drawn=False,
        threaded=False,
    ),
    "top_bottom": Case(
        inputs=numeric.top_bottom_inputs(),
        example=numeric.top_bottom_example,
        idle=numeric.idle_bounds,
        drawn=False,
        threaded=False,
    ),
    "pram": Case(
        inputs=numeric.pram_inputs(microdata()), example=numeric.pram_example, idle=numeric.idle_pram, threaded=False
    ),
    "recode": Case(
        inputs=recode.recode_inputs(microdata(most_records=30)),
        example=recode.recode_example,
        idle=recode.no_steps,
        drawn=False,
        threaded=False,
    ),
    "suppress": Case(
        inputs=suppress.suppress_inputs(microdata(most_records=16)),
        example=suppress.suppress_example,
        idle=suppress.everything_safe,
        threaded=False,
    ),
    "safe": Case(
        inputs=safe.safe_inputs(microdata(most_records=30)),
        example=safe.safe_example,
        idle=safe.no_tables,
        threaded=False,
    ),
}
