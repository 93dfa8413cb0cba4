"""Liveness, readiness and metrics; nothing about data or people."""

from __future__ import annotations

import shutil
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from sqlalchemy import func, select

from safeswap.service.http.logs import METRICS
from safeswap.service.http.problems import NotFound
from safeswap.service.keeping.tables import releases
from safeswap.service.people.roles import Everyone
from safeswap.service.state import Service, service_of

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The service responds."""

    status: Literal["ok"] = "ok"


@router.get("/health/live")
def live(_: Everyone) -> Health:
    """Check that the process responds."""
    return Health()


@router.get("/health/ready")
def ready(_: Everyone, request: Request) -> Health:
    """Check that the database is reachable and has the schema of this version."""
    from safeswap.service.keeping.migrate import check

    check(service_of(request).database)
    return Health()


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(_: Everyone, request: Request) -> Response:
    """Get metrics in the Prometheus text format, if the administrator allows it."""
    if not service_of(request).settings.shows_metrics:
        raise NotFound("there is nothing here")
    _update_gauges(service_of(request))
    return Response(METRICS.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _update_gauges(service: Service) -> None:
    """Update the gauges that are not counted as events happen."""
    by_state = select(releases.c.state, func.count()).group_by(releases.c.state)
    with service.database.read() as connection:
        found: dict[tuple[str, ...], float] = {(row[0],): float(row[1]) for row in connection.execute(by_state)}
    METRICS.set_all("safeswap_releases", found)
    METRICS.set_all("safeswap_jobs", {key: float(count) for key, count in service.queue.counts().items()})
    METRICS.set("safeswap_cached_bytes", service.data_cache.used)
    METRICS.set("safeswap_free_bytes", shutil.disk_usage(service.store.root).free)
