"""How a program speaks to a service: one connection, refusals as errors, lists page by page."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel

from safeswap.errors import ERROR_CLASSES, SafeswapError
from safeswap.io.atomic import atomic_write
from safeswap.service.app import API
from safeswap.service.problems import Problem, Refusal

Answer = TypeVar("Answer", bound=BaseModel)
_CHUNK = 2**20


class Refused(Refusal):
    """What the service refused, with its problem document."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail, code=problem.code, hint=problem.hint, **_fields(problem))
        self.problem = problem


class Connection:
    """One connection to a service, by token, by name and password, or by the token of a service for one person."""

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        name: str = "",
        password: str = "",
        start_token: str = "",
        timeout: float = 60.0,
    ) -> None:
        self._http = httpx.Client(base_url=address.rstrip("/") + API, timeout=timeout)
        if token is not None:
            self._http.headers["Authorization"] = f"Bearer {token}"
        else:
            stated = {"name": name, "password": password, "start_token": start_token}
            answer = self._send("POST", "/session", json={key: value for key, value in stated.items() if value})
            self._http.headers["X-CSRF-Token"] = answer.json()["csrf_token"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back; a session stays open until it expires."""
        self._http.close()

    def _got(self, kind: type[Answer], path: str) -> Answer:
        return kind.model_validate(self._send("GET", path).json())

    def _made(self, kind: type[Answer], path: str, body: Mapping[str, Any]) -> Answer:
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return kind.model_validate(self._send("POST", path, json=dict(body), headers=headers).json())

    def _pages(self, path: str, kind: type[Answer]) -> Iterator[Answer]:
        cursor: str | None = ""
        while cursor is not None:
            page = self._send("GET", path, params={"limit": 200, "cursor": cursor}).json()
            yield from (kind.model_validate(each) for each in page["items"])
            cursor = page["next"]

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._http.request(method, path, **options)
        if answer.is_error:
            raise as_error(_problem(answer))
        return answer

    def _changed(self, kind: type[Answer], method: str, path: str, body: Mapping[str, Any], version: int) -> Answer:
        """A change says which version it changes: somebody else may have been quicker."""
        headers = {"If-Match": f'"{version}"'}
        return kind.model_validate(self._send(method, path, json=dict(body), headers=headers).json())

    def _saved(self, path: str, to: Path) -> Path:
        """What is large goes to a new file as it comes; a file that did not come whole is not left behind."""
        with self._http.stream("GET", path) as answer:
            if answer.is_error:
                answer.read()
                raise as_error(_problem(answer))
            with atomic_write(to) as part, part.open("wb") as file:
                for piece in answer.iter_bytes(_CHUNK):
                    file.write(piece)
        return to


def as_error(problem: Problem) -> SafeswapError:
    """A problem as the error that the library raises for it, so that a program catches both alike.

    >>> problem = Problem(type="", title="", status=422, detail="no", code="bad-spec", hint="", fields={})
    >>> type(as_error(problem)).__name__, as_error(problem).code
    ('Refused', 'bad-spec')
    """
    return Refused(problem)


def _fields(problem: Problem) -> dict[str, Any]:
    return {name: value for name, value in problem.fields.items() if name not in {"message", "code", "hint", "self"}}


def _problem(answer: httpx.Response) -> Problem:
    try:
        return Problem.model_validate(answer.json())
    except ValueError:
        known = {kind.http_status: kind.__name__ for kind in ERROR_CLASSES}
        title = known.get(answer.status_code, answer.reason_phrase)
        return Problem(type="about:blank", title=title, status=answer.status_code, detail=title, code="no-problem")


def chunks(file: Path) -> Iterator[bytes]:
    """A file in pieces, to be sent as it is read."""
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk
