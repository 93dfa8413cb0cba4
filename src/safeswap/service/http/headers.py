"""Security headers of every response, and checks of host and body size for every request.

Pure ASGI middleware: downloads of many gigabytes pass through unbuffered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safeswap.service.http.problems import BadRequest, TooLarge, refusal_response
from safeswap.service.settings import Settings

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
                "this service does not go by the name it was addressed by",
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
        large = any(each.method == scope["method"] and each.path.match(scope["path"]) for each in self.streamed)
        return self.upload_bytes if large else SMALL_BODY
