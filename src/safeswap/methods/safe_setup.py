"""From a file to the few records that may have to move: cells are counted, and only records of interest are taken.

Of interest are all records in small cells, and as donors a keyed sample of the others. Levels are numbered by rank
where they have an order and by the first draw otherwise, so that neither the order of the rows nor names of levels play
a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from safeswap.engines.identity import record_identity
from safeswap.errors import InfeasibleError, SpecError
from safeswap.kernels import cells, keyed, safe_gather
from safeswap.kernels.safe_journal import Ties
from safeswap.kernels.safe_near import Lines, lines_of
from safeswap.kernels.safe_state import State
from safeswap.kernels.types import Int64s, Names, Words
from safeswap.methods.safe_slots import TableCells, search_state, slots_of, ties_of
from safeswap.model.key import Key
from safeswap.model.keyed_order import keyed_order
from safeswap.model.microdata import Microdata
from safeswap.model.safe_spec import SafeSpec
from safeswap.model.schema import Kind
from safeswap.model.table import check_table_names
from safeswap.model.value_order import rank_of_code

WHOLE_FILE = 300_000
"""Up to so many records all of them may move; above, those in small cells and about as many others as donors."""

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
                f"the table by {', '.join(names)} has more than 2**62 possible cells",
                code="too-many-cells",
                hint="recode attributes to fewer levels, or leave one out",
            )


def count_cells(data: Microdata, names: Names) -> TableCells:
    """The occupied cells of a table and their counts."""
    columns, sizes = data.coded_columns(names)
    counted = cells.cell_counts(columns, sizes)
    return TableCells(
        names=names, sizes=tuple(sizes), codes=counted.codes.astype(np.int64), counts=counted.counts.astype(np.int64)
    )


def refuse_kept_small(data: Microdata, spec: SafeSpec, tables: list[TableCells]) -> None:
    """A kept margin fixes what it shares with a table: where that is below tolerance, the table cannot become safe."""
    for table in tables:
        for margin in spec.keep:
            shared = tuple(name for name in table.names if name in margin)
            if not shared:
                continue
            small = int(count_cells(data, shared).small(spec.tolerance).size)
            if small:
                raise InfeasibleError(
                    f"{small:,} cells by {', '.join(shared)} are below the tolerance {spec.tolerance}, and the kept "
                    f"margin by {', '.join(margin)} fixes them: the table by {', '.join(table.names)} cannot become "
                    "safe",
                    code="margin-below-tolerance",
                    hint="keep coarser margins, or none; or recode attributes first so that kept margins are safe",
                    margin=list(margin),
                    table=list(table.names),
                    cells=small,
                )


def ready(data: Microdata, spec: SafeSpec, tables: list[TableCells], *, key: Key, replicate: int) -> Ready:
    """Everything that the search needs, in an order that only the key decides."""
    variables = (*spec.variables, *spec.context)
    identity = record_identity(data, keyed.derive(key.secret, "identity"))
    draw_key = keyed.derive(key.secret, "data", data.schema.name, len(data), "safe", "records", replicate)
    wanted = _in_small_cells(data, spec, tables)
    share = 1.0 if len(data) <= WHOLE_FILE else WHOLE_FILE / len(data)
    found, first = safe_gather.gather(
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
    """What one rank of an ordered attribute counts for; the whole range counts as much as another nominal value."""
    ordered = data.schema[name].kind is Kind.ORDINAL
    return 1.0 / max(1, data.coded(name).cardinality - 1) if ordered else 0.0


def _in_small_cells(data: Microdata, spec: SafeSpec, tables: list[TableCells]) -> npt.NDArray[np.bool_]:
    flags = np.zeros(len(data), dtype=np.bool_)
    for table in tables:
        small = table.small(spec.tolerance)
        if small.size:
            columns, sizes = data.coded_columns(table.names)
            packed, possible = cells.pack(columns, sizes)
            safe_gather.mark(packed, possible, small, flags)
    return flags


def _level_order(data: Microdata, name: str, first: Words) -> Int64s:
    """The number of each code in the search: its rank if the attribute is ordinal, else the place of its first draw."""
    size = data.coded(name).cardinality
    if data.schema[name].kind is Kind.ORDINAL:
        return rank_of_code(data, name)[:size]
    number = np.empty(size, dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(size)
    return number
