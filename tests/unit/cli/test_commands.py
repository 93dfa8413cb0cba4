"""Each command does what it says, for people and for programs, and says no value that few records have."""

import json
import shutil
import stat
from pathlib import Path

import pandas as pd
import pyarrow.parquet
import pyreadstat
import pytest
from tests.unit.cli.conftest import survey_text

from safeswap import datasets, registry, workflow


def test_keygen_makes_a_private_key(safeswap, tmp_path):
    run = safeswap("keygen", tmp_path / "a.key", "--json")
    assert run.code == 0
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600
    assert workflow.read_key(tmp_path / "a.key").id == run.document["key_id"]
    secret = (tmp_path / "a.key").read_text().split(":")[1].strip()
    assert secret not in run.stdout


def test_keygen_never_replaces_a_key_unasked(safeswap, key):
    before = key.read_bytes()
    assert safeswap("keygen", key).code == 8
    assert key.read_bytes() == before
    assert safeswap("keygen", key, "--force").code == 0
    assert key.read_bytes() != before


def test_a_key_that_others_can_read_is_refused(safeswap, place):
    place.key.chmod(0o644)
    run = safeswap(*place.swap)
    assert run.code == 3
    assert "others" in run.stderr
    assert not place.audit.exists()


def test_describe_shows_attributes_and_small_cells_and_no_rare_value(safeswap, tmp_path):
    path = tmp_path / "survey.csv"
    path.write_text(survey_text() + "99999,Martian,f,44,nowhere\n")
    run = safeswap("describe", path)
    assert run.code == 0
    assert "401 records" in run.stdout
    assert "white 160" in run.stdout
    assert "Martian" not in run.said
    document = safeswap("describe", path, "--json").document
    assert document["records"] == 401
    assert [a["name"] for a in document["attributes"]] == ["id", "Race", "Sex", "Age", "Town"]
    assert "Martian" not in json.dumps(document)


def test_describe_writes_a_schema_that_the_other_commands_take(safeswap, survey, tmp_path):
    schema = tmp_path / "survey.toml"
    assert safeswap("describe", survey, "--identifier", "id", "--write-schema", schema).code == 0
    corrected = (
        schema.read_text()
        .replace('kind = "numeric"', 'kind = "ordinal"')
        .replace("inferred = true", "inferred = false")
    )
    schema.write_text(corrected)
    document = safeswap("describe", survey, "--schema", schema, "--json").document
    assert {a["name"]: a["kind"] for a in document["attributes"]}["Age"] == "ordinal"
    assert not any(a["inferred"] for a in document["attributes"])


def test_swap_says_plan_totals_scores_and_places(safeswap, place):
    run = safeswap(*place.swap)
    assert run.code == 0, run.said
    for told in ("20 pairs requested", "20 pairs exchanged", "40 of 400 records", "n_rule", "hellinger"):
        assert told in run.stdout
    assert str(place.masked) in run.stdout
    assert run.stderr == ""


def test_swap_under_json_is_one_document(safeswap, place):
    document = safeswap(*place.swap, "--json").document
    assert (document["asked"], document["made"], document["for_release"]) == (20, 20, True)
    assert {score["measure"] for score in document["scores"]} == set(registry.default_measures("categories"))
    assert document["spec"] == {"method": "swap", "swap": ["Race"], "rate": 0.1}


def test_the_masked_file_differs_from_the_original_in_the_swapped_column_alone(safeswap, place):
    assert safeswap(*place.swap).code == 0
    rows = [[line.split(",") for line in path.read_text().splitlines()] for path in (place.survey, place.masked)]
    changed = [(old, new) for old, new in zip(*rows, strict=True) if old != new]
    assert len(changed) == 40
    assert all(old[:1] + old[2:] == new[:1] + new[2:] for old, new in changed)


def test_the_same_key_makes_the_same_file_and_another_key_another(safeswap, place):
    assert safeswap(*place.swap).code == 0
    first = place.masked.read_bytes()
    assert safeswap(*place.swap, "--force").code == 0
    assert place.masked.read_bytes() == first
    assert safeswap("keygen", place.key, "--force").code == 0
    assert safeswap(*place.swap, "--force").code == 0
    assert place.masked.read_bytes() != first


def test_every_option_of_the_swap_reaches_the_specification(safeswap, place):
    options = ["--fixed", "Sex", "--differ", "Town", "--true-swap", "all", "--mode", "sequential"]
    options += ["--on-shortfall", "take", "--pairing", "uniform"]
    options += ["--target-keys", "Race,Sex", "--target-n", "4", "--target-weight", "2.5"]
    document = safeswap(*place.swap, *options, "--json").document
    assert document["spec"] == {
        "method": "swap",
        "swap": ["Race"],
        "fixed": ["Sex"],
        "differ": ["Town"],
        "rate": 0.1,
        "true_swap": "all",
        "pairing": "uniform",
        "mode": "sequential",
        "on_shortfall": "take",
        "targeting": {"keys": ["Race", "Sex"], "n": 4, "weight": 2.5},
    }


def test_an_attribute_may_be_swapped_and_have_to_differ(safeswap, survey):
    roles = ["--swap", "Race,Sex", "--differ", "Race"]
    document = safeswap("swap", survey, *roles, "--pairs", "10", "--plan-only", "--json").document
    assert document["plan"]["is_feasible"]
    assert document["plan"]["at_most"] is None


def test_plan_only_needs_no_key_and_writes_nothing(safeswap, survey, listing):
    before = listing()
    run = safeswap("swap", survey, "--swap", "Race", "--pairs", "10", "--plan-only")
    assert run.code == 0
    assert "10 pairs requested" in run.stdout
    assert listing() == before


def test_plan_only_says_what_would_help(safeswap, survey):
    request = ["swap", survey, "--swap", "Race", "--fixed", "Town,Age", "--pairs", "200", "--plan-only"]
    plan = safeswap(*request, "--json").document["plan"]
    assert plan["is_feasible"] is False
    assert plan["relaxations"][0]["change"] in safeswap(*request).stdout


def test_a_shortfall_is_told_in_words_of_the_command_line(safeswap, place):
    request = [*place.swap, "--fixed", "Town,Age"]
    request[request.index("0.1")] = "1"
    run = safeswap(*request)
    assert run.code == 5
    assert "--on-shortfall take" in run.stderr


def test_two_sources_of_randomness_or_none_are_refused(safeswap, place):
    assert safeswap(*place.swap, "--insecure-seed", "1").code == 4
    without = [x for x in place.swap if x not in ("--key", place.key)]
    run = safeswap(*without)
    assert run.code == 4
    assert "--key" in run.stderr


def test_an_insecure_seed_is_stamped_and_cannot_be_released(safeswap, place):
    insecure = [x for x in place.swap if x not in ("--key", place.key)]
    run = safeswap(*insecure, "--insecure-seed", "7")
    assert run.code == 0
    assert "NOT FOR RELEASE" in run.stderr
    refused = safeswap(*place.release)
    assert refused.code == 6
    assert not place.bundle.exists()


def test_assess_measures_two_files(safeswap, place):
    assert safeswap(*place.swap).code == 0
    files = ["assess", place.survey, place.masked, "--identifier", "id"]
    scores = safeswap(*files, "--json").document["scores"]
    assert {score["measure"]: score["value"] for score in scores}["share_changed"] == 0.1
    measures = ["--measure", "n_rule:n=5", "--measure", "D", "--keys", "Race,Sex"]
    scores = safeswap(*files, *measures, "--json").document["scores"]
    assert [score["measure"] for score in scores] == ["n_rule:n=5,keys=Race+Sex", "D"]


def test_assess_lists_the_small_tables_that_changed(safeswap, place):
    # A fixed seed: under a fresh key the few exchanges may cancel out in a table as small as Race × Sex.
    request = [word if word != "--key" else "--insecure-seed" for word in place.swap]
    assert safeswap(*[1 if word == place.key else word for word in request]).code == 0
    run = safeswap("assess", place.survey, place.masked, "--attributes", "Race,Sex,Town", "--ways", "2")
    assert run.code == 0
    assert "2 of 3 tables of 2 attributes changed" in run.stdout
    assert "Race × Sex" in run.stdout
    assert "\nSex × Town" not in run.stdout


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_the_masked_file_may_be_laid_out_otherwise_than_the_original(safeswap, tmp_path, encoding):
    original, masked = tmp_path / "original.csv", tmp_path / "masked.csv"
    text = survey_text().replace("white", "weiß")
    original.write_text(text.replace(",", ";"), encoding="latin-1")
    masked.write_text(text if encoding == "utf-8" else text.replace(",", ";"), encoding=encoding)
    layout = ["--encoding", "latin-1", "--delimiter", ";"]
    run = safeswap("assess", original, masked, "--measure", "share_changed", *layout, "--json")
    assert run.document["scores"][0]["value"] == 0


def test_an_unknown_measure_is_refused_with_a_guess(safeswap, survey):
    run = safeswap("assess", survey, survey, "--measure", "helinger")
    assert run.code == 4
    assert "hellinger" in run.stderr


@pytest.mark.parametrize("data_format", ["csv", "parquet", "dta", "sav"])
def test_release_makes_a_bundle_that_verifies(safeswap, place, data_format):
    assert safeswap(*place.swap).code == 0
    run = safeswap(*place.release, "--format", data_format, "--title", "The survey")
    assert run.code == 0, run.said
    assert (place.bundle / f"data.{data_format}").exists()
    verified = safeswap("verify", place.bundle, "--json").document
    assert (verified["records"], verified["facts"]["title"]) == (400, "The survey")
    assert "400 records" in safeswap("verify", place.bundle).stdout


def test_release_drops_columns_and_identifiers_when_told(safeswap, place):
    assert safeswap(*place.swap).code == 0
    run = safeswap(*place.release, "--identifiers", "none", "--drop", "Town,Age", "--json")
    assert run.code == 0, run.said
    assert (place.bundle / "data.csv").read_text().splitlines()[0] == "Race,Sex"
    assert run.document["audit"].startswith(str(place.audit))


def test_a_changed_masked_file_is_not_released(safeswap, place):
    assert safeswap(*place.swap).code == 0
    place.masked.write_text(place.masked.read_text().replace("white", "black", 1))
    run = safeswap(*place.release)
    assert run.code == 3
    assert not place.bundle.exists()


def test_a_changed_original_is_not_released(safeswap, place):
    assert safeswap(*place.swap).code == 0
    place.survey.write_text(place.survey.read_text().replace(",f,", ",m,", 1))
    run = safeswap(*place.release)
    assert run.code == 6
    assert not place.bundle.exists()


def test_a_second_release_of_the_same_records_is_refused_unless_wanted(safeswap, place):
    assert safeswap(*place.swap).code == 0
    assert safeswap(*place.release).code == 0
    place.masked, place.bundle = place.folder / "again.csv", place.folder / "again"
    second = place.swap
    second[second.index("0.1")] = "0.2"
    assert safeswap(*second).code == 0
    run = safeswap(*place.release)
    assert run.code == 6
    assert "--second-release" in run.stderr
    assert safeswap(*place.release, "--second-release", "a better rate").code == 0


def test_verify_finds_a_changed_file(safeswap, place):
    assert safeswap(*place.swap).code == 0
    assert safeswap(*place.release).code == 0
    data = place.bundle / "data.csv"
    data.write_text(data.read_text().replace("white", "black", 1))
    run = safeswap("verify", place.bundle)
    assert run.code == 6
    assert "data.csv" in run.stderr


def test_verify_of_no_bundle_is_an_input_error(safeswap, tmp_path):
    assert safeswap("verify", tmp_path).code == 3
    assert safeswap("verify", tmp_path / "nowhere").code == 3


def test_a_typed_file_comes_through_a_text_file_unharmed(safeswap, place):
    table = workflow.read(place.survey, identifier="id").table
    typed = table.set_column(3, "Age", table["Age"].cast("int16"))
    original = place.folder / "survey.parquet"
    pyarrow.parquet.write_table(typed, original)
    calls = [[x if x != place.survey else original for x in call] for call in (place.swap, place.release)]
    for call in calls:
        run = safeswap(*call)
        assert run.code == 0, run.said


def test_an_original_of_another_layout_comes_through_to_the_release(safeswap, place):
    place.survey.write_text(survey_text().replace("white", "weiß").replace(",", ";"), encoding="latin-1")
    assert safeswap(*place.swap, "--encoding", "latin-1", "--delimiter", ";", "--max-columns", "9").code == 0
    run = safeswap(*place.release)
    assert run.code == 0, run.said
    assert "weiß" in (place.bundle / "data.csv").read_text(encoding="utf-8")


def test_datasets_are_listed_and_written(safeswap, tmp_path):
    assert "cps8d" in safeswap("datasets").stdout
    assert safeswap("datasets", "list", "--json").document == safeswap("datasets", "--json").document
    path, schema = tmp_path / "cps.csv", tmp_path / "cps.toml"
    assert safeswap("datasets", "write", "cps8d", path, "--write-schema", schema).code == 0
    data = workflow.read(path, schema=schema)
    assert len(data) == 48_842
    assert data.schema.names == datasets.cps8d().schema.names
    assert safeswap("datasets", "write", "cps8d", path).code == 8
    assert safeswap("datasets", "write", "nonsense", tmp_path / "x.csv").code == 4


def test_the_demo_ends_in_a_bundle_that_verifies(safeswap, tmp_path):
    run = safeswap("demo", "--output", tmp_path / "demo")
    assert run.code == 0, run.said
    assert safeswap("verify", tmp_path / "demo" / "public").code == 0
    assert safeswap("demo", "--output", tmp_path / "demo").code == 8


def test_a_demo_that_fails_leaves_nothing(safeswap, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(workflow, "release", fail)
    assert safeswap("demo", "--output", tmp_path / "demo").code == 130
    assert not (tmp_path / "demo").exists()


def test_quiet_says_nothing(safeswap, place):
    for call in (["describe", place.survey], place.swap, place.release, ["verify", place.bundle], ["datasets"]):
        run = safeswap(*call, "--quiet")
        assert (run.code, run.said) == (0, "")


def test_undo_gives_the_original_back(safeswap, tmp_path):
    safeswap("datasets", "write", "cps8d", tmp_path / "d.csv")
    safeswap("keygen", tmp_path / "k.key")
    options = ["--swap", "Race", "--rate", "0.05", "--key", tmp_path / "k.key", "--no-scores"]
    safeswap("swap", tmp_path / "d.csv", *options, "--output", tmp_path / "m.csv", "--audit", tmp_path / "audit")
    record = next((tmp_path / "audit").iterdir())
    assert (tmp_path / "m.csv").read_bytes() != (tmp_path / "d.csv").read_bytes()
    assert safeswap("undo", tmp_path / "m.csv", "--record", record, "--output", tmp_path / "o.csv").code == 0
    assert (tmp_path / "o.csv").read_bytes() == (tmp_path / "d.csv").read_bytes()


def test_a_release_in_which_nothing_was_masked_has_to_be_stated(safeswap, place):
    swap = [each if each != "0.1" else "0.0001" for each in place.swap]
    assert safeswap(*swap, "--on-shortfall", "take").code == 0
    refused = safeswap(*place.release)
    assert refused.code == 6
    assert "nothing was masked" in refused.stderr
    assert "--unmasked" in refused.stderr
    assert not place.bundle.exists()
    stated = safeswap(*place.release, "--unmasked")
    assert stated.code == 0
    assert "nothing was masked" in stated.stderr
    assert "Nothing was masked" in (place.bundle / "report.html").read_text()


def test_a_file_that_was_masked_before_is_released_with_its_whole_story(safeswap, place):
    again = place.folder / "again.csv"
    assert safeswap(*place.swap).code == 0
    second = ["mask", "pram", place.masked, "--identifier", "id", "--attributes", "Sex", "--key", place.key]
    assert safeswap(*second, "--output", again, "--audit", place.audit).code == 0
    run = safeswap("release", place.masked, again, "--audit", place.audit, "--key", place.key, "--output", place.bundle)
    assert run.code == 0, run.said
    report = (place.bundle / "report.html").read_text()
    assert "Data swapping between random pairs of records; then Post-randomisation" in report
    assert "unchanged in every record" not in report


def written_by(command: str, folder: Path, output: Path) -> list[object]:
    """The arguments with which a command writes a data file from ``folder / "s.sav"``."""
    source, seed = folder / "s.sav", ["--insecure-seed", "1"]
    places = ["--output", output, "--audit", folder / "audit", "--no-scores"]
    match command:
        case "swap":
            return ["swap", source, "--swap", "sex", "--rate", "0.2", *seed, *places]
        case "mask":
            return ["mask", "pram", source, "--attributes", "sex", "--keep", "0.5", *seed, *places]
        case "safe":
            return ["safe", "records", source, "--tables", "sex,area", *seed, *places]
        case "recode":
            (folder / "r.toml").write_text('[[steps]]\nstep = "drop"\nattributes = ["area"]\n')
            return ["recode", source, "--recipe", folder / "r.toml", "--output", output]
        case _:
            return ["undo", folder / "masked.sav", "--record", next((folder / "audit").iterdir()), "--output", output]


@pytest.mark.parametrize("command", ["swap", "mask", "safe", "recode", "undo"])
def test_every_command_that_writes_data_says_what_the_format_drops(safeswap, tmp_path, command):
    frame = pd.DataFrame(
        {"sex": [1.0, 2.0] * 30, "area": [1.0, 2.0, 3.0] * 20, "pay": [1.5 * (i % 20) for i in range(60)]}
    )
    formats = {"pay": "DOLLAR8.2"}
    pyreadstat.write_sav(frame, tmp_path / "s.sav", variable_format=formats, variable_measure={"sex": "nominal"})
    if command == "undo":
        assert safeswap(*written_by("swap", tmp_path, tmp_path / "masked.sav")).code == 0
    run = safeswap(*written_by(command, tmp_path, tmp_path / "out.dta"))
    assert run.code == 0, run.said
    assert "not preserved in the file: pay: the display format DOLLAR8.2 becomes %8.2f" in run.stderr
    kept = safeswap(*written_by(command, tmp_path, tmp_path / "out.sav"))
    assert kept.code == 0, kept.said
    assert "not preserved" not in kept.said


def test_a_release_tells_steps_whose_records_are_elsewhere(safeswap, survey, key, tmp_path) -> None:
    """Three commands, three audit directories; the first step leaves no record at all."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[[steps]]\nstep = "ranges"\nattribute = "Age"\nbreaks = [40, 60]\n')
    files = [tmp_path / name for name in ("recoded.csv", "swapped.csv", "masked.csv")]
    assert safeswap("recode", survey, "--recipe", recipe, "--output", files[0]).code == 0
    secret = ("--key", key, "--identifier", "id")
    swap = ("swap", files[0], "--swap", "Race", "--rate", "0.2", *secret)
    assert safeswap(*swap, "--output", files[1], "--audit", tmp_path / "one").code == 0
    pram = ("mask", "pram", files[1], "--attributes", "Sex", *secret)
    assert safeswap(*pram, "--output", files[2], "--audit", tmp_path / "two").code == 0
    shutil.rmtree(tmp_path / "one")
    public = tmp_path / "public"
    places = ("--audit", tmp_path / "two", "--output", public, "--drop", "Town", "--key", key)
    run = safeswap("release", files[1], files[2], *places)
    assert run.code == 0, run.said
    facts = json.loads((public / "manifest.json").read_bytes())["facts"]
    assert facts["method"].startswith("Recoding; then Data swapping between random pairs of records; then Post-random")
    assert facts["kept_exactly"] == []
