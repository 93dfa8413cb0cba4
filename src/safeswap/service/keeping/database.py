"""The database of the service: SQLite by default, or PostgreSQL by URL."""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError, DisconnectionError

from safeswap.errors import InternalError

_BUSY_SECONDS = 30.0  # how long a connection waits for a writer
_PRAGMAS = ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")  # deleted content is overwritten with zeros
_POOL_SIZE, _MOST_CONNECTIONS = 8, 64  # a server has some forty threads


def now() -> float:
    """Return the current Unix time in seconds, as stored in the tables."""
    return time.time()


def new_id() -> str:
    """Return a random, unguessable id for a new row."""
    return uuid.uuid4().hex


LOG_KEY = "safeswap_log_key"
"""Engine option that holds the key of the audit log."""


@dataclass(frozen=True)
class Database:
    """Connections to the database, handed out as transactions.

    >>> from sqlalchemy import text
    >>> database = open_database("sqlite://")
    >>> with database.write() as connection:
    ...     connection.execute(text("SELECT 1")).scalar_one()
    1
    """

    engine: Engine

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self.engine.dialect.name

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a write transaction: committed at the end of the block, rolled back on error.

        On SQLite it takes the write lock at once (``BEGIN IMMEDIATE``): two readers that both upgrade to writers later
        would deadlock.
        """
        with self.engine.connect() as connection:
            connection.execution_options(begin_immediate=True)
            with connection.begin():
                yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a read transaction; it waits for no writer."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def open_database(address: str, *, log_key: bytes | None = None) -> Database:
    """Open the database at an SQLAlchemy URL; :func:`safeswap.service.keeping.migrate.upgrade` creates the tables.

    ``log_key`` is the key of the audit log (:func:`safeswap.service.keeping.auditlog.derive_key`).
    """
    if address.startswith("sqlite:///"):
        _restrict_permissions(Path(address.removeprefix("sqlite:///")))
    database = _open(address)
    if log_key is not None:
        database.engine.update_execution_options(**{LOG_KEY: log_key})
    return database


def _open(address: str) -> Database:
    if address.startswith("sqlite"):
        return Database(_create_sqlite_engine(address))
    if address.startswith(("postgresql", "postgres")):
        scheme, rest = address.split("://", 1)
        address = f"postgresql+psycopg://{rest}" if "+" not in scheme else address
        return Database(create_engine(address, pool_pre_ping=True, pool_size=5, max_overflow=10))
    raise InternalError("only SQLite and PostgreSQL are supported", code="bad-database")


def check_file(database: Database) -> None:
    """Refuse a damaged database file with a clear message, before it is used."""
    if database.dialect != "sqlite":
        return
    try:
        with database.read() as connection:
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    except (DatabaseError, sqlite3.DatabaseError) as error:
        cause = getattr(error, "orig", error)
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF not in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            raise
        found = "damaged"
    if found != "ok":
        raise InternalError(
            "the database file is damaged",
            code="database-damaged",
            hint="restore the last backup with `safeswap admin restore`",
        )


def _restrict_permissions(path: Path) -> None:
    """Make the database files readable by their owner only; SQLite would follow the umask."""
    if str(path) in {"", ":memory:"} or not path.parent.is_dir():
        return
    with suppress(FileExistsError):  # closing an existing file would drop SQLite's locks on it
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    for each in (path, *path.parent.glob(f"{path.name}-*")):
        with suppress(OSError):
            each.chmod(0o600)


def _create_pooled_engine(address: str) -> Engine:
    """Create an engine that keeps connections open: opening one takes longer than a typical query."""
    engine = create_engine(address, pool_size=_POOL_SIZE, max_overflow=_MOST_CONNECTIONS - _POOL_SIZE, pool_timeout=60)
    this = weakref.ref(engine)

    def drop_connections() -> None:  # SQLite's locks belong to the process: connections do not survive a fork
        if (carried := this()) is not None:
            carried.dispose(close=False)

    os.register_at_fork(after_in_child=drop_connections)
    return engine


def _identify_file(engine: Engine) -> tuple[int, int] | None:
    """Return device and inode of the file that now has the database's name; None if there is none."""
    try:
        found = Path(engine.url.database or "").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Enable write-ahead logging, so that readers do not wait for a writer.

    SQLite reads the file before it changes the journal mode, and a reader that wants to write is refused at once with
    SQLITE_BUSY, regardless of ``busy_timeout``. So several processes that open a new database at once must retry.
    """
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _create_sqlite_engine(address: str) -> Engine:
    in_memory = address in {"sqlite://", "sqlite:///:memory:"}
    engine = create_engine(address) if in_memory else _create_pooled_engine(address)

    def on_connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # BEGIN is issued below
        connection.execute(f"PRAGMA busy_timeout={_BUSY_SECONDS * 1000:.0f}")
        _enable_wal(connection)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        record.info["file"] = _identify_file(engine)

    def on_checkout(_connection: Any, record: Any, _proxy: Any) -> None:
        if record.info["file"] != _identify_file(engine):  # moved or replaced: writes would be lost
            raise DisconnectionError

    def on_begin(connection: Connection) -> None:
        immediate = connection.get_execution_options().get("begin_immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "checkout", on_checkout)
    event.listen(engine, "begin", on_begin)
    return engine
