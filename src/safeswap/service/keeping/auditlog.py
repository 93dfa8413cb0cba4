"""A tamper-evident audit log: a hash chain of entries, anchored outside the database.

Every entry holds the hash of its predecessor, so changing, removing or inserting an entry breaks the chain from there
on. Truncation is detected by an anchor (the last number and hash) kept elsewhere. Hashes are keyed by the master key,
which is outside the store: write access to the database is not enough to forge a chain. An entry is written in the
transaction of the action it records, so neither exists without the other.

:func:`check` asks three questions: is the database file intact, is the chain unbroken, and does each table that decides
what may be released agree with the log?
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
"""File of anchors in the store; keep a copy elsewhere."""

_LOCK = 0x5AFEA0D1  # PostgreSQL advisory lock of writers


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """The end of the log at one time; kept elsewhere, it proves later that nothing was truncated or rewritten."""

    number: int
    hash: str
    seal: str = ""  # proves that entries up to here predate keyed hashes


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of a check: ``problem`` says what is wrong, ``first_broken`` is the first wrong entry, if it is one."""

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
    """Add an entry in the caller's transaction and return its number.

    ``detail`` holds names, numbers and decisions, never a value of a record.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    last = _read_end(connection)
    entry = {
        "number": last.number + 1,
        "at": now(),
        "actor": actor,
        "action": action,
        "project_id": project_id,
        "subject": subject,
        "detail": _to_json(dict(detail or {})),
        "previous": last.hash,
    }
    connection.execute(insert(audit_log).values(**entry, hash=_hash(entry, key_of(connection))))
    return last.number + 1


def end(database: Database) -> Anchor:
    """Return the current anchor of the log."""
    with database.read() as connection:
        return _read_end(connection)


def verify(database: Database, *, anchors: Iterable[Anchor] = ()) -> Verdict:
    """Verify the whole log against its hashes and the stored anchors."""
    with database.read() as connection:
        key, anchors = key_of(connection), list(anchors)
        kept, unkeyed = _group_by_number(anchors), _find_last_unkeyed(anchors, key)
        last, count = Anchor(number=0, hash=FIRST), 0
        for row in connection.execute(select(audit_log).order_by(audit_log.c.number)):
            problem = _find_problem(row, last, kept.pop(row.number, set()), key=key if row.number > unkeyed else None)
            if problem:
                return Verdict(entries=count, ok=False, end=last, first_broken=row.number, problem=problem)
            last, count = Anchor(number=row.number, hash=row.hash), count + 1
    kept.pop(0, None)
    if kept:
        return Verdict(
            entries=count, ok=False, end=last, first_broken=last.number + 1, problem="entries are missing at the end"
        )
    return Verdict(entries=count, ok=True, end=last)


def derive_key(master_key: bytes) -> bytes:
    """Derive the key of the log's hashes."""
    return hmac.digest(master_key, b"safeswap audit log", hashlib.sha256)


def key_of(connection: Connection) -> bytes | None:
    """Return the key with which a database was opened; None: hashes are unkeyed."""
    return connection.get_execution_options().get(LOG_KEY)


def append_anchor(database: Database, path: Path, *, unkeyed: bool = False) -> None:
    """Append the current anchor to an append-only file; done at every start of a service.

    ``unkeyed`` seals, with the key, that entries up to here were written by a version without keyed hashes.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write(_to_json(asdict(_make_anchor(database, unkeyed=unkeyed))) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_anchors(path: Path) -> list[Anchor]:
    """Return the stored anchors; a line truncated by a crash is skipped."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(Anchor(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def _make_anchor(database: Database, *, unkeyed: bool) -> Anchor:
    found = end(database)
    with database.read() as connection:
        key = key_of(connection)
    return replace(found, seal=_seal(found, key)) if unkeyed and key is not None else found


def _seal(anchor: Anchor, key: bytes) -> str:
    return hmac.new(key, f"unkeyed up to {anchor.number} {anchor.hash}".encode(), hashlib.sha256).hexdigest()


def _find_last_unkeyed(anchors: Iterable[Anchor], key: bytes | None) -> int:
    if key is None:
        return 0
    sealed = (each.number for each in anchors if each.seal and hmac.compare_digest(each.seal, _seal(each, key)))
    return max(sealed, default=0)


def _group_by_number(anchors: Iterable[Anchor]) -> dict[int, set[str]]:
    kept: dict[int, set[str]] = {}
    for anchor in anchors:
        kept.setdefault(anchor.number, set()).add(anchor.hash)
    return kept


def _find_problem(row: Row[Any], last: Anchor, anchored: set[str], *, key: bytes | None) -> str:
    if row.number != last.number + 1:
        return "entries are missing before this one"
    if row.previous != last.hash:
        return "it does not follow the entry before it"
    if row.hash != _hash({name: value for name, value in row._mapping.items() if name != "hash"}, key):
        return "it has been changed"
    if anchored - {row.hash}:
        return "the log has been rewritten up to here"
    return ""


def _read_end(connection: Connection) -> Anchor:
    newest = select(audit_log.c.number, audit_log.c.hash).order_by(audit_log.c.number.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    return Anchor(number=0, hash=FIRST) if row is None else Anchor(number=row.number, hash=row.hash)


def _hash(entry: Mapping[str, Any], key: bytes | None = None) -> str:
    content = _to_json(dict(entry)).encode()
    return (hashlib.sha256(content) if key is None else hmac.new(key, content, hashlib.sha256)).hexdigest()


def _to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


Entries: TypeAlias = "list[Row[Any]]"
Comparison: TypeAlias = "Callable[[Connection, Entries], str]"
"""Compares a table with the log; returns the first discrepancy, or an empty text."""


def check(database: Database, *, anchors: Iterable[Anchor] = ()) -> Verdict:
    """Check the database file, the chain and the tables of :data:`COMPARISONS`."""
    problem = _find_damage(database)
    if problem:
        return Verdict(entries=0, ok=False, end=Anchor(number=0, hash=FIRST), problem=problem)
    found = verify(database, anchors=anchors)
    if not found.ok:
        return found
    with database.read() as connection:
        entries = list(connection.execute(select(audit_log).order_by(audit_log.c.number)))
        problem = next(filter(None, (compare(connection, entries) for compare in COMPARISONS)), "")
    return replace(found, ok=not problem, problem=problem)


def _find_damage(database: Database) -> str:
    if database.dialect != "sqlite":
        return ""
    with database.read() as connection:
        found = connection.execute(text("PRAGMA integrity_check(1)")).scalar_one()
        orphan = connection.execute(text("PRAGMA foreign_key_check")).first()
    if found != "ok":
        return "the database file is damaged"
    return "" if orphan is None else f"the table {orphan[0]} refers to a row that is not there"


def compare_releases(connection: Connection, entries: Entries) -> str:
    """Check that approved releases and logged approvals match, with the same officer and manifest."""
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
    """Check that ledger entries and logged approvals match, with the same manifest."""
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
"""The tables that are compared with the log."""
