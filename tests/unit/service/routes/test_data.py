from __future__ import annotations

import gzip
import inspect
import json
from pathlib import Path

import pytest
from sqlalchemy import select, update
from tests.service.installed import add_project, add_user, database_of, settings_in

from safeswap import datasets
from safeswap.errors import InputError, SafeswapError, SpecError
from safeswap.files.read import read
from safeswap.files.write import write
from safeswap.model.schema import Kind, Schema
from safeswap.service.keeping.database import new_id
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.tables import projects
from safeswap.service.routes.data import READING, clean_upload, finish_ingest, run_ingest
from safeswap.service.settings import Limits
from safeswap.service.work.jobs import Queue
from safeswap.service.work.tasks import Context, read_data, run_finish

FILE = "id,sex,town\n" + "".join(f"{n},{'fm'[n % 2]},{'a' if n < 9 else 'Rareville'}\n" for n in range(10))


class Place:
    """A project whose data are read in within this process, as a worker and its child would do it."""

    def __init__(self, folder: Path, **given) -> None:
        self.settings = settings_in(folder, **{"workers": 3, **given})  # several jobs of one person at a time
        self.database, self.store = database_of(self.settings), Store(self.settings)
        self.queue = Queue(self.database, self.settings)
        self.user = add_user(self.database)
        self.project = add_project(self.database, self.store, user=self.user, state="reading")

    @property
    def row(self) -> dict:
        with self.database.read() as connection:
            return dict(connection.execute(select(projects)).mappings().one())

    def send(self, content: bytes | str) -> str:
        name = new_id()
        content = content.encode() if isinstance(content, str) else content
        (self.store.uploads(self.project) / name).write_bytes(content)
        return name

    def read(self, *, die_before_the_end: bool = False, **payload) -> None:
        self.queue.enqueue("ingest", payload, project_id=self.project, created_by=self.user)
        claim = self.queue.claim("w")
        context = Context(settings=self.settings, job=claim, project=self.row, report=lambda *_: None)
        try:
            outcome = run_ingest(context, dict(claim.payload))
        except SafeswapError as error:
            self.queue.fail(claim, error)
            clean_upload(claim, self.store)
            raise
        if die_before_the_end:
            with self.database.write() as connection:
                finish_ingest(connection, self.queue.get(claim.id), outcome, self.store)
                connection.rollback()
            return
        self.queue.succeed(
            claim, outcome, lambda connection: run_finish(connection, claim, outcome, [], settings=self.settings)
        )
        clean_upload(claim, self.store)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_file_becomes_data_a_schema_and_a_description(place):
    place.read(upload=place.send(FILE), name="survey.csv")
    row = place.row
    assert (row["state"], row["records"], row["data_version"], row["file_name"]) == ("ready", 10, 1, "survey.csv")
    data = read_data(place.store, place.project, 1)
    assert data.table.column("town").to_pylist()[-1] == "Rareville"
    assert list(place.store.uploads(place.project).iterdir()) == [], "the file as it came is still there"


def test_a_description_names_no_level_that_few_records_have(place):
    place.read(upload=place.send(FILE), name="survey.csv")
    description = place.row["description"]
    assert "Rareville" not in json.dumps(description)
    town = next(each for each in description["attributes"] if each["name"] == "town")
    assert [level["count"] for level in town["levels"]] == [None]  # 10 records less 9 would give the one away
    assert town["levels_below_tolerance"] == {"number": 1, "count": "<3"}


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "dta", "sav"])
def test_every_format_gives_the_same_data(place, tmp_path, suffix):
    original = datasets.cps8d()
    file = tmp_path / f"cps.{suffix.removesuffix('.gz')}"
    write(original, file)
    content = file.read_bytes()
    place.read(upload=place.send(gzip.compress(content, 1) if suffix.endswith("gz") else content), name=f"c.{suffix}")
    data = read_data(place.store, place.project, 1)
    assert place.row["records"] == len(original)
    assert data.table.column("Race").to_pylist()[:50] == original.table.column("Race").to_pylist()[:50]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a,b\n",
        b"PAR1 not really PAR1",
        b"a,b\n1\n",
        b"a,a\n1,2\n",
        bytes(1000),
        gzip.compress(b"x", mtime=0)[:-3],
    ],
    ids=["nothing", "no records", "no Parquet", "short line", "same name", "zeros", "cut"],
)
def test_a_file_that_cannot_be_read_leaves_a_broken_project_and_a_reason(place, content):
    with pytest.raises(InputError) as refused:
        place.read(upload=place.send(content), name="../up/survey.csv")
    assert place.row["state"] == "broken"
    assert str(place.store.root) not in refused.value.message
    assert list(place.store.uploads(place.project).iterdir()) == []


def test_a_project_that_had_data_keeps_them_when_the_next_file_is_bad(place):
    place.read(upload=place.send(FILE), name="survey.csv")
    with place.database.write() as connection:
        connection.execute(update(projects).values(state="reading"))
    with pytest.raises(InputError):
        place.read(upload=place.send(b""), name="empty.csv")
    assert (place.row["state"], place.row["records"], place.row["file_name"]) == ("ready", 10, "survey.csv")


def test_the_next_file_is_the_next_version_and_the_first_one_stays(place):
    place.read(upload=place.send(FILE), name="survey.csv")
    place.read(upload=place.send(FILE + "77,f,a\n"), name="more.csv")
    assert (place.row["data_version"], place.row["records"]) == (2, 11)
    assert [len(read_data(place.store, place.project, version)) for version in (1, 2)] == [10, 11]


def test_an_attempt_that_dies_before_it_is_recorded_is_not_seen_and_in_nobodys_way(place):
    place.read(upload=place.send(FILE), name="survey.csv", die_before_the_end=True)
    assert (place.row["state"], place.row["data_version"]) == ("reading", 0)
    place.read(upload=place.send(FILE + "77,f,a\n"), name="survey.csv")
    assert len(read_data(place.store, place.project, 1)) == 11


def test_the_same_data_can_be_described_anew(place):
    place.read(upload=place.send(FILE), name="survey.csv")
    schema = read_data(place.store, place.project, 1).schema
    changed = schema.replace(schema["town"].model_copy(update={"label": "Place of residence", "inferred": False}))
    place.read(from_version=1, schema=changed.model_dump(mode="json"))
    assert place.row["data_version"] == 2
    assert place.row["file_name"] == "survey.csv"
    assert read_data(place.store, place.project, 2).schema["town"].label == "Place of residence"


def test_what_was_stated_about_the_file_is_heeded(place):
    place.read(
        upload=place.send(FILE.replace(",", ";")),
        name="survey.csv",
        reading={"delimiter": ";", "identifier": "id", "kinds": {"town": "geography"}, "limits": "none"},
    )
    kinds = {each["name"]: each["kind"] for each in place.row["description"]["attributes"]}
    assert kinds == {"id": "identifier", "sex": "nominal", "town": "geography"}


def test_files_on_the_server_are_taken_from_named_folders_only(tmp_path):
    shared, other = tmp_path / "shared", tmp_path / "other"
    for folder in (shared, other):
        folder.mkdir()
        (folder / "survey.csv").write_text(FILE)
    (shared / "link.csv").symlink_to(other / "survey.csv")
    place = Place(tmp_path, folders=(shared,))
    place.read(path=str(shared / "survey.csv"), name="survey.csv")
    assert place.row["records"] == 10
    assert (shared / "survey.csv").read_text() == FILE, "a file that is not ours was changed"
    for path in (other / "survey.csv", shared / "link.csv", shared / ".." / "other" / "survey.csv", "/etc/passwd"):
        with pytest.raises(InputError) as refused:
            place.read(path=str(path), name="survey.csv")
        assert refused.value.code == "folder-not-allowed"


def test_a_name_cannot_lead_to_a_file_outside_the_uploads(place, tmp_path):
    (tmp_path / "outside").write_text(FILE)
    kept = place.store.project(place.project) / "key.sealed"
    kept.write_text("sealed")
    for name in ("../../../../outside", str(tmp_path / "outside"), "..", ".", ""):
        with pytest.raises(SpecError) as refused:
            place.read(upload=name, name="survey.csv")
        assert refused.value.code == "bad-name"
    with pytest.raises(InputError):
        place.read(upload="gone", name="survey.csv")
    assert (tmp_path / "outside").read_text() == FILE
    assert kept.exists()


def test_a_file_above_the_limit_is_not_opened(tmp_path):
    place = Place(tmp_path, limits=Limits(upload_bytes=50))
    with pytest.raises(InputError) as refused:
        place.read(upload=place.send(FILE), name="survey.csv")
    assert refused.value.code == "too-large"


def test_a_schema_that_comes_with_the_file_is_used(place):
    schema = Schema.model_validate(
        {"attributes": [{"name": "id", "kind": "identifier"}, {"name": "sex"}, {"name": "town", "label": "Town"}]}
    )
    place.read(upload=place.send(FILE), name="survey.csv", reading={"schema": schema.model_dump(mode="json")})
    assert read_data(place.store, place.project, 1).schema["town"].label == "Town"


def levels_of(place: Place, name: str) -> tuple[str, ...]:
    return read_data(place.store, place.project, place.row["data_version"]).schema[name].levels


def reorder(place: Place, name: str, *levels: str) -> None:
    """As the route does it for somebody who has put the levels that she was shown into an order."""
    version = place.row["data_version"]
    schema = read_data(place.store, place.project, version).schema
    changed = schema[name].model_copy(update={"kind": Kind.ORDINAL, "levels": levels, "inferred": False})
    place.read(from_version=version, schema=schema.replace(changed).model_dump(mode="json"))


def test_levels_that_are_not_shown_keep_their_places_in_a_new_order(place):
    shown = "".join(f"{level}\n" for level in ("10", "20", "30") for _ in range(5))
    place.read(upload=place.send(f"grade\n{shown}5\n15\n16\n"), name="grades.csv")
    reorder(place, "grade", "30", "10", "20")
    assert levels_of(place, "grade") == ("5", "30", "10", "15", "16", "20")
    reorder(place, "grade", "10", "20", "30")
    assert levels_of(place, "grade") == ("5", "10", "15", "16", "20", "30")


def test_levels_without_an_order_that_are_not_shown_come_last(place):
    shown = "".join(f"{level}\n" for level in ("low", "middle", "high") for _ in range(5))
    place.read(upload=place.send(f"grade\n{shown}top\nbottom\n"), name="grades.csv")
    reorder(place, "grade", "low", "middle", "high")
    assert levels_of(place, "grade") == ("low", "middle", "high", "bottom", "top")


def test_a_level_that_is_shown_has_to_be_named_in_an_order(place):
    shown = "".join(f"{level}\n" for level in ("low", "middle", "high") for _ in range(5))
    place.read(upload=place.send(f"grade\n{shown}top\n"), name="grades.csv")
    with pytest.raises(InputError) as refused:
        reorder(place, "grade", "low", "high")
    assert refused.value.code == "unlisted-level"


def test_every_option_that_is_accepted_is_one_that_reading_knows():
    assert set(inspect.signature(read).parameters) >= READING
