"""The register of maskings: every step is told, wherever its audit record is and whatever became of the file."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.conformance.strategies import CASES
from tests.hand_made import KEY

import safeswap as ss
from safeswap import registry, workflow
from safeswap.errors import InputError, OutputError, UnsafeRelease
from safeswap.files.write import write
from safeswap.model.masked import Masked
from safeswap.model.microdata import PastStep, join_pasts
from safeswap.on_disk.job import ChangedColumn
from safeswap.releases import register as register_of
from safeswap.releases.ledger import configured_ledger
from safeswap.releases.register import FileRegister, MemoryRegister, find_past, list_names
from safeswap.workflow.masking import keep, recall, register

KINDS = dict.fromkeys(("age", "income", "hours", "rent"), "numeric")
SPECS: dict[str, dict[str, Any]] = {
    "recode": {
        "method": "recode",
        "steps": [{"step": "recode", "attribute": "job", "groups": {"few": ["j0", "j1"]}, "otherwise": "keep"}],
    },
    "suppress": {"method": "suppress", "combinations": [["trade", "edu"]], "tolerance": 12},
    "swap": {"method": "swap", "swap": ["civil"], "rate": 0.2},
    "swap_permutation": {"method": "swap_permutation", "swap": ["rank"], "probability": 0.5},
    "pram": {"method": "pram", "attributes": ["sex"], "keep": 0.8},
    "microaggregation": {"method": "microaggregation", "attributes": ["income"]},
    "noise": {"method": "noise", "attributes": ["age"], "size": 0.1},
    "rank_swap": {"method": "rank_swap", "attributes": ["hours"]},
    "top_bottom": {"method": "top_bottom", "attributes": ["rent"], "top_share": 0.05},
    "edit_1990": {
        "method": "edit_1990",
        "keys": ["size"],
        "geography": ["county", "town"],
        "geography_codes": "local",
        "rate": 0.3,
    },
    "edit_targeted": {"method": "edit_targeted", "keys": ["origin"], "geography": ["place"], "tolerance": 19},
    "safe": {"method": "safe", "tables": [["faith"]], "tolerance": 62, "search": "quick", "time_limit": 5.0},
}
"""A specification of every method, each on columns of its own."""


def survey(records: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(11)
    numbers = {"age": rng.integers(16, 90, records), "income": np.round(rng.lognormal(9, 0.7, records), 2)}
    numbers |= {"hours": np.round(rng.gamma(9, 4, records), 1), "rent": np.round(rng.lognormal(6, 0.4, records), 2)}
    levels = {
        "sex": 2,
        "civil": 3,
        "job": 8,
        "trade": 6,
        "edu": 6,
        "size": 4,
        "county": 2,
        "town": 3,
        "origin": 20,
        "place": 5,
    }
    levels |= {"faith": 7, "rank": 4}
    codes = {name: [f"{name[0]}{code}" for code in rng.integers(0, most, records)] for name, most in levels.items()}
    return pd.DataFrame({"id": rng.permutation(records) + 1, **numbers, **codes})


@pytest.fixture
def original(tmp_path: Path) -> Path:
    survey().to_csv(tmp_path / "survey.csv", index=False)
    return tmp_path / "survey.csv"


@pytest.fixture(autouse=True)
def nothing_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the dataframes of other tests."""
    monkeypatch.setattr(register_of, "EXPORTED", MemoryRegister())


def masked_file(source: Path, method: str, target: str, *, audit: str, seed: int | None = None) -> Path:
    """Do as the command line does: read, mask, keep, each time with another audit directory."""
    reading: dict[str, Any] = {"identifier": "id", "kinds": KINDS}
    secret: dict[str, Any] = {"key": KEY} if seed is None else {"insecure_seed": seed}
    masked = ss.mask(ss.read(source, **reading), SPECS[method], **secret)
    folder = source.parent
    keep(masked, folder / target, audit=folder / audit, reading=reading, source=source)
    return folder / target


def released(masked: Masked, folder: Path, **terms: Any) -> dict[str, Any]:
    done = ss.release(masked, folder / "public", audit=folder / "releases", key=KEY, **terms)
    told: dict[str, Any] = json.loads((done.public / "manifest.json").read_bytes())["facts"]
    return told


def titles(*methods: str) -> str:
    """Return how the steps are told: earlier recodes are just called so."""
    earlier = ["Recoding" if name == "recode" else registry.method(name).title for name in methods[:-1]]
    return "; then ".join([*earlier, registry.method(methods[-1]).title])


def test_every_method_is_tried() -> None:
    assert {*SPECS, "household_swap"} == {name for name in registry.method_names() if "plug" not in name}


def test_households_that_moved_are_known_too(tmp_path: Path) -> None:
    data, spec = CASES["household_swap"].example()
    write(data, tmp_path / "persons.parquet")
    masked = ss.mask(data, spec, key=KEY)
    keep(masked, tmp_path / "moved.parquet", audit=tmp_path / "aud", source=tmp_path / "persons.parquet")
    copy = ss.read(tmp_path / "moved.parquet")
    assert [step.method for step in find_past(copy, FileRegister(configured_ledger()))] == ["household_swap"]


@pytest.mark.parametrize("order", [list(SPECS), list(SPECS)[::-1]], ids=["forwards", "backwards"])
def test_every_method_is_known_before_and_after_every_other(order: list[str], original: Path) -> None:
    """A directory per step: of any two methods, one chain has the first before the second and one after it."""
    source = original
    for number, method in enumerate(order, start=1):
        target = masked_file(source, method, f"{method}.csv", audit=f"aud-{method}")
        masked = recall(source, target, audit=original.parent / f"aud-{method}")
        assert [step.method for step in masked.data.past] == order[:number]
        source = target


def test_a_masking_that_changes_nothing_is_not_told_twice(original: Path) -> None:
    once = masked_file(original, "top_bottom", "one.csv", audit="aud")
    twice = masked_file(once, "top_bottom", "two.csv", audit="aud")
    assert once.read_bytes() == twice.read_bytes()
    masked = recall(once, twice, audit=original.parent / "aud")
    assert [step.method for step in masked.data.past] == ["top_bottom"]


def test_a_masking_without_pairs_keeps_what_is_known(original: Path) -> None:
    once = masked_file(original, "pram", "one.csv", audit="aud")
    nothing = ss.mask(ss.read(once, identifier="id"), {"method": "swap", "swap": ["civil"], "pairs": 0}, key=KEY)
    keep(nothing, original.parent / "two.parquet", audit=original.parent / "other", source=once)
    copy = ss.read(original.parent / "two.parquet")
    assert [step.method for step in find_past(copy, FileRegister(configured_ledger()))] == ["pram"]


@pytest.mark.parametrize("pair", list(pairwise([*SPECS, "recode"])), ids="-".join)
def test_a_release_tells_both_steps_and_claims_nothing_that_the_first_has_changed(
    pair: tuple[str, str], original: Path
) -> None:
    first = masked_file(original, pair[0], "one.csv", audit="aud1")
    second = masked_file(first, pair[1], "two.csv", audit="aud2")
    told = released(recall(first, second, audit=original.parent / "aud2"), original.parent)
    assert told["method"] == titles(*pair)
    assert pair[0] == "recode" or told["kept_exactly"] == []
    assert "job" not in " ".join(told["kept_exactly"])


# Each of four methods comes after each other one, and in each place.
ORDERS = (
    ("recode", "suppress", "pram"),
    ("recode", "pram", "suppress"),
    ("suppress", "recode", "microaggregation"),
    ("suppress", "microaggregation", "recode"),
    ("pram", "microaggregation", "suppress"),
    ("microaggregation", "pram", "recode"),
)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_three_steps_over_three_directories_are_told_in_order(order: tuple[str, ...], original: Path) -> None:
    files = [original]
    for number, method in enumerate(order):
        files.append(masked_file(files[-1], method, f"step{number}.csv", audit=f"aud{number}"))
    shutil.rmtree(original.parent / "aud0")  # records are moved and deleted; what was done stays known
    (original.parent / "aud1").rename(original.parent / "elsewhere")
    told = released(recall(files[-2], files[-1], audit=original.parent / "aud2"), original.parent)
    assert told["method"] == titles(*order)
    assert told["kept_exactly"] == []


def reshape_copy(path: Path, how: str) -> Any:  # noqa: PLR0911  (one line per way)
    """Return what becomes of a masked file outside of safeswap."""
    frame = pd.read_csv(path)
    copy = path.with_name("copy" + path.suffix)
    match how:
        case "renamed":
            return path.rename(copy)
        case "parquet":
            frame.to_parquet(copy.with_suffix(".parquet"))
            return copy.with_suffix(".parquet")
        case "stata":
            frame.to_stata(copy.with_suffix(".dta"), write_index=False)
            return copy.with_suffix(".dta")
        case "semicolons":
            frame.to_csv(copy, sep=";", index=False)
            return copy
        case "sorted":
            frame.sort_values(["age", "id"]).to_csv(copy, index=False)
            return copy
        case "columns in another order":
            frame[frame.columns[::-1]].to_csv(copy, index=False)
            return copy
        case "columns renamed":
            return frame.rename(columns={"civil": "status"})
        case "a column dropped":
            return frame.drop(columns="job")
        case "a column added":
            return frame.assign(region=frame["age"] % 7)
        case "a value corrected":
            frame.loc[3, "age"] = 44
            return frame
        case "pandas":
            return frame
        case "polars":
            return pl.from_pandas(frame)
    raise AssertionError(how)


COPIES = (
    "renamed", "parquet", "stata", "semicolons", "sorted", "columns in another order", "columns renamed",
    "a column dropped", "a column added", "a value corrected", "pandas", "polars",
)  # fmt: skip


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_is_known_whatever_it_looks_like(how: str, original: Path) -> None:
    copy = reshape_copy(masked_file(original, "swap", "one.csv", audit="aud1"), how)
    masked = ss.mask(ss.read(copy, identifier="id", kinds=KINDS), SPECS["pram"], key=KEY)
    told = released(masked, original.parent)
    assert told["method"] == titles("swap", "pram")
    assert told["kept_exactly"] == []


@pytest.mark.parametrize("how", ["a record removed", "the original", "other data of the same kind"])
def test_what_was_not_masked_here_is_not_said_to_be(how: str, original: Path) -> None:
    path = masked_file(original, "swap", "one.csv", audit="aud1")
    sources = {"a record removed": pd.read_csv(path).drop(index=7), "the original": original}
    frame = sources.get(how, survey(500).sample(400, random_state=1))
    masked = ss.mask(ss.read(frame, identifier="id", kinds=KINDS), SPECS["pram"], key=KEY)
    assert find_past(masked.original, FileRegister(configured_ledger())) == ()


def test_a_column_that_any_file_may_hold_is_no_sign(tmp_path: Path) -> None:
    """One recode makes a column constant: other files with a constant column are not taken for this one."""
    steps = [{"step": "recode", "attribute": "sex", "groups": {"all": ["s0", "s1"]}}]
    masked = ss.mask(ss.read(survey(), identifier="id"), {"method": "recode", "steps": steps}, key=KEY)
    keep(masked, tmp_path / "one.parquet", audit=tmp_path / "aud")
    other = pd.DataFrame({"id": range(400), "sex": "all"})
    assert find_past(ss.read(other, identifier="id"), FileRegister(configured_ledger())) == ()


def test_categories_that_mean_missing_are_known_in_a_file_of_several_pieces() -> None:
    known = MemoryRegister()
    whole = pa.chunked_array([["NaN", "a", "b", ""] * 30]).dictionary_encode()
    pieces = pa.chunked_array([whole.slice(0, 50).chunk(0), whole.slice(50).chunk(0)])
    names = [register_of._name_all(pa.table({"a": column}), known) for column in (whole, pieces)]
    assert names[0] == names[1]


def test_a_masking_that_restores_the_original_does_not_turn_it_into_a_masked_file(tmp_path: Path) -> None:
    data = ss.read(survey(), identifier="id", kinds=KINDS)
    once = ss.mask(data, SPECS["swap"], key=KEY)
    keep(once, tmp_path / "once.parquet", audit=tmp_path / "aud")
    again = Masked(original=once.data, data=data, spec=once.spec, plan=once.plan, audit=once.audit)  # pairs swap back
    keep(again, tmp_path / "again.parquet", audit=tmp_path / "aud")
    book = FileRegister(configured_ledger())
    assert find_past(ss.read(survey(), identifier="id"), book) == ()
    assert [step.method for step in find_past(ss.read(tmp_path / "once.parquet"), book)] == ["swap"]


@pytest.mark.parametrize("name", ["one.csv", "one.tsv", "one.parquet", "one.dta", "one.sav"])
def test_a_masked_file_is_known_by_content_in_every_format(name: str, tmp_path: Path) -> None:
    single = {} if name in ("one.dta", "one.sav") else {"share": np.linspace(0, 1, 400).astype(np.float32)}
    frame = survey().assign(
        **single,  # Stata and SPSS files make them doubles: known by their columns and bytes only
        day=pd.date_range("2020-01-01", periods=400).date,
        note=["", "x"] * 200,
        gap=[None, 1.5] * 200,
    )
    masked = ss.mask(ss.read(frame, identifier="id", kinds=KINDS), SPECS["swap"], key=KEY)
    register(masked)  # without a file: the bytes are unknown
    write(masked, tmp_path / name)
    copy = ss.read(tmp_path / name, identifier="id")
    book = FileRegister(configured_ledger())
    whole = register_of._name_all(copy.table, book, columns=())
    assert [step.method for step in register_of.join_pasts(book.read(whole))] == ["swap"]


def test_a_dataframe_carries_its_history_through_the_process(tmp_path: Path) -> None:
    frame = ss.to_frame(ss.mask(ss.read(survey(), identifier="id", kinds=KINDS), SPECS["swap"], key=KEY))
    masked = ss.mask(ss.read(frame, identifier="id", kinds=KINDS), SPECS["pram"], key=KEY)
    assert released(masked, tmp_path)["method"] == titles("swap", "pram")


def test_steps_on_disk_and_in_memory_are_one_chain(original: Path) -> None:
    """A file masked by one command is read, recoded and masked in Python, as dataframes."""
    path = masked_file(original, "swap", "one.csv", audit="aud1")
    recoded = workflow.recode(ss.read(path, identifier="id", kinds=KINDS), SPECS["recode"]["steps"])
    exported = ss.to_frame(ss.mask(recoded, SPECS["pram"], key=KEY), like="pandas")
    masked = ss.mask(ss.read(exported, identifier="id", kinds=KINDS), SPECS["microaggregation"], key=KEY)
    told = released(masked, original.parent)
    assert told["method"] == titles("swap", "recode", "pram", "microaggregation")


def test_a_bundle_that_is_masked_again_tells_what_was_released(tmp_path: Path) -> None:
    first = ss.mask(ss.read(survey(), identifier="id", kinds=KINDS), SPECS["swap"], key=KEY)
    done = ss.release(first, tmp_path / "first", audit=tmp_path / "releases", key=KEY)
    again = ss.mask(ss.read(done.public / "data.csv", identifier="id", kinds=KINDS), SPECS["pram"], key=KEY)
    told = released(again, tmp_path, second_release="a test")
    assert told["method"] == titles("swap", "pram")
    assert told["kept_exactly"] == []


def test_an_insecure_step_in_another_directory_stops_the_release(original: Path) -> None:
    first = masked_file(original, "swap", "one.csv", audit="aud1", seed=1)
    second = masked_file(first, "pram", "two.csv", audit="aud2")
    with pytest.raises(UnsafeRelease) as caught:
        released(recall(first, second, audit=original.parent / "aud2"), original.parent)
    assert caught.value.code == "not-for-release"


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_files_masked_on_disk_are_told(engine: str, tmp_path: Path) -> None:
    survey().to_parquet(tmp_path / "survey.parquet")
    options: dict[str, Any] = {"identifier": "id", "engine": engine, "key": KEY}
    files = [tmp_path / name for name in ("survey.parquet", "one.parquet", "two.parquet")]
    workflow.mask_file(files[0], files[1], SPECS["swap"], audit=tmp_path / "aud1", **options)
    workflow.mask_file(files[1], files[2], {**SPECS["swap"], "rate": 0.1}, audit=tmp_path / "aud2", **options)
    for source in (files[2], pd.read_parquet(files[2]).drop(columns="age")):
        masked = ss.mask(ss.read(source, identifier="id"), SPECS["pram"], key=KEY)
        assert [step.method for step in find_past(masked.original, FileRegister(configured_ledger()))] == ["swap"] * 2
    register_masked = recall(files[1], files[2], audit=tmp_path / "aud2")
    assert [step.method for step in register_masked.data.past] == ["swap"] * 2


def test_without_the_key_nothing_is_guessed(original: Path, own_ledger: Path) -> None:
    first = masked_file(original, "swap", "one.csv", audit="aud1")
    second = masked_file(first, "pram", "two.csv", audit="aud2")
    own_ledger.with_suffix(".key").unlink()
    with pytest.raises(InputError) as caught:
        recall(first, second, audit=original.parent / "aud2")
    assert caught.value.code == "no-ledger-key"


def test_a_register_that_cannot_be_written_leaves_no_masked_file(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SAFESWAP_LEDGER", str(tmp_path / "file" / "ledger.db"))
    with pytest.raises(OutputError) as caught:
        masked_file(original, "swap", "one.csv", audit="aud1")
    assert caught.value.code == "no-ledger"
    assert not (tmp_path / "one.csv").exists()
    assert not (tmp_path / "aud1").exists()


def test_histories_are_joined_without_telling_a_step_twice() -> None:
    swap, pram, noise = (PastStep(method=name, attributes=("a",)) for name in ("swap", "pram", "noise"))
    assert join_pasts([(swap,), (swap, pram)]) == (swap, pram)
    assert join_pasts([(swap, pram), (swap,)]) == (swap, pram)
    assert join_pasts([(swap,), (pram,)]) == (swap, pram)
    assert join_pasts([(swap, swap), (swap,), (noise,)]) == (swap, swap, noise)


def test_the_register_shows_nothing_of_what_it_knows(original: Path, own_ledger: Path) -> None:
    """Neither a path, a name, a method nor a value is in the file; one change makes it fail instead of lie."""
    masked_file(original, "swap", "one.csv", audit="aud1")
    content = own_ledger.read_bytes()
    texts = [str(original.parent), "one.csv", "aud1", "survey", "civil", "swap", "releasable"]
    assert not [text for text in texts if text.encode() in content]
    digests = [register_of.hashlib.sha256(path.read_bytes()) for path in (original, original.parent / "one.csv")]
    assert not [each for each in digests if each.digest() in content or each.hexdigest().encode() in content]
    assert stat.S_IMODE(own_ledger.stat().st_mode) == 0o600
    assert stat.S_IMODE(own_ledger.with_suffix(".key").stat().st_mode) == 0o600


def test_entries_cannot_be_exchanged(original: Path, own_ledger: Path) -> None:
    """Who may write the file but has no key cannot give the masked table the empty history of the original."""
    import sqlite3

    path = masked_file(original, "swap", "one.csv", audit="aud1")
    with sqlite3.connect(own_ledger) as connection:
        sealed = [row[0] for row in connection.execute("SELECT sealed FROM maskings")]
        assert len({len(each) for each in sealed}) == 1  # an empty history is as long as any
        connection.execute("UPDATE maskings SET sealed = ?", (sealed[0],))
    with pytest.raises(InputError) as caught:
        find_past(ss.read(path), FileRegister(configured_ledger()))
    assert caught.value.code == "ledger-damaged"


def test_two_agencies_name_the_same_table_differently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.Table.from_pandas(survey())
    names = []
    for agency in ("a", "b"):
        monkeypatch.setenv("SAFESWAP_LEDGER", str(tmp_path / agency / "ledger.db"))
        names.append(set(register_of._name_all(table, FileRegister(configured_ledger()))))
    assert not names[0] & names[1]


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_original_stays_unmasked_whatever_is_done_to_what_was_made_of_it(tmp_path: Path, *, on_disk: bool) -> None:
    """The second step changes a column that the first left alone: before it, that column is still the original's."""
    original, files = tmp_path / "survey.parquet", [tmp_path / f"{number}.parquet" for number in (1, 2)]
    survey().to_parquet(original)
    source = original
    for method, target in zip(("swap", "pram"), files, strict=True):
        if on_disk:
            places: dict[str, Any] = {"target": target, "audit": tmp_path / "aud", "identifier": "id", "kinds": KINDS}
            workflow.mask_file(source, spec=SPECS[method], key=KEY, **places)
        else:
            masked_file(source, method, target.name, audit="aud")
        source = target
    known = FileRegister(configured_ledger())
    pasts = [find_past(ss.read(path), known) for path in (original, *files)]
    assert [[step.method for step in past] for past in pasts] == [[], ["swap"], ["swap", "pram"]]


SPELLED: dict[str, Any] = {
    "milliseconds": pa.array(np.arange(500) * 10_000_050, pa.timestamp("ms")),
    "microseconds": pa.array(np.arange(500) * 86_400_000_000, pa.timestamp("us")),
    "days": pa.array(np.arange(500, dtype="int32"), pa.date32()),
    "truth": pa.array(np.arange(500) % 3 == 0),
    "doubles": pa.array([float("nan") if number % 3 == 0 else number / 7 for number in range(500)]),
    "floats": pa.array([float("nan") if number % 3 == 0 else number / 7 for number in range(500)], pa.float32()),
    "texts": pa.array(["" if number % 3 == 0 else f" Text {number % 50}" for number in range(500)]),
    "bytes": pa.array([bytes([255, number % 50]) for number in range(500)], pa.large_binary()),
}
"""Values that formats write in different ways."""


@pytest.mark.parametrize("kind", SPELLED)
def test_sorted_copies_are_known_however_a_program_writes_their_values(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    table = pa.table({name: rng.choice(list("abcdef"), 500) for name in ("sex", "race", "town")} | {"v": SPELLED[kind]})
    masked = workflow.mask(workflow.read(table), {"method": "swap", "swap": ["race"], "rate": 0.3}, key=KEY)
    known = MemoryRegister()
    register_of.enter(masked, known)
    frame = pl.from_arrow(masked.data.table).sample(fraction=1.0, shuffle=True, seed=3)
    frame.write_parquet(tmp_path / "copy.parquet")
    assert [step.method for step in find_past(workflow.read(tmp_path / "copy.parquet"), known)] == ["swap"]
    if kind == "bytes":
        return  # no text file holds them
    frame.write_csv(tmp_path / "polars.csv")
    frame.to_pandas().to_csv(tmp_path / "pandas.csv", index=False)
    for name in ("polars.csv", "pandas.csv"):
        assert [step.method for step in find_past(workflow.read(tmp_path / name), known)] == ["swap"], name
    other = frame.with_columns(pl.col("race").shuffle(seed=9))
    assert find_past(workflow.read(other), known) == ()


def test_the_record_of_a_masking_has_the_names_of_the_original(original: Path) -> None:
    """A release looks up the names in the record; they are those that it would find by the content."""
    once = masked_file(original, "swap", "once.csv", audit="a")
    twice = masked_file(once, "noise", "twice.csv", audit="b")
    before = recall(once, twice, audit=original.parent / "b").original
    register = FileRegister(configured_ledger())
    assert before.named is not None
    assert list(before.named.names) == list_names(replace(before, named=None), register)
    assert find_past(replace(before, past=()), register) == find_past(replace(before, past=(), named=None), register)
    assert [step.method for step in find_past(replace(before, past=()), register)] == ["swap"]
    other = before.with_columns({"age": before.table["income"]}, {})
    assert other.named is None


def test_names_of_another_register_are_not_looked_up(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = masked_file(original, "swap", "once.csv", audit="a")
    twice = masked_file(once, "noise", "twice.csv", audit="b")
    before = recall(once, twice, audit=original.parent / "b").original
    monkeypatch.setenv("SAFESWAP_LEDGER", str(tmp_path / "other" / "ledger.db"))
    other = FileRegister(configured_ledger())
    assert list_names(before, other) == list_names(replace(before, named=None), FileRegister(configured_ledger()))
    assert before.named is not None
    assert not set(before.named.names) & set(list_names(before, other))


@pytest.mark.parametrize("kind", ["numbers", "levels", "missing", "texts", "floats"])
@pytest.mark.parametrize("are_aligned", [True, False])
def test_a_column_in_pieces_has_the_name_of_the_whole_column(
    monkeypatch: pytest.MonkeyPatch, kind: str, *, are_aligned: bool
) -> None:
    """Before and after are named together; where few values of a piece changed, only these are hashed again."""
    monkeypatch.setattr(register_of._WordsDigest, "_places", register_of._WordsDigest._places[:64])
    monkeypatch.setattr(register_of, "_MIXED_AT_ONCE", 64)
    known, random = MemoryRegister(), np.random.default_rng(len(kind))
    levels = pa.array([f"2020-01-01 00:00:{i % 60:02d}.{i}" for i in range(300)])
    make: dict[str, Callable[[Any], pa.Array]] = {
        "numbers": lambda codes: pa.array(codes * 10**12),
        "levels": lambda codes: pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), levels),
        "missing": lambda codes: pa.array([each or None for each in codes.tolist()]),
        "texts": lambda codes: pa.array([f" W{each} " for each in codes.tolist()]),
        "floats": lambda codes: pa.array(codes / 7),
    }
    for share in (0.0, 0.01, 0.1, 0.7, 1.0):
        old = random.integers(0, int(random.choice([2, 300])), 900)
        new = np.where(random.random(900) < share, random.integers(0, 300, 900), old)
        columns = make[kind](old), make[kind](new)
        first = np.sort(random.integers(0, 900, 7))
        second = first if are_aligned else np.sort(random.integers(0, 900, 5))
        pieces = [
            [pa.chunked_array([column.slice(low, high - low)]) for low, high in pairwise([0, *cuts.tolist(), 900])]
            for column, cuts in zip(columns, (first, second), strict=True)
        ]
        found = register_of._name_sides(ChangedColumn("x", *map(iter, pieces)), known)
        words = [register_of._hash_column(pa.chunked_array([column]), known) for column in columns]
        assert found == tuple(register_of._name_column(each, known) for each in words)
