"""Admission control for interactive queries, which run in the server: a few at a time, and none that takes minutes.

Their cost is estimated in advance, from records × tables to count: a running thread cannot be stopped, so that a
question cancelled by its caller keeps its slot until it is answered; one cancelled before its turn is never computed.
Waiting for a slot holds no thread, so other requests are not delayed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Annotated, Any

from fastapi import Depends, Request

from safeswap.errors import SpecError
from safeswap.methods.recode.recipe import RecipeStep
from safeswap.methods.suppress.method import SuppressSpec
from safeswap.model.combination import as_combinations
from safeswap.model.microdata import Microdata
from safeswap.model.spec import MaskSpec
from safeswap.service.http.problems import Conflict, Unavailable
from safeswap.service.people.roles import ProjectAccess
from safeswap.service.settings import Limits
from safeswap.service.state import service_of

_BYTES_PER_VALUE = 8  # a four-byte code, and about the same again for work space


async def _hold_slot(request: Request) -> AsyncIterator[None]:
    # The permission dependency comes first and has identified the caller.
    async with service_of(request).question_slots.hold(request.scope.get("user_id", "")):
        if await request.is_disconnected():
            raise Unavailable("the question was cancelled", code="cancelled")  # nobody is there to read it
        yield


QuestionSlot = Annotated[None, Depends(_hold_slot)]
"""Dependency of routes that compute while the caller waits; comes after the permission."""


def tables_of(combinations: Any) -> int:
    """Return the number of tables to count for a list of combinations.

    >>> tables_of({"keys": ["Age", "Sex", "Town"], "up_to": 2})
    6
    """
    return len(as_combinations(combinations).stated())


def refuse_long(limits: Limits, *, records: int, tables: float, hint: str = "") -> None:
    """Refuse a query that would have to count too many tables × records.

    >>> refuse_long(Limits(question_work=1000), records=100, tables=20)
    Traceback (most recent call last):
    safeswap.errors.SpecError: 20 tables of 100 records are too much to be counted while you wait
    """
    if records * tables <= limits.question_work:
        return
    raise SpecError(
        f"{tables:,.0f} tables of {records:,} records are too much to be counted while you wait",
        code="too-long",
        hint="; ".join(filter(None, ("name fewer keys, or combinations of fewer of them", hint))),
        tables=int(tables),
        records=records,
        most=limits.question_work,
    )


def estimate_work(steps: Iterable[Mapping[str, Any]]) -> float:
    """Return the cost of a recipe in tables to count; a recode reads one column.

    >>> estimate_work([{"step": "drop", "attributes": ["Name"]}])
    1.0
    """
    from safeswap.workflow.session import as_recipe

    return float(sum(_work_of_step(step) for step in as_recipe(list(steps)).steps))


def _work_of_step(step: RecipeStep) -> int:
    if isinstance(step, SuppressSpec):
        return 10 * tables_of(step)
    return 50 if isinstance(step, MaskSpec) else 1


def can_answer(limits: Limits, access: ProjectAccess, recipe: Iterable[Mapping[str, Any]] | None) -> bool:
    """Return True if the server can load a project's data and apply a recipe while the caller waits."""
    return _fits_cache(limits, access) and access.row.records * estimate_work(recipe or ()) <= limits.question_work


def _fits_cache(limits: Limits, access: ProjectAccess) -> bool:
    columns = len((access.row.description or {}).get("attributes", ()))
    return bool(access.row.records * columns * _BYTES_PER_VALUE <= limits.cached_bytes)


def refuse_large(limits: Limits, access: ProjectAccess) -> None:
    """Refuse data that do not fit in the server's cache; jobs can handle them."""
    if not _fits_cache(limits, access):
        raise Conflict(
            "the file is too large to be looked at while you wait",
            code="too-large",
            hint="ask for a job; the administrator can raise cached_bytes",
            records=access.row.records,
        )


def load_data(access: ProjectAccess) -> Microdata:
    """Return the project's data after its recipe, for an interactive query."""
    access.require_data()
    return load_data_version(access, version=access.row.data_version, recipe=access.recipe)


def load_data_version(access: ProjectAccess, *, version: int, recipe: list[dict[str, Any]] | None) -> Microdata:
    """Return a version of the project's data after a recipe, e.g. that of an earlier result."""
    service = access.service
    refuse_large(service.settings.limits, access)
    refuse_long(service.settings.limits, records=access.row.records, tables=estimate_work(recipe or ()))
    return service.data_cache.get(
        service.store, project_id=access.id, version=version, recipe=recipe, key=service.vault.project_key(access.id)
    )
