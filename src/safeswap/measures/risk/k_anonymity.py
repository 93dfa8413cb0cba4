"""k-anonymity: the share of records whose keys are shared by fewer than k records."""

from __future__ import annotations

from typing import Annotated, ClassVar

import pyarrow as pa
from pydantic import Field

from safeswap.measures.risk.key_measure import KeyMeasure, name_keys
from safeswap.model.score import Axis, Comparison, Score


class KAnonymity(KeyMeasure):
    """Records of the released file that share their keys with fewer than k − 1 others, as a share of all.

    The file is k-anonymous exactly if the value is 0. Unlike the n-rule, it does not depend on which records were
    swapped.

    >>> KAnonymity(k=5, keys=("Age", "Sex")).text
    'k_anonymity:keys=Age+Sex,k=5'
    """

    name: ClassVar[str] = "k_anonymity"
    title: ClassVar[str] = "share of records below k"
    axis: ClassVar[Axis] = Axis.RISK
    sources: ClassVar[tuple[str, ...]] = (
        "Samarati & Sweeney (1998), Protecting privacy when disclosing information: k-anonymity, SRI-CSL-98-04",
    )

    k: Annotated[int, Field(ge=2, le=1_000_000, description="minimum number of records that share their keys")] = 3

    def score(self, comparison: Comparison) -> Score:
        """Score the file; the detail has the number of unsafe cells and the size of the smallest."""
        cells = self._cells(comparison)
        unsafe = cells.like < self.k
        records, listed = int(cells.members[unsafe].sum()), int(unsafe.sum())
        value = records / cells.records if cells.records else 0.0
        smallest = int(cells.like.min()) if cells.like.size else None
        detail = pa.table(
            {
                "k": [self.k],
                "records": [cells.records],
                "unsafe_records": [records],
                "cells": [len(cells.classes)],
                "unsafe_cells": [listed],
                "smallest_cell": pa.array([smallest], pa.int64()),
            }
        )
        sentence = (
            f"{value:.2%} of the records ({records:,} of {cells.records:,}) have keys that fewer than {self.k:,} "
            f"share, in {listed:,} unsafe cell{'' if listed == 1 else 's'} over {name_keys(cells.names)}"
            + (f"; the smallest cell has {smallest:,}." if smallest is not None else ".")
        )
        return self._score(value, self._complete_sentence(sentence, comparison, cells), cells.names, detail)
