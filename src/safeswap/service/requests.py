"""One line in the log for every request, and an answer even to what nobody foresaw.

The line tells the route, not the address: an address may hold what somebody typed. Of an unforeseen error it tells the
kind and the place in the program, not the message: a message may hold a value.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safeswap.service.logs import event
from safeswap.service.metrics import METRICS
from safeswap.service.problems import unforeseen

_METHODS = {name: name for name in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")}


class RequestLog:
    """Logs and counts what was asked and how it was answered."""

    def __init__(self, app: ASGIApp, *, paths: Mapping[Any, str | None]) -> None:
        self.app = app
        self.paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on; note the answer; answer what was not foreseen."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception as error:  # noqa: BLE001  (the last resort: it is logged, and answered without its words)
            incident, response = unforeseen()
            event("incident", incident=incident, error=type(error).__name__, place=_place(error))
            if status == 0:
                await response(scope, receive, noted)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = self.paths.get(scope.get("endpoint")) or "none"
        told: dict[str, Any] = {"route": route, "method": _METHODS.get(scope["method"], "other"), "status": status}
        event("request", **told, ms=round(seconds * 1000, 1), user_id=scope.get("user_id", ""))
        METRICS.count("safeswap_requests_total", **told)
        METRICS.observe("safeswap_request_seconds", seconds, route=route)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "safeswap" in frame.filename] or list(frames)
    return f"{ours[-1].filename.rsplit('/', 1)[-1]}:{ours[-1].lineno}" if ours else ""
