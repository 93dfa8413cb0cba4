"""A file read by its differences from another has the values that the parser finds in it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from safeswap.errors import InputError
from safeswap.files import delimited
from safeswap.files.delimited import read_delimited
from safeswap.files.formats import Limits, reading_alike

HEADER = "a,b,c\n"


@pytest.fixture(autouse=True)
def compared_however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "is_worth_compiling", lambda _: True)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the files that were parsed as a whole."""
    files: list[Path] = []
    parse = delimited._parse

    def note(text: Any, *rest: Any) -> pa.Table:
        files.append(text.file)
        return parse(text, *rest)

    monkeypatch.setattr(delimited, "_parse", note)
    return files


def read(path: Path) -> pa.Table:
    return read_delimited(path, limits=Limits()).table


def read_both(folder: Path, one: str, other: str) -> tuple[pa.Table, pa.Table, Path]:
    paths = [folder / "one.csv", folder / "other.csv"]
    for path, text in zip(paths, (one, other), strict=True):
        path.write_text(text, encoding="utf-8", newline="")
    with reading_alike():
        return read(paths[0]), read(paths[1]), paths[1]


LINES = "".join(f"P{number},{number % 3},{number}.5\n" for number in range(40))


def test_only_columns_that_differ_are_new(tmp_path: Path, parsed: list[Path]) -> None:
    changed = LINES.replace("P7,1,", "P7,2,").replace("P9,0,", "P9,,").replace("P39,0,", "P39,new,")
    before, after, path = read_both(tmp_path, HEADER + LINES, HEADER + changed)
    assert path not in parsed
    for name in "ac":
        addresses = [[b.address for b in table[name].chunk(0).buffers() if b] for table in (before, after)]
        assert addresses[0] == addresses[1]
    assert after.to_pylist() == read(path).to_pylist()
    assert after["b"].combine_chunks().dictionary.equals(read(path)["b"].combine_chunks().dictionary)
    assert [after["b"][row].as_py() for row in (7, 9, 39)] == ["2", None, "new"]


@pytest.mark.parametrize(
    "other",
    [
        LINES + "P40,1,7\n",
        LINES.removesuffix("P39,0,39.5\n"),
        LINES.removesuffix("\n"),
        LINES.replace("P7,1,", 'P7,"1",'),
        LINES.replace("P7,1,", "\nP7,1,"),
        LINES.replace("\n", "\r\n"),
        LINES.replace("P", "Q"),
    ],
    ids=["longer", "shorter", "without the last line end", "quotes", "blank line", "other line ends", "all new"],
)
def test_files_that_are_not_alike_are_parsed(tmp_path: Path, parsed: list[Path], other: str) -> None:
    _, after, path = read_both(tmp_path, HEADER + LINES, HEADER + other)
    assert path in parsed
    assert after.to_pylist() == read(path).to_pylist()


def test_columns_of_another_number_are_refused_as_ever(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_both(tmp_path, HEADER + LINES, HEADER + LINES.replace("P7,1,", "P7,1,1,"))


def test_a_file_that_was_modified_since_is_not_compared_with(tmp_path: Path, parsed: list[Path]) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text(HEADER + LINES, encoding="utf-8")
    other.write_text(HEADER + LINES.replace("P7,1,", "P7,2,"), encoding="utf-8")
    with reading_alike():
        read(one)
        one.write_text(HEADER + LINES.replace("P8,2,", "P8,1,") + "P40,1,1\n", encoding="utf-8")
        after = read(other)
    assert parsed == [one, other]
    assert after["b"].to_pylist()[7] == "2"


@pytest.mark.parametrize("seed", range(40))
def test_whatever_differs_the_values_are_those_of_the_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(delimited, "_WINDOW", rng.choice([64, 100, 1000, 1 << 20]))

    def draw() -> str:
        return rng.choice(["", "a", "bb", "c" * rng.randrange(12), str(rng.randrange(1000)), "é", "\ufeff"])

    for _ in range(10):
        lines = [[draw() for _ in range(3)] for _ in range(rng.randrange(1, 60))]
        others = [[draw() if rng.random() < 0.1 else field for field in line] for line in lines]
        one, other = (HEADER + "".join(",".join(line) + "\n" for line in each) for each in (lines, others))
        _, after, path = read_both(tmp_path, one, other)
        assert after.to_pylist() == read(path).to_pylist()
