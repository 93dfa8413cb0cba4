"""Find the cheapest blanks that make a file safe: a greedy answer, then integer programmes, with a bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import monotonic

import numpy as np
import numpy.typing as npt

from safeswap.arrays.combinations import cell_ranks, decode_mask
from safeswap.arrays.highs import Programme, Solved, solve
from safeswap.arrays.types import Floats, Int64s
from safeswap.methods.suppress.greedy import greedy, repair, too_many_to_sweep
from safeswap.methods.suppress.problem import (
    NOTHING,
    Blanking,
    Problem,
    apply_blanking,
    gather,
    least_masks,
    restore_needless,
    unsafe_classes,
)
from safeswap.methods.suppress.programme import BlankingProgramme, build, neighbours

_SLACK = 1.0  # in units of the cheapest key
_MOST_ROUNDS = 20
_ROUGHLY = 0.003
_LARGE = 10_000  # columns; larger parts are solved to optimality only once no more classes will join
_MOST_IN_GROUPS = 3_000  # classes; if more are unsafe, only those that pay more than the least take part
_SMALL = 4_000
"""Up to this many choices all classes and all sets of keys take part, and the programme is the whole problem."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """Blanks that leave nothing unsafe, their cost, a lower bound of any answer, and the greedy cost."""

    blanking: Blanking
    cost: float
    bound: float
    greedy_cost: float

    @property
    def gap(self) -> float:
        """The share of the cost that could still be saved."""
        return max(0.0, (self.cost - self.bound) / self.cost) if self.cost > 0 else 0.0


def blank_least(problem: Problem, *, seconds: float, gap: float = 0.0, exact: bool = True) -> Answer:
    """Return the cheapest answer, or nearly so, as far as time allows; the bound is always proved.

    The problem must be feasible, with meaning ``none`` or ``own``.
    """
    end = monotonic() + seconds
    unsafe = np.flatnonzero(unsafe_classes(problem, problem.classes))
    if not unsafe.size:
        return Answer(blanking=NOTHING, cost=0.0, bound=0.0, greedy_cost=0.0)
    least = least_masks(problem, unsafe)[1]
    bound = round_up(float(least @ problem.members[unsafe]), problem.costs)
    first = greedy(problem, end=end)
    search = _Search(problem, first, bound, unsafe, end, gap)
    if exact and not too_many_to_sweep(problem):
        search.run()
    best = restore_needless(problem, search.best) if problem.meaning == "none" else search.best
    return Answer(blanking=best, cost=best.cost(problem), bound=search.bound, greedy_cost=first.cost(problem))


def solve_blanks(programme: Programme, *, seconds: float, gap: float, start: Floats | None = None) -> Solved:
    """Return the cheapest blanks found in time, and a bound of their cost that is 0 if nothing better is proved."""
    found = solve(programme, seconds=seconds, gap=gap, start=start, settings={"random_seed": 1})
    # An infinite bound would only say that a restricted programme has no solution.
    return replace(found, bound=max(0.0, found.bound) if np.isfinite(found.bound) else 0.0)


def round_up(bound: float, costs: Floats) -> float:
    """Round a bound up to a whole number if all costs are whole."""
    return float(np.ceil(bound - 1e-6)) if (costs == np.round(costs)).all() else bound


class _Search:
    """The best answer and the best bound so far."""

    def __init__(self, problem: Problem, first: Blanking, bound: float, unsafe: Int64s, end: float, gap: float) -> None:
        self.problem = problem
        self.best = first
        self.bound = bound
        self.unsafe = unsafe
        self.end = end
        self.gap = gap
        self._roughly = max(gap, _ROUGHLY)
        self._known: dict[bytes, Solved] = {}

    @property
    def is_done(self) -> bool:
        """True if the answer is good enough, or the time is over."""
        cost = self.best.cost(self.problem)
        return cost - self.bound <= self.gap * cost + 1e-9 or monotonic() >= self.end

    def run(self) -> None:
        """Solve for the participating classes, add those that became unsafe, and repeat until there are none."""
        taking_part, first_slack = self._start()
        slack = np.full(self.problem.members.size, first_slack)
        for _ in range(_MOST_ROUNDS):
            if self.is_done or not taking_part.size:
                return
            built = build(self.problem, taking_part, slack=slack[taking_part])
            values, bound, left = self._solve_parts(built)
            self._raise_bound(bound, np.setdiff1d(taking_part, left))
            chosen, lacking = self._read_choice(built, values, taking_part)
            found, source, masks = apply_blanking(self.problem, chosen)
            wrong = unsafe_classes(self.problem, found)
            self._offer(chosen, is_safe=not wrong.any())
            fresh = np.setdiff1d(np.append(source[wrong & (masks == 0)], lacking), taking_part)
            escaped = built.escapes[(built.escapes >= 0) & (values > 0)]
            if not fresh.size:
                if not escaped.size and self._roughly <= self.gap:
                    return
                self._roughly = self.gap  # no more classes will join: exactness now pays
                slack[escaped] += float(self.problem.costs.min())
            taking_part = np.union1d(taking_part, fresh)

    def _start(self) -> tuple[Int64s, float]:
        everybody = np.arange(self.problem.members.size)
        if everybody.size * self.problem.candidates.size <= _SMALL:
            return everybody, float(self.problem.costs.sum())
        cheapest = float(self.problem.costs.min())
        if self.problem.meaning == "none":
            return np.union1d(self.unsafe, neighbours(self.problem, self.unsafe)), _SLACK * cheapest
        if len(self.problem.combinations) > 1:
            # An escape could fill a cell of another combination, which would prove nothing.
            return NOTHING.classes, 0.0
        taking_part = self.unsafe if self.unsafe.size <= _MOST_IN_GROUPS else self._find_paying_more()
        return taking_part, (1 + _SLACK) * cheapest

    def _find_paying_more(self) -> Int64s:
        """Return the unsafe classes that need more than the cheapest key, or pay more than they would alone."""
        least = least_masks(self.problem, self.unsafe)[1]
        paid = np.bincount(
            self.best.classes, self.problem.cost(self.best.masks) * self.best.numbers, self.problem.members.size
        )[self.unsafe]
        more: Int64s = self.unsafe[
            (least > self.problem.costs.min()) | (paid > least * self.problem.members[self.unsafe])
        ]
        return more

    def _solve_parts(self, built: BlankingProgramme) -> tuple[Floats, float, Int64s]:
        """Return the values of all columns, the sum of the parts' bounds, and the classes for which time ran out."""
        whole = built.programme
        values, bound = np.zeros(whole.costs.size), 0.0
        guess = self._guess(built)
        sizes = np.bincount(built.component)
        columns, rows = (_by_part(numbers, sizes.size) for numbers in (built.component, built.row_component))
        parts = np.argsort(sizes, kind="stable").tolist()
        while parts and monotonic() < self.end:
            part = parts.pop(0)
            solved = self._solve_part(_cut(whole, rows[part], columns[part]), guess[columns[part]])
            bound += solved.bound
            if solved.values is not None:
                values[columns[part]] = solved.values
        left = built.classes[np.isin(built.component, parts)]
        return values, bound, np.unique(left[left >= 0])

    def _solve_part(self, part: Programme, guess: Floats) -> Solved:
        if part.matrix.shape[0] == 1:  # an isolated class: its cheapest choice
            cheapest = int(part.costs.argmin())
            values = np.zeros(part.costs.size)
            values[cheapest] = part.low[0]
            cost = float(part.costs @ values)
            return Solved(status="optimal", values=values, cost=cost, bound=cost)
        name = _name(part)
        gap = self._roughly if part.costs.size > _LARGE else self.gap
        known = self._known.get(name)
        if known is None or known.cost - known.bound > gap * known.cost + 1e-6:
            self._known[name] = solve_blanks(part, seconds=max(0.1, self.end - monotonic()), gap=gap, start=guess)
        return self._known[name]

    def _guess(self, built: BlankingProgramme) -> Floats:
        """Express the best answer as values of the choices; NaN for classes whose choice is not among them."""
        width = len(self.problem.costs)
        names = np.where(built.classes >= 0, (built.classes << width) | built.masks, -1)
        order = np.argsort(names, kind="stable")
        left = self.problem.members - np.bincount(
            self.best.classes, self.best.numbers, self.problem.members.size
        ).astype(np.int64)
        stay = np.flatnonzero(left)
        classes = np.concatenate([self.best.classes, stay])
        wanted = (classes << width) | np.concatenate([self.best.masks, np.zeros(stay.size, np.int64)])
        numbers = np.concatenate([self.best.numbers, left[stay]])
        place = np.minimum(np.searchsorted(names[order], wanted), names.size - 1)
        known = names[order[place]] == wanted
        values = np.where(built.classes >= 0, 0.0, np.nan)
        values[order[place[known]]] = numbers[known]
        values[np.isin(built.classes, classes[~known])] = np.nan
        return values

    def _raise_bound(self, bound: float, taking_part: Int64s) -> None:
        rest = np.setdiff1d(self.unsafe, taking_part)
        if rest.size:
            bound += float(least_masks(self.problem, rest)[1] @ self.problem.members[rest])
        self.bound = max(self.bound, round_up(bound, self.problem.costs))

    def _read_choice(self, built: BlankingProgramme, values: Floats, taking_part: Int64s) -> tuple[Blanking, Int64s]:
        """Return the chosen blanks (or the best known ones), and the classes that could not be called."""
        some = (built.classes >= 0) & (values > 0)
        numbers = np.bincount(built.classes[some], values[some], self.problem.members.size)
        open_ = np.isin(self.best.classes, taking_part[numbers[taking_part] == 0])
        # The repair finds outside records that must blank something anyway, at no cost where possible.
        alone = np.isin(self.unsafe, taking_part).all()
        open_ |= ~np.isin(self.best.classes, taking_part) & (not alone)
        calling = (built.donors >= 0) & (values > 0) & alone
        donors, lacking = recruit(
            self.problem, taking_part, built.donors[calling], built.masks[calling], values[calling].astype(np.int64)
        )
        blanks = gather(
            np.concatenate([built.classes[some], self.best.classes[open_], donors.classes]),
            np.concatenate([built.masks[some], self.best.masks[open_], donors.masks]),
            np.concatenate([values[some], self.best.numbers[open_], donors.numbers]).astype(np.int64),
        )
        return blanks, lacking

    def _offer(self, chosen: Blanking, *, is_safe: bool) -> None:
        """Keep an answer if it is safe, or can be repaired, and costs less."""
        if not is_safe:
            chosen = repair(self.problem, chosen, end=self.end)
        if chosen.cost(self.problem) < self.best.cost(self.problem) - 1e-9:
            self.best = chosen


def recruit(
    problem: Problem, taking_part: Int64s, callers: Int64s, masks: Int64s, wanted: Int64s
) -> tuple[Blanking, Int64s]:
    """Call outside records into the cells of the callers, with some keys blanked.

    They come from the classes that can spare most; fewer may come than wanted. Also return the classes that would have
    had to give more than they can spare.
    """
    keeps = int(np.ceil(max(problem.needed) / float(problem.unit.mean())))
    spare = np.maximum(0, problem.members - keeps)
    spare[taking_part] = -1
    found, lacking = [], [np.empty(0, np.int64)]
    for mask in np.unique(masks):
        left = problem.combinations[0][0] & ~int(mask)
        ranks, _ = cell_ranks(problem.classes, decode_mask(left)) if left else (np.zeros(spare.size, np.uint32), 1)
        able = np.flatnonzero(spare >= 0)
        able = able[np.lexsort((able, -spare[able], ranks[able]))]
        for i in np.flatnonzero(masks == mask):
            first, last = (np.searchsorted(ranks[able], ranks[callers[i]], side=side) for side in ("left", "right"))
            open_ = int(wanted[i])
            for c in able[first:last]:
                number = min(open_, int(spare[c]))
                spare[c] -= number
                open_ -= number
                found.append((c, mask, number))
                if not open_:
                    break
            else:
                lacking.append(able[first:last])
    table = np.array(found, np.int64).reshape(-1, 3)
    return gather(table[:, 0], table[:, 1], table[:, 2]), np.unique(np.concatenate(lacking))


def _by_part(numbers: Int64s, parts: int) -> list[Int64s]:
    """Return the positions that belong to each part, in order."""
    ends = np.cumsum(np.bincount(numbers, minlength=parts))[:-1]
    return np.split(np.argsort(numbers, kind="stable"), ends)


def _cut(whole: Programme, rows: Int64s, columns: Int64s) -> Programme:
    return Programme(
        costs=whole.costs[columns],
        upper=whole.upper[columns],
        matrix=whole.matrix[rows][:, columns],
        low=whole.low[rows],
        high=whole.high[rows],
    )


def _name(part: Programme) -> bytes:
    """Return a key that equal programmes share."""
    from hashlib import blake2b

    digest = blake2b(digest_size=16)
    arrays: list[npt.NDArray[np.generic]] = [part.costs, part.upper, part.low, part.high]
    for array in (*arrays, part.matrix.indptr, part.matrix.indices, part.matrix.data):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()
