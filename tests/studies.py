"""Studies that charts and reports are tried on: the published one, and one whose names are hostile."""

import json
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap import datasets
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.model.study import StudySpec
from safeswap.studies.run import run_study
from safeswap.studies.study import Study

HOSTILE = (
    "<script>window.harmed = 1</script>",
    "</script><img src=x onerror='window.harmed = 2'>",
    "\"quoted\" & 'single' {{ 7 * 7 }} ${harm}",
    "\u202eשם העמודה\u202c",
    "$x^2$ \\frac{a" + "very long name " * 30,
)


def cps_study(**question: Any) -> Study:
    """A study of CPS-8d; the same question gives the same object."""
    return _cps_study(StudySpec(**question).model_dump_json())


@cache
def _cps_study(question: str) -> Study:
    return run_study(datasets.cps8d(), StudySpec(**json.loads(question)), key=Key.insecure(seed=11))


@cache
def published_study() -> Study:
    """The study of Gomatam, Karr and Sanil (2003): 108 candidates, one of them not feasible."""
    return cps_study(pairing="uniform", true_swap="all")


def small_data(names: tuple[str, ...], *, records: int = 300, name: str = "survey") -> Microdata:
    """Correlated attributes of three levels each."""
    rng = np.random.default_rng(5)
    base = rng.integers(0, 3, records)
    columns = [np.where(rng.random(records) < 0.5, base, rng.integers(0, 3, records)) for _ in names]
    table = pa.table(
        {column: pa.array([f"v{x}" for x in values]) for column, values in zip(names, columns, strict=True)}
    )
    return Microdata(table, Schema(name=name, attributes=tuple(Attribute(name=column) for column in names)))


@cache
def hostile_study(replicates: int = 1) -> Study:
    """A study in which every text that somebody could choose is meant to do harm."""
    data = small_data(HOSTILE, name="<script>window.harmed = 3</script>")
    spec = StudySpec(rates=(0.1, 0.3), constraints=({}, {"fixed": HOSTILE[:1]}), replicates=replicates)
    return run_study(data, spec, key=Key.insecure(seed=3))


@cache
def impossible_study() -> Study:
    """A study in which no candidate can be made: every pair would have to be both."""
    table = pa.table({"A": ["x"] * 20, "B": ["p", "q"] * 10})
    data = Microdata(table, Schema(name="constant", attributes=(Attribute(name="A"), Attribute(name="B"))))
    return run_study(data, StudySpec(attributes=("A",), rates=(0.5,)), key=Key.insecure(seed=1))
