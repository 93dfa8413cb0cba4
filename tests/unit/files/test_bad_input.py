"""Every bad input is refused with a code, a position and a hint, and without a value of a record.

Every case below plants the word CANARY in its records; it must not turn up in what the error says.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyreadstat
import pytest
from pyarrow import feather, parquet

from safeswap.errors import InputError, SafeswapError, SpecError
from safeswap.files.formats import Limits
from safeswap.files.read import read

CANARY = "CANARY4711"
ROW = f"1,{CANARY},x\n".encode()
HEAD = b"id,Name,Sex\n"

Make = Callable[[Path], Any]


def csv(data: bytes, name: str = "file.csv") -> Make:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return make


def cut(name: str, write: Callable[[Path], object], *, keep: float) -> Make:
    def make(folder: Path) -> Path:
        path = folder / name
        write(path)
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * keep)])
        return path

    return make


def damaged(name: str, write: Callable[[Path], object], *, at: float) -> Make:
    def make(folder: Path) -> Path:
        path = folder / name
        write(path)
        data = bytearray(path.read_bytes())
        middle = int(len(data) * at)
        data[middle : middle + 40] = b"\xff" * 40
        path.write_bytes(bytes(data))
        return path

    return make


TABLE = pa.table({"id": [str(i) for i in range(500)], "Name": [CANARY] * 500, "x": [float(i) for i in range(500)]})


def write_parquet(path: Path) -> None:
    parquet.write_table(TABLE, path)


def write_feather(path: Path) -> None:
    feather.write_feather(TABLE, path)


def write_dta(path: Path) -> None:
    pyreadstat.write_dta(TABLE.to_pandas(), path)


def write_sav(path: Path) -> None:
    pyreadstat.write_sav(TABLE.to_pandas(), path)


def write_xpt(path: Path) -> None:
    pyreadstat.write_xport(TABLE.to_pandas(), path)


def bomb(columns: int, records: int) -> Make:
    def make(folder: Path) -> Path:
        zeros = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), pa.array([CANARY]))
        table = pa.table({f"c{i}": zeros for i in range(columns)})
        with parquet.ParquetWriter(folder / "bomb.parquet", table.schema) as writer:
            for _ in range(records // 1000):
                writer.write_table(table)
        return folder / "bomb.parquet"

    return make


def directory(folder: Path) -> Path:
    (folder / "data.parquet").mkdir()
    return folder / "data.parquet"


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.csv")
    return folder / "pipe.csv"


def repeated_columns(folder: Path) -> Path:
    parquet.write_table(pa.table([[CANARY], ["y"]], names=["Name", "Name"]), folder / "x.parquet")
    return folder / "x.parquet"


def nested(folder: Path) -> Path:
    parquet.write_table(pa.table({"Name": [[CANARY]]}), folder / "x.parquet")
    return folder / "x.parquet"


def not_utf8(folder: Path) -> Path:
    bad = pa.array([b"\xff" + CANARY.encode()]).view(pa.string())
    parquet.write_table(pa.table({"Name": bad}), folder / "x.parquet")
    return folder / "x.parquet"


def without_records(folder: Path) -> Path:
    parquet.write_table(pa.table({"Name": pa.array([], pa.string())}), folder / "x.parquet")
    return folder / "x.parquet"


ID = {"identifier": "id"}
CASES: list[tuple[str, Make, dict[str, Any], str, dict[str, Any]]] = [
    ("missing file", lambda folder: folder / "none.csv", {}, "missing-file", {}),
    ("missing folder", lambda folder: folder / "no" / "none.csv", {}, "missing-file", {}),
    ("a NUL in the path", lambda folder: str(folder) + "\0", {}, "unreadable-file", {}),
    ("directory", directory, {}, "is-directory", {}),
    ("pipe", pipe, {}, "not-a-file", {}),
    ("empty file", csv(b""), {}, "empty-file", {}),
    ("only a byte order mark", csv(b"\xef\xbb\xbf"), {}, "no-header", {}),
    ("only line ends", csv(b"\n\r\n\n"), {}, "no-header", {}),
    ("header only", csv(HEAD), {}, "no-records", {}),
    ("header only, blank lines", csv(HEAD + b"\n\r\n"), {}, "no-records", {}),
    ("header only, no line end", csv(HEAD.strip()), {}, "no-records", {}),
    ("row too long", csv(HEAD + ROW + f"2,{CANARY},x,y\n".encode() + ROW), {}, "ragged-row", {"line": 3, "found": 4}),
    ("row too short", csv(HEAD + ROW + ROW + f"2,{CANARY}\n".encode()), {}, "ragged-row", {"line": 4, "found": 2}),
    ("row too long after a value of two lines",
     csv(HEAD + f'1,"{CANARY}\n",x\n'.encode() + ROW + b"1,2,3,4\n"), {}, "ragged-row", {"line": 5, "expected": 3}),
    ("unclosed quote", csv(HEAD + ROW + f'2,"{CANARY},x\n'.encode() + ROW), {}, "bad-quoting", {"line": 3}),
    ("text behind a closing quote", csv(HEAD + ROW + f'2,"{CANARY}"x,y\n'.encode()), {}, "bad-quoting", {"line": 3}),
    ("latin-1 without saying so", csv(HEAD + ROW + f"2,{CANARY} ".encode() + b"\xe9,x\n"), {}, "wrong-encoding",
     {"line": 3, "byte": 40}),
    ("utf-8 cut in the middle of a letter", csv(HEAD + ROW + "2,é".encode()[:-1]), {}, "wrong-encoding", {"line": 3}),
    ("stated encoding does not fit", csv(HEAD + ROW + b"2,\x81,x\n"), {"encoding": "cp1252"}, "wrong-encoding",
     {"line": 3, "byte": 29}),
    ("stated utf-16 is none", csv(HEAD + ROW), {"encoding": "utf-16-le"}, "wrong-encoding", {}),
    ("stated encoding contradicts the mark", csv(b"\xef\xbb\xbf" + HEAD + ROW), {"encoding": "cp1252"},
     "wrong-encoding", {}),
    ("NUL byte", csv(HEAD + ROW + f"2,{CANARY}\0,x\n".encode()), {}, "nul-byte", {"line": 3, "byte": 39}),
    ("utf-16 without a mark", csv((HEAD + ROW).decode().encode("utf-16-le")), {}, "nul-byte", {"line": 1}),
    ("duplicate identifiers", csv(HEAD + ROW + f"2,{CANARY},x\n".encode() + ROW), ID, "duplicate-identifier",
     {"lines": [2, 4], "records": [1, 3], "column": "id"}),
    ("duplicate identifiers that are text", csv(HEAD + f"{CANARY},a,x\n".encode() * 2), ID, "duplicate-identifier",
     {"lines": [2, 3]}),
    ("missing identifier", csv(HEAD + ROW + f",{CANARY},x\n".encode()), ID, "missing-identifier", {"lines": [3]}),
    ("empty identifier", csv(HEAD + ROW + f'"",{CANARY},x\n'.encode()), ID, "missing-identifier", {"lines": [3]}),
    ("duplicate column names", csv(b"id,CANARY,CANARY\n" + ROW), {}, "duplicate-column", {"columns": [2, 3]}),
    ("unnamed column", csv(b",Name,Sex\n" + ROW), {}, "unnamed-column", {"column": 1}),
    ("100,000 columns", csv(b",".join(b"c%d" % i for i in range(100_000)) + b"\n" + b"," * 99_999 + b"\n"), {},
     "too-many-columns", {"found": 100_000, "limit": 20_000}),
    ("too many records", csv(HEAD + ROW * 20), {"limits": Limits(max_records=10)}, "too-many-records", {"found": 20}),
    ("too large", csv(HEAD + ROW * 20), {"limits": Limits(max_decoded_bytes=100)}, "too-large", {}),
    ("a gzip bomb", csv(gzip.compress(HEAD + ROW * 100_000), "x.csv.gz"), {"limits": Limits(max_decoded_bytes=10**5)},
     "too-large", {}),
    ("gzip cut short", csv(gzip.compress(HEAD + ROW * 999)[:-20], "x.csv.gz"), {}, "corrupt-file", {}),
    ("gzip damaged", csv(gzip.compress(HEAD + ROW)[:-6] + b"\0" * 6, "x.csv.gz"), {}, "corrupt-file", {}),
    ("called gzip and none", csv(b"\x1f\x8b" + HEAD + ROW, "x.csv.gz"), {}, "corrupt-file", {}),
    ("a zip archive", csv(b"PK\x03\x04" + ROW, "x.csv"), {}, "unknown-format", {}),
    ("a settings file", csv(b"[data]\nfile = 1\n", "x.toml"), {}, "unknown-format", {}),
    ("Parquet cut short", cut("x.parquet", write_parquet, keep=0.7), {}, "corrupt-file", {"format": "Parquet"}),
    ("Parquet damaged", damaged("x.parquet", write_parquet, at=0.2), {}, "corrupt-file", {}),
    ("called Parquet and none", csv(HEAD + ROW, "x.parquet"), {}, "corrupt-file", {}),
    ("Feather cut short", cut("x.feather", write_feather, keep=0.7), {}, "corrupt-file", {"format": "Arrow IPC"}),
    ("called Arrow stream and none", csv(HEAD + ROW, "x.arrows"), {}, "corrupt-file", {}),
    ("Stata cut short", cut("x.dta", write_dta, keep=0.5), {}, "corrupt-file", {"format": "Stata"}),
    ("called Stata and none", csv(HEAD + ROW, "x.dta"), {}, "corrupt-file", {}),
    ("SPSS cut short", cut("x.sav", write_sav, keep=0.5), {}, "corrupt-file", {"format": "SPSS"}),
    ("SAS transport cut short", cut("x.xpt", write_xpt, keep=0.1), {}, "corrupt-file", {}),
    ("called SAS and none", csv(HEAD + ROW, "x.sas7bdat"), {}, "corrupt-file", {}),
    ("SPSS with too many records", cut("x.sav", write_sav, keep=1), {"limits": Limits(max_records=10)},
     "too-many-records", {"found": 500}),
    ("a Parquet bomb of records", bomb(1, 100_000), {"limits": Limits(max_records=50_000)}, "too-many-records",
     {"found": 100_000}),
    ("a Parquet bomb of columns", bomb(300, 1000), {"limits": Limits(max_columns=200)}, "too-many-columns",
     {"found": 300}),
    ("a Parquet bomb of bytes", bomb(10, 100_000), {"limits": Limits(max_decoded_bytes=3_000_000)}, "too-large", {}),
    ("duplicate columns in Parquet", repeated_columns, {}, "duplicate-column", {"columns": [1, 2]}),
    ("lists in Parquet", nested, {}, "nested-column", {"column": "Name"}),
    ("Parquet text that is not UTF-8", not_utf8, {}, "wrong-encoding", {"column": "Name"}),
    ("Parquet without records", without_records, {}, "no-records", {}),
    ("pandas, duplicate columns", lambda _: pd.DataFrame([[CANARY, 1]], columns=["a", "a"]), {}, "duplicate-column",
     {}),
    ("pandas, mixed types", lambda _: pd.DataFrame({"a": [CANARY, 1]}, dtype=object), {}, "mixed-types",
     {"column": "a"}),
    ("pandas, no columns", lambda _: pd.DataFrame(index=[CANARY]), {}, "no-columns", {}),
    ("pandas, names of two levels", lambda _: pd.DataFrame([[CANARY]], columns=pd.MultiIndex.from_tuples([("a", "b")])),
     {}, "nested-names", {}),
    ("Polars, objects", lambda _: pl.DataFrame({"a": [object()]}), {}, "mixed-types", {"column": "a"}),
    ("Polars, lists", lambda _: pl.DataFrame({"a": [[CANARY]]}), {}, "nested-column", {"column": "a"}),
    ("Polars, no records", lambda _: pl.DataFrame({"a": []}), {}, "no-records", {}),
    ("Polars, lazy", lambda _: pl.LazyFrame({"a": [CANARY]}), {}, "unknown-source", {}),
    ("a number", lambda _: 4711, {}, "unknown-source", {"type": "int"}),
    ("pandas, duplicate identifiers", lambda _: pd.DataFrame({"id": [CANARY, "b", CANARY]}), ID, "duplicate-identifier",
     {"records": [1, 3]}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "options", "code", "fields"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_bad_input_is_refused(
    tmp_path: Path, make: Make, options: dict[str, Any], code: str, fields: dict[str, Any]
) -> None:
    source = make(tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(InputError) as caught:
        read(source, **options)
    error = caught.value
    assert error.code == code
    assert {name: error.fields.get(name) for name in fields} == fields
    assert error.hint
    if isinstance(source, Path):
        assert error.fields["file"] == str(source)
    assert "CANARY" not in repr(error.as_dict())
    assert error.__cause__ is None  # no foreign error underneath that may quote the data
    assert error.__suppress_context__ or error.__context__ is None
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"identifier": "nobody"}, "unknown-attribute"),
        ({"kinds": {"nobody": "nominal"}}, "unknown-attribute"),
        ({"kinds": {"Sex": "CANARY"}}, "unknown-kind"),
        ({"delimiter": "::"}, "bad-delimiter"),
        ({"delimiter": "§"}, "bad-delimiter"),
        ({"delimiter": "\n"}, "bad-delimiter"),
        ({"quote": ",", "delimiter": ","}, "bad-quote"),
        ({"decimal": ";"}, "bad-decimal"),
        ({"decimal": ""}, "bad-decimal"),
        ({"quote": "ab"}, "bad-quote"),
        ({"encoding": "klingon"}, "unknown-encoding"),
        ({"encoding": "hex"}, "unknown-encoding"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(csv(HEAD + ROW)(tmp_path), **options)
    assert caught.value.code == code
    assert caught.value.hint
    assert "CANARY" not in repr(caught.value.as_dict())


@pytest.mark.parametrize("options", [{"delimiter": ","}, {"quote": '"'}, {"encoding": "utf-8"}, {"decimal": ","}])
def test_options_of_text_files_make_no_sense_for_parquet(tmp_path: Path, options: dict[str, Any]) -> None:
    write_parquet(tmp_path / "x.parquet")
    with pytest.raises(SpecError) as caught:
        read(tmp_path / "x.parquet", **options)
    assert caught.value.code == "bad-option"


def test_a_bomb_is_refused_before_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bomb(10, 100_000)(tmp_path)

    def decode(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(parquet.ParquetFile, "read", decode)
    with pytest.raises(InputError):
        read(path, limits=Limits(max_decoded_bytes=3_000_000))
    with pytest.raises(AssertionError):
        read(path)


@pytest.mark.parametrize("suffix", [".dta", ".sav", ".parquet", ".feather", ".xpt"])
@pytest.mark.parametrize("at", [i / 20 for i in range(20)])
def test_a_damaged_file_is_read_or_refused_and_nothing_else(tmp_path: Path, suffix: str, at: float) -> None:
    writers = {".dta": write_dta, ".sav": write_sav, ".parquet": write_parquet, ".feather": write_feather}
    path = damaged(f"x{suffix}", writers.get(suffix, write_xpt), at=at)(tmp_path)
    try:
        read(path)
    except SafeswapError as error:
        assert "CANARY" not in repr(error.as_dict())  # noqa: PT017  (either outcome is right)
