"""What suppression did, for the report of a masking: what was unsafe before and after, and what was blanked where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safeswap.io.report_section import Section
from safeswap.methods.suppress import BELOW, BLANKED, UNSAFE
from safeswap.model.several import several

if TYPE_CHECKING:
    from safeswap.model.masked import Masked

OWN_FACTS = (UNSAFE, BLANKED)
"""Facts of the audit that are shown here, and need not be shown twice."""

_MEANINGS = {
    "none": "A missing value matches nothing: a combination with one is not counted.",
    "own": "A missing value counts as a value of its own.",
    "any": "A record that lacks keys is counted by those that it has, and counts for no other by a key that it lacks.",
    "vouching": "A missing value matches every value, and its record counts for all that it could be.",
}


def suppression_sections(masked: Masked) -> tuple[Section, ...]:
    """Two tables, where values were suppressed."""
    facts = masked.audit.facts
    if UNSAFE not in facts or BLANKED not in facts:
        return ()
    return _unsafe(masked), _blanked(masked)


def _unsafe(masked: Masked) -> Section:
    rows = masked.audit.facts[UNSAFE]
    most = max((row["before"] for row in rows), default=0) or 1
    meaning = _MEANINGS[masked.spec.as_dict().get("missing", "none")]
    facts = masked.audit.facts
    text = ["A combination of values is unsafe if fewer records share it than tolerated.", meaning]
    if BELOW in facts:  # audit records of earlier versions do not say
        below = several(facts[BELOW], "record is", "records are")
        text += [f"Protected: {facts['protected']}.", f"{below} still below the tolerance by the keys published."]
    return Section(
        title="Unsafe combinations before and after, by number of keys",
        text=tuple(text),
        columns=("keys together", "combinations of keys", "unsafe before", "unsafe after"),
        rows=tuple((row["keys"], f"{row['lists']:,}", f"{row['before']:,}", f"{row['after']:,}") for row in rows),
        numeric=(0, 1, 2, 3),
        bars=tuple(row["before"] / most for row in rows),
    )


def _blanked(masked: Masked) -> Section:
    rows = masked.audit.facts[BLANKED]
    records = max(len(masked.original), 1)
    most = max((row["values"] for row in rows), default=0) or 1
    return Section(
        title="What was blanked, by attribute",
        text=(f"The answer is {masked.audit.facts['answer']}.",),
        columns=("attribute", "importance", "values blanked", "of the records"),
        rows=tuple(
            (row["attribute"], f"{row['importance']:g}", f"{row['values']:,}", f"{row['values'] / records:.3%}")
            for row in rows
        ),
        numeric=(1, 2, 3),
        bars=tuple(row["values"] / most for row in rows),
    )
