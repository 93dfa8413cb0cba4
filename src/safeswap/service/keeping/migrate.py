"""Migrate a database to the schema of this version of safeswap; back up and restore a service.

The alembic migrations are in :mod:`safeswap.service.keeping.migrations`. All pending ones run in one transaction that
locks out other migrations: the schema is upgraded completely or not at all.

A backup is made online. The database is copied first, as a consistent snapshot, then the files. A file exists before
the row that refers to it, so the backup contains every file that the copied rows refer to; newer files are removed when
the backup is opened. The master key is not copied: a backup with its key would not be protected.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from safeswap.errors import InputError, InternalError, OutputError
from safeswap.files.atomic import atomic_directory
from safeswap.service.keeping.auditlog import ANCHORS
from safeswap.service.keeping.database import Database, open_database
from safeswap.service.keeping.tables import metadata
from safeswap.service.settings import Settings

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


_DATABASE = "safeswap.db"
_PROJECTS = "projects"
_NOTE = "backup.json"
_FORMAT = "safeswap-backup-1"


def back_up(settings: Settings, target: Path) -> dict[str, Any]:
    """Copy database and projects to a new folder, atomically, and return a summary.

    A PostgreSQL database is not copied: run ``pg_dump`` first.
    """
    if target.exists():
        raise OutputError(
            f"{target.name!r} exists already",
            code="exists",
            hint="name a new folder: a backup never overwrites another",
            file=str(target),
        )
    with atomic_directory(target) as part:
        # Anchors before the log: an anchor newer than the log would look like truncation.
        if (anchors := settings.store / ANCHORS).is_file():
            shutil.copyfile(anchors, part / ANCHORS)
        if not settings.database_url:
            _copy_database(settings, part / _DATABASE)
        projects = settings.store / _PROJECTS
        (part / _PROJECTS).mkdir(mode=0o700)
        if projects.is_dir():
            _copy_projects(projects, part / _PROJECTS)
        note = {
            "format": _FORMAT,
            "revision": newest(),
            "database": not settings.database_url,
            "files": _hash_files(part),
        }
        (part / _NOTE).write_text(json.dumps(note, indent=1), encoding="utf-8")
    return {"database": note["database"], "files": len(_hash_files(target)) - 1}


def restore(settings: Settings, source: Path) -> int:
    """Restore the store from an intact backup and return the number of files. An existing store is not overwritten.

    Restore a PostgreSQL database with ``pg_restore`` first.
    """
    note = check_backup(source)
    if settings.store.exists() and any(settings.store.iterdir()):
        raise OutputError(
            f"the store {settings.store.name!r} is not empty",
            code="exists",
            hint="move it away first: a store is never overwritten",
            file=str(settings.store),
        )
    settings.store.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in note["files"]:
        to = settings.store / name
        for folder in reversed(to.relative_to(settings.store).parents):
            (settings.store / folder).mkdir(mode=0o700, exist_ok=True)
        shutil.copyfile(source / name, to)
        to.chmod(0o600)
    return len(note["files"])


def check_backup(source: Path) -> dict[str, Any]:
    """Return the metadata of a backup, if all its files are intact."""
    try:
        note: dict[str, Any] = json.loads((source / _NOTE).read_text(encoding="utf-8"))
        whole = note["format"] == _FORMAT and _hash_files(source, leave_out=_NOTE) == note["files"]
    except (OSError, ValueError, KeyError, TypeError):
        whole, note = False, {}
    if not whole:
        raise InputError(
            f"{source.name!r} is not a complete backup",
            code="bad-backup",
            hint="use another copy: a file is missing, was changed or was added",
            file=str(source),
        )
    return note


def _copy_database(settings: Settings, target: Path) -> None:
    database = open_database(settings.database)
    try:
        check(database)
        # Outside of any transaction; the copy is a snapshot, whatever is written meanwhile.
        with database.engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None  # noqa: S101  (an open connection has one)
            raw.execute("VACUUM INTO ?", (str(target),))
        copied = open_database(f"sqlite:///{target}")
        with copied.read() as connection:
            fine = connection.execute(text("PRAGMA integrity_check")).scalar_one() == "ok"
        copied.close()
    finally:
        database.close()
    if not fine:
        raise OutputError("the copy of the database is damaged", code="write-failed", hint="check the disk")
    target.chmod(0o600)


def _copy_projects(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True, ignore=_ignore_temporary)
    except shutil.Error as error:
        # A file deleted during the copy is no loss.
        if any(Path(each[0]).exists() for each in error.args[0]):
            raise OutputError(
                "not every file of the store could be copied",
                code="write-failed",
                hint="run it as the user who owns the store, and check the free disk space",
            ) from None


def _ignore_temporary(_folder: str, names: list[str]) -> list[str]:
    """Ignore hidden files: half written or being deleted."""
    return [name for name in names if name.startswith(".")]


def _hash_files(folder: Path, leave_out: str = "") -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: _hash_file(path) for name, path in names.items() if name != leave_out}


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.stdout.write(draft() + "\n")
