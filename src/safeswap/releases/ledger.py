"""The ledger file of Python and the command line: one per agency, named once in the configuration.

The file is found in this order:

1. the environment variable ``SAFESWAP_LEDGER``;
2. ``[ledger] file`` in the configuration, ``config.toml`` in the user's configuration directory or the file that
   ``SAFESWAP_CONFIG`` names; ``key`` and ``alarm`` (the share of records in common, 0.5) are optional;
3. ``ledger.db`` in the user's data directory.

The file is an SQLite database of numbered entries, each encrypted with AES-GCM under the ledger's own key, which is in
a key file beside it (``ledger.key``) unless the configuration names another. A second table is the register of maskings
(:mod:`safeswap.releases.register`), sealed alike. Without the key the file only shows how many releases, masked tables
and changed columns there were. Both files are created on first use, readable by their owner only.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from safeswap.arrays.keyed import derive
from safeswap.arrays.sketch import ALARM_SHARE
from safeswap.errors import InputError, OutputError, SpecError
from safeswap.files.atomic import PRIVATE_DIRECTORY, PRIVATE_FILE
from safeswap.files.keyfile import read_key, write_key
from safeswap.model.audit import Audit, replay
from safeswap.model.columns import aligned_columns, flag_changes
from safeswap.model.key import Key
from safeswap.model.ledger import FORMAT, Entry, Likeness, digest_columns
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.text import plural
from safeswap.on_disk.audit_record import AUDIT, read_audit


@dataclass(frozen=True, kw_only=True)
class Differencing:
    """An earlier release of the same records, and what comparing the two reveals.

    ``differ`` is None if the two cannot be compared row by row: the records were in another order, or values or columns
    have changed. ``touched_earlier`` is None if the audit record of the earlier release is not available.
    """

    likeness: Likeness
    touched_now: int
    touched_earlier: int | None = None
    differ: int | None = None

    @property
    def earlier(self) -> str:
        """The name of the earlier release."""
        return self.likeness.release

    @property
    def sentence(self) -> str:
        """The finding in words."""
        return f"{self.likeness.sentence} {self._figures}"

    @property
    def _figures(self) -> str:
        if self.touched_earlier is None:
            return "Its audit record is not available, so what comparing the two would show cannot be counted."
        if self.differ is None:
            most = self.touched_earlier + self.touched_now
            return f"Comparing this release with it would show up to {plural(most, 'exchanged record')}."
        if self.differ == 0:
            return "This release has the same values: it reveals nothing more, in another form."
        return (
            f"Comparing this release with it shows {plural(self.differ, 'record')} with different values: each was "
            f"exchanged in one of the two ({self.touched_earlier:,} then, {self.touched_now:,} now), and the records "
            "in which both agree are very likely true."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "earlier": self.earlier,
            "share": round(self.likeness.share, 3),
            "side": self.likeness.side,
            "identifiers": round(self.likeness.identifiers, 3),
            "touched_earlier": self.touched_earlier,
            "touched_now": self.touched_now,
            "differ": self.differ,
            "sentence": self.sentence,
        }


def compare_releases(masked: Masked, likeness: Likeness, earlier: Entry, *, secret: bytes) -> Differencing:
    """Work out what comparing a new release with an earlier one would reveal, from both confidential records."""
    touched_now = int(np.count_nonzero(masked.audit.touched()))
    directory = Path(earlier.record)
    if not earlier.record or not (directory / AUDIT).is_file():
        return Differencing(likeness=likeness, touched_now=touched_now)
    audit = read_audit(directory)
    same_rows = dict(earlier.columns) == digest_columns(masked.original, tuple(earlier.columns), secret)
    return Differencing(
        likeness=likeness,
        touched_now=touched_now,
        touched_earlier=int(np.count_nonzero(audit.touched())),
        differ=_count_differing(masked, audit) if same_rows and audit.records == len(masked.original) else None,
    )


def replay_known(original: Microdata, entries: Iterable[Entry], *, secret: bytes) -> tuple[Microdata, ...]:
    """Return earlier releases of these records, row by row, where the audit records of the ledger allow it.

    An earlier release is repeated on the original from its audit record. Columns whose values it replaced are left out:
    the values after a replacement are not kept.
    """
    found = []
    for entry in entries:
        directory = Path(entry.record)
        if not entry.record or not (directory / AUDIT).is_file() or not entry.columns:
            continue
        if dict(entry.columns) != digest_columns(original, tuple(entry.columns), secret):
            continue
        audit = read_audit(directory)
        if audit.records != len(original):
            continue
        replaced = {each.attribute for each in audit.all_replacements}
        moved = {name for exchange in audit.all_exchanges for name in exchange.attributes} - replaced
        if moved:
            then = replay(original, audit.all_exchanges)
            kept = tuple(name for name in original.attributes if name in moved)
            found.append(Microdata(then.table.select(kept), then.schema.select(kept)))
    return tuple(found)


def _count_differing(masked: Masked, earlier: Audit) -> int:
    then = replay(masked.original, earlier.all_exchanges)
    flags = np.zeros(len(then), dtype=np.bool_)
    exchanges = (*earlier.all_exchanges, *masked.audit.all_exchanges)
    # The values after an earlier replacement are not kept: assumed to differ, wherever a later step has moved them.
    replacements = (*earlier.all_replacements, *masked.audit.all_replacements)
    replaced = {each.attribute for each in replacements}
    for name in {name for exchange in exchanges for name in exchange.attributes} - replaced:
        flags |= flag_changes(*aligned_columns(then.table.column(name), masked.data.table.column(name)))
    for replacement in replacements:
        flags[replacement.rows] = True
    for exchange in exchanges:
        if replaced.intersection(exchange.attributes):
            flags[exchange.pairs.ravel()] = True
    return int(np.count_nonzero(flags))


VARIABLE, CONFIGURATION = "SAFESWAP_LEDGER", "SAFESWAP_CONFIG"

_NONCE = 12
_TIMEOUT = 60.0  # seconds that another release may take to compare and enter
_CONTEXT = FORMAT.encode()
_TABLES = (
    "entries (number INTEGER PRIMARY KEY AUTOINCREMENT, sealed BLOB NOT NULL)",
    "maskings (number INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB NOT NULL UNIQUE, sealed BLOB NOT NULL)",
)


@dataclass(frozen=True)
class LedgerFile:
    """A ledger in a file.

    >>> import tempfile
    >>> ledger = LedgerFile(Path(tempfile.mkdtemp()) / "ledger.db")
    >>> with ledger.open() as book:
    ...     list(book.entries())
    []
    """

    path: Path
    key_path: Path | None = None
    alarm_share: float = ALARM_SHARE

    @cached_property
    def secret(self) -> bytes:
        """The ledger's key, generated with the first entry; a ledger that exists never gets a new one."""
        if self.path.is_dir():
            raise InputError(
                f"the ledger {self.path.name!r} is a directory",
                code="is-directory",
                hint=f"name a file: {VARIABLE}, or [ledger] file in config.toml",
                file=str(self.path),
            )
        path = self.key_path or self.path.with_suffix(".key")
        if not path.exists():
            if self.path.exists():
                raise InputError(
                    f"the key {path.name!r} of the ledger is missing",
                    code="no-ledger-key",
                    hint="restore the key file: without it earlier releases cannot be read",
                    file=str(path),
                )
            _make_folder(path.parent)
            write_key(Key.generate(), path)
        return read_key(path).secret

    def read_maskings(self, names: Sequence[bytes]) -> list[bytes]:
        """Return what the register has under these names, in the order in which it was entered."""
        key, found = derive(self.secret, "register seal"), {}
        with _explain(self.path), closing(_connect(self.path)) as connection:
            for name in set(names):
                rows = connection.execute("SELECT number, sealed FROM maskings WHERE name = ?", (name,)).fetchall()
                found.update({number: _unseal(sealed, key, context=name) for number, sealed in rows})
        return [found[number] for number in sorted(found)]

    def write_maskings(self, entries: Mapping[bytes, bytes]) -> None:
        """Add entries to the register, all or none, except those whose name it has."""
        key = derive(self.secret, "register seal")  # before the file is created: only a new ledger may get a key
        rows = [(name, _seal(content, key, context=name)) for name, content in entries.items()]
        with _explain(self.path), closing(_connect(self.path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR IGNORE INTO maskings (name, sealed) VALUES (?, ?)", rows)
            connection.execute("COMMIT")

    @contextmanager
    def open(self) -> Iterator[_OpenFile]:
        """Open the ledger; it is locked from reading its entries until one is added."""
        secret = self.secret  # before the file is created: only a new ledger may get a key
        book = _OpenFile(_connect(self.path), secret)
        try:
            with _explain(self.path):
                yield book
        except BaseException:
            book.rollback()
            raise
        finally:
            book.close()


class _OpenFile:
    def __init__(self, connection: sqlite3.Connection, secret: bytes) -> None:
        self._connection, self._secret = connection, derive(secret, "ledger seal")
        self._entered: int | None = None

    def entries(self) -> Iterator[Entry]:
        """Return all entries, oldest first."""
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")
        rows = self._connection.execute("SELECT number, sealed FROM entries ORDER BY number").fetchall()
        return (Entry.from_bytes(_unseal(sealed, self._secret)) for _, sealed in rows)

    def enter(self, entry: Entry) -> None:
        """Add an entry, durably."""
        sealed = _seal(entry.to_bytes(), self._secret)
        self._entered = self._connection.execute("INSERT INTO entries (sealed) VALUES (?)", (sealed,)).lastrowid
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")

    def rollback(self) -> None:
        """Remove the entry that was added, if any."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        if self._entered is not None:
            self._connection.execute("DELETE FROM entries WHERE number = ?", (self._entered,))

    def close(self) -> None:
        """Close the database and release its lock."""
        self._connection.close()


def configured_ledger(environment: Mapping[str, str] | None = None) -> LedgerFile:
    """Return the ledger of this agency, as named by the environment or the configuration.

    >>> configured_ledger({"SAFESWAP_LEDGER": "/agency/ledger.db"}).path.name
    'ledger.db'
    """
    variables = os.environ if environment is None else environment
    stated = _configuration(variables)
    file = variables.get(VARIABLE) or stated.get("file")
    path = Path(file).expanduser() if file else _data_directory(variables) / "ledger.db"
    key = stated.get("key") if not variables.get(VARIABLE) else None
    alarm = stated.get("alarm", ALARM_SHARE)
    if not isinstance(alarm, (int, float)) or isinstance(alarm, bool) or not 0 < alarm <= 1:
        raise _bad_configuration("[ledger] alarm is not a share between 0 and 1")
    return LedgerFile(path, Path(key).expanduser() if key else None, float(alarm))


def _configuration(variables: Mapping[str, str]) -> dict[str, Any]:
    named = variables.get(CONFIGURATION)
    path = Path(named) if named else _config_directory(variables) / "config.toml"
    if not named and not path.is_file():
        return {}
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get("ledger", {})
    except (OSError, ValueError):
        raise _bad_configuration(f"{path.name} cannot be read as TOML") from None
    texts = isinstance(found, dict) and all(isinstance(found.get(name, ""), str) for name in ("file", "key"))
    if not texts or set(found) - {"file", "key", "alarm"}:
        raise _bad_configuration("[ledger] may hold file, key and alarm only")
    return dict(found)


def _bad_configuration(problem: str) -> SpecError:
    return SpecError(
        f"the configuration cannot be used: {problem}", code="bad-configuration", hint="correct config.toml"
    )


def _config_directory(variables: Mapping[str, str]) -> Path:
    if sys.platform in {"win32", "darwin"}:
        return _data_directory(variables)
    return Path(variables.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "safeswap"


def _data_directory(variables: Mapping[str, str]) -> Path:
    if sys.platform == "win32":
        return Path(variables.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "safeswap"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "safeswap"
    return Path(variables.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "safeswap"


def _connect(path: Path) -> sqlite3.Connection:
    """Open the database; create it, readable by its owner only, if it does not exist."""
    _make_folder(path.parent)
    with _explain(path):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))
        connection = sqlite3.connect(path, timeout=_TIMEOUT, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            for table in _TABLES:
                connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        except BaseException:
            connection.close()
            raise
        return connection


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"the directory of the ledger cannot be made: {os.strerror(error.errno or 0)}",
            code="no-ledger",
            hint=f"name a ledger file that you may write: {VARIABLE}, or [ledger] file in config.toml",
        ) from None


@contextmanager
def _explain(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and the disk."""
    try:
        yield
    except sqlite3.OperationalError as error:
        code, full = getattr(error, "sqlite_errorname", ""), "SQLITE_FULL"
        raise OutputError(
            f"the ledger {path.name!r} cannot be used: {code or 'SQLite refused'}",
            code="disk-full" if code == full else "ledger-busy" if code == "SQLITE_BUSY" else "no-ledger",
            hint="wait until other releases are done, and check the permissions of the file",
            file=str(path),
        ) from None
    except sqlite3.DatabaseError:
        raise _damaged_error(path) from None
    except PermissionError as error:
        if error.filename != str(path) and error.filename != path:
            raise
        raise OutputError(
            f"the ledger {path.name!r} cannot be written: {error.strerror}",
            code="no-ledger",
            hint=f"name a ledger file that you may write: {VARIABLE}, or [ledger] file in config.toml",
            file=str(path),
        ) from None


def _damaged_error(path: Path | None = None) -> InputError:
    return InputError(
        "the ledger does not open: it was changed, or belongs to another key",
        code="ledger-damaged",
        hint="restore the ledger and its key from a backup",
        **({"file": str(path)} if path else {}),
    )


def _seal(content: bytes, key: bytes, *, context: bytes = _CONTEXT) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, content, context)


def _unseal(sealed: bytes, key: bytes, *, context: bytes = _CONTEXT) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], context)
    except (InvalidTag, ValueError):
        raise _damaged_error() from None
