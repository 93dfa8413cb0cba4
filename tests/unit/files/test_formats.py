"""One row in the table of formats is all that reading, writing and refusing need."""

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from safeswap.errors import InputError, OutputError, SpecError
from safeswap.files import formats
from safeswap.files.formats import FORMATS, Format, Limits, Loaded, TextOptions, format_of
from safeswap.files.read import read
from safeswap.files.write import write


def _read_toy(path: Path, _: Format, __: TextOptions, ___: Limits) -> Loaded:
    name, *values = path.read_bytes()[4:].decode().split("|")
    return Loaded(table=pa.table({name: values}))


def _write_toy(data: pa.Table, path: Path, **_: Any) -> None:
    name = data.column_names[0]
    path.write_bytes(b"TOY\x01" + "|".join([name, *data[name].to_pylist()]).encode())


TOY = Format(name="Toy", suffixes=(".toy",), magic=(b"TOY\x01",), read=_read_toy, written=(".toy",), write=_write_toy)


def test_a_format_is_one_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(formats, "FORMATS", (*FORMATS, TOY))
    table = pa.table({"Sex": ["f", "m", "f"]})
    write(table, tmp_path / "a.toy")
    assert read(tmp_path / "a.toy").table.to_pydict() == table.to_pydict()
    (tmp_path / "a.toy").rename(tmp_path / "a.txt")
    assert format_of(tmp_path / "a.txt") is TOY
    with pytest.raises(SpecError, match="a Toy file has no delimiter to state"):
        read(tmp_path / "a.txt", delimiter=";")
    with pytest.raises(OutputError) as refused:
        write(table, tmp_path / "a.xls")
    assert refused.value.hint == "use one of .csv, .tsv, .parquet, .dta, .sav, .zsav, .toy"


def test_no_two_rows_claim_the_same_file() -> None:
    for claims in ([s for each in FORMATS for s in each.suffixes], [m for each in FORMATS for m in each.magic]):
        assert len(set(claims)) == len(claims)
    magic = [m for each in FORMATS for m in each.magic]
    assert not [(a, b) for a in magic for b in magic if a != b and a.startswith(b)]


@pytest.mark.parametrize("found", FORMATS, ids=lambda each: each.name)
def test_a_row_is_complete(found: Format) -> None:
    assert set(found.written) <= set(found.suffixes)
    assert bool(found.written) == (found.write is not None)
    assert not found.released or f".{found.released}" in found.written
    assert not found.package or found.options == ("encoding",)


@pytest.mark.parametrize(
    ("name", "content", "said", "hint"),
    [
        ("survey.RData", gzip.compress(b"RDX3\nX\n\x00\x00\x00\x03", mtime=0), "an R file", "write.csv"),
        ("survey.rds", gzip.compress(b"X\n\x00\x00\x00\x03\x00\x04", mtime=0), "an R file", "write.csv"),
        ("survey.rda", b"RDX2\nX\n\x00\x00\x00\x02", "an R file", "write.csv"),
        ("survey.docx", b"PK\x03\x04\x14\x00", "a text document", "as CSV"),
        ("survey.xls", b"\xd0\xcf\x11\xe0\xa1\xb1", "an old spreadsheet", "as CSV"),
        ("survey.csv", b"\x89PNG\r\n\x1a\n\x00", "a picture", "CSV or Parquet"),
        ("survey.csv", b"%PDF-1.7\n%\xe2\xe3", "a PDF document", "CSV or Parquet"),
    ],
)
def test_a_file_that_holds_no_table_is_called_what_it_is(tmp_path, name, content, said, hint):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        format_of(tmp_path / name)
    assert caught.value.code == "unknown-format"
    assert hint in caught.value.hint


def test_packed_text_and_a_damaged_archive_are_still_gzip(tmp_path):
    for content in (gzip.compress(b"age,sex\n1,2\n"), b"\x1f\x8b\x08\x00 damaged", gzip.compress(b"a" * 99)[:20]):
        (tmp_path / "survey.csv.gz").write_bytes(content)
        assert format_of(tmp_path / "survey.csv.gz").name == "gzip"
