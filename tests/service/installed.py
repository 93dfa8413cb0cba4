"""Services for tests: settings in a temporary place, an upgraded database, people and projects in it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import Database, new_id, now, open_database
from safeswap.service.keeping.migrate import upgrade
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.tables import projects, users
from safeswap.service.keeping.vault import make_master_key, open_vault
from safeswap.service.routes import maskings
from safeswap.service.settings import Settings
from safeswap.service.state import FairSemaphore

# On a machine that others use, a question waits longer for its turn, and a masking takes longer, than people would.
FairSemaphore.__init__.__kwdefaults__["timeout"] = 300.0
maskings.MOST_SECONDS_AT_ONCE = 3600.0


def settings_in(folder: Path, **given: Any) -> Settings:
    """A store and, beside it, a master key."""
    settings = Settings(store=folder / "store", master_key_file=folder / "master.key", **given)
    if not settings.master_key_file.exists():
        make_master_key(settings.master_key_file)
    settings.store.mkdir(mode=0o700, exist_ok=True)
    return settings


def database_of(settings: Settings) -> Database:
    """Its database, with all tables."""
    file = settings.store / "safeswap.db"
    if not settings.database_url and not file.exists():
        shutil.copyfile(_template(), file)  # taking the steps anew for each test would take longer than the tests
    database = open_database(settings.database, log_key=auditlog.derive_key(open_vault(settings).master_key.secret))
    if settings.database_url:
        upgrade(database)
    return database


@cache
def _template() -> Path:
    file = Path(tempfile.mkdtemp()) / "safeswap.db"
    atexit.register(shutil.rmtree, file.parent)
    database = open_database(f"sqlite:///{file}")
    upgrade(database)
    database.close()
    return file


def add_user(database: Database, name: str = "ana", role: str = "analyst") -> str:
    """A person; her id."""
    row = {"id": new_id(), "name": name, "role": role, "created_at": now()}
    with database.write() as connection:
        connection.execute(insert(users).values(row))
    return row["id"]


def add_project(database: Database, store: Store, *, user: str, **given: Any) -> str:
    """An empty project with its folder; its id."""
    row = {"id": new_id(), "name": "survey", "created_by": user, "created_at": now(), "used_at": now(), **given}
    with database.write() as connection:
        connection.execute(insert(projects).values(row))
    store.project(row["id"])
    return row["id"]
