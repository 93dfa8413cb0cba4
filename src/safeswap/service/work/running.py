"""A service that runs: the server in this process, workers in processes beside it, ended together."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from safeswap.errors import EngineError, OutputError
from safeswap.service.http import logs
from safeswap.service.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

_SLOWEST_RESTART = 30.0  # seconds before a worker that keeps dying is started again
_M_ARENA_MAX = -8
_SWITCH = 0.001  # seconds that a long answer may keep a short one from being written; Python's own five add up
_PATIENCE = 15.0  # seconds for a worker to put down what it holds


def serve(settings: Settings, app: FastAPI, *, ready: Callable[[str], None] | None = None) -> None:
    """Answer requests until a signal comes; ``ready`` is told the address as soon as somebody can connect."""
    import uvicorn

    logs.configure(settings)
    _few_arenas()
    sys.setswitchinterval(_SWITCH)
    listening = _listen(settings)
    address = address_of(settings, listening.getsockname()[1])
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
    server = uvicorn.Server(config)
    with workers_beside(settings, server_is_up=lambda: server.started):
        if ready is not None:
            threading.Thread(target=_tell_when_up, args=(server, ready, address), daemon=True).start()
        server.run(sockets=[listening])


def address_of(settings: Settings, port: int) -> str:
    """Where a browser finds the service.

    >>> address_of(Settings(store="/srv/s", master_key_file="/etc/k"), 8765)
    'http://127.0.0.1:8765'
    """
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.tls_certificate else 'http'}://{host}:{port}"


@contextmanager
def workers_beside(settings: Settings, *, server_is_up: Callable[[], bool]) -> Iterator[None]:
    """Workers as processes of their own; one that dies is started again, all end with this process."""
    if settings.workers == 0:
        yield
        return
    path = _settings_file(settings)
    stopping = threading.Event()
    keepers = [
        threading.Thread(target=_keep_one, args=(path, stopping, server_is_up), daemon=True)
        for _ in range(settings.workers)
    ]
    for keeper in keepers:
        keeper.start()
    try:
        yield
    finally:
        stopping.set()
        for keeper in keepers:
            keeper.join(_PATIENCE + 5)
        path.unlink(missing_ok=True)


def _keep_one(path: Path, stopping: threading.Event, server_is_up: Callable[[], bool]) -> None:
    while not server_is_up() and not stopping.wait(0.05):
        pass  # the server brings the database up to date before anybody works on it
    pause = 1.0
    while not stopping.is_set():
        began = time.monotonic()
        # Told apart from one that an administrator starts by hand: this one ends when the server is gone.
        worker = subprocess.Popen(
            [sys.executable, "-m", "safeswap.service.work.worker", str(path)],
            env={**os.environ, "SAFESWAP_WORKER_OF": str(os.getpid())},
            start_new_session=True,
        )
        while worker.poll() is None and not stopping.wait(0.2):
            pass
        if stopping.is_set():
            _end(worker)
            return
        logs.event("worker-gone", code=worker.returncode)
        pause = 1.0 if time.monotonic() - began > 60 else min(2 * pause, _SLOWEST_RESTART)
        stopping.wait(pause)


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    try:
        worker.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


def _settings_file(settings: Settings) -> Path:
    """The settings as the workers are to have them, for nobody else to read."""
    import tomli_w

    settings.store.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sweep(settings.store)
    path = settings.store / f"workers-{os.getpid()}.toml"
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True)))
    return path


def _sweep(store: Path) -> None:
    """Remove the settings of servers that were killed: they may hold the password of the database."""
    for left in store.glob("workers-*.toml"):
        number = left.stem.removeprefix("workers-")
        if number.isdigit() and not _is_running(int(number)):
            left.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Named as TCP: asyncio switches off the delay of small packets only where it is, and answers wait 40 ms otherwise.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise OutputError(
            f"port {settings.port} cannot be used: {error.strerror}",
            code="port-in-use",
            hint="stop what listens there, or choose another with --port",
            port=settings.port,
        ) from None
    return listening


def _few_arenas() -> None:
    """One pool of memory for a few threads: glibc would give each thread its own, and they never shrink."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def _tell_when_up(server: object, ready: Callable[[str], None], address: str) -> None:
    while not getattr(server, "started", False):
        if getattr(server, "should_exit", False):
            return
        time.sleep(0.02)
    ready(address)


def require_extra() -> None:
    """Refuse in plain words where the packages of the service are not installed."""
    try:
        import alembic  # noqa: F401
        import argon2  # noqa: F401
        import fastapi  # noqa: F401
        import sqlalchemy  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise EngineError(
            "the service is not installed",
            code="extra-missing",
            hint="pip install 'safeswap[service]'",
            package=error.name or "",
        ) from None
