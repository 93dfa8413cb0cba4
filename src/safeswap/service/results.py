"""What jobs made, as rows of the database and files of the project."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from sqlalchemy import Row, select

from safeswap.service.paging import Page, Paging, page_of
from safeswap.service.problems import Conflict, NotFound
from safeswap.service.roles import ProjectAccess
from safeswap.service.schemas.common import moment
from safeswap.service.schemas.library import ResultAnswer
from safeswap.service.state import service_of
from safeswap.service.tables import results, users

_LONG = frozenset({"cells", "combinations"})


def result_page(request: Request, access: ProjectAccess, kind: str, paging: Paging) -> Page[ResultAnswer]:
    """The results of one kind, newest first."""
    statement = _statement(access).where(results.c.kind == kind)
    with service_of(request).database.read() as connection:
        order = (results.c.created_at, results.c.id)
        return page_of(connection, statement, order=order, paging=paging, make=_in_a_list)


def find_result(request: Request, access: ProjectAccess, result_id: str, *kinds: str) -> Row[Any]:
    """One result of this project, of one of these kinds."""
    statement = _statement(access).where(results.c.id == result_id)
    with service_of(request).database.read() as connection:
        row = connection.execute(statement).one_or_none()
    if row is None or (kinds and row.kind not in kinds):
        raise NotFound(f"there is no such {kinds[0] if kinds else 'result'}", hint="see the list of this project's")
    return row


def find_masking(request: Request, access: ProjectAccess, result_id: str) -> Row[Any]:
    """A masking of the data that the project has now: masked again for a further question, it is the same."""
    row = find_result(request, access, result_id, "masking")
    if row.data_version != access.row.data_version:
        raise Conflict(
            "the data have been replaced since this masking was made", code="old-data", hint="mask the new data"
        )
    return row


def result_of(row: Row[Any]) -> ResultAnswer:
    """A row as the contract shows it."""
    return ResultAnswer(
        id=row.id,
        kind=row.kind,
        job=row.job_id,
        data_version=row.data_version,
        spec=row.spec,
        summary=row.summary,
        created_by=row.creator,
        created_at=moment(row.created_at),
    )


def _in_a_list(row: Row[Any]) -> ResultAnswer:
    found = result_of(row)
    return found.model_copy(update={"summary": brief(found.summary)})


def brief(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary as lists show it: the figures, without the tables behind them, which one asks for one by one.

    >>> brief({"made": 3, "scores": [{"measure": "n_rule", "value": 0.1, "detail": [1, 2]}], "cells": [[]]})
    {'made': 3, 'scores': [{'measure': 'n_rule', 'value': 0.1}]}
    """
    kept = {name: value for name, value in summary.items() if name not in _LONG}
    if "scores" in kept:
        kept["scores"] = [{name: each[name] for name in each if name != "detail"} for each in kept["scores"]]
    if isinstance(kept.get("choice"), dict):
        kept["choice"] = {name: value for name, value in kept["choice"].items() if name != "rivals"}
    return kept


def _statement(access: ProjectAccess) -> Any:
    return (
        select(results, users.c.name.label("creator"))
        .join(users, users.c.id == results.c.created_by)
        .where(results.c.project_id == access.id)
    )
