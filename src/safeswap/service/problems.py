"""What the service answers when it says no: problem documents (RFC 9457), from the one table of errors.

The errors of the library keep the status they have there. To these come the refusals that only HTTP knows: not logged
in, not allowed, not found, changed meanwhile, too large, too often. None of them repeats what was sent, and what nobody
foresaw is answered with an incident number under which the log tells more.
"""

from __future__ import annotations

import secrets
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

from safeswap.errors import SafeswapError

MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """Why a request was not carried out, and what would work."""

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

    type: str = Field(description="Names the kind of problem.")
    title: str = Field(description="The kind of problem in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What went wrong this time; never a value of a record.")
    code: str = Field(description="Stable, for programs.")
    hint: str = Field(default="", description="What would work.")
    fields: dict[str, Any] = Field(default_factory=dict, description="The facts of the case.")


class Refusal(SafeswapError):  # noqa: N818  (the name says what happened, not that an error did)
    """A refusal that only HTTP knows; each kind has its status and a code of its own.

    >>> NotFound("there is no such project").http_status
    404
    """

    default_code: ClassVar[str] = "refused"

    def __init__(self, message: str, *, code: str = "", hint: str = "", **fields: Any) -> None:
        super().__init__(message, code=code or self.default_code, hint=hint, **fields)
        self.headers: dict[str, str] = {}


class BadRequest(Refusal):
    """The request is not one that this service could answer."""

    http_status, default_code = 400, "bad-request"


class NotLoggedIn(Refusal):
    """Nobody knows who is asking."""

    http_status, default_code = 401, "not-logged-in"

    def __init__(self, message: str = "log in first", **told: Any) -> None:
        super().__init__(message, **told)
        self.headers = {"WWW-Authenticate": 'Bearer realm="safeswap"'}


class Forbidden(Refusal):
    """Known, but not allowed to."""

    http_status, default_code = 403, "forbidden"


class NotFound(Refusal):
    """Not there, or not for this person: the answer does not tell which."""

    http_status, default_code = 404, "not-found"


class Conflict(Refusal):
    """Not possible in the state in which things are."""

    http_status, default_code = 409, "conflict"


class PreconditionFailed(Refusal):
    """Somebody has changed it meanwhile."""

    http_status, default_code = 412, "changed-meanwhile"


class TooLarge(Refusal):
    """More than the limits allow."""

    http_status, default_code = 413, "too-large"


class UnsupportedType(Refusal):
    """A body of another kind is needed."""

    http_status, default_code = 415, "unsupported-type"


class Unprocessable(Refusal):
    """Understood, but it makes no sense."""

    http_status, default_code = 422, "unprocessable"


class PreconditionRequired(Refusal):
    """A change has to say what it is a change of."""

    http_status, default_code = 428, "if-match-needed"


class TooMany(Refusal):
    """Too often: wait ``seconds`` before the next try."""

    http_status, default_code = 429, "too-many"

    def __init__(self, message: str, *, seconds: int, **told: Any) -> None:
        super().__init__(message, seconds=seconds, **told)
        self.headers = {"Retry-After": str(max(1, seconds))}


class Unavailable(Refusal):
    """Not now; soon."""

    http_status, default_code = 503, "unavailable"


def problem_of(error: SafeswapError) -> Problem:
    """The problem document of an error, without the server's own directories.

    >>> from safeswap.errors import InputError
    >>> problem_of(InputError("the file is empty", code="empty-file", file="/srv/a/raw.csv")).fields
    {'file': 'raw.csv'}
    """
    return Problem(
        type=f"urn:safeswap:problem:{error.code}",
        title=HTTPStatus(error.http_status).phrase,
        status=error.http_status,
        detail=error.message,
        code=error.code,
        hint=error.hint,
        fields={name: _plain(value) for name, value in error.fields.items()},
    )


def _plain(value: Any) -> Any:
    """JSON, and of a path no more than the last part."""
    if isinstance(value, PurePath) or (isinstance(value, str) and value.startswith("/")):
        return PurePath(value).name
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(type(value).__name__)


def problem_response(problem: Problem, *, headers: Mapping[str, str] | None = None) -> Response:
    """A problem document as an answer."""
    return JSONResponse(problem.model_dump(), status_code=problem.status, headers=headers, media_type=MEDIA_TYPE)


def refusal_response(error: SafeswapError) -> Response:
    """What an error of ours is answered with."""
    return problem_response(problem_of(error), headers=getattr(error, "headers", None))


def install(app: FastAPI) -> None:
    """Let the application answer every error with a problem document."""
    app.add_exception_handler(SafeswapError, _of_ours)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(DataError, _of_values)
    for kind in (OperationalError, InterfaceError):
        app.add_exception_handler(kind, _of_database)


def unforeseen() -> tuple[str, Response]:
    """An incident number, and the answer that tells it and nothing else."""
    incident = secrets.token_hex(6)
    problem = Problem(
        type="urn:safeswap:problem:internal",
        title=HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
        status=500,
        detail="something went wrong that nobody foresaw",
        code="internal",
        hint="tell the administrator the incident number",
        fields={"incident": incident},
    )
    return incident, problem_response(problem)


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
