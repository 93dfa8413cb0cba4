"""``safeswap workbench``."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeswap.cli.console import Console
from safeswap.cli.options import command
from safeswap.errors import InputError

if TYPE_CHECKING:
    from safeswap.service.settings import Settings

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
    from safeswap.service.keeping.erase import erase
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
