"""The kinds of jobs: every module of this package with a ``TASK`` or ``TASKS`` is discovered."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from safeswap.errors import InternalError
from safeswap.service.tasks.context import Task

PACKAGES = ("safeswap.service.tasks",)


def find(kind: str, packages: Sequence[str] = PACKAGES) -> Task:
    """Return the task of a kind.

    >>> find("ingest").limits
    'parse'
    """
    found = _discover(tuple(packages))
    if kind not in found:
        raise InternalError(
            f"this worker does not know jobs of the kind {kind!r}",
            code="unknown-kind",
            hint="are server and worker of the same version?",
        )
    return found[kind]


def kinds(packages: Sequence[str] = PACKAGES) -> tuple[str, ...]:
    """Return the kinds of jobs, sorted."""
    return tuple(sorted(_discover(tuple(packages))))


@cache
def _discover(packages: tuple[str, ...]) -> dict[str, Task]:
    modules = [module for package in packages for module in _import_modules(import_module(package))]
    found: list[Task] = []
    for module in modules:
        found += [module.TASK] if hasattr(module, "TASK") else getattr(module, "TASKS", ())
    return {task.name: task for task in found}


def _import_modules(package: ModuleType) -> list[ModuleType]:
    if not hasattr(package, "__path__"):
        return [package]
    return [import_module(f"{package.__name__}.{each.name}") for each in iter_modules(package.__path__)]
