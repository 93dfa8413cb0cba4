from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from safeswap.errors import InternalError
from safeswap.service.http.logs import DECLARED, Metrics

LINE = re.compile(r'(# (HELP|TYPE) \w+ .+|\w+(\{\w+="[^"\\\n]*"(,\w+="[^"\\\n]*")*\})? [0-9.e+-]+)')
ROUTE = "/api/v1/projects/{project_id}"


def test_every_line_is_one_that_monitoring_can_read():
    metrics = Metrics()
    metrics.count("safeswap_requests_total", method="GET", route=ROUTE, status=200)
    metrics.observe("safeswap_request_seconds", 0.03, route=ROUTE)
    metrics.set("safeswap_free_bytes", 2**40)
    metrics.set_all("safeswap_jobs", {("mask", "queued"): 2, ("study", "running"): 1})
    lines = metrics.text().splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    assert f"safeswap_free_bytes {2**40}" in lines
    assert 'safeswap_jobs{kind="mask",state="queued"} 2' in lines


def test_a_histogram_counts_up_to_all_that_was_seen():
    metrics = Metrics()
    for seconds in (0.001, 0.005, 0.2, 100.0):
        metrics.observe("safeswap_request_seconds", seconds, route=ROUTE)
    buckets = [int(line.split()[-1]) for line in metrics.text().splitlines() if "_bucket" in line]
    assert buckets == sorted(buckets)
    assert (buckets[0], buckets[-1]) == (2, 4)
    assert "_count" in metrics.text()
    assert "100.206000" in metrics.text()


def test_gauges_that_are_set_together_forget_what_is_gone():
    metrics = Metrics()
    metrics.set_all("safeswap_jobs", {("mask", "queued"): 2})
    metrics.set_all("safeswap_jobs", {("mask", "running"): 1})
    assert "queued" not in metrics.text()


@pytest.mark.parametrize("value", ["Miller", 'a"b', "a\nb", "/api/v1/projects/0a1b"])
def test_a_value_that_is_no_template_becomes_other(value):
    metrics = Metrics()
    metrics.count("safeswap_requests_total", method="GET", route=value, status=200)
    assert value not in metrics.text()
    assert 'route="other"' in metrics.text()


def test_what_is_not_declared_is_refused():
    metrics = Metrics()
    for call in (
        lambda: metrics.count("safeswap_people_total"),
        lambda: metrics.count("safeswap_log_ins_total", user_id="0a"),
        lambda: metrics.count("safeswap_free_bytes"),
    ):
        with pytest.raises(InternalError):
            call()
    assert metrics.text() == ""


def test_no_metric_has_a_label_for_a_person_or_a_project():
    assert {label for metric in DECLARED.values() for label in metric.labels} == {
        "method", "route", "status", "kind", "state",
    }  # fmt: skip


def test_counts_of_many_threads_add_up():
    metrics = Metrics()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: metrics.count("safeswap_log_ins_total", state="refused"), range(2000)))
    assert 'state="refused"} 2000' in metrics.text()
