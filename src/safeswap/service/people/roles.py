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
    people         ·        ·        ·       ·      read       of a project: its members, and administrators
    invite                  ·        ·       ·      none       of a project: its creator, its officers, administrators

Routes of a project are for its members. To everyone else a project does not exist, except that administrators see its
members. Administrators see no data.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Depends, Path, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Row, select

from safeswap.service.http import etags
from safeswap.service.http.problems import Conflict, Forbidden, NotFound, NotLoggedIn
from safeswap.service.keeping.tables import members, projects
from safeswap.service.people.callers import Caller, identify
from safeswap.service.settings import Settings
from safeswap.service.state import service_of


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
    "people": Permission(_EVERYONE, "read"),
    "invite": Permission(frozenset({Role.ANALYST, Role.OFFICER, Role.ADMIN}), None),
}

Dependency = Callable[..., Awaitable[Any]]


@dataclass(frozen=True)
class ProjectAccess:
    """A project and the authorised caller."""

    row: Row[Any]
    user: Caller

    @property
    def id(self) -> str:
        """The project's id."""
        return str(self.row.id)

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
            await etags.claim_key(request, caller.id)
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
            await etags.claim_key(request, access.user.id)
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


def project_access(request: Request, caller: Caller, project_id: str, permission: str) -> ProjectAccess:
    """Authorise access to a project; for routes that find the project indirectly."""
    settings = service_of(request).settings
    check_permission(caller, permission, settings, unsafe=request.method not in {"GET", "HEAD"})
    is_member = select(members.c.user_id).where(members.c.project_id == projects.c.id, members.c.user_id == caller.id)
    statement = select(projects, is_member.exists().label("is_member")).where(
        projects.c.id == project_id, projects.c.state != "deleted"
    )
    with service_of(request).database.read() as connection:
        row = connection.execute(statement).one_or_none()
    if row is None or not (row.is_member or caller.role == Role.ADMIN):
        raise NotFound("there is no such project", hint="see GET /projects")
    if permission == "invite" and not _may_invite(row, caller):
        raise Forbidden("only who made the project, its officers and administrators change its members", code="role")
    return ProjectAccess(row=row, user=caller)


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


Reader = Annotated[ProjectAccess, Depends(project("read"))]
Worker = Annotated[ProjectAccess, Depends(project("work"))]
Officer = Annotated[ProjectAccess, Depends(project("decide"))]
