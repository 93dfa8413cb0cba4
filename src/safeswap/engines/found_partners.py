"""What became of a sample of households, on engines that hold the records elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False, kw_only=True)
class FoundPartners:
    """The pairs of an edit, and counts of how they came about; nothing about any one household."""

    pairs: Any
    sampled: int
    in_small_blocks: int
    small_blocks: int
    inside: int
    outside: int
    alone: int
    single_areas: int
    within: Mapping[str, int]

    def facts(self) -> dict[str, Any]:
        """The counts under the names that the report gives them.

        >>> counts = dict.fromkeys(("in_small_blocks", "small_blocks", "outside", "single_areas"), 0)
        >>> FoundPartners(pairs=None, sampled=5, inside=2, alone=1, within={}, **counts).facts()["match_rate"]
        0.8
        """
        return {
            "sampled": self.sampled,
            "sampled_in_small_blocks": self.in_small_blocks,
            "small_blocks": self.small_blocks,
            "matched_in_sample": 2 * self.inside,
            "matched_outside": self.outside,
            "unmatched": self.alone,
            "match_rate": 1 - self.alone / self.sampled if self.sampled else None,
            "single_areas": self.single_areas,
            "pairs_within": dict(self.within),
        }
