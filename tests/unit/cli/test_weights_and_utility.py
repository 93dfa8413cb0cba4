"""Weights, partners, targets, indicators and models on the command line, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

HEADER = "id,w,stratum,psu,area,race,income,age"
KINDS = {"id": "identifier", "w": "weight", "income": "numeric", "age": "numeric"}
SCHEMA = "\n".join(
    f'[[attributes]]\nname = "{name}"\nkind = "{KINDS.get(name, "nominal")}"\n'
    + (f'design = "{name}"\n' if name in ("stratum", "psu") else "")
    for name in HEADER.split(",")
)
INDICATORS = """
least = 1
[[indicators]]
name = "income by race"
statistic = "mean"
of = "income"
by = ["race"]
relative = 0.001
[[indicators]]
name = "collinear"
statistic = "regression"
formula = "income ~ area + stratum"
[[indicators]]
name = "no such level"
statistic = "share"
of = "race"
level = "z"
"""


def row(i: int) -> list[str]:
    # Strata are made of areas, so that a model of both is collinear.
    area = i % 4
    values = (i, 1 + i * 7 % 13 / 4, area // 2, i % 5, area, "abc"[i * 5 % 11 % 3], i * 37 % 101, 20 + i * 13 % 60)
    return [str(value) for value in values]


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder, self.rows = folder, [row(i) for i in range(200)]
        self.survey, self.schema, self.masked = folder / "survey.csv", folder / "schema.toml", folder / "masked.csv"
        self.indicators = folder / "indicators.toml"
        self.schema.write_text(SCHEMA)
        self.indicators.write_text(INDICATORS)
        self.write()

    def write(self) -> None:
        self.survey.write_text("\n".join([HEADER, *(",".join(each) for each in self.rows)]) + "\n")

    @property
    def swap(self) -> list[object]:
        outputs = ["--output", self.masked, "--audit", self.folder / "audit", "--insecure-seed", 1, "--force"]
        return ["swap", self.survey, "--schema", self.schema, "--swap", "race", "--rate", 0.4, *outputs]

    @property
    def assess(self) -> list[object]:
        return ["assess", self.survey, self.masked, "--schema", self.schema, "--json"]


@pytest.fixture
def files(tmp_path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        ["--partner", "nearest_weight"],
        ["--partner", "least_bias", "--weight", "w"],
        ["--target-keys", "area,race", "--target-n", 30, "--target-rule", "pps"],
    ],
)
def test_partners_and_targets_are_options(safeswap, files, options):
    run = safeswap(*files.swap, *options, "--no-scores", "--json")
    assert run.code == 0, run.said
    assert run.document["spec"].get("partner", "any") == (options[1] if "--partner" in options else "any")
    assert files.masked.read_text() != files.survey.read_text()


def test_near_weights_keep_weighted_margins(safeswap, files):
    moved = []
    for partner in ("any", "nearest_weight"):
        assert safeswap(*files.swap, "--partner", partner, "--no-scores").code == 0
        (score,) = safeswap(*files.assess, "--measure", "weighted_margins").document["scores"]
        assert "without the weight w it is 0.00%" in score["sentence"]
        moved.append(score["value"])
    assert moved[1] < moved[0] / 2


def test_indicators_and_models_name_what_cannot_be_computed_and_leave_the_rest(safeswap, files):
    assert safeswap(*files.swap, "--no-scores").code == 0
    models = 'coefficients:{"models": [{"formula": "income ~ age + race"}, {"formula": "income ~ area + stratum"}]}'
    run = safeswap(*files.assess, "--indicators", files.indicators, "--measure", models)
    assert run.code == 0, run.said
    scores = {score["measure"].partition(":")[0]: score for score in run.document["scores"]}
    assert scores["indicators"]["value"] > 0
    assert "Beyond their tolerance: 3 of 3." in scores["indicators"]["sentence"]
    assert "Not computed: collinear (" in scores["indicators"]["sentence"]
    assert "no such level (" in scores["indicators"]["sentence"]
    assert "income ~ area + stratum" in scores["coefficients"]["sentence"]
    assert scores["coefficients"]["value"] > 0


@pytest.mark.parametrize(
    ("value", "word"), [("", "missing"), ("inf", "infinite"), ("-4.75", "negative"), ("0", "zero")]
)
def test_a_bad_weight_is_told_by_its_position_and_not_its_value(safeswap, files, value, word):
    assert safeswap(*files.swap, "--no-scores").code == 0
    for path in (files.survey, files.masked):
        lines = path.read_text().splitlines()
        cells = lines[7].split(",")
        lines[7] = ",".join([cells[0], value, *cells[2:]])
        path.write_text("\n".join(lines) + "\n")
    usual = safeswap(*files.assess, "--measure", "hellinger")
    assert usual.code == 0, usual.said
    assert f"Not weighted: 1 record has a weight 'w' that is {word}; the first is record 7." in usual.stdout
    for option in (["--measure", "hellinger:weight=w"], ["--indicators", files.indicators]):
        refused = safeswap(*files.assess, *option)
        assert refused.code == 3, refused.said
        assert refused.document["code"] == "bad-weight"
        assert "record 7" in refused.document["message"]
        assert "4.75" not in refused.said
    partner = safeswap(*files.swap, "--partner", "nearest_weight", "--json")
    assert partner.document["code"] == "bad-weight"
    assert "record 7" in partner.document["message"]
    assert "4.75" not in partner.said


def test_a_stratum_with_one_unit_is_refused_or_joined_on_request(safeswap, files):
    files.rows[0][2] = "alone"
    files.write()
    assert safeswap(*files.swap, "--no-scores").code == 0
    refused = safeswap(*files.assess, "--indicators", files.indicators)
    assert refused.document["code"] == "one-unit-stratum"
    assert "collapse" in refused.document["hint"]
    files.indicators.write_text("collapse = true\n" + INDICATORS)
    assert safeswap(*files.assess, "--indicators", files.indicators).code == 0


def test_a_separated_model_is_named(safeswap, files):
    for each in files.rows:
        each[6] = "1" if int(each[7]) > 50 else "0"  # income tells exactly who is older
    files.write()
    assert safeswap(*files.swap, "--no-scores").code == 0
    models = (
        'ci_overlap:{"models": [{"formula": "income ~ age", "family": "logistic", "name": "separated"}, '
        '{"formula": "age ~ race"}]}'
    )
    run = safeswap(*files.assess, "--measure", models)
    assert run.code == 0, run.said
    (score,) = run.document["scores"]
    assert "separated" in score["sentence"]
    assert score["value"] > 0


def test_reports_and_releases_take_the_indicators(safeswap, tmp_path):
    survey, schema, key = tmp_path / "survey.parquet", tmp_path / "schema.toml", tmp_path / "secret.key"
    assert safeswap("datasets", "write", "household_survey", survey, "--write-schema", schema).code == 0
    assert safeswap("keygen", key).code == 0
    masked, audit = tmp_path / "masked.parquet", tmp_path / "audit"
    outputs = ("--key", key, "--output", masked, "--audit", audit, "--no-scores")
    assert safeswap("swap", survey, "--schema", schema, "--swap", "education", "--rate", 0.1, *outputs).code == 0
    indicators = tmp_path / "indicators.toml"
    indicators.write_text('[[indicators]]\nstatistic = "mean"\nof = "income"\nby = ["education"]\n')
    drop = "household,weight,stratum,psu,region,district,municipality,settlement,birth_date"
    asked = ("--audit", audit, "--indicators", indicators, "--drop", drop, "--output", tmp_path / "reports")
    run = safeswap("report", survey, masked, *asked)
    assert run.code == 0, run.said
    chair, public = ((tmp_path / "reports" / f"{name}.html").read_text() for name in ("chair", "public"))
    assert "each estimate before and after" in chair
    assert "The largest change of a weighted count" in chair
    assert "Multiply" not in public
    terms = ("--audit", audit, "--key", key, "--drop", drop, "--publish-errors", indicators)
    run = safeswap("release", survey, masked, *terms, "--output", tmp_path / "public")
    assert run.code == 0, run.said
    assert "consents" in run.said
    assert "Multiply yours by: " in (tmp_path / "public" / "report.html").read_text()
