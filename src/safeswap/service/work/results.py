"""Results of jobs: rows of the database with files of the project."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from sqlalchemy import Column, Row, select

from safeswap.service.http.paging import Page, Paging, page_of
from safeswap.service.http.problems import Conflict, NotFound
from safeswap.service.keeping.tables import results, users
from safeswap.service.people.roles import ProjectAccess
from safeswap.service.schemas.library import ResultAnswer
from safeswap.service.schemas.projects import moment
from safeswap.service.state import service_of

LATEST = "latest"
NONE_YET: dict[int | str, dict[str, Any]] = {
    204: {"description": "`latest` was requested, but there is no result yet."}
}

# Full summaries hold the tables behind the figures: reading fifty of them would dominate a request.
_LIST_COLUMNS = [column for column in results.c if column.name != "summary"]


def result_page(request: Request, access: ProjectAccess, kind: str, paging: Paging) -> Page[ResultAnswer]:
    """Return a page of results of one kind, newest first."""
    statement = _statement(access, *_LIST_COLUMNS).where(results.c.kind == kind)
    with service_of(request).database.read() as connection:
        order = (results.c.created_at, results.c.id)
        return page_of(connection, statement, order=order, paging=paging, make=_list_item)


def find_result(request: Request, access: ProjectAccess, result_id: str, *kinds: str) -> Row[Any]:
    """Return one result of this project, of one of these kinds."""
    statement = _statement(access).where(results.c.id == result_id)
    with service_of(request).database.read() as connection:
        row = connection.execute(statement).one_or_none()
    if row is None or (kinds and row.kind not in kinds):
        raise NotFound(f"there is no such {kinds[0] if kinds else 'result'}", hint="see the list of this project's")
    return row


def find_or_latest(request: Request, access: ProjectAccess, result_id: str, kind: str) -> Row[Any] | None:
    """Return one result of this kind; ``latest`` is the newest, None if there is none.

    A client that shows the newest need not fetch the list first.
    """
    if result_id != LATEST:
        return find_result(request, access, result_id, kind)
    newest = _statement(access).where(results.c.kind == kind).order_by(results.c.created_at.desc(), results.c.id.desc())
    with service_of(request).database.read() as connection:
        return connection.execute(newest.limit(1)).one_or_none()


def find_masking(request: Request, access: ProjectAccess, result_id: str) -> Row[Any]:
    """Return a masking of the project's current data, so that masking again gives the same records."""
    row = find_result(request, access, result_id, "masking")
    if row.data_version != access.row.data_version:
        raise Conflict(
            "the data have been replaced since this masking was made", code="old-data", hint="mask the new data"
        )
    return row


def payload_of(row: Row[Any], content: bytes, name: str) -> Response:
    """Return a stored chart payload, with its permanent address in ``Content-Location``."""
    headers = {"Content-Location": f"../{row.id}/{name}"}
    return Response(content, media_type="application/json", headers=headers)


def result_of(row: Row[Any]) -> ResultAnswer:
    """Convert a row to its API model."""
    return _answer(row, row.summary)


def _list_item(row: Row[Any]) -> ResultAnswer:
    return _answer(row, row.brief)


def _answer(row: Row[Any], summary: dict[str, Any]) -> ResultAnswer:
    return ResultAnswer(
        id=row.id,
        kind=row.kind,
        job=row.job_id,
        data_version=row.data_version,
        spec=row.spec,
        summary=summary,
        created_by=row.creator,
        created_at=moment(row.created_at),
    )


def _statement(access: ProjectAccess, *columns: Column[Any]) -> Any:
    return (
        select(*(columns or (results,)), users.c.name.label("creator"))
        .join(users, users.c.id == results.c.created_by)
        .where(results.c.project_id == access.id)
    )
