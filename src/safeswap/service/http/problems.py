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

from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

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
