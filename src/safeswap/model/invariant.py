"""What a method promises about its result, as values that can be checked on the result.

Each invariant says in one sentence what holds, and checks it on the file before, the file after and the audit
between them, without the code that did the masking. A finding speaks of attributes and of numbers of records, never
of a value.

::

    SameRows        UntouchedColumns   KeptMargin                     what the file still tells
    DisjointPairs   PairsAgree         PairsDiffer   ChangedRecords   how it was masked
    ReplaysFromAudit                                                  that it can be undone
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.kernels.types import Flags, Int64s, Names
from safeswap.model.audit import Audit, Exchange
from safeswap.model.equality import aligned_columns, different
from safeswap.model.evidence import Evidence, exchanged
from safeswap.model.microdata import Microdata
from safeswap.model.several import several
from safeswap.model.undo import undo


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What came of one check: the promise, whether it holds, and if not what is wrong."""

    invariant: str
    sentence: str
    ok: bool
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for the verifier's report."""
        return {"invariant": self.invariant, "sentence": self.sentence, "ok": self.ok, "problem": self.problem}


class Invariant(ABC):
    """A promise that can be checked. Subclasses say what is promised and find what is wrong."""

    @property
    @abstractmethod
    def sentence(self) -> str:
        """What is promised, in plain words."""

    @abstractmethod
    def problem(self, evidence: Evidence) -> str:
        """What is wrong, in plain words and without a value of a record; empty where nothing is."""

    def check(self, before: Microdata, after: Microdata, audit: Audit) -> Finding:
        """Whether the promise holds on these files."""
        return self.finding(Evidence(before, after, audit))

    def finding(self, evidence: Evidence) -> Finding:
        """Whether the promise holds, on evidence that several checks share."""
        problem = evidence.obstacle or self.problem(evidence)
        return Finding(invariant=type(self).__name__, sentence=self.sentence, ok=not problem, problem=problem)

    def for_users_of(self, names: Names) -> Invariant | None:
        """What remains of the promise for somebody who sees only these columns; None where nothing does."""
        return None


def verify(
    invariants: Iterable[Invariant], *, before: Microdata, after: Microdata, audit: Audit
) -> tuple[Finding, ...]:
    """Check every promise; what one check learns about the files, the next need not learn again.

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


@dataclass(frozen=True)
class SameRows(Invariant):
    """The file that stays inside has the records, the identifiers and the row order that it had."""

    @property
    def sentence(self) -> str:
        """What is promised."""
        return "The number of records, their identifiers and their order are unchanged."

    def problem(self, evidence: Evidence) -> str:
        """A different number of records is an obstacle, found before this is asked."""
        identifier = evidence.before.schema.identifier
        return "" if identifier is None else _changed_columns(evidence, (identifier.name,))


@dataclass(frozen=True)
class UntouchedColumns(Invariant):
    """Values and missing values of these columns are the same in every record, to the bit."""

    attributes: Names

    @property
    def sentence(self) -> str:
        """What is promised."""
        return f"{_listed(self.attributes)} {_be(self.attributes)} unchanged in every record."

    def problem(self, evidence: Evidence) -> str:
        """The columns that did change."""
        return _changed_columns(evidence, self.attributes)

    def for_users_of(self, names: Names) -> Invariant | None:
        """The columns among those released."""
        left = tuple(name for name in self.attributes if name in names)
        return UntouchedColumns(left) if left else None


@dataclass(frozen=True)
class KeptMargin(Invariant):
    """The counts by these attributes together are the same before and after.

    Only records that changed can change a count, so only those are counted, before with +1 and after with −1.
    """

    attributes: Names

    @property
    def sentence(self) -> str:
        """What is promised."""
        together = " together" if len(self.attributes) > 1 else ""
        return f"The counts by {_listed(self.attributes)}{together} are exactly as before."

    def problem(self, evidence: Evidence) -> str:
        """The number of cells whose count moved."""
        if all(evidence.changed(name) is None for name in self.attributes):
            return ""
        columns = {f"c{i}": np.concatenate(evidence.codes(name)) for i, name in enumerate(self.attributes)}
        sign = np.repeat(np.array([1, -1], dtype=np.int8), len(evidence.rows))
        counts = pa.table({**columns, "sign": sign}).group_by(list(columns)).aggregate([("sign", "sum")])
        moved = pc.sum(pc.not_equal(counts["sign_sum"], 0)).as_py() or 0
        return f"{moved:,} cells by {_listed(self.attributes)} have another count than before" if moved else ""

    def for_users_of(self, names: Names) -> Invariant | None:
        """The margin by those of the attributes that are released, which is kept where the finer one is."""
        left = tuple(name for name in self.attributes if name in names)
        return KeptMargin(left) if left else None


@dataclass(frozen=True)
class DisjointPairs(Invariant):
    """Within one stage no record is in two pairs, or paired with itself."""

    @property
    def sentence(self) -> str:
        """What is promised."""
        return "No record takes part in two pairs of the same exchange."

    def problem(self, evidence: Evidence) -> str:
        """The number of records too many."""
        for exchange in evidence.audit.exchanges:
            seen = np.zeros(evidence.audit.records, dtype=np.bool_)
            seen[exchange.pairs.ravel()] = True
            excess = exchange.pairs.size - int(np.count_nonzero(seen))
            if excess:
                return f"{excess:,} records are in more than one place of the pairs of {_listed(exchange.attributes)}"
        return ""


@dataclass(frozen=True)
class PairsAgree(Invariant):
    """The two records of a pair have equal values of these attributes when they are exchanged."""

    attributes: Names

    @property
    def sentence(self) -> str:
        """What is promised."""
        return f"The two records of a pair have the same {_listed(self.attributes)}."

    def problem(self, evidence: Evidence) -> str:
        """The number of pairs that do not agree."""
        bad = 0
        for exchange, state in evidence.stages(self.attributes):
            pairs = evidence.pairs(exchange)
            agree = np.all([_equal(state[name], pairs) for name in self.attributes], axis=0)
            bad += int(np.count_nonzero(~agree))
        return f"{bad:,} pairs do not have the same {_listed(self.attributes)}" if bad else ""


@dataclass(frozen=True)
class PairsDiffer(Invariant):
    """The two records of a pair differ in any, or in all, of these attributes when they are exchanged.

    An attribute that some stage exchanges counts in its own stages; one that none exchanges counts in all.
    """

    attributes: Names
    how: Literal["any", "all"] = "any"

    @property
    def sentence(self) -> str:
        """What is promised."""
        quantity = "at least one of " if self.how == "any" and len(self.attributes) > 1 else ""
        return f"The two records of a pair differ in {quantity}{_listed(self.attributes)}."

    def problem(self, evidence: Evidence) -> str:
        """The number of pairs that do not differ as promised."""
        anywhere = {name for exchange in evidence.audit.exchanges for name in exchange.attributes}
        needed = np.all if self.how == "all" else np.any
        bad = 0
        for exchange, state in evidence.stages(self.attributes):
            pairs = evidence.pairs(exchange)
            counted = [n for n in self.attributes if n in exchange.attributes or n not in anywhere]
            if counted:
                differ = needed([~_equal(state[name], pairs) for name in counted], axis=0)
                bad += int(np.count_nonzero(~differ))
        return f"{bad:,} pairs do not differ in {_listed(self.attributes)} as they should" if bad else ""


@dataclass(frozen=True)
class ChangedRecords(Invariant):
    """Every exchange is a true swap: it changes two records per pair."""

    @property
    def sentence(self) -> str:
        """What is promised."""
        return "Each exchange changes exactly two records per pair."

    def problem(self, evidence: Evidence) -> str:
        """The stages that changed another number of records."""
        for exchange in evidence.audit.exchanges:
            changed = int(np.count_nonzero(_changed_by(exchange, evidence)))
            if changed != exchange.pairs.size:
                return (
                    f"{changed:,} records have another {_listed(exchange.attributes)} than before, "
                    f"{exchange.pairs.size:,} should"
                )
        return ""


@dataclass(frozen=True)
class ReplaysFromAudit(Invariant):
    """The audit tells all: with it the file before can be had from the file after.

    Exchanges must also lead forwards, from the file before to the file after.
    """

    @property
    def sentence(self) -> str:
        """What is promised."""
        return "The audit record explains every change, and undone it gives the file before back, exactly."

    def problem(self, evidence: Evidence) -> str:
        """The columns for which it does not."""
        replaced = {replacement.attribute for replacement in evidence.audit.replacements}
        for name in evidence.before.attributes:
            stages = [evidence.pairs(e) for e in evidence.audit.exchanges if name in e.attributes]
            if not stages and evidence.changed(name) is None:
                continue
            if name in replaced:
                if not _restores(evidence, name):
                    return f"the audit record does not give {name} back"
                continue
            # All rows that changed or took part are in the codes, so what they do not show has not happened.
            before, after = evidence.codes(name)
            if not np.array_equal(_replayed(before, stages), after):
                return f"the audit record does not explain {name}"
            if not np.array_equal(_replayed(after, stages[::-1]), before):
                return f"the audit record does not give {name} back"
        return ""


def _restores(evidence: Evidence, name: str) -> bool:
    """Whether undoing gives the column back, tried on the file itself."""
    before = evidence.before.table.column(name)
    try:
        after = undo(evidence.after, evidence.audit).table.column(name)
    except pa.ArrowInvalid:  # what was not replaced does not fit the type that was
        return False
    return not different(*aligned_columns(before, after)).any()


def _replayed(codes: Int64s, stages: list[Int64s]) -> Int64s:
    for pairs in stages:
        codes = exchanged(codes, pairs)
    return codes


def _changed_by(exchange: Exchange, evidence: Evidence) -> Flags:
    """Per row, whether a stage changed it: seen in the files, or in the replay where stages share an attribute."""
    flags = np.zeros(len(evidence.rows), dtype=np.bool_)
    for name in exchange.attributes:
        if sum(name in other.attributes for other in evidence.audit.exchanges) == 1:
            before, after = evidence.codes(name)
        else:
            before = next(state[name] for stage, state in evidence.stages((name,)) if stage is exchange)
            after = exchanged(before, evidence.pairs(exchange))
        flags |= before != after
    return flags


def _changed_columns(evidence: Evidence, names: Names) -> str:
    counts = {name: evidence.changed(name) for name in names}
    changed = {name: int(np.count_nonzero(flags)) for name, flags in counts.items() if flags is not None}
    return "; ".join(f"{name} has changed in {several(count, 'record')}" for name, count in changed.items() if count)


def _equal(codes: Int64s, pairs: Int64s) -> Flags:
    result: Flags = codes[pairs[:, 0]] == codes[pairs[:, 1]]
    return result


def _be(names: Names) -> str:
    return "are" if len(names) > 1 else "is"


def _listed(names: Names) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
