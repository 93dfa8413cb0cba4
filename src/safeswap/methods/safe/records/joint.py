"""Prove the fewest records: an integer programme over the cells of all variables together, for small files.

A record moves by one variable, or freely: out of its cell and into any other. Every cell of every table is 0 or at
least the tolerance, every kept margin is unchanged. A record costs more than all values and distances of the best known
changes, so the optimum has the fewest records; then values, then distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from safeswap.arrays.highs import Programme
from safeswap.arrays.types import Int32s, Int64s
from safeswap.errors import InfeasibleError
from safeswap.methods.safe.milp import solve_whole
from safeswap.methods.safe.records.setup import Ready
from safeswap.methods.safe.records.state import State
from safeswap.methods.safe.spec import SafeSpec
from safeswap.model.text import list_names

MOST_CELLS = 600
"""Combinations up to which fewer records are sought; eight times as many if the search found nothing."""

_NODES = 50  # unlike a time limit, independent of the machine
_VALUE, _FAR = 100, 20


def improve(found: Ready, spec: SafeSpec, *, safe: bool, fewest: int, seconds: float) -> tuple[bool, int]:
    """Replace the changes of the search by fewer ones, where possible.

    Return True if all is safe, and the number of records that must change at least (never below ``fewest``). If the
    search found nothing and the programme proves that nothing exists, raise.
    """
    made = int((found.state.codes != found.state.original).any(axis=1).sum())
    if (safe and made <= fewest) or spec.search == "quick" or not found.whole or not found.state.strides.size:
        return safe, fewest
    if seconds <= 0:
        return safe, fewest
    joint = _build_joint(found.state, MOST_CELLS if safe else 8 * MOST_CELLS)
    if joint is None:
        return safe, fewest
    status, moves, bound = _solve_joint(joint, found, spec, most=made if safe else len(found.rows), seconds=seconds)
    if status == "infeasible" and not safe:
        raise _infeasible_error(spec)
    if moves is None:
        return safe, max(fewest, bound)
    codes = _assign_moves(joint, found.state, moves)
    if not safe or _cost_of(found.state, codes) < _cost_of(found.state, found.state.codes):
        found.state.codes[:] = codes
    return True, max(fewest, bound)


def _infeasible_error(spec: SafeSpec) -> InfeasibleError:
    kept = "; ".join(map(list_names, spec.keep))
    return InfeasibleError(
        f"no change of records makes every cell 0 or at least {spec.tolerance}"
        + (f" while the margins by {kept} stay exact" if kept else ""),
        code="no-safe-records",
        hint="keep fewer margins, lower the tolerance, or omit a table",
        kept=[list(names) for names in spec.keep],
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Joint:
    """All cells of the variables: every combination of those that change, the occurring ones of the others."""

    levels: Int64s  # cell × variable
    counts: Int64s
    place: Int64s  # the cell of each record
    context: Int64s  # by cell: the group within which records stay


@dataclass(frozen=True, eq=False, kw_only=True)
class _Chosen:
    """Moves by one variable as (from, to, number), and free ones as numbers out of and into each cell."""

    single: Int64s
    out: Int64s
    into: Int64s


def _build_joint(state: State, most: int) -> _Joint | None:
    free = np.flatnonzero(~state.fixed)
    fixed = np.flatnonzero(state.fixed)
    used = [np.unique(state.original[:, v]) for v in free]
    contexts, group = np.unique(state.original[:, fixed], axis=0, return_inverse=True)
    combinations = int(np.prod([len(each) for each in used], dtype=np.float64).clip(0, 1e9))
    if combinations * len(contexts) > most:
        return None
    grid = np.stack(np.meshgrid(*used, indexing="ij"), axis=-1).reshape(-1, len(free))
    levels = np.zeros((len(contexts) * len(grid), state.levels.size), dtype=np.int64)
    levels[:, free] = np.tile(grid, (len(contexts), 1))
    levels[:, fixed] = np.repeat(contexts, len(grid), axis=0)
    index = [np.searchsorted(each, state.original[:, v]) for each, v in zip(used, free, strict=True)]
    place = np.ravel_multi_index(index, [len(each) for each in used]) + group.ravel() * len(grid)
    return _Joint(
        levels=levels,
        counts=np.bincount(place, minlength=len(levels)),
        place=place.astype(np.int64),
        context=np.repeat(np.arange(len(contexts)), len(grid)),
    )


def _single_moves(joint: _Joint, state: State) -> tuple[Int64s, Int64s, Int64s]:
    """Return all moves from an occupied cell to one that differs in one variable: from, to, cost."""
    occupied = np.flatnonzero(joint.counts)
    starts, ends, costs = [], [], []
    for j in occupied:
        same = joint.context == joint.context[j]
        differs = joint.levels != joint.levels[j]
        near = np.flatnonzero(same & (differs.sum(axis=1) == 1))
        starts.append(np.full(len(near), j))
        ends.append(near)
        costs.append(_VALUE + _distances(joint.levels[near], joint.levels[j], state))
    return np.concatenate(starts), np.concatenate(ends), np.concatenate(costs)


def _distances(levels: Int64s, others: Int64s, state: State) -> Int64s:
    apart = np.abs(levels - others)
    steps = np.where(state.steps > 0, state.steps * apart, apart > 0)
    far: Int64s = np.rint(_FAR * steps.sum(axis=-1)).astype(np.int64)
    return far


def _solve_joint(
    joint: _Joint, found: Ready, spec: SafeSpec, *, most: int, seconds: float
) -> tuple[str, _Chosen | None, int]:
    state, cells = found.state, len(joint.counts)
    start, end, cost = _single_moves(joint, state)
    occupied = np.flatnonzero(joint.counts)
    outs, ins = np.arange(len(occupied)), np.arange(cells)
    first_out, first_in = len(start), len(start) + len(occupied)
    effect = sparse.coo_matrix(
        (
            np.concatenate([np.ones(len(end)), -np.ones(len(start)), -np.ones(len(occupied)), np.ones(cells)]),
            (
                np.concatenate([end, start, occupied, np.arange(cells)]),
                np.concatenate([np.arange(len(end)), np.arange(len(start)), first_out + outs, first_in + ins]),
            ),
        ),
        shape=(cells, first_in + cells),
    ).tocsr()
    sums, totals = _table_sums(joint, state)
    kept = _kept_sums(joint, found, spec)
    after = sums @ effect
    free = np.flatnonzero((totals > 0) & (totals < state.tolerance + most) | (totals == 0) & (most >= state.tolerance))
    shut = np.flatnonzero((totals == 0) & (most < state.tolerance))
    b = sparse.identity(len(free))
    leaving = sparse.coo_matrix(
        (np.ones(len(start) + len(occupied)), (
            np.concatenate([start, occupied]), np.concatenate([np.arange(len(start)), first_out + outs])
        )),
        shape=(cells, first_in + cells),
    ).tocsr()[occupied]  # fmt: skip
    balance = sparse.vstack([kept, _indicator(joint.context)]) @ effect
    wide = sparse.csr_matrix((0, len(free)))
    rows = sparse.vstack([
        sparse.hstack([after[free], -state.tolerance * b]),
        sparse.hstack([after[free], -sparse.diags((totals[free] + most).astype(np.float64))]),
        sparse.hstack([after[shut], _zeros(len(shut), wide)]),
        sparse.hstack([leaving, _zeros(len(occupied), wide)]),
        sparse.hstack([balance, _zeros(balance.shape[0], wide)]),
    ])  # fmt: skip
    infinite, zero = np.full(len(free), np.inf), np.zeros(balance.shape[0])
    lower = np.concatenate([-totals[free], -infinite, np.zeros(len(shut)), np.full(len(occupied), -np.inf), zero])
    upper = np.concatenate([infinite, -totals[free], np.zeros(len(shut)), joint.counts[occupied], zero])
    cost = np.concatenate([cost, np.full(len(occupied), 2 * (_VALUE + _FAR))])
    record = most * int(cost.max(initial=0)) + 1
    price = np.concatenate([record + cost, np.zeros(cells + len(free))])
    upmost = np.concatenate([joint.counts[start], joint.counts[occupied], np.full(cells, most), np.ones(len(free))])
    programme = Programme(costs=price, upper=upmost, matrix=rows, low=lower, high=upper)
    status, values, bound = solve_whole(programme, time_limit=seconds, most_nodes=_NODES)
    # A cost cap per record turns the bound into a number of records; the bound's last digits are inexact.
    fewest = int(np.ceil(bound / (record + cost.max(initial=0)) - 1e-6)) if np.isfinite(bound) else 0
    if values is None:
        return status, None, fewest
    whole = values.astype(np.int64)
    out = np.zeros(cells, dtype=np.int64)
    out[occupied] = whole[first_out:first_in]
    single = np.stack([start, end, whole[: len(start)]], axis=1)
    into = whole[first_in : first_in + cells]
    return status, _Chosen(single=single[single[:, 2] > 0], out=out, into=into), fewest


def _zeros(rows: int, wide: sparse.csr_matrix) -> sparse.csr_matrix:
    return sparse.csr_matrix((rows, wide.shape[1]))


def _indicator(groups: Int64s) -> sparse.csr_matrix:
    """Return the matrix that sums the cells of each group, a row per group."""
    return sparse.csr_matrix((np.ones(len(groups)), (groups, np.arange(len(groups)))))


def _table_sums(joint: _Joint, state: State) -> tuple[sparse.csr_matrix, Int64s]:
    """Return a row for every cell of every table that summed cells can give, and its count."""
    blocks = []
    for strides in state.strides:
        _, cell = np.unique(joint.levels @ strides, return_inverse=True)
        blocks.append(_indicator(cell.ravel()))
    sums = sparse.vstack(blocks).tocsr()
    return sums, np.rint(sums @ joint.counts).astype(np.int64)


def _kept_sums(joint: _Joint, found: Ready, spec: SafeSpec) -> sparse.csr_matrix:
    blocks = [sparse.csr_matrix((0, len(joint.counts)))]
    for margin in spec.keep:
        places = [found.variables.index(name) for name in margin]
        _, cell = np.unique(joint.levels[:, places], axis=0, return_inverse=True)
        blocks.append(_indicator(cell.ravel()))
    return sparse.vstack(blocks).tocsr()


def _cost_of(state: State, codes: Int32s) -> tuple[int, int]:
    """Return the number of changed records, and the cost of their values and distances."""
    differs = codes != state.original
    moved = differs.any(axis=1)
    far = _distances(codes[moved].astype(np.int64), state.original[moved].astype(np.int64), state)
    return int(moved.sum()), int(_VALUE * differs.sum() + far.sum())


def _assign_moves(joint: _Joint, state: State, chosen: _Chosen) -> Int32s:
    """Assign the moves to records: in each cell to those with the lowest draws, which come first."""
    from scipy.optimize import linear_sum_assignment  # half a second, which no other method should wait for

    codes = state.original.copy()
    order = np.argsort(joint.place, kind="stable")
    first = np.searchsorted(joint.place[order], np.arange(len(joint.counts)))
    taken = np.zeros(len(joint.counts), dtype=np.int64)

    def take(cell: int, number: int) -> Int64s:
        begin = first[cell] + taken[cell]
        taken[cell] += number
        return np.asarray(order[begin : begin + number])

    for start, end, number in chosen.single:
        codes[take(int(start), int(number))] = joint.levels[end]
    for context in np.unique(joint.context[chosen.out > 0]):
        here = joint.context == context
        leaving = [take(int(cell), int(chosen.out[cell])) for cell in np.flatnonzero(here & (chosen.out > 0))]
        records = np.concatenate(leaving)
        targets = np.repeat(np.flatnonzero(here), chosen.into[here])
        old, new = state.original[records].astype(np.int64)[:, None], joint.levels[targets][None]
        cost = _VALUE * (old != new).sum(axis=-1) + _distances(new, old, state)
        one, other = linear_sum_assignment(cost)
        codes[records[one]] = joint.levels[targets[other]]
    return codes
