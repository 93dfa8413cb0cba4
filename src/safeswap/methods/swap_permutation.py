"""Permutation swapping: within strata, a random part of the records exchange values by a random derangement.

In every stratum of the fixed attributes each record is selected with probability p, again if exactly one was selected,
and the selected records exchange the swap attributes by a uniform derangement: none keeps its own. Unlike swapping with
a quota, this has a finite ε.

Claim: a permutation that moves m of the records of a stratum has a probability proportional to o^m / d_m, where
o = p / (1 − p) and d_m counts the derangements of m. Two files of equal counts, by the fixed attributes with all others
and by the fixed with the swap attributes, that differ in the swap attributes of k records, give any result with
probabilities whose ratio is at most exp(ε k), where with b records in the largest stratum

    ε = ln(b + 1) − ln o               for 0 < p ≤ ½,
    ε = max(ln o, ln(b + 1) − ln o)    for ½ < p < 1,   and no finite ε for p = 0 and p = 1.

Why it holds: the selection gives each set of m ≠ 1 records a probability proportional to o^m, the derangement 1 / d_m;
the bound on the ratios is that of the source, and :mod:`tests` enumerate it for small strata.

How it is drawn: a record's words are AES of its keyed draw and a counter, so neither row order nor engine matters. A
selection, and a permutation with a fixed point, is drawn again until it is valid: rejection leaves the law exact.

Source: Bailie, Gong & Meng 2023, Can swapping be differentially private?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp, inf, isfinite, log, sqrt
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from safeswap.arrays import keyed
from safeswap.arrays.names import Names
from safeswap.arrays.types import Counts, Flags, Int64s, Integers, UInt64s
from safeswap.engines.base import DRAW, Drawn, Move, Records
from safeswap.engines.memory import MemoryRecords
from safeswap.errors import InfeasibleError, SpecError
from safeswap.methods.exchange import Columns, Described, ExchangingMethod, Nesting
from safeswap.model.checked import check_types
from safeswap.model.effect import Effect, Permuted
from safeswap.model.evidence import PairEvidence
from safeswap.model.invariant import (
    ComparingPromise,
    Invariant,
    KeptMargin,
    ReplaysFromAudit,
    SameRows,
    UntouchedColumns,
)
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, Schema
from safeswap.model.spec import CATEGORIES, MaskSpec, Plan, refuse_repeats, takes
from safeswap.model.text import list_names, plural

_SELECT, _DERANGE = 1 << 32, 2 << 32
"""Purposes of a word, above the number of the attempt."""

VOID = (
    "one of several results was chosen by its score",
    "records were targeted by their risk",
    "an exact number of records was swapped",
    "a later step or another release reveals more",
)
"""The conditions that void the statement about ε."""


def epsilon_of(probability: float, largest: int) -> float:
    """Return ε per changed record, if the largest stratum has this many records; infinite where there is none.

    >>> round(epsilon_of(0.01, 2), 6), epsilon_of(1.0, 5)
    (5.693732, inf)
    """
    if not 0 < probability < 1:
        return inf
    odds = log(probability) - log(1 - probability)
    return max(odds, log(largest + 1) - odds)


def least_epsilon(largest: int) -> float:
    """Return the least ε that any probability gives: ½ ln(b + 1), at odds √(b + 1).

    >>> round(least_epsilon(10), 2), round(least_epsilon(100), 2)
    (1.2, 2.31)
    """
    return epsilon_of(_from_odds(sqrt(largest + 1)), largest)


@check_types
def for_epsilon(epsilon: float, largest: int) -> float:
    """Return the least probability that gives ε in a file whose largest stratum has this many records.

    >>> round(for_epsilon(least_epsilon(100), 100), 3)
    0.91
    """
    if largest < 1:
        raise SpecError(
            "the largest stratum must have at least one record", code="bad-spec", hint="count the strata first"
        )
    least = log(largest + 1) / 2
    if not isfinite(epsilon) or epsilon < least * (1 - 1e-12):
        raise InfeasibleError(
            f"no probability gives this ε: with {plural(largest, 'record')} in the largest stratum the least is "
            f"{least:.4f}",
            code="epsilon-too-small",
            hint="hold more attributes fixed, which makes strata smaller, or state a larger epsilon",
            least=least,
            largest=largest,
        )
    return _from_odds((largest + 1) * exp(-epsilon))


def _from_odds(odds: float) -> float:
    return odds / (1 + odds)


class SwapPermutationSpec(MaskSpec):
    """Permute the swap attributes within strata, with a stated probability or ε, which are public.

    >>> SwapPermutationSpec(swap=["Race"], fixed=["Sex"], probability=0.9).probability
    0.9
    """

    method: ClassVar[str] = "swap_permutation"

    swap: Annotated[
        Names,
        Field(
            min_length=1,
            description="attributes whose values are exchanged together",
            json_schema_extra=takes(*CATEGORIES),
        ),
    ]
    fixed: Annotated[
        Names,
        Field(
            description="attributes that define the strata; without any, the file is one stratum",
            json_schema_extra=takes(*CATEGORIES),
        ),
    ] = ()
    probability: Annotated[
        float | None, Field(ge=0, le=1, description="probability with which a record is selected; public")
    ] = None
    epsilon: Annotated[
        float | None, Field(gt=0, description="ε per changed record, instead of a probability; public")
    ] = None

    @model_validator(mode="after")
    def _is_consistent(self) -> SwapPermutationSpec:
        refuse_repeats(self, "swap", "fixed")
        if both := sorted(set(self.fixed) & set(self.swap)):
            raise ValueError(f"attribute {both[0]!r} has two roles; what is fixed cannot be swapped")
        if (self.probability is None) == (self.epsilon is None):
            raise ValueError("give either probability or epsilon")
        return self

    @check_types
    def probability_for(self, largest: int) -> float:
        """Return the probability in a file whose largest stratum has this many records."""
        if self.probability is not None:
            return self.probability
        assert self.epsilon is not None  # noqa: S101  (the validator allows exactly one of the two)
        return for_epsilon(self.epsilon, largest)

    @check_types
    def for_epsilon(self, epsilon: float) -> Self:
        """Return the same request with ε stated instead of a probability.

        >>> SwapPermutationSpec(swap=["Race"], probability=0.5).for_epsilon(3.0).epsilon
        3.0
        """
        return self.replace(probability=None, epsilon=epsilon)


@dataclass(frozen=True, kw_only=True)
class PermutationPlan(Plan):
    """The probability, the largest stratum, and what follows from them; ``asked`` counts records, as expected."""

    probability: float = 0.0
    strata: int = 0
    largest_stratum: int = 0
    epsilon: float | None = None
    given: Names = ()
    made: int | None = None

    @property
    def sentence(self) -> str:
        """The plan in plain words, with ε, what it is conditional on, and what voids it."""
        about = f"about {self.asked:,}" if self.made is None else f"{self.made:,}"
        text = f"{about} of {plural(self.records, 'record')} change places (selected with probability "
        text += f"{self.probability:.4g}, public) in {plural(self.strata, 'stratum', 'strata')} of at most "
        text += f"{plural(self.largest_stratum, 'record')}; "
        if self.epsilon is None:
            return text + "there is no finite ε"
        text += f"ε = {self.epsilon:.4f} per changed record, 2ε = {2 * self.epsilon:.4f} per exchange of two, "
        return text + f"given {'; '.join(self.given)}. Void if {', or '.join(VOID)}"


@dataclass(frozen=True)
class RandomPermutation(ComparingPromise):
    """The swap attributes were permuted at random within the strata, one to one."""

    fixed: Names = ()
    probability: float | None = None
    epsilon: float | None = None

    @property
    def sentence(self) -> str:
        """The promise, with the probability, which is public by design."""
        moved = list_names(name for name in self.attributes if name not in self.fixed)
        within = f"records with the same {list_names(self.fixed)}" if self.fixed else "all records"
        if self.epsilon is not None:
            how = f"a probability p for which ε is {self.epsilon:.6g}"
        else:
            how = f"probability p = {self.probability:.6g}"
        return (
            f"The values of {moved} were permuted at random among {within}: each record was selected with {how}, again "
            "if it was the only one, and the selected ones got each other's values by a uniform derangement. With b "
            "records in the largest group and o = p / (1 − p), ε per changed record is the larger of ln(b + 1) − ln o "
            "and, if p is above ½, ln o; the counts that are kept are taken as known."
        )

    def problem(self, evidence: PairEvidence) -> str:
        """Find records that took or gave twice, and values that left their stratum."""
        for stage in range(len(evidence.exchanged)):
            if twice := evidence.count_repeated(stage):
                return f"{plural(twice, 'record does', 'records do')} not take and give exactly once"
            number = evidence.number_of_pairs(stage)
            left = number - (evidence.count_agreeing(stage, self.fixed) if self.fixed else number)
            if left:
                return f"{plural(left, 'record has', 'records have')} values from another stratum"
        return ""

    def for_users_of(self, names: Names) -> Invariant | None:
        """Return the promise if all of its attributes are released."""
        return self if set(self.attributes) <= set(names) else None


class SwapPermutation(ExchangingMethod):
    """Permute values at random within strata."""

    name: ClassVar[str] = "swap_permutation"
    title: ClassVar[str] = "Random permutation of values within strata, with a known probability"
    spec_type: ClassVar[type[SwapPermutationSpec]] = SwapPermutationSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Bailie, Gong & Meng 2023, Can swapping be differentially private? A refreshment stirred, not shaken",
        "Dalenius & Reiss 1982, Data-swapping: a technique for disclosure control",
    )

    def columns(self, schema: Schema, spec: SwapPermutationSpec) -> Columns:
        """Return both roles, and the geography if a level of it moves."""
        areas = tuple(attribute.name for attribute in schema.iter_kind(Kind.GEOGRAPHY))
        levels = areas if set(areas) & set(spec.swap) else ()
        return Columns(read=tuple(dict.fromkeys((*spec.swap, *spec.fixed, *levels))), changed=spec.swap)

    def plan(self, data: Microdata, spec: SwapPermutationSpec) -> PermutationPlan:
        """Count the strata; state the expected number of records that move, and ε."""
        return make_plan(MemoryRecords(data), spec)

    def draw(self, records: Records, spec: SwapPermutationSpec, key: Key, *, replicate: int = 0) -> Drawn:
        """Select and derange within every stratum."""
        plan = make_plan(records, spec)
        draw_key, own_key = (
            keyed.derive(key.secret, "data", records.schema.name, len(records), self.name, purpose, replicate)
            for purpose in ("order", "words")
        )
        word, whole = (_free_name(name, spec.fixed) for name in ("word", "whole file"))
        kernel = Derange(word, plan.probability, own_key)
        drawn = records.draw(spec.fixed, draw_key, derive=AddWord(word, whole if not spec.fixed else ""))
        found = drawn.map_groups(spec.fixed or (whole,), (DRAW,), kernel)
        pairs = found.pairs("moved", "source", (DRAW,))
        made = len(pairs)
        plan = replace(plan, asked=made, feasible=made, made=made)
        move = Move(spec.swap, pairs, directed=True)
        return Drawn(plan=plan, moves=(move,), made=made, facts=_facts(plan))

    def effects(self, schema: Schema, spec: SwapPermutationSpec) -> tuple[Effect, ...]:
        """Return that the swap attributes moved together within strata."""
        return (Permuted(spec.swap, spec.fixed),)

    def invariants(self, data: Described, spec: SwapPermutationSpec) -> tuple[Invariant, ...]:
        """Promise kept margins and untouched columns, and how the rest was drawn."""
        untouched = tuple(name for name in data.attributes if name not in spec.swap)
        together = [KeptMargin((*spec.swap, *spec.fixed))] if len(spec.swap) + len(spec.fixed) > 1 else []
        drawn = RandomPermutation((*spec.swap, *spec.fixed), spec.fixed, spec.probability, spec.epsilon)
        return (
            SameRows(),
            UntouchedColumns(untouched),
            *(KeptMargin((name,)) for name in spec.swap),
            *together,
            drawn,
            ReplaysFromAudit(),
        )


def make_plan(records: Records, spec: SwapPermutationSpec) -> PermutationPlan:
    """Count the strata, and say what follows from them."""
    for name in (*spec.swap, *spec.fixed):
        if records.schema[name] is records.schema.identifier:
            raise SpecError(
                f"{name!r} is the record identifier and can have no role in a swap",
                code="identifier-role",
                hint="omit it from the specification; it stays with its record",
                attribute=name,
            )
    sizes = records.count(spec.fixed)[0].counts if spec.fixed else np.array([len(records)])
    sizes = sizes[sizes > 0]
    largest = int(sizes.max(initial=1))
    probability = spec.probability_for(largest)
    if probability:
        Nesting(records).check((spec.swap,), spec.fixed)
    expected = round(_expect_moved(sizes, probability))
    epsilon = epsilon_of(probability, largest)
    others = f"the counts by {' and '.join(spec.fixed)} with all attributes not swapped" if spec.fixed else ""
    return PermutationPlan(
        method=SwapPermutation.name,
        records=len(records),
        asked=expected,
        feasible=expected,
        probability=probability,
        strata=len(sizes),
        largest_stratum=largest,
        epsilon=epsilon if isfinite(epsilon) else None,
        given=tuple(
            text
            for text in (others or "the records without the swapped attributes", _count_words(spec.swap, spec.fixed))
            if text
        ),
    )


def _count_words(swap: Names, fixed: Names) -> str:
    return f"the counts by {' and '.join((*swap, *fixed))}{' together' if len(swap) + len(fixed) > 1 else ''}"


def _expect_moved(sizes: Counts, probability: float) -> float:
    """Return how many records move on average: those selected, given that not exactly one of a stratum is."""
    many = sizes[sizes > 1].astype(np.float64)
    if not probability:
        return 0.0
    with np.errstate(under="ignore"):
        single = many * probability * (1 - probability) ** (many - 1)
    return float(((many * probability - single) / (1 - single)).sum())


def _facts(plan: PermutationPlan) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "unit": "records",
        "probability": plan.probability,
        "strata": plan.strata,
        "largest_stratum": plan.largest_stratum,
    }
    if plan.epsilon is None:
        return {**facts, "epsilon_per_record": "none that is finite"}
    told = {"given": list(plan.given), "void_if": list(VOID)}
    return {**facts, "epsilon_per_record": plan.epsilon, "epsilon_per_exchange": 2 * plan.epsilon, **told}


def _free_name(name: str, taken: Names) -> str:
    """Return a name for a column of our own that no attribute has."""
    return name if name not in taken else _free_name(name + "_", taken)


@dataclass(frozen=True)
class AddWord:
    """Keep the first word of each draw as a column; add one that makes the whole file a group, if it is named."""

    word: str
    whole: str = ""

    @property
    def adds(self) -> Names:
        """The columns added."""
        return (self.word, self.whole) if self.whole else (self.word,)

    def __call__(self, draws: UInt64s, columns: Mapping[str, Integers]) -> Mapping[str, Integers]:
        """Return the words, and zeros."""
        own: dict[str, Integers] = {self.word: draws.view(np.int64)}
        return {**own, self.whole: np.zeros(len(draws), dtype=np.int64)} if self.whole else own


@dataclass(frozen=True)
class Derange:
    """Select records of each group, and give each selected one another's place."""

    word: str
    probability: float
    key: bytes = field(repr=False)
    adds: Names = ("source", "moved")
    partner: str = "source"

    @property
    def needs(self) -> Names:
        """The word of each record."""
        return (self.word,)

    def __call__(self, bounds: Int64s, columns: Mapping[str, Integers]) -> Mapping[str, Integers]:
        """Return for each record the position that its values come from, or −1, and whether it moves."""
        words = np.ascontiguousarray(columns[self.word]).astype(np.int64, copy=False).view(np.uint64)
        sizes = np.diff(bounds)
        groups = np.repeat(np.arange(len(sizes)), sizes)
        selected = self._select(words, groups, sizes)
        source = np.full(len(words), -1, dtype=np.int64)
        members = np.flatnonzero(selected)
        source[members] = self._derange(words[members], groups[members], members)
        return {"source": source, "moved": selected.astype(np.int64)}

    def _select(self, words: UInt64s, groups: Int64s, sizes: Int64s) -> Flags:
        """Select with the probability, and again in groups of which exactly one was selected."""
        selected = np.zeros(len(words), dtype=np.bool_)
        undecided, attempt = sizes > 1, 0
        while undecided.any():
            at = np.flatnonzero(undecided[groups])
            chosen = (self._draw(words[at], _SELECT + attempt) >> np.uint64(11)) * 2.0**-53 < self.probability
            number = np.bincount(groups[at[chosen]], minlength=len(sizes))
            selected[at[chosen]] = True
            undecided &= number == 1
            selected[at[undecided[groups[at]]]] = False
            attempt += 1
        return selected

    def _derange(self, words: UInt64s, groups: Int64s, members: Int64s) -> Int64s:
        """Return the members of each group in a random order that leaves none in its place."""
        source = np.empty(len(members), dtype=np.int64)
        at, attempt = np.arange(len(members)), 0
        while len(at):
            order = np.lexsort((self._draw(words[at], _DERANGE + attempt), groups[at]))
            source[at] = members[at[order]]
            failed = np.unique(groups[at[order == np.arange(len(at))]])
            at, attempt = at[np.isin(groups[at], failed)], attempt + 1
        return source

    def _draw(self, words: UInt64s, counter: int) -> UInt64s:
        blocks = np.empty((len(words), 2), dtype=np.uint64)
        blocks[:, 0], blocks[:, 1] = words, np.uint64(counter)
        return np.ascontiguousarray(keyed.encrypt(blocks, self.key)[:, 0])
