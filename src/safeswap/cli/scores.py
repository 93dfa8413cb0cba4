"""Scores as tables on the terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safeswap.cli.console import table
from safeswap.model.text import plural

if TYPE_CHECKING:
    from rich.table import Table

    from safeswap.cli.console import Console
    from safeswap.model.score import Assessment, Score

# Enough for every two-way table of eleven attributes; --json gives longer lists.
MOST_TABLES = 55

_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")


def score_table(assessment: Assessment, *, brief: bool = False) -> Table:
    """Make a table with the axis, value and meaning of each measure; ``brief`` keeps the first sentence only.

    Under a scenario the table has its name, and the value before.
    """
    under = any(score.scenario for score in assessment)
    rows = [
        (
            score.measure,
            score.axis.value,
            *((score.scenario or "–",) if under else ()),
            figure(score.value) if score.before is None else f"{figure(score.before)} → {figure(score.value)}",
            _SENTENCE_END.split(score.sentence)[0] if brief else score.sentence,
        )
        for score in assessment
    ]
    if under:
        return table(["measure", "axis", "scenario", "before → after", "meaning"], rows, right="lllrl")
    return table(["measure", "axis", "value", "meaning"], rows, right="llrl")


def say_left_out(console: Console, assessment: Assessment) -> None:
    """Print the usual measures that do not apply, with the reason."""
    for sentence in assessment.left_out_sentences:
        console.say(sentence)


def small_tables(assessment: Assessment, *, ways: int) -> Table | None:
    """Make a table of the changed tables of ``ways`` attributes, with the value of each measure that has one."""
    columns = {score.measure: found for score in assessment if (found := _by_table(score, ways))}
    if not columns:
        return None
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    changed = [name for name in names if any(column.get(name) for column in columns.values())]
    rows = [[" × ".join(name), *(figure(column.get(name)) for column in columns.values())] for name in changed]
    title = f"{len(changed):,} of {plural(len(names), 'table')} of {plural(ways, 'attribute')} changed"
    if len(rows) > MOST_TABLES:
        title += f"; the first {MOST_TABLES} are shown, --json lists all"
    return table(["table", *columns], rows[:MOST_TABLES], title=title, right="l" + "r" * len(columns))


def figure(value: float | None) -> str:
    """Format a number with the digits that matter.

    >>> figure(0.0123456), figure(0), figure(None)
    ('0.01235', '0', '–')
    """
    return "–" if value is None else f"{value:.4g}"


def _by_table(score: Score, ways: int) -> dict[tuple[str, ...], float]:
    if score.detail is None or "attributes" not in score.detail.column_names:
        return {}
    rows = score.detail.select(["attributes", "value"]).to_pylist()
    return {tuple(row["attributes"]): row["value"] for row in rows if len(row["attributes"]) == ways}
