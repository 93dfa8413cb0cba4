"""The one database: who may do what, what is to be done, and what was done. SQLite, or PostgreSQL by address."""

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

_PATIENCE = 30.0  # seconds for which a connection waits for one that writes
# What is deleted is overwritten with zeros.
_PRAGMAS = ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
_AT_HAND, _AT_MOST = 8, 64  # connections to a file; a server has some forty threads


def now() -> float:
    """Seconds since 1970 in UTC, as the tables hold them."""
    return time.time()


def new_id() -> str:
    """A name for a new row that nobody can guess."""
    return uuid.uuid4().hex


LOG_KEY = "safeswap_log_key"
"""The option of an engine that holds the key of the audit log."""


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
        """A transaction that may change things: committed at the end of the block, or undone as a whole.

        On SQLite it takes the write lock at once (``BEGIN IMMEDIATE``): two readers that both want to write later would
        otherwise find each other in the way when it is too late to wait.
        """
        with self.engine.connect() as connection:
            connection.execution_options(begin_immediate=True)
            with connection.begin():
                yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only looks; it waits for no writer."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()


def open_database(address: str, *, log_key: bytes | None = None) -> Database:
    """Open the database at an SQLAlchemy address; :func:`safeswap.service.keeping.migrate.upgrade` makes the tables.

    ``log_key`` is the key of the audit log (:func:`safeswap.service.keeping.auditlog.key_from`).
    """
    if address.startswith("sqlite:///"):
        _keep_private(Path(address.removeprefix("sqlite:///")))
    database = _open(address)
    if log_key is not None:
        database.engine.update_execution_options(**{LOG_KEY: log_key})
    return database


def _open(address: str) -> Database:
    if address.startswith("sqlite"):
        return Database(_sqlite(address))
    if address.startswith(("postgresql", "postgres")):
        scheme, rest = address.split("://", 1)
        address = f"postgresql+psycopg://{rest}" if "+" not in scheme else address
        return Database(create_engine(address, pool_pre_ping=True, pool_size=5, max_overflow=10))
    raise InternalError("only SQLite and PostgreSQL are supported", code="bad-database")


def check_file(database: Database) -> None:
    """Refuse a database file that is damaged, in plain words, before anybody works on it."""
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


def _keep_private(path: Path) -> None:
    """Make the file and those beside it readable for their owner only; SQLite would follow the umask."""
    if str(path) in {"", ":memory:"} or not path.parent.is_dir():
        return
    with suppress(FileExistsError):  # one that exists is not opened: to close it would give up SQLite's locks on it
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    for each in (path, *path.parent.glob(f"{path.name}-*")):
        with suppress(OSError):
            each.chmod(0o600)


def _pooled(address: str) -> Engine:
    """An engine that keeps its connections open: opening a file and saying how to use it takes longer than a look."""
    engine = create_engine(address, pool_size=_AT_HAND, max_overflow=_AT_MOST - _AT_HAND, pool_timeout=60)
    this = weakref.ref(engine)

    def forget() -> None:  # SQLite's locks belong to the process: a connection is of no use behind a fork
        if (carried := this()) is not None:
            carried.dispose(close=False)

    os.register_at_fork(after_in_child=forget)
    return engine


def _which(engine: Engine) -> tuple[int, int] | None:
    """The file that has the name of the database now, whatever it was called before; None if there is none."""
    try:
        found = Path(engine.url.database or "").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Keep a write-ahead log, so that readers need not wait for a writer.

    SQLite reads the file before it changes the journal, and who has read does not wait for the lock but is told at once
    that the file is busy, whatever ``busy_timeout`` says. So several processes that open a new database may have to ask
    again.
    """
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _sqlite(address: str) -> Engine:
    in_memory = address in {"sqlite://", "sqlite:///:memory:"}
    engine = create_engine(address) if in_memory else _pooled(address)

    def connected(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, below
        connection.execute(f"PRAGMA busy_timeout={_PATIENCE * 1000:.0f}")
        _write_ahead(connection)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        record.info["file"] = _which(engine)

    def handed_out(_connection: Any, record: Any, _proxy: Any) -> None:
        if record.info["file"] != _which(engine):  # moved away or replaced: what is written here would be lost
            raise DisconnectionError

    def begin(connection: Connection) -> None:
        immediate = connection.get_execution_options().get("begin_immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    event.listen(engine, "connect", connected)
    event.listen(engine, "checkout", handed_out)
    event.listen(engine, "begin", begin)
    return engine
