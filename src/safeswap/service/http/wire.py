"""The base of the API models, pagination, entity tags and idempotent retries.

Lists take ``?limit=…&cursor=…``; each page names the cursor of the next. A cursor holds the sort key of the last entry,
not an offset, so that a list that grows shows no entry twice.

Two people who edit the same project cannot overwrite each other (``ETag``, ``If-Match``): the second change is refused
with 412.

A client that got no response can send the same request with the same ``Idempotency-Key`` again and gets the first
response. A key belongs to one person and one request: with another body it is refused. Only successful responses are
stored, for a day; a refused request may be retried.
"""

from __future__ import annotations

import base64
import hashlib
import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Self, TypeVar

from fastapi import Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from sqlalchemy import ColumnElement, Row, RowMapping, Select, delete, insert, literal, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safeswap.model.spec import Strict
from safeswap.service.http.problems import Conflict, PreconditionFailed, PreconditionRequired, Unprocessable
from safeswap.service.keeping.database import Database, now
from safeswap.service.keeping.tables import replies
from safeswap.service.state import service_of

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control characters, text direction, line ends
_JOINERS = "\u200c\u200d"  # letters of some scripts need them


def plain_text(text: str) -> str:
    """Validate that a text is what it looks like: no control characters, line ends or direction marks.

    >>> plain_text("Étude 2026"), plain_text("family \U0001f469\u200d\U0001f467")
    ('Étude 2026', 'family 👩\u200d👧')
    """
    if any(unicodedata.category(character) in _UNSEEN and character not in _JOINERS for character in text):
        raise ValueError("a name must not contain control characters")
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
        raise Unprocessable("this cursor is not valid", code="bad-cursor", hint="use `next` of the previous page")
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
            "the cursor belongs to another list", code="bad-cursor", hint="use `next` of the previous page"
        )
    return after


def etag(version: int | str) -> str:
    """Return the entity tag of a version.

    >>> etag(3)
    '"3"'
    """
    return f'"{version}"'


def set_etag(response: Response, version: int | str) -> None:
    """Set the ``ETag`` of a response; a client that already has this version gets 304 without a body.

    ``Cache-Control: no-store`` still applies: confidential figures must not end up in a browser's disk cache.
    """
    response.headers["ETag"] = etag(version)


def require_match(request: Request, version: int | str) -> None:
    """Refuse a change without ``If-Match``, or with that of an old version.

    The statement that changes the row checks again, by ``WHERE version = …``.
    """
    given = request.headers.get("if-match")
    if given is None:
        raise PreconditionRequired(
            "a change needs If-Match with the ETag of what was read",
            hint="read it again and send the ETag of the answer as If-Match",
        )
    if not _matches(given, etag(version)):
        raise version_conflict()


def version_conflict() -> PreconditionFailed:
    """Return the error for a change to an outdated version."""
    return PreconditionFailed("it has been changed in the meantime", hint="read it again and repeat the change")


def _matches(given: str, tag: str) -> bool:
    tags = [each.strip().removeprefix("W/") for each in given.split(",")]
    return "*" in tags or tag in tags


class NotModified:
    """Middleware that answers 304 if the client already has the current version."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; drop the body of an unchanged response."""
        known = Headers(scope=scope).get("if-none-match") if scope["type"] == "http" else None
        if known is None or scope["method"] not in {"GET", "HEAD"}:
            await self.app(scope, receive, send)
            return
        unchanged = False

        async def send_unless_known(message: Message) -> None:
            nonlocal unchanged
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                unchanged = message["status"] == 200 and "etag" in headers and _matches(known, headers["etag"])
                if unchanged:
                    message["status"] = 304
                    del headers["content-length"]
                    del headers["content-type"]
            elif unchanged:
                message = {**message, "body": b""}
            await send(message)

        await self.app(scope, receive, send_unless_known)


HEADER = "idempotency-key"
KEPT_SECONDS = 24 * 3600.0
ABANDONED_SECONDS = 300.0  # longer work is a job: a request this old died with its server
_KEPT_HEADERS = frozenset({"content-type", "location", "etag"})
_CLAIM = "idempotency"


class StoredReply(Exception):  # noqa: N818  (not an error: the response is known)
    """The stored response to a repeated request."""

    def __init__(self, status: int, headers: dict[str, str], body: str) -> None:
        super().__init__("carried out before")
        self.response = Response(body.encode(), status, headers={**headers, "Idempotency-Replayed": "true"})


async def claim_key(request: Request, user_id: str) -> None:
    """Claim the idempotency key of a request, if any; raise :class:`StoredReply` if the response is known."""
    key = request.headers.get(HEADER)
    if request.method != "POST" or key is None or _CLAIM in request.scope:
        return
    if not 1 <= len(key) <= 200 or not key.isprintable():
        raise Unprocessable("an idempotency key has 1 to 200 printable characters", code="bad-idempotency-key")
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if kind != "application/json":
        raise Unprocessable("idempotency keys are for requests in JSON", code="bad-idempotency-key")
    content = f"{request.method} {request.url.path}?{request.url.query}\n".encode() + await request.body()
    database = service_of(request).database
    await run_in_threadpool(_claim, database, user_id, key, hashlib.sha256(content).hexdigest())
    request.scope[_CLAIM] = (database, user_id, key)


def _claim(database: Database, user_id: str, key: str, request_hash: str) -> None:
    at = now()
    mine = (replies.c.user_id == user_id) & (replies.c.key == key)
    abandoned = replies.c.status.is_(None) & (replies.c.created_at < at - ABANDONED_SECONDS)
    try:
        with database.write() as connection:
            connection.execute(delete(replies).where((replies.c.created_at < at - KEPT_SECONDS) | abandoned))
            known = connection.execute(select(replies).where(mine)).one_or_none()
            if known is None:
                values = {"user_id": user_id, "key": key, "request_hash": request_hash, "created_at": at}
                connection.execute(insert(replies).values(**values))
    except IntegrityError:  # the same request, at the same moment, on PostgreSQL
        raise _in_flight() from None
    if known is None:
        return
    if known.request_hash != request_hash:
        raise Unprocessable("this idempotency key belongs to another request", code="idempotency-key-reused")
    if known.status is None:
        raise _in_flight()
    raise StoredReply(known.status, known.headers, known.body)


def _in_flight() -> Conflict:
    return Conflict("the same request is already being processed", code="in-flight", hint="ask again in a moment")


def _store_reply(claim: tuple[Database, str, str], status: int, headers: dict[str, str], body: bytes) -> None:
    """Store a successful response; drop the claim of a failed request."""
    database, user_id, key = claim
    mine = (replies.c.user_id == user_id) & (replies.c.key == key) & replies.c.status.is_(None)
    with database.write() as connection:
        if 200 <= status < 300:
            kept = {"status": status, "headers": headers, "body": body.decode()}
            connection.execute(update(replies).where(mine).values(**kept))
        else:
            connection.execute(delete(replies).where(mine))


async def replay(_request: Request, reply: Exception) -> Response:
    """Handle :class:`StoredReply`: return the stored response."""
    assert isinstance(reply, StoredReply)  # noqa: S101  (registered for nothing else)
    return reply.response


class StoreReplies:
    """Middleware that stores the responses to requests with an idempotency key before they are sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; hold the response back until it is stored."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        start: Message = {}
        body = bytearray()

        async def store_and_send(message: Message) -> None:
            nonlocal start
            claim: Any = scope.get(_CLAIM)
            if claim is None:
                await send(message)
            elif message["type"] == "http.response.start":
                start = message
            else:
                body.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    await run_in_threadpool(_store_reply, claim, start["status"], _stored_headers(start), bytes(body))
                    await send(start)
                    await send({"type": "http.response.body", "body": bytes(body)})

        try:
            await self.app(scope, receive, store_and_send)
        except BaseException:
            if (claim := scope.get(_CLAIM)) is not None:
                _store_reply(claim, 500, {}, b"")
            raise


def _stored_headers(start: Message) -> dict[str, str]:
    pairs = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in start["headers"])
    return {name: value for name, value in pairs if name in _KEPT_HEADERS}
