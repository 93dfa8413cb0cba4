"""Generalised linear models by iteratively reweighted least squares: linear, logistic and Poisson.

Enough for measures of utility: coefficients, model-based standard errors, and the score of each record, from which
variances under a sample design follow. A model that cannot be fitted is a value with a ``problem``, not an exception:
one bad model of a list must not take the others down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, qr
from scipy.special import expit, xlogy

from safeswap.arrays.types import Floats, Int64s

Family = Literal["linear", "logistic", "poisson"]

_MOST_STEPS = 60
_MOST_HALVINGS = 12
_SETTLED = 1e-12
_STILL = 1e-2  # where the deviance has settled and a log odds still moves by more, there is no largest likelihood
_INDEPENDENT = 1e-9  # of the largest diagonal element: what is below is a combination of other columns


@dataclass(frozen=True, eq=False, kw_only=True)
class Fit:
    """A fitted model. ``bread`` is the inverse information; ``scores`` holds weight × residual × column per row.

    ``problem`` says why a model could not be fitted; the other fields then say nothing.
    """

    coefficients: Floats
    errors: Floats
    bread: Floats
    scores: Floats
    fitted: Floats
    degrees: int
    problem: str = ""


def independent_columns(design: Floats, weights: Floats | None = None) -> Int64s:
    """Return the columns of a design that are no combination of others, in their order; their number is the rank.

    Of several that depend on each other the first ones are kept.

    >>> independent_columns(np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, 1.0]])).tolist()
    [0, 1]
    """
    kept = design if weights is None else design[weights > 0]
    if not kept.size:
        return np.zeros(0, dtype=np.int64)
    scale = np.sqrt((kept**2).sum(axis=0))
    upper = qr(kept / np.where(scale > 0, scale, 1.0), mode="r", check_finite=False)[0]
    # Without pivoting a dependent column has a diagonal element of 0, but later ones may hide: go through them once.
    return _walk_columns(upper[: design.shape[1]])


def _walk_columns(upper: Floats) -> Int64s:
    """Orthogonalise column by column, and keep the residuals."""
    basis = np.zeros((upper.shape[0], 0))
    kept: list[int] = []
    for place in range(upper.shape[1]):
        column = upper[:, place]
        for _ in range(2):  # twice is enough
            column = column - basis @ (basis.T @ column)
        length = float(np.sqrt(column @ column))
        if length > _INDEPENDENT:
            basis = np.column_stack([basis, column / length])
            kept.append(place)
    return np.array(kept, dtype=np.int64)


def fit(design: Floats, response: Floats, family: Family, weights: Floats | None = None) -> Fit:
    """Fit a model; ``weights`` are numbers of trials, or survey weights.

    >>> line = fit(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 3.0, 5.0]), "linear")
    >>> line.coefficients.round(6).tolist(), line.degrees
    ([1.0, 2.0], 1)
    """
    prior = np.ones(len(response)) if weights is None else weights
    rows, columns = design.shape
    if rows <= columns:
        return _failed_fit(design, "it has as many coefficients as records")
    if len(independent_columns(design, prior)) < columns:
        return _failed_fit(design, "its terms are collinear")
    if family == "linear":
        return _fit_linear(design, response, prior)
    return _reweight(design, response, prior, family)


def fit_logistic(design: Floats, share: Floats, trials: Floats) -> Fit:
    """Fit a logistic model of shares of trials whose columns are known to be independent."""
    return _reweight(design, share, trials, "logistic")


def _fit_linear(design: Floats, response: Floats, prior: Floats) -> Fit:
    inverse = _invert(design.T @ (design * prior[:, None]))
    if inverse is None:
        return _failed_fit(design, "its terms are collinear")
    coefficients = inverse @ (design.T @ (prior * response))
    residuals = response - design @ coefficients
    # One step of refinement: normal equations lose half of the digits.
    more = inverse @ (design.T @ (prior * residuals))
    coefficients, residuals = coefficients + more, residuals - design @ more
    degrees = len(response) - design.shape[1]
    variance = float(prior @ residuals**2) / degrees
    return Fit(
        coefficients=coefficients,
        errors=np.sqrt(variance * np.diag(inverse)),
        bread=inverse,
        scores=design * (prior * residuals)[:, None],
        fitted=design @ coefficients,
        degrees=degrees,
    )


def _reweight(design: Floats, response: Floats, prior: Floats, family: Family) -> Fit:
    mean = float(prior @ response / prior.sum())
    if family == "logistic" and not 0 < mean < 1:
        return _failed_fit(design, "its response is constant")
    if family == "poisson" and (mean <= 0 or (response < 0).any()):
        return _failed_fit(design, "its response is not a count")
    coefficients = np.zeros(design.shape[1])
    linear = np.full(len(response), np.log(mean / (1 - mean)) if family == "logistic" else np.log(mean))
    deviance, fitted = np.inf, _mean_of(linear, family)
    moved = 0.0
    for _ in range(_MOST_STEPS):
        spread = fitted * (1 - fitted) if family == "logistic" else fitted
        working = prior * np.maximum(spread, 1e-14)
        inverse = _invert(design.T @ (design * working[:, None]))
        if inverse is None:
            return _failed_fit(design, _describe_failure(family), fitted=fitted)
        target = linear + (response - fitted) / np.maximum(spread, 1e-14)
        proposed = inverse @ (design.T @ (working * target))
        last = linear
        coefficients, linear, fitted, now = _shorten(design, response, prior, family, coefficients, proposed, deviance)
        moved = float(np.abs(linear - last).max())
        if abs(deviance - now) <= _SETTLED * (abs(now) + 1e-3):
            break
        deviance = now
    if moved > _STILL:
        return _failed_fit(design, _describe_failure(family), fitted=fitted)
    spread = fitted * (1 - fitted) if family == "logistic" else fitted
    inverse = _invert(design.T @ (design * (prior * spread)[:, None]))
    if inverse is None:
        return _failed_fit(design, _describe_failure(family), fitted=fitted)
    return Fit(
        coefficients=coefficients,
        errors=np.sqrt(np.diag(inverse)),
        bread=inverse,
        scores=design * (prior * (response - fitted))[:, None],
        fitted=fitted,
        degrees=len(response) - design.shape[1],
    )


def _shorten(
    design: Floats,
    response: Floats,
    prior: Floats,
    family: Family,
    start: Floats,
    proposed: Floats,
    deviance: float,
) -> tuple[Floats, Floats, Floats, float]:
    """Return the proposed coefficients, or a point on the way to them where the fit is not worse."""
    step = 2 * (proposed - start)
    halvings = 0
    while True:
        step, halvings = step / 2, halvings + 1
        linear = design @ (start + step)
        fitted = _mean_of(linear, family)
        now = _deviance(response, fitted, prior, family)
        if now <= deviance * (1 + 1e-10) or not np.isfinite(deviance) or halvings == _MOST_HALVINGS:
            return start + step, linear, fitted, now


def _mean_of(linear: Floats, family: Family) -> Floats:
    return np.asarray(expit(linear) if family == "logistic" else np.exp(np.clip(linear, -700, 700)))


def _deviance(response: Floats, fitted: Floats, prior: Floats, family: Family) -> float:
    if family == "logistic":
        inside = np.clip(fitted, 1e-300, 1 - 1e-16)
        return float(-2 * prior @ (xlogy(response, inside) + xlogy(1 - response, 1 - inside)))
    return float(2 * prior @ (xlogy(response, response) - xlogy(response, fitted) - (response - fitted)))


def _invert(information: Floats) -> Floats | None:
    """Return the inverse of a positive definite matrix, scaled first; None if it has none."""
    scale = np.sqrt(np.diag(information))
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        return None
    try:
        factor = cho_factor(information / np.outer(scale, scale), check_finite=False)
    except LinAlgError:
        return None
    inverse = cho_solve(factor, np.eye(len(scale)), check_finite=False)
    return np.asarray(inverse / np.outer(scale, scale))


def _describe_failure(family: Family) -> str:
    return "its terms predict some responses without error" if family == "logistic" else "it does not converge"


def _failed_fit(design: Floats, problem: str, fitted: Floats | None = None) -> Fit:
    rows, columns = design.shape
    nothing = np.full(columns, np.nan)
    return Fit(
        coefficients=nothing,
        errors=nothing,
        bread=np.full((columns, columns), np.nan),
        scores=np.zeros((rows, columns)),
        fitted=np.full(rows, np.nan) if fitted is None else fitted,
        degrees=0,
        problem=problem,
    )
