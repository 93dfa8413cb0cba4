"""One row in the table of formats is all that reading, writing and refusing need."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from safeswap.errors import OutputError, SpecError
from safeswap.files import formats
from safeswap.files.formats import FORMATS, Format, Loaded, TextOptions
from safeswap.files.read import read
from safeswap.files.sources import Limits, format_of
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
