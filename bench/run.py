"""Run every benchmark and print one table: target, figure, verdict, and the last version's figure beside it.

``python bench/run.py`` runs all of them at full size, ``--small`` with little data (the test suite does this, so that
a benchmark cannot break unnoticed; its figures mean nothing), ``--only swap study`` those named. A figure that other
versions are to be compared with is stored in ``last_version.json`` by ``--keep``: all figures of a benchmark at
once, with the commit that they were measured at.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from goals import ONCE, RESULTS

HERE = Path(__file__).parent
LAST = HERE / "last_version.json"
SMALL: dict[str, tuple[str, ...]] = {
    "bench_advice": ("5000",),
    "bench_argus": ("count", "--records", "5000"),
    "bench_attacks": ("3000",),
    "bench_cells": ("20000", "100000"),
    "bench_draws": ("--records", "20000"),
    "bench_edit_1990": ("3000",),
    "bench_edit_targeted": ("3000",),
    "bench_files": ("--records", "2000", "--runs", "1", "--formats", "csv", "--only", "assess"),
    "bench_growth": ("--sizes", "2000", "4000", "--only", "noise", "swap"),
    "bench_household_swap": ("20000",),
    "bench_households": ("5000",),
    "bench_indicators": ("1",),
    "bench_ledger": ("rates", "1000", "1"),
    "bench_neighbours": ("2000",),
    "bench_numeric": ("2000",),
    "bench_pipeline": ("3000",),
    "bench_reports": ("3000",),
    "bench_safe": ("small",),
    "bench_search": ("--repetitions", "1", "--records", "1000", "--budget", "40"),
    "bench_service": ("--users", "2", "--minutes", "0.05", "--alone", "2", "--records", "1000"),
    "bench_start": ("--repeats", "1"),
    "bench_study": ("3000", "--replicates", "2"),
    "bench_suda": ("5000",),
    "bench_swap": ("20000",),
    "bench_threads": ("20000",),
    "bench_workbench": ("--records", "2000", "--repeats", "1", "--screens", "map"),
    "compare_versions": (
        *2 * (str(HERE.parent / "src"),),
        "--only",
        "survey",
        "--rounds",
        "1",
        "--match",
        "risk",
        "--only-show",
    ),
    "same_bytes": ("--records", "2000", "--specs", "1"),
    "scale": ("5000", "--methods", "swap", "edit_targeted"),
    "spark_cost": ("--records", "3000", "--columns", "8"),
}
"""The benchmarks and the arguments that make each of them small."""


def run_benchmark(name: str, arguments: tuple[str, ...], results: Path, *, once: bool = False) -> None:
    """Run one benchmark as its own process; raise if it fails."""
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    subprocess.run(command, check=True, env={**os.environ, RESULTS: str(results), ONCE: "1" if once else ""})


def read_rows(results: Path) -> list[dict[str, Any]]:
    """Return the judged figures, in the order in which they were measured."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def find_title(row: dict[str, Any]) -> str:
    """Return the name under which a figure is compared between versions."""
    return row["name"] if row["records"] is None else f"{row['name']}, {row['records']:,} records"


def format_table(rows: list[dict[str, Any]], last: dict[str, float]) -> str:
    """Return the rows as text, with the last version's figures where they are known."""
    width = max([len(find_title(row)) for row in rows], default=20)
    lines = [f"{'':{width}}  {'target':>12} {'figure':>10} {'verdict':>8} {'last version':>13}"]
    for row in rows:
        title, sign = find_title(row), "≤" if row["wanted"] == "at most" else "≥"
        target = f"{sign} {row['target']:g} {row['unit']}"
        before = f"{last[title]:13.4g}" if title in last else f"{'–':>13}"
        lines.append(
            f"{title:{width}}  {target:>12} {row['figure']:10.4g} {'met' if row['met'] else 'MISSED':>8} {before}"
        )
    return "\n".join(lines)


def find_commit() -> str:
    """Return the commit that is measured, marked if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def read_last(path: Path) -> dict[str, Any]:
    """Return what was kept of each benchmark: its figures, and the commit that they were measured at."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def keep_figures(path: Path, measured: dict[str, list[dict[str, Any]]], commit: str) -> None:
    """Replace all figures of the benchmarks measured, so that those of one benchmark are of one commit."""
    new = {
        name: {"commit": commit, "figures": {find_title(row): row["figure"] for row in rows}}
        for name, rows in measured.items()
        if rows
    }
    text = json.dumps(read_last(path) | new, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--small", action="store_true", help="use little data: shows only that they run")
    options.add_argument("--only", nargs="+", choices=sorted(SMALL), metavar="NAME", help="run these only")
    options.add_argument("--keep", action="store_true", help="store the figures as those of the last version")
    chosen = options.parse_args()
    if chosen.keep and chosen.small:
        options.error("--small says nothing about speed, so its figures cannot be kept")
    failed = []
    measured: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="safeswap-bench-") as folder:
        for name in chosen.only or SMALL:
            print(f"\n== {name}", flush=True)
            results = Path(folder) / f"{name}.jsonl"
            try:
                run_benchmark(name, SMALL[name] if chosen.small else (), results, once=chosen.small)
            except subprocess.CalledProcessError as error:
                failed.append(f"{name} (exit status {error.returncode})")
            else:
                measured[name] = read_rows(results)
    kept = [read_last(LAST)[name] for name in measured if name in read_last(LAST)]
    figures = {title: figure for each in kept for title, figure in each["figures"].items()}
    print("\n" + format_table([row for rows in measured.values() for row in rows], figures))
    print("last version: " + (", ".join(sorted({each["commit"] for each in kept})) or "nothing kept"))
    if chosen.keep:
        keep_figures(LAST, measured, find_commit())
    for each in failed:
        print(f"FAILED: {each}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
