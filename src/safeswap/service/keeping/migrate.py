"""Bring the tables of a database to what this version of safeswap expects.

The steps are alembic's, in :mod:`safeswap.service.keeping.migrations`. All pending steps are taken in one transaction
that locks out every other migration: the database is either new or as it was before.
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

_STEPS = Path(__file__).parent / "migrations"
UNKEYED = frozenset({"0001"})
"""Revisions under which the hashes of the audit log had no key."""

_LOCK = 0x5AFE5A9  # the number by which two upgrades of one PostgreSQL database find each other


def upgrade(database: Database) -> str:
    """Take every step that is still to be taken; the revision reached. Safe to call by several processes at once.

    >>> from safeswap.service.keeping.database import open_database
    >>> database = open_database("sqlite://")
    >>> upgrade(database) == upgrade(database) == newest()
    True
    """
    script = _script()
    with database.write() as connection:
        if database.dialect == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        found = _revision(connection)
        _refuse_newer(found, script)
        if found != newest():
            _take_steps(connection, script)
    return newest()


def check(database: Database) -> None:
    """Refuse to work on tables of another version of safeswap than this one."""
    with database.read() as connection:
        found = _revision(connection)
    _refuse_newer(found, _script())
    if found != newest():
        raise InternalError(
            "the database is behind this version of safeswap",
            code="schema-behind",
            hint="back it up, then start `safeswap serve`: it brings the tables up to date",
            found=found or "none",
            expected=newest(),
        )


def draft() -> str:
    """What the next step has to do, as code to start from: where the tables of the code differ from the steps so far.

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
    """The revision that a database has; None: it is empty."""
    with database.read() as connection:
        return _revision(connection)


def newest() -> str:
    """The revision that this version of safeswap expects."""
    return str(_script().get_current_head())


def _script() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(_STEPS).replace("%", "%%"))
    return ScriptDirectory.from_config(config)


def _revision(connection: Connection) -> str | None:
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


def _take_steps(connection: Connection, script: ScriptDirectory) -> None:
    def steps(revision: Any, _context: Any) -> Any:
        return script._upgrade_revs("head", revision)

    with EnvironmentContext(Config(), script, fn=steps, destination_rev="head") as environment:
        environment.configure(connection=connection, target_metadata=metadata)
        environment.run_migrations()


if __name__ == "__main__":
    sys.stdout.write(draft() + "\n")
