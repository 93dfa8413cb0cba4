"""The Confidentiality Edit of the 1990 Census: sampled households exchange places with others of the same key.

Source: Moore 1996, Preliminary recommendations for disclosure limitation for the 2000 Census, sections II to IV, after
Griffin, Navarro & Flores-Baez 1989.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from safeswap.arrays import keyed, sparse
from safeswap.arrays.geography import in_one_area
from safeswap.arrays.sampling import Drawn
from safeswap.arrays.types import Rows
from safeswap.engines.base import Engine, Records
from safeswap.engines.identity import record_identity
from safeswap.errors import InfeasibleError
from safeswap.methods.edit_1990.areas import (
    FoundPartners,
    HouseholdAreas,
    Remedy,
    expected_moved,
    household_areas,
    partners,
    remedies,
    sample_households,
)
from safeswap.methods.edit_1990.checks import check_attributes, check_identity, check_nested, check_single_areas
from safeswap.methods.edit_1990.same_key import Partners
from safeswap.methods.edit_1990.spec import Edit1990Spec
from safeswap.methods.exchange import compensating
from safeswap.model.audit import Audit, Exchange, Facts
from safeswap.model.invariant import (
    ChangedRecords,
    DisjointPairs,
    Invariant,
    KeptMargin,
    PairsAgree,
    PairsDiffer,
    ReplaysFromAudit,
    SameRows,
    UntouchedColumns,
)
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.plan import Plan, Relaxation
from safeswap.model.text import several


@dataclass(frozen=True, kw_only=True)
class SamplePlan(Plan):
    """Expected number of households in the sample, of those with a possible partner, and of those that will move.

    A sampled household also moves its partner, sampled or not: ``moved`` counts both.
    """

    within: str
    across: str
    moved: int
    in_small_blocks: int = 0

    @property
    def sentence(self) -> str:
        """The plan in words."""
        small = f", {self.in_small_blocks:,} of them in small blocks" if self.in_small_blocks else ""
        text = f"about {self.asked:,} of {several(self.records, 'household')} will be sampled{small}; "
        text += "for each of them" if self.is_feasible else f"for about {self.feasible:,} of them"
        share = self.moved / max(self.records, 1)
        return (
            f"{text} the same key occurs in another {self.across} of the {self.within}; "
            f"about {several(self.moved, 'household')} ({share:.2%}) will move, partners included"
        )


@dataclass(frozen=True, kw_only=True)
class SampleOutcome(Plan):
    """The outcome of a sample. Every sampled household asks for a pair; a pair inside the sample serves two."""

    sampled: int
    unmatched: int

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        found = "all of them" if not self.unmatched else f"{self.sampled - self.unmatched:,} of them"
        return f"{self.sampled:,} of {several(self.records, 'household')} sampled; {found} found a partner"


class Edit1990:
    """Exchange the geography of sampled households with others of the same key."""

    name: ClassVar[str] = "edit_1990"
    title: ClassVar[str] = "Confidentiality Edit of the 1990 Census: households of the same key change places"
    spec_type: ClassVar[type[Edit1990Spec]] = Edit1990Spec
    sources: ClassVar[tuple[str, ...]] = (
        "Moore 1996, Preliminary recommendations for disclosure limitation for the 2000 Census, SRD report RR96/06",
        "Griffin, Navarro & Flores-Baez 1989, Disclosure avoidance for the 1990 Census",
    )

    def plan(self, data: Microdata, spec: Edit1990Spec, *, engine: Engine) -> SamplePlan:
        """Return the expected size of the sample, and how many of its households can have a partner at all."""
        areas = _prepare(data, spec)
        small, large = _expect_sampled(areas, len(data), spec)
        lonely = _find_partnerless(areas)
        # Households of small blocks lack partners as often as others: the mean rate suffices.
        rate = (small + large) / max(len(data), 1)
        asked, without = round(small + large), round(rate * len(lonely))
        changes = remedies(data, spec, areas, alone=lonely, used=lonely) if without else []
        return SamplePlan(
            method=self.name,
            records=len(data),
            asked=asked,
            feasible=asked - without,
            binds=_binding_changes(changes),
            relaxations=tuple(
                Relaxation(change=each.change, feasible=asked - round(rate * (len(lonely) - each.more)))
                for each in changes
            ),
            within=spec.within_level,
            across=spec.across_level,
            moved=round(expected_moved(areas, spec)),
            in_small_blocks=round(small),
        )

    def apply(self, data: Microdata, spec: Edit1990Spec, *, key: Key, engine: Engine, replicate: int = 0) -> Masked:
        """Sample, find partners, exchange. Sampled households without a partner are counted and explained."""
        areas = _prepare(data, spec)
        identity = record_identity(data, keyed.derive(key.secret, "identity"))
        check_identity(data, identity)
        draw_key = sample_key(data, key, replicate=replicate)
        drawn = sample_households(areas, spec, identity, draw_key)
        found = partners(areas, drawn, identity, draw_key)
        pairs = np.concatenate([found.inside, found.outside])
        used = np.append(drawn.rows, found.outside[:, 1])
        if len(found.alone) and spec.on_unmatched == "error":
            changes = remedies(data, spec, areas, alone=found.alone, used=used)
            raise no_partner(len(drawn.rows), len(found.alone), changes)
        masked = engine.exchange(data, spec.exchanged, pairs)
        exchanges = (Exchange(attributes=spec.exchanged, pairs=pairs),)
        audit = Audit(
            method=self.name,
            spec=spec.as_dict(),
            records=len(data),
            asked=len(pairs) + len(found.alone),
            feasible=len(pairs),
            made=len(pairs),
            exchanges=exchanges,
            key_id=key.id,
            releasable=key.releasable,
            algorithm=keyed.ALGORITHM,
            replicate=replicate,
            data_name=data.schema.name,
            compensating=compensating(data, masked, exchanges),
            facts=Facts(
                _counts(data, spec, areas, drawn, found),
                diagnosis=lambda: _describe_remedies(remedies(data, spec, areas, alone=found.alone, used=used)),
            ),
        )
        plan = SampleOutcome(
            method=self.name,
            records=len(data),
            asked=audit.asked,
            feasible=audit.feasible,
            sampled=len(drawn.rows),
            unmatched=len(found.alone),
        )
        return Masked(original=data, data=masked, spec=spec, plan=plan, audit=audit)

    def invariants(self, data: Microdata, spec: Edit1990Spec) -> tuple[Invariant, ...]:
        """Promise counts by the keys in every area of every level, and that only the geography moves."""
        untouched = tuple(name for name in data.attributes if name not in spec.exchanged)
        keys = tuple(name for name in spec.keys if name not in spec.geography)
        return (
            SameRows(),
            UntouchedColumns(untouched),
            *(KeptMargin((*spec.area(level), *keys)) for level in spec.geography),
            *([KeptMargin(spec.exchanged)] if len(spec.exchanged) > 1 else []),
            DisjointPairs(),
            PairsAgree(spec.matched),
            PairsDiffer(spec.differing, "any"),
            ChangedRecords(),
            ReplaysFromAudit(),
        )


def _prepare(data: Microdata, spec: Edit1990Spec) -> HouseholdAreas:
    check_attributes(data, spec)
    check_nested(data, spec)
    areas = household_areas(data, spec)
    if spec.rate or spec.small_block_rate:
        check_single_areas(areas, spec)
    return areas


def _expect_sampled(areas: HouseholdAreas, households: int, spec: Edit1990Spec) -> tuple[float, float]:
    """Return the expected number of sampled households in small blocks, and in others."""
    small = areas.small_households
    return small * (spec.small_block_rate or 0.0), (households - small) * spec.rate


def _find_partnerless(areas: HouseholdAreas) -> Rows:
    """Return the households whose key occurs in one area of ``across`` only."""
    groups, number = sparse.ranks(areas.matched)
    return in_one_area(groups, areas.across, number)


def _binding_changes(changes: list[Remedy]) -> tuple[str, ...]:
    return (changes[0].key,) if changes and changes[0].more else ()


def sample_outcome(found: FoundPartners, spec: Edit1990Spec, *, records: int) -> SampleOutcome:
    """Return the outcome of a sample drawn by an engine; refuse if some stay alone and the specification forbids it."""
    if found.alone and spec.on_unmatched == "error":
        raise no_partner(found.sampled, found.alone, [])
    made = found.inside + found.outside
    return SampleOutcome(
        method=Edit1990.name,
        records=records,
        asked=made + found.alone,
        feasible=made,
        sampled=found.sampled,
        unmatched=found.alone,
    )


def sample_key(data: Records, key: Key, *, replicate: int) -> bytes:
    """Derive the key for the draws of the sample and of the partners."""
    return keyed.derive(key.secret, "data", data.schema.name, len(data), Edit1990.name, "sample", replicate)


def no_partner(sampled: int, alone: int, changes: list[Remedy]) -> InfeasibleError:
    """Return the refusal of a sample in which some households stay alone, with possible remedies."""
    helpful = [f"{each.change}: {each.more:,} more" for each in changes[:3] if each.more]
    return InfeasibleError(
        f"{alone:,} of {several(sampled, 'sampled household has', 'sampled households have')} no partner",
        code="unmatched",
        hint="; or ".join([*helpful, 'on_unmatched="report" to leave them as they are']),
        sampled=sampled,
        unmatched=alone,
        changes=_describe_remedies(changes),
    )


def _describe_remedies(changes: list[Remedy]) -> list[dict[str, Any]]:
    return [{"key": each.key, "change": each.change, "more": each.more} for each in changes]


def _counts(
    data: Microdata, spec: Edit1990Spec, areas: HouseholdAreas, drawn: Drawn, found: Partners
) -> dict[str, Any]:
    """Return counts for the report; nothing about any single household."""
    pairs = np.concatenate([found.inside, found.outside])
    blocks, is_small = areas.blocks, areas.is_small
    in_small = is_small[blocks[drawn.rows]].sum() if blocks is not None and is_small is not None else 0
    return {
        "sampled": len(drawn.rows),
        "sampled_in_small_blocks": int(in_small),
        "small_blocks": int(is_small.sum()) if is_small is not None else 0,
        "matched_in_sample": 2 * len(found.inside),
        "matched_outside": len(found.outside),
        "unmatched": len(found.alone),
        "match_rate": 1 - len(found.alone) / len(drawn.rows) if len(drawn.rows) else None,
        "single_areas": len(areas.single_areas),
        "pairs_within": {level: _count_agreeing(data, spec.area(level), pairs) for level in spec.geography},
    }


def _count_agreeing(data: Microdata, names: tuple[str, ...], pairs: Rows) -> int:
    """Count the pairs that lie in the same area."""
    same = np.ones(len(pairs), dtype=np.bool_)
    for name in names:
        codes = data.coded(name).codes
        same &= codes[pairs[:, 0]] == codes[pairs[:, 1]]
    return int(np.count_nonzero(same))
