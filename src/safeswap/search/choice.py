"""Choose one candidate and say why: what it dominates, its nearest rivals, how sure the choice is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.search.objective import Objective
from safeswap.search.study import Choice, Study, no_candidate

_RESAMPLES = 1000


def chosen(study: Study, objective: Objective, *, risk: str | None, distortion: str | None) -> Choice:
    """The candidate that the objective likes best, from the specifications' means."""
    y, x = study.axes(risk, distortion)
    number = study.table.column("specification").to_numpy()
    by_spec = study.summary(risk=risk, distortion=distortion)
    mean_y, mean_x = by_spec.column("risk_mean").to_numpy(), by_spec.column("distortion_mean").to_numpy()
    cost = _cost(objective, mean_y, mean_x)
    order = np.argsort(cost, kind="stable")
    if not len(order) or not np.isfinite(cost[order[0]]):
        raise no_candidate(objective)
    best = int(order[0])
    row = _typical_draw(np.flatnonzero(number == best), y, x, (mean_y[best], mean_x[best]), objective)
    certainty = _certainty(study, objective, y, x, best)
    rivals = [int(i) for i in order[1:4] if np.isfinite(cost[i])]
    dominated = int(((mean_y >= mean_y[best]) & (mean_x >= mean_x[best])).sum()) - 1
    return Choice(
        study=study,
        candidate=row,
        spec=study.specs[best],
        replicate=int(study.table.column("replicate")[row].as_py()),
        risk=float(y[row]),
        distortion=float(x[row]),
        objective=objective.sentence,
        dominates=dominated,
        rivals=_rivals(by_spec, rivals, cost, best),
        certainty=certainty,
        sentence=_sentence(
            study,
            row,
            (float(y[row]), float(x[row])),
            rule=objective.sentence,
            dominated=dominated,
            certainty=certainty,
        ),
    )


def _cost(objective: Objective, y: npt.NDArray[np.float64], x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    known = ~(np.isnan(y) | np.isnan(x))
    cost = np.full(len(y), np.inf)
    cost[known] = objective.cost(y[known], x[known])
    return cost


def _typical_draw(
    rows: npt.NDArray[np.int64],
    y: npt.NDArray[np.float64],
    x: npt.NDArray[np.float64],
    mean: tuple[float, float],
    objective: Objective,
) -> int:
    """Of the draws that the objective allows, the one nearest to the mean, each axis in units of its spread."""
    allowed = rows[np.isfinite(_cost(objective, y[rows], x[rows]))]
    rows = allowed if len(allowed) else rows[~np.isnan(y[rows])]
    scale_y, scale_x = y[rows].std() or 1.0, x[rows].std() or 1.0
    distance = ((y[rows] - mean[0]) / scale_y) ** 2 + ((x[rows] - mean[1]) / scale_x) ** 2
    return int(rows[np.argmin(distance)])


def _certainty(
    study: Study, objective: Objective, y: npt.NDArray[np.float64], x: npt.NDArray[np.float64], best: int
) -> float | None:
    """How often the same specification would be chosen if the replicates were drawn again (bootstrap)."""
    replicates = study.spec.replicates
    if replicates < 2:
        return None
    shape = (replicates, len(study.specs))
    risk, distortion = y.reshape(shape), x.reshape(shape)
    generator = np.random.default_rng(0)  # resampling of figures that are already known: no secret depends on it
    picks = generator.multinomial(replicates, np.full(replicates, 1 / replicates), size=_RESAMPLES) / replicates
    mean_y, mean_x = picks @ risk, picks @ distortion
    same = sum(int(np.argmin(_cost(objective, a, b))) == best for a, b in zip(mean_y, mean_x, strict=True))
    return same / _RESAMPLES


def _rivals(by_spec: pa.Table, rows: list[int], cost: npt.NDArray[np.float64], best: int) -> pa.Table:
    table = by_spec.take(pa.array(rows, type=pa.int64()))
    return table.append_column("cost_above_chosen", pa.array(cost[rows] - cost[best], type=pa.float64()))


def _sentence(
    study: Study, row: int, figures: tuple[float, float], *, rule: str, dominated: int, certainty: float | None
) -> str:
    record = study.table.slice(row, 1).to_pylist()[0]
    rate = f" at rate {record['rate']:g}" if record["rate"] is not None else ""
    constraint = f" ({record['constraint']})" if record["constraint"] else ""
    sure = (
        " One draw per specification: how sure the choice is cannot be told; ask for replicates."
        if certainty is None
        else f" Drawn again, it would be chosen {100 * certainty:.0f}% of the time."
    )
    return (
        f"Chosen: {record['label']}{rate}{constraint}, candidate {row:,}: risk {figures[0]:.5f}, "
        f"distortion {figures[1]:.5f} ({rule}). It is no worse in both than {dominated:,} of "
        f"{len(study.specs):,} specifications.{sure}"
    )
