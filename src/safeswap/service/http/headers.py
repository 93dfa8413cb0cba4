"""Security headers of every response, and checks of host, body size and JSON for every request.

Pure ASGI middleware: downloads of many gigabytes pass through unbuffered.

A limit on the bytes of JSON is not enough. Comparing four megabytes of names can take hours; deep nesting exhausts the
stack of recursive code; and Python's parser accepts ``NaN``, which is not JSON and which databases refuse.

A trusted proxy in front of the service may pass the user name in a header. It is trusted only from the proxy's
addresses. It opens a session, so that session rules (expiry, CSRF protection) apply as well; a session of another user
is not accepted with it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any, NoReturn

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safeswap.service.http.problems import BadRequest, Forbidden, Refusal, TooLarge, Unprocessable, refusal_response
from safeswap.service.settings import Settings, TrustedProxy

CONTENT_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'; "
    "img-src 'self' data:"
)
"""Same origin only, nothing inline. A page that needs more sets its own policy."""

REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""For a self-contained report: inline scripts and styles, but no origin, cookies or network."""

SMALL_BODY = 4 * 2**20
"""Maximum bytes of a request that is read into memory."""

_FIXED = {
    "content-security-policy": CONTENT_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


class SecurityHeaders:
    """Middleware that sets the security headers; a route may set one of them itself."""

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self.app = app
        self.headers = dict(_FIXED)
        if settings.secure_cookies:
            self.headers["strict-transport-security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and add the headers to the response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


def allowed_hosts(settings: Settings) -> frozenset[str]:
    """Return the host names by which this service may be addressed.

    >>> sorted(allowed_hosts(Settings(store="/srv/s", master_key_file="/etc/k", hosts=("sdc.agency.example",))))
    ['127.0.0.1', '[::1]', 'localhost', 'sdc.agency.example']
    """
    own = f"[{settings.host}]" if ":" in settings.host else settings.host
    loopback = ("127.0.0.1", "[::1]", "localhost")
    return frozenset(name.lower() for name in (own, *loopback, *settings.hosts))


def host_of(value: str) -> str:
    """Return the name in a ``Host`` header, without the port.

    >>> host_of("[::1]:8765"), host_of("LOCALHOST:80")
    ('[::1]', 'localhost')
    """
    return re.sub(r":\d*$", "", value.strip().lower())


class HostCheck:
    """Middleware that refuses requests for unknown host names, against DNS rebinding."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str]) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests for a known host."""
        if scope["type"] == "http" and host_of(Headers(scope=scope).get("host", "")) not in self.hosts:
            refused = BadRequest(
                "this service does not recognise the host name it was addressed by",
                code="unknown-host",
                hint="the administrator can add the name to hosts",
            )
            await refusal_response(refused)(scope, receive, send)
            return
        await self.app(scope, receive, send)


@dataclass(frozen=True)
class Streamed:
    """A route that streams its body and may therefore accept a large one."""

    method: str
    path: re.Pattern[str]


class BodyLimit:
    """Middleware that refuses bodies above the route's limit, with or without a content-length."""

    def __init__(self, app: ASGIApp, *, streamed: Iterable[Streamed], upload_bytes: int) -> None:
        self.app = app
        self.streamed = tuple(streamed)
        self.upload_bytes = upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and count the received bytes."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = self._limit(scope)
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdigit() or int(declared) > most:
            refused = TooLarge(f"the body is larger than {most:,} bytes", most=most)
            await refusal_response(refused)(scope, receive, send)
            return
        taken = 0

        async def receive_counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                raise HTTPException(413)
            return message

        await self.app(scope, receive_counted, send)

    def _limit(self, scope: Scope) -> int:
        return self.upload_bytes if _is_streamed(scope, self.streamed) else SMALL_BODY


def _is_streamed(scope: Scope, streamed: Iterable[Streamed]) -> bool:
    return any(each.method == scope["method"] and each.path.match(scope["path"]) for each in streamed)


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
        return Unprocessable("NaN and infinities are not valid JSON", code="bad-number", hint=_HINT)
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
            return Unprocessable("a number in the body is too large", code="bad-number", hint=_HINT)
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
        if (
            scope["type"] != "http"
            or scope["method"] in {"GET", "HEAD", "OPTIONS"}
            or _is_streamed(scope, self.streamed)
        ):
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


def name_from(request: Request, settings: Settings) -> str | None:
    """Return the user name from the trusted proxy, or None."""
    trusted = settings.trusted_proxy
    if trusted is None or not is_trusted(_peer(request), trusted):
        return None
    return request.headers.get(trusted.header, "").strip() or None


def is_same_user(request: Request, settings: Settings, name: str) -> bool:
    """Return True unless the proxy names another user than the session's."""
    from safeswap.service.people.accounts import normalise_name

    proxied = name_from(request, settings)
    return proxied is None or normalise_name(proxied) == name


def is_trusted(address: str, trusted: TrustedProxy) -> bool:
    """Return True if an address is one of the proxy's; networks are written as ``10.0.0.0/8``.

    >>> is_trusted("10.1.2.3", TrustedProxy(addresses=("10.0.0.0/8",)))
    True
    """
    try:
        peer = ip_address(address)
    except ValueError:
        return False
    return any(peer in ip_network(each, strict=False) for each in trusted.addresses)


def address_of(request: Request, settings: Settings) -> str:
    """Return the client's address: the one forwarded by the trusted proxy, or the peer's."""
    peer = _peer(request)
    trusted = settings.trusted_proxy
    if trusted is not None and is_trusted(peer, trusted):
        last = request.headers.get("x-forwarded-for", "").split(",")[-1].strip()
        return last or peer
    return peer


class ProxyOnly:
    """Middleware that refuses direct connections if TLS ends at the proxy, since they would not be encrypted."""

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self.app = app
        open_to_all = settings.loopback or settings.tls_certificate is not None
        self.trusted = None if open_to_all else settings.trusted_proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests of the proxy or of this machine."""
        peer = (scope.get("client") or ("",))[0]
        if scope["type"] == "http" and self.trusted is not None and not _is_allowed_peer(peer, self.trusted):
            refused = Forbidden("this service is reached through its proxy only", code="not-by-proxy")
            await refusal_response(refused)(scope, receive, send)
            return
        await self.app(scope, receive, send)


def _is_allowed_peer(peer: str, trusted: TrustedProxy) -> bool:
    return is_trusted(peer, trusted) or is_trusted(peer, TrustedProxy(addresses=("127.0.0.0/8", "::1")))


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else ""
