"""Search a study that is too large to enumerate: evolve candidates towards the frontier within a budget.

The result is a study of the evaluated candidates. The search path is drawn from the secret key, so the same key, data
and budget give the same candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from safeswap import registry
from safeswap.arrays import keyed
from safeswap.arrays.names import Names
from safeswap.arrays.types import Rows
from safeswap.errors import EngineError, SpecError
from safeswap.measures.base import to_comparable
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.study import ConstraintSet, Figures, StudySpec
from safeswap.model.text import plural
from safeswap.studies.evaluate import Evaluator, FixedSteps, Group, measure_frontier, study_of
from safeswap.studies.run import (
    MOST_CANDIDATES,
    BlockRunner,
    CheckpointDirectory,
    Progress,
    SavedBlocks,
    check,
    other_group,
    run_study,
    study_digest,
    swap_attributes,
    swap_group,
)
from safeswap.studies.study import Study


@dataclass(frozen=True)
class Space:
    """The candidates of a study as rows of integers, which a search can recombine.

    A row has ``up_to`` places for attributes (0: none), then the constraint set, then the rate. In canonical form the
    attributes ascend, none occurs twice and none is constrained: only equal rows mean the same candidate.

    >>> space = Space(StudySpec(up_to=3, rates=(0.01, 0.1)), ("A", "B", "C"))
    >>> space.canonical(np.array([[3, 1, 3, 0, 1]])).tolist()
    [[1, 3, 0, 0, 1]]
    >>> space.candidate(np.array([1, 3, 0, 0, 1]))[0]
    ('A', 'C')
    """

    study: StudySpec
    names: Names

    @property
    def places(self) -> int:
        """The number of places for attributes in a row."""
        return min(self.study.up_to, len(self.names))

    @property
    def upper(self) -> Rows:
        """The largest value in each place."""
        last = [len(self.study.constraints) - 1, len(self.study.rates) - 1]
        return np.array([len(self.names)] * self.places + last, dtype=np.int64)

    @property
    def size(self) -> int:
        """The number of candidates, not counting replicates."""
        return self.study.number_of_groups(self.names) * len(self.study.rates)

    def candidate(self, row: Rows) -> tuple[Names, ConstraintSet, float]:
        """Return the swap attributes, the constraints and the rate of a canonical row."""
        names = tuple(self.names[place - 1] for place in row[: self.places] if place > 0)
        return names, self.study.constraints[row[-2]], self.study.rates[row[-1]]

    def random(self, number: int, generator: np.random.Generator) -> Rows:
        """Draw rows, each number of attributes with equal probability, since good candidates often swap few."""
        rows = generator.integers(0, self.upper + 1, size=(number, len(self.upper)))
        sizes = generator.integers(1, self.places + 1, size=number)
        for row, size in zip(rows, sizes, strict=True):
            row[: self.places] = 0
            row[:size] = generator.choice(len(self.names), size, replace=False) + 1
        return self.canonical(rows)

    def mutate(self, rows: Rows, generator: np.random.Generator) -> Rows:
        """Redraw one place per row on average; a rate moves to a neighbouring one."""
        fresh = generator.integers(0, self.upper + 1, size=rows.shape)
        steps = generator.choice(np.array([-1, 1]), size=len(rows))
        fresh[:, -1] = np.clip(rows[:, -1] + steps, 0, self.upper[-1])
        return self.canonical(np.where(generator.random(rows.shape) < 1 / rows.shape[1], fresh, rows))

    def canonical(self, rows: Rows) -> Rows:
        """Return the canonical form of each row. A row without an attribute gets one."""
        result = np.array(rows, dtype=np.int64)
        for row in result:
            free = self._free(int(row[-2]))
            kept = sorted(set(row[: self.places].tolist()) & set(free)) or [free[int(row.sum()) % len(free)]]
            row[: self.places] = 0
            row[: len(kept)] = kept
        return result

    def _free(self, constraint: int) -> list[int]:
        constrained = {*self.study.constraints[constraint].fixed, *self.study.constraints[constraint].differ}
        return [place + 1 for place, name in enumerate(self.names) if name not in constrained]


Evaluate = Callable[[Rows], npt.NDArray[np.float64]]
"""Returns risk and distortion of each row; NaN for infeasible candidates."""


def evolve(space: Space, evaluate: Evaluate, *, population: int, seed: int) -> Iterator[None]:
    """Evolve by NSGA-II (Deb, Pratap, Agarwal & Meyarivan 2002, as in pymoo), one generation per iteration."""
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
            return space.mutate(rows, random_state)

    class Canonical(Repair):  # type: ignore[misc]
        def _do(self, _: Any, rows: Rows, **__: Any) -> Rows:
            return space.canonical(rows)

    return Draw(), UniformCrossover(), Change(), Canonical()


_STALE = 20  # after this many generations without a new candidate the rest of the budget is drawn at random


def search_study(
    data: Microdata,
    study: StudySpec,
    *,
    key: Key,
    budget: int,
    progress: Progress | None = None,
    checkpoint: CheckpointDirectory | None = None,
    threads: int | None = None,
) -> Study:
    """Study at most ``budget`` specifications, chosen by NSGA-II; all of them if there are no more.

    >>> from safeswap import datasets
    >>> found = search_study(datasets.cps8d(), StudySpec(up_to=4), key=Key.insecure(seed=1), budget=60)
    >>> len(found), found.facts["search"]["possible"]
    (60, 486)
    """
    fixed = FixedSteps.of(data, study, key)
    base = data if fixed is None else fixed.data
    checked = check(base, study, None if fixed is None else data)
    space = Space(study, swap_attributes(base, study))
    _check_budget(budget, study)
    stated = list(study.stated())
    if space.size + len(stated) <= budget:
        return run_study(data, study, key=key, progress=progress, checkpoint=checkpoint, threads=threads)
    measures = list(checked.measures.values())
    evaluator = Evaluator(base, study, key, candidates=budget * study.replicates, measures=measures, fixed=fixed)
    saved = SavedBlocks(checkpoint, study_digest(data, study, key, f"search {budget}")) if checkpoint else None
    seen = _Seen(BlockRunner(evaluator, saved, threads=threads), budget, progress)
    seen.add([other_group(values, label) for values, label in stated])
    _evolve(space, seen, key)
    found = measure_frontier(study_of(study, evaluator, seen.groups, seen.figures(), checked.before), evaluator)
    summary = {"method": "NSGA-II (pymoo)", "budget": budget, "evaluated": len(seen.groups), "possible": space.size}
    return replace(found, facts={**found.facts, "search": summary})


def _evolve(space: Space, seen: _Seen, key: Key) -> None:
    population = int(np.clip(seen.budget // 15, 20, 100))
    # The path is not secret, but it must not reveal a small seed.
    seed = int.from_bytes(keyed.derive(key.secret, "study", "search"), "big")
    known: dict[tuple[int, ...], int] = {}
    stated = len(seen.groups)

    def evaluate(rows: Rows) -> npt.NDArray[np.float64]:
        """Return the mean scores of each row; NaN for rows beyond the budget."""
        new = [row for row in dict.fromkeys(map(tuple, rows.tolist())) if row not in known][: seen.left]
        for row in new:
            known[row] = len(known) + stated
        chosen = (space.candidate(np.array(row)) for row in new)
        seen.add([swap_group(space.study, names, constraint, (rate,)) for names, constraint, rate in chosen])
        means = np.array(seen.means)
        return np.array([means[known[row]] if row in known else (np.nan, np.nan) for row in map(tuple, rows.tolist())])

    stale = 0
    steps = evolve(space, evaluate, population=population, seed=seed)
    while seen.left and stale < _STALE:
        before = seen.left
        next(steps)
        stale = stale + 1 if seen.left == before else 0
    generator = np.random.default_rng(seed)
    while seen.left:
        evaluate(space.random(max(100, seen.left), generator))


class _Seen:
    """The specifications evaluated so far, in batches."""

    def __init__(self, runner: BlockRunner, budget: int, progress: Progress | None) -> None:
        self.budget = budget
        self.groups: list[Group] = []
        self.means: list[tuple[float, float]] = []
        self._batches: list[Figures] = []
        self._runner = runner
        self._study = runner.evaluator.study
        self._progress = progress

    @property
    def left(self) -> int:
        """The number of specifications left in the budget."""
        return self.budget - len(self.groups)

    def add(self, groups: list[Group]) -> None:
        """Evaluate groups of one specification each, in every replicate."""
        if not groups:
            return
        study, replicates = self._study, self._study.replicates
        figures = self._runner.evaluate(groups)
        axes = study.risk[0], study.distortion[0]
        values = [to_comparable(registry.measure(name), figures.scores[:, study.measures.index(name)]) for name in axes]
        scores = np.stack(values, axis=1).reshape(replicates, len(groups), 2)
        made = (~np.isnan(scores[:, :, 0])).sum(axis=0)
        sums = np.where(np.isnan(scores), 0.0, scores).sum(axis=0)
        means = np.divide(sums, made[:, None], out=np.full(sums.shape, np.nan), where=made[:, None] > 0)
        self.groups += groups
        self.means += [(float(y), float(x)) for y, x in means]
        self._batches.append(figures)
        if self._progress:
            self._progress(len(self.groups) * replicates, self.budget * replicates)

    def figures(self) -> Figures:
        """Return all scores, replicate after replicate."""
        replicates = self._study.replicates
        sizes = [len(batch) // replicates for batch in self._batches]
        starts = np.cumsum([0, *(len(batch) for batch in self._batches)])
        order = [
            np.arange(start + r * size, start + (r + 1) * size)
            for r in range(replicates)
            for start, size in zip(starts[:-1], sizes, strict=True)
        ]
        return Figures.joined(self._batches).rows(np.concatenate(order))


def _check_budget(budget: int, study: StudySpec) -> None:
    least = sum(1 for _ in study.stated()) + 20
    if budget < least or budget * study.replicates > MOST_CANDIDATES:
        raise SpecError(
            f"a search cannot have a budget of {plural(budget, 'specification')} × "
            f"{plural(study.replicates, 'replicate')}",
            code="bad-budget",
            hint=f"at least {plural(least, 'specification')}, and at most {MOST_CANDIDATES:,} candidates in all",
        )
