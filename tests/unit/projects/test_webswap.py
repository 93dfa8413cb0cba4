"""WebSwap projects round-trip, and files that do not agree are refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap import workflow
from safeswap.errors import InputError, OutputError, SafeswapError, SpecError
from safeswap.files.read import read
from safeswap.model.schema import Kind
from safeswap.model.spec import Role
from safeswap.projects.webswap import Project, ProjectAttribute, new_project, open_project, read_project

AWKWARD = st.sampled_from(
    [
        'say "x"',
        "a\\b",
        "line\nbreak",
        "\r",
        "# no comment",
        "S",
        'S "x"',
        "records = 3",
        " ",
        "\u2028",
        "\x85",
        "é",
        "😀",
    ]
)
NAMES = st.text(min_size=1, max_size=8) | AWKWARD
FILE_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\\\0"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..")
)


@st.composite
def projects(draw: st.DrawFn, folder: Path) -> Project:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    attributes = [
        ProjectAttribute(
            name=name,
            kind=draw(st.sampled_from([k for k in Kind if k is not Kind.IDENTIFIER])),
            role=draw(st.sampled_from(list(Role))),
        )
        for name in names
    ]
    files = draw(st.lists(FILE_NAMES, min_size=5, max_size=5, unique_by=str.casefold))
    return Project(
        folder=folder,
        records=draw(st.integers(1, 10**12)),
        rate=draw(st.floats(0, 1, exclude_min=True)),
        attributes=tuple(attributes),
        **dict(zip(("data", "description", "specification", "log", "output"), files, strict=True)),
    )


@given(data=st.data())
def test_a_project_survives_its_files_exactly(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    project = data.draw(projects(tmp_path_factory.mktemp("project")))
    project.save()
    assert read_project(project.path("specification")) == project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    table = pa.table(
        {
            "id": ["1", "2", "3", "4"],
            "Race": ["a", "b", "b", "a"],
            "Sex": ["F", "M", "F", "M"],
            "Age": ["1", "2", "1", "2"],
        }
    )
    return new_project(table, tmp_path, name="toy", swap=["Race"], fixed=["Sex"], differ=["Age"], rate=0.5)


def test_a_new_project_has_its_three_files_and_opens(project: Project) -> None:
    assert sorted(p.name for p in project.folder.iterdir()) == ["toy.desc", "toy.orig", "toy.specs"]
    assert open_project(project.folder / "toy.specs") == project


def test_the_roles_become_a_swap(project: Project) -> None:
    spec = project.swap_spec()
    assert (spec.swap, spec.fixed, spec.differ, spec.rate) == (("Race",), ("Sex",), ("Age",), 0.5)


def test_the_data_come_back_described(project: Project) -> None:
    data = project.microdata()
    assert data.schema.identifier is not None
    assert data.schema.identifier.name == "id"
    assert data.table.column("Race").to_pylist() == ["a", "b", "b", "a"]
    assert not any(a.inferred for a in data.schema.attributes)


def test_the_specification_says_which_rate_it_means(project: Project) -> None:
    assert "share of RECORDS" in project.path("specification").read_text()


def test_the_results_are_data_that_read_back_and_a_log_of_totals(tmp_path: Path) -> None:
    table = pa.table({"id": [str(i) for i in range(40)], "Race": ["CANARY1", "CANARY2"] * 20, "Sex": ["F"] * 40})
    made = new_project(table, tmp_path, name="toy", swap=["Race"], rate=0.5)
    masked = workflow.swap(made.microdata(), made.swap_spec(), insecure_seed=1)
    made.write_results(masked)
    assert read(made.path("output")).table.to_pydict() == masked.data.table.to_pydict()
    log = made.path("log").read_text()
    assert "pairs-made = 10\n" in log
    assert "for-release = false\n" in log
    assert "CANARY" not in log
    with pytest.raises(OutputError):
        made.write_results(masked)


def test_an_existing_project_is_not_overwritten(project: Project) -> None:
    with pytest.raises(OutputError):
        project.save()
    project.save(force=True)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("toy.specs", "records = 4", "records = 5", ("project-mismatch", None)),
        ("toy.specs", "records = 4", "records = four", ("bad-project-file", 4)),
        ("toy.specs", "records = 4", "records = true", ("bad-project-file", 4)),
        ("toy.specs", "records = 4", "", ("bad-project-file", 1)),
        ("toy.specs", "records = 4", "records = 4\nrecords = 4", ("bad-project-file", 5)),
        ("toy.specs", "records = 4", "recodrs = 4", ("bad-project-file", 4)),
        ("toy.specs", "records = 4", "what is this", ("bad-project-file", 4)),
        ("toy.specs", '"toy.orig"', '"../toy.orig"', ("bad-project", None)),
        ("toy.specs", '"toy.out"', '"toy.orig"', ("bad-project", None)),
        ("toy.specs", '"toy.out"', '"TOY.orig"', ("bad-project", None)),
        ("toy.specs", '"toy.orig"', '"other.orig"', ("missing-file", None)),
        ("toy.specs", '"toy.desc"', '"other.desc"', ("missing-file", None)),
        ("toy.specs", '"toy.specs"', '"other.specs"', ("bad-project-file", 7)),
        ("toy.specs", "swap-rate = 0.5", "swap-rate = 0", ("bad-project", None)),
        ("toy.specs", "swap-rate = 0.5", "swap-rate = 1.5", ("bad-project", None)),
        ("toy.specs", "swap-rate = 0.5", "swap-rate = Infinity", ("bad-project-file", 10)),
        ("toy.specs", 'S "Race"', 'X "Race"', ("bad-project-file", 14)),
        ("toy.specs", 'S "Race"', 'S "Race', ("bad-project-file", 14)),
        ("toy.specs", 'S "Race"', 'S ""', ("bad-project-file", 14)),
        ("toy.specs", 'S "Race"', 'S "Other"', ("bad-project-file", 13)),
        ("toy.specs", 'S "Race"', 'S "Sex"', ("bad-project-file", 13)),
        ("toy.specs", 'O "id"', 'S "id"', ("bad-project", None)),
        ("toy.desc", 'nominal "Race"', 'nominable "Race"', ("bad-project-file", 4)),
        ("toy.desc", 'nominal "Race"\n', "", ("bad-project-file", 13)),
        ("toy.orig", "id,Race", "id,Rasse", ("schema-mismatch", None)),
        ("toy.orig", "Sex,Age", "Age,Sex", ("project-mismatch", None)),
        ("toy.orig", "\n2,", "\n1,", ("duplicate-identifier", None)),
        ("toy.orig", "\n2,", "\n2,x,", ("ragged-row", 3)),
    ],
)
def test_files_that_do_not_agree_are_refused(
    project: Project, file: str, old: str, new: str, expected: tuple[str, int | None]
) -> None:
    edit(project.folder / file, old, new)
    with pytest.raises(SafeswapError) as caught:
        open_project(project.folder / "toy.specs")
    code, line = expected
    assert caught.value.code == code
    if line is not None:
        assert caught.value.fields["line"] == line


def test_an_unknown_attribute_makes_no_project(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        new_project(pa.table({"a": ["x", "y"]}), tmp_path, name="toy", swap=["b"], rate=0.5)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_project_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        open_project(tmp_path / "none.specs")
    assert caught.value.code == "missing-file"
