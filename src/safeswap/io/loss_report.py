"""What recoding and blanking took away, for the report of a masking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safeswap.io.report_section import Section
from safeswap.measures.distortion.information_loss import InformationLoss
from safeswap.model.score import Comparison

if TYPE_CHECKING:
    from safeswap.model.masked import Masked

METHODS = ("recode", "suppress")
"""Methods that say less, and nothing wrong."""


def loss_sections(masked: Masked) -> tuple[Section, ...]:
    """A table of the information lost by attribute, where values were made coarser or blank."""
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
