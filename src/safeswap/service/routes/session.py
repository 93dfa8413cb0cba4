"""Login, logout and the current session, also through an identity provider."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field, SecretStr
from sqlalchemy import Row

from safeswap.service.http import proxy
from safeswap.service.http.problems import NotFound, NotLoggedIn, Unprocessable
from safeswap.service.http.wire import Wire, example
from safeswap.service.keeping import auditlog
from safeswap.service.people import accounts, oidc, sessions
from safeswap.service.people.roles import Caller, Everyone, allow, check_origin, permissions_of
from safeswap.service.settings import Settings
from safeswap.service.state import Service, service_of

router = APIRouter(prefix="/session", tags=["session"])

Self = Annotated[Caller, Depends(allow("self", once=False))]


class LogIn(Wire):
    """Name and password, or the start token that the service printed in single-user mode.

    Behind a trusted proxy that has authenticated the user, nothing.
    """

    model_config = example(name="ada", password="…")  # noqa: S106  (shows the form)

    name: str = Field(default="", max_length=200)
    password: SecretStr = Field(default=SecretStr(""), max_length=1000)
    start_token: SecretStr = Field(default=SecretStr(""), max_length=200)


class Session(Wire):
    """The logged-in user, their permissions, and the CSRF token."""

    model_config = example(
        user_id="5f0c",
        name="ada",
        display_name="Ada",
        role="analyst",
        permissions=["read", "work"],
        csrf_token="0a…",  # noqa: S106  (shows the form)
    )

    user_id: str
    name: str
    display_name: str
    role: str
    permissions: list[str] = Field(description="Permissions of the role.")
    scopes: list[str] | None = Field(default=None, description="Scopes of the token, if one was used.")
    csrf_token: str = Field(default="", description="Send it as `X-CSRF-Token` with every change.")
    expires_at: datetime | None = Field(default=None, description="When the session expires at the latest.")
    single_user: bool = Field(default=False, description="True in single-user mode.")


class WaysIn(Wire):
    """The available ways to log in."""

    model_config = example(password=True, provider=False, proxy=False, single_user=False)

    password: bool
    provider: bool = Field(description="Through the agency's identity provider: GET /session/provider.")
    proxy: bool
    single_user: bool


@router.get("/ways")
def ways_in(_: Everyone, request: Request) -> WaysIn:
    """List the available ways to log in."""
    settings = service_of(request).settings
    return WaysIn(
        password=not settings.single_user,
        provider=settings.oidc is not None,
        proxy=proxy.name_from(request, settings) is not None,
        single_user=settings.single_user,
    )


@router.post("", status_code=201)
def log_in(_: Everyone, request: Request, response: Response, body: LogIn) -> Session:
    """Log in: set the session cookie and end the browser's previous session."""
    check_origin(request)
    service = service_of(request)
    user = _authenticate(service, request, body)
    session = open_session(service, request, response, user)
    if body.name:
        sessions.set_device_cookie(response, service.settings, accounts.new_device(service, user.name))
    return session


@router.get("")
def who_am_i(request: Request, user: Self) -> Session:
    """Get the logged-in user and the CSRF token."""
    csrf = sessions.csrf_token_of(user.session) if user.session else ""
    scopes = sorted(user.scopes) if user.scopes is not None else None
    return _session_of(user, service_of(request).settings, csrf_token=csrf, scopes=scopes)


def _session_of(user: Caller | Row[Any], settings: Settings, **more: Any) -> Session:
    own = {name: getattr(user, name) for name in ("name", "display_name", "role")}
    more |= {"permissions": permissions_of(user.role, settings), "single_user": settings.single_user}
    return Session(user_id=user.id, **own, **more)


@router.delete("", status_code=204)
def log_out(request: Request, response: Response, user: Self) -> None:
    """Log out."""
    service = service_of(request)
    with service.database.write() as connection:
        if user.session:
            sessions.end(connection, user.session)
        auditlog.record(connection, actor=user.name, action="log-out", subject=user.id)
    sessions.clear_cookie(response, service.settings)


@router.get("/start", status_code=303, response_class=Response)
def start(_: Everyone, request: Request, token: Annotated[str, Query(max_length=200)]) -> Response:
    """Open the workbench in single-user mode: exchange the start token for a session."""
    service = service_of(request)
    response = Response(status_code=303, headers={"Location": "/"})
    open_session(service, request, response, _redeem_start_token(service, token))
    return response


def open_session(service: Service, request: Request, response: Response, user: Row[Any]) -> Session:
    """Open a session for an authenticated user."""
    with service.database.write() as connection:
        new = sessions.open_session(
            connection, service.settings, user.id, instead_of=request.cookies.get(service.settings.cookie)
        )
        detail = {"single_user": True} if service.settings.single_user else {}
        auditlog.record(connection, actor=user.name, action="log-in", subject=user.id, detail=detail)
    sessions.set_cookie(response, service.settings, new)
    return _session_of(user, service.settings, csrf_token=new.csrf_token, expires_at=new.expires_at)


def _authenticate(service: Service, request: Request, body: LogIn) -> Row[Any]:
    proxied = proxy.name_from(request, service.settings)
    if proxied is not None:
        return find_account(service, proxied)
    if service.settings.single_user:
        return _redeem_start_token(service, body.start_token.get_secret_value())
    if not body.name or not body.password.get_secret_value():
        raise Unprocessable("name and password are needed", code="no-password")
    address = proxy.address_of(request, service.settings)
    return accounts.log_in(
        service,
        name=body.name,
        password=body.password.get_secret_value(),
        address=address,
        device=request.cookies.get(service.settings.device_cookie, ""),
    )


def find_account(service: Service, name: str) -> Row[Any]:
    """Return the account of a user authenticated by proxy or provider."""
    with service.database.read() as connection:
        user = accounts.user_by_name(connection, name)
    if user is None:
        raise NotLoggedIn("there is no account of this name", code="no-account", hint="ask the administrator for one")
    return user


def _redeem_start_token(service: Service, token: str) -> Row[Any]:
    if not service.settings.single_user or not service.start_tokens.redeem(token):
        raise NotLoggedIn(
            "the token has been used, or is older than a minute",
            code="wrong-token",
            hint="press Enter where `safeswap workbench` runs: it gives a new address",
        )
    return accounts.local_user(service)


provider_router = APIRouter(prefix="/session/provider", tags=["session"])


# A redirect coming from another site would be followed without the new SameSite=strict cookie.
_HOME = '<!doctype html><html lang="en"><meta http-equiv="refresh" content="0;url=/"><title>safeswap</title></html>\n'


@provider_router.get("", status_code=303, response_class=Response)
def leave(_: Everyone, request: Request) -> Response:
    """Redirect to the identity provider."""
    service = service_of(request)
    scheme = "https" if service.settings.secure_cookies else "http"
    redirect_uri = f"{scheme}://{request.headers['host']}{request.url.path}/return"
    address, pending = _provider(service).begin(redirect_uri=redirect_uri)
    response = Response(status_code=303, headers={"Location": address})
    response.set_cookie(
        oidc.COOKIE,
        pending.seal(service.vault),
        max_age=oidc.MOST_SECONDS,
        path="/api/v1/session/provider",
        httponly=True,
        samesite="lax",
        secure=service.settings.secure_cookies,
    )
    return response


@provider_router.get("/return", response_class=Response, responses={200: {"content": {"text/html": {}}}})
def come_back(
    _: Everyone,
    request: Request,
    code: Annotated[str, Query(max_length=4000)] = "",
    state: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Complete the login after the identity provider's redirect."""
    service = service_of(request)
    provider = _provider(service)
    pending = oidc.open_pending(service.vault, request.cookies.get(oidc.COOKIE, ""))
    if not code:
        raise NotLoggedIn("the provider did not let her in", code="provider")
    name = provider.complete(pending, code=code, state=state)
    response = Response(_HOME, media_type="text/html")
    open_session(service, request, response, find_account(service, name))
    response.delete_cookie(oidc.COOKIE, path="/api/v1/session/provider")
    return response


def _provider(service: Service) -> oidc.Provider:
    if service.settings.oidc is None:
        raise NotFound("log-in through a provider is not set up", code="no-provider")
    return oidc.Provider(service.settings.oidc)
