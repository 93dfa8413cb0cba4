"""State of a running service: settings, database, store, vault, queue and caches."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fastapi import Request

from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import Database, check_file, open_database
from safeswap.service.people.start_tokens import StartTokens
from safeswap.service.settings import Settings
from safeswap.service.work.datacache import DataCache
from safeswap.service.work.semaphore import FairSemaphore

if TYPE_CHECKING:
    from safeswap.service.keeping.store import Store
    from safeswap.service.keeping.vault import Vault
    from safeswap.service.work.jobs import Queue


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
    from safeswap.service.keeping.store import Store
    from safeswap.service.keeping.vault import open_vault
    from safeswap.service.work.jobs import Queue

    vault, store = open_vault(settings), Store(settings)
    settings.store.mkdir(mode=0o700, exist_ok=True)
    database = open_database(settings.database, log_key=auditlog.key_from(vault.master_key.secret))
    check_file(database)
    before = revision(database)
    upgrade(database)
    store.sweep(database)
    auditlog.keep_anchor(database, store.root / auditlog.ANCHORS, unkeyed=before in UNKEYED)
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
