"""The risk of each record: the chance that who finds its keys in the population has found the right person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.errors import InputError, SpecError
from safeswap.kernels.types import Floats
from safeswap.measures.key_cells import KeyCells, key_cells
from safeswap.model.combination import Missing
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind
from safeswap.model.several import several
from safeswap.model.value_order import numbers
from safeswap.model.words import RiskModel


@dataclass(frozen=True, eq=False, repr=False)
class RecordRisks:
    """Risks by cell; every record of a cell has the same. ``population`` is F, or its estimate from the weights."""

    cells: KeyCells
    model: str
    population: Floats
    risks: Floats

    @property
    def expected(self) -> float:
        """How many records are expected to be re-identified: the sum of all risks."""
        return float(self.risks @ self.cells.members)

    @property
    def highest(self) -> float:
        """The largest risk of a record; 0 in an empty file."""
        return float(self.risks.max(initial=0.0))

    @property
    def below_sample(self) -> int:
        """The records of cells whose weights add up to less than their records: F is taken to be f there."""
        short = self.population < self.cells.like
        return int(self.cells.members[short].sum())

    def __repr__(self) -> str:
        return f"<RecordRisks: {self.expected:,.4g} of {self.cells.records:,} records expected to be found>"

    def above(self, threshold: float) -> int:
        """How many records have a risk above this."""
        return int(self.cells.members[self.risks > threshold].sum())

    def table(self) -> pa.Table:
        """One row per record, in the order of the file. Confidential."""
        of_record = self.cells.of_record
        return pa.table(
            {
                "sample_count": self.cells.like[of_record],
                "population_count": self.population[of_record],
                "risk": self.risks[of_record],
            }
        )


def record_risks(
    data: Microdata,
    keys: Sequence[str],
    *,
    weight: str | None = None,
    model: RiskModel = "franconi-polettini",
    missing: Missing = "any",
) -> RecordRisks:
    """The risk of every record by its keys.

    Without a weight the file is the population, and the risk is 1/F. With one it is a sample: the risk is the expected
    1/F given the sample (Franconi and Polettini), or one over the sum of the weights (``inverse``). A record with a
    missing key is looked for by the keys that it has.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex"), Attribute(name="w", kind="weight")))
    >>> data = Microdata(pa.table({"Sex": ["f", "m", "m"], "w": [215.0, 180.0, 180.0]}), schema)
    >>> record_risks(data, ["Sex"], weight="w").table()["risk"].to_numpy().round(4).tolist()
    [0.0251, 0.0054, 0.0054]
    """
    if model not in get_args(RiskModel):
        raise SpecError(
            f"there is no risk model {model!r}",
            code="bad-spec",
            hint="the models are: " + ", ".join(get_args(RiskModel)),
        )
    cells = key_cells(data, keys, missing=missing)
    counts = cells.like
    if weight is None:
        population = counts.astype(np.float64)
        risks, told = 1 / np.maximum(counts, 1), "population"
    else:
        population = cells.sums(np.bincount(cells.of_record, _weights(data, weight), len(cells.classes)))
        risks, told = _estimated(counts, population, model), model
    return RecordRisks(cells, told, population, risks)


def _estimated(counts: npt.NDArray[np.int64], population: Floats, model: RiskModel) -> Floats:
    if model == "inverse":
        return 1 / np.maximum(population, counts)  # nobody is in the sample who is not in the population
    from safeswap.kernels.individual_risk import expected_inverse

    return expected_inverse(counts, population)


def _weights(data: Microdata, name: str) -> Floats:
    if data.schema[name].kind not in (Kind.WEIGHT, Kind.NUMERIC):
        raise SpecError(
            f"{name!r} is {data.schema[name].kind.value} and no weight",
            code="not-a-weight",
            hint="name the survey weight, described as weight or numeric",
            attribute=name,
        )
    values = numbers(data, name)
    wrong = int(np.count_nonzero(~(np.isfinite(values) & (values >= 0))))
    if wrong:
        raise InputError(
            f"{several(wrong, 'record has', 'records have')} "
            f"a weight {name!r} that is missing, negative or not a number",
            code="bad-weight",
            hint="complete the weights first",
            column=name,
        )
    return values
