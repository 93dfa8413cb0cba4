"""Jobs done in this process: the tasks and what they leave in the database, without a process for each."""

from __future__ import annotations

import io
import random

import httpx
from sqlalchemy import select
from tests.service.serving import Running

from safeswap.errors import SafeswapError
from safeswap.service.keeping.database import new_id
from safeswap.service.keeping.tables import projects
from safeswap.service.state import Service
from safeswap.service.work.jobs import Claim, Queue
from safeswap.service.work.tasks import Context, find, run_failed, run_finish, run_prepare

SPEC = {"method": "swap", "swap": ["tenure"], "fixed": ["region"], "rate": 0.2}


def do_jobs(service: Service) -> int:
    """Do what waits; how many jobs there were."""
    done = 0
    queue = Queue(
        service.database,
        service.settings,
        on_end=lambda connection, job: run_failed(connection, job, service.settings),
    )
    while (claim := queue.claim("here")) is not None:
        _do(service, queue, claim)
        done += 1
    return done


def _do(service: Service, queue: Queue, claim: Claim) -> None:
    with service.database.read() as connection:
        run_prepare(connection, claim, service.settings)
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
            lambda connection: run_finish(connection, claim, outcome, context.saved, settings=service.settings),
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


def masking_of(here: Running, client: httpx.Client, project: str, **changes: object) -> str:
    """Mask the data of a project; the masking's id."""
    asked = client.post(f"/api/v1/projects/{project}/maskings", json={"spec": {**SPEC, **changes}})
    assert asked.status_code == 202, asked.text
    do_jobs(here.service)
    made = client.get(asked.headers["location"]).json()
    assert made["state"] == "succeeded", made
    return str(made["result"]["id"])


def request_of(here: Running, client: httpx.Client, project: str, masking: str, **terms: object) -> str:
    """Ask for a release and have it prepared; its address."""
    address = f"/api/v1/projects/{project}/releases"
    asked = client.post(address, json={"masking": masking, "terms": terms})
    assert asked.status_code == 202, asked.text
    assert asked.json()["state"] == "preparing"
    do_jobs(here.service)
    return asked.headers["location"]


class Case:
    """A project of its own with a release that waits to be decided."""

    def __init__(self, here: Running, seed: int) -> None:
        people = ("vera", "ana", "olga", "otto")
        self.here, self.content = here, survey(seed=seed, records=60 + seed)
        self.project = project_with_data(here, *people, content=self.content)
        self.ana, self.olga, self.otto, self.vera = (here.client(each) for each in ("ana", "olga", "otto", "vera"))
        self.masking = masking_of(here, self.ana, self.project)
        self.address = request_of(here, self.ana, self.project, self.masking, title="Survey")

    def shown(self, client: httpx.Client | None = None) -> dict[str, object]:
        return dict((client or self.olga).get(self.address).json())

    def approve(self, client: httpx.Client, **body: object) -> httpx.Response:
        wanted = {"manifest_hash": self.shown()["manifest_hash"], **body}
        return client.post(f"{self.address}/approval", json=wanted)
