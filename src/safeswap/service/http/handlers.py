"""Error handlers and the request log: every error becomes a problem document that repeats nothing of the request.

The log line holds the route template, not the address, which may contain user input. For an unexpected error it holds
the exception's type and place in the code, not its message, which may contain a value.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safeswap.errors import SafeswapError, locate
from safeswap.service.http.logs import METRICS, event
from safeswap.service.http.problems import (
    Unavailable,
    Unprocessable,
    incident_response,
    make_problem,
    problem_response,
    refusal_response,
)

_METHODS = {name: name for name in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")}


class RequestLog:
    """Middleware that logs and counts requests and handles unexpected errors."""

    def __init__(self, app: ASGIApp, *, paths: Mapping[Any, str | None]) -> None:
        self.app = app
        self.paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and log the response; answer unexpected errors with an incident number."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except Exception as error:  # noqa: BLE001  (last resort: logged, and answered without its message)
            incident, response = incident_response()
            event("incident", incident=incident, error=type(error).__name__, place=locate(error))
            if status == 0:
                await response(scope, receive, send_and_note)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = self.paths.get(scope.get("endpoint")) or "none"
        fields: dict[str, Any] = {"route": route, "method": _METHODS.get(scope["method"], "other"), "status": status}
        event("request", **fields, ms=round(seconds * 1000, 1), user_id=scope.get("user_id", ""))
        METRICS.count("safeswap_requests_total", **fields)
        METRICS.observe("safeswap_request_seconds", seconds, route=route)


def install(app: FastAPI) -> None:
    """Install the error handlers."""
    app.add_exception_handler(SafeswapError, _handle_safeswap_error)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(DataError, _handle_bad_value)
    for kind in (OperationalError, InterfaceError):
        app.add_exception_handler(kind, _handle_database_error)


async def _handle_safeswap_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SafeswapError)  # noqa: S101  (registered for nothing else)
    return refusal_response(error)


async def _handle_bad_value(_request: Request, _error: Exception) -> Response:
    """Answer a value that PostgreSQL refuses: NUL in a text, or a number out of range."""
    return refusal_response(Unprocessable("a value in the request is none that could be kept", code="bad-value"))


async def _handle_database_error(_request: Request, _error: Exception) -> Response:
    refused = Unavailable("the database does not answer", hint="try again in a moment")
    refused.headers = {"Retry-After": "2"}
    return refusal_response(refused)


async def _handle_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  (registered for nothing else)
    status = HTTPStatus(error.status_code)
    code = {404: "not-found", 405: "method-not-allowed", 413: "too-large", 400: "bad-request"}.get(
        status, status.name.lower().replace("_", "-")
    )
    problem = make_problem(status, status.description or status.phrase, code=code)
    return problem_response(problem, headers=error.headers)


async def _handle_invalid_request(_request: Request, error: Exception) -> Response:
    """Report where and why a request is invalid, without repeating its values, which may be confidential."""
    assert isinstance(error, RequestValidationError)  # noqa: S101  (registered for nothing else)
    found = [{"where": _where(each), "problem": _reason(each)} for each in error.errors()[:20]]
    first = found[0] if found else {"where": "body", "problem": "not understood"}
    detail = f"the request cannot be used: {first['where']}: {first['problem']}"
    fields = {"errors": found}
    return problem_response(make_problem(422, detail, code="bad-request-body", hint="see /api/docs", fields=fields))


def _where(error: Mapping[str, Any]) -> str:
    """Return the path of an error, with unknown keys masked: a key sent by a client may be anything."""
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
    """Return pydantic's message if it only names the rule, else one that repeats no input."""
    kind = str(error.get("type", ""))
    if kind in _REASONS:
        return _REASONS[kind]
    context = {name: value for name, value in (error.get("ctx") or {}).items() if name in _RULES}
    rules = ", ".join(f"{name} {value}" for name, value in context.items())
    return kind.replace("_", " ") + (f" ({rules})" if rules else "")


_RULES = frozenset({"ge", "gt", "le", "lt", "min_length", "max_length", "expected", "multiple_of", "pattern"})
