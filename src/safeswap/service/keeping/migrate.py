"""Migrate a database to the schema of this version of safeswap.

The alembic migrations are in :mod:`safeswap.service.keeping.migrations`. All pending ones run in one transaction that
locks out other migrations: the schema is upgraded completely or not at all.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from safeswap.errors import InternalError
from safeswap.service.keeping.database import Database, open_database
from safeswap.service.keeping.tables import metadata

_MIGRATIONS = Path(__file__).parent / "migrations"
UNKEYED = frozenset({"0001"})
"""Revisions whose audit log had unkeyed hashes."""

_LOCK = 0x5AFE5A9  # PostgreSQL advisory lock of upgrades


def upgrade(database: Database) -> str:
    """Run all pending migrations and return the revision reached. Several processes may call it concurrently.

    >>> from safeswap.service.keeping.database import open_database
    >>> database = open_database("sqlite://")
    >>> upgrade(database) == upgrade(database) == newest()
    True
    """
    script = _load_script()
    with database.write() as connection:
        if database.dialect == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        found = _read_revision(connection)
        _refuse_newer(found, script)
        if found != newest():
            _run_migrations(connection, script)
    return newest()


def check(database: Database) -> None:
    """Refuse a database of another schema revision."""
    with database.read() as connection:
        found = _read_revision(connection)
    _refuse_newer(found, _load_script())
    if found != newest():
        raise InternalError(
            "the database is behind this version of safeswap",
            code="schema-behind",
            hint="back it up, then start `safeswap serve`: it brings the tables up to date",
            found=found or "none",
            expected=newest(),
        )


def draft() -> str:
    """Draft the next migration, from the difference between the tables in code and the migrations so far.

    ``python -m safeswap.service.keeping.migrate`` prints it, for a new file in ``migrations/versions``.

    >>> print(draft())
    pass
    """
    from alembic.autogenerate import produce_migrations, render_python_code

    database = open_database("sqlite://")
    upgrade(database)
    with database.read() as connection:
        found = produce_migrations(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)
    lines = render_python_code(found.upgrade_ops).splitlines() if found.upgrade_ops is not None else []
    return "\n".join(line.strip() for line in lines if not line.strip().startswith("#"))


def revision(database: Database) -> str | None:
    """Return the revision of a database; None: it is empty."""
    with database.read() as connection:
        return _read_revision(connection)


def newest() -> str:
    """Return the revision that this version of safeswap expects."""
    return str(_load_script().get_current_head())


def _load_script() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return ScriptDirectory.from_config(config)


def _read_revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _refuse_newer(found: str | None, script: ScriptDirectory) -> None:
    known = {step.revision for step in script.walk_revisions()}
    if found is not None and found not in known:
        raise InternalError(
            "the database was made by a newer version of safeswap",
            code="schema-ahead",
            hint="install the version that made it, or restore the copy taken before the upgrade",
            found=found,
            expected=newest(),
        )


def _run_migrations(connection: Connection, script: ScriptDirectory) -> None:
    def steps(revision: Any, _context: Any) -> Any:
        return script._upgrade_revs("head", revision)

    with EnvironmentContext(Config(), script, fn=steps, destination_rev="head") as environment:
        environment.configure(connection=connection, target_metadata=metadata)
        environment.run_migrations()


if __name__ == "__main__":
    sys.stdout.write(draft() + "\n")
