"""Choose one candidate by an objective and explain it: what it dominates, its nearest rivals, how certain it is.

An objective gives each point (risk, distortion) a cost; the cheapest allowed point is chosen.

==================  ======================================================================================
``linear:a=2``      Risk = a·Utility + c with utility the negative of distortion: smallest c = risk + a·distortion
``cap_risk:0.01``   least distortion among points with risk at most 0.01
``cap_distortion:0.05``  least risk among points with distortion at most 0.05
a function          of (risk, distortion); smaller is better
==================  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays.types import Floats
from safeswap.charts.points import Chosen
from safeswap.errors import InfeasibleError, SafeswapError, SpecError
from safeswap.model.study import find_undominated
from safeswap.model.text import list_names, plural

if TYPE_CHECKING:
    from safeswap.studies.study import Study


@runtime_checkable
class Objective(Protocol):
    """A rule that gives each point a cost, infinite if the point is not allowed."""

    @property
    def sentence(self) -> str:
        """The rule in plain words."""
        ...

    def cost(self, risk: Floats, distortion: Floats) -> Floats:
        """Return the cost of each point; smaller is better."""
        ...


@dataclass(frozen=True)
class Linear:
    """A fixed exchange rate between risk and distortion.

    >>> Linear(2.0).cost(np.array([0.1]), np.array([0.3])).tolist()
    [0.7]
    """

    a: float

    def __post_init__(self) -> None:
        _check(self.a, "the slope a")

    @property
    def sentence(self) -> str:
        """The rule in plain words."""
        return f"smallest risk + {self.a:g} × distortion"

    def cost(self, risk: Floats, distortion: Floats) -> Floats:
        """Return the intercept c of the line through each point."""
        return risk + self.a * distortion


@dataclass(frozen=True)
class CapRisk:
    """Least distortion among points that are safe enough."""

    most: float

    def __post_init__(self) -> None:
        _check(self.most, "the cap on risk")

    @property
    def sentence(self) -> str:
        """The rule in plain words."""
        return f"least distortion with risk at most {self.most:g}"

    def cost(self, risk: Floats, distortion: Floats) -> Floats:
        """Return the distortion, infinite above the cap."""
        return np.where(risk <= self.most, distortion, np.inf)


@dataclass(frozen=True)
class CapDistortion:
    """Least risk among points that are useful enough."""

    most: float

    def __post_init__(self) -> None:
        _check(self.most, "the cap on distortion")

    @property
    def sentence(self) -> str:
        """The rule in plain words."""
        return f"least risk with distortion at most {self.most:g}"

    def cost(self, risk: Floats, distortion: Floats) -> Floats:
        """Return the risk, infinite above the cap."""
        return np.where(distortion <= self.most, risk, np.inf)


@dataclass(frozen=True)
class Custom:
    """A user's own function."""

    function: Callable[[float, float], float]

    @property
    def sentence(self) -> str:
        """The rule in plain words."""
        return f"smallest value of {getattr(self.function, '__name__', 'the stated function')}(risk, distortion)"

    def cost(self, risk: Floats, distortion: Floats) -> Floats:
        """Apply the function to each point; a point where it is not a number is not allowed."""
        try:
            values = [float(self.function(float(r), float(d))) for r, d in zip(risk, distortion, strict=True)]
        except SafeswapError:
            raise
        except Exception as error:
            raise SpecError(
                f"the stated objective failed with {type(error).__name__}",
                code="bad-objective",
                hint="give a function of (risk, distortion) that returns a number, smaller being better",
            ) from error
        costs = np.array(values, dtype=np.float64)
        return np.where(np.isnan(costs), np.inf, costs)


_RULES: dict[str, tuple[str, Callable[[float], Objective]]] = {
    "linear": ("a", Linear),
    "cap_risk": ("most", CapRisk),
    "cap_distortion": ("most", CapDistortion),
}


def as_objective(stated: str | Objective | Callable[[float, float], float]) -> Objective:
    """Make an objective from its text form or from a function; return an objective unchanged.

    >>> as_objective("linear:a=2"), as_objective("cap_risk:0.01")
    (Linear(a=2.0), CapRisk(most=0.01))
    """
    if isinstance(stated, str):
        return _parse(stated)
    if hasattr(stated, "cost") and hasattr(stated, "sentence"):
        return stated
    if not callable(stated):
        raise _not_an_objective(type(stated).__name__)
    return Custom(stated)


def _parse(text: str) -> Objective:
    rule, _, argument = text.partition(":")
    if rule.strip() not in _RULES:
        raise _not_an_objective(repr(text))
    name, make = _RULES[rule.strip()]
    try:
        value = float(argument.strip().removeprefix(f"{name}="))
    except ValueError:
        raise _not_an_objective(repr(text)) from None
    return make(value)


def _check(value: float, what: str) -> None:
    if not (np.isfinite(value) and value >= 0):
        raise SpecError(
            f"{what} is {value:g}; it must be a number, 0 or above",
            code="bad-objective",
            hint="write linear:a=2, cap_risk:0.01 or cap_distortion:0.05",
        )


def _not_an_objective(what: str) -> SpecError:
    return SpecError(
        f"{what} is not an objective",
        code="bad-objective",
        hint="write linear:a=2, cap_risk:0.01 or cap_distortion:0.05, or give a function of (risk, distortion)",
    )


_RESAMPLES = 1000
_MOST_POINTS = 2_000_000  # limit on the points that an objective scores in the bootstrap


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Choice(Chosen):
    """The chosen candidate of a study and the reasons for it."""

    study: Study


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
    told = _figures_text(figures, (float(means[0][best]), float(means[1][best])), len(draws))
    sentence = _sentence(study, row, told, rule=objective.sentence, dominated=dominated)
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
        sentence=sentence + _tell_certainty(certainty),
    )


def take_candidate(study: Study, row: int) -> Choice:
    """Return the candidate that people chose, whatever a rule says of it."""
    y, x = study.axes()
    by_spec = study.summary()
    place = row % len(study.specs)
    means = by_spec.column("risk_mean").to_numpy(), by_spec.column("distortion_mean").to_numpy()
    dominated = int(((means[0] >= means[0][place]) & (means[1] >= means[1][place])).sum()) - 1
    figures = float(y[row]), float(x[row])
    told = _figures_text(figures, (float(means[0][place]), float(means[1][place])), len(study) // len(study.specs))
    return Choice(
        study=study,
        candidate=row,
        spec=study.specs[place],
        replicate=int(study.table.column("replicate")[row].as_py()),
        risk=figures[0],
        distortion=figures[1],
        objective="",
        dominates=max(dominated, 0),
        rivals=by_spec.slice(0, 0).append_column("cost_above_chosen", pa.array([], type=pa.float64())),
        certainty=None,
        sentence=_sentence(study, row, told, dominated=max(dominated, 0)),
    )


def _cost(objective: Objective, y: Floats, x: Floats) -> Floats:
    """Return the objective's cost of each point, infinite for unknown points."""
    known = ~(np.isnan(y) | np.isnan(x))
    cost = np.full(len(y), np.inf)
    cost[known] = objective.cost(y[known], x[known])
    return cost


def _best(objective: Objective, y: Floats, x: Floats) -> int:
    """Return the cheapest point of the frontier, −1 if none is allowed. Ties: the less risky, then the first."""
    cost = np.where(find_undominated(y, x), _cost(objective, y, x), np.inf)
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


def _figures_text(drawn: tuple[float, float], means: tuple[float, float], draws: int) -> str:
    """Name the figures of the chosen draw, and those of the map: the means of all draws.

    >>> _figures_text((0.1, 0.2), (0.1, 0.2), 1)
    'risk 0.10000, distortion 0.20000'
    """
    if draws == 1:
        return f"risk {drawn[0]:.5f}, distortion {drawn[1]:.5f}"
    return (
        f"risk {drawn[0]:.5f}, distortion {drawn[1]:.5f} in this draw; "
        f"{means[0]:.5f} and {means[1]:.5f} in the mean of its {draws:,} draws"
    )


def _sentence(study: Study, row: int, figures: str, *, rule: str = "", dominated: int) -> str:
    record = study.table.slice(row, 1).to_pylist()[0]
    rate = f" at rate {record['rate']:g}" if record["rate"] is not None else ""
    constraint = f" ({record['constraint']})" if record["constraint"] else ""
    by = f" ({rule})" if rule else ""
    return (
        f"Chosen: {_name_candidate(study, record)}{rate}{constraint}, candidate {row:,}: {figures}{by}. "
        f"In risk and distortion it is at least as good as {dominated:,} of the "
        f"{plural(len(study.specs) - 1, 'other specification')}."
    )


def _name_candidate(study: Study, record: dict[str, Any]) -> str:
    """Return the label of a candidate with the names of its attributes, for which the map has letters."""
    letters = {each["name"]: each["letter"] or "" for each in study.facts.get("attributes", ())}
    short = "".join(letters.get(name, "") for name in record["swap"])
    label = str(record["label"])
    return list_names(record["swap"]) + label.removeprefix(short) if short and label.startswith(short) else label


def _tell_certainty(certainty: float | None) -> str:
    if certainty is None:
        return " With one draw per specification the certainty of the choice is unknown; add replicates."
    return f" Drawn again, it would be chosen {100 * certainty:.0f}% of the time."


def _no_candidate(objective: Objective) -> InfeasibleError:
    return InfeasibleError(
        f"no candidate satisfies: {objective.sentence}",
        code="no-candidate",
        hint="raise the cap, add higher rates or other attributes to the study",
    )
