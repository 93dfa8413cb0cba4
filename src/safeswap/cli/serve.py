"""``safeswap serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from safeswap.cli.console import Console
from safeswap.cli.options import command

SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", metavar="TOML", help="settings of the service; see the page on administration"),
]
StoreFolder = Annotated[Path | None, typer.Option("--store", metavar="DIR", help="where projects are kept")]
MasterKey = Annotated[
    Path | None,
    typer.Option("--master-key", metavar="FILE", help="the key to confidential records; outside the store"),
]


@command
def serve(
    console: Console,
    settings: SettingsFile = None,
    store: StoreFolder = None,
    master_key: MasterKey = None,
    *,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="loopback unless stated otherwise")] = None,
    port: Annotated[int | None, typer.Option(metavar="N", help="8765 unless stated otherwise")] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="worker processes beside the server")] = None,
) -> None:
    """Run the service: projects, jobs and the workbench for a team.

    Made ready once by `safeswap admin init`. On another address than loopback it needs a TLS certificate in its
    settings, or a trusted proxy in front of it. Ctrl-C ends it; jobs that run go on when it is started again.
    """
    from safeswap.service.work.running import require_extra

    require_extra()
    from safeswap.service.app import create_app
    from safeswap.service.keeping.database import check_file, open_database
    from safeswap.service.keeping.vault import open_vault
    from safeswap.service.settings import read_settings
    from safeswap.service.work.running import serve as run
    from safeswap.workbench import add_workbench

    stated = read_settings(settings, store=store, master_key_file=master_key, host=host, port=port, workers=workers)
    # What is missing or damaged is said here, in plain words, and not by a server that does not start.
    open_vault(stated)
    stated.store.mkdir(mode=0o700, exist_ok=True)
    if not stated.database_url:
        database = open_database(stated.database)
        check_file(database)
        database.close()
    app = create_app(stated)
    add_workbench(app)
    run(stated, app, ready=lambda address: _tell(console, address, api_pages=stated.shows_api_pages))


def _tell(console: Console, address: str, *, api_pages: bool) -> None:
    docs = f", the interface for programs at {address}/api/docs" if api_pages else ""
    console.say(f"The workbench is at {address}{docs}. Ctrl-C ends it.")
    console.result({"command": "serve", "address": address})
