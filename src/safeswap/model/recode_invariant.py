"""What recoding promises of its result, checked value by value and without the code that recoded."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, inf

import pyarrow as pa

from safeswap.kernels.types import Names
from safeswap.model.evidence import Evidence
from safeswap.model.invariant import Invariant
from safeswap.model.levels import level_texts
from safeswap.model.recode_steps import (
    Blank,
    ByHierarchy,
    Drop,
    GlobalRecode,
    Ranges,
    Recode,
    Round,
    Step,
    TopBottomCode,
    Truncate,
)
from safeswap.model.schema import Attribute, Kind


@dataclass(frozen=True)
class Recoded(Invariant):
    """Every value became what the steps say, and the same value became the same everywhere.

    ``before`` describes the attribute as each step found it; ranges have their breaks written down.
    """

    attribute: str
    steps: tuple[Step, ...]
    before: tuple[Attribute, ...]

    @property
    def sentence(self) -> str:
        """What is promised."""
        if isinstance(self.steps[-1], Drop):
            return f"{self.attribute} tells nothing any more, of any record."
        return f"Values of {self.attribute} are true and coarser: each became one value, the same in all records."

    def problem(self, evidence: Evidence) -> str:
        """The number of values that became several, or something else."""
        pairs = _pairs(evidence, self.attribute)
        several = len(pairs) - len({old for old, _ in pairs})
        if several:
            return f"{several:,} values of {self.attribute} became more than one value"
        wrong = sum(new != self._expected(old) for old, new in pairs)
        return f"{wrong:,} values of {self.attribute} are not what the recoding says" if wrong else ""

    def for_users_of(self, names: Names) -> Invariant | None:
        """The same, where the attribute is released."""
        return self if self.attribute in names else None

    def _expected(self, value: str | None) -> str | None:
        for step, attribute in zip(self.steps, self.before, strict=True):
            value = value if value is None else expected(value, step, attribute)
        return value


def _pairs(evidence: Evidence, name: str) -> list[tuple[str | None, str | None]]:
    """The pairs of values before and after that occur in a record."""
    sides = [_plain(data.table.column(name)) for data in (evidence.before, evidence.after)]
    table = pa.table({"before": sides[0], "after": sides[1]}).group_by(["before", "after"]).aggregate([])
    columns = [_texts(table.column(side).combine_chunks()) for side in ("before", "after")]
    return list(zip(*columns, strict=True))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _texts(values: pa.Array) -> list[str | None]:
    known = iter(level_texts(values.drop_null()))
    return [next(known) if valid else None for valid in values.is_valid().to_pylist()]


def expected(value: str, step: Step, attribute: Attribute) -> str | None:  # noqa: PLR0911  (one per case)
    """What a step makes of one value, said as plainly as can be.

    >>> expected("4711", Truncate(attribute="NACE", characters=2, fill="*"), Attribute(name="NACE"))
    '47**'
    """
    if isinstance(step, Drop):
        return None
    if isinstance(step, Blank):
        return None if not step.values or value in step.values else value
    if isinstance(step, Recode) and value in step.target:
        return step.target[value]
    numeric = attribute.kind in (Kind.NUMERIC, Kind.WEIGHT)
    if value in attribute.missing:
        place = attribute.missing.index(value)
        return step.missing[place] if isinstance(step, GlobalRecode) and place < len(step.missing) else value
    if numeric and value == "nan":
        return None if isinstance(step, Ranges | GlobalRecode) else value
    found = _found(value, step, attribute)
    if found is not None:
        return found
    return None if getattr(step, "otherwise", "blank") == "blank" else value


def _found(value: str, step: Step, attribute: Attribute) -> str | None:  # noqa: PLR0911  (one per step)
    match step:
        case GlobalRecode():
            return next((span.to for span in step.spans if span.holds(value)), None)
        case Ranges():
            number = float(value)
            passed = [b for b in step.breaks if (number >= b if step.closed == "left" else number > b)]
            return step.labels[len(passed)]
        case ByHierarchy():
            return _above(value, step, attribute)
        case Truncate():
            left = len(value) - step.characters
            return value[:left] + step.fill * step.characters if left > 0 else None
        case Round():
            return _rounded(float(value), step)
        case TopBottomCode():
            return _bounded(value, step, attribute)
    return None


def _above(value: str, step: ByHierarchy, attribute: Attribute) -> str | None:
    maps = step.tree.steps if step.tree is not None else attribute.hierarchy
    if all(value not in each and value not in each.values() for each in maps):
        return None
    for each in maps[: step.level]:
        value = each.get(value, value)
    return value


def _rounded(number: float, step: Round) -> str:
    parts = round(number / step.base, 9)
    if abs(parts) == inf:
        return repr(number).removesuffix(".0")
    nearest = ceil(parts - 0.5) if parts < 0 else floor(parts + 0.5)
    whole = {"nearest": nearest, "down": floor(parts), "up": ceil(parts)}[step.how]
    return repr(round(whole * step.base, 9) + 0.0).removesuffix(".0")


def _bounded(value: str, step: TopBottomCode, attribute: Attribute) -> str:
    levels = [text for text in attribute.levels if text not in attribute.missing]
    bounds = [bound for bound in (step.top, step.bottom) if bound is not None]
    by_level = attribute.kind is Kind.ORDINAL and all(text in levels for text in (*bounds, value))

    def place(text: str) -> float:
        return levels.index(text) if by_level else float(text)

    at = place(value)
    if step.top is not None and (at > place(step.top) or (step.top_label is not None and at == place(step.top))):
        return step.top if step.top_label is None else step.top_label
    if step.bottom is not None and (at < place(step.bottom) or (step.bottom_label and at == place(step.bottom))):
        return step.bottom if step.bottom_label is None else step.bottom_label
    return value
