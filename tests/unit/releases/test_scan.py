"""Bundles with something in them that should not be there, each with a manifest that fits: only a look can tell."""

import json
import random
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
from pyarrow import parquet
from tests.hand_made import release_of

from safeswap.errors import UnsafeRelease
from safeswap.files.formats import sum_file
from safeswap.model.release import PublicFacts, Release
from safeswap.model.schema import Attribute, Schema
from safeswap.releases import scan_data
from safeswap.releases.bundle import write_bundle
from safeswap.releases.manifest import MANIFEST, Manifest, read_manifest
from safeswap.releases.public_data import _remove_time, write_data
from safeswap.releases.scan import scan_bundle, verify_bundle
from safeswap.releases.scan_data import _formula_cells
from safeswap.reports.public import dictionary_csv, dictionary_json


@pytest.fixture(autouse=True, params=[False, True], ids=["parsed", "matched"])
def matched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the lines of a CSV file be matched with the released records first, as in large files, or not."""
    monkeypatch.setattr(scan_data, "is_worth_compiling", lambda _: request.param)


@pytest.fixture
def release():
    return release_of()


def written(release, folder: Path, data_format: str) -> Path:
    return write_bundle(release, folder / "public", data_format=data_format).directory


def resum(directory: Path) -> None:
    """Make the manifest fit whatever the files are now, as an attacker or a faulty writer would."""
    manifest = read_manifest(directory)
    sums = {name: sum_file(directory / name) for name in manifest.files}
    changed = Manifest(data_format=manifest.data_format, facts=manifest.facts, files=sums)
    (directory / MANIFEST).write_bytes(changed.to_bytes())


def inside(directory: Path, release) -> set[str]:
    resum(directory)
    return {remark.code for remark in scan_bundle(directory, release) if remark.refuses}


def outside(directory: Path) -> str:
    resum(directory)
    try:
        verify_bundle(directory)
    except UnsafeRelease as error:
        return error.code
    return ""


def rewrite_parquet(directory: Path, change, **options) -> None:
    path = directory / "data.parquet"
    parquet.write_table(change(parquet.read_table(path)), path, **{"store_schema": False, **options})


def test_an_honest_bundle_passes_both_looks(release, tmp_path):
    for data_format in ("csv", "parquet", "dta", "sav"):
        directory = written(release, _made(tmp_path / data_format), data_format)
        assert inside(directory, release) == set()
        assert outside(directory) == ""


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("notes", [None, {b"pandas": b"{}"}, {b"org.apache.spark.version": b"4"}])
def test_notes_of_engines_are_found(release, tmp_path, notes):
    directory = written(release, tmp_path, "parquet")
    rewrite_parquet(directory, lambda table: table.replace_schema_metadata(notes), store_schema=True)
    assert "engine-metadata" in inside(directory, release)
    assert outside(directory) == "engine-metadata"


def test_unused_categories_in_dictionary_pages_are_found(release, tmp_path):
    directory = written(release, tmp_path, "parquet")

    def with_unused(table):
        encoded = table["Race"].combine_chunks().dictionary_encode()
        levels = pa.concat_arrays([encoded.dictionary, pa.array(["a race nobody has"])])
        column = pa.DictionaryArray.from_arrays(encoded.indices, levels)
        return table.set_column(table.column_names.index("Race"), "Race", column)

    rewrite_parquet(directory, with_unused)
    assert b"a race nobody has" in (directory / "data.parquet").read_bytes()
    assert "unused-category" in inside(directory, release)
    assert outside(directory) == "unused-category"


def test_bytes_that_belong_to_no_column_are_found(release, tmp_path):
    directory = written(release, tmp_path, "parquet")
    path = directory / "data.parquet"
    path.write_bytes(_with_gap(path.read_bytes()))
    assert parquet.read_table(path).num_rows == 400  # readers do not mind
    assert "unaccounted-bytes" in inside(directory, release)
    assert outside(directory) == "unaccounted-bytes"


def _with_gap(data: bytes) -> bytes:
    footer = int.from_bytes(data[-8:-4], "little") + 8
    return data[:-footer] + b"what was dropped" + data[-footer:]


def test_a_value_that_was_not_released_is_found(release, tmp_path):
    directory = written(release, tmp_path, "csv")
    path = directory / "data.csv"
    text = path.read_text()
    path.write_text(text.replace("town 3", "town X", 1))
    assert "foreign-value" in inside(directory, release)
    path.write_text(text + "401,1,white,1,<25,town 1,3.5\n")
    assert "record-count" in inside(directory, release)
    path.write_text(text[: text.rindex("\n", 0, -1) + 1])
    assert "record-count" in inside(directory, release)
    assert outside(directory) == "record-count"
    path.write_text(text)
    assert inside(directory, release) == set()


@pytest.mark.parametrize(("old", "new"), [(",-0.0\n", ",0.0\n"), (",NaN\n", ",\n"), ("town 3,", '"",'), (",,", ',"",')])
def test_small_changes_of_kind_are_found(release, tmp_path, old, new):
    directory = written(release, tmp_path, "csv")
    path = directory / "data.csv"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert "foreign-value" in inside(directory, release)


def test_a_column_more_is_found(release, tmp_path):
    directory = written(release, tmp_path, "parquet")
    rewrite_parquet(directory, lambda table: table.append_column("__index_level_0__", pa.array(range(400))))
    assert inside(directory, release) == {"index-column", "foreign-column"}
    assert outside(directory) == "index-column"


def test_bounds_of_values_that_are_not_there_are_found(release, tmp_path, monkeypatch):
    """A writer that kept the bounds of the file before its rows were dropped."""
    from safeswap.releases import scan_data

    directory = written(release, tmp_path, "parquet")
    real = scan_data._are_bounds

    class Foreign:
        min, max, has_min_max = "aaa", "zzz", True

    monkeypatch.setattr(
        scan_data, "_are_bounds", lambda b, c: real(Foreign, c) if isinstance(b.min, str) else real(b, c)
    )
    assert "foreign-bounds" in inside(directory, release)


def test_a_dictionary_that_says_more_than_the_data_is_found(release, tmp_path):
    directory = written(release, tmp_path, "csv")
    dictionary = json.loads((directory / "dictionary.json").read_bytes())
    dictionary["columns"][2]["values"].append({"value": "a race nobody has"})
    (directory / "dictionary.json").write_bytes(dictionary_json(dictionary))
    (directory / "dictionary.csv").write_bytes(dictionary_csv(dictionary))
    assert inside(directory, release) == {"unused-category"}
    assert outside(directory) == "unused-category"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda d: d.update(records=399), "record-count"),
        (lambda d: d["columns"][5].update(has_missing=False), "missing-values"),
        (lambda d: d["columns"][2].update(missing_codes=["9"]), "unused-category"),
        (lambda d: d.update(key_id="0123"), "bundle-changed"),
        (lambda d: d["columns"][0].update(pairs=[1, 2]), "bundle-changed"),
        (lambda d: d["columns"].pop(), "foreign-column"),
    ],
)
def test_a_dictionary_that_does_not_fit_is_found(release, tmp_path, change, code):
    directory = written(release, tmp_path, "csv")
    dictionary = json.loads((directory / "dictionary.json").read_bytes())
    change(dictionary)
    (directory / "dictionary.json").write_bytes(dictionary_json(dictionary))
    (directory / "dictionary.csv").write_bytes(dictionary_csv(dictionary))
    assert outside(directory) == code


def test_a_table_of_the_dictionary_that_differs_from_it_is_found(release, tmp_path):
    directory = written(release, tmp_path, "csv")
    with (directory / "dictionary.csv").open("a") as file:
        file.write("pairs,12,17\n")
    assert inside(directory, release) == {"foreign-text"}


@pytest.mark.parametrize(
    ("insert", "code"),
    [
        ("<script>1</script>", "active-report"),
        ("<img src=x>", "active-report"),
        ('<p onclick="x()">', "active-report"),
        ('<div style="background:url(x)">', "active-report"),
        ('<table><tr><td class="count">2</td></tr></table>', "small-count"),
    ],
)
def test_a_report_that_runs_loads_or_counts_too_few_is_found(release, tmp_path, insert, code):
    directory = written(release, tmp_path, "csv")
    path = directory / "report.html"
    path.write_text(path.read_text().replace("</body>", insert + "</body>"))
    assert inside(directory, release) == {code}
    assert outside(directory) == code


def test_facts_that_are_not_public_are_found(release, tmp_path):
    directory = written(release, tmp_path, "csv")
    manifest = read_manifest(directory)
    told = Manifest(data_format="csv", facts={**manifest.facts, "key_id": "0123"}, files=manifest.files)
    (directory / MANIFEST).write_bytes(told.to_bytes())
    assert outside(directory) == "foreign-fact"


@pytest.mark.parametrize("data_format", ["dta", "sav"])
def test_labels_that_were_not_released_are_found(release, tmp_path, data_format):
    directory = written(release, tmp_path, data_format)
    path = directory / f"data.{data_format}"
    reader, writer = {
        "dta": (pyreadstat.read_dta, pyreadstat.write_dta),
        "sav": (pyreadstat.read_sav, pyreadstat.write_sav),
    }[data_format]
    frame, _ = reader(str(path))
    frame = frame.astype({"id": "int32", "household": "int32", "Sex": "int32"})
    told = {"Sex": {1: "female", 2: "male", 9: "refused, see file 17"}}
    writer(pd.DataFrame(frame), str(path), variable_value_labels=told, column_labels={"Race": "Race as stated"})
    _remove_time(path, data_format)
    assert "foreign-text" in inside(directory, release)
    assert outside(directory) == "foreign-text"


def test_remarks_name_no_value(release, tmp_path):
    directory = written(release, tmp_path, "csv")
    path = directory / "data.csv"
    path.write_text(path.read_text().replace("town 3", "secret-place", 1).replace("white", "=secret()", 1))
    resum(directory)
    assert "secret" not in " ".join(remark.message for remark in scan_bundle(directory, release))


CELLS = [
    "",
    "-",
    "=1+1",
    "-5",
    "-5.2e-3",
    "+1,000%",
    "@SUM(A1)",
    "a=b",
    "\tx",
    "＝1",
    "é",
    "-٣",
    "7",
    None,
    "\r\n",
    "ﾀ",
]


def is_run_by_spreadsheet(text: str | None) -> bool:
    if text is None or len(text) < 2 or text[0] not in "=+-@\t\r\n＝＋－＠":
        return False
    digits = text.lstrip("+-").rstrip("%").replace(",", "").replace(".", "").replace("e-", "").replace("e", "")
    return not digits.isdecimal()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_formulas_are_counted_in_texts_of_any_type(kind: pa.DataType) -> None:
    rng = random.Random(7)
    for _ in range(50):
        cells = rng.choices(CELLS, k=rng.randrange(40))
        column = pa.chunked_array([pa.array(["=hidden", *cells], type=kind)[1:], pa.array(cells, type=kind)])
        assert _formula_cells(column) == 2 * sum(map(is_run_by_spreadsheet, cells))


@pytest.mark.parametrize("change", [(b"n07777", b"n07778"), (b"n00000\n", b"\n")])
def test_a_changed_value_is_found_among_very_many(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    texts = pa.array([f"n{number:05d}" for number in range(12_000)])
    column = pa.DictionaryArray.from_arrays(pa.array(range(12_000), type=pa.int16()), texts)
    table = pa.table({"k": pa.array(range(12_000)), "note": column})
    schema = Schema(attributes=(Attribute(name="k", kind="numeric"), Attribute(name="note")))
    release = Release(table=table, schema=schema, facts=PublicFacts(method="none", records=len(table)))
    directory = written(release, tmp_path, "csv")
    assert inside(directory, release) == set()
    path = directory / "data.csv"
    path.write_bytes(path.read_bytes().replace(*change))
    assert "foreign-value" in inside(directory, release)


@pytest.mark.parametrize("seed", range(30))
def test_lines_hold_the_records_until_a_byte_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(scan_data, "is_worth_compiling", lambda _: True)
    monkeypatch.setattr(scan_data, "_AT_ONCE", rng.choice([100, 500, 1 << 22]))
    number = rng.randrange(1, 80)
    texts = [rng.choice(["a", "é", None, "long text " * 3]) for _ in range(number)]
    columns = {
        "n": pa.array([rng.choice([None, rng.randrange(-(10**6), 10**6)]) for _ in range(number)], pa.int32()),
        "t": pa.chunked_array([texts[: number // 2], texts[number // 2 :]], pa.string()),
        "c": pa.array(texts[::-1]).dictionary_encode(),
    }
    table = pa.table(columns)
    schema = Schema(attributes=tuple(Attribute(name=name) for name in columns))
    release = Release(table=table, schema=schema, facts=PublicFacts(method="none", records=number))
    path = tmp_path / "data.csv"
    write_data(release, path, "csv")
    assert scan_data.holds_records(path, table)
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    for _ in range(20):
        at, byte = rng.randrange(first, len(content)), rng.choice(b',\n"\r07a')
        changed = rng.choice([content[:at] + bytes([byte]) + content[at + 1 :], content[:at] + content[at + 1 :]])
        path.write_bytes(changed)
        assert scan_data.holds_records(path, table) == (changed == content)
    path.write_bytes(content + content[first:][: content[first:].index(b"\n") + 1])
    assert not scan_data.holds_records(path, table)


@pytest.mark.parametrize("text", ["", "a,b", 'a"b', "a\nb", "a\rb"])
def test_texts_that_need_quotes_are_left_to_the_parser(tmp_path: Path, text: str) -> None:
    table = pa.table({"t": ["x", text], "u": ["y", "z"]})
    path = tmp_path / "data.csv"
    path.write_bytes(f"t,u\nx,y\n{text},z\n".encode())  # as a writer without quotes would
    assert not scan_data.holds_records(path, table)
