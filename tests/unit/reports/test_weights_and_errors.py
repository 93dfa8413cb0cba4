"""The largest weighted change and the errors that masking adds, told to those who may know them."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

import safeswap as ss
from safeswap.errors import SpecError
from safeswap.measures.utility.indicators import Indicators
from safeswap.model.masked import Masked
from safeswap.reports.facts import Facts, band

INDICATORS = Indicators(
    lines=[
        {"statistic": "mean", "of": "income", "by": ["education"]},
        {"statistic": "share", "of": "sex", "level": "1", "by": ["education"]},
    ]
)
FILE = """
[[indicators]]
statistic = "mean"
of = "income"
by = ["education"]

[[indicators]]
statistic = "share"
of = "sex"
level = "1"
by = ["education"]
"""
DROP = ["household", "weight", "stratum", "psu", "region", "district", "municipality", "settlement", "birth_date"]


@pytest.fixture(scope="module")
def key() -> ss.Key:
    return ss.Key.generate()


@pytest.fixture(scope="module")
def masked(key: ss.Key) -> Masked:
    return ss.swap(ss.datasets.household_survey(), swap=["education"], rate=0.1, key=key)


@pytest.fixture(scope="module")
def facts(masked: Masked) -> Facts:
    return ss.report(masked, measures=["hellinger"], indicators=INDICATORS.text, drop=DROP)


LEVELS = range(1, 6)
"""Of education; 9 stands for a missing value."""


def weighted_counts(table: object) -> dict[object, float]:
    found: dict[object, float] = {}
    for row in table.to_pylist():  # type: ignore[attr-defined]
        found[row["education"]] = found.get(row["education"], 0.0) + row["weight"]
    return found


def test_the_largest_weighted_change_is_that_of_the_files(masked: Masked, facts: Facts) -> None:
    before, after = (weighted_counts(data.table) for data in (masked.original, masked.data))
    expected = max(abs(after[level] - value) / value for level, value in before.items() if level in LEVELS)
    assert facts.weights is not None
    assert facts.weights.change == pytest.approx(expected, rel=1e-9)
    assert facts.weights.unweighted == 0  # a swap keeps the numbers of records
    told = f"{expected:.2%}"
    assert all(told in facts.page(reader).decode() for reader in ("analyst", "chair", "five-safes"))
    members = facts.page("members").decode()
    assert told not in members
    assert f"weighted count: {band(expected)}" in members
    public = facts.page("public").decode()
    assert told not in public
    assert repr(facts.weights.change)[:8] not in facts.dump("public").decode()


def test_partners_of_equal_weight_leave_weighted_margins_exact(key: ss.Key) -> None:
    held = ss.swap(ss.datasets.household_survey(), swap=["education"], fixed=["weight"], pairs=5, key=key)
    told = ss.report(held, measures=["hellinger"]).weights
    assert told is not None
    assert told.change == pytest.approx(0.0, abs=1e-12)


def test_a_file_without_a_weight_has_no_weighted_change() -> None:
    masked = ss.swap(ss.datasets.cps8d(), swap=["Race"], rate=0.01, insecure_seed=1)
    assert ss.report(masked, measures=["hellinger"]).weights is None


def test_the_board_has_every_estimate_and_the_public_none_without_consent(facts: Facts, masked: Masked) -> None:
    (figure,) = (each for each in facts.figures if each.estimates)
    score = INDICATORS.score(ss.workflow.assessing.compare(masked))
    assert score.detail is not None
    rows = score.detail.to_pylist()
    assert len(figure.estimates) == len(rows)
    for kind, factor in figure.multipliers:
        ratios = [row["error_after"] / row["error"] for row in rows if row["statistic"] == kind]
        assert factor == pytest.approx(median(ratios), abs=0.0101)
        assert factor >= median(ratios) - 1e-9
    chair = facts.page("chair").decode()
    assert "Key indicators: each estimate before and after." in chair
    assert all(f"{factor:.2f}" in chair for _, factor in figure.multipliers)
    for reader in ("members", "public"):
        page, content = facts.page(reader).decode(), facts.dump(reader).decode()
        assert "ultiply" not in page
        assert "inflation" not in content
        assert "[]" in content  # the multipliers
    assert "indicators" not in facts.public_page().facts.as_dict()


def test_multipliers_are_published_only_with_consent(masked: Masked, key: ss.Key, tmp_path: Path) -> None:
    (tmp_path / "indicators.toml").write_text(FILE)
    asked: dict[str, Any] = {"drop": DROP, "title": "Survey"}
    agreed = ss.report(masked, measures=["hellinger"], publish_errors=tmp_path / "indicators.toml", **asked)
    found = dict(agreed.public_page().facts.multipliers)
    assert set(found) == {"mean", "share"}
    assert (
        f"Multiply yours by: {found['mean']:.2f} (mean), {found['share']:.2f} (share)."
        in agreed.page("public").decode()
    )
    assert f"{found['mean']:.2f}" in agreed.page("members").decode()
    published = ss.release(
        masked, tmp_path / "public", audit=tmp_path / "audit", key=key, publish_errors=INDICATORS.text, **asked
    )
    assert (published.public / "report.html").read_bytes() == agreed.page("public")
    manifest = json.loads((published.public / "manifest.json").read_text())
    assert manifest["facts"]["error_multipliers"] == found
    assert any("standard errors" in remark.message for remark in published.remarks)
    assert ss.workflow.verify(published.public).records == len(masked.data)
    plain = ss.release(masked, tmp_path / "other", audit=tmp_path / "audit", key=key, second_release="a test", **asked)
    assert "error_multipliers" not in (plain.public / "manifest.json").read_text()


@pytest.mark.parametrize("text", ["hellinger", 'indicators:{"lines": [{"statistic": "mean", "of": "income"}]}'])
def test_what_has_no_multiplier_cannot_be_published(masked: Masked, text: str) -> None:
    from safeswap.releases.publish import _multipliers

    with pytest.raises(SpecError, match=r"standard errors|three estimates"):
        _multipliers(masked, text)


def test_a_study_gives_the_spread_between_draws_as_a_second_estimate(masked: Masked, key: ss.Key) -> None:
    survey = masked.original
    study = ss.study(
        survey, attributes=["education"], rates=[0.1], keys=["sex", "education"], replicates=3, key=key,
        distortion=[INDICATORS.text],
    )  # fmt: skip
    spread = study.facts["indicator_spread"]
    assert spread["draws"] == 3
    draws = [
        ss.registry.method("swap").apply(survey, study.specs[0], key=key, replicate=r).data.table for r in range(3)
    ]

    def mean_income(table: object, level: str) -> float:
        rows = [r for r in table.to_pylist() if str(r["education"]) == level and r["income"] is not None]  # type: ignore[attr-defined]
        return float(sum(r["weight"] * r["income"] for r in rows) / sum(r["weight"] for r in rows))

    for row in [each for each in spread["rows"] if each["statistic"] == "mean"][:3]:
        (level,) = row["domain"]
        changes = [mean_income(table, level) - mean_income(survey.table, level) for table in draws]
        assert row["bias"] == pytest.approx(np.mean(changes), rel=1e-6, abs=1e-6)
        assert row["between"] == pytest.approx(np.std(changes, ddof=1), rel=1e-6, abs=1e-6)
        assert row["total_error"] ** 2 == pytest.approx(row["error"] ** 2 + row["between"] ** 2 + row["bias"] ** 2)
    told = ss.report(masked, measures=["hellinger"], study=study)
    assert "Second estimate: 3 draws of the chosen specification." in told.page("chair").decode()
    assert "draws of the chosen" not in told.page("members").decode()
