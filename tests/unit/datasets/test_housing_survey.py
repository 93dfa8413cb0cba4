"""The synthetic housing survey has the shape of the file of Moore (1996)."""

from __future__ import annotations

import numpy as np
import pytest

from safeswap import datasets
from safeswap.arrays import cells
from safeswap.model.schema import Kind


@pytest.fixture(scope="module")
def survey():
    return datasets.synthetic_housing_survey()


def test_it_has_the_fields_of_the_paper(survey):
    fields = ("IDNUM", "REGION", "BEDROOMS", "BATHS", "YR_BLT", "INCOME", "HOME_VAL", "MORTGAGE", "MAINTAIN", "TAXES")
    assert survey.attributes == fields
    assert set(datasets.HOUSING_KEYS) | set(datasets.HOUSING_ITEMS) | {"IDNUM"} == set(fields)
    assert len(survey) == 64_998
    assert all(survey.schema[name].kind.is_categorical for name in datasets.HOUSING_KEYS)
    assert all(survey.schema[name].kind is Kind.NUMERIC for name in datasets.HOUSING_ITEMS)


def test_identifiers_have_twelve_digits_and_do_not_repeat(survey):
    numbers = survey.table["IDNUM"].to_numpy()
    assert len(np.unique(numbers)) == 64_998
    assert 10**11 <= numbers.min() <= numbers.max() < 10**12


def test_about_as_many_combinations_of_keys_are_unique_as_in_the_paper(survey):
    counts = cells.count_cells(*survey.coded_columns(datasets.HOUSING_KEYS)).counts
    assert abs(int((counts == 1).sum()) - 473) < 25


def test_income_has_about_the_mean_and_the_spread_of_the_paper(survey):
    income = survey.table["INCOME"].to_numpy().astype(float)
    assert abs(income.mean() / 11_369 - 1) < 0.02
    assert abs(income.std() / 16_572 - 1) < 0.02


def test_larger_homes_go_with_larger_amounts(survey):
    for item in datasets.HOUSING_ITEMS:
        amounts = survey.table[item].to_numpy().astype(float)
        for key in ("BEDROOMS", "BATHS"):
            rooms = survey.table[key].to_numpy()
            assert amounts[rooms >= 3].mean() > amounts[rooms == 1].mean()


def test_every_level_that_is_described_occurs(survey):
    for name in datasets.HOUSING_KEYS:
        assert {str(v) for v in survey.coded(name).levels.to_pylist()} == set(survey.schema[name].levels)


def test_regions_vary_least_within(survey):
    """As in Table 5 of the paper, the largest within-class deviation of income is smallest for regions, then years."""
    income = survey.table["INCOME"].to_numpy().astype(float)

    def largest(name):
        codes = survey.coded(name).codes
        return max(income[codes == code].std(ddof=1) for code in np.unique(codes) if (codes == code).sum() > 1)

    assert largest("REGION") < largest("YR_BLT") < min(largest("BEDROOMS"), largest("BATHS"))
