"""The Confidentiality Edit of the 1990 Census: sampled households exchange places with others of the same key.

Source: Moore 1996, Preliminary recommendations for disclosure limitation for the 2000 Census, sections II to IV, after
Griffin, Navarro & Flores-Baez 1989.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from safeswap.arrays import keyed, sparse
from safeswap.arrays.cells import CellSet
from safeswap.arrays.geography import find_groups_in_one_area
from safeswap.arrays.types import Rows
from safeswap.engines.base import DRAW, Drawn, Ends, Move, Records, Table
from safeswap.engines.memory import MemoryRecords, MemoryTable
from safeswap.errors import InfeasibleError
from safeswap.methods.edit_1990.areas import (
    RESERVED_FROM,
    HouseholdAreas,
    Remedy,
    SameKeyPartners,
    Sampling,
    draw_limit,
    expected_moved,
    household_areas,
    list_remedies,
)
from safeswap.methods.edit_1990.spec import Edit1990Spec, check_records
from safeswap.methods.exchange import Columns, Described, ExchangingMethod
from safeswap.model.audit import Facts
from safeswap.model.effect import Effect, Permuted
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
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, Schema
from safeswap.model.spec import Plan, Relaxation
from safeswap.model.text import plural


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
        text = f"about {self.asked:,} of {plural(self.records, 'household')} will be sampled{small}; "
        text += "for each of them" if self.is_feasible else f"for about {self.feasible:,} of them"
        share = self.moved / max(self.records, 1)
        return (
            f"{text} the same key occurs in another {self.across} of the {self.within}; "
            f"about {plural(self.moved, 'household')} ({share:.2%}) will move, partners included"
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
        return f"{self.sampled:,} of {plural(self.records, 'household')} sampled; {found} found a partner"


class Edit1990(ExchangingMethod):
    """Exchange the geography of sampled households with others of the same key."""

    name: ClassVar[str] = "edit_1990"
    title: ClassVar[str] = "Confidentiality Edit of the 1990 Census: households of the same key change places"
    spec_type: ClassVar[type[Edit1990Spec]] = Edit1990Spec
    sources: ClassVar[tuple[str, ...]] = (
        "Moore 1996, Preliminary recommendations for disclosure limitation for the 2000 Census, SRD report RR96/06",
        "Griffin, Navarro & Flores-Baez 1989, Disclosure avoidance for the 1990 Census",
    )

    def columns(self, schema: Schema, spec: Edit1990Spec) -> Columns:
        """Return keys, geography and household numbers, and the levels that are exchanged."""
        households = (each.name for each in schema.iter_kind(Kind.HOUSEHOLD))
        return Columns(read=tuple(dict.fromkeys((*spec.keys, *spec.geography, *households))), changed=spec.exchanged)

    def plan(self, data: Microdata, spec: Edit1990Spec) -> SamplePlan:
        """Return the expected size of the sample, and how many of its households can have a partner at all."""
        check_records(MemoryRecords(data), spec)
        areas = household_areas(data, spec)
        small, large = _expect_sampled(areas, len(data), spec)
        lonely = _find_partnerless(areas)
        # Households of small blocks lack partners as often as others: the mean rate suffices.
        rate = (small + large) / max(len(data), 1)
        asked, without = round(small + large), round(rate * len(lonely))
        changes = list_remedies(data, spec, areas, alone=lonely, used=lonely) if without else []
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

    def draw(self, records: Records, spec: Edit1990Spec, key: Key, *, replicate: int = 0) -> Drawn:
        """Sample and find partners; households without one are counted, and explained if they are in memory."""
        areas = check_records(records, spec)
        draw_key = keyed.derive(
            key.secret, "data", records.schema.name, len(records), Edit1990.name, "sample", replicate
        )
        found = _find_partners(records, spec, areas.small_blocks, draw_key)
        levels = tuple(f"within{i}" for i in range(len(spec.geography)))
        counted = ("sampled", "alone", "inside", "outside", "in_small", *levels)
        sampled, alone, inside, outside, in_small, *within = found.totals(*counted)
        if alone and spec.on_unmatched == "error":
            raise _no_partner(sampled, alone, _find_remedies(records, spec, found))
        made = inside + outside
        plan = SampleOutcome(
            method=self.name,
            records=len(records),
            asked=made + alone,
            feasible=made,
            sampled=sampled,
            unmatched=alone,
        )
        counts = {
            "sampled": sampled,
            "sampled_in_small_blocks": in_small,
            "small_blocks": len(areas.small_blocks.rows),
            "matched_in_sample": 2 * inside,
            "matched_outside": outside,
            "unmatched": alone,
            "match_rate": 1 - alone / sampled if sampled else None,
            "single_areas": areas.single,
            "pairs_within": dict(zip(spec.geography, within, strict=True)),
        }
        facts: Mapping[str, Any] = counts
        if records.held is not None:
            facts = Facts(counts, diagnosis=lambda: _describe_remedies(_find_remedies(records, spec, found)))
        pairs = found.pairs("first", "mate", ("outside", DRAW))
        return Drawn(plan=plan, moves=(Move(spec.exchanged, pairs),), made=made, facts=facts)

    def effects(self, schema: Schema, spec: Edit1990Spec) -> tuple[Effect, ...]:
        """Return that the geography moved between households that match."""
        return (Permuted(spec.exchanged, spec.matched),)

    def invariants(self, data: Described, spec: Edit1990Spec) -> tuple[Invariant, ...]:
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


def _find_partners(records: Records, spec: Edit1990Spec, small_blocks: CellSet, draw_key: bytes) -> Table:
    """Return the sample and those who may be partners, each with its partner.

    At first only the highest draws outside the sample are read; keys for which these are too few are read once more,
    with all of their records.
    """
    across, blocks = spec.area(spec.across_level), small_blocks.names
    names = tuple(dict.fromkeys((*spec.matched, *across, *spec.geography, *blocks)))
    limits = draw_limit(spec.rate), draw_limit(max(spec.rate, spec.small_block_rate or 0.0))
    sampling = Sampling(*limits, small_blocks)
    kernel = SameKeyPartners(across, tuple(spec.area(level) for level in spec.geography))
    order = ("kind", DRAW)
    ends = Ends(below=int(limits[1]), since=int(RESERVED_FROM))
    found = records.draw(names, draw_key, keep=ends, derive=sampling).map_groups(spec.matched, order, kernel)
    short = CellSet(spec.matched, found.where("short", 1).distinct(spec.matched))
    if not len(short.rows):
        return found
    whole = records.draw(names, draw_key, among=short, derive=replace(sampling, whole=True))
    return found.where("short", 0).union(whole.map_groups(spec.matched, order, kernel))


def _expect_sampled(areas: HouseholdAreas, households: int, spec: Edit1990Spec) -> tuple[float, float]:
    """Return the expected number of sampled households in small blocks, and in others."""
    small = areas.small_households
    return small * (spec.small_block_rate or 0.0), (households - small) * spec.rate


def _find_partnerless(areas: HouseholdAreas) -> Rows:
    """Return the households whose key occurs in one area of ``across`` only."""
    groups, number = sparse.rank_codes(areas.matched)
    return find_groups_in_one_area(groups, areas.across, number)


def _binding_changes(changes: list[Remedy]) -> tuple[str, ...]:
    return (changes[0].key,) if changes and changes[0].more else ()


def _find_remedies(records: Records, spec: Edit1990Spec, found: Table) -> list[Remedy]:
    """Return what would help the households left alone, if the records are in memory."""
    data = records.held
    if data is None:
        return []
    assert isinstance(found, MemoryTable)  # noqa: S101  (records in memory)
    alone = found.rows("alone")
    used = np.concatenate([found.rows("sampled"), found.partners("outside")])
    return list_remedies(data, spec, household_areas(data, spec), alone=alone, used=used)


def _no_partner(sampled: int, alone: int, changes: list[Remedy]) -> InfeasibleError:
    """Return the refusal of a sample in which some households stay alone, with possible remedies."""
    helpful = [f"{each.change}: {each.more:,} more" for each in changes[:3] if each.more]
    return InfeasibleError(
        f"{alone:,} of {plural(sampled, 'sampled household has', 'sampled households have')} no partner",
        code="unmatched",
        hint="; or ".join([*helpful, 'on_unmatched="report" to leave them as they are']),
        sampled=sampled,
        unmatched=alone,
        changes=_describe_remedies(changes),
    )


def _describe_remedies(changes: list[Remedy]) -> list[dict[str, Any]]:
    return [{"key": each.key, "change": each.change, "more": each.more} for each in changes]
