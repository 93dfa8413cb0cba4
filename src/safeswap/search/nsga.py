"""NSGA-II (Deb, Pratap, Agarwal & Meyarivan 2002) as pymoo implements it, over the candidates of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap.errors import EngineError
from safeswap.kernels.types import Rows
from safeswap.search.space import Space

Evaluate = Callable[[Rows], npt.NDArray[np.float64]]
"""Risk and distortion of each row; not numbers where a candidate cannot be made."""


def generations(space: Space, evaluate: Evaluate, *, population: int, seed: int) -> Iterator[None]:
    """Evolve for as long as the caller goes on: one generation per step, each evaluated through ``evaluate``."""
    try:
        from pymoo.algorithms.moo.nsga2 import NSGA2
    except ImportError:
        raise EngineError(
            "a search needs the package pymoo, which is not installed",
            code="extra-missing",
            hint='pip install "safeswap[search]"',
            extra="search",
        ) from None
    sampling, crossover, mutation, repair = _operators(space)
    algorithm = NSGA2(
        pop_size=population,
        sampling=sampling,
        crossover=crossover,
        mutation=mutation,
        repair=repair,
        eliminate_duplicates=True,
    )
    algorithm.setup(_problem(space, evaluate), seed=seed, termination=("n_gen", 1 << 60), verbose=False)
    while algorithm.has_next():
        algorithm.next()
        yield


def _problem(space: Space, evaluate: Evaluate) -> Any:
    from pymoo.core.problem import Problem

    class Candidates(Problem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(n_var=len(space.upper), n_obj=2, n_ieq_constr=1, xl=0, xu=space.upper, vtype=int)

        def _evaluate(self, x: Rows, out: dict[str, Any], *_: Any, **__: Any) -> None:
            figures = evaluate(x)
            rejected = np.isnan(figures[:, :1] + figures[:, 1:])
            out["F"] = np.where(rejected, 0.0, figures)
            out["G"] = rejected.astype(np.float64)

    return Candidates()


def _operators(space: Space) -> tuple[Any, Any, Any, Any]:
    from pymoo.core.mutation import Mutation
    from pymoo.core.repair import Repair
    from pymoo.core.sampling import Sampling
    from pymoo.operators.crossover.ux import UniformCrossover

    class Draw(Sampling):  # type: ignore[misc]
        def _do(self, _: Any, number: int, *__: Any, random_state: np.random.Generator, **___: Any) -> Rows:
            return space.random(number, random_state)

    class Change(Mutation):  # type: ignore[misc]
        def _do(self, _: Any, rows: Rows, *__: Any, random_state: np.random.Generator, **___: Any) -> Rows:
            return space.mutated(rows, random_state)

    class Canonical(Repair):  # type: ignore[misc]
        def _do(self, _: Any, rows: Rows, **__: Any) -> Rows:
            return space.canonical(rows)

    return Draw(), UniformCrossover(), Change(), Canonical()
