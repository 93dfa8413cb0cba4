"""Information loss: the share of the attributes' information that recoding and blanking removed."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from safeswap.arrays import cells, information
from safeswap.measures.aligned import require_same_records
from safeswap.measures.base import Situation, names_attributes, require_cells
from safeswap.measures.utility.base import DistortionMeasure
from safeswap.model.columns import missing_codes
from safeswap.model.score import Comparison, Score
from safeswap.model.text import plural


class InformationLoss(DistortionMeasure):
    """The share of the original's bits that the release no longer contains, each attribute on its own.

    A record whose value x became y loses −log₂ P(x | y), which for a recoding adds up to the conditional entropy
    H(before | after). A blanked value loses −log₂ P(x), all its information; a dropped attribute its whole entropy. 0:
    nothing is lost. 1: nothing is left.

    >>> InformationLoss(attributes=("Age",)).text
    'information_loss:attributes=Age'
    """

    name: ClassVar[str] = "information_loss"
    title: ClassVar[str] = "information loss"
    default_for: ClassVar[frozenset[Situation]] = frozenset({"recoding"})
    sources: ClassVar[tuple[str, ...]] = (
        "de Waal & Willenborg (1999), Information Loss through Global Recoding and Local Suppression",
        "Gionis & Tassa (2009), k-Anonymization with Minimal Loss of Information, IEEE TKDE 21(2)",
    )

    def score(self, comparison: Comparison) -> Score:
        """Score the masking; the detail has one row per attribute."""
        require_same_records(comparison)
        rows = [_measure_attribute(comparison, name) for name in self._choose_attributes(comparison)]
        told, lost = sum(row["bits"] for row in rows), sum(row["bits_lost"] for row in rows)
        value = float(lost / told) if told else 0.0
        sentence = f"{value:.2%} of the information in {_name_attributes(rows)} is lost"
        blanks = sum(row["blanked"] for row in rows)
        worst = max(rows, key=lambda row: row["bits_lost"])
        if worst["bits_lost"] > 0 and len(rows) > 1:
            sentence += f", most of it in {worst['attribute']} ({worst['value']:.2%} of what that told)"
        blank = plural(blanks, "value is blank that was not", "values are blank that were not")
        sentence += f"; {blank}." if blanks else "."
        return self._score(value, sentence, tuple(row["attribute"] for row in rows), pa.Table.from_pylist(rows))

    def _choose_attributes(self, comparison: Comparison) -> tuple[str, ...]:
        """Return the stated attributes; else those categorical before or after, so that ranges of numbers count."""
        before, after = comparison.before.schema, comparison.after.schema
        stated = self.attributes or (comparison.attributes if names_attributes(comparison) else ())
        recoded = [a.name for a in after.attributes if a.name in before and a.kind.is_categorical]
        names = stated or tuple(n for n in before.names if before[n].kind.is_categorical or n in recoded)
        return require_cells(before, names)


def _measure_attribute(comparison: Comparison, name: str) -> dict[str, Any]:
    """Measure one attribute's information and its loss. Codes for "no answer" are missing on both sides."""
    before = _encode(comparison.before, name)
    after = _encode(comparison.after, name) if name in comparison.after.schema else None
    codes, levels = before
    counts = np.bincount(codes, minlength=levels + 1)
    told = information.entropy(counts[:levels]) * int(counts[:levels].sum())
    if after is None:
        lost, blanked, left = told, int(counts[:levels].sum()), 0
    else:
        seen = cells.count_cells([codes, after[0]], [levels + 1, after[1] + 1])
        then, now = np.divmod(seen.codes.astype(np.int64), after[1] + 1)
        lost, blanked = information.bits_lost(then, now, seen.counts, missing=(levels, after[1]))
        left = int(np.count_nonzero(np.bincount(after[0], minlength=after[1] + 1)[: after[1]]))
    return {
        "attribute": name,
        "levels_before": int(np.count_nonzero(counts[:levels])),
        "levels_after": left,
        "blanked": blanked,
        "bits": told,
        "bits_lost": lost,
        "value": lost / told if told else 0.0,
    }


def _encode(data: Any, name: str) -> tuple[Any, int]:
    """Return the column as codes, with missing values as the last code, and that code."""
    coded = data.coded(name)
    levels = len(coded.levels)
    stated = missing_codes(data, name)[:levels]
    codes = coded.codes
    if stated.any():
        codes = np.where(np.append(stated, True)[codes], levels, codes).astype(np.uint32)
    return codes, levels


def _name_attributes(rows: list[dict[str, Any]]) -> str:
    names = [row["attribute"] for row in rows]
    return f"{len(names)} attributes" if len(names) > 4 else ", ".join(names)
