"""An intruder with the masked file, our source code and a few records he knows, who tries every seed.

Swapping undoes itself: two records that differ still differ after their exchange. So whoever can make the pairs again,
on the masked file and with the right key, gets the original back. With a seed of 12 bits here (of 32 in earnest: more
of the same work) he finds it; with a key of 256 bits he has nothing to try.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from safeswap.arrays import order
from safeswap.methods.swap import Swap, stage_key
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata, record_identity
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.spec import SwapSpec

SEEDS = 2**12
SECRET_SEED = 2_917
SPEC = SwapSpec(swap=["Income"], fixed=["Sex"], rate=0.4)


class Intruder:
    """He has the masked file, has guessed the specification, and knows the true income of some persons."""

    def __init__(self, file: Microdata, known: dict[int, str]) -> None:
        self.file = file
        self.incomes = file.coded("Income").codes.astype(np.uint32)
        self.sexes = file.coded("Sex").codes.astype(np.uint32)
        self.identity = record_identity(file, bytes(32))  # identifiers so short need no key to be known by
        levels = file.coded("Income").levels.to_pylist()
        self.rows = np.array(list(known))
        self.truth = np.array([levels.index(income) for income in known.values()])

    def undone_by(self, key: Key) -> npt.NDArray[np.uint32]:
        """The incomes after making the pairs again, the quick way: kernels alone, everything else made once."""
        rows = order.draw_prefix(self.identity, stage_key(self.file, key, stage=0, replicate=0), 1.0)
        pairs = rows[order.walk(self.sexes[rows], 2, self.incomes[rows, None], SPEC.pairs_for(len(rows)), True)[0]]
        incomes = self.incomes.copy()
        order.exchange(incomes, pairs)
        return incomes

    def search(self) -> tuple[list[int], int]:
        """The seeds that explain all he knows, and the one that explains most."""
        fits = [(self.undone_by(Key.insecure(seed=s))[self.rows] == self.truth).sum() for s in range(SEEDS)]
        return np.flatnonzero(np.array(fits) == len(self.rows)).tolist(), int(np.argmax(fits))

    def undo(self, key: Key) -> list[str]:
        """The incomes after swapping the masked file once more, as anybody can who has the package."""
        again = Swap().apply(self.file, SPEC, key=key)
        found: list[str] = again.data.table["Income"].to_pylist()
        return found


def persons(*, identified: bool) -> Microdata:
    rng = np.random.default_rng(8)
    columns = {
        "id": pa.array([f"A-{i:04d}" for i in rng.permutation(9000)[:300]]),
        "Sex": pa.array(rng.choice(["f", "m"], 300)),
        "Income": pa.array(rng.choice(["low", "middle", "high", "top"], 300, p=[0.4, 0.3, 0.2, 0.1])),
    }
    kinds = {"id": Kind.IDENTIFIER, "Sex": Kind.NOMINAL, "Income": Kind.ORDINAL}
    names = list(columns) if identified else ["Sex", "Income"]
    schema = Schema(name="persons", attributes=tuple(Attribute(name=name, kind=kinds[name]) for name in names))
    return Microdata(pa.table({name: columns[name] for name in names}), schema)


def attack(key: Key, *, identified: bool) -> tuple[Intruder, list[str]]:
    """Mask a file and hand it to the intruder: in its own order, or shuffled where identifiers tell who is who."""
    original = persons(identified=identified)
    masked = Swap().apply(original, SPEC, key=key).data
    rng = np.random.default_rng(9)
    shuffled: npt.NDArray[np.int64] = rng.permutation(300) if identified else np.arange(300)
    truth = original.table["Income"].take(pa.array(shuffled)).to_pylist()
    known = {int(row): truth[row] for row in rng.choice(300, 25, replace=False)}
    return Intruder(Microdata(masked.table.take(pa.array(shuffled)), original.schema), known), truth


def right(incomes: list[str], truth: list[str]) -> int:
    return sum(a == b for a, b in zip(incomes, truth, strict=True))


@pytest.mark.parametrize("identified", [False, True])
def test_a_small_seed_is_found_and_every_swap_undone(identified: bool) -> None:
    intruder, truth = attack(Key.insecure(seed=SECRET_SEED), identified=identified)
    assert right(intruder.file.table["Income"].to_pylist(), truth) == 180  # 60 pairs were exchanged
    explaining, best = intruder.search()
    assert explaining == [SECRET_SEED] == [best]
    assert intruder.undo(Key.insecure(seed=best)) == truth


@pytest.mark.parametrize("identified", [False, True])
def test_a_key_of_256_bits_is_not_found_and_nothing_undone(identified: bool) -> None:
    intruder, truth = attack(Key(bytes(range(100, 132))), identified=identified)
    released = intruder.file.table["Income"].to_pylist()
    explaining, best = intruder.search()
    assert right(released, truth) == 180
    assert explaining == []
    # Even the seed that fits best leaves him, on the records he does not know, worse off than the file as it stands.
    others = [row for row in range(300) if row not in intruder.rows]
    guessed = intruder.undo(Key.insecure(seed=best))
    assert right([guessed[row] for row in others], [truth[row] for row in others]) < right(
        [released[row] for row in others], [truth[row] for row in others]
    )


def test_what_a_small_seed_makes_says_that_it_must_not_leave() -> None:
    masked = Swap().apply(persons(identified=True), SPEC, key=Key.insecure(seed=1))
    assert not masked.audit.releasable
    assert "NOT FOR RELEASE" in repr(masked)
