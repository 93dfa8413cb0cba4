"""Metrics in the Prometheus text format, without names, data or addresses.

Every metric is declared here with its labels. A label value is a short word, a number or a route template; a project,
person or file can never become a label.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Literal

from safeswap.errors import InternalError
from safeswap.service.http.logs import FIELDS

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
