"""The base of the API models, frozen values and plain texts, and cursor-based pagination.

Lists take ``?limit=…&cursor=…``; each page names the cursor of the next. A cursor holds the sort key of the last entry,
not an offset, so that a list that grows shows no entry twice.
"""

from __future__ import annotations

import base64
import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Self, TypeVar

from fastapi import Depends, Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from sqlalchemy import ColumnElement, Row, RowMapping, Select, literal, tuple_

from safeswap.model.spec import Strict
from safeswap.service.http.problems import Unprocessable
from safeswap.service.keeping.database import Database

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control characters, text direction, line ends
_JOINERS = "\u200c\u200d"  # letters of some scripts need them


def plain_text(text: str) -> str:
    """Validate that a text is what it looks like: no control characters, line ends or direction marks.

    >>> plain_text("Étude 2026"), plain_text("family \U0001f469\u200d\U0001f467")
    ('Étude 2026', 'family 👩\u200d👧')
    """
    if any(unicodedata.category(character) in _UNSEEN and character not in _JOINERS for character in text):
        raise ValueError("a name has no control characters")
    return text


Text = Annotated[str, AfterValidator(plain_text)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(plain_text)]

AttributeName = Annotated[str, Field(min_length=1, max_length=200)]
"""Exactly as in the file."""
Identifier = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z_-]+$")]


class Wire(Strict):
    """Base of API models: frozen, and unknown fields are refused."""

    @classmethod
    def of(cls, row: Row[Any] | RowMapping | Mapping[str, Any], **stated: Any) -> Self:
        """Return the model of a row: its columns by name, times in UTC, except for the fields that are stated."""
        columns = row._mapping if isinstance(row, Row) else row
        return cls.model_validate({**{name: columns[name] for name in cls.model_fields if name in columns}, **stated})


def example(**values: Any) -> ConfigDict:
    """Return the configuration of a model with an example in its JSON schema."""
    return ConfigDict(json_schema_extra={"examples": [values]})


Item = TypeVar("Item")

DEFAULT = 50
_LARGEST = 2**62  # within the integers of both databases


class Page(BaseModel, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next: str | None = Field(default=None, description="Cursor of the next page; null on the last.")


@dataclass(frozen=True)
class Paging:
    """The requested part of a list, and the database that has it."""

    database: Database
    limit: int = DEFAULT
    after: tuple[Any, ...] | None = None

    def page(
        self,
        statement: Select[Any],
        *,
        order: Sequence[ColumnElement[Any]],
        make: Callable[[Row[Any]], Item],
        newest_first: bool = True,
    ) -> Page[Item]:
        """Return one page of a statement's rows, ordered by columns that together are unique.

        The columns of ``order`` must be among those selected.
        """
        place = tuple_(*order)
        if self.after is not None:
            given = zip(order, check_cursor(self, order), strict=True)
            after = tuple_(*(literal(value, column.type) for column, value in given))
            statement = statement.where(place < after if newest_first else place > after)
        statement = statement.order_by(*(column.desc() if newest_first else column.asc() for column in order))
        with self.database.read() as connection:
            rows = connection.execute(statement.limit(self.limit + 1)).all()
        kept, names = rows[: self.limit], [column.key or "" for column in order]
        last = write_cursor([kept[-1]._mapping[name] for name in names]) if len(rows) > self.limit else None
        return Page[Item](items=[make(row) for row in kept], next=last)


def paging(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries per page.")] = DEFAULT,
    cursor: Annotated[str, Query(max_length=500, description="`next` of the previous page.")] = "",
) -> Paging:
    """Read the paging parameters of a request (dependency)."""
    service = request.app.state.service
    most = min(limit, service.settings.limits.page_size)
    return Paging(service.database, limit=most, after=read_cursor(cursor) if cursor else None)


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
