"""The addresses of the service, a file for each kind of thing."""

from __future__ import annotations

from fastapi import APIRouter

from safeswap.service.routes import (
    argus,
    audit_log,
    confidentiality,
    data,
    exchange,
    health,
    jobs,
    library,
    maskings,
    members,
    projects,
    provider,
    releases,
    safe_tables,
    scripts,
    session,
    session_log,
    studies,
    tokens,
    users,
)

ROUTERS: tuple[APIRouter, ...] = (
    session.router,
    provider.router,
    users.router,
    tokens.router,
    members.router,
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
    session_log.router,
    releases.router,
    audit_log.router,
)
"""What lies below ``/api/v1``."""

ROOT_ROUTERS: tuple[APIRouter, ...] = (health.router,)
"""What monitoring expects at the root."""
