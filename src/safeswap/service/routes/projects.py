"""Projects and their members."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import Field
from sqlalchemy import Connection, Row, delete, func, insert, select, update

from safeswap.service.http.problems import Conflict, Forbidden, NotFound
from safeswap.service.http.wire import Name, Page, Paged, Wire, example, require_match, set_etag, version_conflict
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import new_id, now
from safeswap.service.keeping.tables import jobs, members, projects, releases, users
from safeswap.service.people import accounts
from safeswap.service.people.roles import Admin, Caller, ProjectAccess, Role, Worker, allow, project
from safeswap.service.routes.session import RoleName
from safeswap.service.state import service_of

members_router = APIRouter(tags=["people"])
router = APIRouter(tags=["projects"])

Member = Annotated[ProjectAccess, Depends(project("people"))]
Inviter = Annotated[ProjectAccess, Depends(project("invite"))]
UserName = Annotated[str, Path(max_length=200, description="Login name of the user.")]

_TOLERANCE = (
    "Smallest count shown. The default is the agency's, which is also the floor: only an officer may go below it, or "
    "lower an earlier value."
)


class ProjectRequest(Wire):
    """A new project."""

    model_config = example(name="Labour force survey 2026", tolerance=3)

    name: Name
    tolerance: int | None = Field(default=None, ge=1, le=1000, description=_TOLERANCE)


class ProjectChange(Wire):
    """Changes to a project."""

    model_config = example(tolerance=5)

    name: Name | None = None
    tolerance: int | None = Field(default=None, ge=1, le=1000, description=_TOLERANCE)


class ProjectAnswer(Wire):
    """A project: a file, its description, and its results."""

    model_config = example(
        id="0b6b9f6c",
        name="Labour force survey 2026",
        state="ready",
        tolerance=3,
        file_name="survey.csv",
        data_version=1,
        records=48842,
        created_by="anna",
        created_at="2026-01-01T09:00:00Z",
        version=2,
        waiting=1,
    )

    id: str
    name: str
    state: Literal["empty", "reading", "ready", "broken", "deleted"]
    tolerance: int
    file_name: str
    data_version: int
    records: int
    created_by: str
    created_at: datetime | None
    version: int
    waiting: int = Field(description="Releases waiting for a decision.")


class MemberAnswer(Wire):
    """A member of a project."""

    model_config = example(name="ada", display_name="Ada", role="analyst", added_at="2026-01-01T09:00:00Z")

    name: str
    display_name: str
    role: RoleName
    added_at: datetime | None


class OverviewAnswer(Wire):
    """A project as administrators see it: owner and last use, nothing about the data."""

    model_config = example(
        id="5f0c",
        name="Survey",
        state="ready",
        created_by="ada",
        created_at="2026-01-01T09:00:00Z",
        used_at="2026-01-01T09:00:00Z",
        members=2,
    )

    id: str
    name: str
    state: str
    created_by: str
    created_at: datetime | None
    used_at: datetime | None
    members: int


@members_router.get("/projects/{project_id}/members")
def list_members(access: Member, paging: Paged) -> Page[MemberAnswer]:
    """List the members of a project, by name."""
    statement = _select_members(access)
    return paging.page(statement, order=(users.c.name,), make=MemberAnswer.of, newest_first=False)


@members_router.put("/projects/{project_id}/members/{user_name}")
def add_member(access: Inviter, user_name: UserName) -> MemberAnswer:
    """Add a member, who can see the project and work on it as far as their role allows."""
    with access.service.database.write() as connection:
        user = _find_user(connection, user_name)
        if user.role == Role.ADMIN:
            raise Conflict("administrators see no data", code="administrator", hint="add a person of another role")
        mine = members.c.project_id == access.id, members.c.user_id == user.id
        if connection.execute(select(members).where(*mine)).one_or_none() is None:
            connection.execute(insert(members).values(project_id=access.id, user_id=user.id, added_at=now()))
            access.record(connection, "member.add", user.id)
        return MemberAnswer.of(connection.execute(_select_members(access).where(users.c.id == user.id)).one())


@members_router.delete("/projects/{project_id}/members/{user_name}", status_code=204)
def remove_member(access: Inviter, user_name: UserName) -> None:
    """Remove a member, for whom the project no longer exists."""
    with access.service.database.write() as connection:
        user = _find_user(connection, user_name)
        mine = members.c.project_id == access.id, members.c.user_id == user.id
        if connection.execute(delete(members).where(*mine)).rowcount == 0:
            raise NotFound("this person is not a member of the project", hint="see GET /projects/{project_id}/members")
        access.record(connection, "member.remove", user.id)


@members_router.get("/administration/projects")
def list_all_projects(_: Admin, paging: Paged) -> Page[OverviewAnswer]:
    """List all projects for an administrator: owner and last use, nothing about the data."""
    count = select(func.count()).where(members.c.project_id == projects.c.id).scalar_subquery()
    statement = (
        select(projects, users.c.name.label("owner"), count.label("members"))
        .join(users, users.c.id == projects.c.created_by)
        .where(projects.c.state != "deleted")
    )
    return paging.page(statement, order=(projects.c.created_at, projects.c.id), make=_overview_answer)


def _select_members(access: ProjectAccess) -> Any:
    return (
        select(users.c.name, users.c.display_name, users.c.role, members.c.added_at)
        .join(members, members.c.user_id == users.c.id)
        .where(members.c.project_id == access.id)
    )


def _find_user(connection: Connection, name: str) -> Row[Any]:
    user = accounts.user_by_name(connection, name)
    if user is None:
        raise NotFound("there is no such person", hint="ask an administrator to add the person")
    return user


def _overview_answer(row: Row[Any]) -> OverviewAnswer:
    return OverviewAnswer.of(row, created_by=row.owner)


@router.get("/projects")
def list_projects(caller: Annotated[Caller, Depends(allow("people"))], paging: Paged) -> Page[ProjectAnswer]:
    """List the projects you are a member of, newest first. Administrators see the names of all, and no more."""
    statement = _select_projects().where(projects.c.state != "deleted")
    if caller.role != Role.ADMIN:
        mine = select(members.c.project_id).where(members.c.user_id == caller.id)
        statement = statement.where(projects.c.id.in_(mine))
    order = (projects.c.created_at, projects.c.id)
    return paging.page(statement, order=order, make=lambda row: _answer(row, caller))


@router.post("/projects", status_code=201)
def make_project(
    request: Request, response: Response, caller: Annotated[Caller, Depends(allow("work"))], body: ProjectRequest
) -> ProjectAnswer:
    """Create a project; the creator is its first member."""
    at, project_id, floor = now(), new_id(), service_of(request).settings.tolerance
    tolerance = floor if body.tolerance is None else body.tolerance
    _refuse_lower_tolerance(caller, tolerance, floor)
    row = {"id": project_id, "name": body.name, "tolerance": tolerance, "created_by": caller.id}
    with service_of(request).database.write() as connection:
        connection.execute(insert(projects).values(**row, state="empty", created_at=at, used_at=at))
        connection.execute(insert(members).values(project_id=project_id, user_id=caller.id, added_at=at))
        detail = {"tolerance": tolerance, "floor": floor} if tolerance < floor else {}
        auditlog.record(connection, actor=caller.name, action="project.make", project_id=project_id, detail=detail)
        made = connection.execute(_select_projects().where(projects.c.id == project_id)).one()
    response.headers["Location"] = request.url_for("get_project", project_id=project_id).path
    set_etag(response, made.version)
    return _answer(made, caller)


@router.get("/projects/{project_id}")
def get_project(response: Response, access: Member) -> ProjectAnswer:
    """Get one project."""
    with access.service.database.read() as connection:
        row = connection.execute(_select_projects().where(projects.c.id == access.id)).one()
    set_etag(response, row.version)
    return _answer(row, access.user)


@router.patch("/projects/{project_id}")
def change_project(request: Request, response: Response, access: Worker, body: ProjectChange) -> ProjectAnswer:
    """Change the name or the tolerance of a project. Existing descriptions keep their tolerance."""
    require_match(request, access.row.version)
    stated = {name: value for name, value in body.model_dump().items() if value is not None}
    floor = max(access.row.tolerance, access.service.settings.tolerance)
    _refuse_lower_tolerance(access.user, stated.get("tolerance", floor), floor)
    before = {"tolerance_before": access.row.tolerance} if "tolerance" in stated else {}
    with access.service.database.write() as connection:
        change = update(projects).where(projects.c.id == access.id, projects.c.version == access.row.version)
        if connection.execute(change.values(**stated, version=access.row.version + 1, used_at=now())).rowcount != 1:
            raise version_conflict()
        access.record(connection, "project.change", detail=stated | before)
        row = connection.execute(_select_projects().where(projects.c.id == access.id)).one()
    set_etag(response, row.version)
    return _answer(row, access.user)


@router.delete("/projects/{project_id}", status_code=204)
def delete_project(access: Worker) -> Response:
    """Delete a project: its files are overwritten and removed. Releases stay in the ledger and the audit log."""
    from safeswap.service.keeping.store import delete_project as delete_everything

    if access.user.role != Role.OFFICER and access.row.created_by != access.user.id:
        raise Forbidden("only who made a project, and its officers, delete it", code="role")
    service = access.service
    with service.database.read() as connection:
        running = select(jobs.c.id).where(jobs.c.project_id == access.id, jobs.c.state == "running").limit(1)
        if connection.execute(running).one_or_none() is not None:
            raise Conflict("a job of this project is running", code="busy", hint="cancel it, or wait until it ends")
    log = partial(access.record, action="project.delete")
    delete_everything(service.database, service.store, access.id, also=log)
    service.data_cache.forget(access.id)
    return Response(status_code=204)


def _refuse_lower_tolerance(caller: Caller, tolerance: int, floor: int) -> None:
    if tolerance < floor and caller.role != Role.OFFICER:
        raise Forbidden(
            f"counts below {floor} are shown only with the consent of an officer",
            code="tolerance-floor",
            hint="state a larger tolerance, or ask an officer of the project",
            floor=floor,
        )


def _select_projects() -> Any:
    asked = releases.c.project_id == projects.c.id, releases.c.state == "requested"
    waiting = select(func.count()).where(*asked).scalar_subquery().label("waiting")
    return select(projects, users.c.name.label("creator"), waiting).join(users, users.c.id == projects.c.created_by)


def _answer(row: Row[Any], caller: Caller) -> ProjectAnswer:
    unseen: dict[str, Any] = {"file_name": "", "records": 0, "waiting": 0} if caller.role == Role.ADMIN else {}
    return ProjectAnswer.of(row, created_by=row.creator, **unseen)
