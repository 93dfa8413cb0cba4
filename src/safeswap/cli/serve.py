"""``safeswap serve``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safeswap.cli.console import Console
from safeswap.cli.options import command, option, request_options

if TYPE_CHECKING:
    from safeswap.service.settings import Settings


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Where a service has its settings, its projects and its key."""

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
