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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection, Row, insert, select, text

from safeswap.service.keeping.database import LOG_KEY, Database, now
from safeswap.service.keeping.tables import audit_log, ledger, releases, users

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


# Whether the audit log, and what the tables say of the same events, are what was written.
#
# Three questions: is the database file whole, is the chain of the log unbroken, and does each table that decides what
# may leave agree with the log? A table is one entry of ``COMPARISONS``: a function from a connection and the entries
# of the log to the first thing that is wrong, or nothing.

Entries: TypeAlias = "list[Row[Any]]"
Comparison: TypeAlias = "Callable[[Connection, Entries], str]"


def check(database: Database, *, anchors: Iterable[Anchor] = ()) -> Verdict:
    """The verdict on the log; ``problem`` says what is wrong, ``first_broken`` with which entry if it is one."""
    problem = _damage(database)
    if problem:
        return Verdict(entries=0, ok=False, end=Anchor(number=0, hash=FIRST), problem=problem)
    found = verify(database, anchors=anchors)
    if not found.ok:
        return found
    with database.read() as connection:
        entries = list(connection.execute(select(audit_log).order_by(audit_log.c.number)))
        problem = next(filter(None, (compare(connection, entries) for compare in COMPARISONS)), "")
    return replace(found, ok=not problem, problem=problem)


def _damage(database: Database) -> str:
    if database.dialect != "sqlite":
        return ""
    with database.read() as connection:
        found = connection.execute(text("PRAGMA integrity_check(1)")).scalar_one()
        orphan = connection.execute(text("PRAGMA foreign_key_check")).first()
    if found != "ok":
        return "the database file is damaged"
    return "" if orphan is None else f"the table {orphan[0]} refers to a row that is not there"


def compare_releases(connection: Connection, entries: Entries) -> str:
    """Every approved release stands in the log as approved, by the same officer, with the same manifest; and back."""
    logged = {entry.subject: entry for entry in entries if entry.action == "release.approve"}
    deleted = {entry.project_id for entry in entries if entry.action in {"project.delete", "project.expire"}}
    decider = users.alias()
    approved = select(releases, decider.c.name.label("officer")).outerjoin(
        decider, decider.c.id == releases.c.decided_by
    )
    rows = {row.id: row for row in connection.execute(approved.where(releases.c.state == "approved"))}
    for release_id, row in rows.items():
        entry = logged.get(release_id)
        if entry is None:
            return f"release {release_id} is approved, and the log does not say so"
        detail = json.loads(entry.detail)
        if detail.get("manifest_hash") != row.manifest_hash or entry.actor != row.officer:
            return f"release {release_id} was approved with another manifest, or by another officer, says the log"
        if row.single_user and not detail.get("single_user"):
            return f"release {release_id} was approved by a second person, says the log"
    for release_id, entry in logged.items():
        if release_id not in rows and entry.project_id not in deleted:
            return f"the log says that release {release_id} was approved, and it is not there"
    return ""


def compare_ledger(connection: Connection, entries: Entries) -> str:
    """Every release in the ledger was approved with that manifest, by the log; every approval is in the ledger."""
    logged = {entry.subject: entry for entry in entries if entry.action == "release.approve"}
    entered = {row.release_id: row.manifest_hash for row in connection.execute(select(ledger))}
    for release_id, manifest_hash in entered.items():
        if release_id not in logged:
            return f"release {release_id} is in the ledger, and the log does not say that it was approved"
        if json.loads(logged[release_id].detail).get("manifest_hash") != manifest_hash:
            return f"release {release_id} is in the ledger with another manifest than in the log"
    missing = next((release_id for release_id in logged if release_id not in entered), "")
    return f"release {missing} was approved, says the log, and is not in the ledger" if missing else ""


COMPARISONS: tuple[Comparison, ...] = (compare_releases, compare_ledger)
"""What is compared with the log; a further table is a further function."""
