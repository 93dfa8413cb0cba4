"""The report of a release: one self-contained HTML file without scripts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from heapq import nsmallest
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap.model.release import Release
from safeswap.model.schema import Attribute, Kind, level_texts
from safeswap.reports.dictionary import type_in_words

MOST_LINES = 30
"""The longest table; the data dictionary has all values."""


def public_report(release: Release) -> bytes:
    """Render the report as HTML; all text is escaped, and no count of records is below the tolerance."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(
        files("safeswap.reports").joinpath("templates/public_report.html").read_text("utf-8")
    )
    attributes = release.schema.attributes
    text = template.render(
        title=release.facts.title or "Public-use file",
        facts=release.facts,
        rate="" if release.facts.rate is None else f"{release.facts.rate:.4g}",
        records=_count_in_words(release.table.num_rows, release.facts.tolerance),
        columns=[_line(a, release.table.column(a.name)) for a in attributes],
        weighted=any(a.kind is Kind.WEIGHT for a in attributes),
        frequencies=_all_frequencies(release),
    )
    return text.encode()


def _line(attribute: Attribute, column: pa.ChunkedArray) -> dict[str, Any]:
    return {
        "name": attribute.name,
        "label": attribute.label,
        "kind": attribute.kind.value,
        "type": type_in_words(column.type),
        "distinct": f"{len(attribute.levels):,}" if attribute.levels else "",
    }


def _all_frequencies(release: Release) -> list[dict[str, Any]]:
    # Arrow releases the GIL, so columns can be counted in parallel.
    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        categorical = [a for a in release.schema.attributes if a.kind.is_categorical]
        return list(threads.map(lambda attribute: _frequencies(release, attribute), categorical))


def _frequencies(release: Release, attribute: Attribute) -> dict[str, Any]:
    """Count the most frequent values, in the order of the dictionary, missing last."""
    column = release.table.column(attribute.name)
    counted = column.drop_null().value_counts()
    distinct, counts = len(counted), counted.field("counts").to_numpy()
    if distinct > MOST_LINES:  # convert to text only those of many values that may be shown
        counted = counted.filter(pa.array(counts >= np.partition(counts, -MOST_LINES)[-MOST_LINES]))
    number = dict(zip(level_texts(counted.field("values")), counted.field("counts").to_pylist(), strict=True))
    # By count, then by name: ties must not depend on the order of the rows.
    most = set(nsmallest(MOST_LINES, number, key=lambda text: (-number[text], text)))
    shown = [t for t in attribute.levels or sorted(most) if t in most]
    largest = max(number.values(), default=0)
    lines = [_frequency(attribute.labels.get(t, t), number[t], largest, release.facts.tolerance) for t in shown]
    if column.null_count:
        lines.append(_frequency("(missing)", column.null_count, largest, release.facts.tolerance))
    return {"name": attribute.label or attribute.name, "lines": lines, "more": distinct - len(shown)}


def _frequency(text: str, count: int, largest: int, tolerance: int) -> dict[str, Any]:
    width = min(100.0, round(100 * count / largest, 1)) if largest and count >= tolerance else 0
    return {"value": text, "count": _count_in_words(count, tolerance), "width": width}


def _count_in_words(count: int, tolerance: int) -> str:
    return f"{count:,}" if count >= tolerance else f"fewer than {tolerance}"
