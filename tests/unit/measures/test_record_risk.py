"""Unsafe records and correct links as figures of risk, on the map and for every method."""

from __future__ import annotations

import numpy as np
import pytest

from safeswap import datasets, registry, workflow
from safeswap.errors import SpecError
from safeswap.measures.plot.values import Policy

KEYS = ("turnover", "employees")


def masked(size=0.05):
    data = datasets.synthetic_enterprises()
    return workflow.mask(data, {"method": "rank_swap", "attributes": KEYS, "window": size}, insecure_seed=1)


def test_the_measures_are_read_off_the_plot():
    found = masked()
    plot = workflow.confidentiality(found, keys=KEYS, policy=Policy(r=0.1, k=20))
    scores = workflow.assess(
        found, measures=["unsafe_share:keys=turnover+employees,r=0.1,k=20", "correct_links:keys=turnover+employees"]
    )
    assert [score.value for score in scores] == [plot.unsafe_share, plot.correct_link_share]
    assert scores.scores[1].detail["correct_links"].to_pylist() == [int(plot.links.sum())]


def test_more_perturbation_means_less_risk():
    near, far = (workflow.assess(masked(w), measures=["correct_links:keys=turnover+employees"]) for w in (0.01, 0.3))
    assert near.scores[0].value > 5 * far.scores[0].value


def test_categorical_keys_are_counted():
    data = datasets.cps8d()
    assessed = workflow.assess(data, data, measures=["unsafe_share:keys=Age+Edu+Race,k=5"])
    codes, sizes = data.coded_columns(("Age", "Edu", "Race"))
    cells = codes[0].astype(int) * sizes[1] * sizes[2] + codes[1].astype(int) * sizes[2] + codes[2]
    counts = np.bincount(cells)[cells]
    assert assessed.scores[0].value == float((counts < 5).mean())


def test_keys_that_do_not_fit_are_refused():
    data = datasets.synthetic_enterprises()
    for text, code in (
        ("correct_links:keys=region", "key-not-numeric"),
        ("correct_links:keys=region+turnover", "mixed-keys"),
        ("unsafe_share:keys=nowhere", "unknown-attribute"),
        ("unsafe_share:alpha=2", "bad-spec"),
        ("unsafe_share:scale=cubic", "bad-spec"),
    ):
        with pytest.raises(SpecError) as caught:
            workflow.assess(data, data, measures=[text])
        assert caught.value.code == code, text


def test_every_method_stands_on_one_map():
    data = datasets.synthetic_enterprises(500)
    others = [
        {"method": "rank_swap", "attributes": KEYS, "window": 0.1},
        {"method": "noise", "attributes": KEYS, "size": 0.1},
        {"method": "microaggregation", "attributes": KEYS, "k": 5},
        {"method": "top_bottom", "attributes": KEYS, "top_share": 0.05},
        {"method": "pram", "attributes": ["region"], "keep": 0.8},
    ]
    found = workflow.study(
        data,
        attributes=["division"],
        rates=[0.1],
        up_to=1,
        others=others,
        risk=["correct_links:keys=turnover+employees,scale=asinh", "unsafe_share:keys=turnover+employees,scale=asinh"],
        distortion=["share_changed:attributes=turnover+employees+region+division"],
        insecure_seed=1,
    )
    assert found.table["reason"].to_pylist() == [""] * 6
    risk = dict(zip(["swap", *(o["method"] for o in others)], found.axes()[0].tolist(), strict=True))
    assert risk["pram"] == risk["swap"] == 1.0, "the keys are as they were"
    assert all(risk[name] < 0.7 for name in ("rank_swap", "noise", "microaggregation"))


def test_the_text_of_a_measure_gives_it_back():
    measure = registry.measure("unsafe_share", keys=KEYS, k=20, curvature=1, distance="mahalanobis")
    assert registry.measure(measure.text) == measure
