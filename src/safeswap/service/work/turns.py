"""A semaphore for questions: waiting holds no thread, and one person never takes all turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from safeswap.service.http.problems import Unavailable

_PATIENCE = 15.0  # seconds


class Turns:
    """A semaphore with a share for each person; who waits too long is asked to try again.

    >>> Turns(2).free
    2
    """

    def __init__(self, most: int, *, patience: float = _PATIENCE) -> None:
        self._most_each = max(1, most - 1)
        self._taken: Counter[str] = Counter()
        self._changed = asyncio.Condition()
        self._patience = patience
        self.free = most

    @asynccontextmanager
    async def taken(self, person: str = "") -> AsyncIterator[None]:
        """Wait for a turn, and give it back at the end of the block."""
        try:
            await asyncio.wait_for(self._take(person), self._patience)
        except TimeoutError:
            refused = Unavailable("the server is busy with other questions", code="busy", hint="ask again in a moment")
            refused.headers = {"Retry-After": "5"}
            raise refused from None
        try:
            yield
        finally:
            self._free(person)
            async with self._changed:
                self._changed.notify_all()

    async def _take(self, person: str) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.free > 0 and self._taken[person] < self._most_each)
            self.free -= 1
            self._taken[person] += 1

    def _free(self, person: str) -> None:
        self.free += 1
        self._taken[person] -= 1
        self._taken += Counter()  # drops people who hold none
