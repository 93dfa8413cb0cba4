"""Kernels of household_swap run as plain Python on small files, with the same result, and compile nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import safeswap as ss
from safeswap import datasets
from safeswap.arrays.compiled import Budget, Kernel, is_plain_python, njit, plain_python, python_if_little
from safeswap.methods.household_swap import pairing
from safeswap.methods.household_swap.pairing import Ground, _sort_first
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema

SPECS: list[dict[str, Any]] = [
    {"risk_variables": ["AGE", "SEX", "ORIGIN"], "similar": [["TENURE", "HTYPE"], ["TENURE"]], "rate": 0.3},
    {
        "risk_variables": ["SEX", "ORIGIN"],
        "similar": [["TENURE"]],
        "rate": 0.05,
        "partner": "near",
        "match_size": False,
    },
    {"risk_variables": ["AGE", "SEX"], "similar": [[]], "rate": 0.1, "over_rate": "riskiest", "k": 5, "crowd": 0},
    {"risk_variables": ["AGE", "ORIGIN"], "similar": [["HTYPE", "TENURE"]], "rate": 0.9, "rounds": 1},
]


@pytest.mark.parametrize("spec", SPECS, ids=["profiles", "near", "riskiest", "much"])
def test_plain_python_gives_the_same_plan_records_and_figures(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    people, full = datasets.synthetic_population(600), {"method": "household_swap", **spec}
    key = Key(bytes(31) + b"\x07")
    monkeypatch.setattr(Budget, "steps", 0)
    compiled = ss.plan(people, full), ss.mask(people, full, key=key)
    dict(compiled[1].audit.facts)  # computed when asked for
    assert isinstance(pairing.pair_risky, Kernel)
    assert pairing.pair_risky.is_loaded
    monkeypatch.setattr(Kernel, "is_loaded", False)
    monkeypatch.setattr(Budget, "steps", 1 << 40)
    plain = ss.plan(people, full), ss.mask(people, full, key=key)
    figures = dict(plain[1].audit.facts)
    assert Budget.steps < 1 << 40
    assert plain[0] == compiled[0]
    assert plain[1].data.table.equals(compiled[1].data.table)
    assert figures == dict(compiled[1].audit.facts)


def test_more_members_than_two_bytes_count_are_paired_in_plain_python() -> None:
    """Without anybody at risk the kernels stay Python for files of many persons; sizes of households are narrow."""
    homes = np.repeat(np.arange(4_000), 17)
    table = pa.table({"home": homes, "area": pa.array([f"a{home % 50}" for home in homes])})
    schema = Schema(attributes=(Attribute(name="home", kind="household"), Attribute(name="area", kind="geography")))
    spec, key = {"method": "household_swap", "rate": 1.0}, Key(bytes(31) + b"\x07")
    found = []
    for plain in (True, False):
        with plain_python(plain):
            found.append(ss.mask(Microdata(table, schema), spec, key=key))
    assert found[0].audit.made * 2 == len(homes) > 1 << 16
    assert found[0].data.table.equals(found[1].data.table)


@pytest.mark.parametrize("seed", range(20))
def test_the_first_by_rank_and_draw_come_to_the_front(seed: int) -> None:
    rng = np.random.default_rng(seed)
    number = int(rng.integers(0, 60))
    draw = rng.permutation(100).astype(np.uint64)
    found, ranks = rng.permutation(100)[:number].astype(np.int32), rng.integers(0, 8, number).astype(np.uint64)
    none = np.zeros(0, np.int32)
    ground = Ground(np.zeros(0, np.uint8), none, np.zeros((1, 0), np.int32), draw, none, none)
    wanted = int(rng.integers(0, 70))
    expected = found[np.lexsort((draw[found], ranks))][:wanted].tolist()
    with plain_python():
        kept = _sort_first(found, ranks, np.int64(wanted), ground)
    assert found[:kept].tolist() == expected


def test_little_work_runs_as_python_until_there_was_a_lot_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    @njit(nogil=True)
    def double(x: int) -> int:
        return 2 * x

    assert isinstance(double, Kernel)
    monkeypatch.setattr(Budget, "steps", 10)
    with python_if_little(6, double):
        assert is_plain_python()
        with plain_python(False):
            assert not is_plain_python()
    for steps in (6, 11):  # four are left
        with python_if_little(steps, double):
            assert not is_plain_python()
            assert double(21) == 42
    with python_if_little(1, double):  # loaded
        assert not is_plain_python()


def test_the_first_swap_of_a_small_file_compiles_nothing(tmp_path: Path) -> None:
    code = """
import safeswap as ss
from safeswap import datasets
from safeswap.arrays.compiled import Kernel
spec = {"method": "household_swap", "risk_variables": ["sex", "education"], "similar": [["tenure"]], "rate": 0.05}
survey = datasets.household_survey()
ss.plan(survey, spec)
masked = ss.mask(survey, spec, key=ss.Key.generate())
dict(masked.audit.facts)
assert not Kernel.is_numba_loaded
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())
