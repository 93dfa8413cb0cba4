"""Logs that cannot leak data: one line of JSON per event, restricted to an allowlist of fields.

A field that is not on the list, or whose value has another form, is left out, and the line says how many were. Log
records of libraries are reduced to logger and level: their messages may quote a file.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

from safeswap.service.settings import Settings

_LOGGER = "safeswap.service"
_WORD = re.compile(r"[a-z][a-z0-9_.-]{0,59}", re.ASCII)
_ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f-]{0,27}|-", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_ROUTE = re.compile(
    r"none|/|(/(api|v[0-9]{1,2}|[a-z][a-z-]{0,29}(\.[a-z]{2,4})?|\{[a-z_]{1,30}(:path)?\}))+/?", re.ASCII
)
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


def _matches(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


FIELDS: dict[str, Callable[[Any], bool]] = {
    "event": _matches(_WORD),
    "level": _matches(_WORD),
    "logger": _matches(_NAME),
    "route": _matches(_ROUTE),
    "method": lambda value: isinstance(value, str) and value in _METHODS,
    "status": lambda value: _is_number(value) and 100 <= value <= 599,
    "ms": _is_number,
    "bytes": _is_number,
    "count": _is_number,
    "attempts": _is_number,
    "pid": _is_number,
    "port": _is_number,
    "job_id": _matches(_ID),
    "user_id": _matches(_ID),
    "project_id": _matches(_ID),
    "release_id": _matches(_ID),
    "token_id": _matches(_ID),
    "request_id": _matches(_ID),
    "incident": _matches(_ID),
    "kind": _matches(_WORD),
    "state": _matches(_WORD),
    "code": _matches(_WORD),
    "worker": _matches(_NAME),
    "exception": _matches(_NAME),
    "error": _matches(_NAME),
    "place": _matches(re.compile(r"[a-z_][a-z0-9_.]{0,99}:[0-9]{1,6}", re.ASCII)),
    "version": _matches(re.compile(r"[0-9][0-9a-z.+-]{0,29}", re.ASCII)),
}
"""The allowlist: each field of a log line with a check of its value."""


def event(name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event; ``fields`` are those of :data:`FIELDS`.

    >>> filter_fields({"event": "request", "status": 200, "name": "Miller", "route": "/api/v1/projects/{project_id}"})
    {'event': 'request', 'status': 200, 'route': '/api/v1/projects/{project_id}', 'left_out': 1}
    """
    logging.getLogger(_LOGGER).log(level, name, extra={"safeswap": {"event": name, **fields}})


def filter_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the allowed, non-empty fields, and the number left out."""
    fields = {name: value for name, value in fields.items() if value is not None and value != ""}
    fine = {name: value for name, value in fields.items() if name in FIELDS and FIELDS[name](value)}
    left_out = len(fields) - len(fine)
    return {**fine, "left_out": left_out} if left_out else fine


class Lines(logging.Formatter):
    """Formatter for one line per record; records of libraries keep only logger and level."""

    def __init__(self, style: str = "json") -> None:
        super().__init__()
        self._json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Return one line for a record."""
        fields = getattr(record, "safeswap", None)
        if record.name != _LOGGER or not isinstance(fields, dict):
            fields = {"event": "library", "logger": record.name}
            if record.exc_info and record.exc_info[0] is not None:
                fields["exception"] = record.exc_info[0].__name__
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"at": at, **filter_fields({"level": record.levelname.lower(), **fields})}
        if self._json:
            return json.dumps(line, separators=(",", ":"))
        return " ".join(f"{name}={value}" for name, value in line.items())


class _StandardError(logging.StreamHandler[TextIO]):
    """Handler for standard error; a line that cannot be written is lost."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (the name is the standard library's)
        """Do nothing: the standard library would print the unfiltered record."""


def configure(settings: Settings) -> None:
    """Send all log records of this process through the allowlist to standard error."""
    handler = _StandardError(sys.stderr)
    handler.setFormatter(Lines(settings.log_format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_LOGGER).setLevel(logging.INFO)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):  # its own handlers print addresses
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"
    logging.captureWarnings(capture=True)
