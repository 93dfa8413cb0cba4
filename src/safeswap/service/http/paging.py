"""Cursor-based pagination: ``?limit=…&cursor=…``; each page names the cursor of the next.

A cursor holds the sort key of the last entry, not an offset, so that a list that grows shows no entry twice.
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
_LARGEST = 2**62  # within the integers of both databases


class Page(BaseModel, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next: str | None = Field(default=None, description="Cursor of the next page; null on the last.")


@dataclass(frozen=True)
class Paging:
    """The requested part of a list."""

    limit: int = DEFAULT
    after: tuple[Any, ...] | None = None


def paging(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries per page.")] = DEFAULT,
    cursor: Annotated[str, Query(max_length=500, description="`next` of the previous page.")] = "",
) -> Paging:
    """Read the paging parameters of a request (dependency)."""
    most = request.app.state.service.settings.limits.page_size
    return Paging(limit=min(limit, most), after=read_cursor(cursor) if cursor else None)


Paged = Annotated[Paging, Depends(paging)]


def write_cursor(place: Sequence[Any]) -> str:
    """Encode a sort key as URL-safe text.

    >>> read_cursor(write_cursor([1.5, "a"]))
    (1.5, 'a')
    """
    return base64.urlsafe_b64encode(json.dumps(list(place)).encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[Any, ...]:
    """Decode a cursor."""
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
    """Return one page of a statement's rows, ordered by columns that together are unique.

    The columns of ``order`` must be among those selected.
    """
    place = tuple_(*order)
    if paging.after is not None:
        given = zip(order, check_cursor(paging, order), strict=True)
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


def check_cursor(paging: Paging, order: Sequence[ColumnElement[Any]]) -> tuple[Any, ...]:
    """Return the sort key of a cursor, if its types match the order; a cursor may be forged."""
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
