"""``safeswap risk``: totals on the terminal, figures of records only in a private file."""

import stat

import pyarrow.parquet
import pytest

from safeswap import workflow
from safeswap.measures.risk.by_record import file_risk, record_risk, special_uniques, suda

from .conftest import CANARY


@pytest.fixture
def sample(tmp_path):
    """A survey with a weight, a sensitive attribute and a few missing keys."""
    path = tmp_path / "sample.csv"
    lines = ["id,Sex,Town,Age,Ill,w"]
    for i in range(120):
        town = "" if i % 17 == 3 else f"{CANARY}-{i * i % 7}"
        lines.append(
            f"P{i:04d},{'fm'[i % 2]},{town},{('young', 'old')[i * 3 % 5 == 0]},{'yn'[i % 3 == 0]},{1 + i % 5}.5"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def test_figures_are_told_in_plain_words_and_no_value(safeswap, sample):
    run = safeswap(
        "risk", sample, "--keys", "Sex,Town,Age", "--sensitive", "Ill", "--weight", "w", "--identifier", "id"
    )
    assert run.code == 0, run.said
    for words in ("Keys Sex, Town, Age:", "fewer than 3 share", "different values of Ill", "are expected to be found"):
        assert words in run.stdout
    assert CANARY not in run.said
    assert "P00" not in run.said


def test_the_document_has_the_figures_of_python(safeswap, sample):
    run = safeswap("risk", sample, "--keys", "Sex,Town", "--keys", "Age", "--k", 5, "--max-size", 2, "--json")
    document, data = run.document, workflow.read(sample)
    keys = ["Sex", "Town", "Age"]
    expected = file_risk(data, keys, k=5, max_size=2)
    assert document["scores"] == expected.as_dict()["scores"]
    found = special_uniques(data, keys, max_size=2)
    assert document["special_uniques"]["by_key"] == found.by_key.to_pylist()
    assert document["output"] is None


@pytest.mark.parametrize("missing", ["none", "own", "any", "vouching"])
def test_a_stated_meaning_of_missing_holds_for_every_figure(safeswap, sample, missing):
    document = safeswap("risk", sample, "--keys", "Sex,Town,Age", "--missing", missing, "--json").document
    expected = file_risk(workflow.read(sample), ["Sex", "Town", "Age"], missing=missing)
    assert [score["value"] for score in document["scores"]] == [score.value for score in expected]


def test_records_go_to_a_file_that_only_its_owner_reads(safeswap, sample, tmp_path):
    output = tmp_path / "records.parquet"
    arguments = ["risk", sample, "--keys", "Sex,Town,Age", "--weight", "w", "--identifier", "id", "--output", output]
    assert safeswap(*arguments).code == 0
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    written = pyarrow.parquet.read_table(output)
    assert written.column_names[:4] == ["id", "sample_count", "population_count", "risk"]
    data = workflow.read(sample, identifier="id")
    assert written["risk"].to_pylist() == record_risk(data, ["Sex", "Town", "Age"], weight="w")["risk"].to_pylist()
    assert written["score"].to_pylist() == suda(data, ["Sex", "Town", "Age"])["score"].to_pylist()
    again = safeswap(*arguments)
    assert again.code == 8
    assert "exists already" in again.stderr
    assert safeswap(*arguments, "--force").code == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--keys", "Nowhere"], 4),
        (["--keys", "Sex", "--sensitive", "Sex"], 4),
        (["--keys", "Sex", "--weight", "Town"], 4),
        (["--keys", "Sex", "--sampling-fraction", "0"], 4),
        (["--keys", "Sex", "--k", "1"], 2),
        ([], 2),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(safeswap, sample, options, code):
    run = safeswap("risk", sample, *options)
    assert run.code == code
    assert "hint: " in run.stderr
    assert CANARY not in run.said


def test_assess_takes_the_measures_by_name(safeswap, sample):
    run = safeswap(
        "assess", sample, sample, "--keys", "Sex,Age", "--measure", "k_anonymity:k=30", "--measure", "suda2", "--json"
    )
    assert run.code == 0, run.said
    assert [score["measure"] for score in run.document["scores"]] == [
        "k_anonymity:keys=Sex+Age,k=30",
        "suda2:keys=Sex+Age",
    ]
