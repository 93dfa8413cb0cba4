"""``safeswap risky``: totals on the terminal, values and records only where a file for them is named."""

import stat

import pyarrow.parquet
from tests.unit.cli.conftest import CANARY

KEYS = ("--keys", "Race,Sex,Town", "--up-to", "3")


def test_totals_are_told_and_no_value(safeswap, survey):
    run = safeswap("risky", survey, "--identifier", "id", *KEYS, "--tolerance", "30")
    assert run.code == 0, run.said
    assert "Race × Sex × Town" in run.stdout
    assert CANARY not in run.said


def test_the_document_holds_the_totals(safeswap, survey):
    document = safeswap("risky", survey, "--identifier", "id", *KEYS, "--tolerance", "30", "--json").document
    assert document["by_dimension"]["1"] == 0
    assert document["unsafe_combinations"] == sum(each["unsafe"] for each in document["combinations"])
    assert {each["key"] for each in document["keys"]} == {"Race", "Sex", "Town"}


def test_a_threshold_is_one_below_the_tolerance(safeswap, survey):
    told = [
        safeswap("risky", survey, "--identifier", "id", *KEYS, *how, "--json").document["unsafe_records"]
        for how in (("--tolerance", "9"), ("--threshold", "8"))
    ]
    assert told[0] == told[1] > 0


def test_lists_and_levels_are_taken(safeswap, survey):
    lists = ("--combinations", "Race,Sex:50", "--combinations", "Town")
    document = safeswap("risky", survey, "--identifier", "id", *lists, "--json").document
    assert [(each["keys"], each["tolerance"]) for each in document["combinations"]] == [
        (["Race", "Sex"], 50),
        (["Town"], 3),
    ]
    levels = safeswap("risky", survey, "--identifier", "id", "--levels", "Town=1,Race=2,Sex=3", "--json").document
    assert [each["keys"] for each in levels["combinations"]] == [["Town", "Race", "Sex"]]


def test_values_and_records_are_for_their_owner(safeswap, survey, tmp_path):
    values, records = tmp_path / "unsafe.csv", tmp_path / "records.parquet"
    outputs = ("--tolerance", "9", "--output", values, "--records", records)
    run = safeswap("risky", survey, "--identifier", "id", *KEYS, *outputs)
    assert run.code == 0, run.said
    assert [stat.S_IMODE(path.stat().st_mode) for path in (values, records)] == [0o600, 0o600]
    assert values.read_text().startswith("combination,count,tolerance,Race,Sex,Town\n")
    assert pyarrow.parquet.read_table(records).column_names == ["id", "row", "unsafe_combinations"]
    assert safeswap("risky", survey, "--identifier", "id", *KEYS, *outputs).code == 8


def test_bad_lists_end_with_a_clear_word(safeswap, survey):
    for arguments, code in (
        (("--keys", "Nobody"), 4),
        (("--keys", "id"), 4),
        (("--keys", "Race", "--tolerance", "100000"), 4),
        (("--keys", "Race", "--tolerance", "0"), 4),
        ((), 4),
        (("--levels", "Race"), 4),
    ):
        run = safeswap("risky", survey, "--identifier", "id", *arguments)
        assert run.code == code, (arguments, run.said)
        assert "hint" in run.stderr
