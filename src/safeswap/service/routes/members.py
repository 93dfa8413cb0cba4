"""Who belongs to a project: to everybody else it does not exist."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from sqlalchemy import Connection, Row, delete, func, insert, select

from safeswap.service import accounts, auditlog
from safeswap.service.callers import Caller
from safeswap.service.database import now
from safeswap.service.paging import Page, Paged, page_of
from safeswap.service.problems import Conflict, NotFound
from safeswap.service.roles import ProjectAccess, Role, allow, project
from safeswap.service.schemas.common import moment
from safeswap.service.schemas.people import MemberAnswer, OverviewAnswer
from safeswap.service.state import service_of
from safeswap.service.tables import members, projects, users

router = APIRouter(tags=["people"])

Member = Annotated[ProjectAccess, Depends(project("people"))]
Host = Annotated[ProjectAccess, Depends(project("invite"))]
Admin = Annotated[Caller, Depends(allow("administer"))]
UserName = Annotated[str, Path(max_length=200, description="The name with which she logs in.")]


@router.get("/projects/{project_id}/members")
def list_members(request: Request, access: Member, paging: Paged) -> Page[MemberAnswer]:
    """The members of a project, by name."""
    statement = _members(access)
    with service_of(request).database.read() as connection:
        return page_of(connection, statement, order=(users.c.name,), paging=paging, make=_shown, newest_first=False)


@router.put("/projects/{project_id}/members/{user_name}")
def add_member(request: Request, access: Host, user_name: UserName) -> MemberAnswer:
    """Let somebody see the project and, as far as her role goes, work on it."""
    with service_of(request).database.write() as connection:
        user = _person(connection, user_name)
        if user.role == Role.ADMIN:
            raise Conflict("administrators see no data", code="administrator", hint="add a person of another role")
        mine = members.c.project_id == access.id, members.c.user_id == user.id
        if connection.execute(select(members).where(*mine)).one_or_none() is None:
            connection.execute(insert(members).values(project_id=access.id, user_id=user.id, added_at=now()))
            auditlog.record(connection, access.user.name, "member.add", access.id, user.id)
        return _shown(connection.execute(_members(access).where(users.c.id == user.id)).one())


@router.delete("/projects/{project_id}/members/{user_name}", status_code=204)
def remove_member(request: Request, access: Host, user_name: UserName) -> None:
    """From now on the project does not exist for her."""
    with service_of(request).database.write() as connection:
        user = _person(connection, user_name)
        mine = members.c.project_id == access.id, members.c.user_id == user.id
        if connection.execute(delete(members).where(*mine)).rowcount == 0:
            raise NotFound("she is no member of this project", hint="see GET /projects/{project_id}/members")
        auditlog.record(connection, access.user.name, "member.remove", access.id, user.id)


@router.get("/administration/projects")
def list_all_projects(request: Request, _: Admin, paging: Paged) -> Page[OverviewAnswer]:
    """All projects as an administrator sees them: whose they are and whether they are used."""
    count = select(func.count()).where(members.c.project_id == projects.c.id).scalar_subquery()
    statement = (
        select(projects, users.c.name.label("owner"), count.label("count"))
        .join(users, users.c.id == projects.c.created_by)
        .where(projects.c.state != "deleted")
    )
    with service_of(request).database.read() as connection:
        return page_of(
            connection, statement, order=(projects.c.created_at, projects.c.id), paging=paging, make=_overview
        )


def _members(access: ProjectAccess) -> Any:
    return (
        select(users.c.name, users.c.display_name, users.c.role, members.c.added_at)
        .join(members, members.c.user_id == users.c.id)
        .where(members.c.project_id == access.id)
    )


def _person(connection: Connection, name: str) -> Row[Any]:
    user = accounts.user_by_name(connection, name)
    if user is None:
        raise NotFound("there is no such person", hint="an administrator lets people in")
    return user


def _shown(row: Row[Any]) -> MemberAnswer:
    return MemberAnswer(name=row.name, display_name=row.display_name, role=row.role, added_at=moment(row.added_at))


def _overview(row: Row[Any]) -> OverviewAnswer:
    return OverviewAnswer(
        id=row.id,
        name=row.name,
        state=row.state,
        created_by=row.owner,
        created_at=moment(row.created_at),
        used_at=moment(row.used_at),
        members=row._mapping["count"],
    )
