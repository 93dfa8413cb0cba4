"""``safeswap serve``, ``workbench``, and ``admin`` on the machine that runs the service."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console
from safeswap.cli.options import command, make_group, option, request_options
from safeswap.errors import InputError, SpecError
from safeswap.model.text import plural

if TYPE_CHECKING:
    from safeswap.service.settings import Settings
    from safeswap.service.state import Service


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """The places of a service's settings, projects and key."""

    settings: Path | None = option("settings file of the service; see the documentation", metavar="TOML")
    store: Path | None = option("directory for the projects", metavar="DIR")
    master_key: Path | None = option(
        "key that protects confidential records; keep it outside the store", metavar="FILE"
    )

    def read(self, **more: Any) -> Settings:
        """Return the settings, which other options may override."""
        from safeswap.service.work.running import require_extra

        require_extra()
        from safeswap.service.settings import read_settings

        return read_settings(self.settings, store=self.store, master_key_file=self.master_key, **more)


@dataclass(frozen=True, kw_only=True)
class ServeOptions(ServiceOptions):
    """Also where it listens, and the number of its workers."""

    host: str | None = option("address to listen on; loopback if omitted", metavar="ADDRESS")
    port: int | None = option("port; 8765 if omitted", metavar="N")
    workers: int | None = option("number of worker processes", metavar="N")


@command
@request_options(ServeOptions)
def serve(console: Console, *, options: ServeOptions) -> None:
    """Run the service for a team: projects, jobs and the workbench.

    Run `safeswap admin init` once before. Any address other than loopback requires a TLS certificate in the settings,
    or a trusted proxy in front. Press Ctrl-C to stop; running jobs continue when the service is started again.
    """
    stated = options.read(host=options.host, port=options.port, workers=options.workers)
    from safeswap.service.app import create_app
    from safeswap.service.keeping.database import check_file, open_database
    from safeswap.service.keeping.vault import open_vault
    from safeswap.service.work.running import serve as run
    from safeswap.workbench import add_workbench

    # Report what is missing or damaged now, in plain words, rather than as a server that fails to start.
    open_vault(stated)
    stated.store.mkdir(mode=0o700, exist_ok=True)
    if not stated.database_url:
        database = open_database(stated.database)
        check_file(database)
        database.close()
    app = create_app(stated)
    add_workbench(app)
    run(stated, app, ready=lambda address: _announce(console, address, api_pages=stated.shows_api_pages))


def _announce(console: Console, address: str, *, api_pages: bool) -> None:
    docs = f", the API documentation at {address}/api/docs" if api_pages else ""
    console.say(f"The workbench is at {address}{docs}. Press Ctrl-C to stop.")
    console.result({"command": "serve", "address": address})


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
    """Show the agency's policy on attacks, or replace it with one from a file."""
    from safeswap.attacks.run import read_policy
    from safeswap.service.routes.settings import policy_in_force, store_policy

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
    from safeswap.service.keeping.migrate import back_up as copy_service

    copied = copy_service(options.read(), folder)
    console.say(f"Copied {plural(copied['files'], 'file')} to {folder}.")
    if not copied["database"]:
        console.warn("The PostgreSQL database is not in the backup: save it with pg_dump, before this backup.")
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
    from safeswap.service.keeping.migrate import restore as copy_back

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
    from getpass import getpass

    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first, second = getpass("Password: "), getpass("Repeat password: ")
    if first != second:
        raise SpecError("the passwords do not match", code="passwords-differ")
    return first


_PAGE_SECONDS = 60.0  # the page that opens the browser is deleted when its token expires


@command
def workbench(
    console: Console,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="file to work on; more can be added")] = None,
    *,
    store: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="directory for the projects; if omitted, everything is erased on exit"),
    ] = None,
    port: Annotated[int, typer.Option(metavar="N", help="port; a free one if omitted")] = 0,
    identifier: Annotated[str | None, typer.Option(metavar="COLUMN", help="column that identifies a record")] = None,
    browser: Annotated[bool, typer.Option(help="open a browser")] = True,
) -> None:
    """Open the workbench in a browser on this machine, for one person.

    Needs no account and no network. It listens on the loopback interface and admits a single browser, through the
    address that it prints; the address works once, within a minute. Press Enter for a new address, Ctrl-C to stop.
    """
    from safeswap.service.work.running import require_extra

    require_extra()
    if file is not None and not file.is_file():
        raise InputError(f"there is no file {file.name}", code="missing-file", hint="check the name", file=str(file))
    with _open_store(store, port) as settings:
        _run(console, settings, file, identifier=identifier, browser=browser)


def _run(console: Console, settings: Settings, file: Path | None, *, identifier: str | None, browser: bool) -> None:
    from safeswap.service.app import create_app
    from safeswap.service.people.sessions import StartTokens
    from safeswap.service.work.running import serve
    from safeswap.workbench import add_workbench

    tokens = StartTokens()
    app = create_app(settings, start_tokens=tokens)
    add_workbench(app)

    def ready(address: str) -> None:
        project = _make_project(address, tokens.issue(), file, identifier) if file is not None else None

        def link() -> str:
            # In the fragment, which browsers do not send to the server: the token appears in no log.
            return f"{address}/open#token={tokens.issue()}" + (f"&project={project}" if project else "")

        where = link()
        console.say(f"The workbench is open at {where} (for one browser, within a minute).")
        console.say("Press Enter for a new address, Ctrl-C to stop.")
        console.result({"command": "workbench", "address": where})
        if browser:
            open_privately(link(), settings.store)
        while _wait_for_enter():
            console.say(link())

    with suppress(ValueError, AttributeError):  # reading the terminal in the background must not stop us
        signal.signal(signal.SIGTTIN, signal.SIG_IGN)
    serve(settings, app, ready=ready)


def _wait_for_enter() -> bool:
    """Wait for a line of input; return False if there is no input."""
    try:
        # Not sys.stdin: a waiting thread would hold its lock when the program ends.
        return bool(os.read(0, 4096))
    except OSError:
        return False


def open_privately(where: str, folder: Path) -> Path:
    """Open an address in the browser through a file that only its owner can read; return the file.

    The command line of the browser would be visible to everyone on the machine.
    """
    import webbrowser
    from html import escape

    page = folder / "open.html"
    page.unlink(missing_ok=True)
    descriptor = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(where)}">')
    forget = threading.Timer(_PAGE_SECONDS, page.unlink, kwargs={"missing_ok": True})
    forget.daemon = True
    forget.start()
    webbrowser.open(page.as_uri())
    return page


def _make_project(address: str, token: str, file: Path, identifier: str | None) -> str:
    """Make a project from the file, through the API that the pages use."""
    from safeswap.service.client import Client

    with Client(address, start_token=token) as client:
        project = client.make_project(file.name)
        client.send_data(project.id, file, identifier=identifier)
        return project.id


def _pick_address() -> str:
    """Return a loopback address for this run if there are several: browsers send cookies to all ports of a host."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return "127." + ".".join(str(1 + secrets.randbelow(254)) for _ in range(3))


@contextmanager
def _open_store(store: Path | None, port: int) -> Iterator[Settings]:
    from safeswap.releases.ledger import configured_ledger
    from safeswap.service.keeping.store import erase
    from safeswap.service.keeping.vault import make_master_key
    from safeswap.service.settings import Settings

    ledger = configured_ledger()
    folder = Path(tempfile.mkdtemp(prefix="safeswap-")) if store is None else store.absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    key = folder / "master.key"
    if not key.exists():
        make_master_key(key)
    try:
        yield Settings(
            store=folder / "store",
            master_key_file=key,
            host="127.0.0.1" if port else _pick_address(),
            port=port,
            single_user=True,
            agency_ledger=ledger.path,
            agency_ledger_key=ledger.key_path,
            workers=max(1, min(2, (os.cpu_count() or 2) - 1)),
            log_format="text",
        )
    finally:
        if store is None:
            erase(folder)
