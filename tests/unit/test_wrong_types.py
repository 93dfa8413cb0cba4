"""Whatever is given to the front door, an error of our own comes out: every function, every parameter, every value."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import safeswap as ss
from safeswap import workflow
from safeswap.errors import SafeswapError
from safeswap.files.formats import Limits
from safeswap.files.keyfile import generate_key
from safeswap.files.write import write
from safeswap.methods.recode.recipe import Recipe
from safeswap.model.checked import LEFT_OUT
from safeswap.model.schema import Attribute, Kind
from safeswap.model.study import ConstraintSet
from safeswap.moved import VERBS
from safeswap.projects.toml import write_recipe
from safeswap.workflow import step_table  # noqa: F401  (so that it is an attribute of workflow)
from safeswap.workflow.masking import keep
from safeswap.workflow.old_names import find_verb

NASTY: Mapping[str, Any] = {
    "None": None,
    "3": 3,
    "-1": -1,
    "1.5": 1.5,
    "1e308": 1e308,
    "2**70": 2**70,
    "nan": float("nan"),
    "True": True,
    "x": "x",
    "nothing": "",
    "nul": "a\0b",
    "surrogate": "\udc80",
    "bytes": b"",
    "list": [],
    "list of 3": [3],
    "list of lists": [["x"]],
    "dict": {},
    "dict of 3": {3: 4},
    "set": {"x"},
    "object": object(),
    "type": int,
    "lambda": lambda *_: 1 / 0,
    "np int": np.int64(2),
    "np float": np.float32(0.5),
    "np bool": np.True_,
    "array": np.zeros((2, 2)),
    "interval": pd.Interval(0, 1),
    "na": pd.NA,
    "date": dt.date(2026, 1, 1),
    "frame": pd.DataFrame({"a": [1, 2]}),
    "empty frame": pd.DataFrame(),
    "intervals": pd.DataFrame({"a": pd.cut(pd.Series([1, 2, 3]), 2)}),
    "nested": pd.DataFrame({"a": [[1], {}]}),
    "series": pd.Series([1, 2]),
    "table": pa.table({"a": [1]}),
    "a key": ss.Key.insecure(seed=1),
    "a class": ss.Schema,
    "path": Path("/nowhere/at/all"),
}


def toy() -> pd.DataFrame:
    return pd.DataFrame(
        {"id": range(12), "A": list("aabb") * 3, "B": list("xyxz") * 3, "n": [i * 1.5 for i in range(12)]}
    )


class World:
    """Good values for every parameter, each call with folders of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, 0
        self.key = ss.Key.generate()
        self.data = ss.read(toy(), identifier="id", kinds={"n": "numeric"})
        self.masked = ss.swap(self.data, swap=["A"], pairs=2, key=self.key)
        self.spec = ss.SwapSpec(swap=["A"], pairs=2)
        self.study = ss.study(self.data, attributes=["A"], rates=[0.5], key=self.key)
        self.keyfile = folder / "a.key"
        generate_key(self.keyfile)
        self.safe = workflow.safe_table([[4, 9], [9, 9]], 5)
        self.saved, self.recipe = folder / "study", folder / "recipe.toml"
        self.study.save(self.saved, pages=False)
        write_recipe(Recipe.of(DROP), self.recipe)
        self.parquet, self.kept = folder / "toy.parquet", folder / "kept.parquet"
        write(self.data, self.parquet)
        self.kept_audit = folder / "kept"
        keep(ss.swap(ss.read(self.parquet), self.spec, key=self.key), self.kept, audit=self.kept_audit)
        self.project = folder / "project.toml"
        ss.Project(data="toy.parquet", pipeline=[self.spec]).save(self.project)
        self.grc, self.hierarchy = folder / "a.grc", folder / "a.hrc"
        self.grc.write_text("1: a-b\n")
        self.hierarchy.write_text("c\n@a\n@b\n")
        self.published = ss.release(self.masked, folder / "public", audit=folder / "audit", key=self.key)

    def new(self) -> Path:
        self.calls += 1
        return self.folder / f"out{self.calls}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


Calls = Mapping[str, Callable[[World], dict[str, Any]]]

# A good call of each public name. What has no entry here and is callable with arguments fails the first test.
FUNCTIONS: Calls = {
    "Key": lambda w: {"secret": bytes(32), "releasable": True},
    "Microdata": lambda w: {
        "table": w.data.table,
        "schema": w.data.schema,
        **dict.fromkeys(("origin", "first", "stored", "named")),
        "past": (),
    },
    "Pipeline": lambda w: {"steps": [w.spec, {"method": "pram", "attributes": ["A"]}]},
    "Project": lambda w: {
        "title": "",
        "data": {"file": "a.csv"},
        "schema": w.data.schema,
        "scenarios": [{"name": "own", "keys": ["A"]}],
        "pipeline": [w.spec],
        "aside": (),
        "study": {"attributes": ["A"]},
        "release": {"public": "out"},
        "guesses": {"data.identifier": "by its name"},
    },
    "SafeswapError": lambda w: {"message": "no", "code": "no", "hint": ""},
    "Schema": lambda w: {"name": "", "label": "", "attributes": w.data.schema.attributes},
    "Scenario": lambda w: {**ss.Scenario(keys=["A"], tolerance=2).model_dump()},
    "StudySpec": lambda w: {**ss.StudySpec(attributes=["A"]).model_dump()},
    "SwapSpec": lambda w: {**w.spec.model_dump(), "targeting": {"keys": ["B"], "n": 3, "weight": 2.0}},
    "assess": lambda w: {
        "before": w.data,
        "after": w.masked.data,
        "measures": ["n_rule"],
        "attributes": ["A"],
        "keys": (),
        "ways": None,
        "match": "auto",
        "audit": None,
        "scenario": None,
    },
    "attack": lambda w: {
        "masked": w.masked,
        "original": None,
        "scenario": {"keys": ["A"]},
        "attacks": ["linkage"],
        "full": False,
        "control": None,
        "rules": (),
        "tables": (),
        "tolerance": 3,
        "earlier": (),
        "audit": None,
    },
    "describe": lambda w: {"data": w.data, "tolerance": 3},
    "mask": lambda w: {**given(w), "spec": w.spec, "known": None},
    "plan": lambda w: {"data": w.data, "spec": w.spec, "engine": "memory"},
    "read": lambda w: {
        "source": toy(),
        "schema": None,
        "identifier": "id",
        "kinds": {"A": "nominal"},
        "delimiter": None,
        "encoding": None,
        "quote": None,
        "decimal": None,
        "missing": ("9",),
        "name": "toy",
        "limits": Limits(),
    },
    "read_key": lambda w: {"path": w.keyfile},
    "release": lambda w: {
        "masked": w.masked,
        "public": w.new(),
        "audit": w.new(),
        "key": w.key,
        "data_format": "csv",
        "identifiers": "new",
        "drop": ["n"],
        "two_files": None,
        "title": "",
        "date": "",
        "tolerance": 3,
        "publish_rate": False,
        "publish_errors": "",
        "second_release": "tried once more",
        "unmasked": False,
        "ledger": None,
        "before": None,
        "recipe": None,
        "attack": "quick",
        "scenario": None,
        "policy": None,
        "control": None,
        "earlier": (),
        "override": "",
        "force": False,
    },
    "report": lambda w: {
        "masked": w.masked,
        "scenarios": [{"name": "own", "keys": ["A", "B"]}],
        "measures": ["hellinger"],
        "require": {"own": "risky <= 100"},
        "study": None,
        "choice": None,
        "attacks": [],
        "decision": {"state": "ready"},
        "published": None,
        "title": "",
        "date": "",
        "drop": ["n"],
        "identifiers": "new",
        "tolerance": 3,
        "recipe": None,
    },
    "suggest_keys": lambda w: {"data": w.data, "among": ["A", "B"], "most": 2},
    "study": lambda w: {
        "data": w.data,
        "spec": None,
        "key": None,
        "insecure_seed": 1,
        "progress": None,
        "checkpoint": None,
        "threads": 1,
        "budget": None,
        "attributes": ["A"],
        "rates": [0.5],
    },
    "record_swap": lambda w: {
        "data": w.data,
        "hid": "id",
        "hierarchy": ["B"],
        "similar": [],
        "swaprate": 0.0,
        "risk": None,
        "risk_threshold": None,
        "k_anonymity": 0,
        "risk_variables": [],
        "carry_along": [],
        "key": None,
        "insecure_seed": 1,
    },
    "swap": lambda w: {**given(w), "spec": None, "swap": ["A"], "pairs": 2},
    "to_frame": lambda w: {"data": w.masked, "like": "pandas"},
    "undo": lambda w: {"masked": w.masked.data, "audit": w.masked.audit},
    "verify": lambda w: {"bundle": w.published.public},
    "datasets.available": lambda w: {},
    "datasets.cps8d": lambda w: {},
    "datasets.household_survey": lambda w: {},
    "datasets.household_survey_schema": lambda w: {},
    "datasets.synthetic_census": lambda w: {"households": 5, "key": 1, "chunk_size": 5},
    "datasets.synthetic_census_chunks": lambda w: {"households": 5, "key": 1, "chunk_size": 5},
    "datasets.synthetic_census_schema": lambda w: {},
    "datasets.synthetic_enterprises": lambda w: {"n": 200, "seed": 1},
    "datasets.synthetic_housing_survey": lambda w: {},
    "datasets.synthetic_population": lambda w: {"persons": 5, "key": 1},
    "datasets.synthetic_population_schema": lambda w: {},
    "datasets.write_household_survey": lambda w: {"path": w.new().with_suffix(".csv"), "force": False},
    "datasets.write_synthetic_census": lambda w: {
        "path": w.new(),
        "households": 5,
        "key": 1,
        "chunk_size": 5,
        "force": False,
    },
    "datasets.write_synthetic_population": lambda w: {"path": w.new(), "persons": 5, "key": 1, "force": False},
}


# The verbs behind the front door, as the command line and the service call them.
WORKFLOW: Calls = {
    "advice": lambda w: {
        "data": w.data,
        "combinations": {"keys": ["A", "B"]},
        "candidates": None,
        "most": 2,
        "scenario": None,
    },
    "argus_session": lambda w: {"data": w.data, "combinations": {"keys": ["A", "B"]}, "recipe": None, "key": None},
    "as_key": lambda w: {"key": None, "insecure_seed": 1},
    "as_recipe": lambda w: {"steps": DROP},
    "as_spec": lambda w: {"spec": {"method": "swap", "swap": ["A"], "pairs": 1}},
    "as_study_spec": lambda w: {"spec": None, "attributes": ["A"]},
    "step_table.assess_steps": lambda w: {
        "masked": w.masked,
        "scenarios": [{"keys": ["A"]}],
        "known": None,
    },
    "assess_file": lambda w: {
        "before": w.parquet,
        "after": w.parquet,
        "measures": ["n_rule"],
        "attributes": ["A"],
        "engine": "memory",
        "memory_limit": "1GB",
        "threads": 1,
        "spark": None,
        "scenario": {"keys": ["A"]},
        "identifier": "id",
        "kinds": {},
        "missing": (),
        "name": "",
        "schema": None,
    },
    "check_tables": lambda w: {
        "data": w.data,
        "tables": [["A", "B"]],
        "tolerance": 3,
        "margins": True,
        "names": None,
        "count": "count",
    },
    "compare": lambda w: {
        "before": w.data,
        "after": w.masked.data,
        "attributes": ["A"],
        "match": "auto",
        "audit": None,
        "some_gone": False,
    },
    "confidentiality": lambda w: {
        "original": w.data,
        "released": w.masked.data,
        "keys": ["A"],
        "linkage": "auto",
        "archive": None,
        "population": None,
        "key": None,
        "only": None,
        "k": 2,
        "weight": None,
        "sampling_fraction": None,
        "importance": None,
        "scenario": None,
    },
    "confidentiality_by_keys": lambda w: {"original": w.data, "released": w.masked.data, "key_sets": [["A"], ["B"]]},
    "file_risk": lambda w: {
        "data": w.data,
        "keys": ["A"],
        "sensitive": "B",
        "weight": None,
        "model": "inverse",
        "k": 3,
        "l": 2,
        "max_size": 3,
        "sampling_fraction": 0.1,
        "missing": None,
        "scenario": None,
    },
    "find_engine": lambda w: {"name": "memory"},
    "keep": lambda w: {
        "masked": w.masked,
        "output": w.new().with_suffix(".csv"),
        "audit": w.new(),
        "reading": {},
        "source": None,
        "ledger": None,
        "force": False,
    },
    "keygen": lambda w: {"path": w.new(), "force": False},
    "load_study": lambda w: {"path": w.saved},
    "mask_file": lambda w: {
        "source": w.parquet,
        "target": w.new().with_suffix(".parquet"),
        "spec": w.spec,
        "audit": w.new(),
        "key": None,
        "insecure_seed": 1,
        "engine": "memory",
        "replicate": 0,
        "memory_limit": "1GB",
        "threads": 1,
        "spark": None,
        "force": False,
        "measures": (),
        "attributes": None,
        "scenario": {"keys": ["A"]},
        "identifier": "id",
        "kinds": {},
        "missing": (),
        "name": "",
        "schema": None,
    },
    "number_of_candidates": lambda w: {"data": w.data, "spec": None, "attributes": ["A"]},
    "read_grc": lambda w: {"path": w.grc, "attribute": "A", "otherwise": "keep"},
    "read_hierarchy": lambda w: {"path": w.hierarchy},
    "read_recipe": lambda w: {"path": w.recipe},
    "recall": lambda w: {
        "original": w.parquet,
        "masked": w.kept,
        "audit": w.kept_audit,
        "recipe": None,
        "households": (),
    },
    "recode": lambda w: {"data": w.data, "steps": DROP, "key": None},
    "record_risk": lambda w: {"data": w.data, "keys": ["A"], "weight": None, "model": "inverse", "missing": "any"},
    "report": lambda w: {
        "masked": w.masked,
        "path": w.new(),
        "assessment": None,
        "distributions": ["A"],
        "date": "",
        "force": False,
    },
    "risky": lambda w: {"data": w.data, "combinations": {"keys": ["A", "B"]}, "scenario": None},
    "risky_after": lambda w: {"recipe": DROP, "data": w.data, "combinations": {"keys": ["A", "B"]}, "key": None},
    "safe_records": lambda w: {
        "data": w.data,
        "tables": [["A", "B"]],
        "tolerance": 2,
        "keep": (),
        "search": "quick",
        "time_limit": 60.0,
        "key": None,
        "insecure_seed": 1,
        "replicate": 0,
    },
    "safe_table": lambda w: {
        "counts": [[4, 9], [9, 9]],
        "tolerance": 5,
        "objective": "total",
        "weights": None,
        "soft": False,
        "solver": "auto",
        "time_limit": 5.0,
        "attributes": None,
        "names": None,
        "count": "count",
        "schema": None,
        "identifier": None,
        "kinds": {},
        "missing": (),
        "name": None,
        "delimiter": None,
        "encoding": None,
        "quote": None,
        "decimal": None,
        "limits": Limits(),
    },
    "safe_table_report": lambda w: {"result": w.safe, "path": w.new(), "force": False},
    "save_study": lambda w: {
        "study": w.study,
        "path": w.new(),
        "choice": None,
        "data": None,
        "pages": False,
        "publish_figures": False,
        "force": False,
    },
    "search": lambda w: {
        "data": w.data,
        "spec": None,
        "budget": 40,
        "key": None,
        "insecure_seed": 1,
        "progress": None,
        "checkpoint": None,
        "threads": 1,
        "attributes": ["A", "B"],
    },
    "special_uniques": lambda w: {
        "data": w.data,
        "keys": ["A", "B"],
        "max_size": 2,
        "sampling_fraction": 0.1,
        "scoring": "elliot",
        "missing": "none",
    },
    "suda": lambda w: {
        "data": w.data,
        "keys": ["A", "B"],
        "max_size": 2,
        "sampling_fraction": 0.1,
        "scoring": "elliot",
        "missing": "none",
        "contributions": False,
    },
    "write": lambda w: {"data": w.masked, "path": w.new().with_suffix(".csv"), "force": False},
    "write_checked": lambda w: {
        "found": workflow.check_tables(w.data, [["A", "B"]], 3),
        "path": w.new().with_suffix(".csv"),
        "force": False,
    },
    "write_confidentiality": lambda w: {
        "plot": workflow.confidentiality(w.masked, keys=["A"]),
        "path": w.new().with_suffix(".html"),
        "version": "internal",
        "second": None,
        "title": "",
        "force": False,
    },
    "write_recipe": lambda w: {"recipe": DROP, "path": w.new(), "data": None, "force": False},
    "write_record_risks": lambda w: {
        "data": w.data,
        "path": w.new().with_suffix(".csv"),
        "keys": ["A"],
        "weight": None,
        "model": "inverse",
        "max_size": 2,
        "sampling_fraction": 0.1,
        "missing": None,
        "force": False,
    },
    "write_risky": lambda w: {
        "found": workflow.risky(w.data, keys=["A", "B"]),
        "path": w.new().with_suffix(".csv"),
        "part": "unsafe",
        "force": False,
    },
    "write_safe_tables": lambda w: {
        "result": w.safe,
        "path": w.new().with_suffix(".csv"),
        "number": 0,
        "force": False,
    },
}
DROP = {"step": "drop", "attributes": ["B"]}


def given(w: World) -> dict[str, Any]:
    return {"data": w.data, "key": None, "insecure_seed": 1, "replicate": 0, "engine": "memory"}


# The values that these functions return or take, and a good call of each of their methods.
VALUES: Mapping[str, Callable[[World], Any]] = {
    "Key": lambda w: w.key,
    "Microdata": lambda w: w.data,
    "Schema": lambda w: w.data.schema,
    "SwapSpec": lambda w: w.spec,
    "StudySpec": lambda w: w.study.spec,
    "Pipeline": lambda w: ss.Pipeline([w.spec, {"method": "pram", "attributes": ["A"]}]),
    "Project": lambda w: ss.Project(data="toy.parquet", pipeline=[w.spec]),
    "Masked": lambda w: w.masked,
    "Plan": lambda w: w.masked.plan,
    "Audit": lambda w: w.masked.audit,
    "Assessment": lambda w: ss.assess(w.masked, measures=["n_rule"]),
    "Score": lambda w: ss.assess(w.masked, measures=["n_rule"])["n_rule"],
    "Study": lambda w: w.study,
    "Choice": lambda w: w.study.choose("linear:a=1"),
    "Description": lambda w: ss.describe(w.data),
    "Published": lambda w: w.published,
    "Verification": lambda w: ss.verify(w.published.public),
}
METHODS: Calls = {
    "Key.insecure": lambda w: {"seed": 1},
    "Microdata.coded": lambda w: {"name": "A"},
    "Microdata.coded_columns": lambda w: {"names": ["A"]},
    "Microdata.cached_codes": lambda w: {"name": "A"},
    "Microdata.share_codes": lambda w: {"other": w.data, "names": ["A"]},
    "Microdata.count_distinct": lambda w: {"name": "A"},
    "Microdata.codes_at": lambda w: {"name": "A", "rows": np.array([0, 1])},
    "Microdata.has_more_values": lambda w: {"name": "A", "number": 3},
    "Microdata.is_constant": lambda w: {"name": "A"},
    "Microdata.with_columns": lambda w: {"columns": {"A": w.data.table.column("B")}, "coded": {}},
    "Schema.__contains__": lambda w: {"name": "A"},
    "Schema.__getitem__": lambda w: {"name": "A"},
    "Schema.iter_kind": lambda w: {"kind": Kind.NOMINAL},
    "Schema.select": lambda w: {"names": ["A"]},
    "Schema.replace": lambda w: {"*attributes": Attribute(name="A"), "name": "x"},
    "Pipeline.__getitem__": lambda w: {"which": "swap"},
    "Pipeline.common": lambda w: {"other": ss.Pipeline([w.spec])},
    "Pipeline.edit": lambda w: {"which": "swap", "pairs": 3},
    "Pipeline.find": lambda w: {"which": 0},
    "Pipeline.insert": lambda w: {"which": 0, "step": DROP},
    "Pipeline.move": lambda w: {"which": "swap", "to": -1},
    "Pipeline.put": lambda w: {"which": 0, "step": DROP},
    "Pipeline.remove": lambda w: {"which": 0},
    "Pipeline.replace": lambda w: {"steps": [w.spec]},
    "Plan.blur": lambda w: {"add": lambda count, *about, **limits: count},
    "Project.of": lambda w: {"content": {"scenario": [{"keys": ["A"]}]}},
    "Project.parse_alone": lambda w: {"text": ss.Project(data="toy.parquet").text()},
    "Project.with_steps": lambda w: {"steps": [w.spec.as_dict()]},
    "Project.parse": lambda w: {"text": ss.Project(data="toy.parquet").text()},
    "Project.read": lambda w: {"path": w.project},
    "Project.save": lambda w: {"path": w.new(), "force": False},
    "Project.start": lambda w: {"path": w.parquet, "folder": w.folder, "households": None, "on": None},
    "SwapSpec.pairs_for": lambda w: {"records": 10},
    "SwapSpec.replace": lambda w: {"pairs": 2},
    "SwapSpec.role": lambda w: {"name": "A"},
    "StudySpec.groups": lambda w: {"attributes": ("A", "B")},
    "StudySpec.number_of_groups": lambda w: {"attributes": ("A", "B")},
    "StudySpec.number_of_candidates": lambda w: {"attributes": ("A", "B")},
    "StudySpec.swap_spec": lambda w: {"names": ("A",), "constraint": ConstraintSet(), "rate": 0.5},
    "Assessment.__getitem__": lambda w: {"measure": "n_rule"},
    "Description.__getitem__": lambda w: {"name": "A"},
    "Masked.by": lambda w: {
        "spec": w.masked.spec,
        "original": w.data,
        "data": w.data,
        "plan": w.masked.plan,
        "key": w.key,
        "replicate": 0,
    },
    "Masked.undo_to": lambda w: {"number": 0},
    "Masked.with_parts": lambda w: {"parts": ()},
    "Masked.with_past": lambda w: {"steps": w.masked.data.past},
    "Study.load": lambda w: {"path": w.saved},
    "Study.save": lambda w: {
        "path": w.new(),
        "choice": None,
        "data": w.data,
        "pages": False,
        "publish_figures": False,
        "force": False,
    },
    "Study.axes": lambda w: {"risk": "n_rule", "distortion": "hellinger"},
    "Study.choose": lambda w: {"objective": "linear:a=1", "risk": None, "distortion": None},
    "Study.distortion_table": lambda w: {"number": 0, "measure": "hellinger"},
    "Study.find": lambda w: {"spec": w.study.specs[0], "replicate": 0},
    "Study.frontier": lambda w: {"risk": None, "distortion": None, "rate": 0.5},
    "Study.scores": lambda w: {"measure": "n_rule"},
    "Study.summary": lambda w: {"risk": None, "distortion": None},
    "Study.take": lambda w: {"candidate": 0},
    "Study.to_frame": lambda w: {"part": "summary"},
}


# Arrays in the shape of the table: how they are checked is tested with the method.
UNTRIED = {"safe_table": {"keep", "bounds", "structural_zeros"}}
CALLS: Calls = {**FUNCTIONS, **WORKFLOW, **METHODS}


def public_functions() -> Iterator[str]:
    """Every callable of the front door, those of its modules with the name of the module."""
    for name in ss.__all__:
        value = getattr(ss, name)
        if isinstance(value, ModuleType):
            yield from (f"{name}.{inner}" for inner in value.__all__ if callable(getattr(value, inner)))
        else:
            yield name


def public_methods(value: Any) -> Iterator[str]:
    """The methods with parameters that our own classes give a value."""
    for name in dir(type(value)):
        home = next(cls for cls in type(value).__mro__ if name in vars(cls))
        found = inspect.getattr_static(type(value), name)
        if home.__module__.startswith("safeswap") and (
            not name.startswith("_") or name in ("__getitem__", "__contains__", "__call__")
        ):
            found = getattr(found, "__func__", found)
            if inspect.isfunction(found) and len(inspect.signature(found).parameters) > 1:
                yield f"{type(value).__name__}.{name}"


def test_every_public_function_and_method_is_tried(world: World) -> None:
    assert set(FUNCTIONS) == set(public_functions())
    assert set(WORKFLOW) >= set(VERBS)
    assert {*WORKFLOW, *FUNCTIONS} >= {name for name in workflow.__all__ if callable(getattr(workflow, name))}
    assert {name: type(make(world)).__name__ for name, make in VALUES.items()} == {name: name for name in VALUES}
    assert set(METHODS) == {name for make in VALUES.values() for name in public_methods(make(world))}
    for name, good in CALLS.items():
        stated = {parameter.removeprefix("*") for parameter in good(world)}
        parameters = inspect.signature(function_of(name, world)).parameters.values()
        # What has no default here is a parameter of a specification, and tried with that.
        parameters = [each for each in parameters if each.default is not LEFT_OUT]
        known = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD and not p.name.startswith("_")}
        assert known - UNTRIED.get(name, set()) == stated & known, f"{name} has parameters that are not tried"


def function_of(name: str, world: World) -> Callable[..., Any]:
    if name in METHODS:
        value, method = name.split(".")
        return getattr(VALUES[value](world), method)  # type: ignore[no-any-return]
    # The old names are tried as long as they work, without their warning.
    if name in VERBS:
        return find_verb(name)  # type: ignore[no-any-return]
    found: Any = workflow if name in WORKFLOW else ss
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def call(function: Callable[..., Any], values: Mapping[str, Any]) -> None:
    several = [value for name, value in values.items() if name.startswith("*")]
    made = function(*several, **{name: value for name, value in values.items() if not name.startswith("*")})
    if isinstance(made, Iterator):
        list(made)


@pytest.mark.parametrize("name", CALLS)
def test_a_good_call_goes_through(name: str, world: World) -> None:
    call(function_of(name, world), CALLS[name](world))


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_type_ends_in_an_error_of_our_own(
    name: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # "x" is a path, too
    good = CALLS[name]
    wrong = []
    for parameter in good(world):
        for told, value in NASTY.items():
            if (parameter, told) in CALLERS_OWN:
                continue
            try:
                call(function_of(name, world), {**good(world), parameter: value})
            except SafeswapError as error:
                if not ((error.code and error.hint) or error.code == "no"):
                    wrong.append(f"{name}({parameter}={told}): no hint: {error}")
            except Exception as error:  # noqa: BLE001  (this is what is looked for)
                wrong.append(f"{name}({parameter}={told}): {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


# A function of the caller's own fails in its own way: that error is for the caller.
CALLERS_OWN = {("progress", told) for told in ("type", "lambda", "a class")}
