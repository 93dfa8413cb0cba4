"""The HTTP routes of the service, one module per resource."""

from __future__ import annotations

from fastapi import APIRouter

from safeswap.service.routes import (
    argus,
    confidentiality,
    data,
    exchange,
    health,
    jobs,
    library,
    logs,
    maskings,
    projects,
    releases,
    safe_tables,
    scripts,
    session,
    studies,
    users,
)

ROUTERS: tuple[APIRouter, ...] = (
    session.router,
    session.provider_router,
    users.router,
    users.tokens_router,
    projects.members_router,
    library.router,
    projects.router,
    data.router,
    exchange.router,
    jobs.router,
    maskings.router,
    studies.router,
    confidentiality.router,
    argus.router,
    safe_tables.router,
    scripts.router,
    logs.session_log_router,
    releases.router,
    logs.router,
)
"""Routers below ``/api/v1``."""

ROOT_ROUTERS: tuple[APIRouter, ...] = (health.router,)
"""Routers at the root, for monitoring."""
