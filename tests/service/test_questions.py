"""Questions that somebody waits for: none holds the server up, whatever is asked and however many ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest
from tests.service.at_work import do_jobs, masking_of, project_with_data
from tests.service.serving import Running, running

from safeswap import workflow
from safeswap.service.http.problems import Unavailable
from safeswap.service.settings import Limits
from safeswap.service.state import FairSemaphore

API = "/api/v1"
KEYS = {"keys": ["region", "tenure", "age"], "up_to": 2}
SUPPRESS = {"method": "suppress", **KEYS}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service on which a question may count six tables of sixty records, one at a time."""
    limits = Limits(reserve_bytes=0, question_work=400, questions=1)
    with running(tmp_path_factory.mktemp("strict"), limits=limits) as here:
        yield here


@pytest.fixture(scope="module")
def project(strict: Running) -> str:
    return project_with_data(strict, "ana", "vera")


def asked(here: Running, project: str, path: str, **body: object) -> tuple[int, str]:
    answer = here.client("ana").post(f"{API}/projects/{project}{path}", json=body)
    return answer.status_code, answer.json().get("code", "")


def test_a_short_list_of_combinations_is_counted_while_one_waits(strict, project):
    assert asked(strict, project, "/risky", combinations=KEYS) == (200, "")


def test_a_long_list_is_refused_with_its_size_before_anything_is_counted(strict, project):
    more = {**KEYS, "up_to": 3}
    answer = strict.client("vera").post(f"{API}/projects/{project}/risky", json={"combinations": more})
    assert (answer.status_code, answer.json()["code"]) == (422, "too-long")
    assert answer.json()["fields"] == {"tables": 7, "records": 60, "most": 400}
    assert "risky-lists" in answer.json()["hint"]
    asked_as_job = strict.client("ana").post(f"{API}/projects/{project}/risky-lists", json={"combinations": more})
    do_jobs(strict.service)
    job = strict.client("ana").get(asked_as_job.headers["location"]).json()
    assert (job["state"], job["result"]["kind"]) == ("succeeded", "risky"), job


def test_advice_counts_every_recode_it_tries(strict, project):
    assert asked(strict, project, "/advice", combinations=KEYS) == (422, "too-long")


def test_a_recipe_that_takes_long_to_make_is_not_tried_in_the_server(strict, project):
    ana = strict.client("ana")
    address = f"{API}/projects/{project}/recipe"
    answer = ana.put(address, json={"steps": [SUPPRESS]}, headers={"If-Match": ana.get(address).headers["etag"]})
    assert (answer.status_code, answer.json()["code"]) == (422, "too-long")


def test_a_table_check_of_many_cells_is_refused(strict, project, monkeypatch):
    from safeswap.service.routes import safe_tables

    monkeypatch.setattr(safe_tables, "MOST_CELLS_AT_ONCE", 5)
    assert asked(strict, project, "/table-checks", tables=[["region", "tenure"]])[0] == 422
    assert asked(strict, project, "/table-checks", tables=[["region"]])[0] == 200


def test_data_without_room_in_the_server_are_for_jobs_only(tmp_path):
    limits = Limits(reserve_bytes=0, cached_bytes=1000)
    with running(tmp_path, limits=limits) as here:
        project = project_with_data(here, "ana")
        for path, body in {
            "/plan": {"spec": {"method": "swap", "swap": ["tenure"], "rate": 0.2}},
            "/risky": {"combinations": KEYS},
            "/table-checks": {"tables": [["region"]]},
        }.items():
            assert asked(here, project, path, **body) == (409, "too-large"), path
        study = {"attributes": ["tenure", "region"], "rates": [0.1], "replicates": 1}
        assert asked(here, project, "/study-size", spec=study) == (200, "")
        assert asked(here, project, "/studies", spec=study)[0] == 202
        assert asked(here, project, "/safe-tables", tables=[["region", "tenure"]])[0] == 202
        do_jobs(here.service)
        assert masking_of(here, here.client("ana"), project)
        assert here.service.data_cache.used == 0


def test_while_a_question_takes_long_everything_else_goes_on(strict, project, monkeypatch):
    begun, finish, at_once = threading.Event(), threading.Event(), []

    def slow(*_: object, **__: object) -> object:
        at_once.append(threading.active_count())
        begun.set()
        finish.wait(60)
        return plain(*_, **__)

    plain = workflow.plan
    monkeypatch.setattr(workflow, "plan", slow)
    spec = {"method": "swap", "swap": ["tenure"], "rate": 0.2}
    with ThreadPoolExecutor(60) as people:
        answers = [people.submit(asked, strict, project, "/plan", spec=spec) for _ in range(60)]
        assert begun.wait(20)
        # More ask than the server has threads, and still there is one for somebody else.
        assert strict.client("vera").get(f"{API}/projects/{project}").status_code == 200
        assert len(at_once) == 1
        finish.set()
        assert {answer.result()[0] for answer in answers} <= {200, 503}


def test_a_question_cancelled_before_its_turn_is_never_computed(strict, project, monkeypatch):
    begun, finish, computed = threading.Event(), threading.Event(), []

    def slow(data: object, spec: dict[str, object], **given: object) -> object:
        computed.append(spec["rate"])
        begun.set()
        finish.wait(60)
        return plain(data, spec, **given)

    plain = workflow.plan
    monkeypatch.setattr(workflow, "plan", slow)
    with ThreadPoolExecutor(2) as people:

        def ask(rate: float) -> Future[tuple[int, str]]:
            spec = {"method": "swap", "swap": ["tenure"], "rate": rate}
            return people.submit(asked, strict, project, "/plan", spec=spec)

        first = ask(0.1)
        assert begun.wait(60)
        impatient = strict.client("vera")
        spec = {"method": "swap", "swap": ["tenure"], "rate": 0.2}
        with pytest.raises(httpx.ReadTimeout):
            impatient.post(f"{API}/projects/{project}/plan", json={"spec": spec}, timeout=httpx.Timeout(60, read=0.2))
        impatient.close()
        for _ in range(3):  # by then the server has seen that the caller is gone
            assert strict.client("vera").get(f"{API}/projects/{project}").status_code == 200
        third = ask(0.3)
        finish.set()
        assert [first.result()[0], third.result()[0]] == [200, 200]
    assert computed == [0.1, 0.3]


def test_who_waits_too_long_for_a_turn_is_told_to_come_again():
    async def two() -> None:
        slots = FairSemaphore(1, timeout=0.01)
        async with slots.hold():
            assert slots.free == 0
            with pytest.raises(Unavailable) as refused:
                async with slots.hold():
                    raise AssertionError("there was no turn left")
            assert refused.value.headers == {"Retry-After": "5"}
        async with slots.hold():
            pass
        assert slots.free == 1

    # In a thread of its own: the browsers of other tests hold the loop of this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(two())).result()


FEW = "id,a,b\n" + "".join(
    f"{place},{a},{b}\n" for place, (a, b) in enumerate([("p", "x")] * 2 + [("p", "y"), ("q", "x"), ("q", "y")] * 25)
)
SMALL = (
    {"method": "suppress", "keys": ["a", "b"]},
    {"method": "edit_targeted", "keys": ["a", "b"], "exchange": "categorical"},
)


@pytest.mark.parametrize("spec", [*SMALL, {"method": "pipeline", "steps": [SMALL[0]]}])
def test_a_plan_gives_no_small_count_away(tmp_path, spec):
    """One question of a viewer was enough: 2 of 77 records are in one unsafe combination."""
    seen = set()
    with running(tmp_path) as here:
        for _ in range(6):  # each project has a key of its own
            project = project_with_data(here, "ana", "vera", content=FEW.encode())
            answer = here.client("vera").post(f"{API}/projects/{project}/plan", json={"spec": spec})
            assert answer.status_code == 200, answer.text
            assert "approximate" in answer.json()["sentence"]
            seen.add(answer.json()["asked"])
        lower = {**SMALL[0], "tolerance": 2}
        refused = here.client("vera").post(f"{API}/projects/{project}/plan", json={"spec": lower})
        assert (refused.status_code, refused.json()["code"]) == (422, "tolerance-floor")
    assert len(seen) > 1


def test_a_masking_gives_the_numbers_of_small_cells_as_one_sum(tmp_path):
    with running(tmp_path) as here:
        project = project_with_data(here, "ana", "vera", content=FEW.encode())
        changes = {"swap": ["a"], "fixed": [], "rate": 0.1}
        masking = masking_of(here, here.client("ana"), project, **changes)
        shown = here.client("vera").get(f"{API}/projects/{project}/maskings/{masking}").json()["summary"]
        details = [score["detail"] for score in shown["scores"] if score["measure"] == "n_rule"]
        assert details
        assert all(len(rows) == 1 and "cell_size" not in rows[0] for rows in details)
