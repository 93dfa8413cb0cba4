"""Guessing passwords takes long: after a few failures each further try has to wait, and longer each time.

Failures are counted by the name that was tried and by the address they came from. An attempt is counted before the
password is looked at and taken back when it was right, so that a thousand attempts at the same moment count as a
thousand. Names and addresses are kept as keyed hashes.

A browser in which somebody has logged in before is known by a cookie for that name. Its attempts are counted apart:
whoever guesses elsewhere does not lock her out, and the cookie alone opens nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, text

from safeswap.service.database import new_id, now
from safeswap.service.problems import TooMany
from safeswap.service.state import Service
from safeswap.service.tables import log_ins

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
