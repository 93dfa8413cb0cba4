"""Key indicators: what the users of a file compute, before and after.

An indicator is a total, mean, share, ratio, quantile or regression, of all records or by domains, usually weighted.
Each has its change, relative to its value and to its standard error under the sample design, and may state how much
of either is tolerable. The measure is the largest change, so that a map shows the release whose worst indicator moves
least.

The error of an estimate θ̃ from the masked file is v(θ̃) + (θ̃ − θ̂)²: see :mod:`safeswap.measures.survey`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from pydantic import Field

from safeswap.arrays.types import Flags, Floats
from safeswap.errors import InputError, SpecError
from safeswap.measures.survey import (
    Quotient,
    SurveyDesign,
    divide,
    quantile_errors,
    quantiles_of,
    read_design,
)
from safeswap.measures.utility.estimates import (
    NAMELESS,
    Domains,
    Line,
    LineMeasure,
    Row,
    Unit,
    change_of_quotient,
    change_of_sums,
    find_domains,
    line_scale,
    quotients,
    read_values,
    records_of,
    relative_change,
    shown_domains,
)
from safeswap.measures.utility.models import Model, compare_model
from safeswap.model.score import Comparison, Score
from safeswap.model.text import plural


class Indicators(LineMeasure):
    """The largest change of a list of key indicators.

    >>> Indicators(lines=[{"statistic": "mean", "of": "income", "by": ["region"]}]).lines[0].title
    'mean of income by region'
    """

    name: ClassVar[str] = "indicators"
    title: ClassVar[str] = "largest change in a key indicator"
    sources: ClassVar[tuple[str, ...]] = (
        "Wolter (2007), Introduction to Variance Estimation, chapter 6 (Taylor series)",
        "Woodruff (1952), Confidence intervals for medians and other position measures",
    )

    lines: Annotated[tuple[Line, ...], Field(max_length=1000, description="the indicators")] = ()
    unit: Annotated[Unit, Field(description="changes relative to the value, or in standard errors")] = "relative"
    least: Annotated[int, Field(ge=1, description="domains of fewer records are omitted")] = 30
    collapse: Annotated[bool, Field(description="join a stratum with one sampling unit to the next one")] = False
    replicate_scale: Annotated[
        float | None, Field(gt=0, description="factor of the squares over replicate weights; 1/R if omitted")
    ] = None

    @property
    def shown_from(self) -> int:
        """Number of records from which on a domain counts."""
        return self.least

    @property
    def in_unit(self) -> Unit:
        """The figure that changes are relative to."""
        return self.unit

    @property
    def has_slow_lines(self) -> bool:
        """True if there are quantiles or regressions."""
        return not all(line.is_quotient for line in self.lines)

    @property
    def slow_lines(self) -> tuple[Line, ...]:
        """The quantiles and regressions, if there is anything else."""
        quick = [line for line in self.lines if line.is_quotient]
        return tuple(line for line in self.lines if not line.is_quotient) if quick else ()

    def for_study(self) -> Self:
        """Return the measure without quantiles and regressions, unless there is nothing else."""
        quick = tuple(line for line in self.lines if line.is_quotient)
        return self if not self.slow_lines else self.model_copy(update={"lines": quick})

    def lines_for(self, comparison: Comparison) -> tuple[Line, ...]:
        """Return the stated lines."""
        if not self.lines:
            raise SpecError(
                "no indicators are stated",
                code="no-indicator",
                hint="state them in a TOML file ([[indicators]] statistic = …, of = …, by = …) and pass --indicators "
                "FILE, or read_indicators(path)",
            )
        return self.lines

    def find_obstacle(self, comparison: Comparison) -> str:
        """Return that no indicators are stated; one that did not change is an answer."""
        return "" if self.lines else "no indicators are stated"

    def score(self, comparison: Comparison) -> Score:
        """Score the masking; the detail has one row per indicator and domain."""
        rows = list(self.evaluate(comparison))
        good = [row for row in rows if not row.problem and len(row.before)]
        failed = [f"{row.line.title} ({row.problem})" for row in rows if row.problem]
        if not good:
            raise SpecError(
                "no indicator can be computed"
                + (": " + "; ".join(failed) if failed else f": no domain has {plural(self.least, 'record')}"),
                code="no-indicator",
                hint="name attributes with values, coarser domains, or a smaller least",
            )
        figures = [np.abs(row.relative) if self.unit == "relative" else row.in_errors for row in good]
        if all(np.isnan(each).all() for each in figures):
            raise lacking_errors()
        worst = max(range(len(good)), key=lambda i: float(np.nanmax(figures[i], initial=-1.0)))
        value = float(np.nanmax(figures[worst]))
        place = int(np.nanargmax(figures[worst]))
        names = tuple(dict.fromkeys(name for line in self.lines for name in line.attributes))
        sentence = self._describe(good, worst, place, value) + (
            f" Not computed: {'; '.join(failed)}." if failed else ""
        )
        return self._score(value, sentence, names, detail_table(rows))

    def _describe(self, rows: list[Row], worst: int, place: int, value: float) -> str:
        row, number = rows[worst], sum(len(each.before) for each in rows)
        where = _domain_text(row, place)
        moved = f"{value:.2%}" if self.unit == "relative" else f"{value:.2f} standard errors"
        text = f"The largest change among {plural(number, 'estimate')} of {plural(len(rows), 'indicator')} is {moved}"
        text += f": {row.line.title}{where}." if value > 0 else "."
        stated = [each for each in rows if each.line.relative is not None or each.line.errors is not None]
        if stated:
            beyond = sum(int(each.is_flagged().sum()) for each in stated)
            text += f" Beyond their tolerance: {beyond:,} of {sum(len(each.before) for each in stated):,}."
        return text

    def evaluate(self, comparison: Comparison, *, errors: bool = True) -> Iterator[Row]:
        """Compute every indicator before and after; one that cannot be computed says why.

        Without ``errors`` totals, means, shares and ratios have their change alone, in a fraction of the time.
        """
        designs = self._designs(comparison)
        for line in self.lines_for(comparison):
            try:
                if line.is_quotient and not errors:
                    yield self._change(comparison, line, designs)
                else:
                    yield self._row(comparison, line, designs)
            except SpecError as error:
                yield _failed_row(line, error.message)

    def _designs(self, comparison: Comparison) -> tuple[SurveyDesign, SurveyDesign]:
        one, other = (
            read_design(
                data,
                weight=self.weight,
                weighted=self.weighted,
                collapse=self.collapse,
                replicate_scale=self.replicate_scale,
                sampled=comparison.before,
            )
            for data in (comparison.before, comparison.after)
        )
        return one, other

    def _change(self, comparison: Comparison, line: Line, designs: tuple[SurveyDesign, SurveyDesign]) -> Row:
        """Return how far each estimate of a line moved, and nothing else."""
        one, other = quotients(comparison, line, find_domains(comparison, line.by))
        weights = designs[0].weights, designs[1].weights
        top, bottom = one.sums(weights[0])
        change = change_of_quotient(top, bottom, *change_of_sums(one, other, weights))
        shown = shown_domains(one, self.least) & np.isfinite(divide(top, bottom))
        return replace(_failed_row(line, ""), change=change[shown])

    def _row(self, comparison: Comparison, line: Line, designs: tuple[SurveyDesign, SurveyDesign]) -> Row:
        if line.statistic == "regression":
            return self._regression(comparison, line)
        domains = find_domains(comparison, line.by)
        if line.statistic == "quantile":
            return self._quantile(comparison, line, domains, designs)
        one, other = quotients(comparison, line, domains)
        top, bottom = one.sums(designs[0].weights)
        before = divide(top, bottom)
        weights = designs[0].weights, designs[1].weights
        change = change_of_quotient(top, bottom, *change_of_sums(one, other, weights))
        even = tuple(np.ones(len(w)) for w in weights)
        plain_top, plain_bottom = one.sums(even[0])
        plain = change_of_quotient(plain_top, plain_bottom, *change_of_sums(one, other, (even[0], even[1])))
        shown = shown_domains(one, self.least) & np.isfinite(before)
        variance, variance_after = (q.variances(design) for q, design in zip((one, other), designs, strict=True))
        return Row(
            line=line,
            names=_names(domains, shown, one),
            records=records_of(one)[shown],
            before=before[shown],
            change=change[shown],
            scale=line_scale(before[shown]),
            error=np.sqrt(variance)[shown],
            error_after=np.sqrt(variance_after + change**2)[shown],
            plain_change=relative_change(
                divide(plain_top, plain_bottom), plain, line_scale(divide(plain_top, plain_bottom))
            )[shown],
        )

    def _quantile(
        self, comparison: Comparison, line: Line, domains: Domains, designs: tuple[SurveyDesign, SurveyDesign]
    ) -> Row:
        values = read_values(comparison, line.of)
        found, errors, plain = [], [], []
        for side, design in enumerate(designs):
            where = domains.sides[side]
            found.append(quantiles_of(values[side], line.at, design.weights, where, domains.number))
            plain.append(quantiles_of(values[side], line.at, np.ones(len(where)), where, domains.number))
            errors.append(quantile_errors(values[side], line.at, design, where, domains.number))
        counted = Quotient(
            top=(~np.isnan(values[0])).astype(np.float64),
            bottom=None,
            of_domain=domains.sides[0],
            domains=domains.number,
        )
        shown = (
            (counted.estimates(np.ones(len(values[0]))) >= self.least) & np.isfinite(found[0]) & np.isfinite(found[1])
        )
        change = found[1] - found[0]
        return Row(
            line=line,
            names=_names(domains, shown, counted),
            records=records_of(counted)[shown],
            before=found[0][shown],
            change=change[shown],
            scale=line_scale(found[0][shown]),
            error=errors[0][shown],
            error_after=np.sqrt(errors[1] ** 2 + change**2)[shown],
            plain_change=relative_change(plain[0], plain[1] - plain[0], line_scale(plain[0]))[shown],
        )

    def _regression(self, comparison: Comparison, line: Line) -> Row:
        model = Model(formula=line.formula, family=line.family, weight=self.weight, weighted=self.weighted)
        rows = compare_model(comparison, model)
        if rows[0]["problem"]:
            return _failed_row(line, rows[0]["problem"])
        before, after, error = (np.array([row[name] for row in rows]) for name in ("before", "after", "error_before"))
        behind = np.array([row["error_after"] for row in rows])
        nothing = np.full(len(rows), np.nan)
        return Row(
            line=line,
            names=[[row["coefficient"]] for row in rows],
            records=np.full(len(rows), len(comparison.before), dtype=np.int64),
            before=before,
            change=after - before,
            scale=line_scale(before),
            error=error,
            error_after=np.sqrt(behind**2 + (after - before) ** 2),
            plain_change=nothing,
        )


def lacking_errors() -> SpecError:
    """Return the error where no standard error is known."""
    return SpecError(
        "no indicator has a standard error", code="no-indicator", hint="measure relative changes: unit=relative"
    )


def _names(domains: Domains, shown: Flags, quotient: Quotient) -> list[list[str]]:
    counts = records_of(quotient)
    return [
        domains.name(int(place)) if counts[place] >= NAMELESS else ["(rare)"] * len(domains.sizes)
        for place in np.flatnonzero(shown)
    ]


def _domain_text(row: Row, place: int) -> str:
    names = row.names[place]
    if not names:
        return ""
    if row.line.statistic == "regression":
        return f", coefficient {names[0]}"
    return " (" + ", ".join(f"{by} {level}" for by, level in zip(row.line.by, names, strict=True)) + ")"


def _failed_row(line: Line, problem: str) -> Row:
    none = np.zeros(0)
    return Row(
        line=line, names=[], records=none.astype(np.int64), before=none, change=none, scale=1.0, error=none,
        error_after=none, plain_change=none, problem=problem,
    )  # fmt: skip


def detail_table(rows: Sequence[Row]) -> pa.Table:
    """Return all estimates as a table, a row each; a line that could not be computed has its problem."""
    kinds = [
        ("indicator", pa.string()),
        ("statistic", pa.string()),
        ("domain", pa.list_(pa.string())),
        ("records", pa.int64()),
        *((name, pa.float64()) for name in ("before", "after", "value", "unweighted")),
        *((name, pa.float64()) for name in ("error", "error_after", "in_errors", "inflation")),
        ("flagged", pa.bool_()),
        ("problem", pa.string()),
    ]
    found: list[dict[str, Any]] = []
    for row in rows:
        known = {"indicator": row.line.title, "statistic": row.line.statistic}
        if row.problem:
            found.append({**known, "problem": row.problem})
        inflation = _inflation(row)
        flagged = row.is_flagged()
        for i, names in enumerate(row.names):
            numbers = {
                "before": row.before[i],
                "after": row.before[i] + row.change[i],
                "value": row.relative[i],
                "unweighted": row.plain_change[i],
                "error": row.error[i],
                "error_after": row.error_after[i],
                "in_errors": row.in_errors[i],
                "inflation": inflation[i],
            }
            plain = {name: float(value) if np.isfinite(value) else None for name, value in numbers.items()}
            found.append(
                {
                    **known,
                    "domain": names,
                    "records": int(row.records[i]),
                    **plain,
                    "flagged": bool(flagged[i]),
                    "problem": "",
                }
            )
    return pa.Table.from_pylist(found, schema=pa.schema(kinds))


def _inflation(row: Row) -> Floats:
    """Return how many times as large the standard error is with the masking's error in it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(row.error > 0, row.error_after / row.error, np.nan)


def error_multipliers(score: Score) -> dict[str, float]:
    """Return, per kind of estimate, the median factor by which masking enlarges standard errors.

    These few figures are what a public report can say of the error that masking adds, if the officer agrees: users
    multiply their standard errors by them. They are rounded up to two digits, and a kind with fewer than three
    estimates has none.

    >>> from safeswap import datasets
    >>> survey = datasets.household_survey()
    >>> same = Comparison(before=survey, after=survey, attributes=())
    >>> lines = [{"statistic": "mean", "of": "income", "by": ["region"]}]
    >>> error_multipliers(Indicators(lines=lines).score(same))
    {'mean': 1.0}
    """
    if score.detail is None or "inflation" not in score.detail.column_names:
        raise SpecError(
            f"{score.measure!r} has no standard errors", code="no-indicator", hint="pass the score of indicators"
        )
    found: dict[str, list[float]] = {}
    for row in score.detail.to_pylist():
        if row["inflation"] is not None:
            found.setdefault(row["statistic"], []).append(row["inflation"])
    return {kind: float(np.ceil(np.median(each) * 100 - 1e-9) / 100) for kind, each in found.items() if len(each) > 2}


def read_indicators(path: str | PathLike[str]) -> Indicators:
    """Read a TOML file of indicators: ``[[indicators]]`` blocks, and settings such as ``unit`` above them.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "indicators.toml"
    ...     _ = file.write_text('unit = "errors"\\n[[indicators]]\\nstatistic = "mean"\\nof = "income"\\n')
    ...     read_indicators(file).lines[0].statistic
    'mean'
    """
    from safeswap.files.formats import existing_file, unreadable_error

    file = existing_file(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise unreadable_error(file, error) from None
    except UnicodeDecodeError:
        raise _file_error(f"of {file.name!r} ", "it is not valid TOML", file=str(file)) from None
    try:
        return parse_indicators(text)
    except InputError as error:
        problem = str(error.fields["problem"])
        raise _file_error(f"of {file.name!r} ", problem, file=str(file)) from None


def parse_indicators(text: str) -> Indicators:
    """Read indicators from the text of such a file.

    >>> parse_indicators('[[indicators]]\\nstatistic = "mean"\\nof = "income"').lines[0].title
    'mean of income'
    """
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        raise _file_error("", "it is not valid TOML") from None
    blocks = content.pop("indicators", ())
    if not isinstance(blocks, list) or not blocks or not all(isinstance(block, dict) for block in blocks):
        raise _file_error("", "it has no [[indicators]] blocks")
    try:
        return Indicators(**content, lines=tuple(blocks))
    except SpecError as error:
        first = error.fields.get("problems", [{"parameter": "", "problem": error.message}])[0]
        where = first["parameter"].split(".")
        place = f"indicator {int(where[1]) + 1}, " if where[0] == "lines" and len(where) > 1 else ""
        last = where[-1] if len(where) != 2 else ""
        raise _file_error("", f"{place}{last + ': ' if last else ''}{first['problem']}") from None


def _file_error(where: str, problem: str, **fields: str) -> InputError:
    return InputError(
        f"the indicators {where}cannot be read: {problem}",
        code="bad-indicators",
        hint='write blocks such as: [[indicators]] statistic = "mean", of = "income", by = ["region"]',
        problem=problem,
        **fields,
    )
