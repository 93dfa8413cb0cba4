"""``safeswap workbench``."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeswap.cli.console import Console
from safeswap.cli.options import command
from safeswap.errors import InputError

if TYPE_CHECKING:
    from safeswap.service.settings import Settings


@command
def workbench(
    console: Console,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="the file to work on; more can be added")] = None,
    *,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="keep the projects here; without: all is erased at the end")
    ] = None,
    port: Annotated[int, typer.Option(metavar="N", help="a free one unless stated")] = 0,
    identifier: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="the column that identifies a record")
    ] = None,
    browser: Annotated[bool, typer.Option(help="open the browser")] = True,
) -> None:
    """Open a file in the browser, on this machine, for yourself.

    No account, no network: the program listens on loopback, and only the address that it prints lets somebody in.
    Ctrl-C ends it.
    """
    from safeswap.service.running import require_extra

    require_extra()
    if file is not None and not file.is_file():
        raise InputError(f"there is no file {file.name}", code="missing-file", hint="check the name", file=str(file))
    token = secrets.token_urlsafe(32)
    with _place(store, port) as settings:
        _run(console, settings, token, file, identifier=identifier, browser=browser)


def _run(
    console: Console, settings: Settings, token: str, file: Path | None, *, identifier: str | None, browser: bool
) -> None:
    from safeswap.service.app import create_app
    from safeswap.service.running import serve
    from safeswap.workbench import add_workbench

    app = create_app(settings, start_token=token)
    add_workbench(app)

    def ready(address: str) -> None:
        project = _give(address, token, file, identifier) if file is not None else None
        # Behind the number sign: browsers send nothing of it to the server, so it stands in no log.
        where = f"{address}/open#token={token}" + (f"&project={project}" if project else "")
        console.say(f"The workbench is open at {where}")
        console.say("Ctrl-C ends it." if settings.single_user else "")
        console.result({"command": "workbench", "address": where})
        if browser:
            import webbrowser

            webbrowser.open(where)

    serve(settings, app, ready=ready)


def _give(address: str, token: str, file: Path, identifier: str | None) -> str:
    """Make a project of the file, over the same interface that the pages use."""
    from safeswap.service.client import Client

    with Client(address, start_token=token) as client:
        project = client.make_project(file.name)
        client.send_data(project.id, file, identifier=identifier)
        return project.id


@contextmanager
def _place(store: Path | None, port: int) -> Iterator[Settings]:
    from safeswap.service.erase import erase
    from safeswap.service.settings import Settings
    from safeswap.service.vault import make_master_key

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
            port=port,
            single_user=True,
            workers=max(1, min(2, (os.cpu_count() or 2) - 1)),
            log_format="text",
        )
    finally:
        if store is None:
            erase(folder)
