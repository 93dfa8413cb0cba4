"""Authentication of requests: a person with a session cookie, or a program with a token."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi import Request

from safeswap.service.http import proxy
from safeswap.service.http.headers import host_of
from safeswap.service.http.problems import Forbidden
from safeswap.service.people import sessions
from safeswap.service.people import sessions as tokens
from safeswap.service.state import Service, service_of

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_HEADER = "x-csrf-token"


@dataclass(frozen=True)
class Caller:
    """An authenticated caller. ``scopes`` is None for a logged-in person, who may do all that the role allows."""

    id: str
    name: str
    role: str
    display_name: str = ""
    scopes: frozenset[str] | None = None
    session: str | None = None  # the secret of the session, to end or to rotate it


def identify(request: Request) -> Caller | None:
    """Return the caller of a request, or None. A token takes precedence over a cookie."""
    caller = _identify(request, service_of(request))
    request.scope["user_id"] = caller.id if caller is not None else ""  # for the log
    return caller


def _identify(request: Request, service: Service) -> Caller | None:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme:
        return _identify_by_token(service, secret.strip()) if scheme.lower() == "bearer" else None
    cookie = request.cookies.get(service.settings.cookie)
    return _identify_by_session(request, service, cookie) if cookie else None


def _identify_by_token(service: Service, secret: str) -> Caller | None:
    row = tokens.find_token(service.database, secret)
    if row is None:
        return None
    return Caller(
        id=row.user_id, name=row.name, role=row.role, display_name=row.display_name, scopes=frozenset(row.scopes)
    )


def _identify_by_session(request: Request, service: Service, secret: str) -> Caller | None:
    row = sessions.find(service.database, service.settings, secret)
    if row is None or not proxy.is_same_user(request, service.settings, row.name):
        return None
    if request.method not in SAFE_METHODS:
        check_origin(request)
        given = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(sessions.hash_of(given), row.csrf_hash):
            raise Forbidden(
                "the request does not carry the token of this session",
                code="csrf",
                hint="send csrf_token of GET /session as X-CSRF-Token",
            )
    return Caller(id=row.user_id, name=row.name, role=row.role, display_name=row.display_name, session=secret)


def check_origin(request: Request) -> None:
    """Refuse a cross-origin change; programs send no origin and pass."""
    origin = request.headers.get("origin")
    hosts = service_of(request).settings.hosts
    asked = request.headers.get("host", "").lower()
    ours = origin is None or urlsplit(origin).netloc.lower() == asked or host_of(urlsplit(origin).netloc) in hosts
    if not ours or request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise Forbidden("a page of another origin asked for this", code="cross-origin")
