"""The library over HTTP: what the verbs do in Python, the routes do for whoever may."""

from __future__ import annotations

import io
import zipfile

import httpx
import pytest
from tests.service.at_work import do_jobs
from tests.service.serving import Running

import safeswap as ss
from safeswap import workflow
from safeswap.files.keyfile import generate_key
from safeswap.files.write import write
from safeswap.service.client import Client, Refused

API = "/api/v1"
SPEC = {"method": "swap", "swap": ["Race"], "rate": 0.05}
KEYS = {"keys": ["Age", "Edu", "EmpTyp", "MS", "Race"]}


class Bench:
    """A project with the shipped data, and its analyst."""

    def __init__(self, town: Running, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.town, self.ana = town, town.client("ana")
        self.id = self.ana.post(f"{API}/projects", json={"name": "cps"}).json()["id"]
        self.file = tmp_path_factory.mktemp("library") / "cps.csv"
        write(ss.datasets.cps8d(), self.file)
        self.text = self.file.read_bytes()
        self.job(self.ana.put(self.at("/data"), params={"name": "cps.csv"}, content=self.text))

    def at(self, path: str) -> str:
        return f"{API}/projects/{self.id}{path}"

    def job(self, asked: httpx.Response) -> dict:
        assert asked.status_code == 202, asked.text
        do_jobs(self.town.service)
        return self.ana.get(asked.headers["location"]).json()

    def result(self, asked: httpx.Response, kind: str) -> dict:
        job = self.job(asked)
        assert job["state"] == "succeeded", job
        return self.ana.get(self.at(f"/{kind}/{job['result']['id']}")).json()

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.ana.post(self.at(path), json=body)

    def set_recipe(self, steps: list) -> httpx.Response:
        tag = self.ana.get(self.at("/recipe")).headers["etag"]
        return self.ana.put(self.at("/recipe"), json={"steps": steps}, headers={"If-Match": tag})


@pytest.fixture(scope="module")
def bench(town: Running, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(town, tmp_path_factory)


@pytest.fixture(scope="module")
def study(bench: Bench) -> dict:
    spec = {"attributes": ["Race", "Sex"], "rates": [0.01, 0.1], "replicates": 2}
    return bench.result(bench.post("/studies", spec=spec), "studies")


def test_the_description_is_that_of_the_library(bench):
    told = bench.ana.get(bench.at("/description")).json()
    expected = workflow.describe(bench.file)
    assert told["records"] == 48_842
    assert told["attributes"][5]["levels"] == expected.as_dict()["attributes"][5]["levels"]


def test_a_plan_says_what_binds(bench):
    told = bench.post("/plan", spec={**SPEC, "rate": 0.5}).json()
    assert told["sentence"] == "12,210 pairs requested, at most 7,080 feasible; Race binds"
    assert not told["is_feasible"]
    assert told["details"] == {}
    safe = {"method": "safe", "tables": [["Race", "Sex", "Edu"]]}
    assert bench.post("/plan", spec=safe).json()["details"] == workflow.plan(ss.datasets.cps8d(), safe).details


def test_a_masking_has_the_figures_of_the_library_under_the_same_key(bench):
    found = bench.result(bench.post("/maskings", spec=SPEC, measures=["hellinger", "share_changed"]), "maskings")
    key = bench.town.service.vault.project_key(bench.id)
    expected = workflow.assess(workflow.mask(bench.file, SPEC, key=key), measures=["hellinger", "share_changed"])
    assert [score["value"] for score in found["summary"]["scores"]] == [score.value for score in expected]
    report = bench.ana.get(bench.at(f"/maskings/{found['id']}/report.html"))
    assert report.status_code == 200
    assert "sandbox" in report.headers["content-security-policy"]


def test_an_assessment_measures_the_same_masking_again(bench):
    masking = bench.result(bench.post("/maskings", spec=SPEC, measures=["n_rule"]), "maskings")
    again = bench.result(bench.post("/assessments", masking=masking["id"], measures=["n_rule", "adV"]), "assessments")
    values = {score["measure"]: score["value"] for score in again["summary"]["scores"]}
    assert values["n_rule"] == masking["summary"]["scores"][0]["value"]
    assert "adV" in values


def test_a_specification_that_makes_no_sense_makes_no_job(bench):
    before = bench.ana.get(bench.at("/jobs")).json()["items"]
    for spec in ({"method": "nonsense"}, {"method": "swap", "swap": ["Race"], "rate": 7}, {}):
        refused = bench.post("/maskings", spec=spec)
        assert refused.status_code == 422, spec
        assert refused.headers["content-type"] == "application/problem+json"
    assert bench.ana.get(bench.at("/jobs")).json()["items"] == before


def test_what_the_data_cannot_give_ends_the_job_with_the_reason(bench):
    job = bench.job(bench.post("/maskings", spec={**SPEC, "rate": 0.9}))
    assert job["state"] == "failed"
    assert job["error"]["status"] == 409
    assert "7,080" in job["error"]["detail"]


def test_candidates_come_in_pages_that_hold_each_once(bench, study):
    numbers, cursor = [], ""
    while cursor is not None:
        page = bench.ana.get(bench.at(f"/studies/{study['id']}/candidates"), params={"limit": 5, "cursor": cursor})
        numbers += [candidate["number"] for candidate in page.json()["items"]]
        cursor = page.json()["next"]
    assert numbers == list(range(study["summary"]["candidates"]))


def test_a_candidate_in_detail_agrees_with_the_list_and_the_map(bench, study):
    listed = bench.ana.get(bench.at(f"/studies/{study['id']}/candidates")).json()["items"]
    one = bench.ana.get(bench.at(f"/studies/{study['id']}/candidates/3")).json()
    assert one["scores"] == listed[3]["scores"]
    assert {tuple(table["attributes"]) for table in one["tables"]} >= {("Race", "Sex")}
    shown = bench.ana.get(bench.at(f"/studies/{study['id']}/map")).json()
    assert shown["candidates"] == len(listed)


def test_the_latest_map_is_the_newest_studys_and_says_so(bench, study):
    listed = bench.ana.get(bench.at("/studies")).json()["items"]
    latest = bench.ana.get(bench.at("/studies/latest/map"))
    assert latest.headers["content-location"] == f"../{listed[0]['id']}/map"
    assert latest.content == bench.ana.get(bench.at(f"/studies/{listed[0]['id']}/map")).content
    assert study["id"] in {each["id"] for each in listed}


def test_while_there_is_no_study_and_no_plot_the_latest_is_empty(bench):
    project = bench.ana.post("/api/v1/projects", json={"name": "new"}).json()["id"]
    for path in ("studies/latest/map", "confidentiality/latest/plot"):
        answer = bench.ana.get(f"/api/v1/projects/{project}/{path}")
        assert (answer.status_code, answer.content) == (204, b"")
    assert bench.ana.get(f"/api/v1/projects/{project}/studies/latest").status_code == 404


def test_a_table_before_and_after_keeps_its_total(bench, study):
    asked = {"attributes": ["Race", "Sex"]}
    table = bench.ana.get(bench.at(f"/studies/{study['id']}/candidates/1/table"), params=asked).json()
    assert sum(cell["before"] for cell in table["cells"]) == sum(cell["after"] for cell in table["cells"]) == 48_842


def test_another_objective_chooses_another_candidate(bench, study):
    careful = bench.post(f"/studies/{study['id']}/choice", objective="linear:a=0.001").json()
    useful = bench.post(f"/studies/{study['id']}/choice", objective="linear:a=1000").json()
    assert careful["risk"] < useful["risk"]
    assert careful["distortion"] > useful["distortion"]


def test_a_study_that_is_too_large_is_refused(bench):
    refused = bench.post("/studies", spec={"replicates": 100_000})
    assert refused.status_code == 422
    assert refused.json()["code"] == "too-many-candidates"


def test_the_plot_places_every_record(bench):
    masking = bench.result(bench.post("/maskings", spec=SPEC, measures=["n_rule"]), "maskings")
    plot = bench.result(bench.post("/confidentiality", masking=masking["id"], keys=["Race", "Edu"]), "confidentiality")
    assert plot["summary"]["records"] == 48_842
    shown = bench.ana.get(bench.at(f"/confidentiality/{plot['id']}/plot"))
    assert shown.json()["kind"] == "categorical"
    latest = bench.ana.get(bench.at("/confidentiality/latest/plot"))
    assert (latest.headers["content-location"], latest.content) == (f"../{plot['id']}/plot", shown.content)


def test_the_recipe_is_tried_kept_undone_and_redone(bench):
    before = bench.post("/risky", combinations=KEYS).json()
    advice = bench.post("/advice", combinations=KEYS, most=1).json()["advice"][0]
    steps = [advice["step"], {"method": "suppress", **KEYS}]
    for number in (1, 2):
        kept = bench.set_recipe(steps[:number])
        assert kept.status_code == 200, kept.text
    after = bench.post("/risky", combinations=KEYS).json()
    shown = [stage["unsafe_combinations"] for stage in after["stages"]]
    assert (shown[0], shown[2]) == (before["unsafe_combinations"], 0)
    exact = workflow.risky(workflow.recode(bench.file, steps[:1]), **KEYS).unsafe
    # With noise of standard deviation 4 in the number of each of 31 combinations, or in their sum.
    assert (shown[1], advice["unsafe"]) == (pytest.approx(exact, abs=150), pytest.approx(exact, abs=60))
    assert len(bench.post("/recipe/undo").json()["steps"]) == 1
    assert len(bench.post("/recipe/redo").json()["steps"]) == 2
    assert bench.post("/recipe/redo").status_code == 409
    masked = bench.job(bench.post("/maskings", spec=SPEC, measures=["k_anonymity"]))
    assert masked["state"] == "succeeded", masked
    assert bench.set_recipe([]).status_code == 200


def test_undo_takes_back_the_last_change_whatever_it_was(bench):
    first, second, other = ({"step": "drop", "attributes": [name]} for name in ("Age", "Edu", "MS"))
    changes = [[], [first], [first, second], [other, second], [second], []]  # added twice, edited, removed, all removed
    for steps in changes:
        assert bench.set_recipe(steps).status_code == 200
    for steps in reversed(changes[:-1]):
        answer = bench.post("/recipe/undo").json()
        assert (list(answer["steps"]), answer["can_redo"]) == (steps, True)
    for steps in changes[1:]:
        answer = bench.post("/recipe/redo").json()
        assert (list(answer["steps"]), answer["can_undo"]) == (steps, True)
    assert not answer["can_redo"]
    bench.post("/recipe/undo")
    bench.set_recipe([first])
    assert not bench.ana.get(bench.at("/recipe")).json()["can_redo"], "what was taken back before a change is gone"
    bench.set_recipe([])


def test_a_recipe_that_does_not_fit_the_data_is_not_kept(bench):
    assert bench.set_recipe([{"step": "truncate", "attribute": "nobody"}]).status_code == 422
    assert bench.ana.get(bench.at("/recipe")).json()["steps"] == []


def test_tables_are_checked_and_made_safe(bench):
    asked = {"tables": [["AnnSal", "Race", "MS", "EmpTyp"]], "tolerance": 5, "keep": [["Race"], ["MS"]]}
    assert not bench.post("/table-checks", **asked).json()["is_safe"]
    made = bench.result(bench.post("/safe-tables", **asked), "safe-tables")
    cells = [cell["after"] for cell in made["summary"]["cells"][0]]
    assert all(count == 0 or count >= 5 for count in cells)
    assert sum(cells) == 48_842


def test_the_script_runs_and_gives_the_same_plan(bench, tmp_path, monkeypatch, capsys):
    script = bench.post("/script", spec=SPEC, measures=["hellinger"]).json()["script"]
    (tmp_path / "cps.csv").write_bytes(bench.text)
    generate_key(tmp_path / "secret.key")
    monkeypatch.chdir(tmp_path)
    exec(compile(script, "script", "exec"), {})
    assert "1,221 pairs requested, at most 7,080 feasible" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["safeswap", "webswap"])
def test_a_project_goes_out_and_comes_in_again(bench, form):
    bench.job(bench.post("/maskings", spec=SPEC, measures=["n_rule"]))
    bench.ana.put(bench.at("/members/olga")).raise_for_status()
    olga = bench.town.client("olga")
    job = bench.job(olga.post(bench.at("/exports"), json={"form": form}))
    assert job["state"] == "succeeded", job
    archive = olga.get(bench.at(f"/exports/{job['result']['id']}/file")).content
    names = set(zipfile.ZipFile(io.BytesIO(archive)).namelist())
    assert names >= ({"project.json"} if form == "safeswap" else {"project.orig", "project.desc", "project.specs"})
    asked = bench.ana.put(f"{API}/imports", params={"name": "again.zip"}, content=archive)
    job = bench.job(asked)
    assert job["state"] == "succeeded", job
    again = bench.ana.get(f"{API}/projects/{job['project']}").json()
    assert (again["records"], again["state"]) == (48_842, "ready")


def test_an_archive_that_is_none_breaks_nothing(bench):
    for content in (b"PK\x03\x04 no archive", b"anything"):
        job = bench.job(bench.ana.put(f"{API}/imports", params={"name": "x.zip"}, content=content))
        assert (job["state"], job["error"]["code"]) == ("failed", "bad-archive")
        assert bench.ana.get(f"{API}/projects/{job['project']}").json()["state"] == "broken"


def test_a_file_that_cannot_be_read_leaves_the_project_with_the_data_it_had(bench):
    job = bench.job(bench.ana.put(bench.at("/data"), params={"name": "x.parquet"}, content=b"no parquet"))
    assert job["state"] == "failed"
    project = bench.ana.get(bench.at("")).json()
    assert (project["state"], project["data_version"]) == ("ready", 1)


def test_the_typed_client_speaks_the_contract(bench, tmp_path):
    (tmp_path / "cps.csv").write_bytes(bench.text)
    with bench.town.service.database.write() as connection:
        from safeswap.service.people import sessions

        _, secret = sessions.make_token(
            connection, user_id=bench.town.user_id("ana"), name="client", scopes=("read", "write"), days=1
        )
    with Client(bench.town.address, token=secret) as client:
        project = client.make_project("by a program")
        asked = client.send_data(project.id, tmp_path / "cps.csv")
        do_jobs(bench.town.service)
        assert client.wait(asked).state == "succeeded"
        assert client.plan(project.id, SPEC).asked == 1221
        job = client.study(project.id, attributes=["Race"], rates=[0.01, 0.1])
        do_jobs(bench.town.service)
        study_id = client.wait(job).result.id
        assert [candidate.number for candidate in client.candidates(project.id, study_id)] == [0, 1]
        assert client.choose(project.id, study_id, "linear:a=1").candidate in {0, 1}
        with pytest.raises(Refused) as refused:
            client.plan(project.id, {"method": "nonsense"})
        assert refused.value.problem.status == 422
        client.delete_project(project.id)
        with pytest.raises(Refused):
            client.project(project.id)
