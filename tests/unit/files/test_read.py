"""The caller's statements, the file's own and the guesses about columns give one schema that fits the data."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from safeswap.errors import InputError
from safeswap.files.read import read
from safeswap.files.schema_file import write_schema
from safeswap.model.schema import Attribute, Kind, Schema

TABLE = pa.table({"id": ["007", "08", "9"], "Sex": ["1", "2", "9"], "Age": ["<25", ">55", "25-55"]})


def test_without_a_word_everything_is_a_guess() -> None:
    data = read(TABLE)
    assert all(a.inferred for a in data.schema.attributes)
    assert data.schema.name == ""


def test_a_stated_identifier_is_one_and_the_only_one() -> None:
    data = read(pa.table({"id": [1, 2], "nr": ["a", "b"]}), identifier="nr")
    assert data.schema.identifier is not None
    assert data.schema.identifier.name == "nr"
    assert not data.schema["nr"].inferred


def test_a_stated_kind_counts_before_the_guess() -> None:
    data = read(TABLE, kinds={"Sex": "ordinal", "id": Kind.NOMINAL}, missing=["9"])
    assert (data.schema["Sex"].kind, data.schema["Sex"].levels) == (Kind.ORDINAL, ("1", "2"))
    assert data.schema["id"].kind is Kind.NOMINAL
    assert data.schema["Sex"].missing == ("9",)
    assert not data.schema["Sex"].inferred
    assert data.table.column("Sex").to_pylist() == ["1", "2", "9"]


def test_a_schema_is_put_in_the_order_of_the_data(tmp_path: Path) -> None:
    schema = Schema(name="s", attributes=tuple(Attribute(name=n) for n in ("Age", "id", "Sex")))
    write_schema(schema, tmp_path / "s.toml")
    for given in (schema, tmp_path / "s.toml", str(tmp_path / "s.toml")):
        data = read(TABLE, schema=given)
        assert data.attributes == ("id", "Sex", "Age")
        assert data.schema.name == "s"


def test_a_schema_next_to_the_file_is_not_read_unasked(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "x.csv.schema.toml").write_text("this is no TOML")
    (tmp_path / "x.schema.toml").write_text("this is no TOML")
    assert read(tmp_path / "x.csv").schema["a"].inferred


def test_a_schema_of_other_columns_is_refused() -> None:
    schema = Schema(attributes=(Attribute(name="id"), Attribute(name="Sex"), Attribute(name="Alter")))
    with pytest.raises(InputError) as caught:
        read(TABLE, schema=schema)
    assert caught.value.code == "schema-mismatch"
    assert caught.value.fields["not_in_data"] == ["Alter"]
    assert caught.value.fields["not_in_schema"] == ["Age"]


def test_a_value_outside_the_stated_levels_is_refused_by_position(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("Sex,Age\nF,1\nCANARY,2\n,3\nM,4\nCANARY,5\n")
    attributes = (Attribute(name="Sex", levels=("F", "M")), Attribute(name="Age"))
    with pytest.raises(InputError) as caught:
        read(tmp_path / "x.csv", schema=Schema(attributes=attributes))
    assert caught.value.code == "unlisted-level"
    assert caught.value.fields["lines"] == [3, 6]
    assert "CANARY" not in repr(caught.value.as_dict())
    declared = attributes[0].model_copy(update={"missing": ("CANARY",)})
    assert len(read(tmp_path / "x.csv", schema=Schema(attributes=(declared, attributes[1])))) == 5


def test_a_data_set_is_called_after_its_file_unless_stated(tmp_path: Path) -> None:
    (tmp_path / "survey.2024.csv").write_text("a,b\n1,2\n")
    assert read(tmp_path / "survey.2024.csv").schema.name == "survey"
    assert read(tmp_path / "survey.2024.csv", name="x").schema.name == "x"


def test_the_callers_frame_is_kept_and_a_file_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert read(TABLE).origin is TABLE
    assert read(tmp_path / "x.csv").origin is None
