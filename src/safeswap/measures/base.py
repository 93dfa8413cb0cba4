"""The protocol of a measure. A new measure is one file with one class that implements it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import AfterValidator, BeforeValidator, ValidationError

from safeswap.arrays.types import Floats
from safeswap.errors import SpecError
from safeswap.model.schema import Kind, Schema
from safeswap.model.score import Assessment, Axis, Comparison, CountedCells, LeftOut, Score
from safeswap.model.spec import Strict, spec_error
from safeswap.model.text import plural

ONLY_NUMBERS = "masking changed numeric attributes only"

RESERVED = frozenset('+,=:{}"')
"""Separators in the text form of a measure; a name that contains one is written as JSON instead."""

Situation = Literal["categories", "numbers", "recoding", "study"]
"""Situations with default measures: every assessment, changed numbers, coarser levels, a study."""


class Measure(Protocol):
    """One figure of risk or of distortion.

    ``needs`` lists what the comparison must contain besides the two files (``"touched"``: which records took part).
    ``text`` is the measure with its parameters as one word, which ``registry.measure`` parses.

    A measure also declares properties, listed with their defaults in :class:`ParametricMeasure`. Read them through
    :func:`tells_the_rate`, :func:`is_signed`, :func:`is_blind_to_recoding` or :func:`default_situations`, which
    return the safe answer for a measure that does not declare them.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    axis: ClassVar[Axis]
    needs: ClassVar[frozenset[str]]
    sources: ClassVar[tuple[str, ...]]

    @property
    def text(self) -> str:
        """Name and parameters, e.g. ``n_rule:n=5``."""
        ...

    @property
    def parameters(self) -> dict[str, Any]:
        """All parameters, defaults included, as plain values."""
        ...

    def score(self, comparison: Comparison) -> Score:
        """Compute the figure, the table behind it and a sentence that explains it."""
        ...


@runtime_checkable
class CountMeasure(Measure, Protocol):
    """A measure that needs no records, only the joint cell counts of all attributes before and after."""

    @property
    def small(self) -> int | None:
        """Size below which cells must be counted by size; None if the measure needs records."""
        ...

    def score_counts(self, counted: CountedCells) -> Score:
        """Compute the figure of :meth:`score`; the detail lacks tables of fewer attributes."""
        ...


def tells_the_rate(measure: Measure) -> bool:
    """Return whether the figure may reveal the share of records that took part; True unless declared otherwise.

    >>> from safeswap.registry import measure
    >>> tells_the_rate(measure("hellinger")), tells_the_rate(measure("k_anonymity"))
    (True, False)
    """
    return bool(getattr(measure, "tells_the_rate", True))


def is_signed(measure: Measure) -> bool:
    """Return whether the sign is a direction, so that figures compare by magnitude; True unless declared otherwise.

    >>> from safeswap.registry import measure
    >>> is_signed(measure("entropy_change")), is_signed(measure("hellinger"))
    (True, False)
    """
    return bool(getattr(measure, "signed", True))


def to_comparable(measure: Measure, values: Floats) -> Floats:
    """Return the figures in the form in which smaller is better: magnitudes where the sign is a direction.

    >>> from safeswap.registry import measure
    >>> to_comparable(measure("adV"), np.array([-0.5, 0.25])).tolist()
    [0.5, 0.25]
    """
    return np.abs(values) if is_signed(measure) else values


def is_blind_to_recoding(measure: Measure) -> bool:
    """Return whether the figure compares in the categories of the release; False unless declared otherwise."""
    return bool(getattr(measure, "blind_to_recoding", False))


def default_situations(measure: Measure) -> frozenset[str]:
    """Return the situations in which the measure is a default; none unless declared."""
    return frozenset(getattr(measure, "default_for", ()))


def find_obstacle(measure: Measure, comparison: Comparison) -> str:
    """Return why the measure does not apply to this comparison; empty if it applies or does not say."""
    find = getattr(measure, "find_obstacle", None)
    return str(find(comparison)) if find is not None else ""


def largest_small(measures: Iterable[Measure]) -> int | None:
    """Return the largest ``small`` of these measures; None if any of them needs records."""
    sizes = [measure.small if isinstance(measure, CountMeasure) else None for measure in measures]
    known = [size for size in sizes if size is not None]
    return max(known) if known and len(known) == len(sizes) else None


def score_counts(measures: Iterable[Measure], counted: CountedCells, *, leave_out: bool) -> Assessment:
    """Score, from counts alone, measures that :func:`largest_small` allows; or leave out those that do not apply."""
    if leave_out and (obstacle := counted_obstacle(counted)):
        return Assessment(scores=(), left_out=tuple(LeftOut(measure=m.text, reason=obstacle) for m in measures))
    return Assessment(scores=tuple(m.score_counts(counted) for m in measures if isinstance(m, CountMeasure)))


def _split_names(value: Any) -> Any:
    return tuple(part for part in value.split("+") if part) if isinstance(value, str) else value


def _require_distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("an attribute is named twice")
    return names


AttributeNames = Annotated[tuple[str, ...], BeforeValidator(_split_names), AfterValidator(_require_distinct)]
"""Attribute names; as text they are joined by ``+``."""


class ParametricMeasure(Strict):
    """The base of all measures: frozen parameters, errors as :class:`SpecError`, and the text form.

    ==========================  ====================================================================================
    ``tells_the_rate``          the rate may be inferred from the figure: not published without consent
    ``signed``                  the sign is a direction: figures compare by magnitude
    ``blind_to_recoding``       compares in the categories of the release: cannot be the axis of a recoded candidate
    ``default_for``             the situations in which it is a default
    ==========================  ====================================================================================
    """

    name: ClassVar[str]
    title: ClassVar[str]
    axis: ClassVar[Axis]
    needs: ClassVar[frozenset[str]] = frozenset()
    sources: ClassVar[tuple[str, ...]]
    tells_the_rate: ClassVar[bool] = True
    signed: ClassVar[bool] = False
    blind_to_recoding: ClassVar[bool] = False
    default_for: ClassVar[frozenset[Situation]] = frozenset()
    takes_text: ClassVar[bool] = True  # `n_rule:n=5` gives its parameters as text

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise spec_error(f"measure {self.name!r}", error) from None

    @property
    def parameters(self) -> dict[str, Any]:
        """All parameters, defaults included, as plain values."""
        return self.model_dump(mode="json")

    @property
    def text(self) -> str:
        """Name and non-default parameters, e.g. ``n_rule:n=5,keys=Age+Sex``."""
        given = self.model_dump(mode="json", exclude_defaults=True)
        if not given:
            return self.name
        names = [name for value in given.values() if isinstance(value, list) for name in value]
        names += [value for value in given.values() if isinstance(value, str)]
        # As plain text, blanks around a name would be lost and a name with a separator would be split.
        if any(not name or name != name.strip() or RESERVED & set(name) for name in names):
            return f"{self.name}:{json.dumps(given, ensure_ascii=False)}"
        return f"{self.name}:" + ",".join(f"{key}={_as_word(value)}" for key, value in given.items())

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return why the measure does not apply to this comparison; empty if it applies."""
        return ""

    def _score(self, value: float, sentence: str, attributes: tuple[str, ...], detail: Any) -> Score:
        return Score(
            measure=self.text,
            axis=self.axis,
            value=value,
            sentence=sentence,
            attributes=attributes,
            detail=detail,
        )


def _as_word(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def choose_attributes(comparison: Comparison, stated: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the attributes to measure: those stated for the measure, else those of the comparison.

    Where neither states any, these are the categorical ones. A numeric attribute stated by name is used with each of
    its values as a level; the identifier is refused, since each record would be a cell of its own.
    """
    schema = comparison.before.schema
    names = stated or comparison.attributes or schema.categorical
    for name in names:
        comparison.after.schema[name]  # raises for an unknown attribute
    return require_cells(schema, names)


def require_cells(schema: Schema, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the attributes that form the cells; refuse an empty list, or the identifier."""
    if not names:
        raise SpecError(
            "there is no categorical attribute to form cells from",
            code="no-categorical-attribute",
            hint="describe some attributes as nominal or ordinal, or name the attributes to compare",
        )
    for name in names:
        if schema[name].kind is Kind.IDENTIFIER:
            raise SpecError(
                f"{name!r} is the identifier: every record would be a cell of its own",
                code="identifier-in-measure",
                hint="leave it out of the attributes to compare",
                attribute=name,
            )
    return names


def categorical_obstacle(comparison: Comparison, stated: tuple[str, ...], *, least: int = 1) -> str:
    """Return why cells of these attributes cannot show the effect of masking; empty if they can.

    Where masking changed only numbers, cells of categories are unchanged: a figure of 0 would be meaningless.
    """
    from safeswap.measures.aligned import changed_names

    names = stated or comparison.attributes or comparison.before.schema.categorical
    if not names:
        return "there is no categorical attribute"
    if len(names) < least:
        return f"it needs {plural(least, 'categorical attribute')}"
    changed = changed_names(comparison)
    only_numbers = comparison.only_numbers
    if only_numbers is None:
        only_numbers = bool(changed) and numeric_names(comparison) >= changed
    return ONLY_NUMBERS if only_numbers and not changed.intersection(names) else ""


def counted_obstacle(counted: CountedCells) -> str:
    """Return the obstacle of :func:`categorical_obstacle` where cells were counted without their records."""
    return ONLY_NUMBERS if counted.only_numbers and not counted.changed else ""


def numeric_names(comparison: Comparison) -> frozenset[str]:
    """Return the attributes that are numeric in both files."""
    before, after = comparison.before.schema, comparison.after.schema
    return frozenset(
        a.name for a in before.attributes if a.kind.is_numeric and a.name in after and after[a.name].kind.is_numeric
    )


def recoding_note(comparison: Comparison, chosen: tuple[str, ...]) -> str:
    """Return a sentence naming the attributes compared in coarser categories than the original's, or nothing."""
    from safeswap.measures.aligned import recoded_names

    names = recoded_names(comparison, chosen)
    return f" Compared in the categories of the release: {', '.join(names)}; see information_loss." if names else ""


def left_out_note(comparison: Comparison, chosen: tuple[str, ...]) -> str:
    """Return a sentence naming the numeric attributes that were left out of the cells, or nothing.

    Only where "all attributes" were meant: a user who names some attributes knows that the others are left out.
    """
    return left_out_note_of(comparison.before.schema, chosen)


def left_out_note_of(schema: Schema, chosen: tuple[str, ...]) -> str:
    """Return the sentence of :func:`left_out_note` for a file with this schema."""
    numeric = [a.name for a in schema.iter_kind(Kind.NUMERIC) if a.name not in chosen]
    if not numeric or set(chosen) != set(schema.categorical):
        return ""
    shown = ", ".join(numeric[:8]) + (f" and {len(numeric) - 8} more" if len(numeric) > 8 else "")
    return f" Not compared, since numeric: {shown}."
