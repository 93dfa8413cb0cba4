"""Log-in done by a proxy in front of the service: it tells the name in a header, and nobody else can.

The header is believed only from the addresses of the proxy. It opens a session, so that the rules of sessions (expiry,
protection against requests forged by other pages) hold for it as well; a session of somebody else ends there.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from safeswap.service.http.problems import Forbidden, refusal_response
from safeswap.service.settings import Settings, TrustedProxy


def name_from(request: Request, settings: Settings) -> str | None:
    """The name that the trusted proxy tells, or None."""
    trusted = settings.trusted_proxy
    if trusted is None or not is_trusted(_peer(request), trusted):
        return None
    return request.headers.get(trusted.header, "").strip() or None


def agrees(request: Request, settings: Settings, name: str) -> bool:
    """Whether the proxy, if it names somebody, names the person whose session it is."""
    from safeswap.service.people.accounts import plain_name

    told = name_from(request, settings)
    return told is None or plain_name(told) == name


def is_trusted(address: str, trusted: TrustedProxy) -> bool:
    """Whether an address is one of the proxy's; networks are written as ``10.0.0.0/8``.

    >>> is_trusted("10.1.2.3", TrustedProxy(addresses=("10.0.0.0/8",)))
    True
    """
    try:
        peer = ip_address(address)
    except ValueError:
        return False
    return any(peer in ip_network(each, strict=False) for each in trusted.addresses)


def address_of(request: Request, settings: Settings) -> str:
    """From where a request comes, as far as that can be known: what the proxy says, or the peer itself."""
    peer = _peer(request)
    trusted = settings.trusted_proxy
    if trusted is not None and is_trusted(peer, trusted):
        last = request.headers.get("x-forwarded-for", "").split(",")[-1].strip()
        return last or peer
    return peer


class ProxyOnly:
    """Where TLS ends at the proxy, nobody comes past it: what others send would go over the network in the clear."""

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self.app = app
        open_to_all = settings.loopback or settings.tls_certificate is not None
        self.trusted = None if open_to_all else settings.trusted_proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what the proxy, or a program on this machine, sends."""
        peer = (scope.get("client") or ("",))[0]
        if scope["type"] == "http" and self.trusted is not None and not _comes_by(peer, self.trusted):
            refused = Forbidden("this service is reached through its proxy only", code="not-by-proxy")
            await refusal_response(refused)(scope, receive, send)
            return
        await self.app(scope, receive, send)


def _comes_by(peer: str, trusted: TrustedProxy) -> bool:
    return is_trusted(peer, trusted) or is_trusted(peer, TrustedProxy(addresses=("127.0.0.0/8", "::1")))


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else ""
