"""The addresses of the service, a file for each kind of thing."""

from __future__ import annotations

from fastapi import APIRouter

from safeswap.service.routes import audit_log, health, members, releases, session, tokens, users

ROUTERS: tuple[APIRouter, ...] = (
    session.router,
    users.router,
    tokens.router,
    members.router,
    releases.router,
    audit_log.router,
)
"""What lies below ``/api/v1``."""

ROOT_ROUTERS: tuple[APIRouter, ...] = (health.router,)
"""What monitoring expects at the root."""
