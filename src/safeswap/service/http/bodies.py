"""Limits on JSON bodies before validation: finite numbers, bounded depth, bounded number of values.

A limit on bytes is not enough. Comparing four megabytes of names can take hours; deep nesting exhausts the stack of
recursive code; and Python's parser accepts ``NaN``, which is not JSON and which databases refuse.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safeswap.service.http.headers import SMALL_BODY, Streamed
from safeswap.service.http.problems import Refusal, TooLarge, Unprocessable, refusal_response

MOST_VALUES = 50_000
MOST_DEPTH = 32
LARGEST = 2**63 - 1
"""Largest integer that the databases can store."""

_HINT = "see /api/docs"


def check_body(body: bytes) -> Refusal | None:
    """Return the reason to refuse a body, or None.

    >>> check_body(b'{"rate": 0.05}'), check_body(b'{"rate": NaN}').code, check_body(b"[" * 99 + b"]" * 99).code
    (None, 'bad-number', 'too-deep')
    """
    try:
        value = json.loads(body, parse_constant=_reject_constant)
    except _NumberError:
        return Unprocessable("NaN and infinities are no JSON", code="bad-number", hint=_HINT)
    except (ValueError, RecursionError):
        return None  # not JSON: request validation reports where
    return _check_size(value)


class _NumberError(ValueError):
    """A number constant that Python accepts and JSON does not."""


def _reject_constant(_word: str) -> NoReturn:
    raise _NumberError


def _check_size(value: Any) -> Refusal | None:
    layer, count = [value], 0
    for _ in range(MOST_DEPTH):
        count += len(layer)
        if count > MOST_VALUES:
            return TooLarge(f"the body holds more than {MOST_VALUES:,} values", most=MOST_VALUES)
        if not all(_fits(each) for each in layer):
            return Unprocessable("a number in the body is larger than any here", code="bad-number", hint=_HINT)
        layer = [inner for each in layer for inner in children(each)]
        if not layer:
            return None
    return Unprocessable(f"the body is nested more than {MOST_DEPTH} deep", code="too-deep", hint=_HINT)


def _fits(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -LARGEST <= value <= LARGEST


def children(value: Any) -> list[Any]:
    """Return the values directly inside a JSON value."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


class PlainJson:
    """Middleware that refuses unacceptable JSON; streamed bodies are left to their route."""

    def __init__(self, app: ASGIApp, *, streamed: tuple[Streamed, ...]) -> None:
        self.app = app
        self.streamed = streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read and check the body, then pass it on unchanged."""
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD", "OPTIONS"} or self._is_streamed(scope):
            await self.app(scope, receive, send)
            return
        try:
            body, last = await _read_body(receive)
        except HTTPException:  # too large, without a content-length
            larger = TooLarge(f"the body is larger than {SMALL_BODY:,} bytes", most=SMALL_BODY)
            await refusal_response(larger)(scope, receive, send)
            return
        refused = check_body(body) if body and _is_json(scope) else None
        if refused is not None:
            await refusal_response(refused)(scope, receive, send)
            return
        await self.app(scope, _replay(body, last, receive), send)

    def _is_streamed(self, scope: Scope) -> bool:
        return any(each.method == scope["method"] and each.path.match(scope["path"]) for each in self.streamed)


async def _read_body(receive: Receive) -> tuple[bytes, Message]:
    last = await receive()
    body = bytearray(last.get("body", b""))
    while last.get("more_body", False):
        last = await receive()
        body += last.get("body", b"")
    return bytes(body), last


def _is_json(scope: Scope) -> bool:
    kind = Headers(scope=scope).get("content-type", "application/json").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _replay(body: bytes, last: Message, receive: Receive) -> Receive:
    """Return a receiver that yields the body in one message, then whatever follows."""
    waiting: list[Message] = [last] if last["type"] != "http.request" else []
    waiting.insert(0, {"type": "http.request", "body": body, "more_body": False})

    async def receive_again() -> Message:
        return waiting.pop(0) if waiting else await receive()

    return receive_again
