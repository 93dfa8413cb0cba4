"""Prepare the search: count the cells of a file, and select the few records that may have to move.

These are all records in small cells, and as donors a keyed sample of the others. Levels are numbered by rank if they
are ordered and by the first draw otherwise, so that neither the order of rows nor the names of levels matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from safeswap.arrays import cells, keyed
from safeswap.arrays.cells import MOST_CELLS
from safeswap.arrays.compiled import njit
from safeswap.arrays.names import Names
from safeswap.arrays.types import Codes, Flags, Floats, Int32s, Int64s, Words
from safeswap.errors import InfeasibleError, SpecError
from safeswap.methods.safe.records.state import Lines, State, Ties, lines_of, link_all
from safeswap.methods.safe.spec import SafeSpec
from safeswap.model.columns import rank_of_code
from safeswap.model.key import Key
from safeswap.model.keyed_order import keyed_order
from safeswap.model.microdata import Microdata, record_identity
from safeswap.model.schema import Kind
from safeswap.model.table import check_table_names
from safeswap.model.text import list_names, plural

_RUN = 1 << 20
_TABLE = 1 << 26


def gather(
    columns: Sequence[Codes],
    sizes: Sequence[int],
    draws: Iterable[tuple[int, Words]],
    wanted: Flags,
    share: float,
) -> tuple[Int64s, list[Words]]:
    """Return the rows that are wanted or whose draw is among the lowest ``share``, and each level's lowest draw.

    >>> draws = [(0, np.array([9, 4, 1 << 63], dtype=np.uint64))]
    >>> rows, first = gather([np.array([1, 0, 1], np.uint8)], [2], draws, np.array([True, False, False]), 0.25)
    >>> rows.tolist(), first[0].tolist()
    ([0, 1], [4, 9])
    """
    threshold = np.uint64(min(int(share * 2.0**64), 2**64 - 1))
    first = [np.full(size, np.iinfo(np.uint64).max, dtype=np.uint64) for size in sizes]
    rows = []
    for start, values in draws:
        end = start + len(values)
        for column, lowest in zip(columns, first, strict=True):
            _lowest(column[start:end], values, lowest)
        rows.append(start + np.flatnonzero(wanted[start:end] | (values <= threshold)))
    return np.concatenate([np.zeros(0, dtype=np.int64), *rows]), first


def mark(packed: Codes, possible: int, small: Int64s, flags: Flags) -> None:
    """Flag the records whose cell is one of the ``small`` ones (ascending codes).

    >>> flags = np.zeros(3, dtype=np.bool_)
    >>> mark(np.array([4, 2, 7], np.uint8), 8, np.array([2, 7]), flags)
    >>> flags.tolist()
    [False, True, True]
    """
    if possible <= _TABLE:
        table = np.zeros(possible, dtype=np.bool_)
        table[small] = True
        _mark_by_table(packed, table, flags)
        return
    for start in range(0, len(packed), _RUN):
        part = packed[start : start + _RUN].astype(np.int64)
        place = np.minimum(np.searchsorted(small, part), len(small) - 1)
        flags[start : start + _RUN] |= small[place] == part


@njit(cache=True, nogil=True)
def _lowest(codes, draws, lowest):  # type: ignore[no-untyped-def]
    for i in range(codes.size):
        lowest[codes[i]] = min(lowest[codes[i]], draws[i])


@njit(cache=True, nogil=True)
def _mark_by_table(packed, table, flags):  # type: ignore[no-untyped-def]
    for i in range(packed.size):
        if table[packed[i]]:
            flags[i] = True


_DIRECT = 1 << 22  # possible cells up to which slots are looked up directly


@dataclass(frozen=True, eq=False, kw_only=True)
class TableCells:
    """The occupied cells of one table by the file's own codes."""

    names: Names
    sizes: tuple[int, ...]
    codes: Int64s
    counts: Int64s

    def small(self, tolerance: int) -> Int64s:
        """Return the codes of the cells below tolerance."""
        found: Int64s = self.codes[self.counts < tolerance]
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Slots:
    """The occupied cells of all tables by the search's own level numbers; see :class:`State` for the fields."""

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
    """Return the state before any move: every record in the lists of its slots."""
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
    """Return what each variable in a kept margin is tied to, and its possible partners."""
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


WHOLE_FILE = 300_000
"""Up to this many records all of them may move; above, those in small cells and about as many others as donors."""

_NOISE = 1 << 13


@dataclass(frozen=True, eq=False, kw_only=True)
class Ready:
    """The state of the search. ``rows[i]`` is the row of record i, ``own[v]`` the file's code of each level of v."""

    state: State
    ties: Ties
    lines: Lines
    rows: Int64s
    variables: Names
    own: tuple[Int64s, ...]
    whole: bool


def check_safe(data: Microdata, spec: SafeSpec) -> None:
    """Refuse attributes that cannot form a table, and tables or margins with too many possible cells."""
    for names in (*spec.tables, *spec.keep):
        check_table_names(data, names)
        _, sizes = data.coded_columns(names)
        if prod(sizes) > cells.MOST_CELLS:
            raise SpecError(
                f"the table by {list_names(names)} has more than 2**62 possible cells",
                code="too-many-cells",
                hint="recode attributes to fewer levels, or leave one out",
            )


def count_cells(data: Microdata, names: Names) -> TableCells:
    """Return the occupied cells of a table and their counts."""
    columns, sizes = data.coded_columns(names)
    counted = cells.count_cells(columns, sizes)
    return TableCells(
        names=names, sizes=tuple(sizes), codes=counted.codes.astype(np.int64), counts=counted.counts.astype(np.int64)
    )


def refuse_kept_small(data: Microdata, spec: SafeSpec, tables: list[TableCells]) -> None:
    """Refuse a kept margin that fixes a cell below tolerance: the table cannot become safe."""
    for table in tables:
        for margin in spec.keep:
            shared = tuple(name for name in table.names if name in margin)
            if not shared:
                continue
            small = int(count_cells(data, shared).small(spec.tolerance).size)
            if small:
                by = list_names(shared)
                raise InfeasibleError(
                    f"{plural(small, f'cell by {by} is', f'cells by {by} are')} below the tolerance "
                    f"{spec.tolerance}, and the kept margin by {list_names(margin)} fixes them: "
                    f"the table by {list_names(table.names)} cannot become safe",
                    code="margin-below-tolerance",
                    hint="keep coarser margins, or none; or recode attributes first so that kept margins are safe",
                    margin=list(margin),
                    table=list(table.names),
                    cells=small,
                )


def prepare_search(data: Microdata, spec: SafeSpec, tables: list[TableCells], *, key: Key, replicate: int) -> Ready:
    """Build everything that the search needs, in an order that only the key decides."""
    variables = (*spec.variables, *spec.context)
    identity = record_identity(data, keyed.derive(key.secret, "identity"))
    draw_key = keyed.derive(key.secret, "data", data.schema.name, len(data), "safe", "records", replicate)
    wanted = _in_small_cells(data, spec, tables)
    share = 1.0 if len(data) <= WHOLE_FILE else WHOLE_FILE / len(data)
    found, first = gather(
        [data.coded(name).codes for name in variables],
        [data.coded(name).cardinality for name in variables],
        keyed.draw_chunks(identity, draw_key),
        wanted,
        share,
    )
    rows = found[keyed_order(identity[found], draw_key)]
    levels = [_level_order(data, name, first[v]) for v, name in enumerate(variables)]
    noise_key = keyed.derive(key.secret, "data", data.schema.name, len(data), "safe", "equals", replicate)
    state = search_state(
        slots=slots_of(tables, variables, levels),
        codes=np.stack([levels[v][data.coded(n).codes[rows]] for v, n in enumerate(variables)], axis=1),
        levels=[len(each) for each in levels],
        steps=[_step(data, name) for name in variables],
        fixed=[name in spec.context for name in variables],
        noise=keyed.draws(keyed.integer_blocks(np.arange(_NOISE)), noise_key).astype(np.float64) * 2.0**-64,
        tolerance=spec.tolerance,
    )
    return Ready(
        state=state,
        ties=ties_of(spec.keep, variables, state),
        lines=lines_of(state),
        rows=rows,
        variables=variables,
        own=tuple(np.argsort(number) for number in levels),
        whole=len(rows) == len(data),
    )


def _step(data: Microdata, name: str) -> float:
    """Return the cost of one rank of an ordered attribute; the whole range costs as much as one nominal change."""
    ordered = data.schema[name].kind is Kind.ORDINAL
    return 1.0 / max(1, data.coded(name).cardinality - 1) if ordered else 0.0


def _in_small_cells(data: Microdata, spec: SafeSpec, tables: list[TableCells]) -> npt.NDArray[np.bool_]:
    flags = np.zeros(len(data), dtype=np.bool_)
    for table in tables:
        small = table.small(spec.tolerance)
        if small.size:
            columns, sizes = data.coded_columns(table.names)
            packed, possible = cells.pack(columns, sizes)
            mark(packed, possible, small, flags)
    return flags


def _level_order(data: Microdata, name: str, first: Words) -> Int64s:
    """Number the codes for the search: by rank if the attribute is ordinal, else by first draw."""
    size = data.coded(name).cardinality
    if data.schema[name].kind is Kind.ORDINAL:
        return rank_of_code(data, name)[:size]
    number = np.empty(size, dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(size)
    return number
