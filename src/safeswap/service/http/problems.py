"""Error responses: problem documents (RFC 9457).

Library errors keep their own HTTP status. Added here are the errors specific to HTTP: not logged in, forbidden, not
found, conflict, too large, too many requests. None of them repeats the request. An unexpected error is answered with
an incident number, under which the log has more.

Every request is logged. The log line holds the route template, not the address, which may contain user input. For an
unexpected error it holds the exception's type and place in the code, not its message, which may contain a value.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import PurePath
from typing import Any, ClassVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safeswap.errors import SafeswapError, locate
from safeswap.service.http.logs import METRICS, event

MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """An error response: why the request failed, and what to do."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:safeswap:problem:not-found",
                    "title": "Not Found",
                    "status": 404,
                    "detail": "there is no such project",
                    "code": "not-found",
                    "hint": "see GET /projects",
                    "fields": {},
                }
            ]
        }
    )

    type: str = Field(description="URN of the kind of problem.")
    title: str = Field(description="Kind of problem.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="What went wrong; never contains a value of a record.")
    code: str = Field(description="Stable error code for programs.")
    hint: str = Field(default="", description="What to do.")
    fields: dict[str, Any] = Field(default_factory=dict, description="Details of the error.")


class Refusal(SafeswapError):  # noqa: N818  (reads better at the raise)
    """An error specific to HTTP; each kind has its own status and code.

    >>> NotFound("there is no such project").http_status
    404
    """

    default_code: ClassVar[str] = "refused"

    def __init__(self, message: str, *, code: str = "", hint: str = "", **fields: Any) -> None:
        super().__init__(message, code=code or self.default_code, hint=hint, **fields)
        self.headers: dict[str, str] = {}


class BadRequest(Refusal):
    """The request cannot be handled."""

    http_status, default_code = 400, "bad-request"


class NotLoggedIn(Refusal):
    """The caller is not authenticated."""

    http_status, default_code = 401, "not-logged-in"

    def __init__(self, message: str = "log in first", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.headers = {"WWW-Authenticate": 'Bearer realm="safeswap"'}


class Forbidden(Refusal):
    """The caller is known but not allowed."""

    http_status, default_code = 403, "forbidden"


class NotFound(Refusal):
    """Not there, or not visible to the caller: the response does not say which."""

    http_status, default_code = 404, "not-found"


class Conflict(Refusal):
    """Not possible in the current state."""

    http_status, default_code = 409, "conflict"


class PreconditionFailed(Refusal):
    """The resource has changed since it was read."""

    http_status, default_code = 412, "changed-meanwhile"


class TooLarge(Refusal):
    """The request exceeds a limit."""

    http_status, default_code = 413, "too-large"


class Unprocessable(Refusal):
    """The request is well-formed but invalid."""

    http_status, default_code = 422, "unprocessable"


class PreconditionRequired(Refusal):
    """A change needs ``If-Match``."""

    http_status, default_code = 428, "if-match-needed"


class TooMany(Refusal):
    """Too many requests: retry after ``seconds``."""

    http_status, default_code = 429, "too-many"

    def __init__(self, message: str, *, seconds: int, **fields: Any) -> None:
        super().__init__(message, seconds=seconds, **fields)
        self.headers = {"Retry-After": str(max(1, seconds))}


class Unavailable(Refusal):
    """Temporarily unavailable."""

    http_status, default_code = 503, "unavailable"


def problem_of(error: SafeswapError) -> Problem:
    """Return the problem document of an error, without the server's directories.

    >>> from safeswap.errors import InputError
    >>> problem_of(InputError("the file is empty", code="empty-file", file="/srv/a/raw.csv")).fields
    {'file': 'raw.csv'}
    """
    fields = {name: _to_json(value) for name, value in error.fields.items()}
    return make_problem(error.http_status, error.message, code=error.code, hint=error.hint, fields=fields)


def make_problem(
    status: int, detail: str, *, code: str, hint: str = "", fields: dict[str, Any] | None = None
) -> Problem:
    """Return a problem document."""
    kind, title = f"urn:safeswap:problem:{code}", HTTPStatus(status).phrase
    return Problem(type=kind, title=title, status=status, detail=detail, code=code, hint=hint, fields=fields or {})


def _to_json(value: Any) -> Any:
    """Convert a value to JSON, paths to their last part."""
    if isinstance(value, PurePath) or (isinstance(value, str) and value.startswith("/")):
        return PurePath(value).name
    if isinstance(value, Mapping):
        return {str(name): _to_json(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_to_json(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(type(value).__name__)


def problem_response(problem: Problem, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a problem document."""
    return JSONResponse(problem.model_dump(), status_code=problem.status, headers=headers, media_type=MEDIA_TYPE)


def refusal_response(error: SafeswapError) -> Response:
    """Return the response to a safeswap error."""
    return problem_response(problem_of(error), headers=getattr(error, "headers", None))


def incident_response() -> tuple[str, Response]:
    """Return a new incident number and the response that states only that number."""
    incident = secrets.token_hex(6)
    hint = "tell the administrator the incident number"
    detail = "unexpected error in the service"
    return incident, problem_response(
        make_problem(500, detail, code="internal", hint=hint, fields={"incident": incident})
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


def install_handlers(app: FastAPI) -> None:
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
    return refusal_response(Unprocessable("a value in the request cannot be stored", code="bad-value"))


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
    found = [{"where": _locate_error(each), "problem": _reason(each)} for each in error.errors()[:20]]
    first = found[0] if found else {"where": "body", "problem": "not understood"}
    detail = f"the request cannot be used: {first['where']}: {first['problem']}"
    fields = {"errors": found}
    return problem_response(make_problem(422, detail, code="bad-request-body", hint="see /api/docs", fields=fields))


def _locate_error(error: Mapping[str, Any]) -> str:
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
