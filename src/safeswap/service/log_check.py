"""Whether the audit log, and what the tables say of the same events, are what was written.

Three questions: is the database file whole, is the chain of the log unbroken, and does each table that decides what may
leave agree with the log? A table is one entry of ``COMPARISONS``: a function from a connection and the entries of the
log to the first thing that is wrong, or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from sqlalchemy import Connection, Row, select, text

from safeswap.service import auditlog
from safeswap.service.auditlog import Anchor, Verdict
from safeswap.service.database import Database
from safeswap.service.tables import audit_log, ledger, releases, users

Entries: TypeAlias = "list[Row[Any]]"
Comparison: TypeAlias = "Callable[[Connection, Entries], str]"


def check(database: Database, *, anchors: Iterable[Anchor] = ()) -> Verdict:
    """The verdict on the log; ``problem`` says what is wrong, ``first_broken`` with which entry if it is one."""
    problem = _damage(database)
    if problem:
        return Verdict(entries=0, ok=False, end=Anchor(number=0, hash=auditlog.FIRST), problem=problem)
    found = auditlog.verify(database, anchors=anchors)
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
