"""A typed client for the HTTP API, using the service's own response types.

The types of a feature are imported when a call needs them: the library behind the server takes a second to load.

>>> from safeswap.service.client import Client
>>> with Client("http://127.0.0.1:8765", token="ssw_…") as client:  # doctest: +SKIP
...     project = client.make_project("Labour force survey 2026")
...     client.wait(client.send_data(project.id, "survey.csv"))
...     job = client.wait(client.mask(project.id, {"method": "swap", "swap": ["Race"], "rate": 0.05}))
...     print(client.masking(project.id, job.result.id).summary["scores"])
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar
from urllib.parse import urlencode

import httpx
from pydantic import BaseModel

from safeswap.errors import ERROR_CLASSES
from safeswap.files.atomic import atomic_write
from safeswap.model.scenario import Scenario, as_scenario
from safeswap.service import routes
from safeswap.service.app import API
from safeswap.service.http.problems import Problem, Refusal
from safeswap.service.routes.jobs import Job, ResultAnswer
from safeswap.service.routes.projects import MemberAnswer, ProjectAnswer

if TYPE_CHECKING:
    from safeswap.service.routes.argus import AdviceAnswer, RecipeAnswer, RiskyAnswer, SuggestedKeysAnswer
    from safeswap.service.routes.data import DescriptionAnswer
    from safeswap.service.routes.households import GeographyAnswer, HouseholdsAnswer
    from safeswap.service.routes.library import MeasureAnswer, MethodAnswer
    from safeswap.service.routes.maskings import PlanAnswer
    from safeswap.service.routes.releases import ReleaseAnswer
    from safeswap.service.routes.risk_views import RiskViewAnswer
    from safeswap.service.routes.safe_tables import CheckAnswer
    from safeswap.service.routes.settings import BandsAnswer, PolicyAnswer, SettingsAnswer, StepTableAnswer
    from safeswap.service.routes.studies import Candidate, CandidateAnswer, ChoiceAnswer

__all__ = ["Client", "Refused"]

Answer = TypeVar("Answer", bound=BaseModel)
_CHUNK = 2**20


class Refused(Refusal):
    """An error response of the service, with its problem document.

    >>> Refused(Problem(type="", title="", status=422, detail="no", code="bad-spec", hint="", fields={})).code
    'bad-spec'
    """

    def __init__(self, problem: Problem) -> None:
        taken = {"message", "code", "hint", "self"}
        fields = {name: value for name, value in problem.fields.items() if name not in taken}
        super().__init__(problem.detail, code=problem.code, hint=problem.hint, **fields)
        self.problem = problem


class Connection:
    """A connection to a service, authenticated by API token, by name and password, or by start token."""

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        name: str = "",
        password: str = "",
        start_token: str = "",
        timeout: float = 60.0,
    ) -> None:
        self._http = httpx.Client(base_url=address.rstrip("/") + API, timeout=timeout)
        if token is not None:
            self._http.headers["Authorization"] = f"Bearer {token}"
        else:
            stated = {"name": name, "password": password, "start_token": start_token}
            answer = self._send("POST", "/session", json={key: value for key, value in stated.items() if value})
            self._http.headers["X-CSRF-Token"] = answer.json()["csrf_token"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the session stays open until it expires."""
        self._http.close()

    def _get(self, kind: type[Answer], path: str) -> Answer:
        return kind.model_validate(self._send("GET", path).json())

    def _post(self, kind: type[Answer], path: str, body: Mapping[str, Any]) -> Answer:
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return kind.model_validate(self._send("POST", path, json=dict(body), headers=headers).json())

    def _iterate(self, path: str, kind: type[Answer]) -> Iterator[Answer]:
        cursor: str | None = ""
        while cursor is not None:
            page = self._send("GET", path, params={"limit": 200, "cursor": cursor}).json()
            yield from (kind.model_validate(each) for each in page["items"])
            cursor = page["next"]

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._http.request(method, path, **options)
        if answer.is_error:
            raise Refused(_read_problem(answer))
        return answer

    def _update(self, kind: type[Answer], method: str, path: str, body: Mapping[str, Any], version: int) -> Answer:
        """Send a change with ``If-Match``, so that a concurrent change is not overwritten."""
        headers = {"If-Match": f'"{version}"'}
        return kind.model_validate(self._send(method, path, json=dict(body), headers=headers).json())

    def _save(self, path: str, to: Path) -> Path:
        """Stream a large response to a new file; an incomplete download leaves no file."""
        with self._http.stream("GET", path) as answer:
            if answer.is_error:
                answer.read()
                raise Refused(_read_problem(answer))
            with atomic_write(to) as part, part.open("wb") as file:
                for piece in answer.iter_bytes(_CHUNK):
                    file.write(piece)
        return to


def _read_problem(answer: httpx.Response) -> Problem:
    try:
        return Problem.model_validate(answer.json())
    except ValueError:
        known = {kind.http_status: kind.__name__ for kind in ERROR_CLASSES}
        title = known.get(answer.status_code, answer.reason_phrase)
        return Problem(type="about:blank", title=title, status=answer.status_code, detail=title, code="no-problem")


def chunks(file: Path) -> Iterator[bytes]:
    """Yield a file in chunks."""
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


class ReleaseCalls(Connection):
    """Calls about members, releases, archives and the session log."""

    def members(self, project_id: str) -> list[MemberAnswer]:
        """List the members of a project."""
        return list(self._iterate(f"/projects/{project_id}/members", MemberAnswer))

    def add_member(self, project_id: str, name: str) -> MemberAnswer:
        """Add a member to a project; requires a session, not a token."""
        return MemberAnswer.model_validate(self._send("PUT", f"/projects/{project_id}/members/{name}").json())

    def remove_member(self, project_id: str, name: str) -> None:
        """Remove a member from a project."""
        self._send("DELETE", f"/projects/{project_id}/members/{name}")

    def request_release(self, project_id: str, masking: str, **terms: Any) -> ReleaseAnswer:
        """Request the release of a masking; a job prepares the bundle. ``terms`` are title, data_format, drop, …"""
        body = {"masking": masking, "terms": terms}
        return self._post(routes.releases.ReleaseAnswer, f"/projects/{project_id}/releases", body)

    def releases(self, project_id: str) -> list[ReleaseAnswer]:
        """List the releases of a project, newest first."""
        return list(self._iterate(f"/projects/{project_id}/releases", routes.releases.ReleaseAnswer))

    def release(self, project_id: str, release_id: str) -> ReleaseAnswer:
        """Return one release: its contents, verified properties, and overlap with earlier releases."""
        return self._get(routes.releases.ReleaseAnswer, f"/projects/{project_id}/releases/{release_id}")

    def approve(
        self,
        project_id: str,
        release_id: str,
        *,
        manifest_hash: str,
        override_reason: str = "",
        attack_override: str = "",
    ) -> ReleaseAnswer:
        """Approve exactly the bundle with this manifest, as an officer other than the requester."""
        body = {
            "manifest_hash": manifest_hash,
            "override_reason": override_reason,
            "attack_override": attack_override,
        }
        return self._post(routes.releases.ReleaseAnswer, f"/projects/{project_id}/releases/{release_id}/approval", body)

    def reject(self, project_id: str, release_id: str, *, reason: str) -> ReleaseAnswer:
        """Reject a release."""
        return self._post(
            routes.releases.ReleaseAnswer, f"/projects/{project_id}/releases/{release_id}/rejection", {"reason": reason}
        )

    def download(self, project_id: str, release_id: str, path: str | PathLike[str]) -> Path:
        """Download the approved bundle to a new zip file."""
        return self._save(f"/projects/{project_id}/releases/{release_id}/bundle.zip", Path(path))

    def export(self, project_id: str, form: Literal["safeswap", "webswap"] = "safeswap") -> Job:
        """Export a project to one file, for internal use."""
        return self._post(Job, f"/projects/{project_id}/exports", {"form": form})

    def save_export(self, project_id: str, result_id: str, path: str | PathLike[str]) -> Path:
        """Download an export. It contains the confidential data."""
        return self._save(f"/projects/{project_id}/exports/{result_id}/file", Path(path))

    def import_project(self, path: str | PathLike[str]) -> Job:
        """Create a project from a safeswap or WebSwap archive."""
        file = Path(path)
        answer = self._send("PUT", "/imports", params={"name": file.name}, content=chunks(file))
        return Job.model_validate(answer.json())

    def specifications(self, project_id: str) -> list[ResultAnswer]:
        """List the specifications that came with a project's archive."""
        return list(self._iterate(f"/projects/{project_id}/specifications", ResultAnswer))

    def note(self, project_id: str, text: str) -> None:
        """Add a note to the session log; it must not contain values of records."""
        self._send("POST", f"/projects/{project_id}/log", json={"text": text})

    def log(self, project_id: str) -> str:
        """Return the session log of a project as text."""
        return self._send("GET", f"/projects/{project_id}/log.txt").text


def _state(combinations: dict[str, Any]) -> dict[str, Any]:
    """Return combinations, or the scenario instead of them, as a request states them."""
    stated = {name: value for name, value in combinations.items() if name != "pipeline"}
    how = {"pipeline": combinations["pipeline"]} if "pipeline" in combinations else {}
    if not stated:
        return how
    if "scenario" in stated:
        return {"scenario": as_scenario(stated["scenario"]).as_dict(), **how}
    return {"combinations": stated, **how}


class RiskCalls(Connection):
    """Calls about risk. ``combinations`` takes the parameters of ``risky`` in Python, or ``scenario``."""

    def risky(self, project_id: str, **combinations: Any) -> RiskyAnswer:
        """Count the unsafe combinations of keys, now and after each step of the recipe."""
        return self._post(routes.argus.RiskyAnswer, f"/projects/{project_id}/risky", _state(combinations))

    def risk_view(self, project_id: str, view: str, **combinations: Any) -> RiskViewAnswer:
        """Look at the risk from one side, in the file and after the pipeline; ``suda``, ``individual``, …"""
        place = f"/projects/{project_id}/risk-views/{view}"
        return self._post(routes.risk_views.RiskViewAnswer, place, _state(combinations))

    def count_risky(self, project_id: str, **combinations: Any) -> Job:
        """Count unsafe combinations as a job, for a long list or a large file."""
        return self._post(Job, f"/projects/{project_id}/risky-lists", _state(combinations))

    def risky_list(self, project_id: str, result_id: str) -> RiskyAnswer:
        """Return the counts of such a job."""
        kept = self._get(ResultAnswer, f"/projects/{project_id}/risky-lists/{result_id}")
        return routes.argus.RiskyAnswer.model_validate(kept.summary)

    def advice(self, project_id: str, *, most: int = 10, **combinations: Any) -> AdviceAnswer:
        """Rank single recodes by unsafe combinations removed per information lost."""
        asked = {**_state(combinations), "most": most}
        return self._post(routes.argus.AdviceAnswer, f"/projects/{project_id}/advice", asked)

    def suggested_keys(self, project_id: str, *, most: int = 10) -> SuggestedKeysAnswer:
        """Rank the attributes by how identifying they are, as a start for a scenario."""
        place = f"/projects/{project_id}/suggested-keys?most={most}"
        return self._get(routes.argus.SuggestedKeysAnswer, place)

    def recipe(self, project_id: str) -> RecipeAnswer:
        """Return the project's recipe."""
        return self._get(routes.argus.RecipeAnswer, f"/projects/{project_id}/recipe")

    def set_recipe(self, project_id: str, steps: Sequence[Mapping[str, Any]], *, version: int) -> RecipeAnswer:
        """Replace the steps of the project's recipe; ``version`` is that of the recipe that was read."""
        body = {"steps": [dict(step) for step in steps]}
        return self._update(routes.argus.RecipeAnswer, "PUT", f"/projects/{project_id}/recipe", body, version)

    def step_through_recipe(self, project_id: str, way: Literal["undo", "redo"]) -> RecipeAnswer:
        """Undo or redo the last change of the recipe."""
        return self._post(routes.argus.RecipeAnswer, f"/projects/{project_id}/recipe/{way}", {})

    def settings(self, project_id: str) -> SettingsAnswer:
        """Return the project's scenarios, steps, study and settings of the release."""
        return self._get(routes.settings.SettingsAnswer, f"/projects/{project_id}/settings")

    def change_settings(self, project_id: str, *, version: int, **sections: Any) -> SettingsAnswer:
        """Replace sections: ``scenarios``, ``scenario``, ``steps``, ``study``, ``release``."""
        place = f"/projects/{project_id}/settings"
        return self._update(routes.settings.SettingsAnswer, "PATCH", place, sections, version)

    def step_through_settings(self, project_id: str, way: Literal["undo", "redo"]) -> SettingsAnswer:
        """Undo or redo the last change of the steps."""
        return self._post(routes.settings.SettingsAnswer, f"/projects/{project_id}/settings/{way}", {})

    def step_table(self, project_id: str) -> StepTableAnswer:
        """Return what each step of the pipeline does."""
        return self._post(routes.settings.StepTableAnswer, f"/projects/{project_id}/step-table", {})

    def proposed_bands(self, project_id: str, attribute: str) -> BandsAnswer:
        """Return bands for a numeric attribute, so that it can be a key."""
        place = f"/projects/{project_id}/bands?{urlencode({'attribute': attribute})}"
        return self._get(routes.settings.BandsAnswer, place)

    def project_file(self, project_id: str) -> str:
        """Return the project as the text of its ``project.toml``."""
        return self._send("GET", f"/projects/{project_id}/project.toml").text

    def put_project_file(self, project_id: str, text: str, *, version: int) -> SettingsAnswer:
        """Replace the settings by those of a ``project.toml``."""
        place = f"/projects/{project_id}/project.toml"
        return self._update(routes.settings.SettingsAnswer, "PUT", place, {"text": text}, version)

    def check_tables(
        self, project_id: str, tables: Sequence[Sequence[str]], *, tolerance: int | None = None
    ) -> CheckAnswer:
        """Count the small cells of tables, and how many can be derived from the published figures."""
        body = {"tables": [list(names) for names in tables], "tolerance": tolerance}
        return self._post(routes.safe_tables.CheckAnswer, f"/projects/{project_id}/table-checks", body)

    def make_tables_safe(
        self, project_id: str, tables: Sequence[Sequence[str]], *, tolerance: int | None = None, **options: Any
    ) -> Job:
        """Find the nearest tables without small cells; ``options`` are keep, objective, soft, …"""
        body = {"tables": [list(names) for names in tables], "tolerance": tolerance, **options}
        return self._post(Job, f"/projects/{project_id}/safe-tables", body)

    def safe_tables(self, project_id: str, result_id: str) -> ResultAnswer:
        """Return one set of safe tables."""
        return self._get(ResultAnswer, f"/projects/{project_id}/safe-tables/{result_id}")

    def plot_confidentiality(
        self,
        project_id: str,
        masking: str,
        keys: Sequence[str] = (),
        *,
        linkage: str = "auto",
        scenario: Scenario | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Job:
        """Compute the confidentiality plot of a masking."""
        body = {"masking": masking, "keys": list(keys), "linkage": linkage, "options": options}
        body |= {} if scenario is None else {"scenario": as_scenario(scenario).as_dict()}
        return self._post(Job, f"/projects/{project_id}/confidentiality", body)

    def attack(
        self,
        project_id: str,
        masking: str,
        *,
        scenario: Scenario | Mapping[str, Any] | None = None,
        attacks: Sequence[str] = (),
        full: bool = True,
        **options: Any,
    ) -> Job:
        """Attack a masking as an intruder would; ``options`` are rules, tables, control and earlier."""
        body: dict[str, Any] = {"masking": masking, "attacks": list(attacks), "full": full, **options}
        body |= {} if scenario is None else {"scenario": as_scenario(scenario).as_dict()}
        return self._post(Job, f"/projects/{project_id}/attacks", body)

    def mask_below(self, project_id: str, keys: Sequence[str], *, threshold: float, **how: Any) -> Job:
        """Find a specification that leaves no record above a risk; ``how`` are by, swap, fixed and weight."""
        body = {"keys": list(keys), "threshold": threshold, **how}
        return self._post(Job, f"/projects/{project_id}/mask-below", body)

    def send_control(self, project_id: str, path: str | PathLike[str], **reading: str) -> Job:
        """Upload records that were held out before masking; ``reading``: identifier, delimiter, encoding, decimal."""
        file = Path(path)
        answer = self._send(
            "PUT", f"/projects/{project_id}/control-file", params={"name": file.name, **reading}, content=chunks(file)
        )
        return Job.model_validate(answer.json())

    def policy(self) -> PolicyAnswer:
        """Return the agency's policy on attacks."""
        return self._get(routes.settings.PolicyAnswer, "/release-policy")

    def set_policy(self, text: str) -> PolicyAnswer:
        """Replace the agency's policy by a TOML text, as an officer or administrator."""
        version = self.policy().version
        return self._update(routes.settings.PolicyAnswer, "PUT", "/release-policy", {"text": text}, version)

    def attacked(self, project_id: str, result_id: str) -> ResultAnswer:
        """Return the outcomes of attacks on a masking."""
        return self._get(ResultAnswer, f"/projects/{project_id}/attacks/{result_id}")

    def confidentiality(self, project_id: str, result_id: str) -> ResultAnswer:
        """Return the totals of one confidentiality plot."""
        return self._get(ResultAnswer, f"/projects/{project_id}/confidentiality/{result_id}")


class Client(RiskCalls, ReleaseCalls):
    """A client of one service, authenticated by API token, by name and password, or by start token."""

    # --- Projects and data

    def projects(self) -> list[ProjectAnswer]:
        """List the projects you are a member of."""
        return list(self._iterate("/projects", ProjectAnswer))

    def make_project(self, name: str, *, tolerance: int | None = None) -> ProjectAnswer:
        """Create a project."""
        return self._post(ProjectAnswer, "/projects", {"name": name[:200], "tolerance": tolerance})

    def project(self, project_id: str) -> ProjectAnswer:
        """Return one project."""
        return self._get(ProjectAnswer, f"/projects/{project_id}")

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
        decimal: str | None = None,
        households: str | PathLike[str] | None = None,
        on: str | None = None,
    ) -> Job:
        """Upload a file as a stream; the job reads it.

        ``households`` is the file of households that belongs to a file of persons; ``on`` numbers them in both.
        """
        file, homes = Path(path), None if households is None else Path(households)
        stated: dict[str, Any] = {"name": file.name, "identifier": identifier, "on": on}
        stated |= {"delimiter": delimiter, "encoding": encoding, "decimal": decimal}
        if homes is not None:
            stated |= {"household_name": homes.name, "household_bytes": homes.stat().st_size}
        query = {option: value for option, value in stated.items() if value is not None}
        content = chain(() if homes is None else chunks(homes), chunks(file))
        answer = self._send("PUT", f"/projects/{project_id}/data", params=query, content=content)
        return Job.model_validate(answer.json())

    def description(self, project_id: str) -> DescriptionAnswer:
        """Return the description of the project's data."""
        return self._get(routes.data.DescriptionAnswer, f"/projects/{project_id}/description")

    # --- The library

    def methods(self) -> list[MethodAnswer]:
        """List the masking methods."""
        return [routes.library.MethodAnswer.model_validate(each) for each in self._send("GET", "/methods").json()]

    def measures(self) -> list[MeasureAnswer]:
        """List the measures."""
        return [routes.library.MeasureAnswer.model_validate(each) for each in self._send("GET", "/measures").json()]

    def plan(self, project_id: str, spec: Mapping[str, Any]) -> PlanAnswer:
        """Plan a specification without applying it."""
        return self._post(routes.maskings.PlanAnswer, f"/projects/{project_id}/plan", {"spec": dict(spec)})

    def undo_masking(self, project_id: str, masking: str) -> None:
        """Undo a masking: its figures are erased, and it cannot be released."""
        self._send("DELETE", f"/projects/{project_id}/maskings/{masking}")

    def mask(
        self,
        project_id: str,
        spec: Mapping[str, Any] | None = None,
        *,
        measures: Sequence[str] = (),
        replicate: int = 0,
        scenario: Scenario | Mapping[str, Any] | None = None,
        study: str | None = None,
    ) -> Job:
        """Mask the data, by default by the project's pipeline, and measure the result.

        Risk is measured under the scenario, by default under every one of the project. The reports show the study.
        """
        body: dict[str, Any] = {"spec": None if spec is None else dict(spec), "replicate": replicate, "study": study}
        body |= {} if scenario is None else {"scenario": as_scenario(scenario).as_dict()}
        return self._post(
            Job, f"/projects/{project_id}/maskings", body | ({"measures": list(measures)} if measures else {})
        )

    def assess(self, project_id: str, masking: str, *, measures: Sequence[str] = (), indicators: str = "") -> Job:
        """Assess a masking by other measures; ``indicators`` is the text of a TOML file of key indicators."""
        body: dict[str, Any] = {"masking": masking, "indicators": indicators}
        return self._post(
            Job, f"/projects/{project_id}/assessments", body | ({"measures": list(measures)} if measures else {})
        )

    def assessment(self, project_id: str, result_id: str) -> ResultAnswer:
        """Return one assessment."""
        return self._get(ResultAnswer, f"/projects/{project_id}/assessments/{result_id}")

    def households(self, project_id: str) -> HouseholdsAnswer:
        """Return the number of households by size."""
        return self._get(routes.households.HouseholdsAnswer, f"/projects/{project_id}/households")

    def geography(self, project_id: str, level: int = 0) -> GeographyAnswer:
        """Return the areas of a level, 0 being the coarsest, with those of the next level in them."""
        return self._get(routes.households.GeographyAnswer, f"/projects/{project_id}/geography?level={level}")

    def masking(self, project_id: str, result_id: str) -> ResultAnswer:
        """Return one masking."""
        return self._get(ResultAnswer, f"/projects/{project_id}/maskings/{result_id}")

    def study(self, project_id: str, **parameters: Any) -> Job:
        """Run a risk-utility study."""
        return self._post(Job, f"/projects/{project_id}/studies", {"spec": parameters})

    def candidates(self, project_id: str, study_id: str) -> Iterator[Candidate]:
        """Iterate over the candidates of a study, fetching page by page."""
        return self._iterate(f"/projects/{project_id}/studies/{study_id}/candidates", routes.studies.Candidate)

    def candidate(self, project_id: str, study_id: str, number: int) -> CandidateAnswer:
        """Return one candidate in detail."""
        return self._get(
            routes.studies.CandidateAnswer, f"/projects/{project_id}/studies/{study_id}/candidates/{number}"
        )

    def choose(self, project_id: str, study_id: str, objective: str) -> ChoiceAnswer:
        """Choose a candidate by an objective."""
        return self._post(
            routes.studies.ChoiceAnswer, f"/projects/{project_id}/studies/{study_id}/choice", {"objective": objective}
        )

    # --- Jobs

    def job(self, job_id: str) -> Job:
        """Return the state of a job."""
        return self._get(Job, f"/jobs/{job_id}")

    def cancel(self, job_id: str) -> Job:
        """Request cancellation of a job."""
        return Job.model_validate(self._send("DELETE", f"/jobs/{job_id}").json())

    def wait(self, job: Job, *, seconds: float = 24 * 3600.0, progress: Callable[[Job], None] | None = None) -> Job:
        """Wait until a job ends; raise its error if it failed."""
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
            raise Refused(job.error)
        return job
