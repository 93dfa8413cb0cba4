"""``safeswap confidentiality``: totals on the terminal, records only where they are asked for."""

import stat

import pyarrow.parquet
import pytest

from safeswap import datasets, workflow
from safeswap.files.write import write

KEYS = "turnover,employees"


@pytest.fixture
def files(tmp_path, safeswap):
    """A file of enterprises, its schema, and a masked copy."""
    original, schema, masked = tmp_path / "e.csv", tmp_path / "e.toml", tmp_path / "m.csv"
    assert safeswap("datasets", "write", "synthetic_enterprises", original, "--write-schema", schema).code == 0
    result = workflow.mask(
        datasets.synthetic_enterprises(),
        {"method": "rank_swap", "attributes": ["turnover", "employees"], "window": 0.08},
        insecure_seed=1,
    )
    write(result, masked)
    return [original, masked, "--schema", schema, "--only", "division=18"]


def test_totals_are_told_and_no_record(safeswap, files):
    run = safeswap("confidentiality", *files, "--keys", KEYS)
    assert run.code == 0, run.said
    assert "of 157 records are unsafe" in run.stdout
    assert "δ = 0.0" in run.stdout
    identifiers = [str(i) for i in datasets.synthetic_enterprises().table["id"].to_pylist()]
    assert not [i for i in identifiers if i in run.said]


def test_the_document_has_the_figures_of_python(safeswap, files):
    document = safeswap("confidentiality", *files, "--keys", KEYS, "--k", "10", "--curvature", "1", "--json").document
    plot = document["plots"][0]
    assert plot["policy"] == {"r": 0.15, "k": 10.0, "curvature": 1.0}
    assert plot["records"] == 157
    assert plot["unsafe"] > 0


def test_several_sets_of_keys_are_compared(safeswap, files):
    run = safeswap("confidentiality", *files, "--keys", "turnover", "--keys", KEYS)
    assert run.code == 0, run.said
    assert "correct links" in run.stdout
    refused = safeswap("confidentiality", *files, "--keys", "turnover", "--keys", KEYS, "--output", "x.svg")
    assert refused.code == 4


def test_outputs_are_written_for_their_owner_or_for_the_public(safeswap, files, tmp_path):
    names = [tmp_path / name for name in ("p.html", "p.svg", "r.csv", "r.parquet")]
    outputs = [part for path in names for part in ("--output", path)]
    assert safeswap("confidentiality", *files, "--keys", KEYS, *outputs).code == 0
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in names)
    assert pyarrow.parquet.read_table(names[3]).num_rows == 157
    assert safeswap("confidentiality", *files, "--keys", KEYS, *outputs).code == 8, "nothing is overwritten unasked"
    public = tmp_path / "public.svg"
    assert safeswap("confidentiality", *files, "--keys", KEYS, "--public", "--output", public).code == 0
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    run = safeswap("confidentiality", *files, "--keys", KEYS, "--public", "--output", tmp_path / "x.csv")
    assert run.code == 4
    assert not (tmp_path / "x.csv").exists()


def test_an_archive_and_a_population_need_no_columns_but_the_keys(safeswap, files, tmp_path):
    data = datasets.synthetic_enterprises().table
    archive, people = tmp_path / "archive.csv", tmp_path / "people.csv"
    write(workflow.read(data.select(["id", "turnover", "employees", "division"])), archive)
    write(workflow.read(data.select(["region", "division"])), people)
    run = safeswap("confidentiality", *files, "--keys", KEYS, "--archive", archive, "--json")
    plain = safeswap("confidentiality", *files, "--keys", KEYS, "--json")
    assert run.document["plots"][0]["unsafe"] == plain.document["plots"][0]["unsafe"]
    counted = safeswap("confidentiality", *files, "--keys", "region", "--population", people, "--json")
    assert counted.document["plots"][0]["frequency"] == "population"


def test_categorical_keys_are_counted(safeswap, files):
    run = safeswap("confidentiality", *files, "--keys", "region,size_class", "--k", "5")
    assert run.code == 0, run.said
    assert "frequency of at least 5" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--keys", "nowhere"], 4),
        (["--keys", KEYS, "--alpha", "1"], 4),
        (["--keys", KEYS, "--scale", "cubic"], 4),
        (["--keys", "turnover,region"], 4),
        (["--keys", KEYS, "--only", "division"], 4),
        (["--keys", KEYS, "--r", "0"], 4),
        ([], 2),
    ],
)
def test_bad_calls_end_with_their_exit_code(safeswap, files, arguments, code):
    assert safeswap("confidentiality", *files, *arguments).code == code
