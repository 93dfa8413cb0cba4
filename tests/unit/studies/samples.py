"""Small files and studies that the tests of the search share."""

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from safeswap.measures.base import ParametricMeasure
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.score import Axis, Comparison, Score

KEY = Key.insecure(seed=20030228)


def file_of(columns: dict[str, Any], *, identifier: str | None = None, name: str = "sample") -> Microdata:
    """Microdata whose attributes are all nominal, apart from the identifier."""
    attributes = tuple(
        Attribute(name=column, kind=Kind.IDENTIFIER if column == identifier else Kind.NOMINAL) for column in columns
    )
    return Microdata(pa.table(columns), Schema(name=name, attributes=attributes))


def sample(records: int = 600, levels: tuple[int, ...] = (2, 3, 4, 2), *, seed: int = 7) -> Microdata:
    """Attributes A, B, C … with so many levels, the lower ones more frequent, each leaning on the one before."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    before = np.zeros(records, dtype=np.int64)
    for number, count in enumerate(levels):
        drawn = np.minimum(rng.geometric(0.5, records) - 1, count - 1)
        before = np.where(rng.random(records) < 0.3, before % count, drawn)
        columns[chr(ord("A") + number)] = [f"v{code}" for code in before]
    return file_of(columns)


class NeedsPairs(ParametricMeasure):
    """A measure that wants to know who was paired with whom."""

    name: ClassVar[str] = "needs_pairs"
    title: ClassVar[str] = "needs pairs"
    axis: ClassVar[Axis] = Axis.RISK
    needs: ClassVar[frozenset[str]] = frozenset({"touched", "pairs"})
    sources: ClassVar[tuple[str, ...]] = ()

    def score(self, comparison: Comparison) -> Score:
        raise AssertionError("must not be asked")


class Fails(NeedsPairs):
    """A measure that breaks down."""

    name: ClassVar[str] = "fails"
    needs: ClassVar[frozenset[str]] = frozenset()

    def score(self, comparison: Comparison) -> Score:
        raise KeyError("a value of record 17")
