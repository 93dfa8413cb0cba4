"""``safeswap recode`` and ``safeswap advice``."""

from __future__ import annotations

from pathlib import Path

import pytest

from safeswap import datasets
from safeswap.files.write import write
from safeswap.projects.toml import read_recipe

RECIPE = """
[[steps]]
step = "recode"
attribute = "Edu"
otherwise = "keep"
groups = { "Bachelor or more" = ["Bach", "Bach+"] }

[[steps]]
step = "drop"
attributes = ["Sex"]
"""
KEYS = ("--keys", "Age,Edu,EmpTyp,MS,Race,Sex", "--up-to", "4")


@pytest.fixture
def cps(tmp_path: Path) -> tuple[Path, Path]:
    file, recipe = tmp_path / "cps.csv", tmp_path / "recipe.toml"
    write(datasets.cps8d(), file)
    recipe.write_text(RECIPE)
    return file, recipe


def test_recode_shows_the_risk_after_each_step_and_writes_the_file(safeswap, cps, tmp_path: Path) -> None:
    file, recipe = cps
    done = safeswap("recode", file, "--recipe", recipe, *KEYS, "--output", tmp_path / "out.csv", "--json")
    assert done.code == 0, done.said
    unsafe = [stage["unsafe_combinations"] for stage in done.document["stages"]]
    assert len(unsafe) == 3
    assert unsafe == sorted(unsafe, reverse=True)
    assert "Sex" not in (tmp_path / "out.csv").read_text().splitlines()[0]


def test_a_recoded_file_can_be_released(safeswap, cps, tmp_path: Path) -> None:
    file, recipe = cps
    places = ("--audit", tmp_path / "audit", "--key", tmp_path / "k.key")
    assert safeswap("keygen", tmp_path / "k.key").code == 0
    outputs = ("--output", tmp_path / "out.parquet", "--report", tmp_path / "report.html")
    done = safeswap("recode", file, "--recipe", recipe, *places, *outputs)
    assert done.code == 0, done.said
    assert "Information lost" in (tmp_path / "report.html").read_text()
    released = safeswap("release", file, tmp_path / "out.parquet", *places, "--output", tmp_path / "public")
    assert released.code == 0, released.said
    assert "Sex" not in (tmp_path / "public" / "data.csv").read_text().splitlines()[0]


def test_recode_by_a_file_of_argus(safeswap, cps, tmp_path: Path) -> None:
    (tmp_path / "edu.grc").write_text('low: "<HS", HS\n')
    written = tmp_path / "written.toml"
    done = safeswap("recode", cps[0], "--grc", f"Edu={tmp_path / 'edu.grc'}", "--write-recipe", written)
    assert done.code == 0, done.said
    assert len(read_recipe(written)[0].spans) == 2


def test_advice_ranks_recodes_and_writes_the_best(safeswap, cps, tmp_path: Path) -> None:
    done = safeswap("advice", cps[0], *KEYS, "--take", tmp_path / "next.toml", "--most", "3", "--json")
    assert done.code == 0, done.said
    assert len(done.document["advice"]) == 3
    shown = safeswap("recode", cps[0], "--recipe", tmp_path / "next.toml", *KEYS, "--json").document["stages"]
    assert shown[1]["unsafe_combinations"] == done.document["advice"][0]["unsafe"]
    told = safeswap("advice", cps[0], *KEYS, "--recipe", tmp_path / "next.toml")
    assert "removed per percent lost" in told.said


def test_a_recipe_may_suppress_what_recoding_left(safeswap, cps, tmp_path: Path) -> None:
    file, recipe = cps
    keys = ["Age", "Edu", "EmpTyp", "MS", "Race"]
    recipe.write_text(f'{RECIPE}\n[[steps]]\nmethod = "suppress"\nkeys = {keys}\nup_to = 4\n')
    protect = ("--keys", ",".join(keys), "--up-to", "4")
    assert safeswap("recode", file, "--recipe", recipe, *protect).code == 4
    assert safeswap("keygen", tmp_path / "k.key").code == 0
    secret = ("--key", tmp_path / "k.key")
    outputs = ("--output", tmp_path / "out.csv", "--write-schema", tmp_path / "out.toml")
    done = safeswap("recode", file, "--recipe", recipe, *protect, *secret, *outputs, "--json")
    assert done.code == 0, done.said
    assert done.document["stages"][-1]["unsafe_combinations"] == 0
    counted = safeswap("risky", tmp_path / "out.csv", "--schema", tmp_path / "out.toml", *protect, "--json")
    assert counted.document["unsafe_combinations"] == 0
    release = ("--output", tmp_path / "b.csv", "--audit", tmp_path / "inside", "--write-recipe", tmp_path / "b.toml")
    refused = safeswap("recode", file, "--recipe", recipe, *secret, *release)
    assert refused.code == 4
    assert not any((tmp_path / name).exists() for name in ("b.csv", "b.toml", "inside"))


def test_a_recoded_file_is_assessed_by_what_its_columns_are_now(safeswap, tmp_path: Path) -> None:
    file, schema, recipe = tmp_path / "cps.csv", tmp_path / "cps.toml", tmp_path / "recipe.toml"
    assert safeswap("datasets", "write", "cps8d", file, "--write-schema", schema).code == 0
    recipe.write_text(RECIPE.partition('[[steps]]\nstep = "drop"')[0])
    outputs = ("--output", tmp_path / "out.csv", "--write-schema", tmp_path / "out.toml")
    assert safeswap("recode", file, "--schema", schema, "--recipe", recipe, *outputs).code == 0
    asked = ("assess", file, tmp_path / "out.csv", "--schema", schema)
    refused = safeswap(*asked)
    assert refused.code == 3
    assert "--masked-schema" in refused.said
    done = safeswap(*asked, "--masked-schema", tmp_path / "out.toml", "--json")
    assert done.code == 0, done.said
    found = {score["measure"]: score["value"] for score in done.document["scores"]}
    assert found["hellinger"] == 0
    assert 0 < found["information_loss"] < 1


def test_what_is_wrong_is_said(safeswap, cps, tmp_path: Path) -> None:
    file, recipe = cps
    assert safeswap("recode", file).code == 4
    assert safeswap("recode", file, "--recipe", tmp_path / "gone.toml").code == 3
    assert safeswap("recode", file, "--recipe", recipe, "--audit", tmp_path / "a").code == 2
    assert safeswap("recode", file, "--grc", "Edu").code == 4
    assert safeswap("advice", file, "--keys", "Nowhere").code == 4
    assert safeswap("advice", file, "--keys", "Race", "--take", tmp_path / "t.toml").code == 5
    assert not (tmp_path / "t.toml").exists()
    recipe.write_text('[[steps]]\nstep = "recode"\nattribute = "Race"\nmap = { Zanzibar = "x" }\n')
    refused = safeswap("recode", file, "--recipe", recipe)
    assert refused.code == 4
    assert "White" not in refused.said


def test_dates_are_banded_and_moved_on_the_command_line(safeswap, tmp_path: Path) -> None:
    file, schema, recipe = tmp_path / "survey.csv", tmp_path / "survey.toml", tmp_path / "recipe.toml"
    assert safeswap("datasets", "write", "household_survey", file, "--write-schema", schema).code == 0
    recipe.write_text(
        '[[steps]]\nstep = "date_band"\nattribute = "birth_date"\nby = "age"\nat = 2023-12-31\nbreaks = [15, 65]\n'
    )
    keys = ("--keys", "birth_date,sex,region")
    coarse = tmp_path / "coarse.toml"
    done = safeswap("recode", file, "--schema", schema, "--recipe", recipe, *keys, "--write-schema", coarse, "--json")
    assert done.code == 0, done.said
    first, last = done.document["stages"]
    assert first["unsafe_combinations"] is None, "a date is no key"
    assert last["unsafe_combinations"] == 0
    assert 'levels = [\n    "<15",\n    "15-64",\n    ">=65",\n]' in coarse.read_text()
    places = ("--output", tmp_path / "moved.csv", "--audit", tmp_path / "audit", "--insecure-seed", "1", "--no-scores")
    spec = ("--attributes", "birth_date", "--days", "30")
    moved = safeswap("mask", "noise", file, "--schema", schema, *spec, *places)
    assert moved.code == 0, moved.said
    assert "30 days" in moved.said
