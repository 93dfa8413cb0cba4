"""The errors of safeswap.

::

    SafeswapError            code, hint, fields
     ├ InputError            a file, dataframe or description is unusable
     ├ SpecError             the request is invalid for any data
     ├ InfeasibleError       the request is valid, but these data cannot satisfy it
     ├ UnsafeRelease         a check of the result failed: nothing was written
     ├ EngineError           an engine or optional package is missing or lacks a feature
     ├ OutputError           the result could not be written: file exists, disk full
     └ InternalError         a bug in safeswap: please report it

An error names files, lines, columns and attributes, says what was requested and what would work. It never contains a
value of a record: messages end up in logs, tickets and mail.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar


class SafeswapError(Exception):
    """The base class of all errors of this package.

    ``code`` is stable and meant for programs, the message is for people, ``hint`` says what would work, and ``fields``
    holds the details as plain values.

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
        """Return the error as plain values, for ``--json`` and HTTP."""
        return {
            "error": type(self).__name__,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "fields": dict(self.fields),
        }


class InputError(SafeswapError):
    """Unusable data or description; ``fields`` says where (file, line, column)."""

    exit_code, http_status = 3, 422


class SpecError(SafeswapError):
    """A request that contradicts itself or names something that does not exist."""

    exit_code, http_status = 4, 422


class InfeasibleError(SafeswapError):
    """A request that the data cannot satisfy; ``fields`` says how much they can and which limit binds."""

    exit_code, http_status = 5, 409


class UnsafeRelease(SafeswapError):  # noqa: N818  (the name says what happened, not that an error did)
    """A result that lacks a promised property. Nothing was written."""

    exit_code, http_status = 6, 409


class EngineError(SafeswapError):
    """An engine or optional package that is missing or cannot do what was requested."""

    exit_code, http_status = 7, 501


class OutputError(SafeswapError):
    """A result that could not be written. Existing files are unchanged."""

    exit_code, http_status = 8, 507


class InternalError(SafeswapError):
    """A violated invariant of the program itself. Nothing was written; please report it."""

    exit_code, http_status = 70, 500


ERROR_CLASSES: tuple[type[SafeswapError], ...] = (
    InputError,
    SpecError,
    InfeasibleError,
    UnsafeRelease,
    EngineError,
    OutputError,
    InternalError,
)
"""All error classes: the source of exit codes (``exit_code``) and HTTP statuses (``http_status``)."""


def locate(error: BaseException) -> str:
    """Return the innermost line of this package that an exception passed, as ``file:line``; empty if it passed none.

    Unlike the exception's message, it cannot quote a record.
    """
    from traceback import extract_tb  # only a bug needs it

    frames = extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "safeswap" in Path(frame.filename).parts]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
