"""The people of the service: who they are, and how they prove it.

Passwords are hashed with Argon2id (19 MiB, two passes, one lane: RFC 9106's lower memory setting as OWASP gives it). At
most two are hashed at once: a flood of log-ins takes time, not memory. A name that nobody has takes as long to refuse
as a wrong password.
"""

from __future__ import annotations

import secrets
import threading
import unicodedata
from functools import cache
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import Type
from sqlalchemy import Connection, Row, insert, select
from sqlalchemy.exc import IntegrityError

from safeswap.errors import SpecError
from safeswap.service import throttle
from safeswap.service.common_passwords import is_common
from safeswap.service.database import new_id, now
from safeswap.service.metrics import METRICS
from safeswap.service.problems import Conflict, NotLoggedIn
from safeswap.service.state import Service
from safeswap.service.tables import users

SHORTEST, LONGEST = 12, 1000
LOCAL_USER = "local"
"""The one person of single-user mode."""

_AT_ONCE = threading.BoundedSemaphore(2)
_HASHER = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1, hash_len=32, salt_len=16, type=Type.ID)


def plain_name(name: str) -> str:
    """A name as it is compared: people do not have to remember capitals.

    >>> plain_name(" Ada.Lovelace ")
    'ada.lovelace'
    """
    plain = unicodedata.normalize("NFKC", name).strip().casefold()
    if not plain or len(plain) > 200 or not plain.isprintable() or " " in plain:
        raise SpecError("a name has 1 to 200 printable characters and no space", code="bad-name")
    return plain


def hash_password(password: str, *, name: str = "") -> str:
    """What is kept of a password that is good enough; ``SpecError`` if it is not."""
    if not SHORTEST <= len(password) <= LONGEST or (name and plain_name(name) in password.casefold()):
        raise SpecError(
            f"a password has at least {SHORTEST} characters and does not hold the name",
            code="weak-password",
            hint="a sentence of a few words is easy to remember and hard to guess",
        )
    if is_common(password):
        raise SpecError(
            "this password is among the first that somebody would try",
            code="common-password",
            hint="a sentence of a few words is easy to remember and hard to guess",
        )
    with _AT_ONCE:
        return _HASHER.hash(password)


def check_password(stored: str | None, password: str) -> bool:
    """Whether a password is the right one; takes as long where there is none to compare with."""
    with _AT_ONCE:
        try:
            _HASHER.verify(stored or _nobodys_hash(), password[:LONGEST])
        except (VerificationError, InvalidHashError):
            return False
    return stored is not None


@cache
def _nobodys_hash() -> str:
    return _HASHER.hash(secrets.token_urlsafe(32))


def add_user(
    connection: Connection, *, name: str, role: str, password_hash: str | None = None, display_name: str = ""
) -> str:
    """Add a person; without a password she comes through a provider or a proxy.

    ``password_hash`` comes from :func:`hash_password`, called before the transaction: others would wait for it.
    """
    user_id = new_id()
    values = {"id": user_id, "name": plain_name(name), "role": role, "created_at": now()}
    values |= {"password_hash": password_hash}
    try:
        with connection.begin_nested():
            connection.execute(insert(users).values(**values, display_name=display_name, active=True, version=1))
    except IntegrityError:
        raise Conflict("there is a person of this name", code="name-taken", hint="take another name") from None
    return user_id


def user_by_name(connection: Connection, name: str) -> Row[Any] | None:
    """The person of a name who may log in."""
    return connection.execute(select(users).where(users.c.name == plain_name(name), users.c.active)).one_or_none()


def log_in(service: Service, *, name: str, password: str, address: str, device: str = "") -> Row[Any]:
    """The person who proves to be who she says; throttled, and the same refusal whatever was wrong."""
    name = plain_name(name)
    METRICS.count("safeswap_log_ins_total", state="tried")
    attempt = throttle.begin(service, name=name, address=address, device=device)
    with service.database.read() as connection:
        user = user_by_name(connection, name)
    right = check_password(user.password_hash if user is not None else None, password)
    if user is None or not right:
        METRICS.count("safeswap_log_ins_total", state="refused")
        raise NotLoggedIn("name or password is wrong", code="wrong-password")
    with service.database.write() as connection:
        throttle.forgive(connection, service, attempt, name=name, device=device)
    return user


def local_user(service: Service) -> Row[Any]:
    """The one person of single-user mode, with the rights of an officer; made when first asked for."""
    with service.database.write() as connection:
        found = connection.execute(select(users).where(users.c.name == LOCAL_USER)).one_or_none()
        if found is None:
            add_user(connection, name=LOCAL_USER, role="officer")
            found = connection.execute(select(users).where(users.c.name == LOCAL_USER)).one()
    return found
