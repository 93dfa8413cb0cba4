"""The synthetic census: the same on every machine, consistent in every household, shaped like a real one."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import safeswap as ss
from safeswap import datasets
from safeswap.arrays import compiled
from safeswap.errors import OutputError, SpecError
from safeswap.model.schema import Kind

# Of 3,000 households: changes only with a new version of the census.
FINGERPRINT = "3f745345f484bcf0115a4816bbd48b3fbf8dc341b653e76d6d75a51f9fdeb3aa"
RACES = ("WHITE", "BLACK", "INDIAN", "ASIAN", "OTHER")


@pytest.fixture(scope="module")
def census():
    return datasets.synthetic_census(200_000)


def column(data, name):
    return data.table[name].to_numpy()


def fingerprint(table: pa.Table) -> str:
    sums = hashlib.sha256()
    for name in table.column_names:
        values = table[name]
        if pa.types.is_dictionary(values.type):
            values = values.cast(pa.string())
        sums.update(f"{name}:{','.join(map(str, values.to_pylist()))};".encode())
    return sums.hexdigest()


def test_a_census_is_the_same_on_every_machine():
    assert fingerprint(datasets.synthetic_census(3_000).table) == FINGERPRINT


@pytest.mark.parametrize("chunk_size", [1, 17, 999, 3_000, 10**6])
def test_how_it_is_cut_into_chunks_changes_nothing(chunk_size):
    number = 3_000 if chunk_size > 1 else 40
    chunks = list(datasets.synthetic_census_chunks(number, chunk_size=chunk_size))
    assert all(chunk.num_rows == chunk_size for chunk in chunks[:-1])
    assert fingerprint(pa.concat_tables(chunks)) == fingerprint(datasets.synthetic_census(number).table)


def test_the_number_of_threads_changes_nothing(monkeypatch):

    expected = fingerprint(datasets.synthetic_census(5_000).table)
    monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 100)
    monkeypatch.setattr(compiled, "_most_threads", lambda: 7)
    assert fingerprint(datasets.synthetic_census(5_000).table) == expected


def test_another_key_gives_another_census():
    prints = {fingerprint(datasets.synthetic_census(500, key).table) for key in (0, 1, 2, 1990, 2**63 - 1)}
    assert len(prints) == 5


def test_persons_are_counted_alike_by_race_and_by_origin(census):
    persons = np.sum([column(census, name) for name in RACES], axis=0)
    assert (persons >= 1).all()
    assert (persons == column(census, "HISPANIC") + column(census, "NONHISPANIC")).all()
    assert (column(census, "ADULTS") >= 1).all()
    assert (column(census, "ADULTS") <= persons).all()
    assert (column(census, "FAMILIES") >= 1).all()
    assert (column(census, "FAMILIES") <= column(census, "ADULTS")).all()
    assert min(column(census, name).min() for name in (*RACES, "HISPANIC", "NONHISPANIC")) == 0


def test_every_area_lies_within_one_of_the_level_above(census):
    for coarse, fine in pairwise(datasets.CENSUS_GEOGRAPHY):
        lying = np.unique(np.stack([column(census, fine), column(census, coarse)], axis=1), axis=0)
        assert len(lying) == len(np.unique(column(census, fine)))
        assert len(np.unique(column(census, coarse))) < len(lying)


def test_areas_are_of_very_different_sizes_and_many_blocks_are_small(census):
    sizes = {name: np.unique(column(census, name), return_counts=True)[1] for name in datasets.CENSUS_GEOGRAPHY}
    assert sizes["PLACE"].max() > 30 * np.median(sizes["PLACE"])
    assert sizes["STATE"].max() > 3 * sizes["STATE"].min()
    assert np.mean(sizes["BLOCK"] < 10) > 1 / 3
    assert np.mean(sizes["BLOCK"] < 5) > 0.05
    assert sizes["BLOCK"].max() > 100


def test_amounts_are_skewed_and_follow_each_other(census):
    income, value = column(census, "INCOME").astype(float), column(census, "HOME_VAL").astype(float)
    assert income.mean() > 1.25 * np.median(income)
    owned = value > 0
    assert np.corrcoef(income[owned], value[owned])[0, 1] > 0.4
    assert np.corrcoef(value, column(census, "TAXES"))[0, 1] > 0.8
    adults = column(census, "ADULTS")
    assert income[adults == 3].mean() > 1.2 * income[adults == 1].mean()
    tenure = np.array(census.table["TENURE"].to_pylist())
    assert (owned == np.isin(tenure, ["mortgaged", "owned"])).all()
    assert (column(census, "MORTGAGE")[tenure != "mortgaged"] == 0).all()


def test_places_differ_in_who_lives_there(census):
    place, black = column(census, "PLACE"), column(census, "BLACK") > 0
    names, inverse, sizes = np.unique(place, return_inverse=True, return_counts=True)
    shares = (np.bincount(inverse, black) / sizes)[sizes > 200]
    assert shares.max() - shares.min() > 0.5
    assert len(names) > 100


def test_the_schema_says_what_the_columns_are(census):
    schema = census.schema
    assert schema.identifier.name == "HHID"
    assert tuple(a.name for a in schema.iter_kind(Kind.GEOGRAPHY)) == datasets.CENSUS_GEOGRAPHY
    assert [schema[name].geography_level for name in datasets.CENSUS_GEOGRAPHY] == [0, 1, 2, 3, 4]
    assert all(schema[name].kind.is_categorical for name in datasets.CENSUS_KEYS)
    assert {a.name for a in schema.iter_kind(Kind.NUMERIC)} == {"INCOME", "HOME_VAL", "MORTGAGE", "MAINTAIN", "TAXES"}
    for name in ("TRAILER", "TENURE", "OCCUPATION"):
        assert set(census.coded(name).levels.to_pylist()) == set(schema[name].levels)
    assert all(a.label for a in schema.attributes)


@pytest.mark.parametrize("households", [1, 2, 3, 10])
def test_the_smallest_census_has_as_many_households_as_asked_for(households):
    assert len(datasets.synthetic_census(households)) == households


def test_a_large_census_can_be_begun_without_making_all_of_it():
    chunks = datasets.synthetic_census_chunks(20_000_000, chunk_size=100)
    assert next(chunks)["HHID"].to_pylist() == list(range(1, 101))


@pytest.mark.parametrize("households", [0, -1, 1.5, "7", True, None, 10**10])
def test_a_number_of_households_that_makes_no_sense_is_refused(households):
    with pytest.raises(SpecError) as refused:
        datasets.synthetic_census(households)
    assert refused.value.code == "bad-size"


@pytest.mark.parametrize("key", [-1, 2**63, "secret", 1.0, None, True])
def test_a_key_that_is_no_number_is_refused(key):
    with pytest.raises(SpecError) as refused:
        datasets.synthetic_census(10, key)
    assert refused.value.code == "bad-seed"


def test_the_written_file_reads_back_as_the_census(tmp_path):
    path = tmp_path / "census.parquet"
    datasets.write_synthetic_census(path, 5_000, chunk_size=777)
    assert fingerprint(parquet.read_table(path)) == fingerprint(datasets.synthetic_census(5_000).table)
    data = ss.read(path, schema=datasets.synthetic_census_schema())
    assert data.schema.identifier.name == "HHID"
    with pytest.raises(OutputError):
        datasets.write_synthetic_census(path, 10)


def test_a_file_that_could_not_be_finished_does_not_appear(tmp_path, monkeypatch):
    from safeswap.datasets import census as module

    def broken(*_):
        raise MemoryError

    monkeypatch.setattr(module, "_chunk", lambda *a, made=module._chunk: made(*a) if a[2] == 0 else broken())
    with pytest.raises(MemoryError):
        datasets.write_synthetic_census(tmp_path / "census.parquet", 500, chunk_size=100)
    assert list(tmp_path.iterdir()) == []
