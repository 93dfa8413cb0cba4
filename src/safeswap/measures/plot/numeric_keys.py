"""The confidentiality plot of numeric keys: perturbation and neighbours of every released record.

Seri (Istat), A graphical framework to evaluate risk assessment and information loss at individual level. Conventions:

- δ is the α-quantile of z over all false pairs, with linear interpolation between order statistics. Up to 20,000
  records all pairs are used; above that, a keyed sample of them, with its standard error.
- A neighbour has z < δ. A released zero vector has the zero vectors of the archive as neighbours, and no others.
- Any change of a zero vector is an infinite perturbation; no change is a perturbation of 0.
- A released record that lacks a key value is not placed; an archive record that lacks one is never a neighbour.
- With the standardised and the Mahalanobis distance, perturbation and z are both ‖y − x‖ in standard deviations of the
  archive: a ratio of such distances would depend on the choice of zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import kd_tree, keyed, moments, order
from safeswap.arrays.compiled import run_all
from safeswap.arrays.types import Floats, Rows
from safeswap.errors import InputError, SpecError
from safeswap.measures.plot import neighbours
from safeswap.measures.plot import neighbours as pair_distances
from safeswap.measures.plot.values import ConfidentialityPlot, KeyPoints, Policy, match_rows, record_labels
from safeswap.model.checked import check_field_types, check_types
from safeswap.model.microdata import Microdata, record_identity
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.schema import BAND_HINT, Kind
from safeswap.model.text import plural

Scale = Literal["log", "asinh", "linear"]
Distance = Literal["relative", "standardised", "mahalanobis"]

SCALES: tuple[Scale, ...] = ("log", "asinh", "linear")
DISTANCES: tuple[Distance, ...] = ("relative", "standardised", "mahalanobis")


def check_numeric(data: Microdata, keys: tuple[str, ...]) -> None:
    """Refuse keys that the original's schema does not describe as numeric."""
    for name in keys:
        kind = data.schema[name].kind
        if kind not in (Kind.NUMERIC, Kind.WEIGHT):
            raise SpecError(
                f"{name!r} is {kind.value}, and distances need numeric keys",
                code="key-not-numeric",
                hint=BAND_HINT if kind is Kind.DATE else "describe it as numeric, or plot by frequency",
                attribute=name,
            )


def key_values(data: Microdata, keys: tuple[str, ...], *, scale: Scale, file: str) -> Floats:
    """Return one row per record and one column per key; a missing value is NaN.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="turnover", kind="numeric"),))
    >>> data = Microdata(pa.table({"turnover": [1.0, None]}), schema)
    >>> key_values(data, ("turnover",), scale="log", file="original").tolist()
    [[0.0], [nan]]
    """
    columns = [_to_scale(finite_numbers(data, name), name, scale, file) for name in keys]
    return np.stack(columns, axis=1) if columns else np.empty((len(data), 0))


def _to_scale(values: Floats, name: str, scale: Scale, file: str) -> Floats:
    if scale != "log":
        return values if scale == "linear" else np.arcsinh(values)
    beyond = int(np.count_nonzero(values <= 0))
    if beyond:
        raise SpecError(
            f"{name!r} has no logarithm in {plural(beyond, 'record')} of the {file} file",
            code="no-logarithm",
            hint='scale="asinh", which is like a logarithm but accepts every number; or scale="linear"',
            attribute=name,
            records=beyond,
        )
    return np.log(values)


def metric(archive: Floats, distance: Distance, keys: tuple[str, ...]) -> Floats:
    """Return the matrix that maps points so that the Euclidean distance between them is the requested one.

    >>> metric(np.array([[1.0], [3.0], [5.0]]), "standardised", ("turnover",)).tolist()
    [[0.5]]
    """
    sides = archive.shape[1]
    if distance == "relative":
        return np.eye(sides)
    known = archive[~np.isnan(archive).any(axis=1)]
    covariance = moments.covariance(known)
    variances = np.diag(covariance)
    if not (variances > 0).all():
        raise SpecError(
            f"{keys[int(np.argmin(variances))]!r} does not vary in the archive and has no standard deviation",
            code="constant-key",
            hint='leave it out, or use distance="relative"',
        )
    inverse = np.diag(1.0 / np.sqrt(variances))
    if distance == "standardised":
        return np.asarray(inverse)
    values, vectors = np.linalg.eigh(inverse @ covariance @ inverse)
    if values[0] < 1e-12 * sides:
        raise SpecError(
            "one of the keys follows from the others: there is no Mahalanobis distance",
            code="singular-keys",
            hint='leave out a key, or use distance="standardised"',
        )
    return np.asarray(inverse @ (vectors / np.sqrt(values)) @ vectors.T)


def rank_links(points: tuple[Floats, Floats, Rows], *, units: int) -> pa.Table:
    """Find which of the largest released units have the true one nearest to them in rank.

    An intruder who knows that an enterprise is the third largest looks for the third largest in the release.

    ``points`` are the keys of the released and of the archived records, and the true archived record of each released
    one. Units are the largest by the first key. The distance is the sum over the keys of the differences in rank,
    counted from the top; equal values share the better rank. A unit counts as found if the true one is nearer than all
    others.

    >>> archive = np.array([[9.0], [7.0], [1.0]])
    >>> rank_links((np.array([[5.0], [6.0], [1.0]]), archive, np.arange(3)), units=2)["correct"].to_pylist()
    [False, False]
    """
    released, archive, partners = points
    largest = _largest_rows(released[:, 0], units)
    known = [_ranks_from_top(values) for values in archive.T]
    correct, shared = [], []
    for row in largest:
        ranks = [1 + np.count_nonzero(values > values[row]) for values in released.T]
        apart = sum(np.abs(theirs - own) for theirs, own in zip(known, ranks, strict=True))
        nearest = np.flatnonzero(apart == apart.min())
        shared.append(len(nearest))
        correct.append(len(nearest) == 1 and bool(nearest[0] == partners[row]))
    return pa.table(
        {
            "rank": pa.array(np.arange(1, len(largest) + 1)),
            "equally_near": pa.array(shared, pa.int64()),
            "correct": pa.array(correct, pa.bool_()),
        }
    )


def _largest_rows(values: Floats, number: int) -> Rows:
    """Return the rows of the largest values, the first of equal ones before the others."""
    least = np.partition(values, -number)[-number] if number < len(values) else -np.inf
    rows = np.flatnonzero(values >= least)
    return rows[np.argsort(-values[rows], kind="stable")][:number]


def _ranks_from_top(values: Floats) -> npt.NDArray[np.int64]:
    """Return the rank of each value, with 1 for the largest."""
    order = np.argsort(-values)
    ordered = values[order]
    is_new = np.append(True, ordered[1:] != ordered[:-1])
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.flatnonzero(is_new)[np.cumsum(is_new) - 1] + 1
    return ranks


EXACT_UP_TO = 20_000
"""Maximum number of records for which δ is computed from all pairs."""

SAMPLED_PAIRS = 4_000_000
"""Number of pairs drawn for larger files."""

# The sample need not be secret: it protects no record. Another key gives other pairs.
PUBLIC_KEY = bytes(32)

_BINS = 80


@check_field_types
@dataclass(frozen=True, kw_only=True)
class NumericOptions:
    """Options for comparing records by numeric keys, and limits on exact computation."""

    alpha: float = 0.05
    scale: Scale | str = "log"  # an unknown word has its own error
    distance: Distance | str = "relative"
    largest_units: int = 10
    secret: bytes = field(default=PUBLIC_KEY, repr=False)
    exact_up_to: int = EXACT_UP_TO
    densities: bool = True


@check_types
def confidentiality_plot(
    original: Microdata,
    released: Microdata,
    keys: Sequence[str],
    *,
    archive: Microdata | None = None,
    policy: Policy | None = None,
    **options: Any,
) -> ConfidentialityPlot:
    """Place every released record. ``archive`` is the intruder's file; by default the original, the worst case.

    ``options`` are those of :class:`NumericOptions`.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="turnover", kind="numeric"),))
    >>> before, after = (
    ...     Microdata(pa.table({"turnover": t}), schema) for t in ([10.0, 11.0, 12.0, 90.0], [11.0, 10.0, 12.0, 80.0])
    ... )
    >>> plot = confidentiality_plot(before, after, ["turnover"], alpha=0.25)
    >>> plot.across.tolist(), plot.links.tolist()
    ([1.0, 1.0, 2.0, 1.0], [False, False, True, True])
    """
    how = NumericOptions(**options)
    alpha, scale, distance, secret = how.alpha, how.scale, how.distance, how.secret
    asked = check_request(keys, alpha=alpha, scale=scale, distance=distance)
    check_numeric(original, asked)
    found = _link_records(
        original, released, archive, asked, scale=cast("Scale", scale), distance=cast("Distance", distance)
    )
    sample = None
    if len(found.released) * len(found.archive) > how.exact_up_to**2:
        sample = np.sqrt(_sample_squares(found, secret))
    delta, error, pairs = _delta(found, alpha, sample)
    trees: dict[str, kd_tree.Tree] = {}
    run_all(lambda side: trees.__setitem__(side, kd_tree.build(getattr(found, side))), ("archive", "released"))
    across = _count_neighbours(found, trees, delta)
    _, least, ties = neighbours.find_nearest(trees["archive"], trees["released"])
    own = pair_distances.matched_squares(found.released, found.archive, np.ones(len(across)), found.partners)
    own_z = np.sqrt(pair_distances.matched_squares(found.released, found.archive, found.scales, found.partners))
    everyone = len(released)
    placed = found.rows
    return ConfidentialityPlot(
        kind="distance",
        keys=asked,
        across=_expand(across.astype(np.float64), placed, everyone, np.nan),
        perturbation=_expand(found.perturbation, placed, everyone, np.nan),
        nearest_true=_expand(own == least, placed, everyone, fill=False),
        ties=_expand(ties, placed, everyone, 0),
        within=_expand(_is_within(own, found, delta), placed, everyone, fill=False),
        labels=record_labels(released),
        policy=policy or Policy(),
        largest=found.largest,
        threshold=delta,
        threshold_error=error,
        settings={"alpha": alpha, "scale": scale, "distance": distance, "pairs": pairs, "exact": error is None},
        densities=_densities(found, own_z, delta, sample) if how.densities else None,
        rank_links=rank_links(found.by_rank, units=how.largest_units) if how.largest_units else None,
        notes=found.notes,
        points=_points(found, placed, everyone),
    )


def check_request(keys: Sequence[str], *, alpha: float, scale: str, distance: str) -> tuple[str, ...]:
    """Validate the options that do not depend on the data; return the keys."""
    asked = (keys,) if isinstance(keys, str) else tuple(keys)
    if not asked or len(set(asked)) != len(asked):
        raise SpecError("name at least one key, each once", code="bad-keys", hint='keys=["turnover", "employees"]')
    if not 0 < alpha < 1:
        raise SpecError("alpha must be above 0 and below 1", code="bad-alpha", hint="alpha=0.05")
    for value, known, what in ((scale, SCALES, "scale"), (distance, DISTANCES, "distance")):
        if value not in known:
            raise SpecError(
                f"there is no such {what}", code=f"bad-{what}", hint=f"{what} is one of " + ", ".join(known)
            )
    return asked


@dataclass(frozen=True, eq=False, kw_only=True)
class _Linked:
    """The released records that can be placed and the archive records that can be neighbours, as points."""

    released: Floats
    archive: Floats
    scales: Floats  # squares by which squared distances are divided
    partners: Rows  # the true archive record of each released one, −1 if absent
    perturbation: Floats
    rows: Rows  # their rows in the released file
    order: Rows
    archive_order: Rows
    largest: int
    by_rank: tuple[Floats, Floats, Rows]
    notes: tuple[str, ...]
    labels: pa.Array


def _link_records(
    original: Microdata,
    released: Microdata,
    archive: Microdata | None,
    keys: tuple[str, ...],
    *,
    scale: Scale,
    distance: Distance,
) -> _Linked:
    to_original, how = match_rows(released, original)
    to_archive, also = (to_original, "") if archive is None else match_rows(released, archive, by_position=False)
    known = archive if archive is not None else original
    x = key_values(original, keys, scale=scale, file="original")
    y = key_values(released, keys, scale=scale, file="released")
    a = x if archive is None else key_values(archive, keys, scale=scale, file="archive")
    turned = metric(a, distance, keys)
    there = np.flatnonzero(~np.isnan(a).any(axis=1))
    truth = np.where(to_original[:, None] >= 0, x[to_original], np.nan)
    rows = np.flatnonzero(~np.isnan(y).any(axis=1) & ~np.isnan(truth).any(axis=1))
    if not len(rows) or not len(there):
        raise InputError(
            "no record has all the keys in both files",
            code="nothing-to-compare",
            hint="name keys that are not missing everywhere",
        )
    place = np.full(len(known) + 1, -1, dtype=np.int64)  # the last entry, at index −1, is for absent records
    place[there] = np.arange(len(there))
    metric_y, metric_x = _transform(y[rows], turned), _transform(truth[rows], turned)
    scales = (metric_y**2).sum(axis=1) if distance == "relative" else np.ones(len(rows))
    notes = [
        how,
        also,
        _left_out_note(len(released) - len(rows), "released"),
        _left_out_note(len(known) - len(there), "archived"),
    ]
    zeros = int(np.count_nonzero(scales == 0)) + int(np.count_nonzero((metric_x == 0).all(axis=1)))
    if zeros and distance == "relative":
        vectors = plural(zeros, "record is a zero vector", "records are zero vectors")
        notes.append(f"{vectors} on this scale: any change is infinite.")
    return _Linked(
        released=metric_y,
        archive=_transform(a[there], turned),
        scales=scales,
        partners=place[to_archive[rows]],
        perturbation=_perturbation(metric_y, metric_x, relative=distance == "relative"),
        rows=rows,
        order=_number_rows(released, rows),
        archive_order=_number_rows(known, there),
        largest=int(rows[np.argmax(truth[rows, 0])]),
        by_rank=(y[rows], a[there], place[to_archive[rows]]),
        notes=tuple(note for note in notes if note),
        labels=record_labels(known).take(pa.array(there)),
    )


def _transform(points: Floats, matrix: Floats) -> Floats:
    """Return the points times the matrix; a unit matrix only takes the sign from zeros."""
    is_unit = np.array_equal(matrix, np.eye(len(matrix)))
    return np.asarray(points + 0.0 if is_unit else points @ matrix)


def _left_out_note(number: int, which: str) -> str:
    lacking = plural(number, f"{which} record lacks", f"{which} records lack")
    return f"{lacking} a key value or an original: omitted." if number else ""


def _perturbation(y: Floats, x: Floats, *, relative: bool) -> Floats:
    moved = np.sqrt(((y - x) ** 2).sum(axis=1))
    if not relative:
        return np.asarray(moved)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(moved == 0, 0.0, moved / np.sqrt((x**2).sum(axis=1)))


def _number_rows(data: Microdata, rows: Rows) -> Rows:
    """Number the given rows in an order that depends on identifiers and not on the order of the file."""
    identity = record_identity(data, PUBLIC_KEY)
    return order.draw_prefix(identity[rows], PUBLIC_KEY, 1.0)


def _delta(found: _Linked, alpha: float, sample: Floats | None) -> tuple[float, float | None, int]:
    """Return δ, its standard error if it was estimated from a sample of z, and the number of pairs used."""
    number = len(found.released) * len(found.archive) - int(np.count_nonzero(found.partners >= 0))
    if not number:
        raise InputError(
            "there are no two records that do not match",
            code="too-few-records",
            hint="give files of at least two records",
        )
    if sample is None:
        given = (found.released, found.archive, found.scales, found.partners)
        return pair_distances.exact_quantile(*given, alpha), None, number
    # Woodruff 1952: the quantiles at one standard error of the share to either side.
    error = np.sqrt(alpha * (1 - alpha) / len(sample))
    low, delta, high = np.quantile(sample, np.clip([alpha - error, alpha, alpha + error], 0, 1))
    return float(delta), float((high - low) / 2), len(sample)


def _sample_squares(found: _Linked, secret: bytes) -> Floats:
    return pair_distances.sampled_squares(
        found.released,
        found.archive,
        found.scales,
        found.partners,
        key=keyed.derive(secret, "confidentiality", "pairs"),
        pairs=SAMPLED_PAIRS,
        order=found.order,
        archive_order=found.archive_order,
    )


def _count_neighbours(found: _Linked, trees: Mapping[str, kd_tree.Tree], delta: float) -> npt.NDArray[np.int64]:
    counts = neighbours.count_within(trees["archive"], trees["released"], delta * np.sqrt(found.scales))
    zero = found.scales == 0
    if zero.any() and delta > 0:
        counts[zero] = int(np.count_nonzero((found.archive == 0).all(axis=1)))
    return counts


def _is_within(squares: Floats, found: _Linked, delta: float) -> npt.NDArray[np.bool_]:
    """Flag true records in the neighbourhood, by the same comparison, to the bit, that counts neighbours."""
    zero = found.scales == 0
    return np.where(zero, (squares == 0) & (delta > 0), squares < (delta * np.sqrt(found.scales)) ** 2)


def _densities(found: _Linked, own_z: Floats, delta: float, sample: Floats | None) -> pa.Table | None:
    """Return m(z) and u(z) in equal steps; the last row is open and holds everything beyond."""
    own = own_z[np.isfinite(own_z)]
    upto = max(4 * delta, float(np.quantile(own, 0.99)) if len(own) else 0.0)
    if not (upto > 0 and np.isfinite(upto)):
        return None
    edges = np.linspace(0.0, upto, _BINS + 1)
    if sample is None:
        apart = pair_distances.density_counts(found.released, found.archive, found.scales, found.partners, edges)
    else:
        apart = _histogram(sample, edges)
    together = _histogram(own_z[~np.isnan(own_z)], edges)
    step = upto / _BINS
    share = [counts / max(1, counts.sum()) for counts in (together, apart)]
    return pa.table(
        {
            "from": edges,
            "to": [*edges[1:].tolist(), None],
            "m": share[0] / step,
            "u": share[1] / step,
            "m_share": share[0],
            "u_share": share[1],
        }
    )


def _histogram(z: Floats, edges: Floats) -> npt.NDArray[np.int64]:
    place = np.minimum((z * ((len(edges) - 1) / edges[-1])), len(edges) - 1).astype(np.int64)
    return np.bincount(place, minlength=len(edges))


def _points(found: _Linked, rows: Rows, everyone: int) -> KeyPoints:
    released = np.full((everyone, found.released.shape[1]), np.nan)
    released[rows] = found.released
    scales = _expand(found.scales, rows, everyone, np.nan)
    return KeyPoints(released=released, archive=found.archive, scales=scales, labels=found.labels)


def _expand(values: npt.NDArray, rows: Rows, everyone: int, fill: float) -> npt.NDArray:  # type: ignore[type-arg]
    """Expand the values of some rows to all rows."""
    out = np.full(everyone, fill, dtype=values.dtype)
    out[rows] = values
    return out
