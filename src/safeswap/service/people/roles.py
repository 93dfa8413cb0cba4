"""Authorisation: four roles, and a permission that every route must declare.

::

    permission   viewer  analyst  officer  admin   scope of a token
    public       everyone, without login
    self           ·        ·        ·       ·      read; no changes with a token
    read           ·        ·        ·              read
    work                    ·        ·              write
    decide                           ·              release
    export                 (·)       ·              none       analysts: if the setting `analysts_export` is on
    administer                               ·      none
    govern                           ·       ·      none       the agency's policy on attacks
    people         ·        ·        ·       ·      read       of a project: its members, and administrators
    invite                  ·        ·       ·      none       of a project: its creator, its officers, administrators

Routes of a project are for its members. To everyone else a project does not exist, except that administrators see its
members. Administrators see no data.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Path, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Connection, Row, select

from safeswap.model.key import Key
from safeswap.service.http import headers, wire
from safeswap.service.http.headers import host_of
from safeswap.service.http.problems import Conflict, Forbidden, NotFound, NotLoggedIn
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.tables import members, projects
from safeswap.service.people import sessions
from safeswap.service.settings import Settings
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
    row = sessions.find_token(service.database, secret)
    if row is None:
        return None
    return Caller(
        id=row.user_id, name=row.name, role=row.role, display_name=row.display_name, scopes=frozenset(row.scopes)
    )


def _identify_by_session(request: Request, service: Service, secret: str) -> Caller | None:
    row = sessions.find(service.database, service.settings, secret)
    if row is None or not headers.is_same_user(request, service.settings, row.name):
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
        raise Forbidden("this request came from a page of another origin", code="cross-origin")


class Role(StrEnum):
    """The role of a user."""

    VIEWER = "viewer"
    ANALYST = "analyst"
    OFFICER = "officer"
    ADMIN = "admin"


@dataclass(frozen=True)
class Permission:
    """The roles that have a permission, and the scope a token needs; None: not with a token."""

    roles: frozenset[str]
    scope: str | None


_EVERYONE = frozenset(Role)
_DATA = frozenset({Role.VIEWER, Role.ANALYST, Role.OFFICER})

PERMISSIONS = {
    "self": Permission(_EVERYONE, "read"),
    "read": Permission(_DATA, "read"),
    "work": Permission(frozenset({Role.ANALYST, Role.OFFICER}), "write"),
    "decide": Permission(frozenset({Role.OFFICER}), "release"),
    "export": Permission(frozenset({Role.OFFICER}), None),
    "administer": Permission(frozenset({Role.ADMIN}), None),
    "govern": Permission(frozenset({Role.OFFICER, Role.ADMIN}), None),
    "people": Permission(_EVERYONE, "read"),
    "invite": Permission(frozenset({Role.ANALYST, Role.OFFICER, Role.ADMIN}), None),
}

Dependency = Callable[..., Awaitable[Any]]


@dataclass(frozen=True)
class ProjectAccess:
    """A project, the authorised caller, and the service that has both."""

    row: Row[Any]
    user: Caller
    service: Service

    @property
    def id(self) -> str:
        """The project's id."""
        return str(self.row.id)

    @property
    def may_work(self) -> bool:
        """True if the caller may work on the file, and so see figures from which the rate may follow."""
        return may(self.user, "work", self.service.settings)

    @property
    def recipe(self) -> list[dict[str, Any]] | None:
        """The active steps of the project's recipe, as stored with every job."""
        recipe = self.row.recipe or {}
        steps: list[dict[str, Any]] = list(recipe.get("steps", []))
        return steps[: len(steps) - int(recipe.get("undone", 0))] or None

    def require_data(self) -> None:
        """Refuse a request that needs data if the project has none."""
        if self.row.data_version == 0:
            raise Conflict(
                "the project has no data yet" if self.row.state != "reading" else "the data are still being read",
                code="no-data",
                hint="PUT /projects/{project_id}/data, and wait for its job",
            )

    @property
    def key(self) -> Key:
        """The project's secret key."""
        return self.service.vault.project_key(self.id)

    def record(
        self, connection: Connection, action: str, subject: str = "", detail: Mapping[str, Any] | None = None
    ) -> int:
        """Add an entry about this project to the audit log, in the caller's transaction; return its number."""
        return auditlog.record(connection, self.user.name, action, self.id, subject, detail)


def allow(permission: str, *, once: bool = True) -> Dependency:
    """Return a route dependency that requires a permission and yields the :class:`Caller` (None if public).

    A ``POST`` with an ``Idempotency-Key`` is executed once; use ``once=False`` if the response holds a secret that must
    not be stored. Read-only requests are simply repeated: their responses describe the data and are not stored.
    """
    once = once and permission != "read"
    if permission == "public":
        return _mark(_allow_anyone, permission)

    async def check(request: Request) -> Caller:
        caller = await run_in_threadpool(_authorise, request, permission)
        if once:
            await wire.claim_key(request, caller.id)
        return caller

    return _mark(check, permission)


def project(permission: str, *, once: bool = True) -> Dependency:
    """Return a dependency for routes below ``/projects/{project_id}`` that yields the :class:`ProjectAccess`."""
    once = once and permission != "read"

    async def check(
        request: Request, project_id: Annotated[str, Path(description="The project.", examples=["5f0c…"])]
    ) -> ProjectAccess:
        access = await run_in_threadpool(_project_access, request, project_id, permission)
        if once:
            await wire.claim_key(request, access.user.id)
        return access

    return _mark(check, permission)


def permissions_of(role: str, settings: Settings) -> list[str]:
    """Return the permissions of a role."""
    more = {"export"} if role == Role.ANALYST and settings.analysts_export else set()
    return [name for name, permission in PERMISSIONS.items() if role in permission.roles or name in more]


def check_permission(caller: Caller, permission: str, settings: Settings, *, unsafe: bool = False) -> None:
    """Refuse a permission that the role or the token's scopes do not include."""
    wanted = PERMISSIONS[permission]
    if permission not in permissions_of(caller.role, settings):
        raise Forbidden(f"the role {caller.role} does not allow this", code="role", role=caller.role)
    if caller.scopes is None:
        return
    if wanted.scope is None or (permission == "self" and unsafe):
        raise Forbidden("this cannot be done with a token", code="not-by-token", hint="log in")
    if wanted.scope not in caller.scopes:
        raise Forbidden(f"the token has no scope {wanted.scope}", code="scope", needed=wanted.scope)


def may(caller: Caller, permission: str, settings: Settings) -> bool:
    """Return whether the role and the token's scopes include a permission."""
    try:
        check_permission(caller, permission, settings)
    except Forbidden:
        return False
    return True


def project_access(request: Request, caller: Caller, project_id: str, permission: str) -> ProjectAccess:
    """Authorise access to a project; for routes that find the project indirectly."""
    service = service_of(request)
    check_permission(caller, permission, service.settings, unsafe=request.method not in {"GET", "HEAD"})
    is_member = select(members.c.user_id).where(members.c.project_id == projects.c.id, members.c.user_id == caller.id)
    statement = select(projects, is_member.exists().label("is_member")).where(
        projects.c.id == project_id, projects.c.state != "deleted"
    )
    with service.database.read() as connection:
        row = connection.execute(statement).one_or_none()
    if row is None or not (row.is_member or caller.role == Role.ADMIN):
        raise NotFound("there is no such project", hint="see GET /projects")
    if permission == "invite" and not _may_invite(row, caller):
        raise Forbidden(
            "only the creator of a project, its officers and administrators can change its members", code="role"
        )
    return ProjectAccess(row=row, user=caller, service=service)


def _may_invite(row: Row[Any], caller: Caller) -> bool:
    return caller.role in {Role.ADMIN, Role.OFFICER} or row.created_by == caller.id


def _authorise(request: Request, permission: str) -> Caller:
    caller = identify(request)
    if caller is None:
        raise NotLoggedIn(hint="POST /session, or send a token")
    settings = service_of(request).settings
    check_permission(caller, permission, settings, unsafe=request.method not in {"GET", "HEAD"})
    return caller


def _project_access(request: Request, project_id: str, permission: str) -> ProjectAccess:
    return project_access(request, _authorise(request, permission), project_id, permission)


async def _allow_anyone() -> None:
    return None


def _mark(dependency: Dependency, permission: str) -> Dependency:
    """Attach the permission to a dependency, for the contract and its tests."""

    dependency.permission = permission  # type: ignore[attr-defined]
    return dependency


def permission_of(route: Any) -> str | None:
    """Return the permission that a route declares, or None."""
    stated = [getattr(each.call, "permission", None) for each in _all_dependencies(route.dependant)]
    found = [each for each in stated if each is not None]
    return found[0] if len(found) == 1 else None


def _all_dependencies(dependant: Any) -> list[Any]:
    return [each for child in dependant.dependencies for each in (child, *_all_dependencies(child))]


Everyone = Annotated[None, Depends(allow("public"))]
Admin = Annotated[Caller, Depends(allow("administer"))]
Reader = Annotated[ProjectAccess, Depends(project("read"))]
Worker = Annotated[ProjectAccess, Depends(project("work"))]
WorkReader = Annotated[ProjectAccess, Depends(project("work", once=False))]
"""For what is only read, by who may work on the file."""
Governor = Annotated[Caller, Depends(allow("govern"))]
Officer = Annotated[ProjectAccess, Depends(project("decide"))]
