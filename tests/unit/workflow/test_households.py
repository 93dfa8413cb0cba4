"""Household files beside person files, and what a release holds of households."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.households import persons

import safeswap as ss
from safeswap.cli.app import run
from safeswap.errors import InputError, SpecError, UnsafeRelease
from safeswap.files.write import write
from safeswap.model.households import find_households, mark_household_attributes
from safeswap.model.microdata import Microdata
from safeswap.releases.linkage import Linkage
from safeswap.workflow.households import mask_households, merge_households, split_households, undo_households
from safeswap.workflow.masking import recall

KEY = ss.Key(bytes(range(32)))
SHARED = ("region", "county", "tenure", "rent")
PLAIN = persons(150)
DATA = Microdata(PLAIN.table, mark_household_attributes(PLAIN.schema, SHARED))
PERSONS = [name for name in DATA.attributes if name not in ("region", "county", "tenure")]
HOMES = pa.table({"home": [1, 2], "tenure": ["own", "rent"]})
PEOPLE = pa.table({"id": ["a", "b", "c"], "home": [2, 1, 2]})


def test_split_and_merge_are_inverse() -> None:
    homes, people = split_households(DATA)
    assert homes.attributes == ("ref", *SHARED)
    assert len(homes) == 150
    back = merge_households(homes, people)
    assert back.table.select(list(DATA.attributes)).equals(DATA.table)
    assert [a.name for a in back.schema.attributes if a.household] == list(SHARED)


def test_one_job_gives_both_files() -> None:
    homes, people = split_households(DATA)
    masked = ss.swap(merge_households(homes, people), swap=["region", "county"], rate=0.2, key=KEY)
    after, persons_after = split_households(masked)
    assert persons_after.table.equals(people.table)
    assert sorted(after.table["county"].to_pylist()) == sorted(homes.table["county"].to_pylist())
    assert after.table["county"].to_pylist() != homes.table["county"].to_pylist()


@pytest.mark.parametrize(
    "spec",
    [
        {"method": "household_swap", "geography": ["region", "county"], "similar": [["tenure"]], "rate": 0.3},
        {"method": "pram", "attributes": ["tenure", "edu"], "keep": 0.7},
        {"method": "pipeline", "steps": [{"method": "noise", "attributes": ["rent"], "size": 0.2}]},
    ],
    ids=lambda spec: spec["method"],
)
def test_two_files_are_masked_in_one_job_and_restored_by_its_record(spec: dict, tmp_path: Path) -> None:
    homes, people = split_households(DATA)
    homes = Microdata(homes.table.take(pa.array(np.random.default_rng(1).permutation(len(homes)))), homes.schema)
    done = mask_households(homes, people, spec, key=KEY)
    expected = ss.mask(merge_households(homes, people), spec, key=KEY)
    assert merge_households(done.households, done.persons).table.equals(expected.data.table)
    assert done.households.table["ref"].equals(homes.table["ref"])  # both files keep their order
    assert done.persons.table["person"].equals(people.table["person"])
    assert not done.households.table.equals(homes.table)
    record = done.keep(tmp_path / "homes.parquet", tmp_path / "people.parquet", audit=tmp_path / "audit")
    again = [ss.read(tmp_path / f"{n}.parquet", schema=d.schema) for n, d in (("homes", homes), ("people", people))]
    restored = undo_households(*again, record)
    assert [back.table.to_pydict() for back in restored] == [homes.table.to_pydict(), people.table.to_pydict()]
    with pytest.raises(InputError) as caught:
        ss.workflow.masking.recall(tmp_path / "people.parquet", tmp_path / "people.parquet", audit=tmp_path / "audit")
    assert caught.value.code == "two-files"


def test_one_command_masks_two_files_and_another_restores_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    homes, people = split_households(DATA)
    for data, name in ((homes, "homes"), (people, "people")):
        write(data, tmp_path / f"{name}.csv")
    asked = ["household_swap", "people.csv", "--households", "homes.csv", "--on", "ref", "--geography", "region,county"]
    asked += ["--rate", "0.3", "--insecure-seed", "1", "--no-scores"]
    assert run(["mask", *asked, "--plan-only"]) == 0
    assert run(["mask", *asked, "--output", "p.csv", "--audit", "audit"]) == 2  # where do the households go?
    assert run(["mask", *asked, "--output", "p.csv", "--household-output", "h.csv", "--audit", "audit"]) == 0
    assert Path("p.csv").read_text() == Path("people.csv").read_text()
    assert Path("h.csv").read_text() != Path("homes.csv").read_text()
    (record,) = Path("audit").iterdir()
    both = ["--households", "h.csv", "--on", "ref", "--household-output", "h0.csv"]
    assert run(["undo", "p.csv", *both, "--record", str(record), "--output", "p0.csv"]) == 0
    assert [Path(name).read_text() for name in ("h0.csv", "p0.csv")] == [
        Path(name).read_text() for name in ("homes.csv", "people.csv")
    ]
    capsys.readouterr()


def test_what_the_person_file_has_of_the_household_stays_in_it(tmp_path: Path) -> None:
    """The rent is the same for all members, and the agency keeps it in the file of persons."""
    whole, _ = split_households(DATA)
    homes = Microdata(whole.table.drop_columns(["rent"]), whole.schema.select([*whole.attributes[:-1]]))
    people = Microdata(DATA.table.select(PERSONS), DATA.schema.select(PERSONS))
    for data, name in ((homes, "homes"), (people, "people")):
        write(data, tmp_path / f"{name}.parquet")
    spec = {"method": "noise", "attributes": ["rent"], "size": 0.2}
    done = mask_households(homes, people, spec, key=KEY)
    assert done.persons.attributes == people.attributes
    assert done.households.attributes == homes.attributes
    rents = zip(done.persons.table["ref"].to_pylist(), done.persons.table["rent"].to_pylist(), strict=True)
    assert len(set(rents)) == 150  # changed for all members alike
    assert not done.persons.table["rent"].equals(people.table["rent"])
    names = [tmp_path / f"{name}.parquet" for name in ("homes", "people", "homes2", "people2")]
    record = done.keep(*names[2:], audit=tmp_path / "audit", sources=names[:2])
    found = recall(names[1], names[3], audit=tmp_path / "audit", households=(names[0], names[2]))
    assert found.data.table.to_pylist() == done.masked.data.table.to_pylist()
    restored = undo_households(done.households, done.persons, record)
    assert [each.table.to_pydict() for each in restored] == [homes.table.to_pydict(), people.table.to_pydict()]


def test_what_mates_share_is_guessed_where_only_the_merge_says_who_they_are() -> None:
    homes, people = split_households(DATA)
    other = {"ref": "dwell", "person": "who"}
    plain = DATA.table.select(PERSONS).rename_columns([other.get(name, name) for name in PERSONS])
    read = ss.read(plain, kinds={"dwell": "nominal"})
    assert not any(each.household for each in read.schema.attributes)
    own = homes.table.select(["ref", "tenure"]).rename_columns(["dwell", "tenure"])
    merged = merge_households(own, read, on="dwell")
    assert {each.name for each in merged.schema.attributes if each.household} == {"rent", "tenure"}
    stated = merge_households(own, ss.read(plain, kinds={"dwell": "nominal", "rent": "numeric"}), on="dwell")
    assert not stated.schema["rent"].household  # described by somebody, who did not say so
    assert people.attributes == tuple(name for name in PERSONS if name != "rent")


@pytest.mark.parametrize(
    ("homes", "people", "code"),
    [
        ({"home": [1, 1], "tenure": ["x", "y"]}, {"id": ["a"], "home": [1]}, "household-repeats"),
        ({"home": [1, None], "tenure": ["x", "y"]}, {"id": ["a"], "home": [1]}, "household-repeats"),
        ({"home": [1, 2], "tenure": ["x", "y"]}, {"id": ["a", "b"], "home": [1, 3]}, "no-such-household"),
        ({"home": [1, 2], "tenure": ["x", "y"]}, {"id": ["a", "b"], "home": [1, None]}, "empty-household"),
    ],
)
def test_files_that_do_not_fit_are_refused(homes: dict, people: dict, code: str) -> None:
    with pytest.raises(InputError) as caught:
        merge_households(pa.table(homes), pa.table(people), on="home")
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize("none", ["", float("nan"), None], ids=str)
@pytest.mark.parametrize("two_files", [False, True])
def test_persons_without_a_number_do_not_live_together(none: object, *, two_files: bool, tmp_path: Path) -> None:
    """An empty text and a float that is no number are no household, in any file, and get no new number."""
    homes, people = split_households(DATA)
    as_type = str if none == "" else float
    outside = {0, 3, 8}
    numbers = [none if i in outside else as_type(n) for i, n in enumerate(people.table["ref"].to_pylist())]
    place = people.attributes.index("ref")
    alone = Microdata(people.table.set_column(place, "ref", pa.array(numbers)), people.schema)
    left = {float(n) for n in numbers if n is not None and n != "" and n == n}  # noqa: PLR0124  (no number)
    known = homes.table.filter(pa.array([float(n) in left for n in homes.table["ref"].to_pylist()]))
    merged = merge_households(Microdata(known, homes.schema), alone)
    found = find_households(merged)
    assert np.flatnonzero(found.outside).tolist() == sorted(outside)
    assert len(found) == len(known) + 3
    assert [merged.table["tenure"][row].as_py() for row in sorted(outside)] == [None] * 3
    masked = ss.mask(merged, {"method": "swap", "swap": ["tenure"], "rate": 0.2}, key=KEY)
    terms = {"override": "a test", "second_release": "a test", "two_files": two_files}
    public = ss.release(masked, tmp_path / "public", audit=tmp_path / "audit", key=KEY, **terms).public
    released = ss.read(public / ("persons.csv" if two_files else "data.csv")).table["ref"]
    assert released.null_count == 3
    with pytest.raises(InputError) as caught:
        merge_households(pa.table({"ref": [none, as_type(1)], "x": ["a", "b"]}), alone)
    assert (caught.value.code, caught.value.fields["records"]) == ("household-repeats", [1])


def test_what_cannot_be_merged_or_split_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        merge_households(HOMES, PEOPLE.append_column("tenure", pa.array(["x", "y", "z"])), on="home")
    assert caught.value.code == "column-in-both"
    for on, code in (("street", "unknown-attribute"), (None, "no-household")):
        with pytest.raises(SpecError) as caught:
            merge_households(HOMES, PEOPLE, on=on)
        assert caught.value.code == code
    with pytest.raises(SpecError) as caught:
        split_households(PEOPLE)
    assert caught.value.code == "no-household"
    outside = DATA.with_columns({"ref": pa.chunked_array([[None, *DATA.table["ref"].to_pylist()[1:]]])}, {})
    with pytest.raises(InputError) as lost:
        split_households(outside)
    assert (lost.value.code, lost.value.fields["records"]) == ("person-outside-households", [1])


def test_the_command_line_splits_and_merges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safeswap.files.schema_file import write_schema
    from safeswap.files.write import write

    monkeypatch.chdir(tmp_path)
    write(DATA, tmp_path / "all.csv")
    write_schema(DATA.schema, tmp_path / "all.toml")
    assert (
        run(["split-households", "all.csv", "--schema", "all.toml", "--households", "h.csv", "--persons", "p.csv"]) == 0
    )
    words = ["merge-households", "h.csv", "p.csv", "--on", "ref", "--output", "back.csv", "--write-schema", "back.toml"]
    assert run(words) == 0
    back = ss.read("back.csv", schema="back.toml")
    assert [a.name for a in back.schema.attributes if a.household] == list(SHARED)
    assert back.table["county"].to_pylist() == DATA.table["county"].to_pylist()


def test_a_release_has_households_together_in_a_random_order() -> None:
    from safeswap.model.release import PublicFacts, prepare_release

    masked = ss.swap(DATA, swap=["region", "county"], rate=0.2, key=KEY)
    facts = PublicFacts(method="swap", records=len(DATA))
    release, rows = prepare_release(masked.data, key=KEY, facts=facts)
    numbers = release.table["ref"].to_pylist()
    runs = 1 + sum(one != other for one, other in pairwise(numbers))
    assert runs == len(set(numbers)) == 150
    old = np.array(DATA.table["ref"].to_pylist())[rows]
    assert len(set(zip(old.tolist(), numbers, strict=True))) == 150
    first = old[np.r_[True, old[1:] != old[:-1]]]
    assert abs(np.corrcoef(first, np.arange(150))[0, 1]) < 0.3
    plain, _ = prepare_release(PLAIN, key=KEY, facts=facts)
    told = plain.table["ref"].to_pylist()
    assert 1 + sum(one != other for one, other in pairwise(told)) > 300


def test_persons_outside_households_are_released_without_a_number() -> None:
    from safeswap.model.release import PublicFacts, prepare_release

    number = DATA.schema["ref"].model_copy(update={"missing": ("4001",)})
    data = Microdata(DATA.table, DATA.schema.replace(number))
    release, _ = prepare_release(data, key=KEY, facts=PublicFacts(method="none", records=len(DATA)))
    assert release.table["ref"].null_count == DATA.table["ref"].to_pylist().count(4001)


def test_a_release_holds_what_households_promise(tmp_path: Path) -> None:
    good = ss.mask(DATA, {"method": "pram", "attributes": ["tenure"]}, key=KEY)
    assert ss.release(good, tmp_path / "public", audit=tmp_path / "audit", key=KEY).records == len(DATA)
    values = good.data.table["tenure"].to_pylist()
    homes = DATA.table["ref"].to_pylist()
    row = next(i for i in range(1, len(homes)) if homes[i] == homes[i - 1])
    values[row] = next(each for each in set(values) if each != values[row])
    from dataclasses import replace

    bad = replace(good, data=good.data.with_columns({"tenure": pa.chunked_array([values])}, {}))
    codes = {(each.code, each.column) for each in Linkage(bad, bad.data.attributes).remarks() if each.refuses}
    assert ("household-split", "tenure") in codes
    with pytest.raises(UnsafeRelease):
        ss.release(bad, tmp_path / "other", audit=tmp_path / "elsewhere", key=KEY)


def test_a_false_number_of_members_and_other_members_are_refused() -> None:
    from dataclasses import replace

    sizes = np.unique(DATA.table["ref"].to_numpy(), return_inverse=True, return_counts=True)
    size = sizes[2][sizes[1]]
    table = DATA.table.append_column("size", pa.array(size))
    number = DATA.schema["tenure"].model_copy(update={"name": "size"})
    schema = DATA.schema.model_copy(update={"attributes": (*DATA.schema.attributes, number)})
    data = Microdata(table, type(schema).model_validate(schema.model_dump()))
    masked = ss.swap(data, swap=["size"], rate=0.3, key=KEY)
    refused = {(each.code, each.column) for each in Linkage(masked, data.attributes).remarks() if each.refuses}
    assert ("household-size", "size") in refused
    tenure = ss.swap(data, swap=["tenure"], rate=0.3, key=KEY)
    assert not [each for each in Linkage(tenure, data.attributes).remarks() if each.refuses]
    moved = data.table["ref"].to_pylist()
    moved[0], moved[-1] = moved[-1], moved[0]
    other = replace(tenure, data=tenure.data.with_columns({"ref": pa.chunked_array([moved])}, {}))
    refused = {(each.code, each.column) for each in Linkage(other, data.attributes).remarks() if each.refuses}
    assert ("household-changed", "ref") in refused


def test_areas_that_do_not_nest_are_told() -> None:
    levels = {"region": 0, "county": 1}
    stated = (DATA.schema[name].model_copy(update={"geography_level": level}) for name, level in levels.items())
    county = DATA.table["county"].to_pylist()
    county[-3:] = ["C00"] * 3
    region = DATA.table["region"].to_pylist()
    region[-3:] = ["R5"] * 3
    data = Microdata(DATA.table, DATA.schema.replace(*stated))
    assert not any("nest" in each for each in ss.describe(data).warnings)
    wrong = data.with_columns({"county": pa.chunked_array([county]), "region": pa.chunked_array([region])}, {})
    assert any("do not nest" in each for each in ss.describe(wrong).warnings)


def test_a_study_scores_whole_households() -> None:
    scenario = {"keys": ["region", "sex"], "unit": "household"}
    found = ss.study(DATA, attributes=["tenure"], rates=[0.1], scenario=scenario, key=KEY, replicates=1)
    masked = ss.swap(DATA, swap=["tenure"], rate=0.1, key=KEY)
    score = ss.assess(masked, measures=["n_rule"], scenario=scenario).scores[0]
    assert found.table.column("n_rule").to_pylist()[0] == pytest.approx(score.value)
