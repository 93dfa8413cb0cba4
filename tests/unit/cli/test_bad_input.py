"""Every bad input, from the command line: its exit code, one paragraph that says what and where, nothing written."""

import errno
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.unit.cli.conftest import CANARY, survey_text

INPUT, SPEC, INFEASIBLE, OUTPUT = 3, 4, 5, 8
GOOD = survey_text(12)


def text(content: str | bytes):
    def make(folder):
        path = folder / "bad.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def missing(folder):
    return folder / "not-there.csv"


def directory(folder):
    (folder / "bad.csv").mkdir()
    return folder / "bad.csv"


def many_columns(folder):
    names = ",".join(f"c{i}" for i in range(100_000))
    return text(f"{names}\n{',' * 99_999}\n")(folder)


def parquet_bomb(folder):
    """A few kilobytes that declare ten billion records: only the footer is there to be believed."""
    path = folder / "bad.parquet"
    table = pa.table({"Race": pa.array([CANARY] * 1_000_000).dictionary_encode(), "n": pa.array([0] * 1_000_000)})
    with pyarrow.parquet.ParquetWriter(path, table.schema) as writer:
        for _ in range(3):
            writer.write_table(table)
    return path


def cut_parquet(folder):
    path = parquet_bomb(folder)
    path.write_bytes(path.read_bytes()[:-20])
    return path


BAD_FILES = {
    "missing file": (missing, "missing-file"),
    "directory": (directory, "is-directory"),
    "empty file": (text(""), "empty-file"),
    "header only": (text("id,Race,Sex\n"), "no-records"),
    "ragged rows": (text(GOOD + f"99,{CANARY}\n"), "ragged-row"),
    "wrong encoding": (text(GOOD.encode() + f"99,{CANARY}\xff,f,1,x\n".encode("latin-1")), "wrong-encoding"),
    "NUL bytes": (text(GOOD + f"99,{CANARY}\0,f,1,x\n"), "nul-byte"),
    "duplicate column names": (text(f"id,Race,Race\n1,{CANARY},x\n"), "duplicate-column"),
    "too many columns": (many_columns, "too-many-columns"),
    "cut Parquet": (cut_parquet, "corrupt-file"),
}


def commands_on(path, folder):
    swap = ["swap", path, "--swap", "Race", "--rate", "0.1", "--insecure-seed", "1"]
    return {
        "describe": ["describe", path, "--write-schema", folder / "schema.toml"],
        "swap": [*swap, "--output", folder / "masked.csv", "--audit", folder / "audit"],
        "assess": ["assess", path, path],
    }


def check_refusal(run, *, exit_code):
    assert run.code == exit_code, run.said
    assert run.stdout == ""
    assert run.stderr.startswith("error: ")
    assert 1 <= run.stderr.count("\n") <= 2  # the message, and what would work
    assert "Traceback" not in run.stderr
    assert CANARY not in run.said
    assert len(run.said) < 1_500


@pytest.mark.parametrize("command", ["describe", "swap", "assess"])
@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_with_nothing_written(safeswap, tmp_path, listing, case, command):
    make, code = BAD_FILES[case]
    path = make(tmp_path)
    before = listing()
    arguments = commands_on(path, tmp_path)[command]
    check_refusal(safeswap(*arguments), exit_code=INPUT)
    document = safeswap(*arguments, "--json").document
    assert (document["error"], document["code"]) == ("InputError", code)
    assert document["fields"]["file"] == str(path)
    assert listing() == before


def test_the_hint_on_an_encoding_names_the_option_each_time(safeswap, tmp_path):
    make, _ = BAD_FILES["wrong encoding"]
    told = " ".join(safeswap("describe", make(tmp_path)).stderr.split())
    assert "for example --encoding cp1252 or --encoding latin-1" in told


@pytest.mark.parametrize(
    ("rows", "code"),
    [(f"1,{CANARY}\n2,x\n1,y\n", "duplicate-identifier"), (f"1,{CANARY}\n,x\n3,y\n", "missing-identifier")],
)
def test_identifiers_must_be_there_and_differ(safeswap, tmp_path, listing, rows, code):
    path = text("id,Race\n" + rows)(tmp_path)
    before = listing()
    for arguments in commands_on(path, tmp_path).values():
        check_refusal(safeswap(*arguments, "--identifier", "id"), exit_code=INPUT)
        document = safeswap(*arguments, "--identifier", "id", "--json").document
        assert document["code"] == code
        assert document["fields"]["column"] == "id"
    assert listing() == before


def test_a_parquet_bomb_is_refused_by_its_footer(safeswap, tmp_path, listing):
    path = parquet_bomb(tmp_path)
    before = listing()
    for arguments in commands_on(path, tmp_path).values():
        run = safeswap(*arguments, "--max-decoded-bytes", "1000000", "--json")
        assert (run.code, run.document["code"]) == (INPUT, "too-large")
        assert safeswap(*arguments, "--max-records", "1000000", "--json").document["code"] == "too-many-records"
    assert listing() == before


BAD_SPECS = {
    "unknown attribute": (["--swap", "Colour", "--rate", "0.1"], SPEC, "unknown-attribute"),
    "unknown fixed attribute": (["--swap", "Race", "--fixed", "Colour", "--rate", "0.1"], SPEC, "unknown-attribute"),
    "no swap attribute": (["--rate", "0.1"], SPEC, "bad-spec"),
    "swapped and fixed": (["--swap", "Race", "--fixed", "Race", "--rate", "0.1"], SPEC, "bad-spec"),
    "rate 0": (["--swap", "Race", "--rate", "0"], SPEC, "bad-spec"),
    "rate 1.5": (["--swap", "Race", "--rate", "1.5"], SPEC, "bad-spec"),
    "rate -0.1": (["--swap", "Race", "--rate=-0.1"], SPEC, "bad-spec"),
    "rate nan": (["--swap", "Race", "--rate", "nan"], SPEC, "bad-spec"),
    "rate and pairs": (["--swap", "Race", "--rate", "0.1", "--pairs", "3"], SPEC, "bad-spec"),
    "neither rate nor pairs": (["--swap", "Race"], SPEC, "bad-spec"),
    "constant swap attribute": (["--swap", "Country", "--rate", "0.1"], INFEASIBLE, "constant-attribute"),
    "more pairs than there are": (["--swap", "Race", "--pairs", "399"], INFEASIBLE, "shortfall"),
}


@pytest.mark.parametrize("case", BAD_SPECS)
def test_a_bad_request_is_refused_with_nothing_written(safeswap, tmp_path, listing, case):
    stated, exit_code, code = BAD_SPECS[case]
    path = tmp_path / "survey.csv"
    header, *rows = survey_text().splitlines()
    path.write_text("\n".join([header + ",Country", *(f"{row},{CANARY}" for row in rows)]) + "\n")
    before = listing()
    arguments = ["swap", path, *stated, "--insecure-seed", "1"]
    arguments += ["--output", tmp_path / "masked.csv", "--audit", tmp_path / "audit"]
    check_refusal(safeswap(*arguments), exit_code=exit_code)
    assert safeswap(*arguments, "--json").document["code"] == code
    assert listing() == before


def swap_to(folder, survey):
    made = ["swap", survey, "--swap", "Race", "--rate", "0.1", "--insecure-seed", "1"]
    return [*made, "--output", folder / "masked.csv", "--audit", folder / "audit"]


@pytest.mark.parametrize("taken", ["masked.csv", "audit"])
def test_what_exists_is_not_overwritten(safeswap, tmp_path, survey, listing, taken):
    (tmp_path / taken).write_text("mine")
    before = listing()
    check_refusal(safeswap(*swap_to(tmp_path, survey)), exit_code=OUTPUT)
    assert safeswap(*swap_to(tmp_path, survey), "--json").document["code"] == "exists"
    assert listing() == before


def test_force_replaces_a_former_result_and_nothing_else(safeswap, tmp_path, survey):
    assert safeswap(*swap_to(tmp_path, survey)).code == 0
    first = (tmp_path / "masked.csv").read_bytes()
    arguments = [*swap_to(tmp_path, survey)]
    arguments[arguments.index("--insecure-seed") + 1] = "2"
    assert safeswap(*arguments, "--force").code == 0
    assert (tmp_path / "masked.csv").read_bytes() != first


def test_force_does_not_cost_an_input(safeswap, tmp_path, survey, listing):
    before = listing()
    arguments = [*swap_to(tmp_path, survey), "--force"]
    arguments[arguments.index("--output") + 1] = survey
    run = safeswap(*arguments)
    check_refusal(run, exit_code=OUTPUT)
    assert listing() == before


@pytest.mark.skipif(os.name == "nt", reason="there is no such limit there")
@pytest.mark.parametrize("suffix", ["csv", "parquet", "dta", "sav"])
def test_a_file_that_cannot_grow_leaves_nothing_behind(safeswap, tmp_path, listing, suffix):
    import resource

    def limit_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    survey = tmp_path / "survey.csv"
    survey.write_text(survey_text(20_000))
    # Once without the limit: what is compiled on first use is kept in a file too.
    (tmp_path / "first").mkdir()
    assert safeswap(*swap_to(tmp_path / "first", survey), "--identifier", "id").code == 0
    before = listing()
    arguments = swap_to(tmp_path, survey)
    arguments[arguments.index("--output") + 1] = tmp_path / f"masked.{suffix}"
    call = [sys.executable, "-m", "safeswap", *arguments, "--no-scores", "--identifier", "id"]
    done = subprocess.run(call, preexec_fn=limit_files, capture_output=True, text=True, check=False)
    assert done.returncode == OUTPUT, done.stderr
    assert f"no disk space to write 'masked.{suffix}'" in done.stderr
    assert "Traceback" not in done.stderr
    assert listing() == before


def test_a_full_disk_leaves_nothing_behind(safeswap, tmp_path, survey, listing, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = listing()
    monkeypatch.setattr(os, "fsync", full)
    check_refusal(safeswap(*swap_to(tmp_path, survey)), exit_code=OUTPUT)
    assert safeswap(*swap_to(tmp_path, survey), "--json").document["code"] == "disk-full"
    assert safeswap("keygen", tmp_path / "new.key", "--json").document["code"] == "disk-full"
    assert listing() == before
