"""Questions that somebody waits for are answered in the server: a few at once, and none that would take minutes.

What they need is estimated before it is begun, from records and tables to be counted: a thread that has begun cannot be
stopped. Whoever waits for her turn holds no thread, so that everything else goes on as if nobody asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Annotated, Any

from fastapi import Depends, Request

from safeswap.errors import SpecError
from safeswap.methods.recode.recipe import RecipeStep
from safeswap.methods.suppress.method import SuppressSpec
from safeswap.model.combination import as_combinations
from safeswap.model.spec import MaskSpec
from safeswap.service.http.problems import Conflict
from safeswap.service.people.roles import ProjectAccess
from safeswap.service.settings import Limits
from safeswap.service.state import service_of

_BYTES_A_VALUE = 8  # a code of four bytes, and about as much again while it is worked with


async def _turn(request: Request) -> AsyncIterator[None]:
    # The permission stands first, and has found out who asks.
    async with service_of(request).turns.taken(request.scope.get("user_id", "")):
        yield


Turn = Annotated[None, Depends(_turn)]
"""Of a route whose work is done while somebody waits; stands after the permission."""


def tables_of(combinations: Any) -> int:
    """How many tables have to be counted for a list of combinations.

    >>> tables_of({"keys": ["Age", "Sex", "Town"], "up_to": 2})
    6
    """
    return len(as_combinations(combinations).stated())


def refuse_long(limits: Limits, *, records: int, tables: float, hint: str = "") -> None:
    """Refuse a question for which so many tables of so many records would have to be counted.

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


def work_of(steps: Iterable[Mapping[str, Any]]) -> float:
    """How many tables have to be counted to make the steps of a recipe; a recode looks at one column.

    >>> work_of([{"step": "drop", "attributes": ["Name"]}])
    1.0
    """
    from safeswap.workflow import as_recipe

    return float(sum(_work(step) for step in as_recipe(list(steps)).steps))


def _work(step: RecipeStep) -> int:
    if isinstance(step, SuppressSpec):
        return 10 * tables_of(step)
    return 50 if isinstance(step, MaskSpec) else 1


def can_look(limits: Limits, access: ProjectAccess, recipe: Iterable[Mapping[str, Any]] | None) -> bool:
    """Whether the data of a project, as a recipe leaves them, can be looked at in the server."""
    return _fits(limits, access) and access.row.records * work_of(recipe or ()) <= limits.question_work


def _fits(limits: Limits, access: ProjectAccess) -> bool:
    columns = len((access.row.description or {}).get("attributes", ()))
    return bool(access.row.records * columns * _BYTES_A_VALUE <= limits.cached_bytes)


def refuse_large(limits: Limits, access: ProjectAccess) -> None:
    """Refuse data that have no room in the server's memory; jobs take them."""
    if not _fits(limits, access):
        raise Conflict(
            "the file is too large to be looked at while you wait",
            code="too-large",
            hint="ask for a job; the administrator can raise cached_bytes",
            records=access.row.records,
        )
