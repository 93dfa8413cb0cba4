"""The addresses of the service, a file for each kind of thing."""

from __future__ import annotations

from fastapi import APIRouter

from safeswap.service.routes import health, session

ROUTERS: tuple[APIRouter, ...] = (session.router,)
"""What lies below ``/api/v1``."""

ROOT_ROUTERS: tuple[APIRouter, ...] = (health.router,)
"""What monitoring expects at the root."""
