"""A study on disk: the same again when read, private, and refused where it does not fit together."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.unit.studies.samples import KEY, sample

from safeswap.errors import InputError, OutputError
from safeswap.model.study import ConstraintSet, StudySpec
from safeswap.studies.run import run_study
from safeswap.studies.study import Study

QUESTION = StudySpec(
    rates=(0.05, 1.0),
    constraints=(ConstraintSet(), ConstraintSet(fixed=("A",), differ=("B",))),
    others=({"method": "swap", "swap": ["C"], "pairs": 3},),
    replicates=2,
    objective="cap_distortion:0.2",
)


@pytest.fixture(scope="module")
def made():
    return run_study(sample(), QUESTION, key=KEY)


@pytest.fixture
def saved(made, tmp_path):
    made.save(tmp_path / "study", pages=False)
    return tmp_path / "study"


def test_what_is_read_back_is_the_same_study(made, saved):
    found = Study.load(saved)
    assert found.spec == made.spec
    assert found.specs == made.specs
    assert found.table.equals(made.table)
    assert found.facts == made.facts
    assert found.table_pairs == made.table_pairs
    assert np.array_equal(found.two_way, made.two_way, equal_nan=True)
    assert found.choose().as_dict() == made.choose().as_dict()
    assert found.summary().equals(made.summary())


def test_a_study_without_kept_tables_is_read_back_too(made, tmp_path):
    from dataclasses import replace

    replace(made, two_way=None, table_pairs=()).save(tmp_path / "study", pages=False)
    found = Study.load(tmp_path / "study")
    assert found.two_way is None
    assert not (tmp_path / "study" / "two_way.parquet").exists()


def test_the_files_are_private(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["study.json", "study.parquet", "two_way.parquet"]
    assert saved.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in saved.iterdir())


def test_the_tables_can_be_read_by_any_program(made, saved):
    rows = parquet.read_table(saved / "two_way.parquet").to_pylist()
    assert len(rows) == len(made) * 6
    row = rows[13]
    assert rows[7]["adV"] is None  # of a candidate that was rejected
    table = made.distortion_table(row["candidate"], "adV").to_pylist()
    assert {"a": row["a"], "b": row["b"], "adV": pytest.approx(row["adV"])} in table


def test_the_choice_is_kept_with_the_study(made, tmp_path):
    choice = made.choose()
    made.save(tmp_path / "study", choice=choice, pages=False)
    document = json.loads((tmp_path / "study" / "study.json").read_text())
    assert document["publish_figures"] is False
    assert document["choice"]["sentence"] == choice.sentence
    assert document["choice"]["candidate"] == choice.candidate


def test_no_key_and_no_record_is_in_the_files(saved):
    document = (saved / "study.json").read_text()
    assert KEY.secret.hex() not in document
    assert "v0" not in document


def test_an_existing_study_is_kept_unless_forced(made, saved):
    with pytest.raises(OutputError) as refusal:
        made.save(saved, pages=False)
    assert refusal.value.code == "exists"
    made.save(saved, pages=False, force=True)
    assert len(Study.load(saved)) == len(made)


def test_force_does_not_remove_a_directory_that_is_no_study(made, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letters.txt").write_text("dear")
    with pytest.raises(OutputError):
        made.save(tmp_path / "home", pages=False, force=True)
    assert (tmp_path / "home" / "letters.txt").read_text() == "dear"


def test_a_directory_without_a_study_is_named(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError) as refusal:
            Study.load(path)
        assert refusal.value.code == "no-study"


@pytest.mark.parametrize("name", ["study.json", "study.parquet", "two_way.parquet"])
@pytest.mark.parametrize("damage", ["cut", "other", "gone"])
def test_damaged_files_are_refused_by_name(saved, name, damage):
    path = saved / name
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "other":
        path.write_bytes(b"[1, 2]")
    else:
        path.unlink()
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        Study.load(saved)


def test_rows_that_are_missing_or_out_of_order_are_refused(made, saved):
    order = np.arange(len(made))
    for rows in (order[:-1], order[::-1], np.concatenate([order, order])):
        parquet.write_table(made.table.take(pa.array(rows)), saved / "study.parquet")
        with pytest.raises(InputError):
            Study.load(saved)
    parquet.write_table(made.table.drop_columns(["n_rule"]), saved / "study.parquet")
    with pytest.raises(InputError):
        Study.load(saved)


def test_consent_to_publish_figures_is_recorded_with_the_study(made, tmp_path):
    made.save(tmp_path / "study", pages=False, publish_figures=True)
    assert json.loads((tmp_path / "study" / "study.json").read_text())["publish_figures"] is True
