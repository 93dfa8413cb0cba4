"""Choose one candidate and explain it: what it dominates, its nearest rivals, how certain the choice is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays import dominance
from safeswap.arrays.types import Floats
from safeswap.errors import InfeasibleError
from safeswap.model.spec import MaskSpec
from safeswap.model.text import plural
from safeswap.studies.objective import Objective
from safeswap.studies.study import Study

_RESAMPLES = 1000
_MOST_POINTS = 2_000_000  # limit on the points that an objective scores in the bootstrap


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice:
    """The chosen candidate and the reasons for it."""

    study: Study
    candidate: int
    spec: MaskSpec
    replicate: int
    risk: float
    distortion: float
    objective: str
    dominates: int
    rivals: pa.Table
    certainty: float | None
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for ``--json`` and reports."""
        return {
            "candidate": self.candidate,
            "spec": self.spec.as_dict(),
            "replicate": self.replicate,
            "risk": self.risk,
            "distortion": self.distortion,
            "objective": self.objective,
            "dominates": self.dominates,
            "rivals": self.rivals.to_pylist(),
            "certainty": self.certainty,
            "sentence": self.sentence,
        }

    def __repr__(self) -> str:
        return self.sentence


def choose_candidate(study: Study, objective: Objective, *, risk: str | None, distortion: str | None) -> Choice:
    """Choose the candidate that is best by the objective, comparing specifications by their means."""
    y, x = study.axes(risk, distortion)
    by_spec = study.summary(risk=risk, distortion=distortion)
    means = by_spec.column("risk_mean").to_numpy(), by_spec.column("distortion_mean").to_numpy()
    best = _best(objective, *means)
    draws = np.arange(max(best, 0), len(study), len(study.specs))
    allowed = draws[np.isfinite(_cost(objective, y[draws], x[draws]))]
    if best < 0 or not len(allowed):
        raise _no_candidate(objective)
    row = _typical_draw(y, x, allowed, (means[0][best], means[1][best]))
    certainty = _certainty(study, objective, y, x, best)
    no_better = (means[0] >= means[0][best]) & (means[1] >= means[1][best])
    dominated = int(no_better.sum()) - 1
    figures = float(y[row]), float(x[row])
    return Choice(
        study=study,
        candidate=row,
        spec=study.specs[best],
        replicate=int(study.table.column("replicate")[row].as_py()),
        risk=figures[0],
        distortion=figures[1],
        objective=objective.sentence,
        dominates=dominated,
        rivals=_rivals(by_spec, _cost(objective, *means), best),
        certainty=certainty,
        sentence=_sentence(study, row, figures, rule=objective.sentence, dominated=dominated, certainty=certainty),
    )


def _cost(objective: Objective, y: Floats, x: Floats) -> Floats:
    """Return the objective's cost of each point, infinite for unknown points."""
    known = ~(np.isnan(y) | np.isnan(x))
    cost = np.full(len(y), np.inf)
    cost[known] = objective.cost(y[known], x[known])
    return cost


def _best(objective: Objective, y: Floats, x: Floats) -> int:
    """Return the cheapest point of the frontier, −1 if none is allowed. Ties: the less risky, then the first."""
    cost = np.where(dominance.find_undominated(y, x), _cost(objective, y, x), np.inf)
    best = int(np.lexsort((x, y, cost))[0]) if len(cost) else -1
    return best if best >= 0 and np.isfinite(cost[best]) else -1


def _typical_draw(y: Floats, x: Floats, rows: npt.NDArray[np.int64], mean: tuple[float, float]) -> int:
    """Return the draw nearest to the mean, each axis in units of its standard deviation."""
    scale_y, scale_x = y[rows].std() or 1.0, x[rows].std() or 1.0
    distance = ((y[rows] - mean[0]) / scale_y) ** 2 + ((x[rows] - mean[1]) / scale_x) ** 2
    return int(rows[np.argmin(distance)])


def _certainty(study: Study, objective: Objective, y: Floats, x: Floats, best: int) -> float | None:
    """Return how often the same specification is chosen when replicates are resampled (bootstrap)."""
    specs = len(study.specs)
    replicates = len(study) // specs
    if replicates < 2:
        return None
    resamples = max(100, min(_RESAMPLES, _MOST_POINTS // specs))
    generator = np.random.default_rng(0)  # only resamples known scores: no secret depends on it
    picks = generator.multinomial(replicates, np.full(replicates, 1 / replicates), size=resamples).astype(np.float64)
    again = zip(_means(picks, y.reshape(-1, specs)), _means(picks, x.reshape(-1, specs)), strict=True)
    return sum(_best(objective, risks, distortions) == best for risks, distortions in again) / resamples


def _means(picks: npt.NDArray[np.float64], values: Floats) -> Floats:
    """Return the mean of each specification in each resample, over the replicates in which it was feasible."""
    known = ~np.isnan(values)
    number = picks @ known.astype(np.float64)
    sums = picks @ np.where(known, values, 0.0)
    means: Floats = np.divide(sums, number, out=np.full(number.shape, np.nan), where=number > 0)
    return means


def _rivals(by_spec: pa.Table, cost: Floats, best: int) -> pa.Table:
    """Return the next three specifications, with the difference in cost."""
    order = [int(i) for i in np.argsort(cost, kind="stable") if i != best and np.isfinite(cost[i])][:3]
    table = by_spec.take(pa.array(order, type=pa.int64()))
    return table.append_column("cost_above_chosen", pa.array(cost[order] - cost[best], type=pa.float64()))


def _sentence(
    study: Study, row: int, figures: tuple[float, float], *, rule: str, dominated: int, certainty: float | None
) -> str:
    record = study.table.slice(row, 1).to_pylist()[0]
    rate = f" at rate {record['rate']:g}" if record["rate"] is not None else ""
    constraint = f" ({record['constraint']})" if record["constraint"] else ""
    sure = (
        " With one draw per specification the certainty of the choice is unknown; add replicates."
        if certainty is None
        else f" Drawn again, it would be chosen {100 * certainty:.0f}% of the time."
    )
    return (
        f"Chosen: {record['label']}{rate}{constraint}, candidate {row:,}: risk {figures[0]:.5f}, "
        f"distortion {figures[1]:.5f} ({rule}). It is no worse in both than {dominated:,} of the "
        f"{plural(len(study.specs) - 1, 'other specification')}.{sure}"
    )


def _no_candidate(objective: Objective) -> InfeasibleError:
    return InfeasibleError(
        f"no candidate satisfies: {objective.sentence}",
        code="no-candidate",
        hint="raise the cap, add higher rates or other attributes to the study",
    )
