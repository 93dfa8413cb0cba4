"""What was done, by whom, in an order that nobody can change unnoticed.

Every entry holds the hash of the one before it. Whoever changes, removes or inserts an entry breaks the chain from
there on; whoever cuts off its end is found out by an anchor, the last number and hash, kept somewhere else. Entries are
written in the transaction of what they tell: neither is there without the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, select, text

from safeswap.service.database import Database, now
from safeswap.service.tables import audit_log

FIRST = "0" * 64
_LOCK = 0x5AFEA0D1  # the number by which two writers on one PostgreSQL database find each other


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """The end of the log at some time: kept elsewhere, it shows later that nothing was cut off or rewritten."""

    number: int
    hash: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether the log is what was written; if not, the first entry that is not and what is wrong with it."""

    entries: int
    ok: bool
    end: Anchor
    first_broken: int | None = None
    problem: str = ""


def record(  # noqa: PLR0917  (an entry reads as a sentence: who did what, where, to what)
    connection: Connection,
    actor: str,
    action: str,
    project_id: str = "",
    subject: str = "",
    detail: Mapping[str, Any] | None = None,
) -> int:
    """Add an entry in the caller's own writing transaction; its number.

    ``detail`` holds names, numbers and decisions, never a value of a record.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    last = _end(connection)
    entry = {
        "number": last.number + 1,
        "at": now(),
        "actor": actor,
        "action": action,
        "project_id": project_id,
        "subject": subject,
        "detail": _canonical(dict(detail or {})),
        "previous": last.hash,
    }
    connection.execute(insert(audit_log).values(**entry, hash=_hash(entry)))
    return last.number + 1


def end(database: Database) -> Anchor:
    """The anchor of the log as it is now."""
    with database.read() as connection:
        return _end(connection)


def verify(database: Database, *, anchors: Iterable[Anchor] = ()) -> Verdict:
    """Go through the whole log and compare it with its own hashes and with the anchors that were kept."""
    with database.read() as connection:
        kept = {anchor.number: anchor.hash for anchor in anchors}
        last, count = Anchor(number=0, hash=FIRST), 0
        for row in connection.execute(select(audit_log).order_by(audit_log.c.number)):
            problem = _problem(row, last, kept.pop(row.number, None))
            if problem:
                return Verdict(entries=count, ok=False, end=last, first_broken=row.number, problem=problem)
            last, count = Anchor(number=row.number, hash=row.hash), count + 1
    kept.pop(0, None)
    if kept:
        return Verdict(
            entries=count, ok=False, end=last, first_broken=last.number + 1, problem="entries are missing at the end"
        )
    return Verdict(entries=count, ok=True, end=last)


def _problem(row: Row[Any], last: Anchor, anchored: str | None) -> str:
    if row.number != last.number + 1:
        return "entries are missing before this one"
    if row.previous != last.hash:
        return "it does not follow the entry before it"
    if row.hash != _hash({name: value for name, value in row._mapping.items() if name != "hash"}):
        return "it has been changed"
    if anchored is not None and anchored != row.hash:
        return "the log has been rewritten up to here"
    return ""


def _end(connection: Connection) -> Anchor:
    newest = select(audit_log.c.number, audit_log.c.hash).order_by(audit_log.c.number.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    return Anchor(number=0, hash=FIRST) if row is None else Anchor(number=row.number, hash=row.hash)


def _hash(entry: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(dict(entry)).encode()).hexdigest()


def _canonical(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
