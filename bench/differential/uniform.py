"""Uniform pairing against one order of all records with rejection, record by record; exits 1 on any disagreement.

python -m bench.differential.uniform [cases]
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
from tests.conformance.swap_by_hand import Rules, keyed_order, uniform_pairs

import safeswap as ss
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.spec import SwapSpec

NAMES = ("A", "B", "C", "D")


def make_case(seed: int) -> tuple[Microdata, SwapSpec]:
    """Draw a small file and a specification with random roles."""
    r = np.random.default_rng(seed)
    records = int(r.integers(2, 60))
    columns = {name: r.integers(0, r.integers(1, 5), size=records).astype(str) for name in NAMES}
    table = pa.table({"id": r.permutation(10 * records)[:records], **columns})
    kinds = {"id": Kind.IDENTIFIER, **dict.fromkeys(NAMES, Kind.NOMINAL)}
    schema = Schema(attributes=tuple(Attribute(name=name, kind=kind) for name, kind in kinds.items()))
    order = [str(name) for name in r.permutation(NAMES)]
    swapped = int(r.integers(1, 3))
    fixed = int(r.integers(0, 2))
    spec = SwapSpec(
        swap=order[:swapped],
        fixed=order[swapped : swapped + fixed],
        differ=order[swapped + fixed : swapped + fixed + int(r.integers(0, 2))],
        rate=float(r.uniform(0.05, 1)),
        true_swap=str(r.choice(["any", "all"])),
        pairing="uniform",
        on_shortfall="take",
    )
    return Microdata(table, schema), spec


def disagrees(seed: int) -> bool:
    """Compare the pairs, in their order, with those found by hand."""
    data, spec = make_case(seed)
    key = ss.Key(bytes([seed % 256]) * 32)
    try:
        (exchange,) = ss.mask(data, spec, key=key).audit.exchanges
    except ss.SafeswapError as error:
        return error.code not in ("constant-attribute", "shortfall")
    expected = uniform_pairs(Rules(data, spec, spec.swap), keyed_order(data, key))[: spec.pairs_for(len(data))]
    return [tuple(pair) for pair in exchange.pairs.tolist()] != expected


def main(cases: int) -> int:
    """Print cases and disagreements."""
    wrong = [seed for seed in range(cases) if disagrees(seed)]
    print(f"uniform: {cases} cases, {len(wrong)} disagreements {wrong[:10]}", flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
