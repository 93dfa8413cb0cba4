"""How often the ledger recognises records that left before, how often it errs, and what a sketch costs.

    python bench/bench_ledger.py rates 5000 40      # records per file, trials per case
    python bench/bench_ledger.py false 5000 200     # only files that must not raise an alarm
    python bench/bench_ledger.py time 100000 1000000

Prints a table. The files come from ``tests/ledger_cases.py``; each trial has a population, a sample and a ledger key of
its own. Exits with 1 if anything raised a false alarm.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.ledger_cases import HARD, NOT_THE_SAME, SEEN, Case, Population, as_file, files, trial

from safeswap.arrays.sketch import Overlap, Sketch, estimate_overlap
from safeswap.model.ledger import sketch_content
from safeswap.model.microdata import Microdata


def compare(case: Case, records: int, seed: int) -> Overlap:
    """One comparison of a released file with what came of it."""
    one, key = trial(records, seed), seed.to_bytes(32, "big")
    before, after = (sketch_content(file, key) for file in files(case, one))
    return estimate_overlap(after, before)


def rates(records: int, trials: int, *, only: str = "") -> int:
    """Print alarm rate, estimated share and largest z of every case; the number of false alarms."""
    cases = [(name, case, "alarm") for name, (case, _) in SEEN.items()]
    cases += [(name, case, "none") for name, case in NOT_THE_SAME.items()]
    cases += [(name, case, "limit") for name, case in HARD.items()]
    cases = [each for each in cases if only in ("", each[2])]
    false = 0
    print(f"{records:,} records, 18 columns, {trials} trials per case")
    print(f"{'case':42}{'wanted':>8}{'alarms':>9}{'share':>16}{'z (max)':>9}")
    for place, (name, case, wanted) in enumerate(cases):
        found = [compare(case, records, 1000 * place + number) for number in range(trials)]
        alarms = [each for each in found if each.alarm]
        share = np.array([each.share for each in (alarms or found)])
        false += len(alarms) if wanted == "none" else 0
        told = f"{share.mean():.2f} ± {share.std():.2f}" if alarms else "-"
        print(f"{name:42}{wanted:>8}{len(alarms) / trials:>9.1%}{told:>16}{max(e.z for e in found):>9.1f}", flush=True)
    return false


def cost(sizes: Iterable[int]) -> None:
    """Print seconds and size of a sketch, and seconds of a comparison."""

    def bytes_of(sketch: Sketch) -> int:
        return sum(part.nbytes for part in sketch[1:])

    sketch_content(as_file(Population(1).draw(5000, np.random.default_rng(1))), bytes(32))  # compiles
    print(f"{'records':>12}{'sketch s':>10}{'CPU s':>8}{'compare ms':>12}{'MB':>7}")
    for records in sizes:
        data = as_file(Population(1).draw(min(records, 500_000), np.random.default_rng(2)))
        if records > len(data):
            rows = np.random.default_rng(3).integers(0, len(data), records)
            data = Microdata(data.table.take(rows), data.schema)
        begun, used = time.perf_counter(), time.process_time()
        sketch = sketch_content(data, bytes(32))
        made, used = time.perf_counter(), time.process_time() - used
        estimate_overlap(sketch, sketch)
        told = time.perf_counter()
        figures = f"{made - begun:>10.2f}{used:>8.2f}{1000 * (told - made):>12.1f}{bytes_of(sketch) / 1e6:>7.2f}"
        print(f"{records:>12,}{figures}", flush=True)


if __name__ == "__main__":
    wanted, *numbers = sys.argv[1:] or ["rates", "5000", "20"]
    if wanted == "time":
        cost(map(int, numbers))
    else:
        only = "none" if wanted == "false" else ""
        sys.exit(rates(int(numbers[0]), int(numbers[1]), only=only) > 0)
