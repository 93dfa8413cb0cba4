"""Report on an exchange of geography, level by level: how distributions changed and how far records moved.

Source: Moore 1996, section III: the index of dissimilarity, for distributions at small geographic levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.arrays.divergence import dissimilarity_within
from safeswap.errors import SpecError
from safeswap.measures.aligned import align, cross_table
from safeswap.measures.base import choose_attributes
from safeswap.measures.utility.categories import Dissimilarity
from safeswap.model.geography import geography_levels
from safeswap.model.masked import Masked
from safeswap.model.score import Comparison
from safeswap.model.text import plural

Level = str | tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class GeographyReport:
    """Figures by level, from coarse to fine. For internal use only.

    ``dissimilarity`` has one row per level and distribution: the number of areas, how many of them changed, the mean D
    (areas weighted by their records) and the largest D. ``distance`` has one row per level: the number and share of
    pairs within one area.
    """

    dissimilarity: pa.Table
    distance: pa.Table

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"dissimilarity": self.dissimilarity.to_pylist(), "distance": self.distance.to_pylist()}

    @property
    def sentences(self) -> tuple[str, ...]:
        """The report in plain words."""
        moved = (
            f"In the areas of {d['level']}, {d['mean']:.2%} of the records are in another category of "
            f"{d['distribution']} on average, {d['largest']:.0%} where it is most; {d['areas_changed']:,} of "
            f"{plural(d['areas'], 'area')} changed."
            for d in self.dissimilarity.to_pylist()
        )
        lying = (
            f"{d['share']:.1%} of the pairs lie within one area of {d['level']}." for d in self.distance.to_pylist()
        )
        return (*moved, *lying)


def geography_report(
    masked: Masked, distributions: Sequence[str] = (), *, levels: Sequence[Level] = ()
) -> GeographyReport:
    """Compare distributions in the areas of each level before and after, and the distance between partners.

    By default ``distributions`` are all categorical attributes that are not geography, and ``levels`` all geography
    from coarse to fine. Name a level by several attributes if its codes are unique only within a coarser area.

    >>> from safeswap import datasets, workflow
    >>> census = datasets.synthetic_census(2_000)
    >>> spec = dict(method="edit_1990", keys=["ADULTS"], geography=["STATE", "PLACE", "BLOCK"], rate=0.1)
    >>> masked = workflow.mask(census, spec, insecure_seed=1)
    >>> report = geography_report(masked, ["ADULTS", "TENURE"], levels=["STATE", "PLACE"])
    >>> [(row["level"], row["distribution"], row["mean"] > 0) for row in report.dissimilarity.to_pylist()]
    [('STATE', 'ADULTS', False), ('STATE', 'TENURE', False), ('PLACE', 'ADULTS', False), ('PLACE', 'TENURE', True)]
    >>> report.distance["share"].to_pylist()
    [1.0, 0.0]
    """
    named = [_names(level) for level in levels] or [(name,) for name in geography_levels(masked.original.schema)]
    if not named:
        raise SpecError(
            "there is no geographic level to report on", code="no-geography", hint="name the levels: levels=[…]"
        )
    geography = {name for level in named for name in level}
    chosen = tuple(distributions) or tuple(n for n in masked.original.schema.categorical if n not in geography)
    comparison = _comparison(masked, chosen)
    rows = [row for level in named for row in _dissimilarity(comparison, level, chosen)]
    return GeographyReport(
        dissimilarity=pa.Table.from_pylist(rows),
        distance=pa.Table.from_pylist([_distance(masked, level) for level in named]),
    )


def areas_changed_most(masked: Masked, distribution: str, level: Level, *, most: int = 10) -> pa.Table:
    """Return a distribution before and after in the areas where it changed most, largest D first. Confidential counts.

    >>> from safeswap import datasets, workflow
    >>> census = datasets.synthetic_census(2_000)
    >>> spec = dict(method="edit_1990", keys=["ADULTS"], geography=["STATE", "PLACE", "BLOCK"], rate=0.1)
    >>> table = areas_changed_most(workflow.mask(census, spec, insecure_seed=1), "TENURE", "PLACE", most=1)
    >>> table.column_names, sum(table["before"].to_pylist()) == sum(table["after"].to_pylist())
    (['PLACE', 'TENURE', 'before', 'after', 'D'], True)
    """
    names = _names(level)
    comparison = _comparison(masked, (distribution,))
    table = cross_table(comparison, (*names, distribution))
    _, area = np.unique(np.stack(table.levels[:-1], axis=1), axis=0, return_inverse=True)
    area = area.ravel()
    distances, _ = dissimilarity_within(area, table.before, table.after)
    chosen = np.argsort(-distances, kind="stable")[:most]
    place = np.full(len(distances), -1)
    place[chosen[distances[chosen] > 0]] = np.arange(np.count_nonzero(distances[chosen] > 0))
    cells = np.flatnonzero(place[area] >= 0)
    cells = cells[np.argsort(place[area[cells]], kind="stable")]
    columns = {
        name: _values(comparison, name, codes[cells])
        for name, codes in zip(table.attributes, table.levels, strict=True)
    }
    counts = {"before": table.before[cells], "after": table.after[cells], "D": distances[area[cells]]}
    return pa.table({**columns, **counts})


def _names(level: Level) -> tuple[str, ...]:
    return (level,) if isinstance(level, str) else tuple(level)


def _comparison(masked: Masked, attributes: tuple[str, ...]) -> Comparison:
    comparison = Comparison(
        before=masked.original, after=masked.data, attributes=attributes, touched=masked.audit.touched()
    )
    choose_attributes(comparison, attributes)
    return comparison


def _dissimilarity(comparison: Comparison, level: tuple[str, ...], names: tuple[str, ...]) -> list[dict[str, Any]]:
    areas = _count_areas(comparison, level)
    score = Dissimilarity(attributes=names, within=level).score(comparison)
    details = score.detail.to_pylist() if score.detail is not None else []
    return [
        {
            "level": " × ".join(level),
            "distribution": detail["attribute"],
            "areas": areas,
            "areas_changed": detail["areas_changed"],
            "mean": detail["value"],
            "largest": detail["largest"],
        }
        for detail in details
    ]


def _count_areas(comparison: Comparison, level: tuple[str, ...]) -> int:
    from safeswap.arrays import cells

    return len(cells.count_cells(*comparison.before.coded_columns(level)).counts)


def _distance(masked: Masked, level: tuple[str, ...]) -> dict[str, Any]:
    together, pairs = 0, 0
    for exchange in masked.audit.all_exchanges:
        same = np.ones(len(exchange.pairs), dtype=np.bool_)
        for name in level:
            codes = masked.original.coded(name).codes
            same &= codes[exchange.pairs[:, 0]] == codes[exchange.pairs[:, 1]]
        together += int(np.count_nonzero(same))
        pairs += len(same)
    share = together / pairs if pairs else 0.0
    return {"level": " × ".join(level), "pairs_within": together, "share": share}


def _values(comparison: Comparison, name: str, codes: Any) -> pa.Array:
    levels = align(comparison, name).levels
    return levels.take(pa.array(np.where(codes < len(levels), codes, -1), mask=codes >= len(levels)))
