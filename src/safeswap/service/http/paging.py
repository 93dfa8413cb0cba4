"""Lists come in pages: ``?limit=…&cursor=…``, and each page says where the next one begins.

A cursor holds the place of the last entry in the order of the list, not a number of entries to skip: a list that grows
meanwhile shows nothing twice.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Query, Request
from pydantic import BaseModel, Field
from sqlalchemy import ColumnElement, Connection, Row, Select, literal, tuple_

from safeswap.service.http.problems import Unprocessable

Item = TypeVar("Item")

DEFAULT = 50
_LARGEST = 2**62  # a database has no larger numbers


class Page(BaseModel, Generic[Item]):
    """A part of a list."""

    items: list[Item]
    next: str | None = Field(default=None, description="Give this as `cursor` to get the entries that follow.")


@dataclass(frozen=True)
class Paging:
    """Which part of a list is wanted."""

    limit: int = DEFAULT
    after: tuple[Any, ...] | None = None


def paging(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most entries of one page.")] = DEFAULT,
    cursor: Annotated[str, Query(max_length=500, description="From the page before.")] = "",
) -> Paging:
    """Dependency: the part of a list that a request asks for."""
    most = request.app.state.service.settings.limits.page_size
    return Paging(limit=min(limit, most), after=read_cursor(cursor) if cursor else None)


Paged = Annotated[Paging, Depends(paging)]


def write_cursor(place: Sequence[Any]) -> str:
    """A place in a list as text for an address.

    >>> read_cursor(write_cursor([1.5, "a"]))
    (1.5, 'a')
    """
    return base64.urlsafe_b64encode(json.dumps(list(place)).encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[Any, ...]:
    """The place that a cursor names."""
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:
        place = None
    if not isinstance(place, list) or not all(isinstance(part, (str, int, float)) for part in place):
        raise Unprocessable("the cursor is none of ours", code="bad-cursor", hint="take it from the page before")
    return tuple(place)


def page_of(
    connection: Connection,
    statement: Select[Any],
    *,
    order: Sequence[ColumnElement[Any]],
    paging: Paging,
    make: Callable[[Row[Any]], Item],
    newest_first: bool = True,
) -> Page[Item]:
    """One page of what a statement selects, in the order of some columns that together differ for every row.

    The columns of the order have to be among those selected.
    """
    place = tuple_(*order)
    if paging.after is not None:
        given = zip(order, fitting(paging, order), strict=True)
        after = tuple_(*(literal(value, column.type) for column, value in given))
        statement = statement.where(place < after if newest_first else place > after)
    statement = statement.order_by(*(column.desc() if newest_first else column.asc() for column in order))
    rows = connection.execute(statement.limit(paging.limit + 1)).all()
    kept = rows[: paging.limit]
    more = len(rows) > paging.limit
    names = [column.key or "" for column in order]
    return Page[Item](
        items=[make(row) for row in kept],
        next=write_cursor([row._mapping[name] for name in names]) if more and (row := kept[-1]) is not None else None,
    )


def fitting(paging: Paging, order: Sequence[ColumnElement[Any]]) -> tuple[Any, ...]:
    """The place from which a page goes on, if it is one in this order; a cursor may have been made up."""
    after = paging.after or ()
    types = [column.type.python_type for column in order]
    fits = len(after) == len(types) and all(
        isinstance(value, (int, float) if kind in {int, float} else kind)
        and (isinstance(value, str) or abs(value) < _LARGEST)
        for value, kind in zip(after, types, strict=True)
    )
    if not fits:
        raise Unprocessable(
            "the cursor belongs to another list", code="bad-cursor", hint="take it from the page before"
        )
    return after
