"""What a call loads, and how many of our files it passes through: no times, so that a slow machine fails nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from bench_start import swap_arguments, walk

FOREIGN = (
    "numba",
    "pandas",
    "polars",
    "scipy",
    "duckdb",
    "plotly",
    "matplotlib",
    "fastapi",
    "sqlalchemy",
    "pyreadstat",
)
MOST_FILES = {"swap": 51, "study": 31, "duckdb": 44}
"""The numbers of today, with scenarios, weights and households. With more files a call has become harder to follow."""


def loaded(found: dict[str, list[str]], names: tuple[str, ...]) -> set[str]:
    return {name.partition(".")[0] for name in found["modules"]} & set(names)


def own_modules(found: dict[str, list[str]], folder: str) -> set[str]:
    return {name.rpartition(".")[2] for name in found["modules"] if name.startswith(f"safeswap.{folder}.")}


@pytest.fixture(scope="module")
def swapped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The walk of a swap of a CSV file on the command line."""
    arguments = swap_arguments(tmp_path_factory.mktemp("swap"))
    return walk(f"from safeswap.cli import main; main({arguments!r})")


def test_a_swap_of_csv_loads_neither_a_compiler_nor_a_second_library_of_frames(
    swapped: dict[str, list[str]],
) -> None:
    assert loaded(swapped, FOREIGN) == set()


def test_a_swap_loads_only_what_runs(swapped: dict[str, list[str]]) -> None:
    assert own_modules(swapped, "measures.risk") == {"n_rule"}
    assert own_modules(swapped, "measures.utility") == {"categories"}
    assert own_modules(swapped, "methods") <= {"base", "by_household", "exchange", "household_promises", "swap"}
    assert own_modules(swapped, "releases") == {"ledger", "register"}
    for room in ("studies", "projects", "reports", "charts", "attacks", "service", "workbench"):
        assert own_modules(swapped, room) == set()


def test_a_swap_passes_through_few_files(swapped: dict[str, list[str]]) -> None:
    assert len(swapped["files"]) <= MOST_FILES["swap"], swapped["files"]


def test_a_study_passes_through_few_files() -> None:
    found = walk("import safeswap as ss; ss.study(ss.datasets.cps8d(), up_to=1, rates=[0.01], insecure_seed=1)")
    assert len(found["files"]) <= MOST_FILES["study"], found["files"]
    assert loaded(found, ("polars", "duckdb", "plotly", "matplotlib", "fastapi", "sqlalchemy")) == set()


def test_a_file_masked_on_duckdb_passes_through_few_files(tmp_path: Path) -> None:
    found = walk(
        "import safeswap as ss; from safeswap.workflow import mask_file; from safeswap.files.write import write; "
        f"write(ss.datasets.cps8d(), {str(tmp_path / 'a.parquet')!r}); files.clear(); "
        f"mask_file({str(tmp_path / 'a.parquet')!r}, {str(tmp_path / 'b.parquet')!r}, "
        f"ss.SwapSpec(swap=['Race'], rate=0.05), audit={str(tmp_path / 'audit')!r}, insecure_seed=1, engine='duckdb')"
    )
    assert len(found["files"]) <= MOST_FILES["duckdb"], found["files"]
