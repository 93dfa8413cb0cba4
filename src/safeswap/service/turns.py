"""Turns: who comes when all are taken waits without holding a thread, so that everything else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from safeswap.service.problems import Unavailable

_PATIENCE = 15.0  # seconds


class Turns:
    """So many at once; who comes when all are taken waits a little, and is then told to come again.

    >>> Turns(2).free
    2
    """

    def __init__(self, most: int, *, patience: float = _PATIENCE) -> None:
        self._turns = asyncio.Semaphore(most)
        self._patience = patience
        self.free = most

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a turn, and give it back at the end of the block."""
        try:
            await asyncio.wait_for(self._turns.acquire(), self._patience)
        except TimeoutError:
            refused = Unavailable("the server is busy with other questions", code="busy", hint="ask again in a moment")
            refused.headers = {"Retry-After": "5"}
            raise refused from None
        self.free -= 1
        try:
            yield
        finally:
            self.free += 1
            self._turns.release()
