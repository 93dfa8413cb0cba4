"""Households by what decides who may change places with whom: key, area, and the size of the block.

In memory only: partners are looked for among all records at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from safeswap.kernels import cells, sampling, sparse
from safeswap.kernels.geography import parents
from safeswap.kernels.same_key import Partners, count_moved, find_partners
from safeswap.kernels.types import Codes, Flags, Identity, Names, Rows
from safeswap.model.edit_1990_spec import Edit1990Spec
from safeswap.model.microdata import Microdata

_SIMULATED = 1_000_000  # households in all samples from which an average is taken
_SAMPLES = 100


@dataclass(frozen=True, eq=False, kw_only=True)
class HouseholdAreas:
    """Per record the code of what a partner must share, and the area in which it must differ; and the blocks.

    ``within_sizes`` counts the households of each area of the level across which nothing is exchanged, and
    ``single_areas`` numbers those of them that have households but no two areas to exchange between.
    """

    matched: Codes
    across: Codes
    within_sizes: npt.NDArray[np.int32]
    single_areas: Rows
    blocks: Codes | None
    is_small: Flags | None
    block_sizes: npt.NDArray[np.int32] | None

    @property
    def small_households(self) -> int:
        """How many households lie in small blocks."""
        if self.is_small is None or self.block_sizes is None:
            return 0
        return int(self.block_sizes[self.is_small].sum())


def household_areas(data: Microdata, spec: Edit1990Spec) -> HouseholdAreas:
    """Prepare a file, whose levels are known to nest."""
    within, number = _numbered(data, spec.area(spec.within_level))
    across, areas = _numbered(data, spec.area(spec.across_level))
    matched, _ = cells.pack(*data.coded_columns(spec.matched))
    sizes = cells.dense_counts(within, number)
    around = parents(across, within, areas)
    per_area = np.bincount(around[around >= 0], minlength=number) if around is not None else np.zeros(number, int)
    blocks = is_small = block_sizes = None
    if spec.small_block_rate is not None:
        blocks, count = _numbered(data, spec.area(spec.geography[-1]))
        block_sizes = cells.dense_counts(blocks, count)
        is_small = (block_sizes > 0) & (block_sizes < spec.small_block_units)
    return HouseholdAreas(
        matched=matched,
        across=across,
        within_sizes=sizes,
        single_areas=np.flatnonzero((per_area == 1) & (sizes > 1)),
        blocks=blocks,
        is_small=is_small,
        block_sizes=block_sizes,
    )


def expected_moved(areas: HouseholdAreas, spec: Edit1990Spec) -> float:
    """How many households move on average, partners included: the mean of samples that no key has a part in.

    A large file needs one sample only, since its parts make up for each other.
    """
    rates = np.full(len(areas.matched), spec.rate)
    if areas.blocks is not None and areas.is_small is not None:
        rates[areas.is_small[areas.blocks]] = spec.small_block_rate or 0.0
    random = np.random.default_rng(0)
    samples = 1 + _SIMULATED // max(len(rates), _SIMULATED // _SAMPLES)
    moved = [count_moved(areas.matched, areas.across, random.random(len(rates)) < rates) for _ in range(samples)]
    return float(np.mean(moved))


def sample_households(areas: HouseholdAreas, spec: Edit1990Spec, identity: Identity, key: bytes) -> sampling.Drawn:
    """Draw the sample: each household at the rate of its block."""
    if areas.blocks is None or spec.small_block_rate is None:
        return sampling.draw_sample(identity, key, rate=spec.rate)
    return sampling.draw_sample(
        identity, key, rate=spec.rate, strata=areas.blocks, is_dense=areas.is_small, dense_rate=spec.small_block_rate
    )


def partners(areas: HouseholdAreas, drawn: sampling.Drawn, identity: Identity, key: bytes) -> Partners:
    """Find partners for the sample."""
    return find_partners(areas.matched, areas.across, drawn, identity, key)


def _numbered(data: Microdata, names: Names) -> tuple[Codes, int]:
    """The areas named by some attributes together, as numbers of which there are not many more than areas."""
    codes, number = cells.pack(*data.coded_columns(names))
    if cells.is_dense(number, len(data)):
        return codes, number
    ranks, number = sparse.ranks(codes)
    return ranks, number
