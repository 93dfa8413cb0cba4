"""Browser sessions, API tokens and start tokens: a secret with the client, its hash in the database, and an expiry.

The CSRF token is derived from the session's secret: a reloaded page can ask for it again, and the database holds
neither. API tokens are shown once and limited to scopes.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import Response
from sqlalchemy import Connection, Row, Select, delete, insert, or_, select, update

from safeswap.service.keeping.database import Database, new_id, now
from safeswap.service.keeping.tables import sessions, tokens, users
from safeswap.service.settings import Settings

_DEVICE_SECONDS = 180 * 86400
_SEEN_EVERY = 30.0  # seconds between updates of last_seen_at


@dataclass(frozen=True, kw_only=True)
class NewSession:
    """A session just opened: its secret is available only now."""

    secret: str = field(repr=False)
    expires_at: float

    @property
    def csrf_token(self) -> str:
        """The token for the ``X-CSRF-Token`` header of changes."""
        return csrf_token_of(self.secret)


def hash_of(secret: str) -> str:
    """Return the stored hash of a random secret, which needs no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def csrf_token_of(secret: str) -> str:
    """Derive the CSRF token of a session, which does not reveal the session's secret.

    >>> len(csrf_token_of("secret"))
    64
    """
    return hmac.digest(secret.encode(), b"safeswap csrf", hashlib.sha256).hex()


def open_session(
    connection: Connection, settings: Settings, user_id: str, *, instead_of: str | None = None
) -> NewSession:
    """Open a session and end the browser's previous one, against session fixation."""
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
    """Return the session with its user, if both are valid; ``last_seen_at`` is updated now and then."""
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
    """End all sessions of a user, after a change of role or password."""
    connection.execute(delete(sessions).where(sessions.c.user_id == user_id))


def set_cookie(response: Response, settings: Settings, session: NewSession) -> None:
    """Set the session cookie: invisible to scripts, and never sent from another site."""
    response.set_cookie(
        settings.cookie, session.secret, httponly=True, samesite="strict", secure=settings.secure_cookies, path="/"
    )


def set_device_cookie(response: Response, settings: Settings, device: str) -> None:
    """Set the cookie that exempts this browser from throttling of the name by others; it grants nothing."""
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
    """Delete the session cookie."""
    response.delete_cookie(settings.cookie, httponly=True, samesite="strict", secure=settings.secure_cookies, path="/")


PREFIX = "ssw_"
_USED_EVERY = 60.0


def make_token(
    connection: Connection, *, user_id: str, name: str, scopes: Sequence[str], days: float
) -> tuple[str, str]:
    """Create an API token; return its id and its secret, which is not stored."""
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
    """Return the token with its user, if both are valid."""
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


def revoke_token(connection: Connection, *, token_id: str, user_id: str) -> bool:
    """Revoke a token of a user; False if there was none."""
    found = connection.execute(
        update(tokens)
        .where(tokens.c.id == token_id, tokens.c.user_id == user_id, tokens.c.revoked_at.is_(None))
        .values(revoked_at=now())
    )
    return found.rowcount == 1


def revoke_all(connection: Connection, user_id: str) -> None:
    """Revoke all tokens of a user, after a change of role or password."""
    connection.execute(
        update(tokens).where(tokens.c.user_id == user_id, tokens.c.revoked_at.is_(None)).values(revoked_at=now())
    )


START_SECONDS = 60.0


class StartTokens:
    """Issued, unused one-time tokens that log in the only user of single-user mode; kept in memory, as hashes.

    >>> tokens = StartTokens()
    >>> token = tokens.issue()
    >>> tokens.redeem(token), tokens.redeem(token)
    (True, False)
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: dict[str, float] = {}
        self._lock = threading.Lock()

    def issue(self) -> str:
        """Issue a new token."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._ends = {each: end for each, end in self._ends.items() if end > self._clock()}
            self._ends[hash_of(token)] = self._clock() + START_SECONDS
        return token

    def redeem(self, token: str) -> bool:
        """Consume a token; True if it was valid."""
        with self._lock:
            return self._ends.pop(hash_of(token), 0.0) > self._clock()
