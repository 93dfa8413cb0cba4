"""Levels of one geography move together, or the specification is refused: before a release, in memory and on disk."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.hand_made import KEY
from tests.households import persons

import safeswap as ss
from safeswap import workflow
from safeswap.errors import SpecError
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

DATA = persons(300)
APART: dict[str, tuple[dict[str, Any], list[str]]] = {
    "the coarser alone": ({"swap": ["region"]}, ["county"]),
    "the finer alone": ({"swap": ["county"]}, ["region"]),
    "the finer, another held fixed": ({"swap": ["county"], "fixed": ["sex"]}, ["region"]),
    "each with pairs of its own": ({"swap": ["region", "county"], "mode": "sequential"}, ["region"]),
}
TOGETHER: dict[str, dict[str, Any]] = {
    "both": {"swap": ["region", "county"]},
    "the finer within the coarser": {"swap": ["county"], "fixed": ["region"]},
    "no area": {"swap": ["edu"]},
    "within areas": {"swap": ["edu"], "fixed": ["county"]},
}


def with_levels(data: Microdata, **levels: int) -> Microdata:
    changed = (a.model_copy(update={"geography_level": levels.get(a.name)}) for a in data.schema.attributes)
    return Microdata(data.table, Schema(name=data.schema.name, attributes=tuple(changed)))


@pytest.mark.parametrize("stated", [{}, {"region": 0, "county": 1}], ids=["counted", "stated"])
@pytest.mark.parametrize("title", APART)
def test_a_level_that_moves_without_the_others_is_refused_before_anything_is_drawn(title, stated):
    data, (asked, others) = with_levels(DATA, **stated), APART[title]
    for act in (ss.plan, lambda data, spec: ss.mask(data, spec, key=KEY)):
        with pytest.raises(SpecError) as refused:
            act(data, {"method": "swap", "rate": 0.1, **asked})
        assert refused.value.code == "geography-split"
        assert refused.value.fields["levels"] == others
        assert all(repr(name) in refused.value.hint for name in others)


@pytest.mark.parametrize("title", TOGETHER)
def test_levels_that_move_together_or_stay_are_accepted(title):
    spec = {"method": "swap", "rate": 0.1, "on_shortfall": "take", **TOGETHER[title]}
    after = ss.mask(DATA, spec, key=KEY).data.table
    region = dict(zip(*(DATA.table.column(name).to_pylist() for name in ("county", "region")), strict=True))
    assert [region[county] for county in after.column("county").to_pylist()] == after.column("region").to_pylist()


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_a_level_that_moves_alone_is_refused_on_disk(engine, tmp_path: Path):
    source = tmp_path / "persons.parquet"
    pq.write_table(DATA.table, source)
    with pytest.raises(SpecError) as refused:
        workflow.mask_file(
            source,
            tmp_path / "masked.parquet",
            engine=engine,
            schema=DATA.schema,
            key=KEY,
            spec=ss.SwapSpec(swap=["county"], rate=0.1),
            audit=tmp_path / "audit",
        )
    assert refused.value.code == "geography-split"
    assert [path.name for path in tmp_path.iterdir()] == ["persons.parquet"]


def test_a_study_rejects_the_candidates_that_split_a_geography_and_says_why():
    study = ss.study(DATA, attributes=["region", "county", "edu"], up_to=2, rates=[0.05], keys=["edu", "sex"], key=KEY)
    rejected = {row["label"]: row["reason"] for row in study.rejected().to_pylist()}
    assert sorted(rejected) == ["county", "county+edu", "region", "region+edu"]
    assert all("the levels of one geography move together" in reason for reason in rejected.values())
    assert len(study) == 6


def refuses(rows: list[dict[str, str]], swap: set[str], fixed: set[str]) -> bool:
    """The rule, pair by pair of records: some finer area moves apart from the area around it."""
    for fine, coarse in permutations(("a", "b", "c"), 2):
        nested = all(one[coarse] == other[coarse] for one in rows for other in rows if one[fine] == other[fine])
        pairs = [(one, other) for one in rows for other in rows if all(one[name] == other[name] for name in fixed)]
        constant = all(one[coarse] == other[coarse] for one, other in pairs)
        if nested and (fine in swap) != (coarse in swap) and not constant:
            return True
    return False


def test_the_rule_is_that_of_all_pairs_of_records():
    draw, refused = random.Random(5), 0
    for _ in range(300):
        inner = [draw.choice("uvw") for _ in range(6)]
        rows = [{"a": x, "b": str(int(x < "v")), "c": draw.choice("pq"), "d": draw.choice("yz")} for x in inner]
        if len({row["b"] for row in rows}) < 2 or len({row["c"] for row in rows}) < 2:
            continue
        swap = set(draw.sample("abcd", draw.randint(1, 3)))
        fixed = set(draw.sample(sorted(set("abcd") - swap), draw.randint(0, 1)))
        kinds = dict.fromkeys("abc", Kind.GEOGRAPHY)
        attributes = tuple(Attribute(name=name, kind=kinds.get(name, Kind.NOMINAL)) for name in "abcd")
        data = Microdata(pa.Table.from_pylist(rows), Schema(name="areas", attributes=attributes))
        try:
            ss.plan(data, ss.SwapSpec(swap=sorted(swap), fixed=sorted(fixed), pairs=1))
            code = ""
        except ss.SafeswapError as error:
            code = error.code
        if code == "constant-attribute":
            continue
        assert code == ("geography-split" if refuses(rows, swap, fixed) else ""), (rows, swap, fixed)
        refused += bool(code)
    assert 50 < refused < 250


def test_one_code_for_unknown_areas_does_not_hide_that_the_others_nest():
    county = [None if number % 20 == 0 else value for number, value in enumerate(DATA.table["county"].to_pylist())]
    table = DATA.table.set_column(DATA.table.column_names.index("county"), "county", pa.array(county))
    with pytest.raises(SpecError) as refused:
        ss.plan(Microdata(table, DATA.schema), ss.SwapSpec(swap=["region"], rate=0.1))
    assert refused.value.code == "geography-split"
