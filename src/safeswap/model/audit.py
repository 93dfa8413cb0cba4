"""The confidential record of what was done: enough to undo it, and therefore never to leave the building."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.kernels.types import Rows
from safeswap.model.several import several

COARSENED = "coarsened"
"""The fact by which an audit says that values were made coarser, not wrong."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Exchange:
    """One stage: these attributes were exchanged between these pairs of rows."""

    attributes: tuple[str, ...]
    pairs: Rows  # shape (k, 2): row positions in the file as it was read

    def permutation(self, records: int) -> Rows:
        """For each row the row from which its values came."""
        source = np.arange(records, dtype=np.int64)
        source[self.pairs[:, 0]] = self.pairs[:, 1]
        source[self.pairs[:, 1]] = self.pairs[:, 0]
        return source


@dataclass(frozen=True, eq=False, kw_only=True)
class Replacement:
    """One stage of a method that does not exchange: these rows of an attribute held these values before.

    ``before`` is in the order of ``rows``; the type of the column before may differ from the one after.
    """

    attribute: str
    rows: Rows
    before: pa.Array


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit:
    """Who was paired with whom, and all that is needed to do it again.

    ``repr`` shows totals only, since what is printed gets copied.
    """

    method: str
    spec: Mapping[str, Any]
    records: int
    asked: int
    feasible: int
    made: int
    exchanges: tuple[Exchange, ...]
    key_id: str
    releasable: bool
    algorithm: str
    replicate: int = 0
    data_name: str = ""
    compensating: int = 0
    at_most: int | None = None  # given where ``feasible`` is not proved to be the maximum: more than this cannot be
    replacements: tuple[Replacement, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stamp(self) -> str:
        """Empty where the result may be released; else the stamp, with the reason."""
        return "" if self.releasable else f"NOT FOR RELEASE ({self.facts.get('not_for_release', 'insecure seed')})"

    def touched(self) -> npt.NDArray[np.bool_]:
        """Per record, whether it took part in any exchange or replacement."""
        flags = np.zeros(self.records, dtype=np.bool_)
        for exchange in self.exchanges:
            flags[exchange.pairs.ravel()] = True
        for replacement in self.replacements:
            flags[replacement.rows] = True
        return flags

    @property
    def changed_attributes(self) -> tuple[str, ...]:
        """The attributes of which any value was exchanged or replaced, each once."""
        exchanged = (name for each in self.exchanges if len(each.pairs) for name in each.attributes)
        replaced = (each.attribute for each in self.replacements if len(each.rows))
        return tuple(dict.fromkeys((*exchanged, *replaced)))

    def perturbed(self) -> npt.NDArray[np.bool_]:
        """Per record, whether its values may be untrue: it was touched, and values were not just made coarser."""
        return np.zeros(self.records, dtype=np.bool_) if self.facts.get("values") == COARSENED else self.touched()

    @property
    def unit(self) -> str:
        """What ``asked``, ``feasible`` and ``made`` count: pairs, unless the method counts records."""
        return str(self.facts.get("unit", "pairs"))

    def __repr__(self) -> str:
        stamp = "" if self.releasable else ", not for release"
        made = f"{self.made:,} of {self.asked:,} {self.unit}"
        return f"<Audit {self.method}: {made}, {several(self.records, 'record')}{stamp}>"


def told(value: object) -> str:
    """A fact that fits on a line; tables among the facts are left to the audit record."""
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    if isinstance(value, dict) and all(isinstance(each, (int, float)) for each in value.values()):
        return ", ".join(f"{name} {told(each)}" for name, each in value.items())
    return value if isinstance(value, str) else ""
