"""Every way in which safeswap says no.

::

    SafeswapError            code, hint, fields
     ├ InputError            a file, a frame or a description that cannot be used
     ├ SpecError             a request that makes no sense, whatever the data
     ├ InfeasibleError       a request that makes sense but that these data cannot satisfy
     ├ UnsafeRelease         a check on the result failed: nothing was written
     ├ EngineError           an engine or an extra that is not there, or cannot do this
     ├ OutputError           the result could not be written: exists already, disk full
     └ InternalError         a promise of ours broke: please report it

An error speaks of files, lines, columns and attribute names, of what was asked for and what would work. It never
holds a value of a record: messages end up in logs, tickets and mail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class SafeswapError(Exception):
    """What all errors of this package have in common.

    ``code`` is stable and meant for programs, the message for people, ``hint`` says what would work, and ``fields``
    holds the facts of the case as plain values.

    >>> error = InputError("the file is empty", code="empty-file", hint="give a file with a header line")
    >>> error.code, str(error)
    ('empty-file', 'the file is empty')
    >>> error.as_dict()["error"]
    'InputError'
    """

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, code: str, hint: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.fields: Mapping[str, Any] = fields

    def as_dict(self) -> dict[str, Any]:
        """The error as plain values, for ``--json`` and for HTTP."""
        return {
            "error": type(self).__name__,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "fields": dict(self.fields),
        }


class InputError(SafeswapError):
    """The data or their description cannot be used; ``fields`` says where (file, line, column)."""

    exit_code = 3
    http_status = 422


class SpecError(SafeswapError):
    """The request contradicts itself or names something that does not exist."""

    exit_code = 4
    http_status = 422


class InfeasibleError(SafeswapError):
    """The data cannot give what was asked; ``fields`` says how much they can give and what binds."""

    exit_code = 5
    http_status = 409


class UnsafeRelease(SafeswapError):  # noqa: N818  (the name says what happened, not that an error did)
    """A promised property does not hold on the result. Nothing was written."""

    exit_code = 6
    http_status = 409


class EngineError(SafeswapError):
    """An engine or an optional package is missing, or cannot do what was asked."""

    exit_code = 7
    http_status = 501


class OutputError(SafeswapError):
    """The result could not be written. What was there before is unchanged."""

    exit_code = 8
    http_status = 507


class InternalError(SafeswapError):
    """An invariant of the program itself broke. Nothing was written; please report it."""

    exit_code = 70
    http_status = 500


ERROR_CLASSES: tuple[type[SafeswapError], ...] = (
    InputError,
    SpecError,
    InfeasibleError,
    UnsafeRelease,
    EngineError,
    OutputError,
    InternalError,
)
"""The one table from which exit codes (``exit_code``) and HTTP statuses (``http_status``) are read."""
