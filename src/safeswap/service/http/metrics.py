"""Counters and times for the agency's monitoring, in the text format of Prometheus. No name, no data, no address.

Every metric is declared here with its labels; the value of a label is a short word, a number or the template of a
route. A project, a person or a file cannot become a label.
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
    """What is counted or timed."""

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
        Metric("safeswap_jobs", "gauge", "Jobs in the queue's table.", ("kind", "state")),
        Metric("safeswap_releases", "gauge", "Releases.", ("state",)),
        Metric("safeswap_cached_bytes", "gauge", "Coded data kept in memory."),
        Metric("safeswap_free_bytes", "gauge", "Room left on the disk of the store."),
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
        key = _checked(name, "counter", labels)
        with self._lock:
            values = self._values.setdefault(name, {})
            values[key] = values.get(key, 0.0) + amount

    def set(self, name: str, value: float, **labels: str | int) -> None:
        """Say what something stands at now."""
        key = _checked(name, "gauge", labels)
        with self._lock:
            self._values.setdefault(name, {})[key] = value

    def set_all(self, name: str, values: Mapping[_Labels, float]) -> None:
        """Say what something stands at now for all values of its labels: those not named are gone."""
        names = DECLARED[name].labels
        checked = {_checked(name, "gauge", dict(zip(names, key, strict=True))): each for key, each in values.items()}
        with self._lock:
            self._values[name] = checked

    def observe(self, name: str, seconds: float, **labels: str | int) -> None:
        """Add a time to a histogram."""
        key = _checked(name, "histogram", labels)
        with self._lock:
            # A count per bound, one for what is longer, and the sum at the end.
            times = self._times.setdefault(name, {}).setdefault(key, [0.0] * (len(_BOUNDS) + 2))
            times[bisect_left(_BOUNDS, seconds)] += 1
            times[-1] += seconds

    def text(self) -> str:
        """All of it, as monitoring reads it."""
        with self._lock:
            lines = [line for metric in DECLARED.values() for line in self._lines(metric)]
        return "".join(line + "\n" for line in lines)

    def _lines(self, metric: Metric) -> list[str]:
        lines = [
            f"{metric.name}{_shown(metric.labels, key)} {_number(value)}"
            for key, value in sorted(self._values.get(metric.name, {}).items())
        ]
        for key, times in sorted(self._times.get(metric.name, {}).items()):
            lines += _histogram(metric, key, times)
        head = [f"# HELP {metric.name} {metric.meaning}", f"# TYPE {metric.name} {metric.kind}"]
        return [*head, *lines] if lines else []


METRICS = Metrics()
"""Those of this process."""


def _histogram(metric: Metric, key: _Labels, times: list[float]) -> list[str]:
    lines, so_far = [], 0.0
    for bound, number in zip((*_BOUNDS, math.inf), times[:-1], strict=True):
        so_far += number
        shown = _shown((*metric.labels, "le"), (*key, "+Inf" if math.isinf(bound) else f"{bound:g}"))
        lines.append(f"{metric.name}_bucket{shown} {_number(so_far)}")
    lines.append(f"{metric.name}_sum{_shown(metric.labels, key)} {times[-1]:.6f}")
    lines.append(f"{metric.name}_count{_shown(metric.labels, key)} {_number(so_far)}")
    return lines


def _checked(name: str, kind: str, labels: Mapping[str, str | int]) -> _Labels:
    metric = DECLARED.get(name)
    if metric is None or metric.kind != kind or set(metric.labels) != set(labels):
        raise InternalError("this metric is not declared", code="unknown-metric", metric=name)
    return tuple(_label(each, labels[each]) for each in metric.labels)


def _label(name: str, value: str | int) -> str:
    """The value, if it looks as a value of that name does in a log; else a word that says nothing."""
    return str(value) if FIELDS[name](value) else _OTHER


def _shown(names: tuple[str, ...], values: _Labels) -> str:
    inner = ",".join(f'{name}="{value}"' for name, value in zip(names, values, strict=True))
    return f"{{{inner}}}" if inner else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
