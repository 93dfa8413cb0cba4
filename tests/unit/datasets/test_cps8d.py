"""CPS-8d ships with its description, and with nothing else."""

from __future__ import annotations

from importlib.resources import files

from pyarrow import parquet

from safeswap import datasets
from safeswap.model.schema import Kind


def test_the_letters_are_those_of_the_papers() -> None:
    assert [a.letter for a in datasets.cps8d().schema.attributes] == list("AWEMRSHI")


def test_every_level_is_described_and_occurs() -> None:
    data = datasets.cps8d()
    for attribute in data.schema.attributes:
        assert set(data.coded(attribute.name).levels.to_pylist()) == set(attribute.levels)
        assert set(attribute.labels) <= set(attribute.levels)


def test_the_ordinal_attributes_have_their_order() -> None:
    schema = datasets.cps8d().schema
    assert {a.name: a.levels for a in schema.iter_kind(Kind.ORDINAL)} == {
        "Age": ("<25", "25-55", ">55"),
        "Edu": ("<HS", "HS", "Coll", "Bach", "Bach+"),
        "AvgHrs": ("<40", "40", ">40"),
        "AnnSal": ("<50K", "50K+"),
    }


def test_nothing_in_the_description_is_a_guess() -> None:
    assert not any(a.inferred for a in datasets.cps8d().schema.attributes)


def test_the_file_holds_no_metadata_of_a_dataframe() -> None:
    path = files(datasets) / "cps8d.parquet"
    with path.open("rb") as file:
        footer = parquet.ParquetFile(file).metadata
    assert set(footer.metadata) == {b"ARROW:schema"}
    assert len(path.read_bytes()) < 100_000


def test_source_and_licence_are_named() -> None:
    text = (files(datasets) / "SOURCES.md").read_text(encoding="utf-8")
    for words in ("Becker", "Kohavi", "CC BY 4.0", "cps8d.parquet"):
        assert words in text


def test_what_is_available_can_be_had() -> None:
    for name in datasets.available():
        assert getattr(datasets, name)().schema.name == name
