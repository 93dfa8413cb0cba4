"""The project file: the same again, lines in errors, and proposals that tell no record."""

from __future__ import annotations

import stat
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv

from safeswap import datasets
from safeswap.errors import InputError, OutputError, SafeswapError, SpecError
from safeswap.files.schema_file import read_schema, write_schema
from safeswap.files.write import write
from safeswap.model.schema import Schema
from safeswap.model.study import StudySpec
from safeswap.pipelines.spec import Pipeline
from safeswap.projects.project import Project
from safeswap.projects.settings import DataSource, ReleaseSettings, Requirement
from safeswap.projects.toml import read_pipeline, read_scenarios, read_study_spec, write_pipeline, write_study_spec

PROSECUTOR = {"name": "prosecutor", "keys": ["age", "sex", "town"], "up_to": 2, "tolerance": 5}
STEPS = [
    {"method": "recode", "steps": [{"step": "ranges", "attribute": "age", "breaks": [15, 65]}]},
    {"method": "swap", "name": "first", "swap": ["town"], "fixed": ["sex"], "rate": 0.1},
    {"method": "suppress", "scenario": "prosecutor", "solver": "greedy"},
]
SCHEMA = {
    "attributes": [
        {"name": "id"},
        {"name": "home"},
        {"name": "age", "kind": "numeric"},
        {"name": "sex", "labels": {"1": 'said "m"', "2": "f # no comment"}, "missing": ["9"]},
        {"name": "town", "kind": "geography", "geography_level": 0, "hierarchy": [{"a": "x", "b": "x"}]},
        {"name": "odd, name\t\\ 'x'"},
    ]
}


def whole(**changed) -> Project:
    parts = {
        "title": 'A "survey"',
        "data": DataSource(file="../a.csv", sha256="0" * 64, identifier="id", household="home", missing=("NA",)),
        "schema": Schema(**SCHEMA),
        "scenarios": [PROSECUTOR, {"name": "nosy neighbour", "keys": ["town"], "threshold": 2}],
        "pipeline": STEPS,
        "study": StudySpec(rates=(0.1,), scenario=PROSECUTOR, first=[STEPS[1]], risk=("k_anonymity",)),
        "release": ReleaseSettings(key="k.key", require={"prosecutor": ["risky <= 0", "k_anonymity < 0.5"]}),
        "guesses": {"data.identifier": "4 values", "schema.odd, name\t\\ 'x'": "why # not", "step.first.": ""},
    }
    return Project(**{**parts, **changed})


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    project = whole()
    project.save(tmp_path / "project.toml")
    again = Project.read(tmp_path / "project.toml")
    assert again == project
    assert again.text() == project.text()
    assert stat.S_IMODE((tmp_path / "project.toml").stat().st_mode) == 0o600
    with pytest.raises(OutputError):
        project.save(tmp_path / "project.toml")


def test_comments_of_people_stay_beside_what_they_are_about(tmp_path: Path) -> None:
    file, project = tmp_path / "project.toml", whole()
    remarks = {
        'title = "A': "# agreed on Monday\n\r# and again # on Tuesday\n",
        "rate = 0.1": "# twice what we did last year\n",
        '  { name = "sex"': "  # asked by telephone\n",
        "[[scenario]]": "# the first scenario\n",
    }
    text = project.text()
    for beginning, remark in remarks.items():
        assert beginning in text, beginning
        text = text.replace(beginning, remark + beginning, 1)
    text = text.replace('solver = "greedy"', 'solver = "greedy"  # quick enough').replace(
        "\n[release]  #", "\n[release]  # Ana:"
    )
    file.write_text(text + "# to be read by the board\x7f\n")
    project.save(file, force=True)
    kept = file.read_text()
    assert Project.read(file) == project
    for remark in remarks.values():
        assert all(each.strip() in kept for each in remark.splitlines())
    assert 'solver = "greedy"  # quick enough\n' in kept
    assert "# twice what we did last year\nrate = 0.1" in kept
    assert kept.endswith("# to be read by the board\n")
    project.save(file, force=True)
    assert file.read_text() == kept, "saved again, nothing is doubled"

    other = whole(pipeline=[STEPS[2], STEPS[0]], study=None, guesses={})
    other.save(file, force=True)
    assert Project.read(file) == other
    assert 'solver = "greedy"  # quick enough\n' in file.read_text(), "a step that moved takes its comments along"
    assert "# twice what we did last year" in file.read_text(), "what it stood above is gone; the comment is not"


def test_a_step_names_its_scenario_and_follows_it() -> None:
    text = whole(study=None).text()
    step = text.partition('method = "suppress"')[2].partition("\n\n")[0]
    assert "keys" not in step
    edited = text.replace('keys = ["age", "sex", "town"]', 'keys = ["age", "sex"]')
    assert Project.parse(edited).pipeline["suppress"].spec.keys == ("age", "sex")


def test_a_study_names_steps_and_scenario() -> None:
    first = Pipeline(STEPS[:2])["first"].as_dict()
    text = whole(study=StudySpec(rates=(0.1,), scenario=PROSECUTOR, first=[first])).text()
    study = text.partition("[study]")[2].partition("\n\n")[0]
    assert 'scenario = "prosecutor"' in study
    assert 'first = ["first"]' in study
    assert Project.parse(text).study.first == (first,)


def test_files_of_the_separate_formats_are_sections(tmp_path: Path) -> None:
    project = whole(guesses={}, scenarios=(), release=ReleaseSettings(), pipeline=Pipeline(STEPS[:2]), study=None)
    write_schema(project.schema, tmp_path / "schema.toml")
    write_pipeline(project.pipeline, tmp_path / "steps.toml")
    write_study_spec(StudySpec(rates=(0.2,)), tmp_path / "study.toml")
    lines = ['schema = "schema.toml"', 'steps = "steps.toml"', 'study = "study.toml"', "[data]", 'file = "a.csv"']
    (tmp_path / "project.toml").write_text("\n".join(lines))
    found = Project.read(tmp_path / "project.toml")
    assert (found.schema, found.pipeline) == (project.schema, project.pipeline)
    assert found.study == StudySpec(rates=(0.2,))


def test_who_reads_a_pipeline_or_a_study_takes_the_section(tmp_path: Path) -> None:
    project = whole()
    project.save(tmp_path / "project.toml")
    assert read_pipeline(tmp_path / "project.toml") == project.pipeline
    assert read_study_spec(tmp_path / "project.toml") == project.study
    assert read_study_spec(tmp_path / "project.toml", replicates=3).replicates == 3
    schema = read_schema(tmp_path / "project.toml")
    assert (schema["id"].kind, schema["home"].kind) == ("identifier", "household")
    assert [schema[name] for name in ("age", "sex", "town")] == [
        project.schema[name] for name in ("age", "sex", "town")
    ]
    assert [each.name for each in read_scenarios(tmp_path / "project.toml")] == ["prosecutor", "nosy neighbour"]
    whole(study=None).save(tmp_path / "project.toml", force=True)
    with pytest.raises(InputError) as caught:
        read_study_spec(tmp_path / "project.toml")
    assert caught.value.code == "bad-study-file"
    whole(schema=None).save(tmp_path / "project.toml", force=True)
    with pytest.raises(InputError) as caught:
        read_schema(tmp_path / "project.toml")
    assert caught.value.code == "bad-schema-file"


HEAD = '[data]\nfile = "a.csv"\n'
ONE = '[[scenario]]\nname = "prosecutor"\nkeys = ["age"]\n'
COLUMNS = '[schema]\nattributes = [\n  { name = "age", kind = "numeric" },\n  { name = "sex" },\n]\n'
BAD = {
    "section": (HEAD + "[relase]\n", "bad-project-file", 3, "did you mean release?"),
    "setting": (HEAD + 'identifer = "id"\n', "bad-project-file", 3, "did you mean identifier?"),
    "no data": ('title = "x"\n', "bad-project-file", None, "[data]"),
    "format": ('format = "safeswap-project-9"\n' + HEAD, "bad-project-file", 1, ""),
    "syntax": (HEAD + "x == 1\n", "bad-project-file", 3, ""),
    "digest": (HEAD + 'sha256 = "abc"\n', "bad-spec", 3, ""),
    "kind": (HEAD + COLUMNS.replace('"numeric"', '"numbery"'), "bad-spec", 5, ""),
    "column setting": (HEAD + COLUMNS.replace("kind", "knd"), "bad-project-file", 5, "did you mean kind?"),
    "key": (HEAD + COLUMNS + ONE.replace("age", "agge"), "unknown-attribute", 10, "did you mean age?"),
    "identifier": (HEAD + 'identifier = "sx"\n' + COLUMNS, "unknown-attribute", 3, "did you mean sex?"),
    "scenario setting": (HEAD + ONE + "tolerence = 3\n", "bad-project-file", 6, "did you mean tolerance?"),
    "two scenarios": (HEAD + ONE + ONE, "bad-project-file", 6, ""),
    "step": (HEAD + '[[step]]\nmethod = "swop"\n', "unknown-method", 3, ""),
    "step parameter": (HEAD + '[[step]]\nmethod = "swap"\nswap = ["a"]\nrate = 7\n', "bad-spec", 6, ""),
    "step scenario": (
        HEAD + ONE + '[[step]]\nmethod = "suppress"\nscenario = "prosecuter"\n',
        "unknown-scenario",
        6,
        "did you mean prosecutor?",
    ),
    "study": (HEAD + "[study]\nrats = [0.1]\n", "bad-project-file", 4, "did you mean rates?"),
    "study step": (HEAD + '[study]\nfirst = ["recode"]\n', "no-such-step", 3, ""),
    "required scenario": (
        HEAD + ONE + '[release]\nrequire = { prosecuter = "risky <= 0" }\n',
        "unknown-scenario",
        7,
        "did you mean prosecutor?",
    ),
    "requirement": (HEAD + ONE + '[release]\nrequire = { prosecutor = "risky" }\n', "bad-requirement", 6, ""),
    "measure": (HEAD + ONE + '[release]\nrequire = { prosecutor = "rsky <= 0" }\n', "unknown-measure", 6, ""),
    "key itself": (HEAD + '[release]\nkey = "safeswap-key-1:AAAA"\n', "bad-spec", 3, ""),
    "audit inside": (HEAD + '[release]\npublic = "out"\naudit = "out/secret"\n', "bad-spec", 3, ""),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_say_where_and_what_was_meant(tmp_path: Path, case: str) -> None:
    text, code, line, hint = BAD[case]
    path = tmp_path / "project.toml"
    path.write_text(text)
    with pytest.raises(SafeswapError) as caught:
        Project.read(path)
    error = caught.value
    assert (error.code, error.fields.get("line")) == (code, line), error
    assert isinstance(error, InputError | SpecError)
    assert hint in error.hint or hint in error.message
    assert "project.toml" in error.message
    assert "AAAA" not in str(error.as_dict())


def test_requirements() -> None:
    strict = Requirement.parse("x", "n_rule < 0.25")
    assert [strict.holds(value) for value in (0.2, 0.25, float("nan"))] == [True, False, False]
    for wrong in ("", "risky", "risky >= 1", "risky <= x", "<= 1"):
        with pytest.raises(SpecError):
            Requirement.parse("x", wrong)


@pytest.fixture(scope="module")
def survey(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("survey") / "survey.csv"
    write(datasets.household_survey(), path)
    return path


def test_a_proposal_marks_its_guesses_with_evidence(survey: Path) -> None:
    project = Project.start(survey, folder=survey.parent / "job")
    assert project.data.file == "../survey.csv"
    assert (project.data.identifier, project.data.household) == ("person_id", "household")
    assert "4,939 distinct values in 4,939 records" in project.guesses["data.identifier"]
    assert "constant within: weight" in project.guesses["data.household"]
    levels = {each.name: each.geography_level for each in project.schema.attributes if each.kind == "geography"}
    assert levels == {"region": 0, "district": 1, "municipality": 2}
    assert project.schema["interview_date"].kind == "date"
    assert project.scenarios[0].name == "prosecutor"
    assert "ranked" in project.guesses["scenario.prosecutor.keys"]
    banded = {each.attribute for each in project.pipeline["recode"].spec.recipe.steps}
    numeric = {key for key in project.scenarios[0].keys if project.schema[key].kind in ("numeric", "date")}
    assert banded == numeric != set()
    assert Project.parse(project.text()) == project


def test_a_proposal_tells_no_value_of_a_record(tmp_path: Path) -> None:
    number = 400
    table = {
        "id": list(range(1, number + 1)),
        "who": [f"Zanzibar-{n}" for n in range(number)],
        "age": [20 + n % 40 for n in range(number - 1)] + [131],
        "income": [1000.5 + n for n in range(number - 1)] + [987654.5],
        "sex": ["f", "m"] * (number // 2),
        "job": ["clerk"] * (number - 1) + ["Zanzibari envoy"],
    }
    csv.write_csv(pa.table(table), tmp_path / "a.csv")
    project = Project.start(tmp_path / "a.csv")
    text = project.text()
    for secret in ("Zanzibar", "131", "987654", "envoy"):
        assert secret not in text.replace(project.data.sha256, "")
    assert "each record can be found by it" in project.guesses["schema.who"]
    assert "income" not in project.scenarios[0].keys, "a number with as many values as records is no proposed key"
