"""User accounts, managed by administrators, and users' own passwords and tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import Field, SecretStr
from sqlalchemy import Connection, Row, func, select, update

from safeswap.service.http import proxy
from safeswap.service.http.etags import require_match, set_etag, version_conflict
from safeswap.service.http.problems import Conflict, Forbidden, NotFound
from safeswap.service.http.wire import Name, Page, Paged, Text, Wire, example
from safeswap.service.keeping import auditlog, tables
from safeswap.service.keeping.tables import users
from safeswap.service.people import accounts, sessions
from safeswap.service.people.roles import Caller, Role, allow
from safeswap.service.state import service_of

tokens_router = APIRouter(prefix="/tokens", tags=["session"])
router = APIRouter(tags=["people"])

Self = Annotated[Caller, Depends(allow("self", once=False))]  # the response holds a secret and must not be stored

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


@router.get("/users")
def list_users(_: Admin, paging: Paged) -> Page[UserAnswer]:
    """List all users, by name."""
    return paging.page(select(users), order=(users.c.name,), make=_user_answer, newest_first=False)


@router.post("/users", status_code=201)
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


@router.get("/users/{user_id}")
def get_user(request: Request, response: Response, _: Admin, user_id: UserId) -> UserAnswer:
    """Get one user."""
    with service_of(request).database.read() as connection:
        row = _find_user(connection, user_id)
    set_etag(response, row.version)
    return _user_answer(row)


@router.patch("/users/{user_id}")
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


@router.put("/session/password", status_code=204)
def change_password(request: Request, response: Response, user: Self, body: PasswordChange) -> None:
    """Change your password; ends all other sessions and, unless stated, all tokens; this session gets a new secret."""
    service = service_of(request)
    with service.database.read() as connection:
        row = _find_user(connection, user.id)
    # Guessing in an open session is throttled like a login.
    attempt = accounts.count_attempt(service, name=user.name, address=proxy.address_of(request, service.settings))
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
        raise Conflict("this is the last administrator", code="last-administrator", hint="let another one in first")


def _update(connection: Connection, row: Row[Any], changes: dict[str, Any]) -> None:
    same = (users.c.id == row.id) & (users.c.version == row.version)
    if connection.execute(update(users).where(same).values(**changes, version=row.version + 1)).rowcount != 1:
        raise version_conflict()


def _user_answer(row: Row[Any]) -> UserAnswer:
    return UserAnswer.of(row, has_password=row.password_hash is not None)
