"""Where the sign of a measure is a direction, maps and choices go by its magnitude."""

import numpy as np
import pytest
from tests.unit.studies.samples import KEY, sample
from tests.unit.studies.signed_cases import disagreements

from safeswap import registry
from safeswap.measures.base import is_signed
from safeswap.model.study import StudySpec
from safeswap.studies.run import run_study
from safeswap.studies.search import search_study


@pytest.mark.parametrize("seed", range(60))
def test_frontier_choice_and_map_are_those_of_magnitudes(seed: int) -> None:
    assert disagreements(seed) == []


@pytest.mark.parametrize("measure", ["entropy_change", "adV", "adC"])
def test_the_most_distorted_draw_does_not_win(measure: str) -> None:
    study = run_study(sample(300), StudySpec(rates=(0.05, 0.5), distortion=(measure,), replicates=3), key=KEY)
    signed = study.scores(measure)
    best = study.frontier()[0]
    assert abs(signed[best]) == np.nanmin(np.abs(signed))
    assert study.choose("cap_risk:1").distortion >= 0
    assert min(study.summary().column("distortion_mean").to_pylist()) >= 0


def test_a_search_goes_by_magnitudes_too() -> None:
    found = search_study(sample(300), StudySpec(up_to=3, distortion=("entropy_change",)), key=KEY, budget=25)
    assert min(found.axes()[1]) >= 0


def test_a_measure_that_says_nothing_is_compared_by_magnitude() -> None:
    class Silent:
        name = "silent"

    assert is_signed(Silent())  # type: ignore[arg-type]
    assert {name for name, m in registry.measures().items() if is_signed(m)} == {"entropy_change", "adV", "adC"}
