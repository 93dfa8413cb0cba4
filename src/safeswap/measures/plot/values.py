"""The values of a confidentiality plot: its policy, and each record between perturbation and neighbours.

Seri (Istat), A graphical framework to evaluate risk assessment and information loss at individual level. Everything
here is about single records and for internal use only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from safeswap.arrays.types import Counts, Flags, Floats
from safeswap.errors import SpecError
from safeswap.model.text import plural


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A line from (0, r) to (k, 0) across the plot; records below it are unsafe, records on it are safe.

    ``r`` is the perturbation at which a record needs no neighbours, ``k`` the number of neighbours at which it needs
    no perturbation. ``curvature`` 0 is a straight line; above 0 the line bends towards the origin and requires less,
    below 0 away from it and requires more: with p = 2^−curvature the line is (n/k)^p + (z/r)^p = 1. Without ``r`` it is
    the vertical line at k, as for frequencies.

    >>> policy = Policy(r=0.15, k=15)
    >>> policy.unsafe(np.array([0.0, 5.0, 15.0]), np.array([0.2, 0.05, 0.0])).tolist()
    [False, True, False]
    >>> Policy(r=0.15, k=15, curvature=1).unsafe(np.array([5.0]), np.array([0.05])).tolist()
    [False]
    """

    r: float | None = 0.15
    k: float = 15.0
    curvature: float = 0.0

    def __post_init__(self) -> None:
        if self.r is not None and not (isfinite(self.r) and self.r > 0):
            raise _policy_error("r is a share above 0", "r=0.15, or r=None for a vertical line at k")
        if not (isfinite(self.k) and self.k > 0):
            raise _policy_error("k is a number of neighbours above 0", "k=15")
        if not -8 <= self.curvature <= 8:
            raise _policy_error("the curvature lies between −8 and 8", "curvature=0 is a straight line")

    def line(self, across: Floats) -> Floats:
        """Return the perturbation below which a record with ``across`` neighbours is unsafe."""
        short = np.clip(np.asarray(across, dtype=np.float64) / self.k, 0.0, 1.0)
        if self.r is None:
            return np.where(short < 1.0, np.inf, 0.0)
        power = 2.0**-self.curvature
        return np.asarray(self.r * (1.0 - short**power) ** (1.0 / power))

    def unsafe(self, across: Floats, perturbation: Floats) -> Flags:
        """Flag the records below the line; records without a figure are not flagged."""
        with np.errstate(invalid="ignore"):
            return np.asarray((perturbation < self.line(across)) & ~np.isnan(across))

    @property
    def sentence(self) -> str:
        """The policy in plain words."""
        if self.r is None:
            return f"A record is safe if its combination of keys has a frequency of at least {self.k:g}."
        bent = "" if not self.curvature else f", along a curve of curvature {self.curvature:g}"
        return (
            f"A record is safe with a perturbation of {self.r:.4g} or with {self.k:g} neighbours, or with as much of "
            f"both as the line between asks for{bent}."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the parameters as plain values."""
        return asdict(self)


def _policy_error(message: str, hint: str) -> SpecError:
    return SpecError(message, code="bad-policy", hint=hint)


Kind = Literal["distance", "fellegi_sunter", "categorical", "table"]


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyPoints:
    """Released and archive records as points in the metric of the plot.

    ``scales`` divide the squared distances from each released record. ``labels`` name the archive records.
    """

    released: Floats
    archive: Floats
    scales: Floats
    labels: pa.Array


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfidentialityPlot:
    """One point per released record, and their totals.

    ``across`` is the number of neighbours (or the frequency of the keys), ``perturbation`` the individual information
    loss; both are NaN for a record that cannot be placed. ``threshold`` is δ or the corresponding match weight, with
    its standard error if it was estimated. Plots by match weights also have ``match_weights``, and in ``own_weight``
    the weight of each record with its true one. ``repr`` shows totals only.
    """

    kind: Kind
    keys: tuple[str, ...]
    across: Floats
    perturbation: Floats
    nearest_true: Flags
    ties: Counts
    within: Flags
    labels: pa.Array
    policy: Policy
    largest: int = -1
    threshold: float = float("nan")
    threshold_error: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    densities: pa.Table | None = None
    rank_links: pa.Table | None = None
    match_weights: pa.Table | None = None
    own_weight: Floats | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    points: KeyPoints | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.across)

    @property
    def placed(self) -> Flags:
        """Flags of the records that are placed in the plot."""
        return np.asarray(~(np.isnan(self.across) | np.isnan(self.perturbation)))

    @property
    def unsafe(self) -> Flags:
        """Flags of the records below the policy line."""
        return self.policy.unsafe(self.across, self.perturbation)

    @property
    def links(self) -> Flags:
        """Flags of the records whose only nearest neighbour is the true one."""
        return np.asarray(self.nearest_true & (self.ties == 1))

    def count_unsafe(self, policy: Policy) -> int:
        """Count the records that are unsafe under another policy."""
        return int(np.count_nonzero(policy.unsafe(self.across, self.perturbation)))

    def with_policy(self, policy: Policy) -> ConfidentialityPlot:
        """Return the same plot under another policy."""
        return replace(self, policy=policy)

    @property
    def unsafe_share(self) -> float:
        """Unsafe records as a share of those placed; 0 if none is placed."""
        placed = int(np.count_nonzero(self.placed))
        return int(np.count_nonzero(self.unsafe)) / placed if placed else 0.0

    @property
    def correct_link_share(self) -> float:
        """The share of records found by nearest-neighbour linkage, with random guesses among ties."""
        placed = int(np.count_nonzero(self.placed))
        return float((self.nearest_true / np.maximum(self.ties, 1)).sum() / placed) if placed else 0.0

    def table(self) -> pa.Table:
        """Return one row per record, for internal use: identifiers and figures, no key values."""
        figures: dict[str, Any] = {"record": self.labels, "perturbation": self.perturbation}
        if self.kind == "categorical":
            return pa.table({**figures, "frequency": self.across, "unsafe": self.unsafe})
        figures |= {
            "neighbours": pa.array(np.nan_to_num(self.across).astype(np.int64), mask=np.isnan(self.across)),
            "nearest_is_true": self.links,
            "nearest_shared_by": np.where(self.nearest_true, self.ties, 0),
            "true_in_neighbourhood": self.within,
            "unsafe": self.unsafe,
        }
        return pa.table(figures if self.own_weight is None else {**figures, "match_weight": self.own_weight})

    def unsafe_records(self) -> pa.Table:
        """Return the unsafe records, least perturbation first."""
        rows = np.flatnonzero(self.unsafe)
        order = rows[np.lexsort((self.across[rows], self.perturbation[rows]))]
        return self.table().take(pa.array(order))

    def numbered(self) -> ConfidentialityPlot:
        """Return the same plot with records labelled by their row in the released file instead of by identifier."""
        import pyarrow.compute as pc

        labels = pa.array(np.arange(1, len(self) + 1))
        if self.points is None:
            return replace(self, labels=labels)
        places = pc.add(pc.index_in(self.points.labels, value_set=self.labels), 1)
        return replace(self, labels=labels, points=replace(self.points, labels=places))

    def neighbours(self, row: int, *, most: int = 50) -> pa.Table:
        """Return the neighbours of one released record, nearest first: identifiers and distances, no key values."""
        if self.points is None:
            raise SpecError(
                "neighbours can be listed for plots of distances only",
                code="no-distances",
                hint="make the plot with numeric keys",
            )
        points = self.points
        squares = ((points.archive - points.released[row]) ** 2).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            distances = np.sqrt(np.where(squares == 0, 0.0, squares / points.scales[row]))
        near = np.flatnonzero(distances < self.threshold)
        order = near[np.argsort(distances[near], kind="stable")][:most]
        return pa.table({"record": points.labels.take(pa.array(order)), "distance": distances[order]})

    def as_dict(self) -> dict[str, Any]:
        """Return the totals as plain values."""
        placed = self.placed
        found: dict[str, Any] = {
            "kind": self.kind,
            "keys": list(self.keys),
            **self.settings,
            "records": len(self),
            "placed": int(np.count_nonzero(placed)),
            "policy": self.policy.as_dict(),
            "unsafe": int(np.count_nonzero(self.unsafe)),
            "unsafe_share": self.unsafe_share,
        }
        if self.kind != "categorical":
            found |= {
                "delta" if self.kind != "fellegi_sunter" else "match_weight": self.threshold,
                "standard_error": self.threshold_error,
                "correct_links": int(np.count_nonzero(self.links)),
                "shared_links": int(np.count_nonzero(self.nearest_true & (self.ties > 1))),
                "correct_link_share": self.correct_link_share,
                "links_within_neighbourhoods": int(np.count_nonzero(self.within)),
                "empty_neighbourhoods": int(np.count_nonzero(placed & (self.across == 0))),
            }
        if self.rank_links is not None:
            correct = self.rank_links["correct"].to_numpy(zero_copy_only=False)
            found |= {"rank_units": len(correct), "rank_links": int(np.count_nonzero(correct))}
        return {**found, "notes": list(self.notes)}

    @property
    def sentence(self) -> str:
        """Summary of the plot in one sentence."""
        totals = self.as_dict()
        text = f"{totals['unsafe']:,} of {plural(totals['placed'], 'record is', 'records are')} unsafe"
        if self.kind == "categorical":
            return text + "."
        return (
            f"{text}; {totals['correct_links']:,} have the true record as their nearest, "
            f"{totals['links_within_neighbourhoods']:,} have it in their neighbourhood, "
            f"{totals['empty_neighbourhoods']:,} have no neighbour."
        )

    def __repr__(self) -> str:
        return f"<ConfidentialityPlot by {', '.join(self.keys)}: {self.sentence}>"


def agreement(one: ConfidentialityPlot, other: ConfidentialityPlot) -> pa.Table:
    """Compare two ways of linking the same release: per figure, the records counted by each and by both."""
    if len(one) != len(other):
        raise SpecError(
            "the two plots are of different files", code="different-plots", hint="compare two plots of one release"
        )
    flags = {
        "unsafe": (one.unsafe, other.unsafe),
        "correct_links": (one.links, other.links),
        "links_within_neighbourhoods": (one.within, other.within),
        "empty_neighbourhoods": (one.across == 0, other.across == 0),
    }
    return pa.table(
        {
            "figure": list(flags),
            "first": [int(np.count_nonzero(a)) for a, _ in flags.values()],
            "second": [int(np.count_nonzero(b)) for _, b in flags.values()],
            "both": [int(np.count_nonzero(a & b)) for a, b in flags.values()],
        }
    )
