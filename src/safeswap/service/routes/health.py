"""Whether the service lives, whether it can work, and how busy it is; nothing about data or people."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel

from safeswap.service.problems import Unavailable
from safeswap.service.roles import allow
from safeswap.service.state import service_of

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
    from sqlalchemy.exc import SQLAlchemyError

    from safeswap.service.migrate import check

    try:
        check(service_of(request).database)
    except SQLAlchemyError:
        raise Unavailable("the database does not answer", hint="try again in a moment") from None
    return Health()


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(_: Everybody, request: Request) -> Response:
    """Counts and times for monitoring, in the text format of Prometheus."""
    from safeswap.service.metrics import METRICS

    return Response(METRICS.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
