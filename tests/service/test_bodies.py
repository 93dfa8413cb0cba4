"""Bodies that are small in bytes and mean harm: too many values, too deep, numbers that are none."""

from __future__ import annotations

import json

import pytest
from tests.service.serving import Running

API = "/api/v1"
PLAIN = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def project(town: Running) -> str:
    return town.add_project("ana")


def sent(town: Running, project: str, body: str, path: str = "/plan") -> tuple[int, str]:
    answer = town.client("ana").post(f"{API}/projects/{project}{path}", content=body, headers=PLAIN)
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 30])
def test_a_number_that_no_table_holds_is_refused_wherever_it_stands(town, project, number):
    body = '{"spec": {"method": "swap", "swap": ["Race"], "targeting": {"weight": [NUMBER]}}}'.replace("NUMBER", number)
    assert sent(town, project, body) == (422, "bad-number")


def test_many_names_are_refused_before_anything_compares_them(town, project):
    body = json.dumps({"spec": {"method": "swap", "swap": ["Race"] * 200_000, "rate": 0.1}})
    assert sent(town, project, body) == (413, "too-large")


@pytest.mark.parametrize("depth", [40, 900])
def test_what_is_nested_deep_is_refused(town, project, depth):
    body = '{"spec": %s}' % ("[" * depth + "]" * depth)
    assert sent(town, project, body) == (422, "too-deep")


@pytest.mark.parametrize("body", ["[" * 500_000, '{"spec":' * 100_000, '{"spec": 1' + "0" * 5000 + "}"])
def test_what_no_parser_reads_is_refused_without_an_incident(town, project, body):
    status, _ = sent(town, project, body)
    assert status in {400, 422}


def test_a_body_that_comes_in_pieces_is_looked_at_whole(town, project):
    pieces = iter([b'{"spec": {"rate"', b": Na", b"N}}"])
    answer = town.client("ana").post(f"{API}/projects/{project}/plan", content=pieces, headers=PLAIN)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad-number")


def test_a_plain_body_passes_in_pieces_too(town, project):
    pieces = iter([b'{"text": "Rates above', b' 5 %"}'])
    answer = town.client("ana").post(f"{API}/projects/{project}/log", content=pieces, headers=PLAIN)
    assert (answer.status_code, answer.json()["note"]) == (201, "Rates above 5 %")
