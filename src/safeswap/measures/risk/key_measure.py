"""The base of measures that count records with the same keys in the released file alone."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from safeswap.measures.base import AttributeNames, ParametricMeasure, choose_attributes, left_out_note
from safeswap.measures.key_cells import KeyCells, key_cells
from safeswap.model.combination import Missing
from safeswap.model.score import Comparison

_MEANINGS: dict[Missing, str] = {
    "none": "matches nothing: the record is counted by the keys that it has",
    "own": "is a value of its own",
    "any": "could be any value: the record is counted by the keys that it has",
    "vouching": "matches every value, and counts for others too",
}


MEANING_OF_MISSING = (
    "a record counts by the keys that it has (none, any), a missing key is a value (own), or matches all both ways "
    "(vouching)"
)


class KeyMeasure(ParametricMeasure):
    """A figure of the released file, by the keys that an intruder can be assumed to know.

    Anyone with the released file can compute it: it reveals nothing beyond that file.
    """

    tells_the_rate: ClassVar[bool] = False

    keys: Annotated[
        AttributeNames,
        Field(description="key variables, considered in every combination; all categorical ones if empty"),
    ] = ()
    missing: Annotated[Missing, Field(description=MEANING_OF_MISSING)] = "none"

    def _cells(self, comparison: Comparison) -> KeyCells:
        return key_cells(comparison.after, self._names(comparison), missing=self.missing)

    def _names(self, comparison: Comparison) -> tuple[str, ...]:
        return choose_attributes(comparison, self.keys)

    def _complete_sentence(self, sentence: str, comparison: Comparison, cells: KeyCells) -> str:
        """Add to the sentence how missing keys were treated and what was left out."""
        lacking = cells.incomplete
        meant = (
            f" A missing key ({lacking:,} record{'s' if lacking > 1 else ''}) {_MEANINGS[self.missing]}."
            if lacking
            else ""
        )
        return sentence + meant + left_out_note(comparison, cells.names)


def name_keys(names: tuple[str, ...]) -> str:
    """Return the keys as a short text.

    >>> name_keys(("Age", "Sex")), name_keys(("a", "b", "c", "d", "e"))
    ('Age × Sex', '5 attributes')
    """
    return " × ".join(names) if len(names) <= 4 else f"{len(names)} attributes"
