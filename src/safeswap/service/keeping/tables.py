"""The tables of the service's database, the same on SQLite and PostgreSQL.

Times are Unix times in seconds, which both databases compare alike. Structured values are JSON. No table holds a value
of a record, a plain-text secret, or a key: passwords, sessions and tokens are stored as hashes, audit records as
encrypted files.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
)

# The summary of a result in lists: its figures without the underlying tables.

_LONG = frozenset({"cells", "combinations"})


def shorten_summary(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a summary for lists, without the tables behind the figures.

    >>> shorten_summary({"made": 3, "scores": [{"measure": "n_rule", "value": 0.1, "detail": [1, 2]}], "cells": [[]]})
    {'made': 3, 'scores': [{'measure': 'n_rule', 'value': 0.1}]}
    """
    kept = {name: value for name, value in summary.items() if name not in _LONG}
    if "scores" in kept:
        kept["scores"] = [{name: each[name] for name in each if name != "detail"} for each in kept["scores"]]
    if isinstance(kept.get("choice"), dict):
        kept["choice"] = {name: value for name, value in kept["choice"].items() if name != "rivals"}
    return kept


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

_ID = String(36)
_HASH = String(64)


def _brief(context: Any) -> dict[str, Any]:
    return shorten_summary(context.get_current_parameters()["summary"])


users = Table(
    "users",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("display_name", String(200), nullable=False, default=""),
    Column("password_hash", String(200)),  # null: login through provider or proxy only
    Column("role", String(20), nullable=False),  # viewer, analyst, officer, admin
    Column("active", Boolean, nullable=False, default=True),
    Column("created_at", Float, nullable=False),
    Column("version", Integer, nullable=False, default=1),
)

log_ins = Table(  # failed logins by target and origin, for throttling
    "log_ins",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("subject", _HASH, nullable=False),
    Column("at", Float, nullable=False),
    Index(None, "subject", "at"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("secret_hash", _HASH, primary_key=True),
    Column("user_id", _ID, ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("csrf_hash", _HASH, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("last_seen_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("user_id", _ID, ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("name", String(200), nullable=False),
    Column("secret_hash", _HASH, nullable=False, unique=True),
    Column("scopes", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("last_used_at", Float),
    Column("revoked_at", Float),
)

projects = Table(
    "projects",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("state", String(20), nullable=False, default="empty"),  # empty, reading, ready, broken, deleted
    Column("tolerance", Integer, nullable=False, default=3),
    Column("file_name", String(255), nullable=False, default=""),
    Column("data_version", Integer, nullable=False, default=0),  # incremented by each read; names the data folder
    Column("records", Integer, nullable=False, default=0),
    Column("description", JSON),  # attributes, kinds, levels, frequencies with small counts hidden
    Column("recipe", JSON),  # the ARGUS steps in force, and those before and after (recipes.py)
    Column("settings", JSON),  # scenarios, steps with their history, study, release (routes/settings.py)
    Column("created_by", _ID, ForeignKey("users.id"), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("used_at", Float, nullable=False),
    Column("version", Integer, nullable=False, default=1),  # the ETag
)

members = Table(
    "members",
    metadata,
    Column("project_id", _ID, ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    Column("user_id", _ID, ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("added_at", Float, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("project_id", _ID, ForeignKey("projects.id", ondelete="CASCADE")),
    Column("kind", String(40), nullable=False),
    Column("payload", JSON, nullable=False),
    Column("state", String(20), nullable=False),  # queued, running, succeeded, failed, cancelled
    Column("priority", Integer, nullable=False, default=0),
    Column("attempts", Integer, nullable=False, default=0),
    Column("most_attempts", Integer, nullable=False, default=3),
    Column("worker", String(100)),
    Column("lease_until", Float),
    Column(
        "fence", Integer, nullable=False, default=0
    ),  # fencing token: incremented by every claim, refuses an old holder
    Column("progress", Float, nullable=False, default=0.0),
    Column("message", String(300), nullable=False, default=""),
    Column("cancel_requested", Boolean, nullable=False, default=False),
    Column("result", JSON),
    Column("error", JSON),
    Column("created_by", _ID, ForeignKey("users.id")),
    Column("created_at", Float, nullable=False),
    Column("available_at", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    Index(None, "state", "available_at"),
    Index(None, "project_id", "created_at", "id"),
    Index(None, "created_by", "state"),
    Index(None, "created_by", "started_at"),
)

results = Table(  # results of jobs: maskings, studies, plots, …; files are in the project's folder
    "results",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("project_id", _ID, ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
    Column("kind", String(40), nullable=False),
    Column("job_id", _ID, ForeignKey("jobs.id"), unique=True),  # one result per job, however many attempts
    Column("data_version", Integer, nullable=False),
    Column("spec", JSON, nullable=False),
    Column("summary", JSON, nullable=False),
    Column("brief", JSON, nullable=False, default=_brief),
    Column("created_by", _ID, ForeignKey("users.id"), nullable=False),
    Column("created_at", Float, nullable=False),
    Index(None, "project_id", "kind", "created_at", "id"),
)

releases = Table(
    "releases",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("project_id", _ID, ForeignKey("projects.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("masking_id", _ID, ForeignKey("results.id"), nullable=False),
    Column("job_id", _ID, ForeignKey("jobs.id"), unique=True),
    Column("state", String(20), nullable=False),  # preparing, requested, approved, rejected, failed
    Column("terms", JSON, nullable=False),
    Column("manifest_hash", _HASH, nullable=False, default=""),
    Column("checks", JSON),
    Column("differencing", JSON),
    Column("requested_by", _ID, ForeignKey("users.id"), nullable=False),
    Column("requested_at", Float, nullable=False),
    Column("decided_by", _ID, ForeignKey("users.id")),
    Column("decided_at", Float),
    Column("reason", Text, nullable=False, default=""),
    Column(
        "single_user", Boolean, nullable=False, default=False, server_default=false()
    ),  # approved in single-user mode
    Column("version", Integer, nullable=False, default=1),
    CheckConstraint("state <> 'approved' OR decided_by IS NOT NULL", name="decided"),
    CheckConstraint("state <> 'approved' OR decided_by <> requested_by OR single_user", name="four_eyes"),
)

ledger = Table(  # released content; survives the deletion of the project
    "ledger",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),  # refuses the same position twice
    Column("release_id", _ID, nullable=False, unique=True),
    Column("project_id", _ID, nullable=False, default=""),
    Column("data_version", Integer, nullable=False, default=0),
    Column("manifest_hash", _HASH, nullable=False),
    Column("content", LargeBinary),  # the sealed entry; null if the release predates the ledger of content
    Column("approved_by", _ID, nullable=False),
    Column("approved_at", Float, nullable=False),
    Column("override_reason", Text, nullable=False, default=""),
)

maskings = Table(  # the register: what masked tables went through; survives the deletion of the project
    "maskings",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("name", _HASH, nullable=False, unique=True),  # keyed digest of a table, a column or a file
    Column("content", LargeBinary, nullable=False),  # the sealed steps
)

policies = Table(  # the agency's policy on attacks; the last one is in force
    "policies",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),  # refuses two changes of the same version
    Column("content", JSON, nullable=False),
    Column("set_by", String(200), nullable=False),
    Column("set_at", Float, nullable=False),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("actor", String(200), nullable=False),
    Column("action", String(60), nullable=False),
    Column("project_id", String(36), nullable=False, default=""),
    Column("subject", String(200), nullable=False, default=""),
    Column("detail", Text, nullable=False, default="{}"),  # canonical JSON, exactly the hashed bytes
    Column("previous", _HASH, nullable=False),
    Column("hash", _HASH, nullable=False, unique=True),
)

replies = Table(  # stored responses by idempotency key
    "replies",
    metadata,
    Column("user_id", _ID, primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("request_hash", _HASH, nullable=False),
    Column("status", Integer),
    Column("headers", JSON),
    Column("body", Text),
    Column("created_at", Float, nullable=False),
)
