from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from tests.service.installed import database_of, settings_in

from safeswap.errors import InputError
from safeswap.service.http.problems import Unavailable
from safeswap.service.keeping.database import Database
from safeswap.service.people import accounts
from safeswap.service.state import FairSemaphore
from safeswap.service.work.jobs import Queue

ERROR = InputError("line 3 of 'a.csv' is too long", code="bad-line", line=3)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return database_of(settings_in(tmp_path))


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def queue(tmp_path: Path, database: Database, clock: Clock, ended: list[str]) -> Queue:
    def note(_connection, job):
        ended.append(job["state"])

    return Queue(database, settings_in(tmp_path, lease_seconds=10), clock=clock, on_end=note)


def add(queue: Queue, kind: str = "mask", **given) -> str:
    return queue.enqueue(kind, {"rate": 0.1}, project_id=None, created_by=None, **given)


def test_jobs_are_claimed_once_each_and_in_their_order(queue, clock):
    ids = []
    for _ in range(3):
        ids.append(add(queue))
        clock.at += 1
    urgent = add(queue, priority=1)
    claims = [queue.claim("w") for _ in range(5)]
    assert [claim and claim.id for claim in claims] == [urgent, *ids, None]
    assert claims[0].payload == {"rate": 0.1}
    assert (claims[0].fence, claims[0].attempts) == (1, 1)


def test_a_worker_takes_only_the_kinds_that_it_can_do(queue):
    add(queue, "mask")
    assert queue.claim("w", kinds=["study"]) is None
    assert queue.claim("w", kinds=["study", "mask"]) is not None


def test_a_delayed_job_waits(queue, clock):
    add(queue, delay=5)
    assert queue.claim("w") is None
    clock.at += 5
    assert queue.claim("w") is not None


def test_a_job_enqueued_in_a_transaction_that_is_undone_was_never_there(queue, database):
    with pytest.raises(RuntimeError), database.write() as connection:
        add(queue, connection=connection)
        raise RuntimeError
    assert queue.claim("w") is None


def test_a_heartbeat_keeps_the_job(queue, clock):
    add(queue)
    claim = queue.claim("w")
    for _ in range(5):
        clock.at += 8
        assert queue.heartbeat(claim, 0.5, "half")
        assert queue.expire() == 0
    row = queue.get(claim.id)
    assert (row["progress"], row["message"], row["state"]) == (0.5, "half", "running")


def test_a_silent_worker_loses_its_job_and_nobody_listens_to_it_any_more(queue, clock):
    add(queue)
    old = queue.claim("w")
    clock.at += 11
    queue.expire()
    clock.at += 11
    new = queue.claim("w")  # the same worker, even
    assert (new.id, new.fence, new.attempts) == (old.id, old.fence + 1, 2)
    assert not queue.heartbeat(old)
    assert not queue.succeed(old, {"id": "old"}, also=lambda _: pytest.fail("it happened"))
    assert not queue.fail(old, ERROR)
    assert queue.succeed(new, {"id": "new"})
    assert queue.get(new.id)["result"] == {"id": "new"}


def test_a_job_whose_lease_ran_out_unnoticed_can_still_be_finished(queue, clock):
    add(queue)
    claim = queue.claim("w")
    clock.at += 100
    assert queue.succeed(claim, None)


def test_after_three_attempts_a_lost_job_fails_with_a_reason(queue, clock, ended):
    job = add(queue)
    for attempt in (1, 2, 3):
        assert queue.claim("w").attempts == attempt
        clock.at += 11
        assert queue.expire() == 1
        assert ended == (["failed"] if attempt == 3 else [])
        clock.at += 11
    row = queue.get(job)
    assert (row["state"], row["error"]["code"]) == ("failed", "worker-lost")
    assert row["finished_at"] is not None
    assert queue.claim("w") is None


def test_an_error_of_the_data_ends_the_job_at_once(queue, ended):
    job = add(queue)
    assert queue.fail(queue.claim("w"), ERROR)
    row = queue.get(job)
    assert (row["state"], row["error"]) == ("failed", ERROR.as_dict())
    assert ended == ["failed"]


def test_a_crash_is_tried_again_after_a_while_and_fails_for_good_at_the_third(queue, clock, ended):
    job = add(queue)
    for attempt in (1, 2, 3):
        assert queue.fail(queue.claim("w"), ERROR, retry=True)
        assert len(ended) == (attempt == 3)
        assert queue.claim("w") is None
        assert queue.get(job)["error"] == (ERROR.as_dict() if attempt == 3 else None)
        clock.at += 10
    assert queue.get(job)["state"] == "failed"


def test_success_may_be_told_twice_but_happens_once(queue):
    add(queue)
    claim = queue.claim("w")
    happened = []
    assert queue.succeed(claim, {"id": "1"}, also=happened.append)
    assert queue.succeed(claim, {"id": "1"}, also=happened.append)
    assert len(happened) == 1


def test_what_a_success_leads_to_may_name_the_result(queue):
    add(queue)
    claim = queue.claim("w")
    assert queue.succeed(claim, {"id": "1"}, also=lambda _: {"id": "2"})
    assert queue.get(claim.id)["result"] == {"id": "2"}


def test_a_success_whose_consequences_break_did_not_happen(queue):
    add(queue)
    claim = queue.claim("w")

    def broken(_connection):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        queue.succeed(claim, {"id": "1"}, also=broken)
    assert queue.get(claim.id)["state"] == "running"
    assert queue.succeed(claim, {"id": "1"})


def test_a_waiting_job_is_cancelled_at_once(queue, ended):
    job = add(queue)
    assert queue.cancel(job)
    assert queue.get(job)["state"] == "cancelled"
    assert queue.claim("w") is None
    assert not queue.cancel(job)
    assert ended == ["cancelled"]


def test_a_job_given_back_in_good_health_has_lost_no_attempt(queue):
    add(queue)
    first = queue.claim("w")
    assert queue.requeue(first)
    assert not queue.succeed(first, None)
    second = queue.claim("w")
    assert (second.attempts, second.fence) == (1, first.fence + 1)


def test_a_running_job_that_is_cancelled_cannot_succeed_any_more(queue):
    job = add(queue)
    claim = queue.claim("w")
    assert queue.cancel(job)
    assert queue.get(job)["state"] == "running"
    assert not queue.heartbeat(claim)
    assert not queue.succeed(claim, {"id": "1"})
    assert queue.fail(claim, ERROR, retry=True)
    row = queue.get(job)
    assert (row["state"], row["error"]) == ("cancelled", None)


def test_a_cancelled_job_of_a_lost_worker_is_not_tried_again(queue, clock, ended):
    job = add(queue)
    queue.claim("w")
    queue.cancel(job)
    clock.at += 11
    assert queue.expire() == 1
    assert ended == ["cancelled"]
    assert queue.get(job)["state"] == "cancelled"


def test_a_job_that_ended_cannot_be_cancelled_or_failed(queue):
    job = add(queue)
    claim = queue.claim("w")
    queue.succeed(claim, None)
    assert not queue.cancel(job)
    assert not queue.fail(claim, ERROR)
    assert queue.get(job)["state"] == "succeeded"


def test_pages_of_jobs_go_from_the_newest_to_the_oldest_without_gaps(queue, clock):
    ids = [add(queue) for _ in range(4)]
    clock.at += 1
    newest = add(queue, "study")
    seen, before = [], None
    while page := queue.list(limit=2, before=before):
        seen += [row["id"] for row in page]
        before = (page[-1]["created_at"], page[-1]["id"])
    assert seen[0] == newest
    assert sorted(seen) == sorted([*ids, newest])
    assert [row["id"] for row in queue.list(kind="study")] == [newest]
    claimed = queue.claim("w").id
    assert [row["id"] for row in queue.list(states=["running"])] == [claimed]
    assert len(queue.list(states=["running", "queued"])) == 5
    assert queue.cancel(newest)
    assert newest not in {row["id"] for row in queue.list(states=["running", "queued"])}
    assert queue.counts() == {("mask", "running"): 1, ("mask", "queued"): 3, ("study", "cancelled"): 1}


def test_a_long_message_is_cut_and_progress_kept_in_bounds(queue):
    add(queue)
    claim = queue.claim("w")
    assert queue.heartbeat(claim, 7.0, "x" * 1000)
    row = queue.get(claim.id)
    assert (row["progress"], len(row["message"])) == (1.0, 300)


@pytest.fixture
def people(database: Database) -> tuple[str, str]:
    with database.write() as connection:
        return tuple(accounts.add_user(connection, name=name, role="analyst") for name in ("ana", "bea"))


def add_of(queue: Queue, person: str, number: int) -> list[str]:
    return [queue.enqueue("mask", {}, project_id=None, created_by=person) for _ in range(number)]


def test_whoever_asks_for_one_job_does_not_wait_for_the_hundred_of_another(queue, clock, people):
    ana, bea = people
    add_of(queue, ana, 100)
    clock.at += 1
    first = queue.claim("w")
    (waiting,) = add_of(queue, bea, 1)
    queue.succeed(first, None)
    clock.at += 1
    assert queue.claim("w").id == waiting


def test_people_take_turns(queue, clock, people):
    ana, bea = people
    hers = set(add_of(queue, ana, 4))
    clock.at += 1
    add_of(queue, bea, 4)
    order = []
    for _ in range(8):
        claim = queue.claim("w")
        order.append("ana" if claim.id in hers else "bea")
        queue.succeed(claim, None)
        clock.at += 1
    assert order == ["ana", "bea"] * 4


@pytest.mark.parametrize(("given", "most"), [({}, 3), ({"limits": {"running_jobs": 2}}, 2), ({"single_user": True}, 9)])
def test_one_person_leaves_a_worker_for_the_others(tmp_path, database, people, given, most):
    queue = Queue(database, settings_in(tmp_path, workers=4, **given))
    add_of(queue, people[0], 9)
    assert sum(queue.claim(f"w{number}") is not None for number in range(9)) == most
    (other,) = add_of(queue, people[1], 1)
    assert queue.claim("another").id == other


def test_a_person_never_takes_all_turns_for_questions():
    async def asked() -> tuple[int, int]:
        slots, most, others = FairSemaphore(3, timeout=0.05), 0, 0
        async with AsyncExitStack() as held:
            for _ in range(3):
                with suppress(Unavailable):
                    await held.enter_async_context(slots.hold("ana"))
                    most += 1
            async with slots.hold("bea"):
                others += 1
        assert slots.free == 3
        return most, others

    with ThreadPoolExecutor(1) as apart:  # a browser test in the same process may leave a loop running in this thread
        assert apart.submit(lambda: asyncio.run(asked())).result() == (2, 1)
