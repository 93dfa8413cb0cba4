"""Two versions of the package on the same work, by turns: processor seconds, their ratio, and whether it is allowed.

``git archive d6a48f6 src | tar x -C /tmp/old`` and then ``python bench/compare_versions.py /tmp/old/src src`` compares
what is in memory, CPS-8d and a census of a million households. ``--only files`` masks Parquet files of two and ten
million households in memory and in DuckDB. Each version has a process of its own; they take turns, operation by
operation, so that the load of the machine meets both. Every figure is the median over the rounds; data are new in each
round, so that nothing is remembered.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from scale import COLUMNS, DESCRIBED, MAKE, METHODS

MEASURES = ["n_rule", "hellinger", "total_variation", "entropy_change"]
SLOWER, MUCH_SLOWER = 1.1, 1.5
"""How much slower the usual paths may be, and those that are now written once for every engine."""

Jobs = Iterator[tuple[str, Callable[[], object]]]


def limit_of(operation: str) -> float:
    """Return the ratio that is allowed."""
    return MUCH_SLOWER if "repaired" in operation or "edit_1990" in operation else SLOWER


def census_jobs(folder: Path, records: int) -> Jobs:
    """Yield what can be done with a census: name, and a function that makes the data anew and does it."""
    from pyarrow import parquet

    import safeswap as ss
    from safeswap import workflow

    described: dict[str, Any] = {}
    exec(DESCRIBED, described)
    table = parquet.read_table(folder / f"census-{records}.parquet")

    def data() -> ss.Microdata:
        return ss.Microdata(table, described["schema"])

    for name, spec in METHODS.items():
        yield name, lambda spec=spec: ss.mask(data(), json.loads(spec), insecure_seed=1)
    repaired = {**json.loads(METHODS["swap"]), "pairing": "repaired", "rate": 0.9, "on_shortfall": "take"}
    yield "swap, repaired", lambda: ss.mask(data(), repaired, insecure_seed=1)
    masked = ss.mask(data(), json.loads(METHODS["swap"]), insecure_seed=1)
    yield "assess", lambda: ss.assess(data(), masked.data, measures=MEASURES)
    keys = ["TENURE", "ADULTS", "WHITE"]
    yield "risk", lambda: workflow.file_risk(data(), [*keys, "BLACK", "HISPANIC", "COUNTY"], max_size=2)
    yield "confidentiality", lambda: workflow.confidentiality(data(), masked.data, keys, linkage="frequency")


def survey_jobs(folder: Path, records: int) -> Jobs:
    """Yield what can be done with CPS-8d."""
    import safeswap as ss
    from safeswap import datasets, workflow

    cps = datasets.cps8d()

    def data() -> ss.Microdata:
        return ss.Microdata(cps.table, cps.schema)

    key = ss.Key.generate()
    for pairing in ("uniform", "repaired"):
        spec = {"method": "swap", "swap": ["Race", "Sex"], "fixed": ["Age"], "rate": 0.1, "pairing": pairing}
        yield f"swap, {pairing}", lambda spec=spec: ss.mask(data(), spec, key=key)
    most = {"method": "swap", "swap": ["Race"], "rate": 0.9, "pairing": "repaired", "on_shortfall": "take"}
    yield "swap, repaired, as many as possible", lambda: ss.mask(data(), most, key=key)
    yield "study, 108 candidates", lambda: ss.study(data(), key=key, threads=1)
    masked = ss.swap(cps, swap=["Race"], rate=0.1, key=key)
    yield "assess", lambda: ss.assess(data(), masked.data, measures=MEASURES)
    yield "risk", lambda: workflow.file_risk(data(), cps.attributes)
    yield "confidentiality", lambda: workflow.confidentiality(data(), masked.data, ["Race", "Sex", "Age"])

    def release() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            os.environ["SAFESWAP_LEDGER"] = f"{place}/ledger"  # a file is released once
            ss.release(masked, Path(place) / "public", audit=Path(place) / "audit", key=key)

    yield "release", release


def file_jobs(folder: Path, records: int) -> Jobs:
    """Yield the masking of a file by each method on each engine that has it."""
    from safeswap import workflow

    described: dict[str, Any] = {}
    exec(DESCRIBED, described)
    stated = {"schema": described["schema"], "insecure_seed": 1, "memory_limit": "2GB", "measures": MEASURES}
    repaired = {**json.loads(METHODS["swap"]), "pairing": "repaired"}
    methods = {name: json.loads(spec) for name, spec in METHODS.items()} | {"swap, repaired": repaired}
    for engine in ("memory", "duckdb"):
        for name, spec in methods.items():
            if (engine, name) != ("duckdb", "edit_targeted"):

                def mask(engine: str = engine, spec: dict[str, Any] = spec) -> None:
                    places = folder / f"census-{records}.parquet", folder / "masked.parquet"
                    workflow.mask_file(*places, spec, audit=folder / "audit", engine=engine, force=True, **stated)

                yield f"{name}, {engine}", mask


GROUPS = {"survey": survey_jobs, "census": census_jobs, "files": file_jobs}
REPEATED = {"survey": 5, "census": 1, "files": 1}


def serve(group: str, records: int, folder: Path) -> None:
    """Print the names of the operations; then run those asked for, and print the processor seconds of each."""
    warnings.simplefilter("ignore")  # names that have moved
    jobs = dict(GROUPS[group](folder, records))
    print(json.dumps(list(jobs)), flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(REPEATED[group]):
            start = time.process_time()
            jobs[line.strip()]()
            seconds.append(time.process_time() - start)
        print(json.dumps(min(seconds)), flush=True)


class Version:
    """A process with the sources of one version, which runs what it is asked to."""

    def __init__(self, tree: Path, cache: Path, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(tree.resolve()), "NUMBA_CACHE_DIR": str(cache)}
        command = [sys.executable, __file__, "--serve", *arguments]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.operations: list[str] = self._answer()

    def measure(self, operation: str) -> float:
        """Return the processor seconds of an operation."""
        assert self._process.stdin is not None
        print(operation, file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SystemExit("a version failed")
        return json.loads(line)


def compare(group: str, records: int, folder: Path, chosen: argparse.Namespace) -> bool:
    """Print the table of a group; return whether every ratio is within its limit."""
    arguments = (group, str(records), str(folder))
    trees = (chosen.old, chosen.cache / "old"), (chosen.new, chosen.cache / "new")
    versions = [Version(tree, cache, *arguments) for tree, cache in trees]
    fine = True
    for operation in versions[1].operations:
        title = f"{operation}, {records:,} households" if records else f"{operation}, CPS-8d"
        if not re.search(chosen.match, title):
            continue
        # The first round loads or compiles code.
        rounds = [[version.measure(operation) for version in versions] for _ in range(chosen.rounds + 1)][1:]
        old, new = map(median, zip(*rounds, strict=True))
        verdict = "ok" if new <= limit_of(operation) * old else "TOO SLOW"
        fine &= verdict == "ok"
        print(f"{title:52} {old:8.3f} {new:8.3f} {new / old:6.2f} {limit_of(operation):6.2f}  {verdict}", flush=True)
    for version in versions:
        version.close()
    return fine


def make_census(folder: Path, records: int, tree: Path) -> None:
    """Write a census file, by one version for both."""
    code = DESCRIBED + MAKE.format(
        records=records, columns=list(COLUMNS), path=str(folder / f"census-{records}.parquet")
    )
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def main() -> None:
    """Compare two versions; fail if the second is slower than allowed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("old", type=Path, help="the sources of the version to compare with")
    options.add_argument("new", type=Path, help="the sources of the version to judge")
    options.add_argument("--only", nargs="+", choices=list(GROUPS), default=["survey", "census"])
    options.add_argument("--sizes", nargs="+", type=float, default=[2e6, 1e7], help="households in the files")
    options.add_argument("--match", default="", help="a pattern of the operations to run")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only-show", action="store_true", help="print the table, and fail over no ratio")
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "compare-versions")
    chosen = options.parse_args()
    print(f"{'processor seconds':52} {'old':>8} {'new':>8} {'ratio':>6} {'limit':>6}")
    fine = True
    with tempfile.TemporaryDirectory(prefix="compare-versions-") as place:
        folder = Path(place)
        for group in chosen.only:
            for records in {"survey": [0.0], "census": [1e6], "files": chosen.sizes}[group]:
                if records:
                    make_census(folder, int(records), chosen.new)
                fine &= compare(group, int(records), folder, chosen)
    sys.exit(not (fine or chosen.only_show))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
