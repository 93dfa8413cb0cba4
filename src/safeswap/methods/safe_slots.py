"""Occupied cells as slots, and the state in which the search for few changes moves records between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from safeswap.errors import SpecError
from safeswap.kernels.cells import MOST_CELLS
from safeswap.kernels.safe_journal import Ties
from safeswap.kernels.safe_state import State, link_all
from safeswap.kernels.types import Flags, Floats, Int32s, Int64s, Names

_DIRECT = 1 << 22  # possible cells up to which a slot is looked up instead of searched


@dataclass(frozen=True, eq=False, kw_only=True)
class TableCells:
    """The occupied cells of one table by the file's own codes."""

    names: Names
    sizes: tuple[int, ...]
    codes: Int64s
    counts: Int64s

    def small(self, tolerance: int) -> Int64s:
        """The codes of the cells below tolerance."""
        found: Int64s = self.codes[self.counts < tolerance]
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Slots:
    """The occupied cells of all tables by the search's own numbers of levels; see :class:`State` for the fields."""

    strides: Int64s
    keys: Int64s
    starts: Int64s
    direct: Int32s
    direct_starts: Int64s
    counts: Int64s


def slots_of(tables: Sequence[TableCells], variables: Names, levels: Sequence[Int64s]) -> Slots:
    """Number the cells of each table by ``levels[v]``, which gives the number of each code of variable v."""
    strides = np.zeros((len(tables), len(variables)), dtype=np.int64)
    keys: list[Int64s] = [np.zeros(0, dtype=np.int64)]
    counts: list[Int64s] = [np.zeros(0, dtype=np.int64)]
    direct: list[Int32s] = [np.zeros(0, dtype=np.int32)]
    direct_starts = []
    starts = [0]
    for t, table in enumerate(tables):
        places = [variables.index(name) for name in table.names]
        strides[t, places] = np.cumprod([1, *table.sizes[:0:-1]])[::-1]
        renamed = np.zeros(len(table.codes), dtype=np.int64)
        for v, index in zip(places, np.unravel_index(table.codes, table.sizes), strict=True):
            renamed += levels[v][index] * strides[t, v]
        order = np.argsort(renamed)
        keys.append(renamed[order])
        counts.append(table.counts[order])
        if prod(table.sizes) <= _DIRECT:
            lookup = np.full(prod(table.sizes), -1, dtype=np.int32)
            lookup[keys[-1]] = starts[-1] + np.arange(len(order))
            direct_starts.append(sum(map(len, direct)))
            direct.append(lookup)
        else:
            direct_starts.append(-1)
        starts.append(starts[-1] + len(order))
    return Slots(
        strides=strides,
        keys=np.concatenate(keys),
        starts=np.array(starts, dtype=np.int64),
        direct=np.concatenate(direct),
        direct_starts=np.array(direct_starts, dtype=np.int64),
        counts=np.concatenate(counts),
    )


def search_state(
    *,
    slots: Slots,
    codes: Int64s,
    levels: Sequence[int],
    steps: Sequence[float],
    fixed: Sequence[bool],
    noise: Floats,
    tolerance: int,
) -> State:
    """The state before any move: every record in the lists of its slots."""
    tables, records = len(slots.direct_starts), len(codes)
    state = State(
        codes=np.ascontiguousarray(codes, dtype=np.int32),
        original=np.ascontiguousarray(codes, dtype=np.int32).copy(),
        levels=np.array(levels, dtype=np.int64),
        steps=np.array(steps, dtype=np.float64),
        strides=slots.strides,
        keys=slots.keys,
        starts=slots.starts,
        direct=slots.direct,
        direct_starts=slots.direct_starts,
        counts=slots.counts.copy(),
        heads=np.full(len(slots.keys), -1, dtype=np.int32),
        links=np.full((tables, records, 3), -1, dtype=np.int32),
        fixed=np.array(fixed, dtype=np.bool_),
        noise=noise,
        tolerance=tolerance,
    )
    link_all(state)
    return state


def ties_of(keep: Sequence[Names], variables: Names, state: State) -> Ties:
    """What each variable in a kept margin is tied to, and who could be a partner."""
    number = len(variables)
    context: Flags = np.zeros((number, number), dtype=np.bool_)
    tied: Flags = np.zeros(number, dtype=np.bool_)
    for margin in keep:
        places = [variables.index(name) for name in margin]
        for v in places:
            tied[v] = not state.fixed[v]
            context[v, places] = True
    np.fill_diagonal(context, val=False)
    strides = np.zeros((number, number), dtype=np.int64)
    groups: list[Int64s] = [np.zeros(0, dtype=np.int64)]
    begins: list[Int64s] = [np.zeros(0, dtype=np.int64)]
    members: list[Int32s] = [np.zeros(0, dtype=np.int32)]
    group_starts = [0]
    for v in range(number):
        if tied[v]:
            strides[v] = _context_strides(context[v], state.levels, v, variables)
            packed = state.original[:, v] + state.original.astype(np.int64) @ strides[v]
            order = np.argsort(packed, kind="stable")
            distinct, first = np.unique(packed[order], return_index=True)
            groups.append(distinct)
            begins.append(first.astype(np.int64) + sum(map(len, members)))
            members.append(order.astype(np.int32))
        group_starts.append(sum(map(len, groups)))
    begins.append(np.array([sum(map(len, members))], dtype=np.int64))
    return Ties(
        tied=tied,
        context=context,
        strides=strides,
        group_starts=np.array(group_starts, dtype=np.int64),
        groups=np.concatenate(groups),
        begins=np.concatenate(begins),
        members=np.concatenate(members),
    )


def _context_strides(context: Flags, levels: Int64s, v: int, variables: Names) -> Int64s:
    strides = np.zeros(len(context), dtype=np.int64)
    stride = int(levels[v])
    for u in np.flatnonzero(context):
        if stride > MOST_CELLS:
            break
        strides[u] = stride
        stride *= int(levels[u])
    if stride > MOST_CELLS:
        raise SpecError(
            f"what is to be kept together with {variables[v]!r} has too many possible cells",
            code="too-many-cells",
            hint="keep smaller margins",
        )
    return strides
