"""The features of the service: each module holds the routes, models and jobs of one of them.

A feature is imported on first use: a client that needs the models of a few does not load the library behind all.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safeswap.service.routes import (  # noqa: F401  (what type checkers see of __getattr__)
        argus,
        attacks,
        data,
        exchange,
        households,
        jobs,
        library,
        logs,
        maskings,
        projects,
        releases,
        reports,
        risk_views,
        safe_tables,
        session,
        settings,
        studies,
    )

__all__ = [module.name for module in iter_modules(__path__)]  # one feature per module


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
