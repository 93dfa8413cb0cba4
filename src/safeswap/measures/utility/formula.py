"""Formulas of models, as users of a file write them: ``income ~ age + sex + age:sex``.

Names are joined by ``+``; ``a:b`` is an interaction, ``a*b`` is a + b + a:b, and ``name == level`` is 1 for that level
and 0 for others. Names and levels with other characters than letters, digits, underscores and dots are quoted. A
category has a column per level but the first. Records with a missing value in the model are left out, and so are levels
that no other record has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from safeswap.arrays.types import Flags, Floats
from safeswap.errors import SpecError
from safeswap.measures.aligned import AlignedColumn, align
from safeswap.model.numeric_column import finite_numbers
from safeswap.model.schema import level_texts
from safeswap.model.score import Comparison

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
    raise formula_error("a term is a name, or name == level; quote names with blanks or other characters")


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
                f"the response {factor.name!r} is not a number" + (" and has not two levels" if binary else ""),
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
        texts, missing = level_texts(column.levels), self._missing(column)
        codes = (column.before, column.after)[number]
        if factor.level is not None:
            if factor.level not in texts:
                raise SpecError(
                    f"{factor.name!r} has no such level as the formula names",
                    code="unknown-level",
                    hint="write the level as it is in the file, quoted if it has blanks or other characters",
                    attribute=factor.name,
                )
            wanted = np.array([text == factor.level for text in texts] + [False])
            return [(str(factor), np.where(missing[codes], np.nan, wanted[codes]))]
        order, occurring = self._order(factor.name, texts), self._occurring(column)
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
                    flags[number][self._missing(column)[(column.before, column.after)[number]]] = False
        return flags[0], flags[1]

    def _occurring(self, column: AlignedColumn) -> Flags:
        """Flag the levels that a record of the model has, in either file: the others would only make it collinear."""
        counts = np.zeros(len(column.levels) + 1, dtype=np.int64)
        for codes, complete in zip((column.before, column.after), self._complete, strict=True):
            counts += np.bincount(codes[complete], minlength=len(counts))
        return counts > 0

    def _missing(self, column: AlignedColumn) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        stated = set(self.comparison.after.schema[column.name].missing)
        return np.array([text in stated for text in level_texts(column.levels)] + [True])

    def _order(self, name: str, texts: list[str]) -> list[int]:
        stated = {text: place for place, text in enumerate(self.comparison.after.schema[name].levels)}
        return sorted(range(len(texts)), key=lambda i: (stated.get(texts[i], len(stated)), texts[i]))
