"""Recode files, code lists and trees of ARGUS are read as ARGUS means them; mistakes are told by their line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from safeswap.errors import InputError
from safeswap.methods.recode.apply import apply_step
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.projects.argus import read_codelist, read_grc, read_hierarchy


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recode_file_recodes_spans_open_ends_lists_and_missing_codes(tmp_path: Path) -> None:
    written(tmp_path, "age.cdl", "1, under 21\n2, 21 to 30\n")
    path = written(
        tmp_path, "age.grc", "1: -20\r\n2: 21-30, 35\r\n3:36-\r\n\r\n<missing> 98, 99\r\n<CODELIST>  age.cdl\r\n"
    )
    attribute = Attribute(name="Age", kind="ordinal", missing=("8", "9"))
    data = Microdata(
        pa.table({"Age": ["5", "20", "21", "35", "36", "100", "9", "8", "32", None]}), Schema(attributes=(attribute,))
    )
    done = apply_step(data, read_grc(path, "Age"))
    assert done.table["Age"].to_pylist() == ["1", "1", "2", "2", "3", "3", "99", "98", "32", None]
    assert done.schema["Age"].missing == ("98", "99")
    assert done.schema["Age"].labels == {"1": "under 21", "2": "21 to 30"}


def test_a_recode_of_numbers_makes_categories(tmp_path: Path) -> None:
    path = written(tmp_path, "age.grc", "young: -20\nold: 21-\n")
    data = Microdata(pa.table({"Age": [5, 50]}), Schema(attributes=(Attribute(name="Age", kind="numeric"),)))
    done = apply_step(data, read_grc(path, "Age"))
    assert (done.table["Age"].to_pylist(), done.schema["Age"].kind.value) == (["young", "old"], "ordinal")


def test_codes_with_a_dash_or_a_comma_are_quoted(tmp_path: Path) -> None:
    path = written(tmp_path, "x.grc", "1: \"a-b\", 'c,d'\n2: x-z\n")
    step = read_grc(path, "x")
    assert [(span.low, span.high) for span in step.spans] == [("a-b", "a-b"), ("c,d", "c,d"), ("x", "z")]


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("1: 1-3\n2: 3-5\n", "recoded already", 2),
        ("1: 1-3\n\n2 4-5\n", "not a new code", 3),
        ("1: 1--3\n", "list of codes", 1),
        ("1: -\n", "list of codes", 1),
        ("1: 5-3\n", "ends before it begins", 1),
        ("1: 1\n<COLOUR> red\n", "no such keyword", 2),
    ],
)
def test_a_mistake_in_a_recode_file_is_told_by_its_line(tmp_path: Path, text: str, said: str, line: int) -> None:
    with pytest.raises(InputError, match=said) as refused:
        read_grc(written(tmp_path, "bad.grc", text), "x")
    assert refused.value.fields["line"] == line


def test_an_empty_recode_file_and_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="recodes nothing"):
        read_grc(written(tmp_path, "empty.grc", "\n"), "x")
    with pytest.raises(InputError, match="no file"):
        read_grc(tmp_path / "nowhere.grc", "x")


def test_code_lists(tmp_path: Path) -> None:
    path = tmp_path / "old.cdl"
    path.write_bytes('1, Fryslân\n2, "North, South"\n'.encode("cp1252"))
    assert read_codelist(path) == {"1": "Fryslân", "2": "North, South"}
    with pytest.raises(InputError, match="line 2 lists a code for the second time"):
        read_codelist(written(tmp_path, "twice.cdl", "1, a\n1, b\n"))
    with pytest.raises(InputError, match="line 1"):
        read_codelist(written(tmp_path, "bad.cdl", "nothing\n"))


@pytest.mark.parametrize("text", ["A\n@B\n@@b1\n@C\nD\n@E\n", "A\n  B\n    b1\n  C\nD\n  E\n"])
def test_indented_trees(tmp_path: Path, text: str) -> None:
    tree = read_hierarchy(written(tmp_path, "tree.hrc", text))
    assert [tree.at(code, level=1) for code in ("b1", "C", "E")] == ["B", "C", "E"]
    assert [tree.at(code, level=2) for code in ("b1", "C", "E")] == ["A", "A", "D"]


def test_trees_as_tables_of_levels_and_their_mistakes(tmp_path: Path) -> None:
    assert read_hierarchy(written(tmp_path, "t.csv", "Delft,South,NL\nHaarlem,North,NL\n")).depth == 2
    with pytest.raises(InputError, match=r"'u\.csv': line 2 gives a code a different parent"):
        read_hierarchy(written(tmp_path, "u.csv", "a,x\na,y\n"))
    with pytest.raises(InputError, match="below a second one"):
        read_hierarchy(written(tmp_path, "v.hrc", "A\n@c\nB\n@c\n"))
    with pytest.raises(InputError, match="below nothing"):
        read_hierarchy(written(tmp_path, "w.hrc", "@c\n"))
    with pytest.raises(InputError, match="cycle"):
        read_hierarchy(written(tmp_path, "cycle.hrc", "A\n@B\n@@A\n"))
