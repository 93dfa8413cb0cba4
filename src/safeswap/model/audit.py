"""The confidential record of a masking: enough to undo it, and therefore never released."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.types import Rows
from safeswap.errors import InputError
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema
from safeswap.model.text import plural

COARSENED = "coarsened"
"""The value of the fact ``values`` where a method made values coarser, not untrue."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Exchange:
    """One stage: these attributes were exchanged between these pairs of rows.

    If it is ``directed``, a pair is a row and the row that its values came from: any permutation, and not only one that
    is its own inverse. If it is also ``mutual``, groups of rows with one value each took that of another group: several
    may take from one row, and the same pairs lead back.

    >>> ring = Exchange(attributes=("Race",), pairs=np.array([[0, 2], [1, 0], [2, 1]]), directed=True)
    >>> ring.permutation(4).tolist(), ring.inverse.permutation(4).tolist()
    ([2, 0, 1, 3], [1, 2, 0, 3])
    >>> uneven = Exchange(attributes=("Area",), pairs=np.array([[0, 2], [1, 2], [2, 0]]), directed=True, mutual=True)
    >>> move_within(move_within(np.array([7, 7, 9]), uneven.pairs, directed=True), uneven.inverse.pairs, directed=True)
    array([7, 7, 9])
    """

    attributes: tuple[str, ...]
    pairs: Rows  # shape (k, 2): row positions in the file as read
    directed: bool = False
    mutual: bool = False

    def permutation(self, records: int) -> Rows:
        """Return, for each row, the row its values came from."""
        return move_within(np.arange(records, dtype=np.int64), self.pairs, directed=self.directed)

    @property
    def inverse(self) -> Exchange:
        """The exchange that undoes this one."""
        return replace(self, pairs=self.pairs[:, ::-1]) if self.directed and not self.mutual else self


def move_within(values: npt.NDArray[Any], pairs: Rows, *, directed: bool) -> npt.NDArray[Any]:
    """Return a copy in which the first of each pair has the value of the second and, unless ``directed``, vice versa.

    >>> move_within(np.array([5, 6, 7]), np.array([[0, 2]]), directed=False).tolist()
    [7, 6, 5]
    """
    result = values.copy()
    result[pairs[:, 0]] = values[pairs[:, 1]]
    if not directed:
        result[pairs[:, 1]] = values[pairs[:, 0]]
    return result


@dataclass(frozen=True, eq=False, kw_only=True)
class Replacement:
    """One stage of a method that replaces values: the rows of an attribute and their values before.

    ``before`` is in the order of ``rows``; the type of the column before may differ from the one after.
    """

    attribute: str
    rows: Rows
    before: pa.Array


@dataclass(frozen=True, eq=False, kw_only=True)
class StepAudit:
    """One step of a pipeline: its name, its record, and the description of the file before it, if it changed that."""

    name: str
    audit: Audit
    schema: Schema | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit:
    """The pairs and replacements of a masking, and everything needed to repeat it.

    The record of a pipeline has ``steps``, and pairs and replacements only in these. ``repr`` shows totals only, since
    printed text gets copied.
    """

    method: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    records: int
    asked: int = 0
    feasible: int = 0
    made: int = 0
    exchanges: tuple[Exchange, ...] = ()
    key_id: str = ""
    releasable: bool = False
    algorithm: str = ""
    replicate: int = 0
    data_name: str = ""
    compensating: int = 0
    at_most: int | None = None  # upper bound, given where ``feasible`` is not proved to be the maximum
    replacements: tuple[Replacement, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[StepAudit, ...] = ()

    @property
    def single(self) -> tuple[Audit, ...]:
        """The records of the single maskings: those of the steps, or this one."""
        return tuple(step.audit for step in self.steps) or (self,)

    @property
    def all_exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges of all steps, in order."""
        return tuple(exchange for audit in self.single for exchange in audit.exchanges)

    @property
    def all_replacements(self) -> tuple[Replacement, ...]:
        """The replacements of all steps, in order."""
        return tuple(replacement for audit in self.single for replacement in audit.replacements)

    @property
    def stamp(self) -> str:
        """Empty where the result may be released; else the stamp, with the reason."""
        return "" if self.releasable else f"NOT FOR RELEASE ({self.facts.get('not_for_release', 'insecure seed')})"

    def touched(self) -> npt.NDArray[np.bool_]:
        """Flag the records that took part in any exchange or replacement."""
        flags = np.zeros(self.records, dtype=np.bool_)
        for audit in self.single:
            flags |= audit._took_part
        return flags

    @cached_property
    def _took_part(self) -> npt.NDArray[np.bool_]:
        # Kept: pipelines that differ in their last step share the records of all others.
        flags = np.zeros(self.records, dtype=np.bool_)
        for exchange in self.exchanges:
            flags[exchange.pairs.ravel()] = True
        for replacement in self.replacements:
            flags[replacement.rows] = True
        return flags

    @property
    def changed_attributes(self) -> tuple[str, ...]:
        """The attributes with any exchanged or replaced value, each once."""
        if self.steps:
            return tuple(dict.fromkeys(name for audit in self.single for name in audit.changed_attributes))
        exchanged = (name for each in self.exchanges if len(each.pairs) for name in each.attributes)
        replaced = (each.attribute for each in self.replacements if len(each.rows))
        return tuple(dict.fromkeys((*exchanged, *replaced)))

    def perturbed(self) -> npt.NDArray[np.bool_]:
        """Flag the records whose values may be untrue: touched, and not just made coarser."""
        flags = np.zeros(self.records, dtype=np.bool_)
        for audit in self.single:
            if audit.facts.get("values") != COARSENED:
                flags |= audit.touched()
        return flags

    @property
    def unit(self) -> str:
        """The unit of ``asked``, ``feasible`` and ``made``: pairs, unless the method counts records."""
        return str(self.facts.get("unit", "pairs"))

    def __repr__(self) -> str:
        stamp = "" if self.releasable else ", not for release"
        made = f"{self.made:,} of {self.asked:,} {self.unit}"
        return f"<Audit {self.method}: {made}, {plural(self.records, 'record')}{stamp}>"


def format_fact(value: object) -> str:
    """Format a fact for one line; empty for tables, which are left to the audit record."""
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    if isinstance(value, dict) and all(isinstance(each, (int, float)) for each in value.values()):
        return ", ".join(f"{name} {format_fact(each)}" for name, each in value.items())
    return value if isinstance(value, str) else ""


class Facts(Mapping[str, Any]):
    """Facts by name. Those given as functions are computed once, on first access.

    >>> facts = Facts({"unmatched": 3}, diagnosis=lambda: ["drop Age"])
    >>> list(facts), facts["diagnosis"], dict(facts)
    (['unmatched', 'diagnosis'], ['drop Age'], {'unmatched': 3, 'diagnosis': ['drop Age']})
    """

    def __init__(self, known: Mapping[str, Any], **later: Callable[[], Any]) -> None:
        self._known = dict(known)
        self._later = later
        self._names = tuple({**known, **later})

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = self._later[name]()
            del self._later[name]  # with it goes what it was computed from
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<Facts: {', '.join(self)}>"


def undo(after: Microdata, audit: Audit) -> Microdata:
    """Restore the file as it was before the masking, exactly.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Race"),))
    >>> swapped = Exchange(attributes=("Race",), pairs=np.array([[0, 2]]))
    >>> after = Microdata(pa.table({"Race": ["c", "b", "a"]}), schema)
    >>> undo(after, Audit(records=3, exchanges=(swapped,))).table["Race"].to_pylist()
    ['a', 'b', 'c']
    """
    if audit.records != len(after):
        raise InputError(
            f"the audit record is of a file of {plural(audit.records, 'record')}, but this one has {len(after):,}",
            code="audit-mismatch",
            hint="give the masked file that this audit record belongs to, all of it and in its own order",
        )
    if audit.steps:
        for step in reversed(audit.steps):
            after = undo(after, step.audit)
            after = after if step.schema is None else replace(after, schema=step.schema)
        return after
    # Values were replaced after all exchanges; the last exchange is undone first.
    undone = (exchange.inverse for exchange in reversed(audit.exchanges))
    before = replay(restore(after, reversed(audit.replacements)), undone)
    known = after.past and after.past[-1].attributes == audit.changed_attributes
    return replace(before, past=after.past[:-1]) if known else before


def restore(data: Microdata, replacements: Iterable[Replacement]) -> Microdata:
    """Put the replaced values back, in the type they had."""
    columns: dict[str, pa.ChunkedArray] = {}
    for replacement in replacements:
        name = replacement.attribute
        data.schema[name]  # raises for an unknown attribute
        columns[name] = _put_back(columns.get(name, data.table.column(name)), replacement)
    return data.with_columns(columns, {})


def _put_back(column: pa.ChunkedArray, replacement: Replacement) -> pa.ChunkedArray:
    """Take replaced rows from the replacement, all others from the column."""
    source = np.arange(len(column), dtype=np.int64)
    source[replacement.rows] = len(column) + np.arange(len(replacement.rows))
    kind = replacement.before.type
    if len(replacement.rows) == len(column):  # the old and the new column may have nothing in common
        column = pa.chunked_array([], type=kind)
        source -= len(source)
    pieces = [*column.cast(kind).chunks, replacement.before]
    restored = pa.chunked_array(pieces, type=kind).take(pa.array(source))
    return _with_levels_of(restored, replacement.before) if pa.types.is_dictionary(kind) else restored


def _with_levels_of(column: pa.ChunkedArray, before: pa.DictionaryArray) -> pa.ChunkedArray:
    """Return a restored column with the levels it had, without those that the masking added.

    If the masking added none, the column keeps its own levels: a record read from disk has lost their order.
    """
    held = {level for chunk in column.chunks for level in chunk.dictionary.to_pylist()}
    if held <= set(before.dictionary.to_pylist()):
        return column
    plain = column.cast(before.type.value_type)
    places = pc.index_in(plain, value_set=before.dictionary)
    if places.null_count != plain.null_count:
        return column
    ordered = before.type.ordered
    chunks = [
        pa.DictionaryArray.from_arrays(part.cast(before.type.index_type), before.dictionary, ordered=ordered)
        for part in places.chunks
    ]
    return pa.chunked_array(chunks, type=before.type)


def replay(data: Microdata, exchanges: Iterable[Exchange]) -> Microdata:
    """Apply exchanges to the file, in order."""
    columns: dict[str, pa.ChunkedArray] = {}
    for exchange in exchanges:
        source = pa.array(exchange.permutation(len(data)))
        for name in exchange.attributes:
            data.schema[name]  # raises for an unknown attribute
            columns[name] = columns.get(name, data.table.column(name)).take(source)
    return data.with_columns(columns, {})
