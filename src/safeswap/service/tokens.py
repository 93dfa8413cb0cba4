"""Tokens for programs: shown once, kept as a hash, limited to scopes, and ending on a day that is known."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, insert, select, update

from safeswap.service.database import Database, new_id, now
from safeswap.service.sessions import hash_of
from safeswap.service.tables import tokens, users

PREFIX = "ssw_"
SCOPES = ("read", "write", "release")
_USED_EVERY = 60.0


def make(connection: Connection, *, user_id: str, name: str, scopes: Sequence[str], days: float) -> tuple[str, str]:
    """A new token: its name in the database and the secret, which nobody can tell again."""
    secret, token_id, at = PREFIX + secrets.token_urlsafe(32), new_id(), now()
    connection.execute(
        insert(tokens).values(
            id=token_id,
            user_id=user_id,
            name=name,
            secret_hash=hash_of(secret),
            scopes=sorted(set(scopes)),
            created_at=at,
            expires_at=at + days * 86400,
        )
    )
    return token_id, secret


def find(database: Database, secret: str) -> Row[Any] | None:
    """The token and its person, if both are still good."""
    if not secret.startswith(PREFIX):
        return None
    at = now()
    statement: Select[Any] = (
        select(
            tokens.c.id,
            tokens.c.user_id,
            tokens.c.scopes,
            tokens.c.last_used_at,
            users.c.name,
            users.c.role,
            users.c.display_name,
        )
        .join(users, users.c.id == tokens.c.user_id)
        .where(
            tokens.c.secret_hash == hash_of(secret),
            tokens.c.revoked_at.is_(None),
            tokens.c.expires_at > at,
            users.c.active,
        )
    )
    with database.read() as connection:
        row = connection.execute(statement).one_or_none()
    if row is not None and (row.last_used_at or 0.0) < at - _USED_EVERY:
        with database.write() as connection:
            connection.execute(update(tokens).where(tokens.c.id == row.id).values(last_used_at=at))
    return row


def revoke(connection: Connection, *, token_id: str, user_id: str) -> bool:
    """End a token of a person; whether there was one."""
    found = connection.execute(
        update(tokens)
        .where(tokens.c.id == token_id, tokens.c.user_id == user_id, tokens.c.revoked_at.is_(None))
        .values(revoked_at=now())
    )
    return found.rowcount == 1


def revoke_all(connection: Connection, user_id: str) -> None:
    """End all tokens of a person, because what they were given for has changed."""
    connection.execute(
        update(tokens).where(tokens.c.user_id == user_id, tokens.c.revoked_at.is_(None)).values(revoked_at=now())
    )
