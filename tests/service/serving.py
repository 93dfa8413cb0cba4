"""A service that really listens: uvicorn in a thread on a free port of loopback, spoken to by httpx."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from sqlalchemy import insert, select
from tests.service.installed import database_of, settings_in

from safeswap.service.app import create_app
from safeswap.service.keeping.database import new_id, now
from safeswap.service.keeping.tables import members, projects, users
from safeswap.service.people import accounts, sessions
from safeswap.service.people import sessions as tokens
from safeswap.service.people.sessions import StartTokens
from safeswap.service.settings import Settings
from safeswap.service.state import Service

PATIENCE = 300.0
"""Seconds that a client waits for an answer: a machine may be busy with other things, and no test is about that."""

PASSWORD = "three blind mice run"
ROLES = {
    "vera": "viewer",
    "ana": "analyst",
    "olga": "officer",
    "otto": "officer",
    "adam": "admin",
    "oscar": "officer",  # belongs to no project of the others
}


@cache
def password_hash() -> str:
    """Hashed once: hashing is slow on purpose."""
    return accounts.hash_password(PASSWORD)


@dataclass(frozen=True)
class Running:
    """A service that listens, and the people who use it."""

    service: Service
    address: str
    opened: list[httpx.Client] = field(default_factory=list)

    def client(self, name: str | None = None, **given: Any) -> httpx.Client:
        """Somebody with a session of her own, opened without the slow log-in; or nobody."""
        client = self._open(**given)
        if name is not None:
            with self.service.database.write() as connection:
                user = connection.execute(select(users).where(users.c.name == name)).one()
                new = sessions.open_session(connection, self.service.settings, user.id)
            client.cookies.set(self.service.settings.cookie, new.secret, domain="127.0.0.1")
            client.headers["X-CSRF-Token"] = new.csrf_token
        return client

    def token_client(self, name: str, *scopes: str) -> httpx.Client:
        """A program with a token of somebody."""
        with self.service.database.write() as connection:
            user = connection.execute(select(users).where(users.c.name == name)).one()
            _, secret = tokens.make_token(connection, user_id=user.id, name="test", scopes=scopes, days=1)
        return self._open(headers={"Authorization": f"Bearer {secret}"})

    def _open(self, **given: Any) -> httpx.Client:
        self.opened.append(httpx.Client(base_url=self.address, timeout=PATIENCE, verify=False, **given))
        return self.opened[-1]

    def user_id(self, name: str) -> str:
        """Of a person."""
        with self.service.database.read() as connection:
            return str(connection.execute(select(users.c.id).where(users.c.name == name)).scalar_one())

    def add_person(self, name: str, role: str) -> str:
        """Somebody new, with the password that everybody has here."""
        with self.service.database.write() as connection:
            return accounts.add_user(connection, name=name, role=role, password_hash=password_hash())

    def add_project(self, *people: str, owner: str = "ana", **given: Any) -> str:
        """A project of some people."""
        row = {"id": new_id(), "name": "survey", "created_by": self.user_id(owner), "created_at": now()}
        with self.service.database.write() as connection:
            connection.execute(insert(projects).values(row | {"used_at": now()} | given))
            for name in people:
                values = {"project_id": row["id"], "user_id": self.user_id(name), "added_at": now()}
                connection.execute(insert(members).values(values))
        self.service.store.project(str(row["id"]))
        return str(row["id"])


@contextmanager
def running(
    folder: Path,
    *,
    change: Callable[[FastAPI], None] | None = None,
    start_tokens: StartTokens | None = None,
    people: bool = True,
    **given: Any,
) -> Iterator[Running]:
    """A service in a folder, with the people above unless it is for one user."""
    settings = settings_in(folder, **given)
    database_of(settings).close()
    app = create_app(settings, start_tokens=start_tokens)
    if change is not None:
        change(app)
    with listening(app) as address:
        here = Running(app.state.service, address)
        if people and not settings.single_user:
            for name, role in ROLES.items():
                here.add_person(name, role)
        try:
            yield here
        finally:
            for client in here.opened:
                client.close()


def listen(port: int = 0) -> socket.socket:
    """A socket on loopback, named as TCP as the service names its own: otherwise every answer waits 40 ms."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    """Serve an application on a free port of loopback; its address."""
    listener = listen()
    config = uvicorn.Config(
        app, lifespan="on", ws="none", log_config=None, access_log=False, timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        if not thread.is_alive():
            listener.close()
            raise RuntimeError("the service did not start")
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10.0)
        listener.close()


def settings_of(folder: Path, **given: Any) -> Settings:
    """Settings for an application that does not listen."""
    return settings_in(folder, **given)
