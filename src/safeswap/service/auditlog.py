"""What was done, by whom, in an order that nobody can change unnoticed.

Every entry holds the hash of the one before it. Whoever changes, removes or inserts an entry breaks the chain from
there on; whoever cuts off its end is found out by an anchor, the last number and hash, kept somewhere else. Hashes are
keyed by the master key, which lies outside the store: who can write to the database cannot make a new chain. Entries
are written in the transaction of what they tell: neither is there without the other.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, insert, select, text

from safeswap.service.database import LOG_KEY, Database, now
from safeswap.service.tables import audit_log

FIRST = "0" * 64
ANCHORS = "audit-anchors.jsonl"
"""The file of a store in which anchors are kept; a copy of it elsewhere is worth more."""

_LOCK = 0x5AFEA0D1  # the number by which two writers on one PostgreSQL database find each other


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """The end of the log at some time: kept elsewhere, it shows later that nothing was cut off or rewritten."""

    number: int
    hash: str
    seal: str = ""  # up to here entries were written before the log was keyed


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
    connection.execute(insert(audit_log).values(**entry, hash=_hash(entry, key_of(connection))))
    return last.number + 1


def end(database: Database) -> Anchor:
    """The anchor of the log as it is now."""
    with database.read() as connection:
        return _end(connection)


def verify(database: Database, *, anchors: Iterable[Anchor] = ()) -> Verdict:
    """Go through the whole log and compare it with its own hashes and with the anchors that were kept."""
    with database.read() as connection:
        key, anchors = key_of(connection), list(anchors)
        kept, unkeyed = _by_number(anchors), _last_unkeyed(anchors, key)
        last, count = Anchor(number=0, hash=FIRST), 0
        for row in connection.execute(select(audit_log).order_by(audit_log.c.number)):
            problem = _problem(row, last, kept.pop(row.number, set()), key=key if row.number > unkeyed else None)
            if problem:
                return Verdict(entries=count, ok=False, end=last, first_broken=row.number, problem=problem)
            last, count = Anchor(number=row.number, hash=row.hash), count + 1
    kept.pop(0, None)
    if kept:
        return Verdict(
            entries=count, ok=False, end=last, first_broken=last.number + 1, problem="entries are missing at the end"
        )
    return Verdict(entries=count, ok=True, end=last)


def key_from(master_key: bytes) -> bytes:
    """The key of the log's hashes."""
    return hmac.digest(master_key, b"safeswap audit log", hashlib.sha256)


def key_of(connection: Connection) -> bytes | None:
    """The key with which a database was opened; none: hashes are plain."""
    return connection.get_execution_options().get(LOG_KEY)


def keep_anchor(database: Database, path: Path, *, unkeyed: bool = False) -> None:
    """Write down the end of the log, in a line of a file that only grows; done at every start of a service.

    ``unkeyed`` says, under the key, that entries up to here were written by a version that had none.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write(_canonical(asdict(_anchor(database, unkeyed=unkeyed))) + "\n")
        file.flush()
        os.fsync(file.fileno())


def kept_anchors(path: Path) -> list[Anchor]:
    """The anchors that were written down; a line that a crash has cut short is passed over."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(Anchor(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def _anchor(database: Database, *, unkeyed: bool) -> Anchor:
    found = end(database)
    with database.read() as connection:
        key = key_of(connection)
    return replace(found, seal=_seal(found, key)) if unkeyed and key is not None else found


def _seal(anchor: Anchor, key: bytes) -> str:
    return hmac.new(key, f"unkeyed up to {anchor.number} {anchor.hash}".encode(), hashlib.sha256).hexdigest()


def _last_unkeyed(anchors: Iterable[Anchor], key: bytes | None) -> int:
    if key is None:
        return 0
    sealed = (each.number for each in anchors if each.seal and hmac.compare_digest(each.seal, _seal(each, key)))
    return max(sealed, default=0)


def _by_number(anchors: Iterable[Anchor]) -> dict[int, set[str]]:
    kept: dict[int, set[str]] = {}
    for anchor in anchors:
        kept.setdefault(anchor.number, set()).add(anchor.hash)
    return kept


def _problem(row: Row[Any], last: Anchor, anchored: set[str], *, key: bytes | None) -> str:
    if row.number != last.number + 1:
        return "entries are missing before this one"
    if row.previous != last.hash:
        return "it does not follow the entry before it"
    if row.hash != _hash({name: value for name, value in row._mapping.items() if name != "hash"}, key):
        return "it has been changed"
    if anchored - {row.hash}:
        return "the log has been rewritten up to here"
    return ""


def _end(connection: Connection) -> Anchor:
    newest = select(audit_log.c.number, audit_log.c.hash).order_by(audit_log.c.number.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    return Anchor(number=0, hash=FIRST) if row is None else Anchor(number=row.number, hash=row.hash)


def _hash(entry: Mapping[str, Any], key: bytes | None = None) -> str:
    content = _canonical(dict(entry)).encode()
    return (hashlib.sha256(content) if key is None else hmac.new(key, content, hashlib.sha256)).hexdigest()


def _canonical(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
