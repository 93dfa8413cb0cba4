"""An intruder who knows the code and every parameter but the key does the targeted edit once more on the release."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.dwellings import KEYS, column, dwellings, edit

from safeswap import registry
from safeswap.attacks.replay import GUESSED, LETTER, UNSEEN, replay_rate
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.score import Comparison

DATA = dwellings(12_000, places=300)


def rates(masked: Masked) -> dict[str, float]:
    detail = replay_rate(masked).detail
    assert detail is not None
    return dict(zip(detail["way"].to_pylist(), detail["rate"].to_pylist(), strict=True))


@pytest.mark.parametrize("exchange", ["geography", "continuous"])
@pytest.mark.parametrize("tolerance", [2, 3])
def test_by_the_letter_every_record_comes_back(exchange: str, tolerance: int) -> None:
    masked = edit(DATA, exchange=exchange, tolerance=tolerance, variant="letter")
    score = replay_rate(masked)
    assert score.value > 0.99
    assert score.detail is not None
    assert score.detail["spoilt"].to_pylist()[0] == 0


@pytest.mark.parametrize("exchange", ["geography", "continuous"])
@pytest.mark.parametrize("tolerance", [2, 3])
def test_by_the_key_few_records_come_back(exchange: str, tolerance: int) -> None:
    found = [replay_rate(edit(DATA, exchange=exchange, tolerance=tolerance, replicate=r)).value for r in range(5)]
    # One of ten or more candidates is right; records of small classes have to be guessed as well.
    assert np.mean(found) < 0.12


def test_uniques_come_back_by_the_letter_even_where_the_order_within_classes_is_unknown() -> None:
    found = rates(edit(DATA, tolerance=2, variant="letter"))
    assert found[LETTER] > 0.99
    assert found[UNSEEN] > 0.3
    assert found[GUESSED] < found[UNSEEN]


def test_method_3_changes_the_keys_themselves_and_still_comes_back_in_good_part() -> None:
    printed = replay_rate(edit(DATA, exchange="categorical", tolerance=2, variant="letter")).value
    drawn = replay_rate(edit(DATA, exchange="categorical", tolerance=2)).value
    assert drawn < 0.15
    assert printed > 0.3


def test_more_candidates_leave_the_intruder_less() -> None:
    few, many = (
        np.mean([replay_rate(edit(DATA, tolerance=2, candidates=k, replicate=r)).value for r in range(4)])
        for k in (10, 100)
    )
    assert many < 0.5 * few


def test_undoing_the_letter_by_hand_gives_the_original_file() -> None:
    masked = edit(DATA, variant="letter")
    again = edit(masked.data, variant="letter")
    assert column(again.data, "PLACE") == column(DATA, "PLACE")
    drawn = edit(DATA)
    wrong = edit(drawn.data, key=Key(bytes(32)))
    genuine = sum(a == b for a, b in zip(column(DATA, "PLACE"), column(drawn.data, "PLACE"), strict=True))
    after = sum(a == b for a, b in zip(column(DATA, "PLACE"), column(wrong.data, "PLACE"), strict=True))
    assert after < genuine


def seen(masked: Masked) -> Comparison:
    return Comparison(before=masked.original, after=masked.data, attributes=masked.original.schema.categorical)


@pytest.mark.parametrize(
    ("parameters", "measure"),
    [
        ({"tolerance": 2}, {"keys": KEYS, "tolerance": 2}),
        ({"within": ("REGION",), "geography": ("PLACE",)}, {"keys": KEYS, "within": ("REGION",)}),
        ({"exchange": 3}, {"keys": KEYS, "first_key": True}),
    ],
)
def test_the_registered_measure_is_the_same_figure(parameters: dict[str, Any], measure: dict[str, Any]) -> None:
    masked = edit(DATA, **parameters)
    assert registry.measure("replay", **measure).score(seen(masked)).value == replay_rate(masked).value


def test_nothing_changed_is_nothing_to_restore() -> None:
    untouched = Comparison(before=DATA, after=DATA, attributes=KEYS)
    score = registry.measure("replay").score(untouched)
    assert score.value == 0
    assert "Nothing was changed" in score.sentence


def test_chance_is_what_guessing_among_few_values_gives() -> None:
    masked = edit(DATA, keys=(*KEYS, "REGION"), geography=("REGION",), tolerance=2)
    assert rates(masked)["chance alone"] == pytest.approx(1 / 3, abs=0.02)
    assert replay_rate(masked).value < 1 / 3
