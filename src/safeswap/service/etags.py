"""A change says what it is a change of: ``If-Match`` with the ``ETag`` that was read.

Two people who edit the same project do not overwrite each other: the second one is told that it has changed.
"""

from __future__ import annotations

from fastapi import Request, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safeswap.service.problems import PreconditionFailed, PreconditionRequired


def etag(version: int | str) -> str:
    """The tag of a version.

    >>> etag(3)
    '"3"'
    """
    return f'"{version}"'


def set_etag(response: Response, version: int | str) -> None:
    """Tell the version that is sent; a program that has it already and says so gets 304 and no body.

    Browsers are still told to store nothing: what is shown here is not to be found on a disk later.
    """
    response.headers["ETag"] = etag(version)


def require_match(request: Request, version: int | str) -> None:
    """Refuse a change that does not say, or does not know, what it changes.

    The check is repeated by ``WHERE version = …`` in the statement that changes the row.
    """
    given = request.headers.get("if-match")
    if given is None:
        raise PreconditionRequired(
            "a change needs If-Match with the ETag of what was read",
            hint="read it again and send the ETag of the answer as If-Match",
        )
    if not _matches(given, etag(version)):
        raise changed_meanwhile()


def changed_meanwhile() -> PreconditionFailed:
    """The refusal for a change of something that has changed meanwhile."""
    return PreconditionFailed("it has been changed meanwhile", hint="read it again and repeat the change")


def _matches(given: str, tag: str) -> bool:
    tags = [each.strip().removeprefix("W/") for each in given.split(",")]
    return "*" in tags or tag in tags


class NotModified:
    """Answers 304 where the client holds the version that would be sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on; leave out a body that is known already."""
        known = Headers(scope=scope).get("if-none-match") if scope["type"] == "http" else None
        if known is None or scope["method"] not in {"GET", "HEAD"}:
            await self.app(scope, receive, send)
            return
        unchanged = False

        async def shortened(message: Message) -> None:
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

        await self.app(scope, receive, shortened)
