"""Linkage by probabilities: the weights are log2(m/u), and the counts follow from them."""

from __future__ import annotations

import builtins
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from tests.oracles.linkage import Case, random_case, shares

import safeswap as ss
from safeswap import datasets, workflow
from safeswap.errors import EngineError, SpecError
from safeswap.measures.plot import fellegi_sunter
from safeswap.measures.plot.values import agreement
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

KEYS = ("turnover", "employees")


@cache
def masked():
    data = datasets.synthetic_enterprises()
    return workflow.mask(data, {"method": "rank_swap", "attributes": KEYS, "window": 0.05}, insecure_seed=1)


@cache
def plot(training="truth", keys=(*KEYS, "region")):
    options = {"only": {"division": "18"}, "linkage": "fellegi_sunter", "training": training}
    return workflow.confidentiality(masked(), keys=keys, **options)


def test_m_is_the_share_of_true_pairs_at_each_level():
    rows = [row for row in plot().match_weights.to_pylist() if row["key"] == "employees"]
    only = [i for i, d in enumerate(masked().original.table["division"].to_pylist()) if d == "18"]
    before, after = (d.table["employees"].to_numpy()[only].astype(float) for d in (masked().original, masked().data))
    apart = np.abs(before - after) / np.maximum(before, after)
    edges = [0.0, *fellegi_sunter.LEVELS, 1.0]
    for row, low, high in zip(rows, [-1.0, *edges[:-1]], edges, strict=True):
        share = float(np.mean((apart > low) & (apart <= high)))
        assert row["m"] == pytest.approx(max(share, 1e-6), abs=1e-9)
        if row["u"]:
            assert row["weight"] == pytest.approx(np.log2(row["m"] / row["u"]))


def test_an_unmasked_key_links_better_than_a_masked_one_alone():
    alone, with_region = plot(keys=("turnover",)), plot(keys=("turnover", "region"))
    assert with_region.as_dict()["correct_links"] > alone.as_dict()["correct_links"]


@pytest.mark.parametrize("training", ["truth", "em"])
def test_at_most_alpha_of_the_wrong_pairs_are_neighbours(training):
    found = plot(training)
    wrong = found.across.sum() - found.within.sum()
    assert 0 < wrong / (157 * 156) <= 0.05
    assert len(found) == 157
    assert found.own_weight.shape == (157,)
    assert (found.within == (found.own_weight >= found.threshold)).all()


def test_the_two_ways_of_linking_can_be_compared():
    by_distance = workflow.confidentiality(masked(), keys=KEYS, only={"division": "18"})
    by_weight = plot(keys=KEYS)
    table = agreement(by_distance, by_weight).to_pylist()
    assert [row["figure"] for row in table][:2] == ["unsafe", "correct_links"]
    for row in table:
        assert row["both"] <= min(row["first"], row["second"])
    with pytest.raises(SpecError):
        agreement(by_distance, workflow.confidentiality(masked(), keys=KEYS))


def test_categorical_keys_alone_are_weighed_too():
    found = plot(keys=("region", "size_class"))
    assert found.perturbation.tolist() == [0.0] * 157
    assert found.nearest_true.all(), "nothing was masked in them"


def test_bad_levels_and_too_many_pairs_are_refused(monkeypatch):
    for levels in ((), (0.5, 0.1), (0.0,), (1.0,)):
        with pytest.raises(SpecError) as caught:
            workflow.confidentiality(masked(), keys=KEYS, linkage="fellegi_sunter", levels=levels)
        assert caught.value.code == "bad-levels"
    monkeypatch.setattr(fellegi_sunter, "MOST_PAIRS", 1000)
    with pytest.raises(SpecError) as caught:
        workflow.confidentiality(masked(), keys=KEYS, linkage="fellegi_sunter")
    assert caught.value.code == "too-many-pairs"


def test_without_splink_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.split(".")[0] == "splink":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EngineError) as caught:
        workflow.confidentiality(masked(), keys=KEYS, linkage="fellegi_sunter", only={"division": "18"})
    assert caught.value.code == "extra-missing"
    assert "safeswap[linkage]" in caught.value.hint


def learnt(case, **options):
    """What the product learns of a case: m and u of each level; and the settings of its plot."""
    numeric = bool(case.levels)
    kind = Kind.NUMERIC if numeric else Kind.NOMINAL
    schema = Schema(name="pairs", attributes=(Attribute(name="key", kind=kind),))
    before, after = (Microdata(pa.table({"key": side}), schema) for side in (case.before, case.after))
    levels = {"levels": case.levels} if numeric else {}
    found = fellegi_sunter.fellegi_sunter_plot(before, after, ["key"], **levels, **options)
    rows = found.match_weights.to_pylist()
    return [row["m"] for row in rows], [row["u"] for row in rows], found.settings


def disagreement(case) -> str:
    """What is wrong with m or u; nothing where both are the shares counted pair by pair."""
    m, u, _ = learnt(case)
    for name, found, counted in zip("mu", (m, u), shares(case), strict=True):
        if found != pytest.approx([max(share, 1e-6) for share in counted], abs=1e-12):
            return f"{name} is {found}, counted {counted}"
    return ""


@pytest.mark.parametrize("seed", range(12))
def test_m_and_u_are_the_shares_counted_pair_by_pair(seed):
    assert disagreement(random_case(np.random.default_rng(seed))) == ""


def test_pairs_that_belong_together_have_no_part_in_u():
    # 29 records: 17 keep a value of their own, and one other pair agrees by chance.
    before = [float(3**i) for i in range(29)]
    after = [*before[:17], before[0], *(-float(5**i) for i in range(11))]
    _, u, settings = learnt(Case(before, after, (0.001,)))
    assert u[0] == pytest.approx(1 / 812)
    assert settings["exact"]


def test_a_sample_is_not_called_exact(monkeypatch):
    case = random_case(np.random.default_rng(1))
    assert learnt(case, training="em")[2]["exact"]
    monkeypatch.setattr(fellegi_sunter, "_EM_PAIRS", 10)
    assert not learnt(case, training="em")[2]["exact"]
    assert learnt(case)[2]["exact"]


def test_a_recoded_key_links_in_the_categories_of_the_release() -> None:
    """A number in bands, and codes cut short: such keys tell less than before, and not nothing."""
    data = datasets.synthetic_enterprises()
    data = Microdata(data.table.slice(0, 200), data.schema)
    bands = {"step": "ranges", "attribute": "employees", "breaks": [5, 20, 50]}
    recode = {"method": "recode", "steps": [bands, {"step": "truncate", "attribute": "region", "characters": 1}]}
    swap = {"method": "swap", "swap": ["region"], "rate": 0.1}

    def link(*files: object) -> list[float]:
        found = ss.attack(
            *files, scenario={"keys": ["employees", "region"]}, attacks=["fellegi_sunter", "nearest_record"]
        )
        return [outcome.success for outcome in found]

    coarse = workflow.mask(data, recode, insecure_seed=1)
    swapped = workflow.mask(data, ss.Pipeline([recode, swap]), insecure_seed=1)
    classes = len(set(zip(*(coarse.data.table[name].to_pylist() for name in ("employees", "region")), strict=True)))
    assert link(coarse) == link(coarse.data, data) == [pytest.approx(classes / 200)]
    assert 0.7 * classes / 200 < link(swapped)[0] < classes / 200
