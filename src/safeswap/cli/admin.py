"""``safeswap admin``: what an administrator does on the machine of the service itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeswap.cli.console import Console
from safeswap.cli.options import command
from safeswap.cli.serve import MasterKey, SettingsFile, StoreFolder
from safeswap.errors import SpecError

if TYPE_CHECKING:
    from safeswap.service.settings import Settings
    from safeswap.service.state import Service

admin = typer.Typer(
    help="Set up and look after a service.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

ROLES = ("viewer", "analyst", "officer", "admin")
Name = Annotated[str, typer.Argument(metavar="NAME", help="by which the person logs in")]


@admin.command()
@command
def init(
    console: Console, settings: SettingsFile = None, store: StoreFolder = None, master_key: MasterKey = None
) -> None:
    """Make the store, the master key and the database of a new service.

    What is there already stays as it is: the master key is never replaced.
    """
    stated = _settings(settings, store, master_key)
    from safeswap.service.keeping.vault import make_master_key

    made = not stated.master_key_file.exists()
    if made:
        stated.master_key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_master_key(stated.master_key_file)
    stated.store.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _service(stated):
        pass  # opening it brings the database up to date
    console.say(f"The store is {stated.store}, the master key {stated.master_key_file}.")
    if made:
        console.warn("Keep a copy of the master key in a safe place: without it no audit record can be read.")
    console.result({"command": "init", "store": str(stated.store), "master_key_made": made})


@admin.command(name="add-user")
@command
def add_user(
    console: Console,
    name: Name,
    *,
    role: Annotated[str, typer.Option(metavar="ROLE", help=", ".join(ROLES))] = "analyst",
    display_name: Annotated[str, typer.Option(metavar="TEXT", help="as others see the person")] = "",
    password: Annotated[bool, typer.Option(help="ask for a password; without: log-in by provider or proxy")] = True,
    settings: SettingsFile = None,
    store: StoreFolder = None,
    master_key: MasterKey = None,
) -> None:
    """Add a person. The password is asked for, or read from standard input; it is never an argument."""
    from safeswap.service.keeping import auditlog
    from safeswap.service.people import accounts

    if role not in ROLES:
        raise SpecError(f"there is no role {role!r}", code="unknown-role", hint="roles: " + ", ".join(ROLES))
    secret = accounts.hash_password(_password(), name=name) if password else None
    with _service(_settings(settings, store, master_key)) as service, service.database.write() as connection:
        user_id = accounts.add_user(connection, name=name, role=role, password_hash=secret, display_name=display_name)
        auditlog.record(connection, actor="console", action="user.add", subject=user_id, detail={"role": role})
    console.say(f"{name} can log in as {role}.")
    console.result({"command": "add-user", "id": user_id, "role": role})


@admin.command(name="set-password")
@command
def set_password(
    console: Console,
    name: Name,
    *,
    keep_tokens: Annotated[bool, typer.Option("--keep-tokens", help="do not end the tokens of the person")] = False,
    settings: SettingsFile = None,
    store: StoreFolder = None,
    master_key: MasterKey = None,
) -> None:
    """Give a person a new password and end her sessions and tokens."""
    from sqlalchemy import update

    from safeswap.service.keeping import auditlog
    from safeswap.service.keeping.tables import users
    from safeswap.service.people import accounts, sessions
    from safeswap.service.people import sessions as tokens

    secret = accounts.hash_password(_password(), name=name)
    with _service(_settings(settings, store, master_key)) as service, service.database.write() as connection:
        row = accounts.user_by_name(connection, name)
        if row is None:
            raise SpecError("there is no such person", code="unknown-user")
        connection.execute(update(users).where(users.c.id == row.id).values(password_hash=secret))
        sessions.end_all(connection, row.id)
        if not keep_tokens:
            tokens.revoke_all(connection, row.id)
        detail = {"tokens_revoked": not keep_tokens}
        auditlog.record(connection, actor="console", action="user.password", subject=row.id, detail=detail)
    console.say(f"{name} has a new password.")
    console.result({"command": "set-password", "id": row.id})


@admin.command()
@command
def worker(
    console: Console, settings: SettingsFile = None, store: StoreFolder = None, master_key: MasterKey = None
) -> None:
    """Run one worker, until a signal ends it; on this machine or on another that reaches store and database."""
    from safeswap.service.keeping.vault import open_vault
    from safeswap.service.work import worker as process

    stated = _settings(settings, store, master_key)
    open_vault(stated)
    console.say("A worker is waiting for jobs. Ctrl-C ends it.")
    process.main(stated)


@admin.command(name="check-log")
@command
def check_log(
    console: Console, settings: SettingsFile = None, store: StoreFolder = None, master_key: MasterKey = None
) -> None:
    """Check that the audit log is what was written, and that the database agrees with it; show where it ends.

    No entry was changed, removed or put in, every approved release stands in it, and the database file is whole. Where
    it ends is noted down only if all is well.
    """
    from safeswap.service.keeping import auditlog
    from safeswap.service.keeping import auditlog as log_check
    from safeswap.service.keeping.database import open_database
    from safeswap.service.keeping.migrate import check
    from safeswap.service.keeping.vault import open_vault

    stated = _settings(settings, store, master_key)
    anchors = stated.store / auditlog.ANCHORS
    database = open_database(stated.database, log_key=auditlog.key_from(open_vault(stated).master_key.secret))
    try:
        check(database)
        found = log_check.check(database, anchors=auditlog.kept_anchors(anchors))
        if found.ok:
            auditlog.keep_anchor(database, anchors)
    finally:
        database.close()
    if not found.ok:
        entry = f"entry {found.first_broken} of the audit log is not what was written: " if found.first_broken else ""
        raise SpecError(
            f"{entry}{found.problem}", code="log-broken", hint="compare with the last backup", entry=found.first_broken
        )
    entries = f"{found.entries:,} {'entry' if found.entries == 1 else 'entries'}"
    console.say(f"{entries}, all as written. The end: {found.end.number} {found.end.hash}")
    console.result({"command": "check-log", "entries": found.entries, "end": found.end.hash})


@admin.command(name="back-up")
@command
def back_up(
    console: Console,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a new folder for the copy")],
    settings: SettingsFile = None,
    store: StoreFolder = None,
    master_key: MasterKey = None,
) -> None:
    """Copy database and projects to a new folder, while the service runs. The master key is not in it.

    A database on PostgreSQL is left to `pg_dump`: run that first.
    """
    from safeswap.service.keeping.backup import back_up as copy_service

    told = copy_service(_settings(settings, store, master_key), folder)
    console.say(f"{told['files']:,} files are in {folder}.")
    if not told["database"]:
        console.warn("The database is on PostgreSQL and not in the copy: it has to have been saved by pg_dump before.")
    console.result({"command": "back-up", **told})


@admin.command()
@command
def restore(
    console: Console,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="what `safeswap admin back-up` wrote")],
    settings: SettingsFile = None,
    store: StoreFolder = None,
    master_key: MasterKey = None,
) -> None:
    """Make the store of a service anew from a backup. A store that is there is never overwritten."""
    from safeswap.service.keeping.backup import restore as copy_back

    files = copy_back(_settings(settings, store, master_key), folder)
    console.say(f"{files:,} files are back. The service needs the master key with which it was made.")
    console.result({"command": "restore", "files": files})


def _settings(path: Path | None, store: Path | None, master_key: Path | None) -> Settings:
    from safeswap.service.work.running import require_extra

    require_extra()
    from safeswap.service.settings import read_settings

    return read_settings(path, store=store, master_key_file=master_key)


@contextmanager
def _service(settings: Settings) -> Iterator[Service]:
    from safeswap.service.state import open_service

    service = open_service(settings)
    try:
        yield service
    finally:
        service.close()


def _password() -> str:
    import sys
    from getpass import getpass

    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first, second = getpass("Password: "), getpass("Once more: ")
    if first != second:
        raise SpecError("the two are not the same", code="passwords-differ")
    return first
