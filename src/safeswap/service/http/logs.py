"""Logs that cannot leak data: one line of JSON per event, restricted to an allowlist of fields.

A field that is not on the list, or whose value has another form, is left out, and the line says how many were. Log
records of libraries are reduced to logger and level: their messages may quote a file.

Metrics, in the Prometheus text format, follow the same rule. Every metric is declared here with its labels, and a label
value is a short word, a number or a route template; a project, person or file can never become one.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Literal, TextIO

from safeswap.errors import InternalError
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
    """Return the allowed, non-empty fields, and the number omitted."""
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


_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_OTHER = "other"


@dataclass(frozen=True)
class Metric:
    """Declaration of a metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()


DECLARED = {
    metric.name: metric
    for metric in (
        Metric("safeswap_requests_total", "counter", "Requests answered.", ("method", "route", "status")),
        Metric("safeswap_request_seconds", "histogram", "Time to answer a request.", ("route",)),
        Metric("safeswap_log_ins_total", "counter", "Attempts to log in.", ("state",)),
        Metric("safeswap_jobs", "gauge", "Jobs in the job table.", ("kind", "state")),
        Metric("safeswap_releases", "gauge", "Releases.", ("state",)),
        Metric("safeswap_cached_bytes", "gauge", "Size of the in-memory data cache."),
        Metric("safeswap_free_bytes", "gauge", "Free disk space in the store."),
    )
}

_Labels = tuple[str, ...]


class Metrics:
    """The metrics of this process.

    >>> metrics = Metrics()
    >>> metrics.count("safeswap_log_ins_total", state="refused")
    >>> print(metrics.text(), end="")
    # HELP safeswap_log_ins_total Attempts to log in.
    # TYPE safeswap_log_ins_total counter
    safeswap_log_ins_total{state="refused"} 1
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: dict[str, dict[_Labels, float]] = {}
        self._times: dict[str, dict[_Labels, list[float]]] = {}

    def count(self, name: str, amount: float = 1.0, **labels: str | int) -> None:
        """Add to a counter."""
        key = _check_labels(name, "counter", labels)
        with self._lock:
            values = self._values.setdefault(name, {})
            values[key] = values.get(key, 0.0) + amount

    def set(self, name: str, value: float, **labels: str | int) -> None:
        """Set a gauge."""
        key = _check_labels(name, "gauge", labels)
        with self._lock:
            self._values.setdefault(name, {})[key] = value

    def set_all(self, name: str, values: Mapping[_Labels, float]) -> None:
        """Set a gauge for all its labels; labels not in ``values`` are dropped."""
        names = DECLARED[name].labels
        checked = {
            _check_labels(name, "gauge", dict(zip(names, key, strict=True))): each for key, each in values.items()
        }
        with self._lock:
            self._values[name] = checked

    def observe(self, name: str, seconds: float, **labels: str | int) -> None:
        """Add a time to a histogram."""
        key = _check_labels(name, "histogram", labels)
        with self._lock:
            # A count per bound, one for longer times, and the sum at the end.
            times = self._times.setdefault(name, {}).setdefault(key, [0.0] * (len(_BOUNDS) + 2))
            times[bisect_left(_BOUNDS, seconds)] += 1
            times[-1] += seconds

    def text(self) -> str:
        """Return all metrics in the Prometheus text format."""
        with self._lock:
            lines = [line for metric in DECLARED.values() for line in self._format(metric)]
        return "".join(line + "\n" for line in lines)

    def _format(self, metric: Metric) -> list[str]:
        lines = [
            f"{metric.name}{_format_labels(metric.labels, key)} {_format_number(value)}"
            for key, value in sorted(self._values.get(metric.name, {}).items())
        ]
        for key, times in sorted(self._times.get(metric.name, {}).items()):
            lines += _format_histogram(metric, key, times)
        head = [f"# HELP {metric.name} {metric.meaning}", f"# TYPE {metric.name} {metric.kind}"]
        return [*head, *lines] if lines else []


METRICS = Metrics()
"""The metrics of this process."""


def _format_histogram(metric: Metric, key: _Labels, times: list[float]) -> list[str]:
    lines, cumulative = [], 0.0
    for bound, number in zip((*_BOUNDS, math.inf), times[:-1], strict=True):
        cumulative += number
        labels = _format_labels((*metric.labels, "le"), (*key, "+Inf" if math.isinf(bound) else f"{bound:g}"))
        lines.append(f"{metric.name}_bucket{labels} {_format_number(cumulative)}")
    lines.append(f"{metric.name}_sum{_format_labels(metric.labels, key)} {times[-1]:.6f}")
    lines.append(f"{metric.name}_count{_format_labels(metric.labels, key)} {_format_number(cumulative)}")
    return lines


def _check_labels(name: str, kind: str, labels: Mapping[str, str | int]) -> _Labels:
    metric = DECLARED.get(name)
    if metric is None or metric.kind != kind or set(metric.labels) != set(labels):
        raise InternalError("this metric is not declared", code="unknown-metric", metric=name)
    # A value that may not appear in a log field of that name is not shown here either.
    return tuple(str(labels[each]) if FIELDS[each](labels[each]) else _OTHER for each in metric.labels)


def _format_labels(names: tuple[str, ...], values: _Labels) -> str:
    inner = ",".join(f'{name}="{value}"' for name, value in zip(names, values, strict=True))
    return f"{{{inner}}}" if inner else ""


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
