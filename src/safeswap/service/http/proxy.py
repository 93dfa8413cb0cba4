"""Login by a trusted proxy in front of the service, which passes the user name in a header.

The header is trusted only from the proxy's addresses. It opens a session, so that session rules (expiry, CSRF
protection) apply as well; a session of another user is not accepted with it.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from safeswap.service.http.problems import Forbidden, refusal_response
from safeswap.service.settings import Settings, TrustedProxy


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
