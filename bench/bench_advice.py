"""How long advice on the next recode takes, as a ratio to making every recode and counting anew.

Run ``python bench/bench_advice.py [records]``. Eight keys, one of them a town with 300 levels and one an age with 90,
all combinations of up to three; the brute way is timed on a few of the candidates.
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

from goals import judge, timed
from safeswap.measures.risk.risky import risky
from safeswap.methods.recode.apply import apply_step
from safeswap.model.combination import Combinations
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.workflow.recode_advice import advice
from safeswap.workflow.session import combinations_left

RECORDS = 100_000
BRUTE = 10


def survey(records: int) -> Microdata:
    """Skewed keys, as in surveys."""
    rng = np.random.default_rng(1996)
    columns = {
        "Age": rng.integers(0, 90, records).astype(str),
        "Town": rng.zipf(1.6, records).clip(1, 300).astype(str),
        "Job": np.char.zfill((rng.random(records) ** 2 * 120).astype(int).astype(str), 3),
        **{f"key {i}": rng.integers(0, 4 + 2 * i, records).astype(str) for i in range(5)},
    }
    kinds = {"Age": Kind.ORDINAL}
    attributes = tuple(Attribute(name=name, kind=kinds.get(name, Kind.NOMINAL)) for name in columns)
    return Microdata(pa.table(columns), Schema(attributes=attributes))


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    data = survey(records)
    asked = Combinations(keys=data.attributes, up_to=3)
    advice(data, asked, most=1)  # compiled, and columns coded
    found, _, took = timed(lambda: advice(data, asked))
    print(f"{records:,} records, 8 keys, 92 combinations, {found.tried} recodes: {took:.2f} s of CPU")
    _, _, counting = timed(lambda: risky(data, asked))
    print(
        f"  counting the unsafe combinations once: {counting:.2f} s; advice takes {took / counting:.1f} times as long"
    )
    steps = [each.step for each in found][:BRUTE]

    def brute() -> list[int]:
        unsafe = []
        for step in steps:
            after = apply_step(data, step)
            unsafe.append(risky(after, combinations_left(asked, after)).unsafe)
        return unsafe

    unsafe, _, slow = timed(brute)
    assert unsafe == [each.unsafe for each in found][:BRUTE]
    ratio = slow / len(steps) / (took / found.tried)
    print(f"  making each recode and counting again: {slow / len(steps):.3f} s each")
    judge("recode advice, brute force beside it", ratio, 5, wanted="at least", records=records)


if __name__ == "__main__":
    main()
