import ast
import errno
import html
import importlib.util
import json
import resource
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.hand_made import masked_survey, release_of, survey

from safeswap.errors import OutputError, SpecError, UnsafeRelease
from safeswap.files.read import read
from safeswap.model.columns import aligned_columns, flag_changes
from safeswap.model.microdata import Microdata
from safeswap.model.release import PublicFacts, Release
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.releases import bundle as bundle_module
from safeswap.releases import public_data
from safeswap.releases.bundle import fill_bundle, write_bundle
from safeswap.releases.manifest import DATA_FORMATS

FORMATS = pytest.mark.parametrize("data_format", DATA_FORMATS)


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def simple(columns: dict, **labels: dict[str, str]) -> Release:
    table = pa.table(columns)
    attributes = tuple(Attribute(name=name, labels=labels.get(name, {})) for name in columns)
    return Release(
        table=table, schema=Schema(attributes=attributes), facts=PublicFacts(method="none", records=len(table))
    )


@FORMATS
def test_a_bundle_is_the_allow_list_and_nothing_else(tmp_path, data_format):
    bundle = write_bundle(release_of(), tmp_path / "public", data_format=data_format)
    names = {path.name for path in bundle.directory.iterdir()}
    assert names == {f"data.{data_format}", "dictionary.json", "dictionary.csv", "report.html", "manifest.json"}
    assert {path.name for path in tmp_path.iterdir()} == {"public"}
    assert bundle.remarks == ()


@FORMATS
def test_the_same_records_give_the_same_bytes_in_whatever_order_they_come(tmp_path, data_format):
    one = bytes_of(write_bundle(release_of(), tmp_path / "one", data_format=data_format).directory)
    data = masked_survey().data
    other = Microdata(data.table.take(pa.array(np.random.default_rng(5).permutation(400))), data.schema)
    again = bytes_of(write_bundle(release_of(other), tmp_path / "two", data_format=data_format).directory)
    assert {name for name in one if one[name] != again[name]} == set()


def test_the_time_of_writing_is_not_in_the_files(tmp_path):
    stata = write_bundle(release_of(), tmp_path / "dta", data_format="dta").directory / "data.dta"
    spss = write_bundle(release_of(), tmp_path / "sav", data_format="sav").directory / "data.sav"
    assert b"<timestamp>\x1101 Jan 1960 00:00</timestamp>" in stata.read_bytes()
    assert spss.read_bytes()[92:109] == b"01 Jan 7000:00:00"


@pytest.mark.parametrize("data_format", ["csv", "parquet"])
def test_what_is_read_back_is_what_was_released(tmp_path, data_format):
    release = release_of()
    path = write_bundle(release, tmp_path / "public", data_format=data_format).directory / f"data.{data_format}"
    found = read(path).table
    assert found.column_names == release.table.column_names
    for name in ("Race", "Age", "Town"):
        assert not flag_changes(*aligned_columns(release.table[name], found[name])).any()
    incomes = [np.asarray(t["Income"].cast(pa.float64())) for t in (release.table, found)]
    assert np.array_equal(np.signbit(incomes[0]), np.signbit(incomes[1]))
    np.testing.assert_array_equal(*incomes)


@pytest.mark.parametrize("data_format", ["dta", "sav"])
def test_labels_travel_with_stata_and_spss(tmp_path, data_format):
    path = write_bundle(release_of(), tmp_path / "public", data_format=data_format).directory / f"data.{data_format}"
    found = read(path)
    assert found.schema["Sex"].labels == {"1": "female", "2": "male"}
    assert found.schema["Race"].label == "Race as stated"
    assert found.table["Race"].to_pylist() == release_of().table["Race"].to_pylist()


def test_every_type_of_column_passes_every_format(tmp_path):
    columns = {
        "flag": pa.array([True, False, None]),
        "day": pa.array([0, None, 20_000], pa.date32()),
        "moment": pa.array([0, None, 10**15], pa.timestamp("us", tz="UTC")),
        "clock": pa.array([0, None, 10**9], pa.time64("us")),
        "money": pa.array(["1.50", None, "-2.25"]).cast(pa.decimal128(12, 2)),
        "span": pa.array([1, None, 3], pa.duration("s")),
        "small": pa.array([0.1, None, -0.0], pa.float32()),
        "big": pa.array([2**40, None, -1]),
        "text": pa.array(['say "hi", you\nthere', None, "  spaces"]),
        "accents": pa.array(["é", "e\u0301", "日本"]),
    }
    for data_format in DATA_FORMATS:
        bundle = write_bundle(simple(columns), tmp_path / data_format, data_format=data_format)
        assert not [remark for remark in bundle.remarks if remark.refuses]


def test_text_that_looks_like_something_else_survives(tmp_path):
    texts = ["007", "1e5", "NA", "null", "", "-0", "true", None, " ", "#N/A", "0x1F", "1,5"]
    for data_format in ("csv", "parquet"):
        write_bundle(simple({"x": texts, "y": texts[::-1]}), tmp_path / data_format, data_format=data_format)
    release = simple({"alone": texts})
    assert write_bundle(release, tmp_path / "alone").remarks == ()


def test_parquet_holds_no_notes_of_any_engine(tmp_path):
    path = write_bundle(release_of(), tmp_path / "public", data_format="parquet").directory / "data.parquet"
    assert parquet.read_metadata(path).metadata is None
    assert not any(isinstance(f.type, pa.DictionaryType) for f in parquet.read_schema(path))


def test_the_dictionary_tells_what_the_data_tell(tmp_path):
    directory = write_bundle(release_of(), tmp_path / "public").directory
    dictionary = json.loads((directory / "dictionary.json").read_bytes())
    columns = {column["name"]: column for column in dictionary["columns"]}
    assert dictionary["records"] == 400
    assert [v["value"] for v in columns["Age"]["values"]] == ["<25", "25-55", ">55"]
    assert columns["Sex"]["values"] == [{"value": "1", "label": "female"}, {"value": "2", "label": "male"}]
    assert columns["Town"]["has_missing"]
    assert "values" not in columns["Income"]


def test_the_report_escapes_everything_and_counts_nothing_small(tmp_path):
    rare = ["<script>alert(1)</script>"] * 2 + ["common & fine"] * 48
    release = simple({"<b>x</b>": rare})
    report = (write_bundle(release, tmp_path / "public").directory / "report.html").read_text()
    assert "<script" not in report
    assert "<b>" not in report
    assert html.escape("<script>alert(1)</script>") in report
    assert "fewer than 3" in report
    assert ">2<" not in report
    assert ">48<" in report


def test_the_rate_is_told_only_when_it_is_stated(tmp_path):
    silent = write_bundle(release_of(), tmp_path / "silent").directory
    assert "rate" not in json.loads((silent / "manifest.json").read_bytes())["facts"]
    assert "took part" not in (silent / "report.html").read_text()
    release = release_of()
    told = PublicFacts(method="m", records=400, rate=0.05)
    stated = write_bundle(Release(table=release.table, schema=release.schema, facts=told), tmp_path / "told").directory
    assert json.loads((stated / "manifest.json").read_bytes())["facts"]["rate"] == 0.05
    assert "0.05" in (stated / "report.html").read_text()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("=cmd|' /C calc'!A0", "formula-name"),
        ("+x", "formula-name"),
        ("-x", "formula-name"),
        ("@x", "formula-name"),
        ("\tx", "formula-name"),
        ("a\u202eb", "invisible-name"),
        ("Unnamed: 0", "index-column"),
        ("__index_level_0__", "index-column"),
    ],
)
def test_dangerous_column_names_are_refused(tmp_path, name, code):
    with pytest.raises(UnsafeRelease) as caught:
        write_bundle(simple({name: ["a", "b"]}), tmp_path / "public")
    assert caught.value.code == code
    assert "leave the column out" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_cells_that_a_spreadsheet_would_run_are_counted(tmp_path):
    values = ["=1+1", "-5", "+3.5", "@SUM(A1)", "-5", "=1+1", "-", "plain", "-2e-3", "- dash"]
    bundle = write_bundle(simple({"x": values, "n": list(range(-5, 5))}, x={"=1+1": "=label()"}), tmp_path / "public")
    assert [(r.code, r.column, r.file) for r in bundle.remarks] == [
        ("formula-cells", "x", "data.csv"),
        ("formula-cells", "x", "dictionary.csv"),
    ]
    assert "4 cells" in bundle.remarks[0].message
    assert not any("1+1" in remark.message for remark in bundle.remarks)


def test_bytes_cannot_leave(tmp_path):
    with pytest.raises(UnsafeRelease) as caught:
        write_bundle(simple({"x": [b"\x00\x01"]}), tmp_path / "public", data_format="parquet")
    assert caught.value.code == "binary-column"


def test_an_existing_directory_is_kept_unless_forced(tmp_path):
    target = tmp_path / "public"
    write_bundle(release_of(), target)
    before = bytes_of(target)
    with pytest.raises(OutputError) as caught:
        write_bundle(release_of(identifiers="none"), target)
    assert caught.value.code == "exists"
    assert bytes_of(target) == before
    write_bundle(release_of(identifiers="none"), target, force=True)
    assert bytes_of(target) != before
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError):
        write_bundle(release_of(), tmp_path / "home", force=True)
    assert (tmp_path / "home" / "thesis.txt").exists()


def test_an_unknown_format_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(SpecError) as caught:
        write_bundle(release_of(), tmp_path / "public", data_format="xlsx")
    assert caught.value.code == "unknown-format"
    assert not list(tmp_path.iterdir())


STEPS = ["write_data", "data_dictionary", "dictionary_json", "dictionary_csv", "public_report", "sum_file", "Manifest"]


@pytest.mark.parametrize("step", [*STEPS, "scan_bundle"])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_at_any_step_leaves_nothing_behind(tmp_path, monkeypatch, step, stop):
    def interrupted(*arguments, **options):
        raise stop

    monkeypatch.setattr(bundle_module, step, interrupted)
    with pytest.raises(stop):
        write_bundle(release_of(), tmp_path / "public")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", range(4))
def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch, number):
    original, calls = Path.write_bytes, iter(range(10))

    def full(path, data):
        if next(calls) == number:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError) as caught:
        write_bundle(release_of(), tmp_path / "public")
    assert caught.value.code == "disk-full"
    assert not list(tmp_path.iterdir())


@FORMATS
def test_a_disk_that_fills_up_within_the_data_leaves_nothing_behind(tmp_path, data_format):
    release = release_of(survey(5_000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        with pytest.raises(OutputError) as caught:
            write_bundle(release, tmp_path / "public", data_format=data_format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.code == "disk-full"
    assert not list(tmp_path.iterdir())


def test_what_a_writer_adds_is_found_before_the_directory_gets_its_name(tmp_path, monkeypatch):
    honest = public_data._write_csv

    def treacherous(table, path):
        first = table.column("Town").to_pylist()
        first[0] = "a town that was not released"
        honest(table.set_column(table.column_names.index("Town"), "Town", pa.array(first)), path)

    monkeypatch.setattr(public_data, "_write_csv", treacherous)
    with pytest.raises(UnsafeRelease) as caught:
        write_bundle(release_of(), tmp_path / "public")
    assert caught.value.code == "foreign-value"
    assert "not released" not in str(caught.value.as_dict())
    assert not list(tmp_path.iterdir())


def test_nothing_that_the_bundle_writer_imports_knows_the_audit():
    def imports(name: str) -> set[str]:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        found = set()
        for node in ast.walk(ast.parse(Path(spec.origin).read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
        return {n for n in found if n.startswith("safeswap.") and _is_module(n)}

    reached, todo = set(), ["safeswap.releases.bundle"]
    while todo:
        name = todo.pop()
        reached.add(name)
        todo += sorted(imports(name) - reached)
    assert "safeswap.model.release" in reached
    assert not reached & {
        "safeswap.model.audit",
        "safeswap.model.masked",
        "safeswap.on_disk.audit_record",
        "safeswap.releases.publish",
    }


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_fill_bundle_gives_the_sum_of_the_manifest(tmp_path):
    import hashlib

    bundle = fill_bundle(release_of(), tmp_path, data_format="csv")
    assert bundle.manifest_sha256 == hashlib.sha256((tmp_path / "manifest.json").read_bytes()).hexdigest()
    assert bundle.as_dict()["remarks"] == []


def test_wide_levels_are_counted_and_not_listed(tmp_path):
    table = {"x": [f"level {i}" for i in range(10_001)]}
    schema = Schema(attributes=(Attribute(name="x", kind=Kind.NOMINAL),))
    release = release_of(Microdata(pa.table(table), schema))
    directory = write_bundle(release, tmp_path / "public").directory
    assert release.schema["x"].levels == ()
    assert len((directory / "report.html").read_bytes()) < 20_000


def test_the_report_says_that_weighted_counts_are_not_kept(tmp_path):
    schema = Schema(attributes=(Attribute(name="x"), Attribute(name="w", kind=Kind.WEIGHT)))
    facts = PublicFacts(method="m", records=2, kept=("The counts by x are exactly as before.",))
    release = Release(table=pa.table({"x": ["a", "b"], "w": [1.5, 2.5]}), schema=schema, facts=facts)
    assert "Weighted counts can differ" in (write_bundle(release, tmp_path / "w").directory / "report.html").read_text()
    assert "Weighted counts" not in (write_bundle(release_of(), tmp_path / "o").directory / "report.html").read_text()
