"""Whether the service lives, whether it can work, and how busy it is; nothing about data or people."""

from __future__ import annotations

import shutil
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel
from sqlalchemy import func, select

from safeswap.service.http.metrics import METRICS
from safeswap.service.http.problems import NotFound
from safeswap.service.keeping.tables import releases
from safeswap.service.people.roles import allow
from safeswap.service.state import Service, service_of

router = APIRouter(tags=["health"])

Everybody = Annotated[None, Depends(allow("public"))]


class Health(BaseModel):
    """That the service answers."""

    status: Literal["ok"] = "ok"


@router.get("/health/live")
def live(_: Everybody) -> Health:
    """Whether the process answers."""
    return Health()


@router.get("/health/ready")
def ready(_: Everybody, request: Request) -> Health:
    """Whether the database is there and its tables are those of this version."""
    from safeswap.service.keeping.migrate import check

    check(service_of(request).database)
    return Health()


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(_: Everybody, request: Request) -> Response:
    """Counts and times for monitoring, in the text format of Prometheus, where the administrator shows them."""
    if not service_of(request).settings.shows_metrics:
        raise NotFound("there is nothing here")
    _measure(service_of(request))
    return Response(METRICS.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _measure(service: Service) -> None:
    """What is not counted as it happens is looked up."""
    by_state = select(releases.c.state, func.count()).group_by(releases.c.state)
    with service.database.read() as connection:
        found: dict[tuple[str, ...], float] = {(row[0],): float(row[1]) for row in connection.execute(by_state)}
    METRICS.set_all("safeswap_releases", found)
    METRICS.set_all("safeswap_jobs", {key: float(count) for key, count in service.queue.counts().items()})
    METRICS.set("safeswap_cached_bytes", service.data_cache.used)
    METRICS.set("safeswap_free_bytes", shutil.disk_usage(service.store.root).free)
