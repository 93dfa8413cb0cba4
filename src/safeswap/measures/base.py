"""The protocol of a measure. A new measure is one file with one class that implements it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from pydantic import AfterValidator, BeforeValidator

from safeswap.arrays.types import Floats
from safeswap.errors import SpecError
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Kind, Schema, refuse_date
from safeswap.model.score import Assessment, Axis, Comparison, CountedCells, LeftOut, Score
from safeswap.model.spec import Stated, require_distinct
from safeswap.model.text import list_names, plural

if TYPE_CHECKING:
    from safeswap.model.scenario import Resolved, Scenario

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
    """Score, from counts alone, measures that :func:`largest_small` allows; or omit those that do not apply."""
    if leave_out and (obstacle := counted_obstacle(counted)):
        return Assessment(scores=(), left_out=tuple(LeftOut(measure=m.text, reason=obstacle) for m in measures))
    return Assessment(scores=tuple(m.score_counts(counted) for m in measures if isinstance(m, CountMeasure)))


def _split_names(value: Any) -> Any:
    return tuple(part for part in value.split("+") if part) if isinstance(value, str) else value


AttributeNames = Annotated[tuple[str, ...], BeforeValidator(_split_names), AfterValidator(require_distinct)]
"""Attribute names; as text they are joined by ``+``."""


class ParametricMeasure(Stated):
    """The base of all measures: frozen parameters, errors as :class:`SpecError`, and the text form.

    ==========================  ====================================================================================
    ``tells_the_rate``          the rate may be inferred from the figure: not published without consent
    ``signed``                  the sign is a direction: figures compare by magnitude
    ``blind_to_recoding``       compares in the categories of the release: cannot be the axis of a recoded candidate
    ``of_changes``              a figure of the changes, such as how many can be undone: the original has none
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
    of_changes: ClassVar[bool] = False
    default_for: ClassVar[frozenset[Situation]] = frozenset()
    by_distance: ClassVar[bool] = False  # compares numbers by distance, and chooses its keys itself
    takes_text: ClassVar[bool] = True  # `n_rule:n=5` gives its parameters as text

    @classmethod
    def _name_in_errors(cls) -> str:
        return f"measure {cls.name!r}"

    @property
    def parameters(self) -> dict[str, Any]:
        """All parameters, defaults included, as plain values."""
        return self.model_dump(mode="json")

    @property
    def text(self) -> str:
        """Name and non-default parameters, e.g. ``n_rule:n=5,keys=Age+Sex``."""
        return self._as_text(self.model_dump(mode="json", exclude_defaults=True))

    def _as_text(self, given: dict[str, Any]) -> str:
        if not given:
            return self.name
        names = [name for value in given.values() if isinstance(value, list) for name in value]
        names += [value for value in given.values() if isinstance(value, str)]
        # As plain text, blanks around a name would be lost and a name with a separator would be split.
        if any(not isinstance(name, str) or not name or name != name.strip() or RESERVED & set(name) for name in names):
            return f"{self.name}:{json.dumps(given, ensure_ascii=False)}"
        return f"{self.name}:" + ",".join(f"{key}={_as_word(value)}" for key, value in given.items())

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return why the measure does not apply to this comparison; empty if it applies."""
        return ""

    def read_scenario(self, resolved: Resolved, data: Microdata) -> dict[str, Any]:
        """Return the parameters that a scenario states; None where it does not. Keys come with the comparison."""
        scenario = resolved.scenario
        found = {
            "missing": scenario.missing if "missing" in scenario.model_fields_set else None,
            "weight": scenario.weight,
            "max_size": scenario.up_to,
            "sampling_fraction": scenario.sampling_fraction(data),
        }
        return {name: value for name, value in found.items() if name in type(self).model_fields}

    def pose(self, resolved: Resolved, data: Microdata) -> tuple[tuple[str, Measure], ...]:
        """Return the measure with what the scenario states and it does not, after the text that it is known by."""
        # What is stated may be the default, and yet differ from the scenario.
        text = self._as_text(self.model_dump(mode="json", exclude_unset=True))
        posed: Any = self._fill_in(self.read_scenario(resolved, data))
        return ((text, posed),)

    def overrides(self, resolved: Resolved, data: Microdata) -> tuple[str, ...]:
        """Return the parameters that the scenario states and the measure states otherwise."""
        stated = {"keys": resolved.keys, **self.read_scenario(resolved, data)}
        own = [name for name, value in stated.items() if value is not None and name in self.model_fields_set]
        return tuple(name for name in own if getattr(self, name) != stated[name])

    def _fill_in(self, values: dict[str, Any]) -> Self:
        added = {
            name: value for name, value in values.items() if value is not None and name not in self.model_fields_set
        }
        return type(self)(**{**self.model_dump(exclude_unset=True), **added}) if added else self

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


def choose_attributes(
    comparison: Comparison, stated: tuple[str, ...] = (), *, with_dates: bool = False
) -> tuple[str, ...]:
    """Return the attributes to measure: those stated for the measure, else those of the comparison.

    Where neither states any, these are the categorical ones. A numeric attribute stated by name is used with each of
    its values as a level; the identifier is refused, since each record would be a cell of its own, and so is a date
    that was not banded, unless no cells are formed (``with_dates``).
    """
    schema = comparison.before.schema
    names = stated or comparison.attributes or schema.categorical
    for name in names:
        comparison.after.schema[name]  # raises for an unknown attribute
        if not with_dates and comparison.scenario is None:  # a scenario's key counts as it is, and the figure says so
            refuse_date(comparison.after.schema, name)
    return require_cells(schema, names)


def names_attributes(comparison: Comparison) -> bool:
    """Return whether the caller named attributes: others than the categories of the original, or of the release."""
    files = (comparison.before,) if comparison.recoded is None else (comparison.before, comparison.recoded)
    return comparison.attributes not in ((), *(file.schema.categorical for file in files))


def require_cells(schema: Schema, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the attributes that form the cells; refuse an empty list, or the identifier."""
    if not names:
        raise SpecError(
            "there is no categorical attribute to form cells from",
            code="no-categorical-attribute",
            hint="describe some attributes as nominal or ordinal, or name the attributes to compare",
        )
    refuse_identifier(schema, names)
    return names


def refuse_identifier(schema: Schema, names: Sequence[str], *, role: str = "attributes to compare") -> None:
    """Refuse names that include the identifier."""
    for name in names:
        if schema[name].kind is Kind.IDENTIFIER:
            raise SpecError(
                f"{name!r} is the identifier: every record would be a separate cell",
                code="identifier-in-measure",
                hint=f"leave it out of the {role}",
                attribute=name,
            )


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
    """Return the attributes that are numbers, or dates, in both files."""
    before, after = comparison.before.schema, comparison.after.schema
    return frozenset(
        a.name
        for a in before.attributes
        if a.kind.is_measurable and a.name in after and after[a.name].kind.is_measurable
    )


def recoding_note(comparison: Comparison, chosen: tuple[str, ...]) -> str:
    """Return a sentence naming the attributes compared in coarser categories than the original's, or nothing."""
    from safeswap.measures.aligned import recoded_names

    names = recoded_names(comparison, chosen)
    return f" Compared in the categories of the release: {list_names(names)}; see information_loss." if names else ""


def left_out_note(comparison: Comparison, chosen: tuple[str, ...]) -> str:
    """Return a sentence naming the numeric attributes omitted from the cells, or nothing.

    Only where "all attributes" were meant: a user who names some attributes knows that the others are left out.
    """
    return left_out_note_of(comparison.before.schema, chosen)


def left_out_note_of(schema: Schema, chosen: tuple[str, ...]) -> str:
    """Return the sentence of :func:`left_out_note` for a file with this schema."""
    if not set(chosen) >= set(schema.categorical):
        return ""
    noted = ((Kind.NUMERIC, "numeric"), (Kind.DATE, "dates"))
    lists = [(word, [a.name for a in schema.iter_kind(kind) if a.name not in chosen]) for kind, word in noted]
    return "".join(f" Not compared, since {word}: {list_names(names, most=8)}." for word, names in lists if names)


def name_keys(names: tuple[str, ...]) -> str:
    """Return the keys as a short text.

    >>> name_keys(("Age", "Sex")), name_keys(("a", "b", "c", "d", "e"))
    ('Age × Sex', '5 attributes')
    """
    return " × ".join(names) if len(names) <= 4 else f"{len(names)} attributes"


def score_by_unit(measure: Measure, seen: Comparison) -> Score:
    """Score a measure under the scenario of the comparison, in its unit."""
    if seen.scenario is None or seen.scenario.scenario.unit == "person":
        return measure.score(seen)
    score_households = getattr(measure, "score_households", None)
    if score_households is None:
        raise SpecError(
            f"{measure.name} counts persons, and the scenario {seen.scenario.scenario.name!r} looks for households",
            code="unit-not-supported",
            hint='use k_anonymity, n_rule, individual_risk or suda2; or set unit = "person"',
            scenario=seen.scenario.scenario.name,
            measure=measure.name,
            unit="household",
        )
    found: Score = score_households(seen)
    return found


# The figures of an original, by scenario, attributes and measure: they are the same for every release of it.
_BEFORE: WeakKeyDictionary[Microdata, dict[tuple[str, tuple[str, ...], str], float]] = WeakKeyDictionary()


def score_under(measure: Measure, comparison: Comparison, scenario: Scenario) -> tuple[Score, ...]:
    """Score a measure of risk under a scenario, on the release and on the original; one of distortion as it is.

    The keys are those that the release has, with its levels; before, those of the original. There are several scores
    where the scenario has several sensitive attributes.
    """
    from safeswap.model.scenario import resolve_files

    if measure.axis is not Axis.RISK:
        return (measure.score(comparison),)
    original, data = comparison.before, comparison.after
    then, now = resolve_files(scenario, original, original), resolve_files(scenario, original, data)
    posed = dict(_pose(measure, now, data))
    scores = []
    for text, asked in _pose(measure, then, original):
        if text in posed and (now.keys or measure.parameters.get("keys")):
            seen = replace(comparison, attributes=now.keys, scenario=now)
            score = score_by_unit(posed[text], seen)
            sentence = " ".join([score.sentence, *_scenario_notes(measure, score, now, data)])
        else:
            lost = now.note or f"Without {asked.parameters.get('sensitive')}, which is not released."
            score = Score(measure=text, axis=Axis.RISK, value=0.0, sentence=lost)
            sentence = lost
        before = score_original(asked, original, then.keys, then)
        scores.append(replace(score, measure=text, sentence=sentence, before=before, scenario=scenario.name))
    return tuple(scores)


def _pose(measure: Measure, resolved: Resolved, data: Microdata) -> tuple[tuple[str, Measure], ...]:
    """Return the measure under the scenario; one that takes no parameters from it has the keys by the comparison."""
    if isinstance(measure, ParametricMeasure):
        return measure.pose(resolved, data)
    return ((measure.text, measure),)


def score_original(
    measure: Measure, original: Microdata, attributes: tuple[str, ...], resolved: Resolved | None = None
) -> float | None:
    """Return the figure of a measure of risk for the original itself, of which no record was touched; None if none."""
    if getattr(measure, "of_changes", False):
        return None
    known = _BEFORE.setdefault(original, {})
    place = ("" if resolved is None else resolved.scenario.model_dump_json(), attributes, measure.text)
    if place not in known:
        untouched = np.zeros(len(original), dtype=np.bool_)
        seen = Comparison(before=original, after=original, attributes=attributes, touched=untouched, scenario=resolved)
        known[place] = score_by_unit(measure, seen).value
    return known[place]


def _scenario_notes(measure: Measure, score: Score, resolved: Resolved, data: Microdata) -> list[str]:
    """Return what else to say of a figure: keys that are gone, keys that are numbers, parameters stated otherwise."""
    from safeswap.model.scenario import describe_numbers

    own = measure.overrides(resolved, data) if isinstance(measure, ParametricMeasure) else ()
    numbers = tuple(name for name in score.attributes if name in resolved.numeric)
    if getattr(measure, "by_distance", False) and len(numbers) == len(score.attributes):
        numbers = ()
    numbers += tuple(name for name in score.attributes if name in resolved.dates)
    notes = [resolved.note if "keys" not in own else "", describe_numbers(data, numbers)]
    if resolved.scenario.weight is not None and {"k", "n"} & measure.parameters.keys():
        weight = resolved.scenario.weight
        notes.append(
            f"Records are counted here; the tolerance of the scenario is a sum of {weight} and is not applied."
        )
    notes.append(f"Set for this figure instead of by the scenario: {', '.join(own)}." if own else "")
    most, number = resolved.scenario.up_to, len(resolved.keys)
    if {"k", "n", "l"} & measure.parameters.keys() and "keys" not in own and most is not None and number > most:
        notes.append(f"All {number} keys are taken together here; the scenario allows up to {most} at a time.")
    return [note for note in notes if note]
