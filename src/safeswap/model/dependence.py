"""Columns that follow from another column: what all members of a household share, the region of a county.

Let a column cut the records into groups. Another column *follows* from it where two records of one group agree far
more often than two records of the file: Cohen's kappa, (agreement - chance) / (1 - chance), is close to 1, and there
are enough pairs that chance cannot be the reason. If a masking then changes some records of a group only, the others
tell what stood there. So the question of a release is which groups agreed before and no longer do.

Everything is linear in the records: each record is compared with one representative of its group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.kernels.types import Codes, Flags
from safeswap.model.microdata import Coded

ENOUGH = 20.0
"""Pairs times the chance to disagree: that many pairs agree by chance with a probability below exp(-20)."""

_RUNS, _RUN = 10, 2_000


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How often records of one group agree: ``pairs`` compared, how many agree, and how likely two of the file do."""

    pairs: int
    agreeing: int
    chance: float

    @property
    def kappa(self) -> float:
        """Agreement beyond chance: 0 is none, 1 is full; 0 too where too few pairs were compared to tell."""
        if not self.is_enough:
            return 0.0
        return (self.agreeing / self.pairs - self.chance) / (1 - self.chance)

    @property
    def is_enough(self) -> bool:
        """Whether full agreement could not be due to chance."""
        return self.pairs * (1 - self.chance) >= ENOUGH


def agreement(group: Coded, value: Coded) -> Agreement:
    """Compare each record with a representative of its group; records without a group are passed over.

    >>> import pyarrow as pa
    >>> from safeswap.model.microdata import code_column
    >>> household, region = ([n // 3 for n in range(90)], [n // 3 % 4 for n in range(90)])
    >>> found = agreement(*(code_column(pa.chunked_array([values])) for values in (household, region)))
    >>> found.pairs, found.agreeing, round(found.chance, 2), found.kappa
    (60, 60, 0.25, 1.0)
    """
    codes, values = _grouped(group, value)
    representative, present = _representatives(codes, values, len(group.levels))
    agreeing = int(np.count_nonzero(representative[codes] == values)) - present
    counts = np.bincount(values) if len(values) else np.ones(1)
    chance = float(np.sum((counts / max(len(values), 1)) ** 2))
    return Agreement(pairs=len(codes) - present, agreeing=agreeing, chance=min(chance, 1.0))


def follows(group: Coded, value: Coded, *, kappa: float) -> bool:
    """Whether a column follows from another."""
    return agreement(group, value).kappa >= kappa


def is_ruled_out(group: Coded, value: Coded, *, kappa: float) -> bool:
    """Whether a sample of the records is enough to tell that a column does not follow from another."""
    seen = agreement(group, value)
    return seen.is_enough and seen.kappa < kappa - 0.1


def split_groups(group: Coded, value: Coded) -> Flags:
    """Per group, whether its records do not all agree; a missing value is one of its own."""
    codes, values = _grouped(group, value)
    representative, _ = _representatives(codes, values, len(group.levels))
    flags = np.zeros(len(group.levels), dtype=np.bool_)
    flags[codes[representative[codes] != values]] = True
    return flags


def _grouped(group: Coded, value: Coded) -> tuple[Codes, Codes]:
    codes, values = group.codes, value.codes
    if not group.has_missing:
        return codes, values
    known = codes < len(group.levels)
    return codes[known], values[known]


def _representatives(codes: Codes, values: Codes, groups: int) -> tuple[npt.NDArray[Any], int]:
    """The value of the last record of each group, and the number of groups that occur."""
    representative = np.zeros(groups, dtype=values.dtype)
    representative[codes] = values
    present = np.zeros(groups, dtype=np.bool_)
    present[codes] = True
    return representative, int(np.count_nonzero(present))


def sample_rows(records: int) -> npt.NDArray[np.int64]:
    """Runs of neighbours, since households often stand together; all rows where the file is hardly larger."""
    if records <= 2 * _RUNS * _RUN:
        return np.arange(records)
    starts = np.linspace(0, records - _RUN, _RUNS).astype(np.int64)
    return (starts[:, None] + np.arange(_RUN)).ravel()
