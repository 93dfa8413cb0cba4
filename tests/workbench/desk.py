"""A workbench that really runs: a server on a free port of loopback, a worker beside it, people with browsers."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import uvicorn
from playwright.sync_api import Browser, Locator, Page
from tests.chromium import PATIENCE
from tests.service.installed import database_of, settings_in
from tests.service.serving import PASSWORD, listen, password_hash

from safeswap.service.app import API, create_app
from safeswap.service.client import Client
from safeswap.service.keeping.vault import open_vault
from safeswap.service.people import accounts
from safeswap.service.people.sessions import StartTokens
from safeswap.service.settings import Settings
from safeswap.service.work.running import run_workers
from safeswap.workbench import add_workbench

Application = Callable[[Any, Any, Any], Awaitable[None]]
PEOPLE = {"ana": "analyst", "olga": "officer", "vera": "viewer"}


@dataclass
class Seen:
    """A page, everything it asked for and everything it complained of."""

    page: Page
    address: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def go(self, path: str) -> Page:
        """Open an address of the workbench and wait until it is ready."""
        self.page.goto(self.address + path)
        return self.ready()

    def ready(self) -> Page:
        """Wait until the page has shown what it has to show."""
        self.page.wait_for_selector("html[data-ready]")
        return self.page

    def leave(self) -> None:
        """Say that what is done next leads to another page, or loads this one again: ``ready`` waits for that one."""
        self.page.evaluate("document.documentElement.removeAttribute('data-ready')")

    def part(self, name: str) -> Locator:
        """A part of the chart."""
        return self.page.locator(f'[data-part="{name}"]')

    def outside(self) -> list[str]:
        """Requests that left the service."""
        own = urlsplit(self.address).netloc
        return [
            url
            for url in self.requests
            if urlsplit(url).scheme in ("http", "https", "ws", "wss") and urlsplit(url).netloc != own
        ]

    def worries(self) -> list[str]:
        """What the console said, but for what the test expects."""
        return [text for text in self.complaints if not any(part in text for part in self.expected)]


@dataclass
class Desk:
    """One installation: it can be stopped and started again at the same address."""

    folder: Path
    settings: Settings
    address: str = ""
    tokens: StartTokens = field(default_factory=StartTokens)
    _running: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        """Server and worker."""
        listener = listen(self.settings.port)
        port = listener.getsockname()[1]
        self.settings = self.settings.model_copy(update={"port": port})
        self.address = f"http://127.0.0.1:{port}"
        app = create_app(self.settings, start_tokens=self.tokens)
        add_workbench(app)
        shake = os.environ.get("SAFESWAP_SHAKE")
        config = uvicorn.Config(
            _late(app, random.Random(shake)) if shake else app,
            lifespan="on",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            thread.join(0.01)
            if not thread.is_alive():
                raise RuntimeError("the service did not start")

        def stop() -> None:
            server.should_exit = True
            thread.join(15.0)
            listener.close()

        self._running.callback(stop)
        self._running.enter_context(run_workers(self.settings, server_is_up=lambda: server.started))

    def stop(self) -> None:
        """Server and worker end; what they had under way stays in the store."""
        self._running.close()
        self._running = ExitStack()

    def client(self, name: str = "") -> Client:
        """A program that speaks to the service as somebody."""
        if self.settings.single_user:
            return Client(self.address, start_token=self.tokens.issue())
        return Client(self.address, name=name, password=PASSWORD)

    def project(self, file: Path, *, who: str = "ana", members: tuple[str, ...] = (), **options: Any) -> str:
        """A project with a file that has been read; its id."""
        with self.client(who) as client:
            project = self.new_project(client, file.stem)
            for name in members:
                client._send("PUT", f"/projects/{project}/members/{name}")
            client.wait(client.send_data(project, file, **options))
            return project

    def new_project(self, client: Client, name: str) -> str:
        """An empty project; its id. Its key is drawn in this process, where keys are the same in every run."""
        project = client.make_project(name).id
        open_vault(self.settings).project_key(project)
        return project

    @contextmanager
    def seen(
        self, browser: Browser, *, who: str = "ana", dark: bool = False, width: int = 1280, height: int = 900
    ) -> Iterator[Seen]:
        """A browser of somebody's own who is let in; at the end, no request has left and nothing was complained of."""
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            accept_downloads=True,
        )
        context.set_default_timeout(PATIENCE)
        seen = Seen(context.new_page(), self.address)
        context.on("request", lambda request: seen.requests.append(request.url))
        context.on("weberror", lambda error: seen.complaints.append(str(error.error)))
        # What the graphics driver of a machine without a graphics card says of its speed is no complaint of the page.
        context.on(
            "console",
            lambda message: (
                None
                if "GL Driver Message" in message.text or message.type not in ("error", "warning")
                else seen.complaints.append(message.text)
            ),
        )
        try:
            if who:
                context.add_cookies([{"name": self.settings.cookie, "value": self.session(who), "url": self.address}])
            yield seen
            assert seen.outside() == []
            assert seen.worries() == [], seen.worries()
        finally:
            context.close()

    def session(self, who: str) -> str:
        """The secret of a new session of somebody, as her browser keeps it."""
        stated = (
            {"start_token": self.tokens.issue()} if self.settings.single_user else {"name": who, "password": PASSWORD}
        )
        with httpx.Client(base_url=self.address + API, timeout=PATIENCE) as client:
            client.post("/session", json=stated).raise_for_status()
            return client.cookies[self.settings.cookie]


@contextmanager
def desk_in(folder: Path, *, single_user: bool, **given: Any) -> Iterator[Desk]:
    """A workbench in a folder; for one person, or with ana (analyst), olga (officer) and vera (viewer)."""
    settings = settings_in(folder, single_user=single_user, port=0, workers=1, **given)
    database = database_of(settings)
    if not single_user:
        with database.write() as connection:
            for name, role in PEOPLE.items():
                accounts.add_user(connection, name=name, role=role, password_hash=password_hash())
    database.close()
    desk = Desk(folder, settings)
    desk.start()
    try:
        yield desk
    finally:
        desk.stop()


def _late(app: Application, drawn: random.Random) -> Application:
    """Let questions and answers take their time, so that a page meets them in other orders than on a quick machine."""

    async def late(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith(API):
            await asyncio.sleep(drawn.choice([0.0, 0.05, 0.3]))
            await app(scope, receive, lambda message: _sent(message, send))
        else:
            await app(scope, receive, send)

    async def _sent(message: Any, send: Any) -> None:
        if message["type"] == "http.response.start":
            await asyncio.sleep(drawn.choice([0.0, 0.05, 0.5]))
        await send(message)

    return late
