"""What a JSON body may be like before anything looks at what it says: finite, flat, and not too much of it.

Limits on bytes are not enough. Four megabytes of names keep a check that compares them busy for hours; a list of lists
of lists exhausts the stack of whoever walks it; ``NaN`` is no JSON, though Python takes it for a number, and a database
does not.
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
"""Whole numbers beyond it are none that a database or a table could hold."""

_HINT = "see /api/docs"


def checked(body: bytes) -> Refusal | None:
    """Why a body is refused, or None.

    >>> checked(b'{"rate": 0.05}'), checked(b'{"rate": NaN}').code, checked(b"[" * 99 + b"]" * 99).code
    (None, 'bad-number', 'too-deep')
    """
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except _NumberError:
        return Unprocessable("NaN and infinities are no JSON", code="bad-number", hint=_HINT)
    except (ValueError, RecursionError):
        return None  # no JSON at all: the route says where it ends to be any
    return _too_much(value)


class _NumberError(ValueError):
    """A word that Python takes for a number, and JSON does not."""


def _no_constant(_word: str) -> NoReturn:
    raise _NumberError


def _too_much(value: Any) -> Refusal | None:
    layer, count = [value], 0
    for _ in range(MOST_DEPTH):
        count += len(layer)
        if count > MOST_VALUES:
            return TooLarge(f"the body holds more than {MOST_VALUES:,} values", most=MOST_VALUES)
        if not all(_fits(each) for each in layer):
            return Unprocessable("a number in the body is larger than any here", code="bad-number", hint=_HINT)
        layer = [inner for each in layer for inner in _inside(each)]
        if not layer:
            return None
    return Unprocessable(f"the body is nested more than {MOST_DEPTH} deep", code="too-deep", hint=_HINT)


def _fits(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -LARGEST <= value <= LARGEST


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


class PlainJson:
    """Refuses bodies that are no plain JSON; what comes in a stream is left to its route."""

    def __init__(self, app: ASGIApp, *, streamed: tuple[Streamed, ...]) -> None:
        self.app = app
        self.streamed = streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the body, look at it, and hand it on as it came."""
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD", "OPTIONS"} or self._is_streamed(scope):
            await self.app(scope, receive, send)
            return
        try:
            body, last = await _whole(receive)
        except HTTPException:  # it did not say how large it is, and is too large
            larger = TooLarge(f"the body is larger than {SMALL_BODY:,} bytes", most=SMALL_BODY)
            await refusal_response(larger)(scope, receive, send)
            return
        refused = checked(body) if body and _is_json(scope) else None
        if refused is not None:
            await refusal_response(refused)(scope, receive, send)
            return
        await self.app(scope, _replayed(body, last, receive), send)

    def _is_streamed(self, scope: Scope) -> bool:
        return any(each.method == scope["method"] and each.path.match(scope["path"]) for each in self.streamed)


async def _whole(receive: Receive) -> tuple[bytes, Message]:
    last = await receive()
    body = bytearray(last.get("body", b""))
    while last.get("more_body", False):
        last = await receive()
        body += last.get("body", b"")
    return bytes(body), last


def _is_json(scope: Scope) -> bool:
    kind = Headers(scope=scope).get("content-type", "application/json").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _replayed(body: bytes, last: Message, receive: Receive) -> Receive:
    """The body once more, in one piece; then whatever comes."""
    waiting: list[Message] = [last] if last["type"] != "http.request" else []
    waiting.insert(0, {"type": "http.request", "body": body, "more_body": False})

    async def again() -> Message:
        return waiting.pop(0) if waiting else await receive()

    return again
