"""State of a running service: settings, database, store, vault, queue, cached data and slots for queries."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastapi import Request

from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.service.http.problems import Unavailable
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import Database, check_file, open_database
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.vault import Vault, open_vault
from safeswap.service.people.sessions import StartTokens
from safeswap.service.settings import Settings
from safeswap.service.work.jobs import Queue

if TYPE_CHECKING:
    from safeswap.workflow.step_table import StepTable

IDLE_SECONDS = 3600.0
CacheKey = tuple[str, int, str]  # project, data version, recipe
_TIMEOUT = 15.0  # seconds


class DataCache:
    """Microdata by project, version and recipe, up to ``most_bytes``, for interactive queries.

    Only the canonical copy that a job made from the upload is read here: the server never parses untrusted files.

    >>> cache = DataCache(most_bytes=0)
    >>> cache.used
    0
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._entries: OrderedDict[CacheKey, Microdata] = OrderedDict()
        self._sizes: dict[CacheKey, int] = {}
        self._lock = threading.Lock()
        self._used: dict[CacheKey, float] = {}
        self._reading: dict[CacheKey, threading.Lock] = {}
        self._tables: dict[str, tuple[StepTable, int, float]] = {}  # by project, with size and time

    @property
    def used(self) -> int:
        """Bytes in the cache."""
        with self._lock:
            self._drop_idle()
            return sum(self._sizes.values()) + sum(size for _, size, _ in self._tables.values())

    def get(
        self, store: Store, *, project_id: str, version: int, recipe: list[dict[str, Any]] | None, key: Key
    ) -> Microdata:
        """Return a project's data after its recipe; concurrent requests read them only once."""
        # The library takes a second to load, and the commands of an administrator need none of it.
        from safeswap import workflow
        from safeswap.service.work.tasks import read_data

        place = (project_id, version, json.dumps(recipe, sort_keys=True) if recipe else "")
        with self._lock:
            self._drop_idle()
            found = self._look_up(place)
            if found is not None:
                return found
            lock = self._reading.setdefault(place, threading.Lock())
        with lock:
            with self._lock:
                found = self._look_up(place)
            if found is None:
                if recipe:
                    plain = self.get(store, project_id=project_id, version=version, recipe=None, key=key)
                    found = workflow.recode(plain, recipe, key=key)
                else:
                    found = read_data(store, project_id, version)
                self._add(place, found)
        return found

    def table_of(self, project_id: str) -> StepTable | None:
        """Return the last table of a project's steps, with the masking behind it."""
        with self._lock:
            self._drop_idle()
            found = self._tables.get(project_id)
        return None if found is None else found[0]

    def keep_table(self, project_id: str, table: StepTable) -> None:
        """Keep a table of steps instead of the project's last one, if it fits; older tables make room."""
        size = sum(int(stage.data.table.nbytes) for stage in table.masked.stages)
        with self._lock:
            self._tables.pop(project_id, None)
            while self._tables and sum(each[1] for each in self._tables.values()) + size > self.most_bytes:
                self._tables.pop(next(iter(self._tables)))
            if size <= self.most_bytes:
                self._tables[project_id] = (table, size, time.monotonic())

    def forget(self, project_id: str) -> None:
        """Drop everything of a project that was deleted or got new data."""
        with self._lock:
            self._tables.pop(project_id, None)
            for place in [place for place in self._entries if place[0] == project_id]:
                self._drop(place)

    def _look_up(self, place: CacheKey) -> Microdata | None:
        if place in self._entries:
            self._entries.move_to_end(place)
            self._used[place] = time.monotonic()
            return self._entries[place]
        return None

    def _add(self, place: CacheKey, data: Microdata) -> None:
        size = int(data.table.nbytes) * 2  # the columns, and about the same again for their codes
        with self._lock:
            self._reading.pop(place, None)
            while self._entries and sum(self._sizes.values()) + size > self.most_bytes:
                self._drop(next(iter(self._entries)))
            if size <= self.most_bytes:
                self._entries[place], self._sizes[place], self._used[place] = data, size, time.monotonic()

    def _drop_idle(self) -> None:
        """Drop entries that were not used for a while; a worker may have deleted their project."""
        before = time.monotonic() - IDLE_SECONDS
        for project_id in [name for name, (_, _, used) in self._tables.items() if used < before]:
            self._tables.pop(project_id)
        for place in [place for place, used in self._used.items() if used < before]:
            self._drop(place)

    def _drop(self, place: CacheKey) -> None:
        del self._entries[place], self._sizes[place], self._used[place]


class FairSemaphore:
    """A semaphore with a maximum per person and a timeout, after which the caller is asked to retry.

    Waiting holds no thread.

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


@dataclass(frozen=True, kw_only=True)
class Service:
    """One running service. ``start_tokens`` admit the only user of single-user mode."""

    settings: Settings
    database: Database
    store: Store
    vault: Vault
    queue: Queue
    data_cache: DataCache
    question_slots: FairSemaphore
    pepper: bytes = field(repr=False)
    start_tokens: StartTokens = field(default_factory=StartTokens, repr=False)

    def close(self) -> None:
        """Close the database connections."""
        self.database.close()


def open_service(settings: Settings, *, start_tokens: StartTokens | None = None) -> Service:
    """Open the database, migrate its tables, and clear leftovers of ended jobs."""
    from safeswap.service.keeping.migrate import UNKEYED, revision, upgrade

    vault, store = open_vault(settings), Store(settings)
    settings.store.mkdir(mode=0o700, exist_ok=True)
    database = open_database(settings.database, log_key=auditlog.derive_key(vault.master_key.secret))
    check_file(database)
    before = revision(database)
    upgrade(database)
    store.sweep(database)
    auditlog.append_anchor(database, store.root / auditlog.ANCHORS, unkeyed=before in UNKEYED)
    return Service(
        settings=settings,
        database=database,
        store=store,
        vault=vault,
        queue=Queue(database, settings),
        data_cache=DataCache(settings.limits.cached_bytes),
        question_slots=FairSemaphore(settings.limits.questions),
        # Throttling stores keyed hashes only: a password typed into the name field is not recorded.
        pepper=hmac.digest(vault.master_key.secret, b"safeswap log-ins", hashlib.sha256),
        start_tokens=start_tokens or StartTokens(),
    )


def service_of(request: Request) -> Service:
    """Return the service that handles a request."""
    service: Service = request.app.state.service
    return service
