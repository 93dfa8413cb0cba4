"""The addresses of the service, a file for each kind of thing."""

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
from safeswap.service.routes import projects as members
from safeswap.service.routes import session as provider
from safeswap.service.routes import users as tokens

ROUTERS: tuple[APIRouter, ...] = (
    session.router,
    provider.provider_router,
    users.router,
    tokens.tokens_router,
    members.members_router,
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
"""What lies below ``/api/v1``."""

ROOT_ROUTERS: tuple[APIRouter, ...] = (health.router,)
"""What monitoring expects at the root."""
