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
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

from safeswap.arrays.names import Names
from safeswap.model.audit import Audit
from safeswap.model.evidence import Evidence, PairEvidence
from safeswap.model.microdata import Microdata
from safeswap.model.text import join_names, plural


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check: the promise, whether it holds, and if not, what is wrong."""

    invariant: str
    sentence: str
    ok: bool
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for the verifier's report."""
        return asdict(self)


class Invariant(ABC):
    """A promise that can be checked. Subclasses state the promise and find violations."""

    is_about_result: ClassVar[bool] = False
    """True if it speaks of the file after alone: anyone who has that can count it, and a later step may break it."""

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
        return self._state(evidence.obstacle or self.problem(evidence))

    def _state(self, problem: str) -> Finding:
        return Finding(invariant=type(self).__name__, sentence=self.sentence, ok=not problem, problem=problem)

    @property
    def compared(self) -> Names:
        """The attributes whose values must be at hand, changed or not, to check the promise."""
        return ()

    def for_users_of(self, names: Names) -> Invariant | None:
        """Return the part of the promise that holds for a user of these columns only; None if nothing is left."""
        return None


@dataclass(frozen=True)
class AttributePromise(Invariant):
    """A promise about one attribute, which holds for anyone who gets that attribute."""

    attribute: str

    def for_users_of(self, names: Names) -> Invariant | None:
        """Return the promise if the attribute is released."""
        return self if self.attribute in names else None


@dataclass(frozen=True)
class AttributesPromise(Invariant):
    """A promise about several attributes, which holds for any of them too."""

    attributes: Names

    def for_users_of(self, names: Names) -> Invariant | None:
        """Return the promise about the released attributes."""
        left = tuple(name for name in self.attributes if name in names)
        return replace(self, attributes=left) if left else None


def verify(
    invariants: Iterable[Invariant], *, before: Microdata, after: Microdata, audit: Audit
) -> tuple[Finding, ...]:
    """Check every promise on shared evidence, so that comparisons are made once.

    >>> import numpy as np, pyarrow as pa
    >>> from safeswap.model.audit import Exchange
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Race"), Attribute(name="Sex")))
    >>> before = Microdata(pa.table({"Race": ["a", "b", "b"], "Sex": ["f", "m", "m"]}), schema)
    >>> after = Microdata(pa.table({"Race": ["b", "a", "b"], "Sex": ["f", "m", "m"]}), schema)
    >>> swapped = Exchange(attributes=("Race",), pairs=np.array([[0, 1]]))
    >>> audit = Audit(records=3, exchanges=(swapped,))
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

    @property
    def unit(self) -> str:
        """The attribute that numbers the units it speaks of, such as households; empty if these are records."""
        return ""

    def found_in(self, evidence: PairEvidence) -> Finding:
        """Check the promise on evidence of any engine."""
        return self._state(self.problem(evidence))


@dataclass(frozen=True)
class ComparingPromise(PairPromise):
    """A promise that compares values of attributes, changed or not."""

    attributes: Names

    @property
    def compared(self) -> Names:
        """The attributes named."""
        return self.attributes


@dataclass(frozen=True)
class SameRows(PairPromise):
    """The masked file has the same records, identifiers and row order as the original."""

    sentence = "The number of records, their identifiers and their order are unchanged."

    def problem(self, evidence: PairEvidence) -> str:
        """Find changed identifiers; a different number of records is an obstacle, found earlier."""
        return "" if evidence.identifier is None else _describe_changes(evidence, (evidence.identifier,))


@dataclass(frozen=True)
class UntouchedColumns(AttributesPromise, PairPromise):
    """Values and missing values of these columns are the same in every record, to the bit."""

    @property
    def sentence(self) -> str:
        """The promise."""
        return f"{join_names(self.attributes)} {'are' if len(self.attributes) > 1 else 'is'} unchanged in every record."

    def problem(self, evidence: PairEvidence) -> str:
        """Return the columns that did change."""
        return _describe_changes(evidence, self.attributes)


@dataclass(frozen=True)
class KeptMargin(AttributesPromise, ComparingPromise):
    """The counts by these attributes together are the same before and after."""

    @property
    def sentence(self) -> str:
        """The promise."""
        together = " together" if len(self.attributes) > 1 else ""
        return f"The counts by {join_names(self.attributes)}{together} are exactly as before."

    def problem(self, evidence: PairEvidence) -> str:
        """Return the number of cells whose count moved."""
        moved = evidence.count_moved_cells(self.attributes)
        by = join_names(self.attributes)
        found = plural(moved, f"cell by {by} has", f"cells by {by} have")
        return f"{found} a different count from before" if moved else ""


@dataclass(frozen=True)
class DisjointPairs(PairPromise):
    """Within one stage no record is in two pairs, or paired with itself."""

    sentence = "No record takes part in two pairs of the same exchange."

    def problem(self, evidence: PairEvidence) -> str:
        """Count the surplus places of records."""
        for stage, names in enumerate(evidence.exchanged):
            if excess := evidence.count_repeated(stage):
                places = f"more than one place of the pairs of {join_names(names)}"
                return f"{plural(excess, 'record is', 'records are')} in {places}"
        return ""


@dataclass(frozen=True)
class PairsAgree(ComparingPromise):
    """The two records of a pair have equal values of these attributes when they are exchanged."""

    @property
    def sentence(self) -> str:
        """The promise."""
        return f"The two records of a pair have the same {join_names(self.attributes)}."

    def problem(self, evidence: PairEvidence) -> str:
        """Return the number of pairs that do not agree."""
        stages = range(len(evidence.exchanged))
        bad = sum(evidence.number_of_pairs(s) - evidence.count_agreeing(s, self.attributes) for s in stages)
        return f"{plural(bad, 'pair does', 'pairs do')} not have the same {join_names(self.attributes)}" if bad else ""


@dataclass(frozen=True)
class PairsDiffer(ComparingPromise):
    """The two records of a pair differ in any, or in all, of these attributes when they are exchanged.

    An attribute that some stage exchanges counts in its own stages; one that none exchanges counts in all.
    """

    how: Literal["any", "all"] = "any"

    @property
    def sentence(self) -> str:
        """The promise."""
        quantity = "at least one of " if self.how == "any" and len(self.attributes) > 1 else ""
        return f"The two records of a pair differ in {quantity}{join_names(self.attributes)}."

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
            f"{plural(bad, 'pair does', 'pairs do')} not differ in {join_names(self.attributes)} as they should"
            if bad
            else ""
        )


@dataclass(frozen=True)
class ChangedRecords(PairPromise):
    """Every exchange is a true swap: it changes two records per pair."""

    sentence = "Each exchange changes exactly two records per pair."

    def problem(self, evidence: PairEvidence) -> str:
        """Return the stages that changed another number of records."""
        for stage, names in enumerate(evidence.exchanged):
            changed, meant = evidence.count_moved_records(stage), 2 * evidence.number_of_pairs(stage)
            if changed != meant:
                found = plural(changed, "record has", "records have")
                return f"{found} another {join_names(names)} than before, {meant:,} should"
        return ""


@dataclass(frozen=True)
class ReplaysFromAudit(PairPromise):
    """The audit is complete: with it, the file before can be restored from the file after.

    Exchanges must also lead forwards, from the file before to the file after.
    """

    sentence = "The audit record explains every change, and undoing it restores the file before exactly."

    def problem(self, evidence: PairEvidence) -> str:
        """Return the columns for which it does not."""
        for name in evidence.attributes:
            if not evidence.explains(name):
                return f"the audit record does not explain {name}"
            if not evidence.restores(name):
                return f"the audit record does not give {name} back"
        return ""


def _describe_changes(evidence: PairEvidence, names: Names) -> str:
    counts = {name: evidence.count_changed(name) for name in names}
    return "; ".join(f"{name} has changed in {plural(count, 'record')}" for name, count in counts.items() if count)
