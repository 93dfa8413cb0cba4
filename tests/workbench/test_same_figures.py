"""One release under two scenarios: the same figures in Python, on the command line, over HTTP and in the browser."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from playwright.sync_api import Browser
from tests.workbench.desk import Desk
from typer.testing import CliRunner

import safeswap as ss
from safeswap.cli.app import app
from safeswap.files.keyfile import write_key
from safeswap.service.keeping.store import Store
from safeswap.service.keeping.vault import open_vault
from safeswap.service.work.tasks import read_data

SCENARIOS = [
    {"name": "prosecutor", "keys": ["Age", "Edu", "Race"], "tolerance": 5},
    {"name": "nosy neighbour", "keys": ["Age", "Sex", "MS"], "tolerance": 3, "sensitive": ["AnnSal"]},
]
STEPS = [
    {"step": "recode", "attribute": "Edu", "otherwise": "keep", "groups": {"Bachelor or more": ["Bach", "Bach+"]}},
    {"method": "swap", "swap": ["Race"], "fixed": ["Sex"], "rate": 0.1},
    {"method": "suppress", "scenario": "prosecutor", "solver": "greedy"},
]
MEASURES = ["k_anonymity", "l_diversity", "n_rule", "individual_risk", "suda2", "hellinger"]


def count_below(data, keys, k):
    """The share of records that fewer than k share; one with a missing key is alike to nobody in that key."""
    rows = list(zip(*(data.table[name].to_pylist() for name in keys), strict=True))
    known = [tuple((i, each) for i, each in enumerate(row) if each is not None) for row in rows]
    whole = Counter(rows)
    alike = {each: sum(n for row, n in whole.items() if all(row[i] == v for i, v in each)) for each in set(known)}
    return sum(alike[each] < k for each in known) / len(rows)


def test_the_figures_of_a_release_are_the_same_everywhere(
    browser: Browser, desk: Desk, survey: Path, tmp_path: Path
) -> None:
    project = desk.project(survey)
    with desk.client() as client:
        client.change_settings(project, version=client.settings(project).version, scenarios=SCENARIOS, steps=STEPS)
        result = client.wait(client.mask(project, measures=MEASURES)).result
        assert result is not None
        kept = client.masking(project, result.id)
        text = client.project_file(project)
    over_http = [(s["measure"], s["scenario"], s["before"], s["value"]) for s in kept.summary["scores"]]
    # Python, with the project that the service exports.
    key, stated = open_vault(desk.settings).project_key(project), ss.Project.parse(text)
    masked = ss.mask(read_data(Store(desk.settings), project, 1), stated.pipeline, key=key)
    found = ss.assess(masked, scenario=stated.scenarios, measures=MEASURES)
    figures = [(score.measure, score.scenario, score.before, score.value) for score in found]
    assert over_http == figures
    assert len(figures) == 10  # l-diversity under one scenario, the distance once, all others under both
    for scenario, score in zip(stated.scenarios, found, strict=False):
        asked = (scenario.names, scenario.least)
        assert score.before == count_below(masked.original, *asked)
        assert score.value == count_below(masked.data, *asked)
    # The command line, with the same project file and key.
    (tmp_path / "project.toml").write_text(text, encoding="utf-8")
    write_key(key, tmp_path / "key")
    words = ["mask", "pipeline", survey, "--steps", tmp_path / "project.toml", "--key", tmp_path / "key", "--json"]
    words += ["--output", tmp_path / "masked.csv", "--audit", tmp_path / "audit"]
    words += [word for measure in MEASURES for word in ("--measure", measure)]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    typed = json.loads(done.stdout)["scores"]
    assert [(s["measure"], s["scenario"], s["before"], s["value"]) for s in typed] == figures
    # The browser.
    with desk.seen(browser) as seen:
        page = seen.go(f"/projects/{project}/results/{result.id}")
        shown = page.locator("#scores .value")
        values = [
            (each.get_attribute("data-measure"), float(str(each.get_attribute("data-value")))) for each in shown.all()
        ]
        under = [each.get_attribute("data-scenario") for each in page.locator("#scores [data-scenario]").all()]
    assert values == [(measure, value) for measure, _, _, value in figures]
    assert under == [scenario for _, scenario, *_ in figures if scenario]
