"""Every error that a request meets, turned into a problem document that repeats nothing of what was sent."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safeswap.errors import SafeswapError
from safeswap.service.http.logs import event
from safeswap.service.http.metrics import METRICS
from safeswap.service.http.problems import (
    Problem,
    Unavailable,
    Unprocessable,
    problem_response,
    refusal_response,
    unforeseen,
)

# One line in the log for every request, and an answer even to what nobody foresaw.
#
# The line tells the route, not the address: an address may hold what somebody typed. Of an unforeseen error it tells
# the kind and the place in the program, not the message: a message may hold a value.

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


def install(app: FastAPI) -> None:
    """Let the application answer every error with a problem document."""
    app.add_exception_handler(SafeswapError, _of_ours)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(DataError, _of_values)
    for kind in (OperationalError, InterfaceError):
        app.add_exception_handler(kind, _of_database)


async def _of_ours(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SafeswapError)  # noqa: S101  (registered for nothing else)
    return refusal_response(error)


async def _of_values(_request: Request, _error: Exception) -> Response:
    """PostgreSQL takes no NUL in a text and no number beyond its column."""
    return refusal_response(Unprocessable("a value in the request is none that could be kept", code="bad-value"))


async def _of_database(_request: Request, _error: Exception) -> Response:
    refused = Unavailable("the database does not answer", hint="try again in a moment")
    refused.headers = {"Retry-After": "2"}
    return refusal_response(refused)


async def _of_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  (registered for nothing else)
    status = HTTPStatus(error.status_code)
    code = {404: "not-found", 405: "method-not-allowed", 413: "too-large", 400: "bad-request"}.get(
        status, status.name.lower().replace("_", "-")
    )
    problem = Problem(
        type=f"urn:safeswap:problem:{code}",
        title=status.phrase,
        status=status,
        detail=status.description or status.phrase,
        code=code,
    )
    return problem_response(problem, headers=error.headers)


async def _of_validation(_request: Request, error: Exception) -> Response:
    """Where the request is wrong and why, without what was sent: it may hold what must not be repeated."""
    assert isinstance(error, RequestValidationError)  # noqa: S101  (registered for nothing else)
    found = [{"where": _where(each), "problem": _reason(each)} for each in error.errors()[:20]]
    first = found[0] if found else {"where": "body", "problem": "not understood"}
    problem = Problem(
        type="urn:safeswap:problem:bad-request-body",
        title=HTTPStatus.UNPROCESSABLE_ENTITY.phrase,
        status=422,
        detail=f"the request cannot be used: {first['where']}: {first['problem']}",
        code="bad-request-body",
        hint="see /api/docs",
        fields={"errors": found},
    )
    return problem_response(problem)


def _where(error: Mapping[str, Any]) -> str:
    """The place, as far as it is made of names that we gave; a key that was sent may be anything."""
    parts = list(error["loc"])
    if error.get("type") in {"extra_forbidden", "invalid_key"} and parts:
        parts[-1] = "…"
    known = [str(part) if isinstance(part, int) or str(part).isidentifier() else "…" for part in parts]
    return ".".join(part[:60] for part in known) or "body"


_REASONS = {
    "missing": "is needed",
    "extra_forbidden": "is not known here",
    "json_invalid": "is not JSON",
    "value_error": "cannot be used",
    "assertion_error": "cannot be used",
}


def _reason(error: Mapping[str, Any]) -> str:
    """Pydantic's words where they name the rule, ours where they might repeat what was sent."""
    kind = str(error.get("type", ""))
    if kind in _REASONS:
        return _REASONS[kind]
    context = {name: value for name, value in (error.get("ctx") or {}).items() if name in _RULES}
    told = ", ".join(f"{name} {value}" for name, value in context.items())
    return kind.replace("_", " ") + (f" ({told})" if told else "")


_RULES = frozenset({"ge", "gt", "le", "lt", "min_length", "max_length", "expected", "multiple_of", "pattern"})
