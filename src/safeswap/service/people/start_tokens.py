"""One-time tokens that log in the only user of single-user mode, valid for a minute."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable

SECONDS = 60.0


class StartTokens:
    """Issued, unused tokens; kept in memory, as hashes.

    >>> tokens = StartTokens()
    >>> token = tokens.issue()
    >>> tokens.redeem(token), tokens.redeem(token)
    (True, False)
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: dict[bytes, float] = {}
        self._lock = threading.Lock()

    def issue(self) -> str:
        """Issue a new token."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._ends = {each: end for each, end in self._ends.items() if end > self._clock()}
            self._ends[_hash(token)] = self._clock() + SECONDS
        return token

    def redeem(self, token: str) -> bool:
        """Consume a token; True if it was valid."""
        with self._lock:
            return self._ends.pop(_hash(token), 0.0) > self._clock()


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
