"""A release as two files: the file of households and that of persons join to the release in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.households import persons

import safeswap as ss
from safeswap.errors import InputError, SafeswapError, SpecError, UnsafeRelease
from safeswap.files.formats import sum_file
from safeswap.model.households import mark_household_attributes
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.releases.manifest import MANIFEST, Manifest
from safeswap.workflow.households import mask_households, split_households
from safeswap.workflow.masking import recall

KEY = ss.Key(bytes(range(32)))
SHARED = ("region", "county", "tenure", "rent")
_PLAIN = persons(120)
DATA = Microdata(_PLAIN.table, mark_household_attributes(_PLAIN.schema, SHARED))
SPEC = {"method": "swap", "swap": ["tenure"], "rate": 0.3}
WHERE: dict[str, Any] = {"key": KEY, "override": "a test", "second_release": "a test"}


@pytest.fixture(scope="module")
def done() -> Any:
    return mask_households(*split_households(DATA), SPEC, key=KEY)


def released(masked: Any, folder: Path, name: str, **terms: Any) -> Path:
    return ss.release(masked, folder / name, audit=folder / "audit", **WHERE, **terms).public


def rows_of(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


def joined_by_hand(folder: Path) -> list[dict[str, Any]]:
    homes = {row["ref"]: row for row in rows_of(folder / "households.parquet")}
    return [{**homes.get(row["ref"], {}), **row} for row in rows_of(folder / "persons.parquet")]


def test_the_two_files_join_to_the_release_in_one_file(done: Any, tmp_path: Path) -> None:
    two = released(done, tmp_path, "two", data_format="parquet")
    one = released(done, tmp_path, "one", data_format="parquet", two_files=False)
    assert [path.name for path in sorted(two.glob("*.parquet"))] == ["households.parquet", "persons.parquet"]
    assert joined_by_hand(two) == rows_of(one / "data.parquet")
    homes = rows_of(two / "households.parquet")
    assert list(homes[0]) == ["ref", *SHARED]
    assert sorted(row["ref"] for row in homes) == list(range(1, len(homes) + 1))
    met = list(dict.fromkeys(row["ref"] for row in rows_of(two / "persons.parquet")))
    assert met == [row["ref"] for row in homes]
    old = list(dict.fromkeys(DATA.table["ref"].to_pylist()))
    assert met != sorted(met)
    assert len(met) == len(old)


@pytest.mark.parametrize("data_format", ["csv", "parquet", "dta", "sav"])
def test_every_format_is_written_verified_and_told(done: Any, data_format: str, tmp_path: Path) -> None:
    public = released(done, tmp_path, "public", data_format=data_format, title="Two")
    found = ss.verify(public)
    assert (found.records, found.columns) == (len(DATA), len(DATA.attributes))
    told = json.loads((public / "dictionary.json").read_text(encoding="utf-8"))
    assert told["households"] == len(set(DATA.table["ref"].to_pylist()))
    assert {each["file"] for each in told["columns"] if each["name"] == "ref"} == {"households", "persons"}
    assert {each["name"] for each in told["columns"] if each["file"] == "households"} == {"ref", *SHARED}
    assert "two files" in (public / "report.html").read_text(encoding="utf-8")
    assert (public / "dictionary.csv").read_text(encoding="utf-8").startswith("file,column,")


def test_a_person_file_with_marked_attributes_is_released_as_two_on_request(tmp_path: Path) -> None:
    masked = ss.mask(DATA, SPEC, key=KEY)
    public = released(masked, tmp_path, "public", two_files=True, drop=["county"])
    assert (public / "households.csv").read_text(encoding="utf-8").splitlines()[0] == "ref,region,tenure,rent"


def test_an_attack_reads_a_bundle_of_two_files(done: Any, tmp_path: Path) -> None:
    two, one = released(done, tmp_path, "two"), released(done, tmp_path, "one", two_files=False)
    outcomes = [[each.as_dict() for each in ss.attack(each).outcomes] for each in (two, one)]
    assert outcomes[0]
    assert outcomes[0] == outcomes[1]


def stamp(folder: Path) -> None:
    """Give a changed bundle a manifest that fits."""
    manifest = Manifest.from_bytes((folder / MANIFEST).read_bytes())
    sums = {name: sum_file(folder / name) for name in manifest.files}
    changed = Manifest(data_format=manifest.data_format, facts=manifest.facts, files=sums)
    (folder / MANIFEST).write_bytes(changed.to_bytes())


def lines_of(text: str) -> list[list[str]]:
    return [line.split(",") for line in text.splitlines()]


def renumber(row: list[str], place: int) -> list[str]:
    return [*row[:place], str(9000 + int(row[place])), *row[place + 1 :]]


CHANGES: Mapping[str, tuple[str, Any]] = {
    "a household twice": ("households.csv", lambda rows: [*rows, rows[1]]),
    "a household less": ("households.csv", lambda rows: rows[:-1]),
    "other numbers": ("households.csv", lambda rows: [rows[0], *(renumber(row, 0) for row in rows[1:])]),
    "a household without persons": ("persons.csv", lambda rows: [r for r in rows if r[1] != rows[1][1]]),
    "a person without household": ("persons.csv", lambda rows: [rows[0], renumber(rows[1], 1), *rows[2:]]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_files_that_do_not_join_are_not_verified(done: Any, change: str, tmp_path: Path) -> None:
    public = released(done, tmp_path, "public")
    name, changed = CHANGES[change]
    rows = lines_of((public / name).read_text(encoding="utf-8"))
    (public / name).write_text("".join(",".join(row) + "\n" for row in changed(rows)), encoding="utf-8")
    stamp(public)
    with pytest.raises(UnsafeRelease):
        ss.verify(public)


def test_a_household_file_with_a_wrong_value_is_found_before_the_bundle_gets_its_name(
    done: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both files are as they were meant to be, but meant wrongly: the join is compared with the release itself."""
    from safeswap.model.release import Release

    right = Release.parts.func  # type: ignore[attr-defined]

    def wrong(release: Release) -> dict[str, Release]:
        parts = right(release)
        if "households" in parts:
            homes = parts["households"]
            order = pa.array(np.roll(np.arange(homes.table.num_rows), 1))
            table = homes.table.set_column(0, "ref", homes.table.column("ref").take(order))
            parts["households"] = Release(table=table, schema=homes.schema, facts=homes.facts)
        return dict(parts)

    monkeypatch.setattr(Release, "parts", property(wrong))
    with pytest.raises(UnsafeRelease, match="when joined"):
        released(done, tmp_path, "public")
    assert not (tmp_path / "public").exists()


REFUSED: Mapping[str, tuple[dict[str, Any], type[SafeswapError], str]] = {
    "without the number": ({"drop": ["ref"]}, SpecError, "no-household"),
    "without shared columns": ({"drop": list(SHARED)}, SpecError, "no-household"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_divided_is_refused(case: str, tmp_path: Path) -> None:
    terms, kind, code = REFUSED[case]
    with pytest.raises(kind) as caught:
        released(ss.mask(DATA, SPEC, key=KEY), tmp_path, "public", two_files=True, **terms)
    assert caught.value.code == code
    assert not (tmp_path / "public").exists()


def test_household_attributes_outside_households_are_refused_with_positions(tmp_path: Path) -> None:
    numbers = DATA.table["ref"].combine_chunks().take(pa.array(np.arange(len(DATA)), mask=np.arange(len(DATA)) < 2))
    data = Microdata(DATA.table.set_column(DATA.attributes.index("ref"), "ref", numbers), DATA.schema)
    with pytest.raises(InputError) as caught:
        released(ss.mask(data, SPEC, key=KEY), tmp_path, "public", two_files=True)
    assert (caught.value.code, caught.value.fields["records"]) == ("person-outside-households", [1, 2])


def test_two_kept_files_are_recalled_and_released(done: Any, tmp_path: Path) -> None:
    homes, people = split_households(DATA)
    for data, name in ((homes, "homes"), (people, "people")):
        pq.write_table(data.table, tmp_path / f"{name}.parquet")
    names = [tmp_path / f"{name}.parquet" for name in ("homes", "people", "masked-homes", "masked-people")]
    done.keep(names[2], names[3], audit=tmp_path / "audit", sources=names[:2])
    known: dict[str, Any] = {"audit": tmp_path / "audit", "households": (names[0], names[2])}
    found = recall(names[1], names[3], **known)
    assert isinstance(found, Masked)
    assert found.data.table.to_pylist() == done.masked.data.table.to_pylist()
    assert found.original.table.to_pylist() == done.masked.original.table.to_pylist()
    for other, code in (((), "two-files"), ((names[0], names[0]), "no-audit")):
        with pytest.raises(InputError) as caught:
            recall(names[1], names[3], audit=tmp_path / "audit", households=other)
        assert caught.value.code == code
    with pytest.raises(SpecError):
        recall(names[1], names[3], audit=tmp_path / "audit", households=names[:1])
    with pytest.raises(InputError) as caught:
        recall(names[1], names[1], audit=tmp_path / "audit")
    assert caught.value.code == "two-files"  # the masking left the persons as they were
    two = released(found, tmp_path, "recalled", two_files=True, data_format="parquet")
    assert joined_by_hand(two) == joined_by_hand(released(done, tmp_path, "direct", data_format="parquet"))


def test_maskings_of_the_same_persons_with_their_households_are_told_apart(tmp_path: Path) -> None:
    homes, people = split_households(DATA)
    for data, name in ((homes, "homes"), (people, "people")):
        pq.write_table(data.table, tmp_path / f"{name}.parquet")
    sources = [tmp_path / "homes.parquet", tmp_path / "people.parquet"]
    for number, rate in enumerate((0.1, 0.3)):
        made = mask_households(homes, people, {**SPEC, "rate": rate}, key=KEY)
        written = [tmp_path / f"{name}{number}.parquet" for name in ("homes", "people")]
        made.keep(*written, audit=tmp_path / "audit", sources=sources)
        assert written[1].read_bytes() == (tmp_path / "people0.parquet").read_bytes()  # only households changed
        found = recall(sources[1], written[1], audit=tmp_path / "audit", households=(sources[0], written[0]))
        assert found.spec == made.masked.spec
        assert found.original.past == ()
        assert found.data.table.to_pylist() == made.masked.data.table.to_pylist()
