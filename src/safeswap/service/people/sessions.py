"""Sessions of people in a browser: a secret in a cookie, its hash in the database, an end that comes by itself.

The token against forged requests is derived from the secret: a page can ask for it again after it was loaded anew, and
the database holds neither.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import Response
from sqlalchemy import Connection, Row, Select, delete, insert, or_, select, update

from safeswap.service.keeping.database import Database, new_id, now
from safeswap.service.keeping.tables import sessions, tokens, users
from safeswap.service.settings import Settings

_DEVICE_SECONDS = 180 * 86400
_SEEN_EVERY = 30.0  # seconds between two notes that a session is in use


@dataclass(frozen=True, kw_only=True)
class NewSession:
    """A session just opened: the only time that its secret is at hand."""

    secret: str = field(repr=False)
    expires_at: float

    @property
    def csrf_token(self) -> str:
        """What changes have to carry in the header ``X-CSRF-Token``."""
        return csrf_token_of(self.secret)


def hash_of(secret: str) -> str:
    """What the database holds of a random secret; random ones need no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def csrf_token_of(secret: str) -> str:
    """The token of a session, from which the session's secret cannot be told.

    >>> len(csrf_token_of("secret"))
    64
    """
    return hmac.digest(secret.encode(), b"safeswap csrf", hashlib.sha256).hex()


def open_session(
    connection: Connection, settings: Settings, user_id: str, *, instead_of: str | None = None
) -> NewSession:
    """Open a session; the one that the browser held before is ended, so that nobody can have planted it."""
    at = now()
    if instead_of is not None:
        end(connection, instead_of)
    connection.execute(
        delete(sessions).where(
            or_(sessions.c.expires_at < at, sessions.c.last_seen_at < at - settings.session_minutes * 60)
        )
    )
    new = NewSession(secret=secrets.token_urlsafe(32), expires_at=at + settings.session_hours * 3600)
    connection.execute(
        insert(sessions).values(
            secret_hash=hash_of(new.secret),
            user_id=user_id,
            csrf_hash=hash_of(new.csrf_token),
            created_at=at,
            last_seen_at=at,
            expires_at=new.expires_at,
        )
    )
    return new


def find(database: Database, settings: Settings, secret: str) -> Row[Any] | None:
    """The session and its person, if both are still good; that it is in use is noted now and then."""
    at = now()
    mine = sessions.c.secret_hash == hash_of(secret)
    statement = (
        select(sessions, users.c.name, users.c.role, users.c.display_name)
        .join(users, users.c.id == sessions.c.user_id)
        .where(
            mine,
            users.c.active,
            sessions.c.expires_at > at,
            sessions.c.last_seen_at > at - settings.session_minutes * 60,
        )
    )
    with database.read() as connection:
        row = connection.execute(statement).one_or_none()
    if row is not None and row.last_seen_at < at - min(_SEEN_EVERY, settings.session_minutes * 6):
        with database.write() as connection:
            connection.execute(update(sessions).where(mine).values(last_seen_at=at))
    return row


def end(connection: Connection, secret: str) -> None:
    """End one session."""
    connection.execute(delete(sessions).where(sessions.c.secret_hash == hash_of(secret)))


def end_all(connection: Connection, user_id: str) -> None:
    """End all sessions of a person: after a change of role or password nobody goes on with what was before."""
    connection.execute(delete(sessions).where(sessions.c.user_id == user_id))


def set_cookie(response: Response, settings: Settings, session: NewSession) -> None:
    """Hand the secret to the browser; no script can read it, and no other site makes the browser send it."""
    response.set_cookie(
        settings.cookie, session.secret, httponly=True, samesite="strict", secure=settings.secure_cookies, path="/"
    )


def set_device_cookie(response: Response, settings: Settings, device: str) -> None:
    """Let the browser be known again when somebody else has had her name throttled; it opens nothing."""
    response.set_cookie(
        settings.device_cookie,
        device,
        max_age=_DEVICE_SECONDS,
        httponly=True,
        samesite="strict",
        secure=settings.secure_cookies,
        path="/",
    )


def clear_cookie(response: Response, settings: Settings) -> None:
    """Let the browser forget."""
    response.delete_cookie(settings.cookie, httponly=True, samesite="strict", secure=settings.secure_cookies, path="/")


# Tokens for programs: shown once, kept as a hash, limited to scopes, and ending on a day that is known.

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


def find_token(database: Database, secret: str) -> Row[Any] | None:
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
