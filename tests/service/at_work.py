"""Jobs done in this process: the tasks and what they leave in the database, without a process for each."""

from __future__ import annotations

import io
import random

from sqlalchemy import select
from tests.service.serving import Running

from safeswap.errors import SafeswapError
from safeswap.service.database import new_id
from safeswap.service.jobs import Claim, Queue
from safeswap.service.state import Service
from safeswap.service.tables import projects
from safeswap.service.tasks import find, hooks
from safeswap.service.tasks.context import Context

SPEC = {"method": "swap", "swap": ["tenure"], "fixed": ["region"], "rate": 0.2}


def do_jobs(service: Service) -> int:
    """Do what waits; how many jobs there were."""
    done = 0
    queue = Queue(
        service.database,
        service.settings,
        ended=lambda connection, job: hooks.failed(connection, job, service.settings),
    )
    while (claim := queue.claim("here")) is not None:
        _do(service, queue, claim)
        done += 1
    return done


def _do(service: Service, queue: Queue, claim: Claim) -> None:
    with service.database.read() as connection:
        row = connection.execute(select(projects).where(projects.c.id == claim.project_id)).mappings().one()
    context = Context(settings=service.settings, job=claim, project=dict(row), report=lambda *_: None)
    try:
        outcome = find(claim.kind).run(context, dict(claim.payload))
    except SafeswapError as error:
        queue.fail(claim, error)
    else:
        queue.succeed(
            claim,
            outcome,
            lambda connection: hooks.finished(connection, claim, outcome, context.saved, settings=service.settings),
        )
    service.store.clear(claim.id)


def survey(*, records: int = 60, seed: int = 1) -> bytes:
    """A small survey as CSV."""
    draw = random.Random(seed)
    out = io.StringIO()
    out.write("id,region,tenure,age\n")
    for number in range(records):
        tenure = draw.choice(["own", "rent", "free"])
        out.write(f"{1000 + number},{draw.choice('NS')},{tenure},{draw.choice(['young', 'old'])}\n")
    return out.getvalue().encode()


def project_with_data(here: Running, *people: str, owner: str = "ana", content: bytes | None = None) -> str:
    """A project whose data have been read in."""
    project = here.add_project(*people, owner=owner)
    upload = here.service.store.uploads(project) / new_id()
    upload.write_bytes(survey() if content is None else content)
    payload = {"upload": upload.name, "name": "survey.csv", "reading": {"identifier": "id"}}
    here.service.queue.enqueue("ingest", payload, project_id=project, created_by=here.user_id(owner))
    do_jobs(here.service)
    return project
