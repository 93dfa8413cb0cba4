"""How recoding is tried out: any steps on files as awkward as agencies have them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from safeswap.methods.recode.method import RecodeSpec
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema, level_texts

EDGES = [dt.date(2000, 2, 29), dt.date(1899, 12, 31), dt.date(1970, 1, 1), dt.date(2023, 4, 1)]
DATES = st.sampled_from(EDGES) | st.dates(dt.date(1850, 1, 1), dt.date(2030, 12, 31))
NUMBERS = st.sampled_from(["1", "2", "2.50", "-7", "0", "1e3", "0012", "-1"])


@st.composite
def steps_on_categories(draw: st.DrawFn, data: Microdata, name: str) -> dict[str, Any]:
    """A step that says something about any category, whatever its name."""
    levels = sorted(set(level_texts(data.coded(name).levels)))
    some = draw(st.lists(st.sampled_from(levels), unique=True)) if levels else []
    rest = draw(st.sampled_from(["keep", "blank"]))
    kinds: list[dict[str, Any]] = [
        {"step": "truncate", "characters": draw(st.integers(1, 3)), "fill": draw(st.sampled_from(["", "*"]))},
        {"step": "blank", "values": some},
        {"step": "drop", "attributes": [name]},
    ]
    if some:
        news = st.sampled_from(["new", *levels])
        kinds.append({"step": "recode", "map": {text: draw(news) for text in some}, "otherwise": rest})
        kinds.append({"step": "hierarchy", "parents": dict.fromkeys(some, "one above all"), "otherwise": rest})
    chosen = draw(st.sampled_from(kinds))
    if chosen["step"] == "drop":
        return chosen
    return {"attribute": name, **({"otherwise": rest} if chosen["step"] == "truncate" else {}), **chosen}


@st.composite
def steps_on_numbers(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """A step that cuts, bounds or rounds numbers."""
    breaks = sorted(draw(st.sets(st.integers(-8, 1001), min_size=1, max_size=3)))
    kind = draw(
        st.sampled_from(
            [
                {"step": "ranges", "breaks": breaks, "closed": draw(st.sampled_from(["left", "right"]))},
                {"step": "round", "base": draw(st.sampled_from([5, 0.1, 3])), "how": "nearest"},
                {"step": "top_bottom_code", "top": str(breaks[-1] + 1), "bottom": str(breaks[0] - 1)},
                {"step": "global_recode", "spans": [{"to": "low", "high": "0"}, {"to": "high", "low": "0.5"}]},
            ]
        )
    )
    return {"attribute": name, **kind}


@st.composite
def steps_on_dates(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """A step that bands or bounds dates."""
    kind = draw(
        st.sampled_from(
            [
                {"step": "date_band", "by": draw(st.sampled_from(["year", "quarter", "month"]))},
                {"step": "date_band", "by": "age", "at": "2023-02-28", "otherwise": "blank"},
                {"step": "date_band", "by": "age", "at": "2024-02-29", "otherwise": "blank", "breaks": [1, 18, 65]},
                {"step": "top_bottom_code", "top": "2000-02-29", "bottom": "1899-12-31"},
                {"step": "blank"},
            ]
        )
    )
    return {"attribute": name, **kind}


def add_dates(draw: st.DrawFn, data: Microdata) -> Microdata:
    """Append a column of dates, by type, as timestamps at midnight or as text."""
    days = draw(st.lists(st.none() | DATES, min_size=len(data), max_size=len(data)))
    column = pa.array(days, pa.date32()).cast(draw(st.sampled_from([pa.date32(), pa.timestamp("us"), pa.string()])))
    attributes = (*data.schema.attributes, Attribute(name="day", kind=Kind.DATE))
    return Microdata(data.table.append_column("day", column), Schema(name=data.schema.name, attributes=attributes))


@st.composite
def recode_inputs(draw: st.DrawFn, files: st.SearchStrategy[Microdata]) -> tuple[Microdata, RecodeSpec]:
    """A file with categories and a column of numbers, as text or as numbers, and some steps on them."""
    data = draw(files)
    texts = draw(st.lists(st.none() | NUMBERS, min_size=len(data), max_size=len(data)))
    column = pa.array(texts, pa.string())
    column = column if draw(st.booleans()) else column.cast(pa.float64())
    kind = draw(st.sampled_from([Kind.NUMERIC, Kind.ORDINAL]))
    missing = ("-1",) if draw(st.booleans()) else ()
    number = Attribute(name="number", kind=kind, missing=missing)
    schema = Schema(name=data.schema.name, attributes=(*data.schema.attributes, number))
    data = add_dates(draw, Microdata(data.table.append_column("number", column), schema))
    names = draw(st.lists(st.sampled_from(data.schema.categorical), max_size=2, unique=True))
    steps = [draw(steps_on_categories(data, name)) for name in names if name != "number"]
    if draw(st.booleans()):
        steps.insert(draw(st.integers(0, len(steps))), draw(steps_on_numbers("number")))
    if draw(st.booleans()):
        steps.insert(draw(st.integers(0, len(steps))), draw(steps_on_dates("day")))
    return data, RecodeSpec(steps=steps)


def recode_example() -> tuple[Microdata, RecodeSpec]:
    """Three hundred persons whose ages become ranges and whose towns become provinces."""
    rng = np.random.default_rng(30)
    table = pa.table(
        {
            "id": pa.array(rng.permutation(300) + 5_000_000_000),
            "Age": pa.array(rng.integers(0, 99, 300).astype(np.int8)),
            "Town": pa.array(rng.choice(["11", "12", "21", None], 300)).dictionary_encode(),
        }
    )
    kinds = {"id": Kind.IDENTIFIER, "Age": Kind.NUMERIC}
    attributes = tuple(Attribute(name=name, kind=kinds.get(name, Kind.NOMINAL)) for name in table.column_names)
    steps = [
        {"step": "ranges", "attribute": "Age", "equal_count": 5},
        {"step": "truncate", "attribute": "Town", "characters": 1},
    ]
    return Microdata(table, Schema(name="persons", attributes=attributes)), RecodeSpec(steps=steps)


def no_steps(spec: RecodeSpec) -> RecodeSpec:
    return RecodeSpec()
