"""Error responses: problem documents (RFC 9457).

Library errors keep their own HTTP status. Added here are the errors specific to HTTP: not logged in, forbidden, not
found, conflict, too large, too many requests. None of them repeats the request. An unexpected error is answered with
an incident number, under which the log has more.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import PurePath
from typing import Any, ClassVar

from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from safeswap.errors import SafeswapError

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
