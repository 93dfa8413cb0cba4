"""Login, logout and the session, also through an identity provider; accounts, passwords and tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field, SecretStr
from sqlalchemy import Connection, Row, func, select, update

from safeswap.service.http import headers
from safeswap.service.http.problems import Conflict, Forbidden, NotFound, NotLoggedIn, Unprocessable
from safeswap.service.http.wire import Name, Page, Paged, Text, Wire, example, require_match, set_etag, version_conflict
from safeswap.service.keeping import auditlog, tables
from safeswap.service.keeping.tables import users
from safeswap.service.people import accounts, oidc, sessions
from safeswap.service.people.roles import Caller, Everyone, Role, allow, check_origin, permissions_of
from safeswap.service.settings import Settings
from safeswap.service.state import Service, service_of

router = APIRouter(prefix="/session", tags=["session"])

Self = Annotated[Caller, Depends(allow("self", once=False))]  # a response may hold a secret: it is not stored


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
        proxy=headers.name_from(request, settings) is not None,
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
    proxied = headers.name_from(request, service.settings)
    if proxied is not None:
        return find_account(service, proxied)
    if service.settings.single_user:
        return _redeem_start_token(service, body.start_token.get_secret_value())
    if not body.name or not body.password.get_secret_value():
        raise Unprocessable("name and password are needed", code="no-password")
    address = headers.address_of(request, service.settings)
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
        raise NotLoggedIn("the identity provider refused the login", code="provider")
    name = provider.complete(pending, code=code, state=state)
    response = Response(_HOME, media_type="text/html")
    open_session(service, request, response, find_account(service, name))
    response.delete_cookie(oidc.COOKIE, path="/api/v1/session/provider")
    return response


def _provider(service: Service) -> oidc.Provider:
    if service.settings.oidc is None:
        raise NotFound("log-in through a provider is not set up", code="no-provider")
    return oidc.Provider(service.settings.oidc)


tokens_router = APIRouter(prefix="/tokens", tags=["session"])
users_router = APIRouter(tags=["people"])


# Requests with a password are not stored for retries, not even as a hash, which could be brute-forced.
Admin = Annotated[Caller, Depends(allow("administer", once=False))]
UserId = Annotated[str, Path(max_length=64)]
RoleName = Literal["viewer", "analyst", "officer", "admin"]
Scope = Literal["read", "write", "release"]


class UserRequest(Wire):
    """A new user."""

    model_config = example(name="ada", role="analyst", display_name="Ada Lovelace")

    name: Name
    role: RoleName
    display_name: Text = Field(default="", max_length=200)
    password: SecretStr | None = Field(
        default=None, max_length=1000, description="Omit for login through a provider or proxy."
    )


class UserChange(Wire):
    """Changes to a user. A new role, a new password or deactivation ends all sessions."""

    model_config = example(role="officer")

    role: RoleName | None = None
    display_name: Text | None = Field(default=None, max_length=200)
    active: bool | None = None
    password: SecretStr | None = Field(default=None, max_length=1000)
    revoke_tokens: bool = Field(default=True, description="Whether a new password also revokes the user's tokens.")


class PasswordChange(Wire):
    """A new password for the current user."""

    model_config = example(current="…", new="…")

    current: SecretStr = Field(max_length=1000)
    new: SecretStr = Field(max_length=1000)
    revoke_tokens: bool = Field(default=True, description="Whether to revoke your tokens too.")


class UserAnswer(Wire):
    """A user."""

    model_config = example(
        id="5f0c",
        name="ada",
        display_name="Ada Lovelace",
        role="analyst",
        active=True,
        has_password=True,
        created_at="2026-01-01T09:00:00Z",
        version=1,
    )

    id: str
    name: str
    display_name: str
    role: RoleName
    active: bool
    has_password: bool
    created_at: datetime | None
    version: int


class TokenRequest(Wire):
    """A new token for a program."""

    model_config = example(name="nightly run", scopes=["read", "write"], days=30)

    name: Name
    scopes: tuple[Scope, ...] = Field(min_length=1, max_length=3)
    days: int = Field(default=30, ge=1, le=366, description="Days until the token expires.")


class TokenAnswer(Wire):
    """An API token; its secret is shown only on creation."""

    model_config = example(
        id="11aa",
        name="nightly run",
        scopes=["read", "write"],
        created_at="2026-01-01T09:00:00Z",
        expires_at="2026-01-31T09:00:00Z",
        last_used_at=None,
        revoked=False,
        secret=None,
    )

    id: str
    name: str
    scopes: tuple[Scope, ...]
    created_at: datetime | None
    expires_at: datetime | None
    last_used_at: datetime | None = None
    revoked: bool = False
    secret: str | None = Field(default=None, description="Shown only once.")


@tokens_router.get("")
def list_tokens(user: Self, paging: Paged) -> Page[TokenAnswer]:
    """List your API tokens, newest first, without their secrets."""
    mine = select(tables.tokens).where(tables.tokens.c.user_id == user.id)
    order = (tables.tokens.c.created_at, tables.tokens.c.id)
    return paging.page(mine, order=order, make=_token_answer)


@tokens_router.post("", status_code=201)
def make_token(request: Request, user: Self, body: TokenRequest) -> TokenAnswer:
    """Create an API token. Its secret is shown only in this response."""
    with service_of(request).database.write() as connection:
        token_id, secret = sessions.make_token(
            connection, user_id=user.id, name=body.name, scopes=body.scopes, days=body.days
        )
        auditlog.record(connection, user.name, "token.make", "", token_id, {"scopes": list(body.scopes)})
        row = connection.execute(select(tables.tokens).where(tables.tokens.c.id == token_id)).one()
    return _token_answer(row).model_copy(update={"secret": secret})


@tokens_router.delete("/{token_id}", status_code=204)
def revoke_token(request: Request, user: Self, token_id: Annotated[str, Path(max_length=64)]) -> None:
    """Revoke one of your API tokens."""
    with service_of(request).database.write() as connection:
        if not sessions.revoke_token(connection, token_id=token_id, user_id=user.id):
            raise NotFound("there is no such token", hint="see GET /tokens")
        auditlog.record(connection, user.name, "token.revoke", "", token_id)


def _token_answer(row: Row[Any]) -> TokenAnswer:
    return TokenAnswer.of(row, revoked=row.revoked_at is not None)


@users_router.get("/users")
def list_users(_: Admin, paging: Paged) -> Page[UserAnswer]:
    """List all users, by name."""
    return paging.page(select(users), order=(users.c.name,), make=_user_answer, newest_first=False)


@users_router.post("/users", status_code=201)
def add_user(request: Request, response: Response, admin: Admin, body: UserRequest) -> UserAnswer:
    """Add a user."""
    hashed = _hash_password(body.password, body.name)
    with service_of(request).database.write() as connection:
        user_id = accounts.add_user(
            connection, name=body.name, role=body.role, password_hash=hashed, display_name=body.display_name
        )
        auditlog.record(connection, admin.name, "user.add", "", user_id, {"role": body.role})
        row = _find_user(connection, user_id)
    response.headers["Location"] = f"{request.url.path}/{user_id}"
    set_etag(response, row.version)
    return _user_answer(row)


@users_router.get("/users/{user_id}")
def get_user(request: Request, response: Response, _: Admin, user_id: UserId) -> UserAnswer:
    """Get one user."""
    with service_of(request).database.read() as connection:
        row = _find_user(connection, user_id)
    set_etag(response, row.version)
    return _user_answer(row)


@users_router.patch("/users/{user_id}")
def change_user(request: Request, response: Response, admin: Admin, user_id: UserId, body: UserChange) -> UserAnswer:
    """Change a user's role, display name or password, or deactivate the account."""
    service = service_of(request)
    with service.database.read() as connection:
        row = _find_user(connection, user_id)
    require_match(request, row.version)
    changes = _select_changes(row, body)
    with service.database.write() as connection:
        _refuse_last_administrator(connection, row, changes)
        _update(connection, row, changes)
        if {"role", "active", "password_hash"} & set(changes):
            sessions.end_all(connection, user_id)
        if {"role", "active"} & set(changes) or ("password_hash" in changes and body.revoke_tokens):
            sessions.revoke_all(connection, user_id)
        logged = {name: value for name, value in changes.items() if name in {"role", "active"}}
        auditlog.record(
            connection, admin.name, "user.change", "", user_id, {**logged, "password": "password_hash" in changes}
        )
        row = _find_user(connection, user_id)
    set_etag(response, row.version)
    return _user_answer(row)


@users_router.put("/session/password", status_code=204)
def change_password(request: Request, response: Response, user: Self, body: PasswordChange) -> None:
    """Change your password; ends all other sessions and, unless stated, all tokens; this session gets a new secret."""
    service = service_of(request)
    with service.database.read() as connection:
        row = _find_user(connection, user.id)
    # Guessing in an open session is throttled like a login.
    attempt = accounts.count_attempt(service, name=user.name, address=headers.address_of(request, service.settings))
    if not accounts.check_password(row.password_hash, body.current.get_secret_value()):
        raise Forbidden("the current password is another one", code="wrong-password")
    hashed = accounts.hash_password(body.new.get_secret_value(), name=user.name)
    with service.database.write() as connection:
        connection.execute(update(users).where(users.c.id == user.id).values(password_hash=hashed))
        accounts.clear_attempts(connection, service, attempt, name=user.name)
        sessions.end_all(connection, user.id)
        if body.revoke_tokens:
            sessions.revoke_all(connection, user.id)
        new = sessions.open_session(connection, service.settings, user.id)
        detail = {"tokens_revoked": body.revoke_tokens}
        auditlog.record(connection, user.name, "user.password", "", user.id, detail)
    sessions.set_cookie(response, service.settings, new)


def _find_user(connection: Connection, user_id: str) -> Row[Any]:
    row = connection.execute(select(users).where(users.c.id == user_id)).one_or_none()
    if row is None:
        raise NotFound("there is no such person", hint="see GET /users")
    return row


def _select_changes(row: Row[Any], body: UserChange) -> dict[str, Any]:
    """Return the values that differ from the current ones."""
    wanted = {"role": body.role, "display_name": body.display_name, "active": body.active}
    changes: dict[str, Any] = {
        name: value for name, value in wanted.items() if value is not None and value != row._mapping[name]
    }
    if body.password is not None:
        changes["password_hash"] = _hash_password(body.password, row.name)
    return changes


def _hash_password(password: SecretStr | None, name: str) -> str | None:
    return accounts.hash_password(password.get_secret_value(), name=name) if password is not None else None


def _refuse_last_administrator(connection: Connection, row: Row[Any], changes: dict[str, Any]) -> None:
    """Refuse to remove the last administrator: nobody could add another."""
    leaves = changes.get("active") is False or changes.get("role", Role.ADMIN) != Role.ADMIN
    if row.role != Role.ADMIN or not row.active or not leaves:
        return
    others = select(func.count()).where(users.c.role == Role.ADMIN, users.c.active, users.c.id != row.id)
    if connection.execute(others).scalar_one() == 0:
        raise Conflict("this is the last administrator", code="last-administrator", hint="add another one first")


def _update(connection: Connection, row: Row[Any], changes: dict[str, Any]) -> None:
    same = (users.c.id == row.id) & (users.c.version == row.version)
    if connection.execute(update(users).where(same).values(**changes, version=row.version + 1)).rowcount != 1:
        raise version_conflict()


def _user_answer(row: Row[Any]) -> UserAnswer:
    return UserAnswer.of(row, has_password=row.password_hash is not None)
