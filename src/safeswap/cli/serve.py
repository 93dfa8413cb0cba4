"""``safeswap serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from safeswap.cli.console import Console
from safeswap.cli.options import command

SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", metavar="TOML", help="settings file of the service; see the documentation"),
]
StoreFolder = Annotated[Path | None, typer.Option("--store", metavar="DIR", help="directory for the projects")]
MasterKey = Annotated[
    Path | None,
    typer.Option(
        "--master-key", metavar="FILE", help="key that protects confidential records; keep it outside the store"
    ),
]


@command
def serve(
    console: Console,
    settings: SettingsFile = None,
    store: StoreFolder = None,
    master_key: MasterKey = None,
    *,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="address to listen on; loopback if omitted")
    ] = None,
    port: Annotated[int | None, typer.Option(metavar="N", help="port; 8765 if omitted")] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="number of worker processes")] = None,
) -> None:
    """Run the service for a team: projects, jobs and the workbench.

    Run `safeswap admin init` once before. Any address other than loopback requires a TLS certificate in the settings,
    or a trusted proxy in front. Press Ctrl-C to stop; running jobs continue when the service is started again.
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
