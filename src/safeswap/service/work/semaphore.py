"""A fair asyncio semaphore: waiting holds no thread, and one person never takes all slots."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from safeswap.service.http.problems import Unavailable

_TIMEOUT = 15.0  # seconds


class FairSemaphore:
    """A semaphore with a maximum per person and a timeout, after which the caller is asked to retry.

    >>> FairSemaphore(2).free
    2
    """

    def __init__(self, most: int, *, timeout: float = _TIMEOUT) -> None:
        self._most_each = max(1, most - 1)
        self._taken: Counter[str] = Counter()
        self._changed = asyncio.Condition()
        self._timeout = timeout
        self.free = most

    @asynccontextmanager
    async def hold(self, person: str = "") -> AsyncIterator[None]:
        """Acquire a slot and release it at the end of the block."""
        try:
            await asyncio.wait_for(self._acquire(person), self._timeout)
        except TimeoutError:
            refused = Unavailable("the server is busy with other questions", code="busy", hint="ask again in a moment")
            refused.headers = {"Retry-After": "5"}
            raise refused from None
        try:
            yield
        finally:
            self._release(person)
            async with self._changed:
                self._changed.notify_all()

    async def _acquire(self, person: str) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.free > 0 and self._taken[person] < self._most_each)
            self.free -= 1
            self._taken[person] += 1

    def _release(self, person: str) -> None:
        self.free += 1
        self._taken[person] -= 1
        self._taken += Counter()  # drops zero counts
