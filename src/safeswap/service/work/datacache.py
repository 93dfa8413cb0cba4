"""An LRU cache of project data for interactive queries.

Only the canonical copy that a worker made from the upload is read here: the server never parses untrusted files.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from typing import Any

from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.service.keeping.store import Store

IDLE_SECONDS = 3600.0
CacheKey = tuple[str, int, str]  # project, data version, recipe


class DataCache:
    """Microdata by project, version and recipe, up to ``most_bytes``.

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

    @property
    def used(self) -> int:
        """Bytes in the cache."""
        with self._lock:
            self._drop_idle()
            return sum(self._sizes.values())

    def get(
        self, store: Store, *, project_id: str, version: int, recipe: list[dict[str, Any]] | None, key: Key
    ) -> Microdata:
        """Return a project's data after its recipe; concurrent requests read them only once."""
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
                found = self._read(store, project_id, version, recipe, key)
                self._add(place, found)
        return found

    def forget(self, project_id: str) -> None:
        """Drop everything of a project that was deleted or got new data."""
        with self._lock:
            for place in [place for place in self._entries if place[0] == project_id]:
                self._drop(place)

    def _read(
        self, store: Store, project_id: str, version: int, recipe: list[dict[str, Any]] | None, key: Key
    ) -> Microdata:
        from safeswap import workflow
        from safeswap.service.work.tasks import read_data

        if not recipe:
            return read_data(store, project_id, version)
        plain = self.get(store, project_id=project_id, version=version, recipe=None, key=key)
        return workflow.recode(plain, recipe, key=key)

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
        for place in [place for place, used in self._used.items() if used < before]:
            self._drop(place)

    def _drop(self, place: CacheKey) -> None:
        del self._entries[place], self._sizes[place], self._used[place]
