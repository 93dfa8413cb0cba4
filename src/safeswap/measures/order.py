"""The order of an ordinal attribute's levels: from its description, or from numbers where the levels are numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from safeswap.measures.aligned import aligned
from safeswap.model.levels import level_texts
from safeswap.model.schema import Attribute, Kind
from safeswap.model.score import Comparison


@dataclass(frozen=True, eq=False, kw_only=True)
class Order:
    """The rank of each code, −1 for one that has no place in the order (missing, or not among the stated levels)."""

    ranks: npt.NDArray[np.int64]
    levels: int


def level_order(comparison: Comparison, name: str) -> Order | None:
    """The order of the attribute's levels, or None where it has none.

    An ordinal attribute is ordered by the levels of its description. Where the description lists none, levels that
    are numbers are ordered as numbers; a numeric attribute is, too. No order is guessed from the alphabet.
    """
    column = aligned(comparison, name)
    attribute = (comparison.after if column.recoded else comparison.before).schema[name]
    if attribute.kind not in (Kind.ORDINAL, Kind.NUMERIC):
        return None
    texts = level_texts(column.levels)
    ranked = _stated(attribute, texts) if attribute.levels else _numbers(attribute, texts)
    if ranked is None:
        return None
    ranks, levels = ranked
    without = np.full(column.cardinality - ranks.size, -1, dtype=np.int64)  # a missing value, where there is one
    return Order(ranks=np.concatenate([ranks, without]), levels=levels)


def _stated(attribute: Attribute, texts: list[str]) -> tuple[npt.NDArray[np.int64], int]:
    scale = [level for level in attribute.levels if level not in attribute.missing]
    position = {level: rank for rank, level in enumerate(scale)}
    return np.array([position.get(text, -1) for text in texts], dtype=np.int64), len(scale)


def _numbers(attribute: Attribute, texts: list[str]) -> tuple[npt.NDArray[np.int64], int] | None:
    values = np.full(len(texts), np.nan)
    for i, text in enumerate(texts):
        if text not in attribute.missing:
            try:
                values[i] = float(text)
            except ValueError:
                return None
    scale = np.unique(values[~np.isnan(values)])
    ranks = np.where(np.isnan(values), -1, np.searchsorted(scale, values))
    return ranks.astype(np.int64), scale.size
