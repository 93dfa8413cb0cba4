"""Files with numbers in every form in which agencies have them, and specifications of the methods that change them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from safeswap.methods.numeric.spec import MicroaggregationSpec, NoiseSpec, PramSpec, RankSwapSpec, TopBottomSpec
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.schema import Attribute, Kind, Schema

NUMBER_TEXTS = ("0", "7", "007", "1.50", "1.5", "-3", "-0", "1e3", "12345678.25", "0.001", "99")
NUMBERS: tuple[tuple[pa.DataType, st.SearchStrategy[Any]], ...] = (
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**40), 2**40)),
    (pa.uint16(), st.integers(0, 9)),
    # Spreads below 1e-150 are refused: their moments underflow.
    (pa.float64(), st.floats(-1e9, 1e9, allow_nan=False).map(lambda x: x if abs(x) > 1e-100 else 0.0)),
    (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("nan"), 2.25, -7.0])),
    (pa.float32(), st.integers(-4000, 4000).map(lambda n: n / 4)),
    (pa.string(), st.sampled_from(NUMBER_TEXTS)),
    (pa.large_string(), st.integers(0, 5000).map(str)),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(NUMBER_TEXTS)),
)
DAYS = st.sampled_from([dt.date(2000, 2, 29), dt.date(1899, 12, 31), dt.date(1970, 1, 1)]) | st.dates(
    dt.date(1850, 1, 1), dt.date(2050, 1, 1)
)
DATES: tuple[tuple[pa.DataType, st.SearchStrategy[Any]], ...] = (
    (pa.date32(), DAYS),
    (pa.timestamp("us"), DAYS.map(lambda day: dt.datetime.combine(day, dt.time()))),
    (pa.string(), DAYS.map(str)),
    (pa.dictionary(pa.int32(), pa.string()), DAYS.map(str)),
)
NAMES = ("turnover", "Employees", "a b", "名前", "c0", "sign", "=1+1", 'say "no"')


@st.composite
def number_column(draw: st.DrawFn, records: int, forms: Any = NUMBERS) -> pa.ChunkedArray:
    kind, values = draw(st.sampled_from(forms))
    some = draw(st.lists(values, min_size=2, max_size=12, unique_by=repr))
    if draw(st.booleans()):
        some.append(None)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    chosen = [some[i] for i in rng.integers(0, len(some), records)]
    value_type = kind.value_type if pa.types.is_dictionary(kind) else kind
    array = pa.array(chosen, value_type)
    array = array.cast(kind) if kind != value_type else array
    cut = draw(st.integers(0, records))
    return pa.chunked_array([array[:cut], array[cut:]] if draw(st.booleans()) else [array], type=kind)


@st.composite
def numeric_microdata(draw: st.DrawFn, *, fewest: int = 1) -> Microdata:
    """One to three columns of numbers or dates and up to 60 records, perhaps with codes for missing values."""
    records = draw(st.integers(fewest, 60))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    kinds = {name: draw(st.sampled_from([Kind.NUMERIC, Kind.NUMERIC, Kind.DATE])) for name in names}
    columns = {n: draw(number_column(records, DATES if kinds[n] is Kind.DATE else NUMBERS)) for n in names}
    codes = {Kind.NUMERIC: ("99",), Kind.DATE: ("1970-01-01",)}
    attributes = [Attribute(name=n, kind=kinds[n], missing=draw(st.sampled_from([(), codes[kinds[n]]]))) for n in names]
    if draw(st.booleans()):
        identifiers = draw(st.permutations(range(records)))
        columns["id"] = pa.chunked_array([pa.array([7 * i + 10**12 for i in identifiers], pa.int64())])
        attributes.append(Attribute(name="id", kind=Kind.IDENTIFIER))
    columns["group"] = pa.chunked_array([pa.array([f"g{i % 3}" for i in range(records)])])
    attributes.append(Attribute(name="group"))
    return Microdata(pa.table(columns), Schema(name=draw(st.sampled_from(["", "x"])), attributes=tuple(attributes)))


def varied(data: Microdata) -> tuple[str, ...]:
    """The attributes of numbers or dates that have two values at least."""
    names = [attribute.name for attribute in data.schema.attributes if attribute.kind.is_measurable]
    return tuple(n for n in names if len(np.unique(finite_numbers(data, n)[~np.isnan(finite_numbers(data, n))])) > 1)


def complete(data: Microdata) -> int:
    """How many records have all the numbers."""
    return int(np.count_nonzero(~np.isnan([finite_numbers(data, name) for name in varied(data)]).any(axis=0)))


def has_dates(data: Microdata) -> bool:
    return any(data.schema[name].kind is Kind.DATE for name in varied(data))


@st.composite
def rank_swap_inputs(draw: st.DrawFn) -> tuple[Microdata, RankSwapSpec]:
    data = draw(numeric_microdata().filter(varied))
    fewest = min(np.count_nonzero(~np.isnan(finite_numbers(data, name))) for name in varied(data))
    # A third of ten values is three: the least group that has a mean.
    share = st.sampled_from([0.0, 0.34]) if fewest >= 10 else st.just(0.0)
    window = draw(st.floats(0.01, 1.0))
    return data, RankSwapSpec(attributes=varied(data), window=window, top=draw(share), bottom=draw(share))


@st.composite
def noise_inputs(draw: st.DrawFn) -> tuple[Microdata, NoiseSpec]:
    data = draw(numeric_microdata().filter(varied))
    return data, NoiseSpec(
        attributes=varied(data),
        size=draw(st.sampled_from([0.01, 0.1, 1.0, 3.0])),
        kind=draw(st.sampled_from(["additive", "correlated"])),
        days=draw(st.sampled_from([None, 40.0])) if has_dates(data) else None,
        decimals=draw(st.sampled_from([None, 0, 3])),
    )


@st.composite
def microaggregation_inputs(draw: st.DrawFn) -> tuple[Microdata, MicroaggregationSpec]:
    data = draw(numeric_microdata(fewest=4).filter(lambda found: varied(found) and complete(found) > 1))
    return data, MicroaggregationSpec(
        attributes=varied(data),
        k=draw(st.integers(1, min(7, complete(data)))),
        groups=draw(st.sampled_from(["mdav", "univariate"])),
        decimals=draw(st.sampled_from([None, 0, 3])),
    )


@st.composite
def top_bottom_inputs(draw: st.DrawFn) -> tuple[Microdata, TopBottomSpec]:
    data = draw(numeric_microdata().filter(varied))
    ends: dict[str, Any] = draw(
        st.sampled_from([{"top": 7.0}, {"bottom": -0.5, "top": 3.25}, {"top_share": 0.2}, {"bottom_share": 0.4}])
    )
    if has_dates(data) and "top" in ends:
        ends = ends | {"latest": "2000-02-29"}
    return data, TopBottomSpec(attributes=varied(data), **ends)


@st.composite
def pram_inputs(draw: st.DrawFn, files: st.SearchStrategy[Microdata]) -> tuple[Microdata, PramSpec]:
    data = draw(files)
    names = draw(st.permutations(data.schema.categorical))
    cut = draw(st.integers(1, len(names)))
    keep = draw(st.sampled_from([0.0, 0.3, 0.9]))
    return data, PramSpec(attributes=tuple(names[:cut]), within=tuple(names[cut:])[:2], keep=keep)


def enterprises() -> Microdata:
    """Two hundred and forty enterprises, some of one size."""
    rng = np.random.default_rng(157)
    employees = np.ceil(rng.lognormal(2.5, 1.1, 240)).astype(np.int32)
    turnover = np.round(employees * rng.lognormal(4, 0.8, 240), 2)
    table = pa.table(
        {
            "id": pa.array(rng.permutation(240) + 10**9),
            "turnover": pa.array([f"{value:.2f}" for value in turnover]),
            "employees": pa.array(employees),
            "division": pa.array(rng.choice(["17", "18", "19"], 240, p=[0.2, 0.65, 0.15])),
        }
    )
    kinds = {"id": Kind.IDENTIFIER, "turnover": Kind.NUMERIC, "employees": Kind.NUMERIC, "division": Kind.NOMINAL}
    attributes = tuple(Attribute(name=name, kind=kind) for name, kind in kinds.items())
    return Microdata(table, Schema(name="enterprises", attributes=attributes))


NUMERIC = ("turnover", "employees")


def rank_swap_example() -> tuple[Microdata, RankSwapSpec]:
    return enterprises(), RankSwapSpec(attributes=NUMERIC, window=0.1, top=0.05)


def noise_example() -> tuple[Microdata, NoiseSpec]:
    return enterprises(), NoiseSpec(attributes=NUMERIC, size=0.2, kind="correlated")


def microaggregation_example() -> tuple[Microdata, MicroaggregationSpec]:
    return enterprises(), MicroaggregationSpec(attributes=NUMERIC, k=4)


def top_bottom_example() -> tuple[Microdata, TopBottomSpec]:
    return enterprises(), TopBottomSpec(attributes=NUMERIC, top_share=0.05, replace_by="mean")


def pram_example() -> tuple[Microdata, PramSpec]:
    return enterprises(), PramSpec(attributes=("division",), keep=0.5)


def idle_window(spec: RankSwapSpec) -> RankSwapSpec:
    return spec.replace(window=0.0, top=0.0, bottom=0.0)


def idle_noise(spec: NoiseSpec) -> NoiseSpec:
    return spec.replace(size=0.0, days=None)


def idle_groups(spec: MicroaggregationSpec) -> MicroaggregationSpec:
    return spec.replace(k=1)


def idle_bounds(spec: TopBottomSpec) -> TopBottomSpec:
    return TopBottomSpec(attributes=spec.attributes, top=1e300, latest="9999-12-31")


def idle_pram(spec: PramSpec) -> PramSpec:
    return spec.replace(keep=1.0)
