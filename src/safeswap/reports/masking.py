"""The internal report of one masking: what was requested, done and kept, and its effects.

Sections appear only if they apply: distances between exchanged records and changes of distributions by level of
geography, if geography was exchanged; PERCENTAGE BIAS by level, if numbers were.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from safeswap import registry
from safeswap.charts.spec_text import python_text
from safeswap.measures.geography_report import areas_changed_most, geography_report
from safeswap.measures.utility.bias import percentage_bias
from safeswap.measures.utility.information import InformationLoss
from safeswap.methods.suppress.method import BELOW, BLANKED, UNSAFE
from safeswap.model.checked import check_types
from safeswap.model.masked import Masked
from safeswap.model.schema import Kind
from safeswap.model.score import Assessment, Comparison
from safeswap.model.text import plural
from safeswap.pipelines.account import Account
from safeswap.reports.safe import OWN_FACTS as SAFE_FACTS
from safeswap.reports.safe import InternalReport, Section, safe_sections

METHODS = ("recode", "suppress")
"""Methods that make values coarser or blank, but never wrong."""


def loss_sections(masked: Masked) -> tuple[Section, ...]:
    """Return a table of the information lost by attribute, if values were made coarser or blank."""
    if masked.audit.method not in METHODS:
        return ()
    before = masked.original
    score = InformationLoss().score(Comparison(before=before, after=masked.data, attributes=before.schema.categorical))
    rows = [] if score.detail is None else [row for row in score.detail.to_pylist() if row["bits_lost"] > 0]
    return (
        Section(
            title="Information lost, by attribute",
            text=(score.sentence, "Attributes that are not listed lost nothing."),
            columns=("attribute", "values before", "values after", "blanked", "bits per record lost", "share lost"),
            rows=tuple(
                (
                    row["attribute"],
                    f"{row['levels_before']:,}",
                    f"{row['levels_after']:,}",
                    f"{row['blanked']:,}",
                    f"{row['bits_lost'] / max(len(before), 1):.4f}",
                    f"{row['value']:.2%}",
                )
                for row in rows
            ),
            numeric=(1, 2, 3, 4, 5),
            bars=tuple(float(row["value"]) for row in rows),
        ),
    )


OWN_FACTS = (UNSAFE, BLANKED)
"""Facts of the audit with sections of their own."""

_MEANINGS = {
    "none": "A missing value matches nothing: a combination with one is not counted.",
    "own": "A missing value counts as a separate value.",
    "any": "A record that lacks keys is counted by those that it has, and counts for no other by a key that it lacks.",
    "vouching": "A missing value matches every value, and its record counts for all that it could be.",
}


def suppression_sections(masked: Masked) -> tuple[Section, ...]:
    """Return tables of unsafe combinations and of blanked values, if values were suppressed."""
    facts = masked.audit.facts
    if UNSAFE not in facts or BLANKED not in facts:
        return ()
    return _unsafe_section(masked), _blanked_section(masked)


def _unsafe_section(masked: Masked) -> Section:
    rows = masked.audit.facts[UNSAFE]
    most = max((row["before"] for row in rows), default=0) or 1
    meaning = _MEANINGS[masked.spec.as_dict().get("missing", "none")]
    facts = masked.audit.facts
    text = ["A combination of values is unsafe if fewer records share it than tolerated.", meaning]
    if BELOW in facts:  # audit records of earlier versions do not say
        below = plural(facts[BELOW], "record is", "records are")
        text += [f"Protected: {facts['protected']}.", f"{below} still below the tolerance by the keys published."]
    return Section(
        title="Unsafe combinations before and after, by number of keys",
        text=tuple(text),
        columns=("keys together", "combinations of keys", "unsafe before", "unsafe after"),
        rows=tuple((row["keys"], f"{row['lists']:,}", f"{row['before']:,}", f"{row['after']:,}") for row in rows),
        numeric=(0, 1, 2, 3),
        bars=tuple(row["before"] / most for row in rows),
    )


def _blanked_section(masked: Masked) -> Section:
    rows = masked.audit.facts[BLANKED]
    records = max(len(masked.original), 1)
    most = max((row["values"] for row in rows), default=0) or 1
    return Section(
        title="Values blanked, by attribute",
        text=(f"The answer is {masked.audit.facts['answer']}.",),
        columns=("attribute", "importance", "values blanked", "of the records"),
        rows=tuple(
            (row["attribute"], f"{row['importance']:g}", f"{row['values']:,}", f"{row['values'] / records:.3%}")
            for row in rows
        ),
        numeric=(1, 2, 3),
        bars=tuple(row["values"] / most for row in rows),
    )


_MOST_LEVELS = 40
_MOST_AREAS = 5


@check_types
def write_masking_report(
    masked: Masked,
    path: str | os.PathLike[str],
    *,
    assessment: Assessment,
    distributions: Sequence[str] = (),
    date: str = "",
    force: bool = False,
) -> Path:
    """Write the internal report of one masking as a self-contained HTML page, readable by its owner only.

    ``distributions`` names the attributes whose distributions are shown at each level of geography, by default all
    categorical ones.

    >>> import tempfile
    >>> from safeswap import assess, datasets, swap
    >>> masked = swap(datasets.cps8d(), swap=["Race"], rate=0.05, insecure_seed=1)
    >>> write_masking_report(masked, Path(tempfile.mkdtemp()) / "report.html", assessment=assess(masked)).name
    'report.html'
    """
    method = registry.method(masked.spec.method)
    account = masked.account
    sections = (
        *pipeline_sections(account),
        *table_facts(masked),
        *suppression_sections(masked),
        *safe_sections(masked),
        *loss_sections(masked),
        *geography_sections(masked, distributions),
        *bias_sections(masked),
    )
    report = InternalReport(
        title=f"Masking of {masked.original.schema.name or 'a file'}",
        method=method.title,
        date=date,
        plan=masked.plan.sentence + ".",
        spec=python_text(masked.spec, replicate=masked.audit.replicate),
        facts=[(name.replace("_", " "), value) for name, value in _facts(masked)],
        kept=list(dict.fromkeys(promise.sentence for promise in account.statements)),
        scores=list(assessment),
        left_out=assessment.left_out_sentences,
        sections=sections,
        for_release=masked.audit.releasable,
    )
    return report.write(path, force=force)


def pipeline_sections(account: Account) -> tuple[Section, ...]:
    """Return what each step of a pipeline did, warnings of promises that a later step broke, and every column."""
    masked = account.masked
    if not masked.parts:
        return ()
    steps = tuple(
        (step.name, stage.plan.sentence, f"{stage.audit.made:,} {stage.audit.unit}")
        for step, stage in zip(masked.audit.steps, masked.stages, strict=True)
    )
    columns = tuple((change.column, change.status, change.details) for change in account.changes)
    return (
        Section(title="Steps", text=account.flags, columns=("step", "plan", "done"), rows=steps, numeric=(2,)),
        Section(
            title="Columns, compared with the original", columns=("column", "status", "what happened"), rows=columns
        ),
    )


def table_facts(masked: Masked) -> tuple[Section, ...]:
    """Return the facts of the audit that are tables, such as what would find a partner for more households."""
    own = (*OWN_FACTS, *SAFE_FACTS)
    tables = {
        name: value
        for name, value in masked.audit.facts.items()
        if name not in own and isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
    }
    return tuple(
        Section(
            title=name.replace("_", " ").capitalize(),
            columns=tuple(rows[0]),
            rows=tuple(tuple(row.values()) for row in rows[:_MOST_LEVELS]),
            numeric=tuple(i for i, value in enumerate(rows[0].values()) if isinstance(value, (int, float))),
        )
        for name, rows in tables.items()
    )


def geography_sections(masked: Masked, distributions: Sequence[str] = ()) -> tuple[Section, ...]:
    """Return tables of distances between exchanged records and of changes in distributions by level of geography."""
    exchanged = {name for exchange in masked.audit.all_exchanges for name in exchange.attributes}
    levels = [a.name for a in masked.original.schema.iter_kind(Kind.GEOGRAPHY)]
    if not exchanged.intersection(levels):
        return ()
    report = geography_report(masked, distributions)
    distance = report.distance.to_pylist()
    found = [
        Section(
            title="Distance between exchanged records",
            text=("Share of the pairs within one area of a level, from coarse to fine.",),
            columns=("level", "pairs", "share"),
            rows=tuple((d["level"], f"{d['pairs_within']:,}", f"{d['share']:.1%}") for d in distance),
            numeric=(1, 2),
            bars=tuple(float(d["share"]) for d in distance),
        ),
        Section(
            title="Distributions by level of geography: the index of dissimilarity D",
            text=("D is the share of an area's records that would have to change category to restore the counts.",),
            columns=("level", "distribution", "areas", "areas changed", "mean D", "largest D"),
            rows=tuple(_dissimilarity_row(row) for row in report.dissimilarity.to_pylist()[:_MOST_LEVELS]),
            numeric=(2, 3, 4, 5),
        ),
    ]
    moved = [row for row in report.dissimilarity.to_pylist() if row["mean"] > 0]
    if moved:
        worst = max(moved, key=lambda row: row["mean"])
        found.append(_before_and_after(masked, worst["distribution"], worst["level"]))
    return tuple(found)


def _dissimilarity_row(row: dict[str, Any]) -> tuple[Any, ...]:
    areas = (f"{row['areas']:,}", f"{row['areas_changed']:,}")
    return (row["level"], row["distribution"], *areas, f"{row['mean']:.4f}", f"{row['largest']:.3f}")


def _before_and_after(masked: Masked, distribution: str, level: str) -> Section:
    table: pa.Table = areas_changed_most(masked, distribution, tuple(level.split(" × ")), most=_MOST_AREAS)
    rows = table.to_pylist()
    shown = [(*(row[name] for name in table.column_names[:-1]), f"{row['D']:.3f}") for row in rows]
    last = table.num_columns - 1
    return Section(
        title=f"{distribution} before and after, in the areas of {level} where it changed most",
        columns=tuple(table.column_names),
        rows=tuple(shown),
        numeric=(last - 2, last - 1, last),
        marked=tuple(i for i, row in enumerate(rows) if row["before"] != row["after"]),
    )


def bias_sections(masked: Masked) -> tuple[Section, ...]:
    """Return tables of PERCENTAGE BIAS by continuous item and level, with the verdict, for an edit with keys."""
    keys = getattr(masked.spec, "keys", ())
    items = [a.name for a in masked.original.schema.iter_kind(Kind.NUMERIC)]
    if not keys or not items or not masked.audit.all_exchanges:
        return ()
    report = percentage_bias(masked, variables=items, keys=keys)
    verdicts = [
        (v.variable, f"{v.percentage:.2f}", f"{v.bounds.lower:.2f}", f"{v.bounds.upper:.2f}", v.sentence)
        for v in report.verdicts()
    ]
    figures = [f for f in report if f.reading == "class"]
    by_level = {f.level: {g.variable: g.percentage for g in figures if g.level == f.level} for f in figures}
    rows = [(" × ".join(level), *(f"{found[n]:.2f}" for n in items)) for level, found in by_level.items()]
    average = ("average over the levels", *(f"{report.average(name):.2f}" for name in items))
    return (
        Section(
            title="PERCENTAGE BIAS record by record, and its acceptable range",
            columns=("item", "percentage bias", "at least", "at most", "verdict"),
            rows=tuple(verdicts),
            numeric=(1, 2, 3),
        ),
        Section(
            title="PERCENTAGE BIAS of class means, by level",
            text=("A level is a subset of the key variables; one level alone can mislead.",),
            columns=("level", *items),
            rows=(*rows[:_MOST_LEVELS], average),
            numeric=tuple(range(1, len(items) + 1)),
        ),
    )


def _facts(masked: Masked) -> list[tuple[str, str]]:
    from safeswap.model.audit import format_fact

    return [
        (name, text) for name, value in masked.audit.facts.items() if name != "unit" and (text := format_fact(value))
    ]
