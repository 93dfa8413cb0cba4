"""The features of the service: each module holds the routes, models and jobs of one of them.

A feature is imported on first use: a client that needs the models of a few does not load the library behind all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

__all__ = [
    "argus",
    "confidentiality",
    "data",
    "exchange",
    "health",
    "jobs",
    "library",
    "logs",
    "maskings",
    "projects",
    "releases",
    "safe_tables",
    "scripts",
    "session",
    "studies",
    "users",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
