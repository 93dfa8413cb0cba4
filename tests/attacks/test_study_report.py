"""An intruder with the released file and the public report of the study, who wants to know the rate.

He has our source code, knows what was swapped (the report says so) and swaps the released file again, at every rate
that comes into question: the rate whose figures come nearest to the printed ones is his guess. Where the report holds
bands only, he keeps the rates that fit and guesses among them. A report with the officer's consent prints figures; it
shows that the attack works.

As a program: ``python -m tests.attacks.test_study_report [trials]`` prints how often he is right.
"""

from __future__ import annotations

import html
import re
import sys
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from tests.studies import small_data

import safeswap as ss
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.study import StudySpec
from safeswap.reports.study import BANDS, study_report
from safeswap.studies.run import run_study

NAMES = ("region", "sector", "status", "class")
RECORDS = 604
GRID = tuple(round(float(rate), 4) for rate in np.geomspace(0.02, 0.4, 12))
TOLERANCE = 3


@cache
def original() -> Microdata:
    return small_data(NAMES, records=RECORDS)


@dataclass(frozen=True)
class Published:
    """What leaves the agency: a report and the released file."""

    page: str
    released: Microdata


def publish(rate: float, *, seed: int, publish_figures: bool, further: tuple[str, ...] = ()) -> Published:
    """The agency: a study with one rate, its choice, the report and the release."""
    spec = StudySpec(attributes=("region",), up_to=1, rates=(rate,), distortion=("hellinger", *further))
    study = run_study(original(), spec, key=Key.insecure(seed=seed), threads=1)
    choice = study.choose("cap_risk:1")
    page = study_report(study, choice, version="public", tolerance=TOLERANCE, publish_figures=publish_figures).decode()
    masked = ss.mask(original(), choice.spec, insecure_seed=seed, replicate=choice.replicate)
    return Published(page=page, released=masked.data)


class Intruder:
    """He reads the report and swaps the released file again at every rate of the grid."""

    def __init__(self, seen: Published) -> None:
        spec = StudySpec(attributes=("region",), up_to=1, rates=GRID, distortion=("hellinger",), replicates=8)
        again = run_study(seen.released, spec, key=Key.insecure(seed=99), threads=1)
        self.expected = again.summary().column("distortion_mean").to_numpy()
        self.text = words(seen.page)

    def guess(self, draw: np.random.Generator) -> float:
        """The rate he believes in."""
        printed = re.search(r"Hellinger distance distortion 0 ([\d.]+)", self.text)
        if printed is not None:
            return GRID[int(np.argmin(np.abs(self.expected - float(printed[1]))))]
        return float(draw.choice(self.in_band()))

    def in_band(self) -> list[float]:
        """The rates whose distortion lies in the band that the report states; all, where it states none."""
        lower, upper = self.band()
        fits = [rate for rate, value in zip(GRID, self.expected, strict=True) if lower <= value < upper]
        return fits or list(GRID)

    def band(self) -> tuple[float, float]:
        """The limits of the printed band."""
        found = re.search(r"Hellinger distance: (?:below ([\d.]+)|([\d.]+) to ([\d.]+))", self.text)
        if found is None:
            return 0.0, np.inf
        return (0.0, float(found[1])) if found[1] else (float(found[2]), float(found[3].rstrip(".")))


def words(page: str) -> str:
    """What a reader sees, without style sheets and pictures."""
    text = re.sub(r"<(style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def success(trials: int, *, publish_figures: bool) -> tuple[float, float]:
    """How often the intruder names the rate, and how often he would by guessing within the stated band."""
    draw = np.random.default_rng(7)
    right, by_band = 0, 0.0
    for trial in range(trials):
        rate = float(draw.choice(GRID))
        intruder = Intruder(publish(rate, seed=1_000 + trial, publish_figures=publish_figures))
        right += intruder.guess(draw) == rate
        by_band += 1 / len(intruder.in_band())
    return right / trials, by_band / trials


def test_printed_figures_give_the_rate_away_which_is_why_they_need_consent() -> None:
    found, _ = success(16, publish_figures=True)
    assert found > 4 / len(GRID)  # blind guessing: one in the length of the grid


def test_without_consent_the_intruder_does_no_better_than_the_stated_band() -> None:
    trials = 16
    found, by_band = success(trials, publish_figures=False)
    assert found <= by_band + 3 * np.sqrt(by_band * (1 - by_band) / trials)


@pytest.mark.parametrize("further", [(), ("share_changed", "total_variation", "adV", "entropy_change:ways=2")])
def test_reports_of_rates_in_the_same_band_are_the_same_bytes(further: tuple[str, ...]) -> None:
    # Stronger than any attack: nothing in the report depends on the rate, beyond the band.
    pages: dict[tuple[float, float], set[str]] = {}
    for rate in GRID:
        seen = publish(rate, seed=5, publish_figures=False, further=further)
        pages.setdefault(Intruder.band(_reader(seen.page)), set()).add(seen.page)
    assert all(upper / max(lower, BANDS[0] / 10) >= 9.99 for lower, upper in pages)
    assert {len(same) for same in pages.values()} == {1}
    assert len(pages) < len(GRID) / 2


def test_a_share_that_is_too_small_to_state_does_not_count_the_records_that_took_part() -> None:
    # "below x" with x = tolerance / (records that took no part) would tell how many took part.
    seen = publish(0.2, seed=3, publish_figures=True)
    for limit in re.findall(r"below ([\d.]+)", words(seen.page)):
        assert float(limit) == pytest.approx(TOLERANCE / RECORDS, rel=5e-3)


def _reader(page: str) -> Intruder:
    reader = Intruder.__new__(Intruder)
    reader.text = words(page)
    return reader


def main(trials: int) -> None:
    """Print how often the intruder is right, with and without consent, against blind guessing."""
    print(f"{trials} trials, {len(GRID)} rates; blind guessing is right in {1 / len(GRID):.1%}")
    for consent in (True, False):
        found, by_band = success(trials, publish_figures=consent)
        print(f"figures published: {consent!s:5}  rate named in {found:.1%}; by the stated band alone {by_band:.1%}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
