"""Households change places over HTTP: planned, masked, reported and released; sdcMicro's terms; bad files."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.csv
from tests.households import persons_table
from tests.service.at_work import do_jobs, project_with_data, request_of
from tests.service.serving import Running

import safeswap as ss

API = "/api/v1"
SPEC: dict[str, Any] = {
    "method": "household_swap",
    "household": "ref",
    "geography": ["region", "county"],
    "risk_variables": ["sex", "edu"],
    "similar": [["tenure"], []],
    "rate": 0.2,
}


def people() -> pa.Table:
    table = persons_table(120)
    return table.rename_columns(["id" if name == "person" else name for name in table.column_names])


def as_csv(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pa.csv.write_csv(table, out, pa.csv.WriteOptions(quoting_style="needed"))
    return out.getvalue()


def masked_over_http(town: Running, project: str, spec: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    ana = town.client("ana")
    asked = ana.post(f"{API}/projects/{project}/maskings", json={"spec": spec})
    assert asked.status_code == 202, asked.text
    do_jobs(town.service)
    made = ana.get(asked.headers["location"]).json()
    assert made["state"] == "succeeded", made
    masking = str(made["result"]["id"])
    return masking, ana.get(f"{API}/projects/{project}/maskings/{masking}").json()["summary"]


def test_households_are_planned_swapped_reported_and_released(town: Running) -> None:
    ana, olga = town.client("ana"), town.client("olga")
    project = project_with_data(town, "ana", "olga", content=as_csv(people()))
    plan = ana.post(f"{API}/projects/{project}/plan", json={"spec": SPEC}).json()
    expected = ss.plan(ss.read(people(), identifier="id"), SPEC)
    assert (plan["asked"], plan["feasible"], plan["sentence"]) == (
        expected.asked,
        expected.feasible,
        expected.sentence,
    )
    assert plan["details"]["at_risk"] == dict(expected.at_risk)
    assert set(plan["details"]) >= {"rate_needed", "rate_expected", "needing_less", "crossing"}
    masking, told = masked_over_http(town, project, SPEC)
    assert told["facts"]["households"] == 120
    assert told["facts"]["households_at_risk"] == expected.asked
    assert {row["level"] for row in told["facts"]["by_level"]} == {"region", "county"}
    page = ana.get(f"{API}/projects/{project}/maskings/{masking}/report.html")
    for told_by_report in ("rare and in the true area", "partners agree in", "tenure, number of persons"):
        assert told_by_report in page.text
    address = request_of(town, ana, project, masking, title="Survey", drop=["ref"])
    release = olga.get(address).json()
    assert release["state"] == "requested", release
    assert all(check["ok"] for check in release["checks"])


def test_the_terms_of_record_swap_give_what_python_gives(town: Running) -> None:
    """What ``record_swap`` asks of the method, as a specification: partners of any size, one round."""
    project = project_with_data(town, "ana", content=as_csv(people()))
    terms = {"hid": "ref", "hierarchy": ["region", "county"], "similar": ["tenure"], "risk_variables": ["sex", "edu"]}
    here = ss.record_swap(ss.read(people(), identifier="id"), **terms, swaprate=0.1, insecure_seed=1)
    _, told = masked_over_http(town, project, here.spec.as_dict())
    for fact in ("households", "households_at_risk", "at_risk_swapped", "at_risk_left"):
        assert told["facts"][fact] == here.audit.facts[fact]
    assert told["spec"] == here.spec.as_dict()


def test_a_file_that_cannot_be_swapped_is_refused_with_counts_and_positions(town: Running) -> None:
    ana = town.client("ana")
    split = people().to_pydict()
    split["county"][split["ref"].index(4_005)] = "elsewhere"
    project = project_with_data(town, "ana", content=as_csv(pa.table(split)))
    answer = ana.post(f"{API}/projects/{project}/plan", json={"spec": SPEC})
    told = answer.json()
    assert (answer.status_code, told["code"], told["fields"]["households"]) == (422, "household-split", 1), told
    assert told["fields"]["records"]
    unknown = ana.post(f"{API}/projects/{project}/plan", json={"spec": {**SPEC, "similar": [["tenure"], ["edu"]]}})
    assert (unknown.status_code, "profiles do not nest" in unknown.text) == (422, True)
