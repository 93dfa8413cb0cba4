"""The values of a confidentiality plot: its policy, and each record between perturbation and neighbours.

Seri (Istat), A graphical framework to evaluate risk assessment and information loss at individual level. Everything
here is about single records and for internal use only.

The records of two files are matched by identifier if both have one, else by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.types import Counts, Flags, Floats, Rows
from safeswap.errors import InputError, SpecError
from safeswap.model import schema
from safeswap.model.columns import aligned_columns, as_codes
from safeswap.model.microdata import Microdata
from safeswap.model.text import list_names, plural


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
            raise _policy_error("r must be a share above 0", "r=0.15, or r=None for a vertical line at k")
        if not (isfinite(self.k) and self.k > 0):
            raise _policy_error("k must be a number of neighbours above 0", "k=15")
        if not -8 <= self.curvature <= 8:
            raise _policy_error("the curvature must be between −8 and 8", "curvature=0 is a straight line")

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

        labels = pa.array(np.arange(1, len(self) + 1))
        if self.points is None:
            return replace(self, labels=labels)
        places = pc.add(pc.index_in(self.points.labels, value_set=self.labels), 1)
        return replace(self, labels=labels, points=replace(self.points, labels=places))

    def neighbours(self, row: int, *, most: int = 50) -> pa.Table:
        """Return the neighbours of one released record, nearest first: identifiers and distances, no key values."""
        if self.points is None:
            raise SpecError(
                "neighbours can be listed only for plots by distance",
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
        return f"<ConfidentialityPlot by {list_names(self.keys)}: {self.sentence}>"


def agreement(one: ConfidentialityPlot, other: ConfidentialityPlot) -> pa.Table:
    """Compare two ways of linking the same release: per figure, the records counted by each and by both."""
    if len(one) != len(other):
        raise SpecError(
            "the two plots show different files", code="different-plots", hint="compare two plots of one release"
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


_SAME_VALUES = 0.9
"""Minimum share of common values for a column to be used as evidence of the record order."""


def match_rows(here: Microdata, there: Microdata, *, by_position: bool = True) -> tuple[Rows, str]:
    """Return each record's row in the other file, −1 if it has none, and a note on how it was matched.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="id", kind="identifier"),))
    >>> one, other = (Microdata(pa.table({"id": ids}), schema) for ids in ([7, 8, 9], [9, 7]))
    >>> match_rows(one, other)[0].tolist()
    [1, -1, 0]
    """
    if here.schema.identifier is not None and there.schema.identifier is not None:
        return _match_by_identifier(here, there)
    if not by_position:
        raise SpecError(
            "an external archive is matched by identifier, and one of the files has none",
            code="no-identifier",
            hint="name the identifier of both files when reading them",
        )
    if len(here) != len(there):
        raise InputError(
            f"the files have {len(there):,} and {plural(len(here), 'record')} but no identifier to match them by",
            code="different-length",
            hint="name the identifier of both files, or give files with the same records in the same order",
        )
    return np.arange(len(here), dtype=np.int64), "Records are matched by their position in the files."


def align_records(original: Microdata, released: Microdata) -> Microdata:
    """Return the released file with its records in the order of the original.

    By identifier if both files have one; it must be unique and name the same records. Else by position, which is
    refused if the files evidently differ in order.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="id", kind="identifier"),))
    >>> one, other = (Microdata(pa.table({"id": ids}), schema) for ids in ([7, 8, 9], [9, 7, 8]))
    >>> align_records(one, other).table["id"].to_pylist()
    [7, 8, 9]
    """
    if original.schema.identifier is None or released.schema.identifier is None:
        refuse_disorder(original, released)
        return released
    if _column_of_identifiers(original).equals(_column_of_identifiers(released)):
        return released
    ours, theirs = _identifier_texts(original), _identifier_texts(released)
    if ours.equals(theirs):
        return released
    rows = pc.index_in(ours, value_set=theirs.combine_chunks())
    if rows.null_count or any(len(side.unique()) < len(side) for side in (ours, theirs)):
        raise alignment_error(
            "the identifiers of the two files are not the same, or an identifier occurs in several records"
        )
    return take_records(released, rows.to_numpy().astype(np.int64))


def name_alike(original: Microdata, released: Microdata) -> Microdata:
    """Return the released file, whose records are in the original's order, with the original's identifiers."""
    own, other = original.schema.identifier, released.schema.identifier
    if own is None or other is None:
        return released
    return released.with_columns({other.name: original.table.column(own.name)}, {})


def take_records(data: Microdata, rows: Rows) -> Microdata:
    """Return the records in these rows, in that order."""
    return Microdata(data.table.take(pa.array(rows)), data.schema)


def refuse_disorder(original: Microdata, released: Microdata) -> None:
    """Refuse two files whose records are evidently in different orders.

    A column that is equal row by row confirms the order. If there is none, the columns with the same values are
    compared jointly: records that occur in both files should be in the same rows.
    """
    names = [
        a.name for a in original.schema.attributes if a.kind is not schema.Kind.IDENTIFIER and a.name in released.schema
    ]
    together: list[tuple[Rows, Rows]] = []
    for name in names:
        here, there = as_codes(*aligned_columns(original.table.column(name), released.table.column(name)))
        if len(here) and (here == there).all() and (here != here[0]).any():
            return
        if _count_common(here, there) >= _SAME_VALUES * len(here):
            together.append((here, there))
    if not together:
        return
    here, there = _number_records(together)
    in_place = int(np.count_nonzero(here == there))
    if 2 * in_place < _count_common(here, there):
        raise alignment_error("the records of the two files are in different orders, without an identifier")


def alignment_error(message: str) -> InputError:
    """Return the error for files whose records cannot be matched."""
    return InputError(
        message,
        code="records-not-aligned",
        hint="give the audit record, which knows the order: assess(original, released, audit=DIR) or --record DIR; or "
        "assess the masking itself: recall(original, masked, audit=DIR). If the order is the same, say by position",
    )


def _count_common(here: Rows, there: Rows) -> int:
    """Count the values that the two lists have in common, with repeats."""
    codes, place = np.unique(np.concatenate([here, there]), return_inverse=True)
    counts = [np.bincount(side, minlength=len(codes)) for side in (place[: len(here)], place[len(here) :])]
    return int(np.minimum(*counts).sum())


def _number_records(columns: list[tuple[Rows, Rows]]) -> tuple[Rows, Rows]:
    """Number the records of both files, with equal numbers where all columns are equal."""
    number = np.zeros(2 * len(columns[0][0]), dtype=np.int64)
    for sides in columns:
        place = np.unique(np.concatenate(sides), return_inverse=True)[1]
        number = np.unique(number * (int(place.max(initial=0)) + 1) + place, return_inverse=True)[1]
    return number[: len(number) // 2], number[len(number) // 2 :]


def record_labels(data: Microdata) -> pa.Array:
    """Return a label per record: its identifier as text, or its row from 1."""
    if data.schema.identifier is None:
        return pa.array(np.arange(1, len(data) + 1)).cast(pa.string())
    return _identifier_texts(data).combine_chunks()


def _match_by_identifier(here: Microdata, there: Microdata) -> tuple[Rows, str]:
    ours, theirs = _identifier_texts(here), _identifier_texts(there)
    how = "Records are matched by identifier."
    if ours.equals(theirs):
        return np.arange(len(here), dtype=np.int64), how
    rows = pc.index_in(ours, value_set=theirs.combine_chunks()).fill_null(-1).to_numpy().astype(np.int64)
    found = int(np.count_nonzero(rows >= 0))
    if not found and len(here):
        raise InputError(
            "the two files have no identifier in common",
            code="identifiers-differ",
            hint="give the internal masked file: a public bundle has new identifiers",
        )
    if found < len(here):
        how += f" {len(here) - found:,} of {plural(len(here), 'record is', 'records are')} not in the other file."
    return rows, how


def _identifier_texts(data: Microdata) -> pa.ChunkedArray:
    column = _column_of_identifiers(data)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.chunked_array([[value.hex() for value in column.to_pylist()]], type=pa.large_string())
    return pa.chunked_array([column.cast(pa.large_string()).combine_chunks()])


def _column_of_identifiers(data: Microdata) -> pa.ChunkedArray:
    identifier = data.schema.identifier
    assert identifier is not None  # noqa: S101  (checked by callers)
    return data.table.column(identifier.name)
