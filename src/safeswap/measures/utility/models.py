"""Do users who fit models get the same answer? Confidence intervals and coefficients of a list of models.

A model is a formula, a family (linear, logistic, Poisson) and a weight. It is fitted to both files. With [L, U] the
intersection of the two confidence intervals of a coefficient, before [Lo, Uo] and after [Ls, Us]:

    overlap = ½ ((U − L) / (Uo − Lo) + (U − L) / (Us − Ls))          (Karr et al. 2006)

1 if the intervals are the same, 0 if they touch; negative ones lie apart, and are kept. The standardised difference is
|b' − b| / se(b). With a weight, standard errors are those of the sample design, linearised.

A model that cannot be fitted to one of the files is named, with the reason; the others stand.

Formulas of models, as users of a file write them: ``income ~ age + sex + age:sex``.

Names are joined by ``+``; ``a:b`` is an interaction, ``a*b`` is a + b + a:b, and ``name == level`` is 1 for that level
and 0 for others. Names and levels with other characters than letters, digits, underscores and dots are quoted. A
category has a column per level but the first. Records with a missing value in the model are left out, and so are levels
that no other record has.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator, model_validator
from scipy.special import ndtri, stdtrit

from safeswap.arrays import regression
from safeswap.arrays.types import Flags, Floats
from safeswap.errors import SpecError
from safeswap.measures.aligned import AlignedColumn, align
from safeswap.measures.base import ParametricMeasure
from safeswap.measures.survey import find_weight, read_design
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.schema import level_texts
from safeswap.model.score import Axis, Comparison, Score
from safeswap.model.spec import Strict
from safeswap.model.text import plural

MOST_COLUMNS = 500
"""A model with more coefficients is not fitted."""

NAMELESS = 10
"""A level of fewer records is not named in results, unless the formula names it: it could tell whose it is."""

_TOKEN = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|`([^`]*)`|(==|[~+*:])|([\w.]+))""")


@dataclass(frozen=True)
class Factor:
    """An attribute, or one of its levels."""

    name: str
    level: str | None = None

    def __str__(self) -> str:
        return self.name if self.level is None else f"{self.name} == {self.level}"


Term = tuple[Factor, ...]


@dataclass(frozen=True)
class Formula:
    """A response and terms, each a product of factors; there is always an intercept.

    >>> [":".join(map(str, term)) for term in Formula.parse('hours ~ age*sex + marital == "Never-married"').terms]
    ['age', 'sex', 'age:sex', 'marital == Never-married']
    """

    response: Factor
    terms: tuple[Term, ...]

    @classmethod
    def parse(cls, text: str) -> Formula:
        """Read a formula; refuse what it cannot be."""
        tokens = list(_split(text))
        if ("op", "~") not in tokens:
            raise formula_error("it lacks a ~ between the response and the terms")
        place = tokens.index(("op", "~"))
        left, right = tokens[:place], tokens[place + 1 :]
        if ("op", "~") in right:
            raise formula_error("it has more than one ~")
        terms: dict[Term, None] = {}
        for part in _divide(right, "+"):
            terms |= dict.fromkeys(_expand(part))
        return cls(_factor(left), tuple(terms))

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes of the model, the response first."""
        found = [self.response.name, *(factor.name for term in self.terms for factor in term)]
        return tuple(dict.fromkeys(found))


def _split(text: str) -> Iterator[tuple[str, str]]:
    place = 0
    while text[place:].strip():
        found = _TOKEN.match(text, place)
        if found is None:
            raise formula_error(f"character {place + 1} cannot be read")
        place = found.end()
        quoted = next((part for part in found.groups()[:3] if part is not None), None)
        if quoted is not None:
            yield "name", quoted
        else:
            yield ("op", found[4]) if found[4] else ("name", found[5])


def _divide(tokens: list[tuple[str, str]], operator: str) -> Iterator[list[tuple[str, str]]]:
    part: list[tuple[str, str]] = []
    for token in tokens:
        if token == ("op", operator):
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _expand(tokens: list[tuple[str, str]]) -> Iterator[Term]:
    """Return the terms of ``a``, ``a:b`` or ``a*b``; those of fewer factors first."""
    crossed = [tuple(_factor(part) for part in _divide(each, ":")) for each in _divide(tokens, "*")]
    chosen = sorted(product((False, True), repeat=len(crossed)), key=lambda flags: (sum(flags), [not f for f in flags]))
    for flags in chosen:
        if any(flags):
            yield tuple(factor for part, flag in zip(crossed, flags, strict=True) if flag for factor in part)


def _factor(tokens: list[tuple[str, str]]) -> Factor:
    kinds = [kind for kind, _ in tokens]
    if kinds == ["name"]:
        return Factor(tokens[0][1])
    if kinds == ["name", "op", "name"] and tokens[1][1] == "==":
        return Factor(tokens[0][1], tokens[2][1])
    raise formula_error("a term is a name, or name == level; quote names with spaces or other characters")


def formula_error(problem: str) -> SpecError:
    """Return the error for a formula that cannot be read."""
    return SpecError(
        f"a formula cannot be read: {problem}", code="bad-formula", hint="write it as: income ~ age + sex + age:sex"
    )


@dataclass(frozen=True, eq=False)
class Side:
    """The model on one file: response and design, the records that have all values, and the names of coefficients."""

    response: Floats
    design: Floats
    kept: Flags
    names: tuple[str, ...]


class ModelData:
    """The columns of a formula in both files, coded alike."""

    def __init__(self, comparison: Comparison, formula: Formula) -> None:
        self.comparison, self.formula = comparison, formula
        for name in formula.names:
            comparison.before.schema[name]
            comparison.after.schema[name]

    def side(self, number: int, *, binary: bool) -> Side:
        """Return the model on the file before (0) or after (1); with a response of 0 and 1 if ``binary``."""
        response = self._response(number, binary=binary)
        columns: list[tuple[str, Floats]] = [("intercept", np.ones(len(response)))]
        for term in self.formula.terms:
            for parts in product(*(self._columns(factor, number) for factor in term)):
                name = ":".join(label for label, _ in parts)
                columns.append((name, np.prod([column for _, column in parts], axis=0)))
                if len(columns) > MOST_COLUMNS:
                    raise SpecError(
                        f"a model has more than {MOST_COLUMNS:,} coefficients",
                        code="model-too-large",
                        hint="leave out attributes with many levels, or name single levels: region == A",
                    )
        design = np.stack([column for _, column in columns], axis=1)
        known = ~(np.isnan(response) | np.isnan(design).any(axis=1))
        return Side(response[known], design[known], known, tuple(name for name, _ in columns))

    def _response(self, number: int, *, binary: bool) -> Floats:
        factor = self.formula.response
        if factor.level is not None or self._is_number(factor.name):
            return self._columns(factor, number)[0][1]
        levels = self._columns(factor, number)
        if not binary or len(levels) != 1:
            raise SpecError(
                f"the response {factor.name!r} is not a number" + (" and does not have two levels" if binary else ""),
                code="bad-response",
                hint=f"name a numeric attribute, or one level of it: {factor.name} == level",
                attribute=factor.name,
            )
        return levels[0][1]

    def _is_number(self, name: str) -> bool:
        return all(data.schema[name].kind.is_measurable for data in (self.comparison.before, self.comparison.after))

    def _columns(self, factor: Factor, number: int) -> list[tuple[str, Floats]]:
        """Return the named columns of a factor; missing values are NaN."""
        data = (self.comparison.before, self.comparison.after)[number]
        if self._is_number(factor.name) and factor.level is None:
            return [(factor.name, finite_numbers(data, factor.name))]
        column = align(self.comparison, factor.name)
        texts, missing = level_texts(column.levels), self._flag_missing(column)
        codes = (column.before, column.after)[number]
        if factor.level is not None:
            if factor.level not in texts:
                raise SpecError(
                    f"{factor.name!r} lacks a level that the formula names",
                    code="unknown-level",
                    hint="write the level as it is in the file, quoted if it has spaces or other characters",
                    attribute=factor.name,
                )
            wanted = np.array([text == factor.level for text in texts] + [False])
            return [(str(factor), np.where(missing[codes], np.nan, wanted[codes]))]
        order, occurring = self._order(factor.name, texts), self._flag_occurring(column)
        shown = [place for place in order if not missing[place] and occurring[place]]
        counts = np.bincount(column.before, minlength=len(texts) + 1)
        found = []
        for rank, place in enumerate(shown[1:], start=2):
            level = texts[place] if counts[place] >= NAMELESS else f"(rare level {rank})"
            found.append((f"{factor.name} == {level}", np.where(missing[codes], np.nan, codes == place)))
        return found

    @cached_property
    def _complete(self) -> tuple[Flags, Flags]:
        """Flag the records of each file that have every value of the formula."""
        flags = tuple(np.ones(len(data), dtype=np.bool_) for data in (self.comparison.before, self.comparison.after))
        for name in self.formula.names:
            column = None if self._is_number(name) else align(self.comparison, name)
            for number, data in enumerate((self.comparison.before, self.comparison.after)):
                if column is None:
                    flags[number][np.isnan(finite_numbers(data, name))] = False
                else:
                    flags[number][self._flag_missing(column)[(column.before, column.after)[number]]] = False
        return flags[0], flags[1]

    def _flag_occurring(self, column: AlignedColumn) -> Flags:
        """Flag the levels that a record of the model has, in either file: the others would only make it collinear."""
        counts = np.zeros(len(column.levels) + 1, dtype=np.int64)
        for codes, complete in zip((column.before, column.after), self._complete, strict=True):
            counts += np.bincount(codes[complete], minlength=len(counts))
        return counts > 0

    def _flag_missing(self, column: AlignedColumn) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        stated = set(self.comparison.after.schema[column.name].missing)
        return np.array([text in stated for text in level_texts(column.levels)] + [True])

    def _order(self, name: str, texts: list[str]) -> list[int]:
        stated = {text: place for place, text in enumerate(self.comparison.after.schema[name].levels)}
        return sorted(range(len(texts)), key=lambda i: (stated.get(texts[i], len(stated)), texts[i]))


_LEVEL = 0.975
KARR = (
    "Karr, Kohnen, Oganian, Reiter & Sanil (2006), A framework for evaluating the utility of data altered to protect "
    "confidentiality"
)


class Model(Strict):
    """A model that users of the file fit. ``name`` is how it is called in reports.

    >>> Model(formula="income ~ age + sex").title
    'income ~ age + sex'
    """

    formula: Annotated[str, Field(min_length=3, max_length=2000, description="e.g. income ~ age + sex")]
    family: Annotated[regression.Family, Field(description="linear, logistic or poisson")] = "linear"
    weight: Annotated[str | None, Field(description="weight; that of the schema if omitted")] = None
    weighted: Annotated[bool, Field(description="false: without weights, even if the schema has one")] = True
    name: Annotated[str, Field(max_length=200, description="name of the model in reports")] = ""

    @field_validator("formula")
    @classmethod
    def _can_be_read(cls, formula: str) -> str:
        try:
            Formula.parse(formula)
        except SpecError as error:
            raise ValueError(error.message) from None
        return formula

    @property
    def title(self) -> str:
        """The name, or else the formula."""
        return self.name or self.formula


@dataclass(frozen=True, eq=False)
class Estimates:
    """The coefficients of a model on one file, their standard errors, and the half-width of intervals per error."""

    names: tuple[str, ...]
    values: Floats
    errors: Floats
    critical: float
    problem: str = ""


class ModelMeasure(ParametricMeasure):
    """A measure of the coefficients of some models, before and after."""

    axis: ClassVar[Axis] = Axis.DISTORTION

    models: Annotated[tuple[Model, ...], Field(max_length=50, description="formula, family and weight of each")] = ()

    @model_validator(mode="before")
    @classmethod
    def _reads_one(cls, values: Any) -> Any:
        """Read a single model from its formula and family, written as one word."""
        if not isinstance(values, Mapping) or "formula" not in values:
            return values
        rest = {name: value for name, value in values.items() if name not in ("formula", "family")}
        one = {name: values[name] for name in ("formula", "family") if name in values}
        return {**rest, "models": [*rest.get("models", ()), one]}

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return that no model is stated; one that did not change is an answer."""
        return "" if self.models else "no model is stated"

    def score(self, comparison: Comparison) -> Score:
        """Score the masking; the detail has one row per coefficient, and one per model that cannot be fitted."""
        if not self.models:
            raise SpecError(
                f"{self.name} needs models",
                code="no-model",
                hint=f"state them: {self.name}:formula=income ~ age + sex,family=linear; or models=[…] as JSON",
            )
        rows = [row for model in self.models for row in compare_model(comparison, model)]
        fitted = [row for row in rows if not row["problem"]]
        if not fitted:
            raise SpecError(
                f"no model of {self.name} can be fitted: " + "; ".join(_problems(rows)),
                code="model-not-fitted",
                hint="drop collinear terms, or levels with few records",
            )
        value, meaning = self._summarise(fitted, len({row["model"] for row in fitted}))
        failed = _problems(rows)
        sentence = meaning + (f" Not fitted: {'; '.join(failed)}." if failed else "")
        names = tuple(dict.fromkeys(n for m in self.models for n in Formula.parse(m.formula).names))
        return self._score(value, sentence, names, pa.Table.from_pylist(rows, schema=_ROW))

    @abstractmethod
    def _summarise(self, rows: list[dict[str, Any]], models: int) -> tuple[float, str]:
        """Return the figure over all coefficients, and what it means."""


class CiOverlap(ModelMeasure):
    """One minus the mean overlap of confidence intervals: 0 if a user's intervals are the same.

    >>> CiOverlap(formula="income~age").models[0].family
    'linear'
    """

    name: ClassVar[str] = "ci_overlap"
    title: ClassVar[str] = "lost overlap of confidence intervals"
    sources: ClassVar[tuple[str, ...]] = (KARR,)

    def _summarise(self, rows: list[dict[str, Any]], models: int) -> tuple[float, str]:
        overlaps = [row["overlap"] for row in rows]
        worst = rows[int(np.argmin(overlaps))]
        mean = float(np.mean(overlaps))
        text = (
            f"Confidence intervals of {_coefficients(rows, models)} overlap by {mean:.4f} on average "
            "(1: the same, 0: they touch, negative: they lie apart)."
        )
        least = f" Least: {worst['coefficient']} in {worst['model']} ({worst['overlap']:.4f})." if len(rows) > 1 else ""
        return max(0.0, 1 - mean), text + least


class Coefficients(ModelMeasure):
    """The mean standardised difference of coefficients: how many standard errors a user's estimate moved.

    >>> Coefficients().title
    'change in coefficients, in standard errors'
    """

    name: ClassVar[str] = "coefficients"
    title: ClassVar[str] = "change in coefficients, in standard errors"
    sources: ClassVar[tuple[str, ...]] = (KARR,)

    def _summarise(self, rows: list[dict[str, Any]], models: int) -> tuple[float, str]:
        gaps = [row["standardised"] for row in rows]
        worst = rows[int(np.argmax(gaps))]
        mean = float(np.mean(gaps))
        flips = sum(row["sign_flips"] for row in rows)
        lost = sum(row["significance_flips"] for row in rows)
        text = f"{_coefficients(rows, models)} moved by {mean:.4f} standard errors on average."
        text += f" Largest: {worst['coefficient']} in {worst['model']} ({max(gaps):.4f})." if len(rows) > 1 else ""
        return mean, f"{text} The sign changed in {flips:,}, significance at 5% in {lost:,}."


def compare_model(comparison: Comparison, model: Model) -> list[dict[str, Any]]:
    """Fit a model to both files; return one row per coefficient, or one with the problem."""
    try:
        data = ModelData(comparison, Formula.parse(model.formula))
        before, after = (estimate(data, number, model) for number in (0, 1))
    except SpecError as error:
        return [_failed_row(model, error.message)]
    for found, file in ((before, "original"), (after, "masked file")):
        if found.problem:
            return [_failed_row(model, f"{found.problem} in the {file}")]
    return [_compare(model, before, after, place) for place in range(len(before.names))]


def estimate(data: ModelData, number: int, model: Model) -> Estimates:
    """Fit the model to one of the two files."""
    side = data.side(number, binary=model.family == "logistic")
    if model.family == "logistic" and not np.isin(side.response, (0.0, 1.0)).all():
        return _no_estimates(side, "its response is not 0 and 1")
    file = (data.comparison.before, data.comparison.after)[number]
    weight = find_weight(file.schema, model.weight) if model.weighted else ""
    if not weight:
        found = regression.fit(side.design, side.response, model.family)
        linear = model.family == "linear"
        critical = float(stdtrit(found.degrees, _LEVEL) if linear and not found.problem else ndtri(_LEVEL))
        return Estimates(side.names, found.coefficients, found.errors, critical, found.problem)
    design = read_design(file, weight=weight, sampled=data.comparison.before)
    found = regression.fit(side.design, side.response, model.family, design.weights[side.kept])
    if found.problem:
        return _no_estimates(side, found.problem)
    if design.lonely:
        return _no_estimates(
            side, f"{plural(design.lonely, 'stratum has', 'strata have')} one primary sampling unit only"
        )
    scores = np.zeros((len(side.kept), found.scores.shape[1]))
    scores[side.kept] = found.scores
    spread = found.bread @ design.covariance(scores) @ found.bread
    degrees = max(1, len(design.stratum_of) - len(np.unique(design.stratum_of)))
    critical = float(stdtrit(degrees, _LEVEL))
    return Estimates(side.names, found.coefficients, np.sqrt(np.diag(spread)), critical)


def _no_estimates(side: Side, problem: str) -> Estimates:
    none = np.full(len(side.names), np.nan)
    return Estimates(side.names, none, none, np.nan, problem)


_ROW = pa.schema(
    [
        ("model", pa.string()),
        ("coefficient", pa.string()),
        *((name, pa.float64()) for name in ("before", "error_before", "after", "error_after")),
        *((name, pa.float64()) for name in ("overlap", "standardised")),
        *((name, pa.bool_()) for name in ("sign_flips", "significance_flips")),
        ("problem", pa.string()),
    ]
)


def _compare(model: Model, before: Estimates, after: Estimates, place: int) -> dict[str, Any]:
    one, other = float(before.values[place]), float(after.values[place])
    first, second = float(before.errors[place]), float(after.errors[place])
    gap = abs(other - one)
    significant = [abs(value) > found.critical * error for value, error, found in (
        (one, first, before), (other, second, after),
    )]  # fmt: skip
    return {
        "model": model.title,
        "coefficient": before.names[place],
        "before": one,
        "error_before": first,
        "after": other,
        "error_after": second,
        "overlap": overlap((one, before.critical * first), (other, after.critical * second)),
        "standardised": gap / first if first > 0 else (0.0 if gap == 0 else float("inf")),
        "sign_flips": one * other < 0,
        "significance_flips": significant[0] != significant[1],
        "problem": "",
    }


def overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return the overlap of two intervals, each a middle and a half-width; negative if they are disjoint.

    >>> overlap((0.0, 1.0), (1.0, 1.0)), overlap((0.0, 1.0), (0.0, 1.0))
    (0.5, 1.0)
    """
    if one == other:
        return 1.0
    low = max(one[0] - one[1], other[0] - other[1])
    high = min(one[0] + one[1], other[0] + other[1])
    if not (one[1] > 0 and other[1] > 0):  # an exact fit has no interval
        return 0.0
    return 0.5 * ((high - low) / (2 * one[1]) + (high - low) / (2 * other[1]))


def _failed_row(model: Model, problem: str) -> dict[str, Any]:
    return {"model": model.title, "coefficient": "", "problem": problem}


def _problems(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['model']} ({row['problem']})" for row in rows if row["problem"]]


def _coefficients(rows: list[dict[str, Any]], models: int) -> str:
    return f"{plural(len(rows), 'coefficient')} in {plural(models, 'model')}"
