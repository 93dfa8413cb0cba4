"""A schema survives its file, and a bad file is refused with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import InputError, OutputError
from safeswap.files.schema_file import read_schema, write_schema
from safeswap.model.schema import Attribute, Kind, Schema

TEXT = st.text(max_size=8)
NAMES = st.text(min_size=1, max_size=8)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(NAMES, max_size=5, unique=True))
    kinds = [draw(st.sampled_from([k for k in Kind if k is not Kind.IDENTIFIER])) for _ in names]
    if names and draw(st.booleans()):
        kinds[0] = Kind.IDENTIFIER
    attributes = [
        Attribute(
            name=name,
            kind=kind,
            label=draw(TEXT),
            letter=draw(st.text(max_size=3)),
            levels=tuple(draw(st.lists(TEXT, max_size=4, unique=True))),
            labels=draw(st.dictionaries(TEXT, TEXT, max_size=3)),
            missing=tuple(draw(st.lists(TEXT, max_size=2))),
            hierarchy=tuple(draw(st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2))),
            geography_level=draw(st.none() | st.integers(0, 5)),
            inferred=draw(st.booleans()),
        )
        for name, kind in zip(names, kinds, strict=True)
    ]
    return Schema(name=draw(TEXT), attributes=tuple(attributes))


@given(schema=schemas())
def test_a_schema_survives_its_file_exactly(tmp_path_factory: pytest.TempPathFactory, schema: Schema) -> None:
    path = tmp_path_factory.mktemp("schema") / "a.schema.toml"
    write_schema(schema, path)
    assert read_schema(path) == schema


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    schema = Schema(name="one", attributes=())
    write_schema(schema, tmp_path / "a.toml")
    with pytest.raises(OutputError):
        write_schema(schema, tmp_path / "a.toml")
    write_schema(schema.replace(name="two"), tmp_path / "a.toml", force=True)
    assert read_schema(tmp_path / "a.toml").name == "two"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("attributes = []\nname = \n", 2),
        ('[[attributes]]\nname = "CANARY\n', 2),
        ('[[attributes]]\nname = "a"\n\n[[attributes]]\nname = "b"\nkind = "CANARY"\n', 4),
        ('[[attributes]]\nname = "a"\n[[attributes]]\nname = "b"\nlevel = "CANARY"\n', 3),
        ('[[attributes]]\nname = "a"\n[[attributes]]\nkind = "nominal"\n', 3),
        ('[[attributes]]\nname = "a"\n[attributes.labels]\nCANARY = 7\n', 1),
        ('format = "something-else"\nattributes = []\n', 1),
        ('[[attributes]]\nname = "CANARY"\n[[attributes]]\nname = "CANARY"\n', 1),
        ("[attributes]\n", 1),
        ("x = " + "[" * 5000, 1),
        ("\x00", 1),
    ],
)
def test_a_bad_file_is_refused_with_its_line_and_without_its_content(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_schema(tmp_path / "a.toml")
    assert caught.value.code == "bad-schema-file"
    assert caught.value.fields.get("line") == line
    assert "CANARY" not in repr(caught.value.as_dict())


@pytest.mark.parametrize(
    ("content", "code"), [(None, "missing-file"), (b"", "empty-file"), (b"\xff", "bad-schema-file")]
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: Any, code: str) -> None:
    if content is not None:
        (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_schema(tmp_path / "a.toml")
    assert caught.value.code == code
