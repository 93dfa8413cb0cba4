"""Accounts, passwords and throttling of failed logins.

Passwords are hashed with Argon2id (19 MiB, two passes, one lane: RFC 9106's lower memory setting as OWASP gives it). At
most two are hashed concurrently: a flood of logins costs time, not memory. An unknown name takes as long to refuse as a
wrong password.

After a few failures each further attempt has to wait, with exponential backoff. Failures are counted by name and by
address. An attempt is counted before the password is checked and removed when it was right, so that a thousand
concurrent attempts count as a thousand. Names and addresses are stored as keyed hashes.

A browser with an earlier login is recognised by a cookie for that name. Its attempts are counted separately, so that
guessing elsewhere does not lock the user out; the cookie alone grants nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import string
import threading
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import Type
from sqlalchemy import Connection, Row, delete, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from safeswap.errors import SpecError
from safeswap.service.http.logs import METRICS
from safeswap.service.http.problems import Conflict, NotLoggedIn, TooMany
from safeswap.service.keeping.database import new_id, now
from safeswap.service.keeping.tables import log_ins, users
from safeswap.service.state import Service

REMEMBERED_SECONDS = 3600.0
LONGEST_PAUSE = 900.0
_LOCK = 0x5AFE7071  # PostgreSQL advisory lock of attempts


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff after ``free`` failures."""

    free: int

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after the last failure.

        >>> Backoff(free=5).pause(4), Backoff(free=5).pause(7)
        (0.0, 4.0)
        """
        return 0.0 if failures < self.free else min(2.0 ** min(failures - self.free, 20), LONGEST_PAUSE)


BY_NAME = Backoff(free=5)
BY_ADDRESS = Backoff(free=50)  # a whole office may come from one address


def new_device(service: Service, name: str) -> str:
    """Return the value of a device cookie for a user."""
    number = secrets.token_urlsafe(16)
    return f"{number}.{_subject(service, 'device of ' + name, number)}"


def _is_known_device(service: Service, name: str, device: str) -> bool:
    number, _, seal = device.partition(".")
    return hmac.compare_digest(seal.encode(), _subject(service, "device of " + name, number).encode())


def count_attempt(service: Service, *, name: str, address: str, device: str = "") -> tuple[str, ...]:
    """Count a login attempt, or refuse it; return the ids of its rows, for :func:`clear_attempts`."""
    subjects: tuple[tuple[str, Backoff], ...] = (
        (_subject(service, "name", name), BY_NAME),
        (_subject(service, "address", address), BY_ADDRESS),
    )
    if device and _is_known_device(service, name, device):
        subjects = ((_subject(service, "device", device), BY_NAME),)
    at = now()
    with service.database.write() as connection:
        if service.database.dialect == "postgresql":  # SQLite has taken its only lock already
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        connection.execute(delete(log_ins).where(log_ins.c.at < at - REMEMBERED_SECONDS))
        wait = max(_seconds_to_wait(connection, subject, backoff, at) for subject, backoff in subjects)
        if wait > 0:
            raise TooMany(
                "too many failed logins; wait before trying again", code="throttled", seconds=max(1, round(wait))
            )
        rows = [{"id": new_id(), "subject": subject, "at": at} for subject, _ in subjects]
        connection.execute(insert(log_ins), rows)
    return tuple(str(row["id"]) for row in rows)


def clear_attempts(
    connection: Connection, service: Service, attempt: tuple[str, ...], *, name: str, device: str = ""
) -> None:
    """Remove a successful attempt, and earlier failures of the name or device."""
    mine = [_subject(service, "name", name), _subject(service, "device", device)]
    connection.execute(delete(log_ins).where(log_ins.c.id.in_(attempt) | log_ins.c.subject.in_(mine)))


def _seconds_to_wait(connection: Connection, subject: str, backoff: Backoff, at: float) -> float:
    counted = select(func.count(), func.max(log_ins.c.at)).where(log_ins.c.subject == subject)
    failures, last = connection.execute(counted).one()
    return float((last or 0.0) + backoff.pause(failures) - at) if failures >= backoff.free else 0.0


def _subject(service: Service, kind: str, value: str) -> str:
    return hmac.digest(service.pepper, f"{kind}:{value}".encode(), hashlib.sha256).hex()


WORDS = frozenset(
    """
    abc abcd access account admin administrator agency amazon america analyst andrew angel apple arsenal asdf asdfgh
    asdfghjkl august autumn award baby bailey banana baseball basketball batman beautiful bitte blink buster butterfly
    census changeit changeme charlie cheese chelsea chocolate computer confidential cookie correcthorsebatterystaple
    cowboy daniel data december default dragon easter eagle fall family flower football forever freedom friday friend
    fuckyou geheim george ginger guest hallo hannah hello hockey house hunter iloveyou iloveyoubaby iloveyousomuch
    internet january jennifer jessica jesus jordan joshua justin killer letmein liverpool login london love loveme
    lovely manager master matrix matthew merlin michael michelle microsoft monday monkey mother mustang myname
    naruto newyork nicole november number ninja nothing office officer october orange pass passord passwort password
    passwords pepper please pokemon princess private purple pussy qazwsx qazwsxedc qwer qwert qwertz qwerty qwertyuiop
    release ranger robert root safe safeswap samsung saturday season secret secure security september service shadow
    slipknot soccer spring star startrek starwars statistics summer sunday sunshine superman superuser survey swap
    system taylor temp temporary test tester testing thomas thursday tigger trustno trustnoone tuesday user username
    virginia wednesday welcome whatever winter wizard workbench yankees yourpassword zaqwsx zxcvbn zxcvbnm
    """.split()  # noqa: SIM905  (a list of words reads best as words)
)
ROWS = ("abcdefghijklmnopqrstuvwxyz", "qwertyuiopasdfghjklzxcvbnm", "qwertzuiopasdfghjklyxcvbnm", "01234567890")
_SPELLED = str.maketrans("@4301!5$7+", "aaeoliss" + "tt")
_AROUND = string.digits + string.punctuation
_FEWEST = 5  # different characters


def is_common(password: str) -> bool:
    """Return True for a common password: words or keyboard rows, also repeated or with digits and signs around.

    >>> is_common("P@ssw0rd2026!"), is_common("qwertyuiopas"), is_common("aaaaaaaaaaaa1"), is_common("three blind mice")
    (True, True, True, False)
    """
    plain = "".join(password.casefold().split())
    if len(set(plain)) < _FEWEST or any(plain in row * 3 or plain in row[::-1] * 3 for row in ROWS):
        return True
    core = plain.strip(_AROUND)
    spellings = (plain, plain.translate(_SPELLED), core.translate(_SPELLED))
    return any(_is_common_words("".join(filter(str.isalpha, spelling))) for spelling in spellings)


def _is_common_words(letters: str) -> bool:
    """Return True if the letters are nothing but one or two common words."""
    if letters in WORDS or not letters:
        return True
    if any(letters.replace(word, "") == "" for word in WORDS):
        return True
    return any(letters[:at] in WORDS and letters[at:] in WORDS for at in range(1, len(letters)))


SHORTEST, LONGEST = 12, 1000
LOCAL_USER = "local"
"""Name of the only user of single-user mode."""

_HASHING = threading.BoundedSemaphore(2)
_HASHER = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1, hash_len=32, salt_len=16, type=Type.ID)


def normalise_name(name: str) -> str:
    """Normalise a user name for comparison, ignoring case.

    >>> normalise_name(" Ada.Lovelace ")
    'ada.lovelace'
    """
    plain = unicodedata.normalize("NFKC", name).strip().casefold()
    if not plain or len(plain) > 200 or not plain.isprintable() or " " in plain:
        raise SpecError("a name must have 1 to 200 printable characters and no space", code="bad-name")
    return plain


def hash_password(password: str, *, name: str = "") -> str:
    """Hash a password; raise ``SpecError`` if it is too weak."""
    if not SHORTEST <= len(password) <= LONGEST or (name and normalise_name(name) in password.casefold()):
        raise SpecError(
            f"a password has at least {SHORTEST} characters and does not hold the name",
            code="weak-password",
            hint="a sentence of a few words is easy to remember and hard to guess",
        )
    if is_common(password):
        raise SpecError(
            "this password is too common",
            code="common-password",
            hint="a sentence of a few words is easy to remember and hard to guess",
        )
    with _HASHING:
        return _HASHER.hash(password)


def check_password(stored: str | None, password: str) -> bool:
    """Return True if a password is right; takes equally long if there is none to compare with."""
    with _HASHING:
        try:
            _HASHER.verify(stored or _dummy_hash(), password[:LONGEST])
        except (VerificationError, InvalidHashError):
            return False
    return stored is not None


@cache
def _dummy_hash() -> str:
    return _HASHER.hash(secrets.token_urlsafe(32))


def add_user(
    connection: Connection, *, name: str, role: str, password_hash: str | None = None, display_name: str = ""
) -> str:
    """Add a user and return the id; without a password, login is through a provider or proxy.

    Compute ``password_hash`` with :func:`hash_password` before the transaction, which would block others.
    """
    user_id = new_id()
    values = {"id": user_id, "name": normalise_name(name), "role": role, "created_at": now()}
    values |= {"password_hash": password_hash}
    try:
        with connection.begin_nested():
            connection.execute(insert(users).values(**values, display_name=display_name, active=True, version=1))
    except IntegrityError:
        raise Conflict(
            "there is already a person of this name", code="name-taken", hint="choose another name"
        ) from None
    return user_id


def user_by_name(connection: Connection, name: str) -> Row[Any] | None:
    """Return the active user of a name, or None."""
    return connection.execute(select(users).where(users.c.name == normalise_name(name), users.c.active)).one_or_none()


def log_in(service: Service, *, name: str, password: str, address: str, device: str = "") -> Row[Any]:
    """Authenticate a user by password; throttled, with the same error whatever was wrong."""
    name = normalise_name(name)
    METRICS.count("safeswap_log_ins_total", state="tried")
    attempt = count_attempt(service, name=name, address=address, device=device)
    with service.database.read() as connection:
        user = user_by_name(connection, name)
    right = check_password(user.password_hash if user is not None else None, password)
    if user is None or not right:
        METRICS.count("safeswap_log_ins_total", state="refused")
        raise NotLoggedIn("name or password is wrong", code="wrong-password")
    with service.database.write() as connection:
        clear_attempts(connection, service, attempt, name=name, device=device)
    return user


def local_user(service: Service) -> Row[Any]:
    """Return the only user of single-user mode, an officer; created on first use."""
    with service.database.write() as connection:
        found = connection.execute(select(users).where(users.c.name == LOCAL_USER)).one_or_none()
        if found is None:
            add_user(connection, name=LOCAL_USER, role="officer")
            found = connection.execute(select(users).where(users.c.name == LOCAL_USER)).one()
    return found
