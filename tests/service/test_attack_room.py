"""Attacks in the service: the agency's policy, control files, an officer's override, and who sees the figures."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import httpx
import pytest
from tests.service.at_work import do_jobs, masking_of, project_with_data, request_of
from tests.service.serving import Running, running

API = "/api/v1"
STRICT = 'name = "strict"\n[limits]\nunusual_combinations = 0.0\ndistinct_numbers = 0.2\n'
SCENARIO = {"keys": ["region", "age"], "sensitive": ["tenure"]}


def survey_with_numbers(first: int, records: int, seed: int) -> bytes:
    """A survey with a number that is nobody else's, which joins a release with any file that has it."""
    draw = random.Random(seed)
    rows = [
        f"{first + n},{draw.choice('NS')},{draw.choice(['own', 'rent', 'free'])},{draw.choice(['young', 'old'])},"
        f"{(first + n) * 1.5}"
        for n in range(records)
    ]
    return "\n".join(["id,region,tenure,age,income", *rows, ""]).encode()


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("attacked")) as here:
        yield here


@pytest.fixture(scope="module")
def people(office: Running) -> dict[str, httpx.Client]:
    return {name: office.client(name) for name in ("vera", "ana", "olga", "otto", "adam")}


@pytest.fixture(scope="module")
def project(office: Running, people: dict[str, httpx.Client]) -> str:
    made = project_with_data(office, "vera", "ana", "olga", "otto", content=survey_with_numbers(1000, 120, 1))
    body = {"scenarios": [{"name": "neighbour", **SCENARIO}]}
    set_up = people["ana"].patch(f"{API}/projects/{made}/settings", json=body, headers={"If-Match": "*"})
    assert set_up.status_code == 200, set_up.text
    return made


@pytest.fixture(scope="module")
def masking(office: Running, people: dict[str, httpx.Client], project: str) -> str:
    return masking_of(office, people["ana"], project)


def put_policy(client: httpx.Client, **body: object) -> httpx.Response:
    tag = client.get(f"{API}/release-policy").headers["etag"]
    return client.put(f"{API}/release-policy", json=body, headers={"If-Match": tag})


def put_control(office: Running, client: httpx.Client, project: str, content: bytes) -> dict[str, object]:
    sent = client.put(f"{API}/projects/{project}/control-file", params={"name": "held.csv"}, content=content)
    assert sent.status_code == 202, sent.text
    do_jobs(office.service)
    return dict(client.get(sent.headers["location"]).json())


def test_officers_and_administrators_set_the_policy_and_everybody_reads_it(office, people):
    told = people["vera"].get(f"{API}/release-policy").json()
    assert (told["source"], told["version"], told["limits"]["bundle_traces"]) == ("default", 0, 0.0)
    for name, status in (("vera", 403), ("ana", 403), ("olga", 200), ("adam", 200)):
        assert put_policy(people[name], text=STRICT).status_code == status, name
    told = people["ana"].get(f"{API}/release-policy").json()
    assert (told["name"], told["version"], told["set_by"], told["source"]) == ("strict", 2, "adam", "stored")
    assert put_policy(people["olga"], text=told["text"]).json()["limits"] == told["limits"]
    assert people["olga"].put(f"{API}/release-policy", json={"text": STRICT}).status_code == 428
    stale = people["olga"].put(f"{API}/release-policy", json={"text": STRICT}, headers={"If-Match": '"1"'})
    assert stale.status_code == 412
    log = people["adam"].get(f"{API}/audit-log").json()["items"]
    assert [each["actor"] for each in log if each["action"] == "policy.set"] == ["olga", "adam", "olga"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"text": "[limits]\nlinkages = 0.1\n"}, "unknown-attack"),
        ({"limits": {"linkage": 2}}, "bad-spec"),
        ({"text": "limits = ["}, "bad-policy"),
        ({}, "bad-policy"),
        ({"text": STRICT, "limits": {}}, "bad-policy"),
    ],
)
def test_a_bad_policy_changes_nothing(people, body, code):
    before = people["olga"].get(f"{API}/release-policy").json()
    refused = put_policy(people["olga"], **body)
    assert refused.status_code == 422
    assert refused.json()["code"] == code
    assert people["olga"].get(f"{API}/release-policy").json() == before


def test_the_catalogue_tells_every_attack(people):
    from safeswap.attacks.run import ATTACKS

    listed = people["vera"].get(f"{API}/attacks").json()
    assert [each["name"] for each in listed] == list(ATTACKS)
    assert all(each["intruder"] and each["description"] for each in listed)


def test_a_control_file_is_checked_and_used_and_only_workers_see_figures(office, people, project, masking):
    assert people["ana"].get(f"{API}/projects/{project}/control-file").status_code == 404
    overlapping = put_control(office, people["ana"], project, survey_with_numbers(1100, 60, 2))
    assert overlapping["error"]["code"] == "control-overlaps"
    lacking = put_control(office, people["ana"], project, b"id,region\n1,N\n2,S\n")
    assert lacking["error"]["code"] == "files-differ"
    assert put_control(office, people["ana"], project, survey_with_numbers(5000, 60, 2))["state"] == "succeeded"
    told = people["ana"].get(f"{API}/projects/{project}/control-file").json()
    assert (told["name"], told["records"], told["created_by"]) == ("held.csv", 60, "ana")
    body = {"masking": masking, "tables": [["region", "tenure"]]}
    asked = people["ana"].post(f"{API}/projects/{project}/attacks", json=body)
    do_jobs(office.service)
    made = people["ana"].get(asked.headers["location"]).json()
    address = f"{API}/projects/{project}/attacks/{made['result']['id']}"
    found = people["olga"].get(address).json()["summary"]
    rows = {each["attack"]: each for each in found["attacks"]}
    assert (found["control"], rows["attribute_inference"]["against"]) == (60, "control records")
    assert rows["attribute_inference"]["control"] == 60
    assert (rows["distinct_numbers"]["allowed"], rows["distinct_numbers"]["is_above"]) == (0.2, True)
    for place in (address, f"{API}/projects/{project}/attacks", f"{API}/projects/{project}/control-file"):
        assert people["vera"].get(place).status_code == 403


def test_above_the_policy_an_officer_states_why_and_the_board_reads_it(office, people, project, masking):
    refused = request_of(office, people["ana"], project, masking)
    told = {name: people[name].get(refused).json() for name in ("ana", "vera")}
    assert told["ana"]["state"] == told["vera"]["state"] == "failed"
    assert "distinct_numbers" in told["ana"]["reason"]
    assert "distinct_numbers" not in json.dumps(told["vera"])
    job = f"{API}/jobs/{told['vera']['job_id']}"
    assert people["ana"].get(job).json()["error"]["fields"]["attacks"]
    listed = people["vera"].get(f"{API}/projects/{project}/jobs").json()
    for answer in (people["vera"].get(job).json(), listed):
        assert "attack-above-policy" in json.dumps(answer)
        assert "advantage" not in json.dumps(answer)
    address = request_of(office, people["ana"], project, masking, override="The income is public.")
    shown = people["olga"].get(address).json()
    assert (shown["policy"], shown["needs_attack_override"]) == ("strict", True)
    remarks = " ".join(shown["remarks"])
    assert "Kinds guessed from the values and not confirmed by anyone: region, tenure, age, income." in remarks
    assert {"control records", "files without traces"} <= {each["against"] for each in shown["attacks"]}
    for_viewer = people["vera"].get(address).json()
    assert (for_viewer["attacks"], for_viewer["attack_override"]) == ([], "")
    assert "override" not in for_viewer["terms"]
    decision = {"manifest_hash": shown["manifest_hash"]}
    bare = people["olga"].post(f"{address}/approval", json=decision)
    assert (bare.status_code, bare.json()["code"]) == (409, "attack-above-policy")
    reason = "The income register was published last year."
    done = people["olga"].post(f"{address}/approval", json={**decision, "attack_override": reason})
    assert (done.status_code, done.json()["attack_override"]) == (200, reason)
    assert reason in people["olga"].get(f"{address}/reports/chair").text
    members = people["olga"].get(f"{address}/reports/members").text
    assert reason not in members
    assert "release it anyway" in members
    assert reason not in people["vera"].get(f"{address}/reports/public").text
    log = people["olga"].get(f"{API}/projects/{project}/audit-log").json()["items"]
    assert next(e for e in log if e["action"] == "release.approve")["detail"]["attack_override"] == reason


def test_a_second_masking_is_attacked_together_with_the_first_release(office, people, project):
    other = masking_of(office, people["ana"], project, rate=0.5)
    body = {"masking": other, "attacks": ["several_releases"]}
    asked = people["ana"].post(f"{API}/projects/{project}/attacks", json=body)
    alone = people["ana"].post(f"{API}/projects/{project}/attacks", json={**body, "earlier": False})
    do_jobs(office.service)
    found = []
    for each in (asked, alone):
        made = people["ana"].get(each.headers["location"]).json()["result"]["id"]
        found.append(people["ana"].get(f"{API}/projects/{project}/attacks/{made}").json()["summary"])
    assert (found[0]["earlier"], found[1]["earlier"]) == (1, 0)
    assert [each["attack"] for each in found[0]["attacks"]] == ["several_releases"]
    assert found[1]["skipped"][0]["reason"] == "needs earlier releases of the same records"
    assert (
        people["ana"].post(f"{API}/projects/{project}/attacks", json={**body, "attacks": ["guess"]}).status_code == 422
    )


def test_a_viewer_sees_no_result_that_was_measured_by_attacks(office, people, project):
    body = {"spec": {"method": "swap", "swap": ["tenure"], "rate": 0.2}, "measures": ["best_attack", "hellinger"]}
    asked = people["ana"].post(f"{API}/projects/{project}/maskings", json=body)
    do_jobs(office.service)
    made = people["ana"].get(asked.headers["location"]).json()["result"]["id"]
    address = f"{API}/projects/{project}/maskings"
    assert "best_attack" in people["ana"].get(f"{address}/{made}").text
    for place in (f"{address}/{made}", f"{address}/{made}/report.html"):
        assert people["vera"].get(place).status_code == 403
    listed = {each["id"]: each for each in people["vera"].get(address).json()["items"]}
    assert listed[made]["summary"] == {}
    assert people["vera"].get(f"{address}/{made}/reports/public").status_code == 200


def test_a_threshold_of_risk_gives_a_specification_to_mask_by(office, people, project):
    body = {"keys": ["region", "tenure", "age"], "threshold": 0.15, "by": "swap", "swap": ["tenure"]}
    asked = people["ana"].post(f"{API}/projects/{project}/mask-below", json=body)
    do_jobs(office.service)
    made = people["ana"].get(asked.headers["location"]).json()
    assert made["state"] == "succeeded", made
    address = f"{API}/projects/{project}/mask-below/{made['result']['id']}"
    found = people["ana"].get(address).json()["summary"]
    assert people["vera"].get(address).status_code == 403
    spec = {name: value for name, value in found["spec"].items() if name != "method"}
    assert masking_of(office, people["ana"], project, **{"fixed": [], "rate": None, **spec})
    wrong = people["ana"].post(f"{API}/projects/{project}/mask-below", json={**body, "swap": ["income"]})
    do_jobs(office.service)
    assert people["ana"].get(wrong.headers["location"]).json()["error"]["code"] == "bad-spec"
