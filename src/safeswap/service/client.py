"""A client for programs: the interface as typed calls, with the same types that the service answers with.

>>> from safeswap.service.client import Client
>>> with Client("http://127.0.0.1:8765", token="ssw_…") as client:  # doctest: +SKIP
...     project = client.make_project("Labour force survey 2026")
...     client.wait(client.send_data(project.id, "survey.csv"))
...     job = client.wait(client.mask(project.id, {"method": "swap", "swap": ["Race"], "rate": 0.05}))
...     print(client.masking(project.id, job.result.id).summary["scores"])
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from safeswap.service.client_connection import Refused, as_error, chunks
from safeswap.service.client_releases import ReleaseCalls
from safeswap.service.client_risk import RiskCalls
from safeswap.service.schemas.jobs import Job
from safeswap.service.schemas.library import MeasureAnswer, MethodAnswer, PlanAnswer, ResultAnswer
from safeswap.service.schemas.projects import DescriptionAnswer, ProjectAnswer
from safeswap.service.schemas.studies import Candidate, CandidateAnswer, ChoiceAnswer

__all__ = ["Client", "Refused", "as_error"]


class Client(RiskCalls, ReleaseCalls):
    """One connection to a service, by token, by name and password, or by the token of a service for one person."""

    # --- Projects and data

    def projects(self) -> list[ProjectAnswer]:
        """All projects of which one is a member."""
        return list(self._pages("/projects", ProjectAnswer))

    def make_project(self, name: str, *, tolerance: int | None = None) -> ProjectAnswer:
        """Make a project."""
        return self._made(ProjectAnswer, "/projects", {"name": name[:200], "tolerance": tolerance})

    def project(self, project_id: str) -> ProjectAnswer:
        """One project."""
        return self._got(ProjectAnswer, f"/projects/{project_id}")

    def delete_project(self, project_id: str) -> None:
        """Delete a project and everything in it."""
        self._send("DELETE", f"/projects/{project_id}")

    def send_data(
        self,
        project_id: str,
        path: str | PathLike[str],
        *,
        identifier: str | None = None,
        delimiter: str | None = None,
        encoding: str | None = None,
    ) -> Job:
        """Send a file in a stream; the job reads it."""
        file = Path(path)
        stated = {"name": file.name, "identifier": identifier, "delimiter": delimiter, "encoding": encoding}
        query = {option: value for option, value in stated.items() if value is not None}
        answer = self._send("PUT", f"/projects/{project_id}/data", params=query, content=chunks(file))
        return Job.model_validate(answer.json())

    def description(self, project_id: str) -> DescriptionAnswer:
        """What the file is like."""
        return self._got(DescriptionAnswer, f"/projects/{project_id}/description")

    # --- The library

    def methods(self) -> list[MethodAnswer]:
        """All methods of masking."""
        return [MethodAnswer.model_validate(each) for each in self._send("GET", "/methods").json()]

    def measures(self) -> list[MeasureAnswer]:
        """All measures."""
        return [MeasureAnswer.model_validate(each) for each in self._send("GET", "/measures").json()]

    def plan(self, project_id: str, spec: Mapping[str, Any]) -> PlanAnswer:
        """What a specification would do."""
        return self._made(PlanAnswer, f"/projects/{project_id}/plan", {"spec": dict(spec)})

    def mask(
        self, project_id: str, spec: Mapping[str, Any], *, measures: Sequence[str] = (), replicate: int = 0
    ) -> Job:
        """Mask and measure."""
        body: dict[str, Any] = {"spec": dict(spec), "replicate": replicate}
        return self._made(
            Job, f"/projects/{project_id}/maskings", body | ({"measures": list(measures)} if measures else {})
        )

    def masking(self, project_id: str, result_id: str) -> ResultAnswer:
        """One masking."""
        return self._got(ResultAnswer, f"/projects/{project_id}/maskings/{result_id}")

    def study(self, project_id: str, **parameters: Any) -> Job:
        """Run a risk-utility study."""
        return self._made(Job, f"/projects/{project_id}/studies", {"spec": parameters})

    def candidates(self, project_id: str, study_id: str) -> Iterator[Candidate]:
        """The candidates of a study, page by page."""
        return self._pages(f"/projects/{project_id}/studies/{study_id}/candidates", Candidate)

    def candidate(self, project_id: str, study_id: str, number: int) -> CandidateAnswer:
        """One candidate in detail."""
        return self._got(CandidateAnswer, f"/projects/{project_id}/studies/{study_id}/candidates/{number}")

    def choose(self, project_id: str, study_id: str, objective: str) -> ChoiceAnswer:
        """The candidate that an objective chooses."""
        return self._made(ChoiceAnswer, f"/projects/{project_id}/studies/{study_id}/choice", {"objective": objective})

    # --- Jobs

    def job(self, job_id: str) -> Job:
        """How far a job is."""
        return self._got(Job, f"/jobs/{job_id}")

    def cancel(self, job_id: str) -> Job:
        """Ask for the end of a job."""
        return Job.model_validate(self._send("DELETE", f"/jobs/{job_id}").json())

    def wait(self, job: Job, *, seconds: float = 24 * 3600.0, progress: Callable[[Job], None] | None = None) -> Job:
        """Wait for the end of a job; one that fails raises what went wrong."""
        until, pause = time.monotonic() + seconds, 0.1
        while job.state in {"queued", "running"}:
            if time.monotonic() > until:
                raise TimeoutError(f"job {job.id} has not ended within {seconds:g} s")
            time.sleep(pause)
            pause = min(1.3 * pause, 2.0)
            job = self.job(job.id)
            if progress is not None:
                progress(job)
        if job.error is not None:
            raise as_error(job.error)
        return job
