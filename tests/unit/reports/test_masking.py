"""The internal report of one masking says what was done, and what it did where."""

import stat

import pytest

import safeswap as ss
from safeswap.errors import OutputError
from safeswap.reports.masking import write_masking_report
from safeswap.workflow import risky


def report_on(masked, path, **options):
    return write_masking_report(masked, path, assessment=ss.assess(masked), **options)


@pytest.fixture(scope="module")
def census():
    return ss.datasets.synthetic_census(4_000)


@pytest.fixture(scope="module")
def edited(census):
    keys = list(ss.datasets.CENSUS_KEYS)
    spec = {"method": "edit_1990", "keys": keys, "geography": ["STATE", "PLACE", "BLOCK"], "rate": 0.05}
    return ss.mask(census, spec, insecure_seed=3)


def test_an_exchange_of_geography_is_followed_through_its_levels(edited, tmp_path):
    page = report_on(edited, tmp_path / "r.html", distributions=["TENURE"]).read_text()
    assert "Distance between exchanged records" in page
    assert "100.0%" in page  # all pairs lie within a state
    assert "TENURE before and after" in page
    assert "are exactly as before" in page
    assert "Not for release" in page  # it was made from an insecure seed
    assert "Diagnosis" in page


def test_an_exchange_of_numbers_shows_its_bias_at_every_level(tmp_path):
    survey = ss.datasets.synthetic_housing_survey()
    spec = {"method": "edit_targeted", "keys": ["REGION", "BATHS"], "exchange": "continuous"}
    page = report_on(ss.mask(survey, spec, insecure_seed=3), tmp_path / "r.html").read_text()
    assert "PERCENTAGE BIAS of class means, by level" in page
    assert "REGION × BATHS" in page
    assert "protected enough" in page


def test_suppression_shows_what_was_unsafe_and_what_was_blanked(tmp_path):
    data = ss.datasets.cps8d()
    spec = {"method": "suppress", "keys": data.schema.categorical[:5], "up_to": 5, "importance": {"Age": 2}}
    masked = ss.mask(data, spec, insecure_seed=3)
    page = report_on(masked, tmp_path / "r.html").read_text()
    assert "Unsafe combinations before and after, by number of keys" in page
    assert "Values blanked, by attribute" in page
    assert "optimal: nothing less would do" in page
    unsafe = risky(data, masked.spec).by_dimension
    for size, number in unsafe.items():
        assert f"<bdi>{size}</bdi>" in page
        assert f"<bdi>{number}</bdi>" in page
    assert page.count("Values blanked, by attribute") == 1
    assert "Blanked by attribute" not in page  # told once, in its own words


def test_the_report_is_private_whole_and_without_script(edited, tmp_path):
    path = report_on(edited, tmp_path / "r.html", distributions=["TENURE"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "<script" not in path.read_text()
    with pytest.raises(OutputError):
        report_on(edited, path, distributions=["TENURE"])


def test_names_in_the_data_are_only_text(tmp_path):
    import pyarrow as pa

    hostile = "<script>alert(1)</script>"
    data = ss.read(pa.table({hostile: ["a", "b", "a", "b"], "x": ["c", "d", "d", "c"]}))
    page = report_on(ss.swap(data, swap=[hostile], pairs=1, insecure_seed=1), tmp_path / "r.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
