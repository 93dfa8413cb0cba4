"""Logs that cannot give anybody away: one line of JSON per event, made of fields that are on a list.

A field that is not on the list, or whose value does not look as it should, is left out, and the line says how many
were. What libraries log is reduced to who said something and how serious it was: their words may quote a file.
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
"""Every field that a line may have, with what its value has to look like. Nothing else gets in."""


def event(name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log that something happened; ``fields`` are those of :data:`FIELDS`.

    >>> admitted({"event": "request", "status": 200, "name": "Miller", "route": "/api/v1/projects/{project_id}"})
    {'event': 'request', 'status': 200, 'route': '/api/v1/projects/{project_id}', 'left_out': 1}
    """
    logging.getLogger(_LOGGER).log(level, name, extra={"safeswap": {"event": name, **fields}})


def admitted(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that are on the list and look as they should, and how many were not; what is empty says nothing."""
    fields = {name: value for name, value in fields.items() if value is not None and value != ""}
    fine = {name: value for name, value in fields.items() if name in FIELDS and FIELDS[name](value)}
    left_out = len(fields) - len(fine)
    return {**fine, "left_out": left_out} if left_out else fine


class Lines(logging.Formatter):
    """Turns a record of any logger into a line; of records that are not ours only their source and level."""

    def __init__(self, style: str = "json") -> None:
        super().__init__()
        self._json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the record holds."""
        fields = getattr(record, "safeswap", None)
        if record.name != _LOGGER or not isinstance(fields, dict):
            fields = {"event": "library", "logger": record.name}
            if record.exc_info and record.exc_info[0] is not None:
                fields["exception"] = record.exc_info[0].__name__
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"at": at, **admitted({"level": record.levelname.lower(), **fields})}
        if self._json:
            return json.dumps(line, separators=(",", ":"))
        return " ".join(f"{name}={value}" for name, value in line.items())


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to standard error; a line that cannot be written is lost."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (the name is the standard library's)
        """Say nothing: the standard library would print the words of the record, which the list has not seen."""


def configure(settings: Settings) -> None:
    """Send everything that is logged in this process, by whomever, through the list to standard error."""
    handler = _StandardError(sys.stderr)
    handler.setFormatter(Lines(settings.log_format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_LOGGER).setLevel(logging.INFO)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):  # it brings handlers of its own, which print addresses
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"
    logging.captureWarnings(capture=True)
