"""Random maps whose sideways measure has a sign, and brute force on magnitudes, in plain Python."""

from __future__ import annotations

from math import isnan

import numpy as np
import pyarrow as pa

from safeswap.charts.points import points_of
from safeswap.errors import InfeasibleError
from safeswap.model.spec import SwapSpec
from safeswap.model.study import StudySpec
from safeswap.studies.study import Study

Point = tuple[float, float]
MEASURES = ("entropy_change", "adV", "adC", "entropy_change:ways=2")


def make_study(seed: int) -> tuple[Study, list[list[Point]]]:
    """A study of random points (risk, signed distortion), and the points: a list per replicate."""
    rng = np.random.default_rng(seed)
    count, draws = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    # On a grid, so that points coincide and tie; some could not be made.
    risk = rng.integers(0, 9, (draws, count)) / 8
    distortion = rng.integers(-8, 9, (draws, count)) / 8
    risk[rng.random((draws, count)) < 0.1] = np.nan
    distortion[np.isnan(risk)] = np.nan
    measure = MEASURES[seed % len(MEASURES)]
    made = ~np.isnan(risk.ravel())
    table = pa.table(
        {
            "candidate": np.arange(draws * count),
            "specification": np.tile(np.arange(count), draws),
            "label": [f"a{i}" for i in range(count)] * draws,
            "swap": [[f"a{i}"] for i in range(count)] * draws,
            "constraint": [""] * (draws * count),
            "rate": [0.1] * (draws * count),
            "replicate": np.repeat(np.arange(draws), count),
            "outcome": np.where(made, "made", "rejected"),
            "reason": np.where(made, "", "too few pairs"),
            "n_rule": pa.array(risk.ravel(), from_pandas=True),
            measure: pa.array(distortion.ravel(), from_pandas=True),
        }
    )
    specs = tuple(SwapSpec(swap=[f"a{i}"], rate=0.1) for i in range(count))
    question = StudySpec(rates=(0.1,), replicates=draws, distortion=(measure,))
    points = [list(zip(*both, strict=True)) for both in zip(risk.tolist(), distortion.tolist(), strict=True)]
    return Study(spec=question, table=table, specs=specs, facts={}), points


def disagreements(seed: int) -> list[str]:
    """What the study says otherwise than brute force on magnitudes."""
    study, replicates = make_study(seed)
    draws = [(risk, abs(distortion)) for points in replicates for risk, distortion in points]
    means = _means(replicates)
    cap = (seed % 9) / 8
    wanted = {
        "frontier": sorted(_undominated(draws), key=lambda i: (draws[i][1], draws[i][0], i)),
        "choice": _chosen(draws, means, cap),
        "map": sorted((means[i] for i in _undominated(means)), key=lambda point: (point[1], point[0])),
    }
    points = points_of(study)
    found = {
        "frontier": study.frontier().tolist(),
        "choice": _choice(study, cap),
        "map": [(float(points.risk[i]), float(points.distortion[i])) for i in points.frontier()],
    }
    return [name for name in wanted if wanted[name] != found[name]]


def _means(replicates: list[list[Point]]) -> list[Point]:
    means = []
    for draws in zip(*replicates, strict=True):
        known = [(risk, abs(distortion)) for risk, distortion in draws if not isnan(risk)]
        size = len(known)
        means.append((sum(r for r, _ in known) / size, sum(d for _, d in known) / size) if size else (np.nan, np.nan))
    return means


def _undominated(points: list[Point]) -> list[int]:
    def beats(one: Point, other: Point) -> bool:
        return one[0] <= other[0] and one[1] <= other[1] and one != other

    made = [i for i, point in enumerate(points) if not isnan(point[0])]
    return [i for i in made if not any(beats(points[j], points[i]) for j in made)]


def _chosen(draws: list[Point], means: list[Point], cap: float) -> int | None:
    """The specification of least mean magnitude below the cap on risk, if one of its draws is below it too."""
    allowed = [i for i in _undominated(means) if means[i][0] <= cap]
    if not allowed:
        return None
    best = min(allowed, key=lambda i: (means[i][1], means[i][0], i))
    own = draws[best :: len(means)]
    return best if any(not isnan(risk) and risk <= cap for risk, _ in own) else None


def _choice(study: Study, cap: float) -> int | None:
    try:
        choice = study.choose(f"cap_risk:{cap}")
    except InfeasibleError:
        return None
    return study.specs.index(choice.spec)
