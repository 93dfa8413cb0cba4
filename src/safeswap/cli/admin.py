"""``safeswap admin``: administration on the machine that runs the service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeswap.cli.console import Console
from safeswap.cli.options import command, make_group, request_options
from safeswap.cli.serve import ServiceOptions
from safeswap.errors import SpecError
from safeswap.model.text import plural

if TYPE_CHECKING:
    from safeswap.service.settings import Settings
    from safeswap.service.state import Service

admin = make_group("Set up and maintain a service.", no_args_is_help=True)

ROLES = ("viewer", "analyst", "officer", "admin")
Name = Annotated[str, typer.Argument(metavar="NAME", help="login name")]


@admin.command()
@command
@request_options(ServiceOptions)
def init(console: Console, *, options: ServiceOptions) -> None:
    """Create the store, the master key and the database of a new service.

    Whatever exists already is left unchanged: the master key is never replaced.
    """
    stated = options.read()
    from safeswap.service.keeping.vault import make_master_key

    made = not stated.master_key_file.exists()
    if made:
        stated.master_key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_master_key(stated.master_key_file)
    stated.store.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _service(stated):
        pass  # opening the service migrates its database
    console.say(f"Store: {stated.store}. Master key: {stated.master_key_file}.")
    if made:
        console.warn("Keep a copy of the master key in a safe place: without it, audit records cannot be read.")
    console.result({"command": "init", "store": str(stated.store), "master_key_made": made})


@admin.command(name="add-user")
@command
@request_options(ServiceOptions)
def add_user(
    console: Console,
    name: Name,
    *,
    role: Annotated[str, typer.Option(metavar="ROLE", help=", ".join(ROLES))] = "analyst",
    display_name: Annotated[str, typer.Option(metavar="TEXT", help="name shown to other users")] = "",
    password: Annotated[
        bool,
        typer.Option(help="prompt for a password; if not, log in via provider or proxy"),
    ] = True,
    options: ServiceOptions,
) -> None:
    """Add a user. The password is prompted for or read from standard input, never passed as an argument."""
    from safeswap.service.keeping import auditlog
    from safeswap.service.people import accounts

    if role not in ROLES:
        raise SpecError(f"there is no role {role!r}", code="unknown-role", hint="choose one of: " + ", ".join(ROLES))
    secret = accounts.hash_password(_ask_password(), name=name) if password else None
    with _service(options.read()) as service, service.database.write() as connection:
        user_id = accounts.add_user(connection, name=name, role=role, password_hash=secret, display_name=display_name)
        auditlog.record(connection, actor="console", action="user.add", subject=user_id, detail={"role": role})
    console.say(f"Added {name} with the role {role}.")
    console.result({"command": "add-user", "id": user_id, "role": role})


@admin.command(name="set-password")
@command
@request_options(ServiceOptions)
def set_password(
    console: Console,
    name: Name,
    *,
    keep_tokens: Annotated[bool, typer.Option("--keep-tokens", help="keep the user's tokens valid")] = False,
    options: ServiceOptions,
) -> None:
    """Set a user's password; ends all sessions and revokes all tokens."""
    from sqlalchemy import update

    from safeswap.service.keeping import auditlog
    from safeswap.service.keeping.tables import users
    from safeswap.service.people import accounts, sessions
    from safeswap.service.people import sessions as tokens

    secret = accounts.hash_password(_ask_password(), name=name)
    with _service(options.read()) as service, service.database.write() as connection:
        row = accounts.user_by_name(connection, name)
        if row is None:
            raise SpecError("there is no such person", code="unknown-user")
        connection.execute(update(users).where(users.c.id == row.id).values(password_hash=secret))
        sessions.end_all(connection, row.id)
        if not keep_tokens:
            tokens.revoke_all(connection, row.id)
        detail = {"tokens_revoked": not keep_tokens}
        auditlog.record(connection, actor="console", action="user.password", subject=row.id, detail=detail)
    console.say(f"Changed the password of {name}.")
    console.result({"command": "set-password", "id": row.id})


@admin.command()
@command
@request_options(ServiceOptions)
def policy(
    console: Console,
    file: Annotated[
        Path | None, typer.Argument(metavar="TOML", help="the new policy: name, and [limits] by attack")
    ] = None,
    *,
    options: ServiceOptions,
) -> None:
    """Show the agency's policy on attacks, or replace it by that of a file."""
    from safeswap.attacks.run import read_policy
    from safeswap.service.routes.policy import policy_in_force, store_policy

    new = None if file is None else read_policy(file)
    with _service(options.read()) as service:
        if new is not None:
            with service.database.write() as connection:
                store_policy(connection, new, by="console")
        found = policy_in_force(service.database)
    console.say(found.text)
    console.result({"command": "policy", **found.model_dump(mode="json")})


@admin.command()
@command
@request_options(ServiceOptions)
def worker(console: Console, *, options: ServiceOptions) -> None:
    """Run one worker until it is stopped, on this machine or another with access to store and database."""
    from safeswap.service.keeping.vault import open_vault
    from safeswap.service.work import worker as process

    stated = options.read()
    open_vault(stated)
    console.say("Worker waiting for jobs. Press Ctrl-C to stop.")
    process.main(stated)


@admin.command(name="check-log")
@command
@request_options(ServiceOptions)
def check_log(console: Console, *, options: ServiceOptions) -> None:
    """Check the integrity of the audit log and that the database agrees with it; show its last entry.

    Verifies that no entry was changed, removed or inserted, that every approved release is in the log, and that the
    database file is intact. The last entry is recorded as an anchor only if all checks pass.
    """
    from safeswap.service.keeping import auditlog
    from safeswap.service.keeping import auditlog as log_check
    from safeswap.service.keeping.database import open_database
    from safeswap.service.keeping.migrate import check
    from safeswap.service.keeping.vault import open_vault

    stated = options.read()
    anchors = stated.store / auditlog.ANCHORS
    database = open_database(stated.database, log_key=auditlog.derive_key(open_vault(stated).master_key.secret))
    try:
        check(database)
        found = log_check.check(database, anchors=auditlog.read_anchors(anchors))
        if found.ok:
            auditlog.append_anchor(database, anchors)
    finally:
        database.close()
    if not found.ok:
        entry = (
            f"entry {found.first_broken} of the audit log does not match what was written: "
            if found.first_broken
            else ""
        )
        raise SpecError(
            f"{entry}{found.problem}", code="log-broken", hint="compare with the last backup", entry=found.first_broken
        )
    entries = f"{found.entries:,} {'entry' if found.entries == 1 else 'entries'}"
    console.say(f"{entries}, all intact. Last entry: {found.end.number} {found.end.hash}")
    console.result({"command": "check-log", "entries": found.entries, "end": found.end.hash})


@admin.command(name="back-up")
@command
@request_options(ServiceOptions)
def back_up(
    console: Console,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="new folder for the backup")],
    *,
    options: ServiceOptions,
) -> None:
    """Back up database and projects to a new folder while the service runs. The master key is not included.

    A PostgreSQL database is not included either: run `pg_dump` first.
    """
    from safeswap.service.keeping.backup import back_up as copy_service

    copied = copy_service(options.read(), folder)
    console.say(f"Copied {plural(copied['files'], 'file')} to {folder}.")
    if not copied["database"]:
        console.warn("The PostgreSQL database is not in the backup: it must have been saved with pg_dump before.")
    console.result({"command": "back-up", **copied})


@admin.command()
@command
@request_options(ServiceOptions)
def restore(
    console: Console,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder written by `safeswap admin back-up`")],
    *,
    options: ServiceOptions,
) -> None:
    """Restore the store of a service from a backup. An existing store is never overwritten."""
    from safeswap.service.keeping.backup import restore as copy_back

    files = copy_back(options.read(), folder)
    console.say(f"Restored {plural(files, 'file')}. The service needs the master key that it was created with.")
    console.result({"command": "restore", "files": files})


@contextmanager
def _service(settings: Settings) -> Iterator[Service]:
    from safeswap.service.state import open_service

    service = open_service(settings)
    try:
        yield service
    finally:
        service.close()


def _ask_password() -> str:
    import sys
    from getpass import getpass

    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first, second = getpass("Password: "), getpass("Repeat password: ")
    if first != second:
        raise SpecError("the passwords do not match", code="passwords-differ")
    return first
