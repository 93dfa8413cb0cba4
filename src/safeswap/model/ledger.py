"""The ledger: what has left the house, known by content, so that the same records are not released twice unnoticed.

Every further release of the same records lets a reader average the noise away. Names, numbers and keys do not tell
whether two files hold the same records: files are renamed, sorted, converted, cut, and numbered again. So each release
leaves an entry with keyed sketches (:mod:`safeswap.kernels.sketch`) of the original and of the released file. Before
the next release its original is compared with all of them (:mod:`safeswap.kernels.overlap`): with the originals, to
find the same records, and with the released files, to find a release that is used as input.

Identifiers are sketched apart. That they agree is mentioned and never an alarm: unrelated files are numbered 1 to N.

An entry is as confidential as the audit record. A store keeps it sealed under a key of the ledger's own.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from safeswap.errors import InputError
from safeswap.kernels.overlap import ALARM_SHARE, estimate_overlap, share_of_identifiers
from safeswap.kernels.sketch import CELLS, WIDEST, Sketch
from safeswap.model.audit import Audit
from safeswap.model.content import Identifiers, digest_in_order, sketch_content, sketch_identifiers
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata

FORMAT = "safeswap-ledger-1"

NOT_SEEN = (
    "The ledger does not recognise a part of less than 40% of a released file, a file in which every column was "
    "recoded, or a file of a few coarse columns that was changed."
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Entry:
    """What the ledger keeps of one release.

    ``release`` is the SHA-256 of its manifest, ``record`` says where its audit record lies, and ``columns`` holds keyed
    digests of the original columns that were changed: only where they agree can two releases be compared row by row.
    """

    release: str
    original: Sketch = field(repr=False)
    released: Sketch = field(repr=False)
    identifiers: Identifiers = field(repr=False)
    columns: Mapping[str, str] = field(default_factory=dict, repr=False)
    record: str = ""
    at: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        """The name by which people know the release: that of its audit record."""
        return f"release-{self.release[:16]}"

    def to_bytes(self) -> bytes:
        """The entry as bytes, to be sealed."""
        facts = {"release": self.release, "record": self.record, "at": self.at, "reason": self.reason}
        sketches = [self.original, self.released]
        shapes = [[sketch.records, len(sketch.groups), len(sketch.views)] for sketch in sketches]
        head = {"format": FORMAT, **facts, "columns": dict(self.columns), "sketches": shapes}
        text = json.dumps({**head, "identifiers": len(self.identifiers[0])}).encode()
        arrays = [array for sketch in sketches for array in sketch[1:]] + list(self.identifiers)
        return b"".join([struct.pack("<q", len(text)), text, *(_little(array).tobytes() for array in arrays)])

    @classmethod
    def from_bytes(cls, content: bytes) -> Entry:
        """The entry that was written."""
        (length,) = struct.unpack_from("<q", content)
        head = json.loads(content[8 : 8 + length])
        if head.pop("format") != FORMAT:
            raise InputError(
                "the ledger has an entry of a later version", code="ledger-version", hint="use a newer safeswap"
            )
        take = _Reader(content, 8 + length)
        original, released = (_read_sketch(take, *shape) for shape in head.pop("sketches"))
        identifiers = (take("<u8", head.pop("identifiers")), take("<u8", 1))
        return cls(original=original, released=released, identifiers=identifiers, **head)


class _Reader:
    """Takes arrays from bytes, one after the other."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content, self._at = content, at

    def __call__(self, kind: str, *shape: int) -> Any:
        size = int(np.prod(shape))
        found = np.frombuffer(self._content, kind, size, self._at).reshape(shape)
        self._at += found.nbytes
        return found.astype(found.dtype.newbyteorder("="))


def _little(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))


def _read_sketch(take: _Reader, records: int, columns: int, views: int) -> Sketch:
    return Sketch(
        records,
        take("<i8", columns),
        take("<i8", views, WIDEST),
        take("<u8", views, CELLS),
        take("<u4", views, CELLS),
        take("<u8", views),
    )


class Book(Protocol):
    """A ledger that is open for one release."""

    def entries(self) -> Iterator[Entry]:
        """All entries, oldest first."""

    def enter(self, entry: Entry) -> None:
        """Add an entry, durably; it is taken back if the block in which the ledger is open fails."""


class Ledger(Protocol):
    """Where entries are kept: a file, or the database of the service."""

    @property
    def secret(self) -> bytes:
        """The secret under which contents are hashed."""

    @property
    def alarm_share(self) -> float:
        """The share of records in common from which a release is refused."""

    def open(self) -> AbstractContextManager[Book]:
        """Hold the ledger alone: nobody else compares or enters until the block ends."""


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """How much of a file an earlier release holds. ``side`` says which of its files is more alike."""

    release: str
    share: float
    side: Literal["original", "released"]
    identifiers: float
    alarm: bool
    agreeing: int = 0
    compared: int = 0

    @property
    def sentence(self) -> str:
        """The likeness in words."""
        if not self.alarm:
            return (
                f"{self.identifiers:.0%} of the identifiers are also in {self.release}; the contents differ, so this "
                "is no alarm."
            )
        of = "the records behind" if self.side == "original" else "the released records of"
        beside = f"; {self.identifiers:.0%} of the identifiers agree too" if self.identifiers else ""
        return f"About {self.share:.0%} of these records are also among {of} {self.release}{beside}."


def make_entry(masked: Masked, secret: bytes, *, drop: Sequence[str] = (), original: Microdata | None = None) -> Entry:
    """The entry of a release that is not yet named; ``original`` is the file before any recipe, if there was one."""
    first = masked.original if original is None else original
    return Entry(
        release="",
        original=sketch_content(first, secret),
        released=sketch_content(masked.data, secret, drop=drop),
        identifiers=sketch_identifiers(first, secret),
        columns=digest_columns(masked.original, changed_attributes(masked.audit), secret),
    )


def changed_attributes(audit: Audit) -> tuple[str, ...]:
    """The attributes that a masking changed."""
    exchanged = (name for exchange in audit.exchanges for name in exchange.attributes)
    return tuple(dict.fromkeys((*exchanged, *(each.attribute for each in audit.replacements))))


def digest_columns(data: Microdata, names: Sequence[str], secret: bytes) -> dict[str, str]:
    """Keyed digests of columns, in the order of the records."""
    return {name: digest_in_order(data.table.column(name), secret) for name in names if name in data.attributes}


def compare(now: Entry, earlier: Entry, *, alarm_share: float = ALARM_SHARE) -> Likeness:
    """How alike the original of a release and an earlier release are."""
    sides: list[tuple[Literal["original", "released"], Sketch]]
    sides = [("original", earlier.original), ("released", earlier.released)]
    found = [(side, estimate_overlap(now.original, sketch, alarm_share=alarm_share)) for side, sketch in sides]
    side, best = max(found, key=lambda each: (each[1].alarm, each[1].closeness))
    return Likeness(
        release=earlier.name,
        share=best.share,
        side=side,
        identifiers=share_of_identifiers(now.identifiers, earlier.identifiers),
        alarm=best.alarm,
        agreeing=best.agreeing,
        compared=best.compared,
    )
