"""The data of projects in use, kept in memory between two questions: what a person asks while she waits.

Only the canonical copy is read here, the one that a worker has made from the file that was uploaded; foreign bytes are
never parsed in the server. What was used least recently goes first when there is no room.
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
Place = tuple[str, int, str]  # project, version of its data, recipe


class DataCache:
    """Microdata by project, version and recipe, up to so many bytes.

    >>> cache = DataCache(most_bytes=0)
    >>> cache.used
    0
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._kept: OrderedDict[Place, Microdata] = OrderedDict()
        self._sizes: dict[Place, int] = {}
        self._lock = threading.Lock()
        self._used: dict[Place, float] = {}
        self._reading: dict[Place, threading.Lock] = {}

    @property
    def used(self) -> int:
        """How many bytes are kept."""
        with self._lock:
            self._drop_idle()
            return sum(self._sizes.values())

    def data(
        self, store: Store, *, project_id: str, version: int, recipe: list[dict[str, Any]] | None, key: Key
    ) -> Microdata:
        """The data of a project as its recipe leaves them; read once however many ask at the same time."""
        place = (project_id, version, json.dumps(recipe, sort_keys=True) if recipe else "")
        with self._lock:
            self._drop_idle()
            found = self._found(place)
            if found is not None:
                return found
            turn = self._reading.setdefault(place, threading.Lock())
        with turn:
            with self._lock:
                found = self._found(place)
            if found is None:
                found = self._read(store, project_id, version, recipe, key)
                self._keep(place, found)
        return found

    def forget(self, project_id: str) -> None:
        """Drop everything of a project: it was deleted, or has other data now."""
        with self._lock:
            for place in [place for place in self._kept if place[0] == project_id]:
                self._drop(place)

    def _read(
        self, store: Store, project_id: str, version: int, recipe: list[dict[str, Any]] | None, key: Key
    ) -> Microdata:
        from safeswap import workflow
        from safeswap.service.tasks.context import read_data

        if not recipe:
            return read_data(store, project_id, version)
        plain = self.data(store, project_id=project_id, version=version, recipe=None, key=key)
        return workflow.recode(plain, recipe, key=key)

    def _found(self, place: Place) -> Microdata | None:
        if place in self._kept:
            self._kept.move_to_end(place)
            self._used[place] = time.monotonic()
            return self._kept[place]
        return None

    def _keep(self, place: Place, data: Microdata) -> None:
        size = int(data.table.nbytes) * 2  # the columns, and about as much again for their codes
        with self._lock:
            self._reading.pop(place, None)
            while self._kept and sum(self._sizes.values()) + size > self.most_bytes:
                self._drop(next(iter(self._kept)))
            if size <= self.most_bytes:
                self._kept[place], self._sizes[place], self._used[place] = data, size, time.monotonic()

    def _drop_idle(self) -> None:
        """What nobody has asked about for a while; its project may have been deleted by a worker."""
        before = time.monotonic() - IDLE_SECONDS
        for place in [place for place, used in self._used.items() if used < before]:
            self._drop(place)

    def _drop(self, place: Place) -> None:
        del self._kept[place], self._sizes[place], self._used[place]
