"""One release per file: earlier releases of the same records, and what comparing two of them would tell.

Every further release of the same records lets a reader average the noise away. So the records of a file are known by
a fingerprint that does not depend on their order, each release leaves it in the audit directory, and the next release
looks for it there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.io.audit import AUDIT, read_audit, read_audit_json
from safeswap.model.audit import Audit
from safeswap.model.equality import aligned_columns, bitwise, different
from safeswap.model.keyed_order import names_of
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata, code_column
from safeswap.model.several import several
from safeswap.model.undo import replay

_PUBLIC = bytes(32)  # fingerprints are compared across keys, so theirs is no secret


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """By what the records of a file are known: ``records`` whatever their order, ``order`` with it."""

    records: str
    order: str


@dataclass(frozen=True, kw_only=True)
class Differencing:
    """What somebody who holds two releases of the same records sees when he compares them.

    ``differ`` is None where the files were read in different orders and cannot be laid side by side.
    """

    earlier: str
    touched_earlier: int
    touched_now: int
    differ: int | None

    @property
    def sentence(self) -> str:
        """The same in words."""
        if self.differ is None:
            most = self.touched_earlier + self.touched_now
            return f"Comparing this release with {self.earlier} would show up to {several(most, 'exchanged record')}."
        if self.differ == 0:
            return f"This release has the same values as {self.earlier}: it tells nothing more, in another form."
        return (
            f"Comparing this release with {self.earlier} shows {several(self.differ, 'record')} with different "
            f"values: each was exchanged in one of the two ({self.touched_earlier:,} then, {self.touched_now:,} now), "
            "and the records in which both agree are very likely true."
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "earlier": self.earlier,
            "touched_earlier": self.touched_earlier,
            "touched_now": self.touched_now,
            "differ": self.differ,
            "sentence": self.sentence,
        }


def fingerprint(data: Microdata) -> Fingerprint:
    """Of the identifiers where there are any, otherwise of the distribution of every column.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="id", kind="identifier"),))
    >>> one, other = (Microdata(pa.table({"id": ids}), schema) for ids in ([1, 2, 3], [3, 1, 2]))
    >>> fingerprint(one).records == fingerprint(other).records, fingerprint(one).order == fingerprint(other).order
    (True, False)
    """
    total, order = hashlib.sha256(str(len(data)).encode()), hashlib.sha256(str(len(data)).encode())
    identifier = data.schema.identifier
    for name in (identifier.name,) if identifier else data.attributes:
        column = data.table.column(name)
        for digest in (total, order):
            digest.update(f"|{'' if identifier else name}|{column.null_count}|".encode())
        values, weights = _values(column, identified=identifier is not None)
        total.update(_sum_of_draws(values, weights).to_bytes(8, "big"))
        order.update(np.ascontiguousarray(values if weights is None else code_column(column).codes).view(np.uint8).data)
    return Fingerprint(records=total.hexdigest(), order=order.hexdigest())


def _values(column: pa.ChunkedArray, *, identified: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """What stands for the values in a sum: each of them, or each level with how often it occurs."""
    kind = column.type
    if identified:
        return names_of(column, _PUBLIC), None
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = bitwise(column.cast(pa.float64()) if pa.types.is_floating(kind) else column)
        return numbers.fill_null(0).to_numpy().astype(np.int64), None
    coded = code_column(column if pa.types.is_dictionary(kind) else column.cast(pa.string()))
    counts = np.bincount(coded.codes, minlength=len(coded.levels) + 1)[: len(coded.levels)]
    return names_of(pa.chunked_array([coded.levels]), _PUBLIC), counts.astype(np.uint64)


def _sum_of_draws(values: npt.NDArray[Any], weights: npt.NDArray[Any] | None) -> int:
    """A sum modulo 2⁶⁴, in which the order does not matter and different values do not cancel out by chance."""
    from safeswap.kernels.keyed import draw_chunks

    total = np.uint64(0)
    with np.errstate(over="ignore"):
        for start, draws in draw_chunks(values, _PUBLIC):
            part = draws if weights is None else draws * weights[start : start + len(draws)]
            total += np.add.reduce(part, dtype=np.uint64)
    return int(total)


def earlier_releases(root: Path, print_of_data: Fingerprint, *, attributes: tuple[str, ...]) -> list[Path]:
    """The records, in an audit directory, of releases of the same file."""
    if not root.is_dir():
        return []
    found = []
    for directory in sorted(path.parent for path in root.glob(f"*/{AUDIT}")):
        if directory.name.startswith("."):
            continue
        content = read_audit_json(directory)
        names = {attribute.get("name") for attribute in content["schema"].get("attributes", ())}
        same = content["notes"].get("lineage", {}).get("records") == print_of_data.records
        if same and names & set(attributes):
            found.append(directory)
    return found


def difference(masked: Masked, directory: Path, print_of_data: Fingerprint) -> Differencing:
    """What comparing a new release with an earlier one would tell."""
    earlier = read_audit(directory)
    noted = read_audit_json(directory)["notes"]["lineage"]
    comparable = noted.get("order") == print_of_data.order
    return Differencing(
        earlier=directory.name,
        touched_earlier=int(np.count_nonzero(earlier.touched())),
        touched_now=int(np.count_nonzero(masked.audit.touched())),
        differ=_differ(masked, earlier) if comparable else None,
    )


def _differ(masked: Masked, earlier: Audit) -> int:
    known = tuple(e for e in earlier.exchanges if set(e.attributes) <= set(masked.original.attributes))
    then = replay(masked.original, known)
    flags = np.zeros(len(then), dtype=np.bool_)
    touched = {name for exchange in (*known, *masked.audit.exchanges) for name in exchange.attributes}
    for name in touched:
        flags |= different(*aligned_columns(then.table.column(name), masked.data.table.column(name)))
    for replacement in (*earlier.replacements, *masked.audit.replacements):
        flags[replacement.rows] = True  # what stood there after the earlier masking is not kept: taken to differ
    return int(np.count_nonzero(flags))
