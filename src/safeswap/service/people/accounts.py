"""The people of the service: who they are, and how they prove it.

Passwords are hashed with Argon2id (19 MiB, two passes, one lane: RFC 9106's lower memory setting as OWASP gives it). At
most two are hashed at once: a flood of log-ins takes time, not memory. A name that nobody has takes as long to refuse
as a wrong password.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
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
from safeswap.service.http.metrics import METRICS
from safeswap.service.http.problems import Conflict, NotLoggedIn, TooMany
from safeswap.service.keeping.database import new_id, now
from safeswap.service.keeping.tables import log_ins, users
from safeswap.service.state import Service

# Guessing passwords takes long: after a few failures each further try has to wait, and longer each time.
#
# Failures are counted by the name that was tried and by the address they came from. An attempt is counted before the
# password is looked at and taken back when it was right, so that a thousand attempts at the same moment count as a
# thousand. Names and addresses are kept as keyed hashes.
#
# A browser in which somebody has logged in before is known by a cookie for that name. Its attempts are counted apart:
# whoever guesses elsewhere does not lock her out, and the cookie alone opens nothing.

REMEMBERED_SECONDS = 3600.0
LONGEST_PAUSE = 900.0
_LOCK = 0x5AFE7071  # the number by which two attempts on one PostgreSQL database find each other


@dataclass(frozen=True)
class Patience:
    """How many failures are free; from then on the pause doubles with each."""

    free: int

    def pause(self, failures: int) -> float:
        """Seconds to wait after the last failure.

        >>> Patience(free=5).pause(4), Patience(free=5).pause(7)
        (0.0, 4.0)
        """
        return 0.0 if failures < self.free else min(2.0 ** min(failures - self.free, 20), LONGEST_PAUSE)


BY_NAME = Patience(free=5)
BY_ADDRESS = Patience(free=50)  # a whole office may come from one address


def new_device(service: Service, name: str) -> str:
    """What a browser keeps to be known as one in which this person has logged in."""
    number = secrets.token_urlsafe(16)
    return f"{number}.{_subject(service, 'device of ' + name, number)}"


def _is_known(service: Service, name: str, device: str) -> bool:
    number, _, seal = device.partition(".")
    return hmac.compare_digest(seal.encode(), _subject(service, "device of " + name, number).encode())


def begin(service: Service, *, name: str, address: str, device: str = "") -> tuple[str, ...]:
    """Count an attempt, or refuse it; gives the names of its rows, for :func:`forgive`."""
    subjects: tuple[tuple[str, Patience], ...] = (
        (_subject(service, "name", name), BY_NAME),
        (_subject(service, "address", address), BY_ADDRESS),
    )
    if device and _is_known(service, name, device):
        subjects = ((_subject(service, "device", device), BY_NAME),)
    at = now()
    with service.database.write() as connection:
        if service.database.dialect == "postgresql":  # SQLite has taken its only lock already
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        connection.execute(delete(log_ins).where(log_ins.c.at < at - REMEMBERED_SECONDS))
        wait = max(_wait(connection, subject, patience, at) for subject, patience in subjects)
        if wait > 0:
            raise TooMany(
                "too many failed log-ins; wait before the next try", code="throttled", seconds=max(1, round(wait))
            )
        rows = [{"id": new_id(), "subject": subject, "at": at} for subject, _ in subjects]
        connection.execute(insert(log_ins), rows)
    return tuple(str(row["id"]) for row in rows)


def forgive(connection: Connection, service: Service, attempt: tuple[str, ...], *, name: str, device: str = "") -> None:
    """Take back an attempt that was right, and what was counted against the name or the device before."""
    mine = [_subject(service, "name", name), _subject(service, "device", device)]
    connection.execute(delete(log_ins).where(log_ins.c.id.in_(attempt) | log_ins.c.subject.in_(mine)))


def _wait(connection: Connection, subject: str, patience: Patience, at: float) -> float:
    counted = select(func.count(), func.max(log_ins.c.at)).where(log_ins.c.subject == subject)
    failures, last = connection.execute(counted).one()
    return float((last or 0.0) + patience.pause(failures) - at) if failures >= patience.free else 0.0


def _subject(service: Service, kind: str, value: str) -> str:
    return hmac.digest(service.pepper, f"{kind}:{value}".encode(), hashlib.sha256).hex()


# Passwords that everybody tries first: words and rows of keys, alone, repeated, or with digits and signs around.

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
_FEWEST = 5  # different characters


def is_common(password: str) -> bool:
    """Whether a password is among the first that somebody would try.

    >>> is_common("P@ssw0rd2026!"), is_common("qwertyuiopas"), is_common("aaaaaaaaaaaa1"), is_common("three blind mice")
    (True, True, True, False)
    """
    plain = "".join(password.casefold().split())
    if len(set(plain)) < _FEWEST or any(plain in row * 3 or plain in row[::-1] * 3 for row in ROWS):
        return True
    return any(_is_of_words(letters) for letters in (_letters(plain), _letters(plain.translate(_SPELLED))))


def _letters(text: str) -> str:
    return "".join(character for character in text if character.isalpha())


def _is_of_words(letters: str) -> bool:
    """Whether nothing but one or two common words is left of a password without digits and signs."""
    if letters in WORDS or not letters:
        return True
    if any(letters.replace(word, "") == "" for word in WORDS):
        return True
    return any(letters[:at] in WORDS and letters[at:] in WORDS for at in range(1, len(letters)))


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
    attempt = begin(service, name=name, address=address, device=device)
    with service.database.read() as connection:
        user = user_by_name(connection, name)
    right = check_password(user.password_hash if user is not None else None, password)
    if user is None or not right:
        METRICS.count("safeswap_log_ins_total", state="refused")
        raise NotLoggedIn("name or password is wrong", code="wrong-password")
    with service.database.write() as connection:
        forgive(connection, service, attempt, name=name, device=device)
    return user


def local_user(service: Service) -> Row[Any]:
    """The one person of single-user mode, with the rights of an officer; made when first asked for."""
    with service.database.write() as connection:
        found = connection.execute(select(users).where(users.c.name == LOCAL_USER)).one_or_none()
        if found is None:
            add_user(connection, name=LOCAL_USER, role="officer")
            found = connection.execute(select(users).where(users.c.name == LOCAL_USER)).one()
    return found
