"""Promises of a method about its result, as values that can be checked.

Each invariant states one promise in a sentence, and checks it on the file before, the file after and the audit between
them, independently of the code that did the masking. A finding names attributes and numbers of records, never a value.

::

    SameRows        UntouchedColumns   KeptMargin                     what is preserved
    DisjointPairs   PairsAgree         PairsDiffer   ChangedRecords   how it was masked
    ReplaysFromAudit                                                  that it can be undone
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int64s
from safeswap.model.audit import Audit, Exchange, undo
from safeswap.model.columns import aligned_columns, as_codes, different, same_memory
from safeswap.model.microdata import Microdata
from safeswap.model.text import several


class PairEvidence(Protocol):
    """Evidence on which the promises of an exchange are checked: both files, and the pairs between them.

    It is told in counts, so that it can be found wherever the records are. A stage is the number of an exchange.
    """

    @property
    def identifier(self) -> str | None:
        """The name of the record identifier."""
        ...

    @property
    def attributes(self) -> Names:
        """The attributes of the file, as far as they were read."""
        ...

    @property
    def exchanged(self) -> tuple[Names, ...]:
        """The attributes of each exchange."""
        ...

    def number_of_pairs(self, stage: int) -> int:
        """Return the number of pairs of an exchange."""
        ...

    def count_changed(self, name: str) -> int:
        """Count the records that have another value of an attribute than before."""
        ...

    def count_moved_cells(self, names: Names) -> int:
        """Count the cells by some attributes together that have another count than before."""
        ...

    def count_repeated(self, stage: int) -> int:
        """Count the places in the pairs of an exchange that go to a record that has one already."""
        ...

    def count_agreeing(self, stage: int, names: Names) -> int:
        """Count the pairs that agree in all of these attributes when they are exchanged."""
        ...

    def count_differing(self, stage: int, names: Names) -> int:
        """Count the pairs that differ in all of these attributes when they are exchanged."""
        ...

    def count_moved_records(self, stage: int) -> int:
        """Count the records that an exchange changed."""
        ...

    def explains(self, name: str) -> bool:
        """Return True if the pairs lead from the values before to those after."""
        ...

    def restores(self, name: str) -> bool:
        """Return True if undoing gives the values before back."""
        ...


class Evidence:
    """The file before, the file after and the audit between them, with cached comparisons.

    Uses neither the codes that a method worked with nor the kernels: the Arrow columns themselves are compared, bit by
    bit. Only rows that changed according to the files, or took part according to the audit, are examined one by one, so
    the cost follows the number of exchanges.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="x"),))
    >>> before = Microdata(pa.table({"x": [0.0, 1.0]}), schema)
    >>> after = Microdata(pa.table({"x": [-0.0, 1.0]}), schema)
    >>> nothing = Audit(
    ...     method="",
    ...     spec={},
    ...     records=2,
    ...     asked=0,
    ...     feasible=0,
    ...     made=0,
    ...     exchanges=(),
    ...     key_id="",
    ...     releasable=True,
    ...     algorithm="",
    ... )
    >>> Evidence(before, after, nothing).changed("x").tolist()
    [True, False]
    """

    def __init__(self, before: Microdata, after: Microdata, audit: Audit) -> None:
        self.before = before
        self.after = after
        self.audit = audit
        self._changed: dict[str, Flags | None] = {}
        self._codes: dict[str, tuple[Int64s, Int64s]] = {}
        self._pairs: dict[int, Int64s] = {}
        self._common: dict[str, tuple[pa.ChunkedArray, pa.ChunkedArray]] = {}

    @cached_property
    def obstacle(self) -> str:
        """The reason why the two files and the audit cannot be compared; empty if they can."""
        if len(self.before) != len(self.after) or self.audit.records != len(self.before):
            return "the files before and after and the audit do not have the same number of records"
        if self.before.attributes != self.after.attributes:
            return "the files before and after do not have the same columns"
        for exchange in self.audit.exchanges:
            if exchange.pairs.ndim != 2 or exchange.pairs.shape[1] != 2:
                return "the audit holds something that is not a list of pairs"
        named = {name for exchange in self.audit.exchanges for name in exchange.attributes}
        named |= {replacement.attribute for replacement in self.audit.replacements}
        if unknown := named - set(self.before.attributes):
            return f"the audit names an attribute that is not in the file: {min(unknown)}"
        lists = [*(e.pairs for e in self.audit.exchanges), *(r.rows for r in self.audit.replacements)]
        if any(rows.size and not 0 <= rows.min() <= rows.max() < len(self.before) for rows in lists):
            return "the audit names rows that are not in the file"
        return ""

    def changed(self, name: str) -> Flags | None:
        """Flag the rows whose value differs from before; None if both columns share memory."""
        if name not in self._changed:
            shared = same_memory(*self._columns(name))
            self._changed[name] = None if shared else different(*self._aligned(name))
        return self._changed[name]

    @cached_property
    def rows(self) -> Int64s:
        """The rows to examine: in an exchange according to the audit, or changed according to the files."""
        flags = np.zeros(len(self.before), dtype=np.bool_)
        for exchange in self.audit.exchanges:
            flags[exchange.pairs.ravel()] = True
        for name in self.before.attributes:
            changed = self.changed(name)
            if changed is not None:
                np.logical_or(flags, changed, out=flags)
        return np.flatnonzero(flags)

    def pairs(self, exchange: Exchange) -> Int64s:
        """Return the pairs of a stage as positions within ``rows``."""
        if id(exchange) not in self._pairs:
            self._pairs[id(exchange)] = self._position[exchange.pairs].astype(np.int64)
        return self._pairs[id(exchange)]

    @cached_property
    def _position(self) -> npt.NDArray[Any]:
        # Only the rows to examine are filled in; the others are never read, and an empty array costs nothing.
        position = np.empty(len(self.before), dtype=np.int32 if len(self.before) < 2**31 else np.int64)
        position[self.rows] = np.arange(len(self.rows))
        return position

    def codes(self, name: str) -> tuple[Int64s, Int64s]:
        """Return the column over ``rows``, before and after, as integers that are equal where the values are."""
        if name not in self._codes:
            index = pa.array(self.rows)
            known = self._common.get(name)
            before, after = (column.take(index) for column in known or self._columns(name))
            self._codes[name] = as_codes(before, after) if known else as_codes(*aligned_columns(before, after))
        return self._codes[name]

    @property
    def identifier(self) -> str | None:
        """The name of the record identifier."""
        return None if self.before.schema.identifier is None else self.before.schema.identifier.name

    @property
    def attributes(self) -> Names:
        """The attributes of the file."""
        return self.before.attributes

    @property
    def exchanged(self) -> tuple[Names, ...]:
        """The attributes of each exchange."""
        return tuple(exchange.attributes for exchange in self.audit.exchanges)

    def number_of_pairs(self, stage: int) -> int:
        """Return the number of pairs of an exchange."""
        return len(self.audit.exchanges[stage].pairs)

    def count_changed(self, name: str) -> int:
        """Count the records that have another value of an attribute than before."""
        flags = self.changed(name)
        return 0 if flags is None else int(np.count_nonzero(flags))

    def count_moved_cells(self, names: Names) -> int:
        """Count the cells that have another count than before.

        Only records that changed can change a count, so only those are counted, before with +1 and after with −1.
        """
        if all(self.changed(name) is None for name in names):
            return 0
        columns = {f"c{i}": np.concatenate(self.codes(name)) for i, name in enumerate(names)}
        sign = np.repeat(np.array([1, -1], dtype=np.int8), len(self.rows))
        counts = pa.table({**columns, "sign": sign}).group_by(list(columns)).aggregate([("sign", "sum")])
        return int(pc.sum(pc.not_equal(counts["sign_sum"], 0)).as_py() or 0)

    def count_repeated(self, stage: int) -> int:
        """Count the places in the pairs that go to a record that has one already."""
        pairs = self.audit.exchanges[stage].pairs
        seen = np.zeros(self.audit.records, dtype=np.bool_)
        seen[pairs.ravel()] = True
        return pairs.size - int(np.count_nonzero(seen))

    def count_agreeing(self, stage: int, names: Names) -> int:
        """Count the pairs that agree in all of these attributes."""
        return int(np.count_nonzero(np.all([self._agree(stage, name) for name in names], axis=0)))

    def count_differing(self, stage: int, names: Names) -> int:
        """Count the pairs that differ in all of these attributes."""
        return int(np.count_nonzero(np.all([~self._agree(stage, name) for name in names], axis=0)))

    def count_moved_records(self, stage: int) -> int:
        """Count the records that an exchange changed: from the files, or replayed where stages share an attribute."""
        exchange = self.audit.exchanges[stage]
        flags = np.zeros(len(self.rows), dtype=np.bool_)
        for name in exchange.attributes:
            if sum(name in names for names in self.exchanged) == 1:
                before, after = self.codes(name)
            else:
                before = self._codes_at(stage, name)
                after = swap_pairs(before, self.pairs(exchange))
            flags |= before != after
        return int(np.count_nonzero(flags))

    def explains(self, name: str) -> bool:
        """Return True if the pairs lead from the values before to those after."""
        stages = self._pairs_of(name)
        if name in self._replaced or (not stages and self.changed(name) is None):
            return True
        # All rows that changed or took part are in the codes, so no other change is possible.
        before, after = self.codes(name)
        return bool(np.array_equal(_replay(before, stages), after))

    def restores(self, name: str) -> bool:
        """Return True if undoing gives the values before back."""
        stages = self._pairs_of(name)
        if not stages and self.changed(name) is None:
            return True
        if name in self._replaced:
            return _restores(self, name)
        before, after = self.codes(name)
        return bool(np.array_equal(_replay(after, stages[::-1]), before))

    @cached_property
    def _replaced(self) -> set[str]:
        return {replacement.attribute for replacement in self.audit.replacements}

    def _pairs_of(self, name: str) -> list[Int64s]:
        return [self.pairs(exchange) for exchange in self.audit.exchanges if name in exchange.attributes]

    def _agree(self, stage: int, name: str) -> Flags:
        codes, pairs = self._codes_at(stage, name), self.pairs(self.audit.exchanges[stage])
        flags: Flags = codes[pairs[:, 0]] == codes[pairs[:, 1]]
        return flags

    def _codes_at(self, stage: int, name: str) -> Int64s:
        """Return the codes of an attribute just before an exchange."""
        earlier = [self.pairs(exchange) for exchange in self.audit.exchanges[:stage] if name in exchange.attributes]
        return _replay(self.codes(name)[0], earlier)

    def _aligned(self, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """Return both columns in full; common dictionary codes are cached, since finding them is expensive."""
        before, after = self._columns(name)
        aligned = aligned_columns(before, after)
        dictionaries = all(pa.types.is_dictionary(side.type) for side in (before, after))
        if dictionaries and all(pa.types.is_integer(side.type) for side in aligned):
            self._common[name] = aligned
        return aligned

    def _columns(self, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        return self.before.table.column(name), self.after.table.column(name)


def swap_pairs(values: npt.NDArray[Any], pairs: Int64s) -> npt.NDArray[Any]:
    """Return a copy with the values of each pair of positions swapped."""
    result = values.copy()
    result[pairs[:, 0]] = values[pairs[:, 1]]
    result[pairs[:, 1]] = values[pairs[:, 0]]
    return result


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check: the promise, whether it holds, and if not, what is wrong."""

    invariant: str
    sentence: str
    ok: bool
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for the verifier's report."""
        return {"invariant": self.invariant, "sentence": self.sentence, "ok": self.ok, "problem": self.problem}


class Invariant(ABC):
    """A promise that can be checked. Subclasses state the promise and find violations."""

    @property
    @abstractmethod
    def sentence(self) -> str:
        """The promise in plain words."""

    @abstractmethod
    def problem(self, evidence: Evidence) -> str:
        """Describe the violation in plain words, without a value of a record; empty if there is none."""

    def check(self, before: Microdata, after: Microdata, audit: Audit) -> Finding:
        """Check the promise on these files."""
        return self.finding(Evidence(before, after, audit))

    def finding(self, evidence: Evidence) -> Finding:
        """Check the promise on evidence that several checks share."""
        problem = evidence.obstacle or self.problem(evidence)
        return Finding(invariant=type(self).__name__, sentence=self.sentence, ok=not problem, problem=problem)

    @property
    def compared(self) -> Names:
        """The attributes whose values must be at hand, changed or not, to check the promise."""
        return ()

    def for_users_of(self, names: Names) -> Invariant | None:
        """Return the part of the promise that holds for a user of these columns only; None if nothing is left."""
        return None


def verify(
    invariants: Iterable[Invariant], *, before: Microdata, after: Microdata, audit: Audit
) -> tuple[Finding, ...]:
    """Check every promise on shared evidence, so that comparisons are made once.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Race"), Attribute(name="Sex")))
    >>> before = Microdata(pa.table({"Race": ["a", "b", "b"], "Sex": ["f", "m", "m"]}), schema)
    >>> after = Microdata(pa.table({"Race": ["b", "a", "b"], "Sex": ["f", "m", "m"]}), schema)
    >>> swapped = Exchange(attributes=("Race",), pairs=np.array([[0, 1]]))
    >>> audit = Audit(
    ...     method="swap",
    ...     spec={},
    ...     records=3,
    ...     asked=1,
    ...     feasible=1,
    ...     made=1,
    ...     exchanges=(swapped,),
    ...     key_id="",
    ...     releasable=True,
    ...     algorithm="",
    ... )
    >>> promises = [KeptMargin(("Race",)), KeptMargin(("Race", "Sex")), ReplaysFromAudit()]
    >>> [finding.ok for finding in verify(promises, before=before, after=after, audit=audit)]
    [True, False, True]
    """
    evidence = Evidence(before, after, audit)
    return tuple(invariant.finding(evidence) for invariant in invariants)


class PairPromise(Invariant):
    """A promise that can be checked wherever the records are, because it asks for counts only."""

    @abstractmethod
    def problem(self, evidence: PairEvidence) -> str:
        """Describe the violation in plain words, without a value of a record; empty if there is none."""

    def found_in(self, evidence: PairEvidence) -> Finding:
        """Check the promise on evidence of any engine."""
        problem = self.problem(evidence)
        return Finding(invariant=type(self).__name__, sentence=self.sentence, ok=not problem, problem=problem)


@dataclass(frozen=True)
class SameRows(PairPromise):
    """The masked file has the same records, identifiers and row order as the original."""

    @property
    def sentence(self) -> str:
        """The promise."""
        return "The number of records, their identifiers and their order are unchanged."

    def problem(self, evidence: PairEvidence) -> str:
        """Find changed identifiers; a different number of records is an obstacle, found earlier."""
        return "" if evidence.identifier is None else _describe_changes(evidence, (evidence.identifier,))


@dataclass(frozen=True)
class SameRecords(SameRows):
    """The masked file has the same records and identifiers; an engine without an order of records keeps none."""

    @property
    def sentence(self) -> str:
        """The promise."""
        return "The number of records and their identifiers are unchanged."


@dataclass(frozen=True)
class UntouchedColumns(PairPromise):
    """Values and missing values of these columns are the same in every record, to the bit."""

    attributes: Names

    @property
    def sentence(self) -> str:
        """The promise."""
        return f"{_join_names(self.attributes)} {_is_or_are(self.attributes)} unchanged in every record."

    def problem(self, evidence: PairEvidence) -> str:
        """Return the columns that did change."""
        return _describe_changes(evidence, self.attributes)

    def for_users_of(self, names: Names) -> Invariant | None:
        """Return the columns among those released."""
        left = tuple(name for name in self.attributes if name in names)
        return UntouchedColumns(left) if left else None


@dataclass(frozen=True)
class KeptMargin(PairPromise):
    """The counts by these attributes together are the same before and after."""

    attributes: Names

    @property
    def compared(self) -> Names:
        """The attributes named."""
        return self.attributes

    @property
    def sentence(self) -> str:
        """The promise."""
        together = " together" if len(self.attributes) > 1 else ""
        return f"The counts by {_join_names(self.attributes)}{together} are exactly as before."

    def problem(self, evidence: PairEvidence) -> str:
        """Return the number of cells whose count moved."""
        moved = evidence.count_moved_cells(self.attributes)
        by = _join_names(self.attributes)
        found = several(moved, f"cell by {by} has", f"cells by {by} have")
        return f"{found} another count than before" if moved else ""

    def for_users_of(self, names: Names) -> Invariant | None:
        """Return the margin over the released attributes, which is kept if the finer one is."""
        left = tuple(name for name in self.attributes if name in names)
        return KeptMargin(left) if left else None


@dataclass(frozen=True)
class DisjointPairs(PairPromise):
    """Within one stage no record is in two pairs, or paired with itself."""

    @property
    def sentence(self) -> str:
        """The promise."""
        return "No record takes part in two pairs of the same exchange."

    def problem(self, evidence: PairEvidence) -> str:
        """Count the surplus places of records."""
        for stage, names in enumerate(evidence.exchanged):
            if excess := evidence.count_repeated(stage):
                places = f"more than one place of the pairs of {_join_names(names)}"
                return f"{several(excess, 'record is', 'records are')} in {places}"
        return ""


@dataclass(frozen=True)
class PairsAgree(PairPromise):
    """The two records of a pair have equal values of these attributes when they are exchanged."""

    attributes: Names

    @property
    def compared(self) -> Names:
        """The attributes named."""
        return self.attributes

    @property
    def sentence(self) -> str:
        """The promise."""
        return f"The two records of a pair have the same {_join_names(self.attributes)}."

    def problem(self, evidence: PairEvidence) -> str:
        """Return the number of pairs that do not agree."""
        stages = range(len(evidence.exchanged))
        bad = sum(evidence.number_of_pairs(s) - evidence.count_agreeing(s, self.attributes) for s in stages)
        return (
            f"{several(bad, 'pair does', 'pairs do')} not have the same {_join_names(self.attributes)}" if bad else ""
        )


@dataclass(frozen=True)
class PairsDiffer(PairPromise):
    """The two records of a pair differ in any, or in all, of these attributes when they are exchanged.

    An attribute that some stage exchanges counts in its own stages; one that none exchanges counts in all.
    """

    attributes: Names
    how: Literal["any", "all"] = "any"

    @property
    def compared(self) -> Names:
        """The attributes named."""
        return self.attributes

    @property
    def sentence(self) -> str:
        """The promise."""
        quantity = "at least one of " if self.how == "any" and len(self.attributes) > 1 else ""
        return f"The two records of a pair differ in {quantity}{_join_names(self.attributes)}."

    def problem(self, evidence: PairEvidence) -> str:
        """Return the number of pairs that do not differ as promised."""
        anywhere = {name for names in evidence.exchanged for name in names}
        bad = 0
        for stage, names in enumerate(evidence.exchanged):
            counted = tuple(name for name in self.attributes if name in names or name not in anywhere)
            if counted and self.how == "all":
                bad += evidence.number_of_pairs(stage) - evidence.count_differing(stage, counted)
            elif counted:
                bad += evidence.count_agreeing(stage, counted)
        return (
            f"{several(bad, 'pair does', 'pairs do')} not differ in {_join_names(self.attributes)} as they should"
            if bad
            else ""
        )


@dataclass(frozen=True)
class ChangedRecords(PairPromise):
    """Every exchange is a true swap: it changes two records per pair."""

    @property
    def sentence(self) -> str:
        """The promise."""
        return "Each exchange changes exactly two records per pair."

    def problem(self, evidence: PairEvidence) -> str:
        """Return the stages that changed another number of records."""
        for stage, names in enumerate(evidence.exchanged):
            changed, meant = evidence.count_moved_records(stage), 2 * evidence.number_of_pairs(stage)
            if changed != meant:
                found = several(changed, "record has", "records have")
                return f"{found} another {_join_names(names)} than before, {meant:,} should"
        return ""


@dataclass(frozen=True)
class ReplaysFromAudit(PairPromise):
    """The audit is complete: with it, the file before can be restored from the file after.

    Exchanges must also lead forwards, from the file before to the file after.
    """

    @property
    def sentence(self) -> str:
        """The promise."""
        return "The audit record explains every change, and undoing it restores the file before exactly."

    def problem(self, evidence: PairEvidence) -> str:
        """Return the columns for which it does not."""
        for name in evidence.attributes:
            if not evidence.explains(name):
                return f"the audit record does not explain {name}"
            if not evidence.restores(name):
                return f"the audit record does not give {name} back"
        return ""


def _restores(evidence: Evidence, name: str) -> bool:
    """Return whether undoing restores the column, tested on the file itself."""
    before = evidence.before.table.column(name)
    try:
        after = undo(evidence.after, evidence.audit).table.column(name)
    except pa.ArrowInvalid:  # a value that was not replaced does not fit the old type
        return False
    return not different(*aligned_columns(before, after)).any()


def _replay(codes: Int64s, stages: list[Int64s]) -> Int64s:
    for pairs in stages:
        codes = swap_pairs(codes, pairs)
    return codes


def _describe_changes(evidence: PairEvidence, names: Names) -> str:
    counts = {name: evidence.count_changed(name) for name in names}
    return "; ".join(f"{name} has changed in {several(count, 'record')}" for name, count in counts.items() if count)


def _is_or_are(names: Names) -> str:
    return "are" if len(names) > 1 else "is"


def _join_names(names: Names) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
