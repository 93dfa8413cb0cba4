"""Run a service: the server in this process, with its workers as child processes."""

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
from safeswap.service.work.rehearsal import rehearse_beside

if TYPE_CHECKING:
    from fastapi import FastAPI

_SLOWEST_RESTART = 30.0  # maximum backoff in seconds for a worker that keeps dying
_M_ARENA_MAX = -8
_SWITCH = 0.001  # thread switch interval in seconds: Python's default of 5 ms adds up under load
_GRACE = 15.0  # seconds for a worker to stop


def serve(settings: Settings, app: FastAPI, *, ready: Callable[[str], None] | None = None) -> None:
    """Serve requests until a signal; ``ready`` is called with the address once connections are accepted."""
    import uvicorn

    logs.configure(settings)
    _limit_arenas()
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
    with run_workers(settings, server_is_up=lambda: server.started), rehearse_beside(lambda: server.started):
        if ready is not None:
            threading.Thread(target=_announce, args=(server, ready, address), daemon=True).start()
        server.run(sockets=[listening])


def address_of(settings: Settings, port: int) -> str:
    """Return the URL of the service.

    >>> address_of(Settings(store="/srv/s", master_key_file="/etc/k"), 8765)
    'http://127.0.0.1:8765'
    """
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.tls_certificate else 'http'}://{host}:{port}"


@contextmanager
def run_workers(settings: Settings, *, server_is_up: Callable[[], bool]) -> Iterator[None]:
    """Run the workers as child processes; restart one that dies, and stop all at the end."""
    if settings.workers == 0:
        yield
        return
    path = _write_settings(settings)
    stopping = threading.Event()
    keepers = [
        threading.Thread(target=_supervise, args=(path, stopping, server_is_up), daemon=True)
        for _ in range(settings.workers)
    ]
    for keeper in keepers:
        keeper.start()
    try:
        yield
    finally:
        stopping.set()
        for keeper in keepers:
            keeper.join(_GRACE + 5)
        path.unlink(missing_ok=True)


def _supervise(path: Path, stopping: threading.Event, server_is_up: Callable[[], bool]) -> None:
    while not server_is_up() and not stopping.wait(0.05):
        pass  # the server migrates the database first
    pause = 1.0
    while not stopping.is_set():
        began = time.monotonic()
        # Unlike a worker started by an administrator, this one ends with the server.
        worker = subprocess.Popen(
            [sys.executable, "-m", "safeswap.service.work.worker", str(path)],
            env={**os.environ, "SAFESWAP_WORKER_OF": str(os.getpid())},
            start_new_session=True,
        )
        while worker.poll() is None and not stopping.wait(0.2):
            pass
        if stopping.is_set():
            _stop(worker)
            return
        logs.event("worker-gone", code=worker.returncode)
        pause = 1.0 if time.monotonic() - began > 60 else min(2 * pause, _SLOWEST_RESTART)
        stopping.wait(pause)


def _stop(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    try:
        worker.wait(_GRACE)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


def _write_settings(settings: Settings) -> Path:
    """Write the settings for the workers to a private file."""
    import tomli_w

    settings.store.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_stale(settings.store)
    path = settings.store / f"workers-{os.getpid()}.toml"
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True)))
    return path


def _remove_stale(store: Path) -> None:
    """Remove the settings of killed servers: they may hold the database password."""
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
    # Explicitly TCP: only then does asyncio set TCP_NODELAY, without which responses wait 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise OutputError(
            f"port {settings.port} cannot be used: {error.strerror}",
            code="port-in-use",
            hint="stop the program that uses it, or choose another with --port",
            port=settings.port,
        ) from None
    return listening


def _limit_arenas() -> None:
    """Limit malloc arenas: glibc would give each thread its own, which never shrinks."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def _announce(server: object, ready: Callable[[str], None], address: str) -> None:
    while not getattr(server, "started", False):
        if getattr(server, "should_exit", False):
            return
        time.sleep(0.02)
    ready(address)


def require_extra() -> None:
    """Raise a clear error if the packages of the service are not installed."""
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
