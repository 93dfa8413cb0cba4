"""SAFE on microdata: change the fewest records so that every table of a programme is safe in the one file.

Sources: Moore 1996, section V, which describes SAFE's tables and considered records that tabulate to them infeasible
for a census; Appel, Kinzel & Nolte, SAFE.

The search for the records to change runs on counts and few records, until all tables are safe.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from safeswap.arrays import cells
from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int32s, Int64s
from safeswap.errors import InfeasibleError, InternalError
from safeswap.methods.safe.records import moves
from safeswap.methods.safe.records.joint import improve
from safeswap.methods.safe.records.moves import fewest_changes
from safeswap.methods.safe.records.setup import (
    Ready,
    TableCells,
    check_safe,
    count_cells,
    prepare_search,
    refuse_kept_small,
)
from safeswap.methods.safe.records.state import Journal, State, move, record_wanting
from safeswap.methods.safe.spec import SafeCells, SafeSpec
from safeswap.model.audit import Replacement
from safeswap.model.columns import rank_of_code, replace_values
from safeswap.model.effect import Effect, Replaced
from safeswap.model.invariant import Invariant, KeptMargin, ReplaysFromAudit, SameRows, UntouchedColumns
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Coded, Microdata
from safeswap.model.schema import Kind, Schema
from safeswap.model.score import proved_bound
from safeswap.model.spec import AddNoise, Plan
from safeswap.model.text import list_names, plural

# Improve by trying again: undo some changes that share a cell, make the tables safe again, keep the better result.
#
# This is large neighbourhood search (Shaw 1998). Only variables in no kept margin are retried: the others change in
# pairs, which would have to be undone together.

MOST_ROUNDS = 400
MOST_CHANGED = 5_000
"""Changed records up to which retrying pays: each round improves a handful of them at most."""

_TAKEN_BACK = 10
_ROUNDS_PER_RECORD = 10
_STEP = 7919
_FIRST_RUN = 64  # slots treated before the first look at the clock
_RUN_SECONDS = 0.1


Journals = tuple[Journal, Journal]


def make_safe(found: Ready, journals: Journals, order: Int64s, *, variables: int, looks: int, end: float) -> bool:
    """Treat the unsafe slots in this order; return False if time ran out.

    ``variables`` of a record may change; ``looks`` partners, and donors of each neighbouring cell, are considered.
    """
    state = found.state
    tables = np.searchsorted(state.starts, order, side="right") - 1
    lines = record_wanting(found.lines, state, order)
    done, number = 0, _FIRST_RUN
    while done < order.size:
        began = time.monotonic()
        if began > end:
            return False
        run = slice(done, done + number)
        moves.make_safe(state, found.ties, lines, *journals, order[run], tables[run], variables, looks)
        done += number
        if time.monotonic() - began < _RUN_SECONDS:
            number *= 2
    return True


def renew(found: Ready, journals: Journals, *, end: float) -> None:
    """Improve a safe state in place, until ``end`` at most. The secret key decides what is tried."""
    state, tied = found.state, found.ties.tied
    best, cost = state.codes.copy(), changes_cost(state, state.codes)
    rounds = min(MOST_ROUNDS, _ROUNDS_PER_RECORD * int((best != state.original).any(axis=1).sum()))
    for number in range(rounds):
        changed = np.flatnonzero((best != state.original).any(axis=1) & ~_flag_bound(state, best, tied))
        if not changed.size or changed.size > MOST_CHANGED or time.monotonic() > end:
            return
        for r in _pick_meeting(state, changed, number):
            move(state, int(r), state.original[r])
        _make_safe_again(found, journals, number, end)
        tried = changes_cost(state, state.codes)
        if not unsafe_slots(state).size and tried <= cost:
            best, cost = state.codes.copy(), tried
            continue
        for r in np.flatnonzero((state.codes != best).any(axis=1)):
            move(state, int(r), best[r])


def changes_cost(state: State, codes: Int32s) -> float:
    """Return the total cost of all changes as the search counts it: records, then values, then distance."""
    differs = codes != state.original
    moved = np.flatnonzero(differs.any(axis=1))
    apart = np.abs(codes[moved].astype(np.int64) - state.original[moved])
    far = np.where(state.steps > 0, state.steps * apart, apart > 0).sum()
    return float(1000 * moved.size + 100 * np.count_nonzero(differs) + 20 * far)


def unsafe_slots(state: State) -> Int64s:
    """Return the slots above 0 and below tolerance."""
    found: Int64s = np.flatnonzero((state.counts > 0) & (state.counts < state.tolerance))
    return found


def _flag_bound(state: State, codes: Int32s, tied: Flags) -> Flags:
    """Flag the records that changed a variable of a kept margin."""
    flags: Flags = (codes[:, tied] != state.original[:, tied]).any(axis=1)
    return flags


def _pick_meeting(state: State, changed: Int64s, number: int) -> Int64s:
    """Return a changed record and some of those that now share a cell of any table with it."""
    picks = state.noise[(np.arange(_TAKEN_BACK) + _STEP * number) % state.noise.size]
    first = changed[int(picks[0] * changed.size)]
    slots = state.links[:, changed, 0]
    together = changed[(slots == state.links[:, first, 0][:, None]).any(axis=0)]
    most = 2 + int(picks[1] * (_TAKEN_BACK - 2))
    order = np.argsort(state.noise[(together + _STEP * number) % state.noise.size], kind="stable")
    return np.unique(np.append(together[order[:most]], first))


def _make_safe_again(found: Ready, journals: Journals, number: int, end: float) -> None:
    state = found.state
    for variables, looks in ((1, 64), (2, 256)):
        slots = unsafe_slots(state)
        if not slots.size:
            return
        keys = state.noise[(slots * 2_654_435_761 + _STEP * number) % state.noise.size]
        make_safe(found, journals, slots[np.lexsort((slots, keys))], variables=variables, looks=looks, end=end)


# The number of variables that may change, and of partners and donors to consider, pass by pass.
_PASSES = ((1, 8), (1, 64), (2, 1000), (2, 1000))
_MOST_GIVING_BACK = 10


@dataclass(frozen=True, eq=False, kw_only=True)
class Moves:
    """Rows, and for each variable their new level in the file's own codes; only records that change."""

    rows: Int64s
    codes: dict[str, Int64s]
    changed: dict[str, Flags]


def search(found: Ready, *, end: float) -> bool:
    """Make all tables safe in the state, until ``end`` at most; return True if that was possible."""
    state, ties = found.state, found.ties
    journals = _journal(state), _journal(state)
    for variables, looks in _PASSES:
        order = _order_unsafe(state)
        if not order.size or not make_safe(found, journals, order, variables=variables, looks=looks, end=end):
            break
    if _order_unsafe(state).size and found.whole and not ties.tied.any() and len(found.rows) >= state.tolerance:
        moves.move_into_one(state, _largest_profile(state))
    if _order_unsafe(state).size:
        return False
    _give_back(found)
    renew(found, journals, end=end)
    _give_back(found)
    return True


def _give_back(found: Ready) -> None:
    for _ in range(_MOST_GIVING_BACK):
        if not moves.take_back_idle(found.state, found.ties.tied):
            break


def moves_of(found: Ready) -> Moves:
    """Return the changes of the search, as rows and codes of the file."""
    differs = found.state.codes != found.state.original
    records = np.flatnonzero(differs.any(axis=1))
    return Moves(
        rows=found.rows[records],
        codes={n: found.own[v][found.state.codes[records, v]] for v, n in enumerate(found.variables)},
        changed={n: differs[records, v] for v, n in enumerate(found.variables)},
    )


def search_failed(found: Ready, *, time_limit: float | None) -> InfeasibleError:
    """Return the refusal where no changes were found, within ``time_limit`` if that was reached; it proves nothing."""
    left, tolerance = int(_order_unsafe(found.state).size), int(found.state.tolerance)
    within = "" if time_limit is None else f" within {time_limit:g} second{'' if time_limit == 1 else 's'}"
    hint = "keep fewer margins, lower the tolerance, leave out a table, or recode attributes to fewer levels"
    return InfeasibleError(
        f"no change of records was found{within} after which all cells are 0 or at least {tolerance} and kept margins "
        f"exact; {plural(left, 'cell')} stayed below",
        code="no-safe-records-found",
        hint=hint if time_limit is None else f"allow more time (time_limit), {hint}",
        cells_left=left,
        timed_out=time_limit is not None,
    )


def _journal(state: State) -> Journal:
    room = 4 * int(state.tolerance) + 16
    variables = state.levels.size
    return Journal(
        length=np.zeros(1, dtype=np.int64),
        records=np.zeros(room, dtype=np.int64),
        before=np.zeros((room, variables), dtype=np.int32),
        after=np.zeros((room, variables), dtype=np.int32),
    )


def _order_unsafe(state: State) -> Int64s:
    """Return the slots below tolerance: those that want most records first, then as the key decides."""
    slots = unsafe_slots(state)
    wants = np.minimum(state.counts[slots], state.tolerance - state.counts[slots])
    # The hardest come first, while most cells can still give and take.
    order = np.lexsort((slots, state.noise[(slots * 2_654_435_761) % state.noise.size], -wants))
    return np.asarray(slots[order])


def _largest_profile(state: State) -> int:
    """Return the record whose smallest cell is largest: a safe place for others."""
    return int(state.counts[state.links[:, :, 0]].min(axis=0).argmax())


@dataclass(frozen=True, kw_only=True)
class SafePlan(Plan):
    """The number of cells of all tables below tolerance, and the fewest records that could change."""

    cells: int = 0
    tolerance: int = 3
    fewest_records: int = 0

    @property
    def least_tolerance(self) -> float:
        """The tolerance."""
        return self.tolerance

    def blur(self, add: AddNoise) -> Self:
        """Return the plan with noise in its totals."""
        about = (self.asked, self.cells)
        below, feasible, fewest = (add(n, "plan", *about) for n in (self.asked, self.feasible, self.fewest_records))
        cells = max(below, add(self.cells, "plan", *about))
        return self._with_totals(below, feasible, cells=cells, fewest_records=fewest)

    @property
    def sentence(self) -> str:
        """The plan in words."""
        cells = plural(self.cells, "occupied cell has", "occupied cells have")
        text = f"{self.asked:,} of {cells} fewer than {plural(self.tolerance, 'record')}"
        if not self.is_feasible:
            return f"{text}; the margin by {list_names(self.binds)} keeps {self.asked - self.feasible:,} of them so"
        return text + (f"; at least {plural(self.fewest_records, 'record')} must change" if self.asked else "")


class Safe:
    """Change records until every stated table is safe."""

    name: ClassVar[str] = "safe"
    title: ClassVar[str] = "SAFE: records changed so that no published cell is small"
    spec_type: ClassVar[type[SafeSpec]] = SafeSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Moore 1996, Preliminary recommendations for disclosure limitation for the 2000 Census, SRD report RR96/06",
        "Appel, Kinzel & Nolte, SAFE: a generally usable program system for the anonymization of individual data",
    )

    def plan(self, data: Microdata, spec: SafeSpec) -> SafePlan:
        """Count the cells below tolerance, and those that a kept margin fixes there."""
        check_safe(data, spec)
        tables = [count_cells(data, names) for names in spec.tables]
        below = sum(int(table.small(spec.tolerance).size) for table in tables)
        stuck, margin = _count_stuck(data, spec, tables)
        return SafePlan(
            method=self.name,
            records=len(data),
            asked=below,
            feasible=below - stuck,
            binds=margin,
            cells=sum(len(table.codes) for table in tables),
            tolerance=spec.tolerance,
            fewest_records=max((fewest_changes(table.counts, spec.tolerance) for table in tables), default=0),
        )

    def apply(self, data: Microdata, spec: SafeSpec, *, key: Key, replicate: int = 0) -> Masked:
        """Find the changes on counts, apply them to records chosen by the key, and recount every table."""
        plan = self.plan(data, spec)
        tables = [count_cells(data, names) for names in spec.tables]
        refuse_kept_small(data, spec, tables)
        moves = _no_moves(spec)
        fewest, end = 0, time.monotonic() + spec.time_limit
        if plan.asked:
            found = prepare_search(data, spec, tables, key=key, replicate=replicate)
            safe = search(found, end=end)
            seconds = end - time.monotonic()
            safe, fewest = improve(found, spec, safe=safe, fewest=plan.fewest_records, seconds=seconds)
            if not safe:
                raise search_failed(found, time_limit=spec.time_limit if time.monotonic() > end else None)
            moves = moves_of(found)
        timed_out = time.monotonic() > end
        masked, replacements = _apply_moves(data, moves)
        after = [count_cells(masked, names) for names in spec.tables]
        _verify(data, masked, spec, after)
        counted = dict.fromkeys(("asked", "feasible", "made"), len(moves.rows))
        facts = _facts(data, masked, spec, moves, before=tables, after=after, fewest=fewest, timed_out=timed_out)
        noted = {**counted, "replacements": replacements, "facts": facts}
        return Masked.by(spec, data, masked, plan, key=key, replicate=replicate, **noted)

    refuses_households: ClassVar[str] = "it makes tables of persons safe by changing one person at a time"

    def effects(self, schema: Schema, spec: SafeSpec) -> tuple[Effect, ...]:
        """Return that values were replaced, and which margins stay."""
        return (Replaced(spec.variables, spec.keep),)

    def invariants(self, data: Microdata, spec: SafeSpec) -> tuple[Invariant, ...]:
        """Promise safe tables, exact kept margins, and all other columns untouched."""
        check_safe(data, spec)
        untouched = tuple(name for name in data.attributes if name not in spec.variables)
        return (
            SameRows(),
            UntouchedColumns(untouched),
            *(SafeCells(names, spec.tolerance) for names in spec.tables),
            *(KeptMargin(names) for names in spec.keep),
            ReplaysFromAudit(),
        )


def _count_stuck(data: Microdata, spec: SafeSpec, tables: list[TableCells]) -> tuple[int, Names]:
    """Count the small cells that kept margins fix, and name the margin that fixes most."""
    worst: tuple[int, Names] = (0, ())
    for table in tables:
        for margin in spec.keep:
            shared = tuple(name for name in table.names if name in margin)
            if shared:
                worst = max(worst, (int(count_cells(data, shared).small(spec.tolerance).size), margin))
    return worst


def _no_moves(spec: SafeSpec) -> Moves:
    nothing = np.zeros(0, dtype=np.int64)
    names = (*spec.variables, *spec.context)
    return Moves(rows=nothing, codes=dict.fromkeys(names, nothing), changed=dict.fromkeys(names, nothing > 0))


def _apply_moves(data: Microdata, moves: Moves) -> tuple[Microdata, tuple[Replacement, ...]]:
    """Return the file with the new values, and the values they replaced."""
    columns: dict[str, pa.ChunkedArray] = {}
    coded: dict[str, Coded] = {}
    replacements = []
    for name, flags in moves.changed.items():
        if not flags.any():
            continue
        rows, codes = moves.rows[flags], moves.codes[name][flags]
        before = data.coded(name)
        replacements.append(Replacement(attribute=name, rows=rows, before=_take_rows(data.table.column(name), rows)))
        columns[name] = replace_values(data.table.column(name), rows, _values(before, codes))
        new = before.codes.copy()
        new[rows] = codes
        coded[name] = Coded(new, before.levels, before.has_missing)
    return data.with_columns(columns, coded), tuple(replacements)


def _take_rows(column: pa.ChunkedArray, rows: Any) -> pa.Array:
    taken = column.take(pa.array(rows)).combine_chunks()
    return taken if isinstance(taken, pa.Array) else pa.concat_arrays(taken.chunks)


def _values(coded: Coded, codes: Any) -> pa.Array:
    """Return the levels of these codes; the code after the last level is a missing value."""
    return coded.levels.take(pa.array(codes, mask=codes >= len(coded.levels)))


def _verify(before: Microdata, after: Microdata, spec: SafeSpec, tables: list[TableCells]) -> None:
    """Recount everything independently of the search, so that nothing unsafe is ever returned."""
    if any(table.small(spec.tolerance).size for table in tables):
        raise InternalError("a table is still not safe", code="unsafe-table")
    for names in spec.keep:
        one, other = count_cells(before, names), count_cells(after, names)
        if not np.array_equal(one.codes, other.codes) or not np.array_equal(one.counts, other.counts):
            raise InternalError("a kept margin has moved", code="unsafe-table")


def _facts(
    before_data: Microdata,
    after_data: Microdata,
    spec: SafeSpec,
    moves: Moves,
    *,
    before: list[TableCells],
    after: list[TableCells],
    fewest: int,
    timed_out: bool,
) -> dict[str, Any]:
    """Return the facts for the report: totals for each table and attribute, nothing about any single record."""
    changed = {name: int(np.count_nonzero(flags)) for name, flags in moves.changed.items() if flags.any()}
    moved = [name for name in changed if _has_moved(before_data, after_data, name)]
    return {
        "unit": "records",
        "tables": [_table_facts(one, other, spec.tolerance) for one, other in zip(before, after, strict=True)],
        "records_changed": len(moves.rows),
        "fewest_records": int(proved_bound(fewest, len(moves.rows))),
        "proved_fewest": len(moves.rows) <= fewest,
        "stopped_by_time_limit": timed_out,
        "values_changed": sum(changed.values()),
        "values_changed_by_attribute": changed,
        "records_by_values_changed": _count_by_number(moves),
        "mean_steps_by_attribute": _steps(before_data, moves),
        "univariate_margins_moved": moved,
    }


def _count_by_number(moves: Moves) -> dict[str, int]:
    """Count the records that changed one value, two, and so on."""
    if not len(moves.rows):
        return {}
    numbers = np.sum(list(moves.changed.values()), axis=0)
    words = {number: f"{number} value{'s' * (number > 1)}:" for number in range(len(moves.changed) + 1)}
    return {words[number]: int(count) for number, count in enumerate(np.bincount(numbers)) if count}


def _steps(data: Microdata, moves: Moves) -> dict[str, float]:
    """Return the mean number of levels that changed values of ordered attributes moved."""
    found = {}
    for name, flags in moves.changed.items():
        if flags.any() and data.schema[name].kind is Kind.ORDINAL:
            rank = rank_of_code(data, name)
            before, after = data.coded(name).codes[moves.rows[flags]], moves.codes[name][flags]
            found[name] = float(np.abs(rank[after] - rank[before]).mean())
    return found


def _has_moved(before: Microdata, after: Microdata, name: str) -> bool:
    size = before.coded(name).cardinality
    one, other = (cells.count_dense(data.coded(name).codes, size) for data in (before, after))
    return not np.array_equal(one, other)


def _table_facts(before: TableCells, after: TableCells, tolerance: int) -> dict[str, Any]:
    codes = np.union1d(before.codes, after.codes)
    counts = np.zeros((2, len(codes)), dtype=np.int64)
    for row, table in enumerate((before, after)):
        counts[row, np.searchsorted(codes, table.codes)] = table.counts
    difference = np.abs(counts[1] - counts[0])
    return {
        "attributes": list(before.names),
        "occupied_before": len(before.codes),
        "occupied_after": len(after.codes),
        "small_before": int(before.small(tolerance).size),
        "small_after": int(after.small(tolerance).size),
        "changed_cells": int(np.count_nonzero(difference)),
        "total_change": int(difference.sum()),
        "largest_change": int(difference.max(initial=0)),
    }
