"""Dates as a kind: banded, moved, cut off, averaged and exchanged, compared with plain Python on ``datetime``."""

from __future__ import annotations

import datetime as dt
import random
import statistics

import numpy as np
import pyarrow as pa
import pytest

import safeswap as ss
from safeswap import workflow
from safeswap.errors import InputError, SpecError
from safeswap.files.read import read
from safeswap.files.write import write
from safeswap.methods.recode.apply import apply_step
from safeswap.methods.recode.recipe import Recipe
from safeswap.methods.recode.steps import DateBand, as_step
from safeswap.model.columns import to_numbers
from safeswap.model.dates import from_days, parse_date, to_days
from safeswap.model.schema import Kind
from safeswap.projects.toml import read_recipe, write_recipe

FORMS = {
    "date32": pa.date32(),
    "date64": pa.date64(),
    "seconds": pa.timestamp("s"),
    "microseconds": pa.timestamp("us"),
    "text": pa.string(),
    "large text": pa.large_string(),
    "codes": pa.dictionary(pa.int32(), pa.string()),
    "codes of dates": pa.dictionary(pa.int32(), pa.date32()),
}
EDGES = [
    *(dt.date(2000, 2, 29), dt.date(1900, 2, 28), dt.date(1900, 3, 1), dt.date(1899, 12, 31), dt.date(1969, 12, 31)),
    *(dt.date(1970, 1, 1), dt.date(2023, 3, 31), dt.date(2023, 4, 1), dt.date(2022, 12, 31), dt.date(2023, 1, 1)),
    *(dt.date(2020, 2, 29), dt.date(1, 1, 1), dt.date(1066, 10, 14), dt.date(2023, 6, 30), dt.date(2023, 7, 1)),
]


def days(number: int = 300, seed: int = 5, *, missing: bool = True) -> list[dt.date | None]:
    draw = random.Random(seed)
    drawn = [dt.date(1890, 1, 1) + dt.timedelta(draw.randrange(48_000)) for _ in range(number)]
    return [None if missing and i % 17 == 3 else day for i, day in enumerate(drawn)]


def table_of(values: list[dt.date | None], form: pa.DataType) -> pa.Table:
    dates = pa.array(values, pa.date32())
    column = dates.cast(form.value_type).dictionary_encode() if pa.types.is_dictionary(form) else dates.cast(form)
    return pa.table({"born": column, "sex": [str(i % 2) for i in range(len(values))]})


def as_dates(column: pa.ChunkedArray) -> list[dt.date | None]:
    return [None if text is None else dt.date.fromisoformat(str(text)[:10]) for text in column.to_pylist()]


@pytest.fixture(params=FORMS.values(), ids=FORMS)
def form(request):
    return request.param


# --- The kind.


def test_every_form_of_a_date_is_read_as_one_and_numbered_by_its_days(form):
    values = [*EDGES, None, *days()]
    data = read(table_of(values, form))
    assert data.schema["born"].kind is Kind.DATE
    expected = [None if day is None else day.toordinal() - dt.date(1970, 1, 1).toordinal() for day in values]
    found = to_numbers(data, "born").tolist()
    assert [None if np.isnan(number) else number for number in found] == expected


def test_days_come_back_in_every_form(form):
    column = table_of([*EDGES, None], form)["born"].combine_chunks()
    plain = column.cast(form.value_type) if pa.types.is_dictionary(form) else column
    assert from_days(to_days(column), form).equals(plain)


@pytest.mark.parametrize(
    "values",
    [
        [dt.datetime(2020, 1, 1, 0, 0, 1)],  # noqa: DTZ001
        [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
        ["2023-02-29"],
        ["1900-02-29"],
        ["2023-13-01"],
        ["0000-01-01"],
        ["2023-1-1"],
        ["01/02/2023"],
        ["2023-01-01 00:00:00"],
        [1, 2],
        [dt.time(0)],
    ],
)
def test_what_is_no_day_is_no_date(values):
    assert to_days(pa.array(values)) is None
    data = read(pa.table({"x": [*values, *values]}), kinds={"x": "date"})
    with pytest.raises(SpecError) as error:
        ss.mask(data, {"method": "noise", "attributes": ["x"]}, insecure_seed=1)
    assert error.value.code == "not-a-date"


def test_a_stated_code_for_missing_is_no_date():
    table = pa.table({"born": ["2020-01-01", "unknown", "9999-12-31"]})
    data = read(table, kinds={"born": "date"}, missing=["unknown", "9999-12-31"])
    assert np.isnan(to_numbers(data, "born")).tolist() == [False, True, True]


def test_a_date_is_described_and_round_trips_through_a_schema(tmp_path):
    from safeswap.files.describe import describe
    from safeswap.files.schema_file import read_schema, write_schema

    data = read(table_of(days(), pa.string()))
    found = describe(data).attributes[0].as_dict(3)
    assert (found["kind"], found["levels"]) == ("date", None)
    write_schema(data.schema, tmp_path / "s.toml")
    assert 'kind = "date"' in (tmp_path / "s.toml").read_text()
    assert read_schema(tmp_path / "s.toml")["born"].kind is Kind.DATE


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".sav", ".dta"])
@pytest.mark.parametrize("stored", [pa.date32(), pa.timestamp("us")], ids=["dates", "timestamps"])
def test_dates_are_dates_in_every_file(tmp_path, suffix, stored):
    values = [day for day in EDGES if day is not None and day.year >= 1600] + [None]
    data = read(table_of(values, stored))
    write(data, tmp_path / f"x{suffix}")
    again = read(tmp_path / f"x{suffix}")
    with_time = suffix in (".csv", ".tsv") and pa.types.is_timestamp(stored)  # as text, a timestamp keeps its time
    assert again.schema["born"].kind is (Kind.NOMINAL if with_time else Kind.DATE)
    assert as_dates(again.table["born"]) == values


# --- Bands.


def age(birth: dt.date, at: dt.date) -> int:
    """Count birthdays one by one; 29 February counts from 1 March where there is none."""
    years = 0
    while True:
        year = birth.year + years + 1
        try:
            birthday = birth.replace(year=year)
        except ValueError:
            birthday = dt.date(year, 3, 1)
        if birthday > at:
            return years
        years += 1


def band(day: dt.date, by: str, at: dt.date) -> str:
    quarters = {month: f"Q{number + 1}" for number in range(4) for month in range(3 * number + 1, 3 * number + 4)}
    year = day.strftime("%Y").rjust(4, "0")
    named = {"year": year, "quarter": f"{year}-{quarters[day.month]}", "month": f"{year}-{day.isoformat()[5:7]}"}
    return str(age(day, at)) if by == "age" else named[by]


@pytest.mark.parametrize("by", ["year", "quarter", "month", "age"])
@pytest.mark.parametrize("at", [dt.date(2023, 7, 1), dt.date(2024, 2, 28), dt.date(2024, 2, 29), dt.date(2025, 3, 1)])
def test_bands_are_those_of_plain_python(form, by, at):
    values = [*EDGES, None, *(day for day in days() if day is None or day <= at)]
    data = read(table_of(values, form))
    step = {"step": "date_band", "attribute": "born", "by": by} | ({"at": at.isoformat()} if by == "age" else {})
    masked = ss.mask(data, {"method": "recode", "steps": [step]}, insecure_seed=1)  # verified by its promises
    found = [None if value is None else str(value) for value in masked.data.table["born"].to_pylist()]
    expected = [None if day is None else band(day, by, at) for day in values]
    if by == "year" and not pa.types.is_date(form):
        assert found == expected
    else:
        assert [None if v is None else v.zfill(4) for v in found] == [
            None if v is None else v.zfill(4) for v in expected
        ]
    after = masked.data.schema["born"]
    assert after.kind is (Kind.NUMERIC if by == "age" else Kind.ORDINAL)
    if by != "age":
        in_time = sorted({day for day in values if day is not None})
        assert list(after.levels) == list(dict.fromkeys(band(day, by, at) for day in in_time))


def test_an_age_changes_on_the_birthday_and_of_29_february_on_1_march():
    born = [dt.date(2000, 2, 29), dt.date(2000, 3, 1), dt.date(2000, 2, 28)]
    data = read(table_of(born, pa.date32()))
    for at, ages in (("2023-02-28", [22, 22, 23]), ("2023-03-01", [23, 23, 23]), ("2024-02-29", [24, 23, 24])):
        after = apply_step(data, {"step": "date_band", "attribute": "born", "by": "age", "at": at})
        assert after.table["born"].to_pylist() == ages


@pytest.mark.parametrize("labels", [[], ["young", "adult", "old"]])
def test_ages_and_years_are_cut_into_ranges(labels):
    values, at = days(), dt.date(2023, 7, 1)
    data = read(table_of(values, pa.date32()))
    step = {"step": "date_band", "attribute": "born", "by": "age", "at": "2023-07-01", "breaks": [15, 65]}
    masked = ss.mask(data, {"method": "recode", "steps": [step | {"labels": labels}]}, insecure_seed=1)
    names = labels or ["<15", "15-64", ">=65"]
    expected = [None if d is None else names[(age(d, at) >= 15) + (age(d, at) >= 65)] for d in values]
    assert masked.data.table["born"].to_pylist() == expected
    assert masked.data.schema["born"].levels == tuple(names)
    by_year = apply_step(data, {"step": "date_band", "attribute": "born", "by": "year", "breaks": [1950, 2000]})
    cut = [
        None if d is None else "<1950" if d.year < 1950 else "1950-1999" if d.year < 2000 else ">=2000" for d in values
    ]
    assert by_year.table["born"].to_pylist() == cut


def test_a_birth_after_the_date_of_an_age_is_refused_or_blanked():
    data = read(table_of([dt.date(2020, 1, 2), dt.date(1990, 5, 5)], pa.date32()))
    step = {"step": "date_band", "attribute": "born", "by": "age", "at": "2020-01-01"}
    with pytest.raises(SpecError) as error:
        apply_step(data, step)
    assert error.value.code == "value-not-recoded"
    spec = {"method": "recode", "steps": [step | {"otherwise": "blank"}]}
    assert ss.mask(data, spec, insecure_seed=1).data.table["born"].to_pylist() == [None, 29]


def test_codes_for_missing_stay_when_dates_are_banded():
    data = read(pa.table({"born": ["2020-01-01", "?", None]}), kinds={"born": "date"}, missing=["?"])
    after = apply_step(data, {"step": "date_band", "attribute": "born", "by": "quarter"})
    assert after.table["born"].to_pylist() == ["2020-Q1", "?", None]
    assert (after.schema["born"].missing, after.schema["born"].levels) == (("?",), ("2020-Q1",))


@pytest.mark.parametrize(
    "wrong",
    [
        {"by": "age"},
        {"by": "year", "at": "2020-01-01"},
        {"by": "age", "at": "2023-02-29"},
        {"by": "age", "at": "2023-02-28 00:00:00"},
        {"by": "month", "breaks": [6]},
        {"by": "year", "breaks": [2000, 1990]},
        {"by": "year", "breaks": [1990.5]},
        {"by": "year", "labels": ["a", "b"]},
        {"by": "year", "breaks": [1990], "labels": ["a"]},
        {"by": "decade"},
    ],
)
def test_a_band_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(SpecError):
        DateBand(attribute="born", **wrong)


def test_a_band_round_trips_through_plain_values_and_toml(tmp_path):
    step = as_step(
        {"step": "date_band", "attribute": "born", "by": "age", "at": dt.date(2023, 7, 1), "breaks": [15, 65]}
    )
    assert as_step(step.as_dict()) == step
    recipe = Recipe.of([step])
    write_recipe(recipe, tmp_path / "r.toml")
    assert read_recipe(tmp_path / "r.toml") == recipe
    text = (tmp_path / "r.toml").read_text().replace('"2023-07-01"', "2023-07-01")
    (tmp_path / "native.toml").write_text(text)
    assert read_recipe(tmp_path / "native.toml") == recipe
    assert step.sentence == "born to age on 2023-07-01 in 3 ranges"


@pytest.mark.parametrize(
    "step",
    [
        {"step": "recode", "map": {"2020-01-01": "x"}, "otherwise": "keep"},
        {"step": "truncate", "characters": 3},
        {"step": "ranges", "breaks": [1]},
        {"step": "round", "base": 5},
        {"step": "global_recode", "spans": [{"to": "1", "high": "2000"}], "otherwise": "keep"},
    ],
)
def test_steps_for_codes_and_numbers_refuse_a_date_and_say_what_to_do(step):
    data = read(table_of(days(), pa.date32()))
    with pytest.raises(SpecError) as error:
        apply_step(data, {"attribute": "born", **step})
    assert "date_band" in error.value.hint


def test_only_a_date_is_banded():
    data = read(table_of(days(), pa.date32()))
    with pytest.raises(SpecError) as error:
        apply_step(data, {"step": "date_band", "attribute": "sex"})
    assert error.value.code == "not-a-date"


# --- Methods for numbers.


def test_a_date_becomes_the_bound_beyond_it(form):
    values, low, high = days(), dt.date(1930, 5, 17), dt.date(2004, 2, 29)
    data = read(table_of(values, form))
    expected = [None if day is None else min(max(day, low), high) for day in values]
    step = {"step": "top_bottom_code", "attribute": "born", "top": "2004-02-29", "bottom": "1930-05-17"}
    spec = {"method": "top_bottom", "attributes": ["born"], "latest": "2004-02-29", "earliest": "1930-05-17"}
    for each in ({"method": "recode", "steps": [step]}, spec):
        masked = ss.mask(data, each, insecure_seed=1).data
        assert as_dates(masked.table["born"]) == expected
        assert masked.schema["born"].kind is Kind.DATE


def test_dates_beyond_a_bound_become_the_day_nearest_to_their_mean():
    values, high = days(missing=False), dt.date(2000, 1, 1)
    data = read(table_of(values, pa.date32()))
    spec = {"method": "top_bottom", "attributes": ["born"], "latest": "2000-01-01", "replace_by": "mean", "decimals": 2}
    beyond = [day.toordinal() for day in values if day > high]
    middle = dt.date.fromordinal(round(statistics.fmean(beyond)))
    masked = ss.mask(data, spec, insecure_seed=1).data
    assert masked.table["born"].to_pylist() == [middle if day > high else day for day in values]


@pytest.mark.parametrize(
    "spec",
    [
        {"attributes": ["born"], "top": 5.0},
        {"attributes": ["n"], "latest": "2000-01-01"},
        {"attributes": ["born"], "latest": "1999-01-01", "earliest": "2000-01-01"},
        {"attributes": ["born"], "latest": "1999-02-29"},
        {"attributes": ["born"], "latest": "1999-01-01", "top_share": 0.1},
    ],
)
def test_bounds_of_dates_are_dates(spec):
    data = read(table_of(days(), pa.date32()).append_column("n", pa.array(np.arange(300.0))), kinds={"n": "numeric"})
    with pytest.raises(SpecError):
        ss.mask(data, {"method": "top_bottom", **spec}, insecure_seed=1)


def test_bounds_of_numbers_and_dates_go_together():
    table = table_of(days(), pa.date32()).append_column("n", pa.array(np.arange(300.0)))
    data = read(table, kinds={"n": "numeric"})
    spec = {"method": "top_bottom", "attributes": ["born", "n"], "latest": "2000-01-01", "top": 200}
    masked = ss.mask(data, spec, insecure_seed=1).data.table
    assert max(day for day in masked["born"].to_pylist() if day is not None) == dt.date(2000, 1, 1)
    assert max(masked["n"].to_pylist()) == 200


@pytest.mark.parametrize("kind", ["additive", "correlated"])
def test_noise_moves_dates_by_whole_days_of_the_stated_deviation(form, kind):
    values = days(4_000)
    data = read(table_of(values, form))
    spec = {"method": "noise", "attributes": ["born"], "days": 20, "kind": kind}
    after = as_dates(ss.mask(data, spec, insecure_seed=1).data.table["born"])
    assert [day is None for day in after] == [day is None for day in values]
    moved = [(new - old).days for new, old in zip(after, values, strict=True) if old is not None]
    assert abs(statistics.fmean(moved)) < 4 * 20 / len(moved) ** 0.5
    assert 18.5 < statistics.pstdev(moved) < 21.5
    again = as_dates(ss.mask(data, spec, insecure_seed=1).data.table["born"])
    assert again == after, "the same key gives the same dates"
    assert as_dates(ss.mask(data, spec, insecure_seed=2).data.table["born"]) != after


def test_noise_beyond_what_nanoseconds_can_count_is_refused():
    values = [dt.date(2262, 4, 1), dt.date(1677, 10, 1), None] * 10
    data = read(table_of(values, pa.timestamp("ns")))
    with pytest.raises(InputError) as error:
        ss.mask(data, {"method": "noise", "attributes": ["born"], "days": 4000}, insecure_seed=1)
    assert (error.value.code, error.value.fields["attribute"]) == ("out-of-range", "born")
    wider = read(table_of(values, pa.timestamp("us")))
    ss.mask(wider, {"method": "noise", "attributes": ["born"], "days": 4000}, insecure_seed=1)


def test_noise_is_that_of_the_day_numbers():
    """A date moves by the noise that its day number would get, rounded to whole days."""
    values = days(500)
    dates = read(table_of(values, pa.date32()), name="x")
    numbers = [None if day is None else float((day - dt.date(1970, 1, 1)).days) for day in values]
    plain = read(dates.table.set_column(0, "born", pa.array(numbers)), kinds={"born": "numeric"}, name="x")
    spec = {"method": "noise", "attributes": ["born"], "size": 0.05}
    moved, other = (ss.mask(each, spec, insecure_seed=4).data.table["born"].to_pylist() for each in (dates, plain))
    days_after = [None if day is None else (day - dt.date(1970, 1, 1)).days for day in moved]
    assert days_after == [None if number is None else round(number) for number in other]


def test_noise_of_numbers_and_dates_has_its_own_size_each():
    table = table_of(days(3_000, missing=False), pa.date32())
    data = read(table.append_column("n", pa.array(np.arange(3_000.0))), kinds={"n": "numeric"})
    spec = {"method": "noise", "attributes": ["born", "n"], "days": 5, "size": 0.1, "decimals": 3}
    masked = ss.mask(data, spec, insecure_seed=1)
    assert "0.1 standard deviations and of 5 days" in masked.plan.sentence
    moved = [
        (a - b).days for a, b in zip(masked.data.table["born"].to_pylist(), table["born"].to_pylist(), strict=True)
    ]
    assert 4.5 < statistics.pstdev(moved) < 5.6
    for wrong in ({"attributes": ["n"], "days": 5}, {"attributes": ["n", "born"], "days": 5, "size": 0}):
        with pytest.raises(SpecError):
            ss.mask(data, {"method": "noise", **wrong}, insecure_seed=1)


def test_a_moved_date_never_reads_as_a_code_for_missing():
    table = pa.table({"born": ["2020-01-01", "2020-01-03"] * 200 + ["2020-01-02"] * 5})
    data = read(table, kinds={"born": "date"}, missing=["2020-01-02"])
    spec = {"method": "noise", "attributes": ["born"], "days": 1}
    after = ss.mask(data, spec, insecure_seed=1).data.table["born"].to_pylist()
    assert after.count("2020-01-02") == 5


def test_groups_of_dates_get_the_day_nearest_to_their_mean_halves_to_even():
    values = [dt.date(2000, 1, 1), dt.date(2000, 1, 2), dt.date(2010, 1, 1), dt.date(2010, 1, 4)]
    data = read(table_of(values, pa.date32()))
    spec = {"method": "microaggregation", "attributes": ["born"], "k": 2, "groups": "univariate"}
    found = ss.mask(data, spec, insecure_seed=1).data.table["born"].to_pylist()
    epoch = dt.date(1970, 1, 1)
    expected = []
    for pair in (values[:2], values[2:]):
        mean = statistics.fmean((day - epoch).days for day in pair)
        expected += [epoch + dt.timedelta(round(mean))] * 2  # Python rounds halves to even
    assert found == expected


def test_grouped_dates_are_shared_by_k_records(form):
    data = read(table_of(days(), form))
    masked = ss.mask(data, {"method": "microaggregation", "attributes": ["born"], "k": 5}, insecure_seed=1).data
    found = [day for day in as_dates(masked.table["born"]) if day is not None]
    assert min(found.count(day) for day in set(found)) >= 5


def test_dates_near_in_rank_are_exchanged(form):
    values = days()
    data = read(table_of(values, form))
    masked = ss.mask(data, {"method": "rank_swap", "attributes": ["born"], "window": 0.05}, insecure_seed=1).data
    after = as_dates(masked.table["born"])
    known = sorted(day for day in values if day is not None)
    assert sorted(day for day in after if day is not None) == known
    width = int(0.05 * len(known))
    for old, new in zip(values, after, strict=True):
        if old is not None:
            low, high = sorted((old, new))
            assert known.index(high) - (len(known) - 1 - known[::-1].index(low)) <= width


def test_dates_are_swapped_and_come_back(form):
    data = read(table_of(days(), form))
    masked = workflow.swap(data, swap=["born"], pairs=40, insecure_seed=1)
    assert sorted(map(str, masked.data.table["born"].to_pylist())) == sorted(map(str, data.table["born"].to_pylist()))
    assert masked.undo().table["born"].to_pylist() == data.table["born"].to_pylist()


# --- Where a date is not a category.


def test_a_date_is_no_key_until_it_is_banded():
    data = read(table_of(days(), pa.date32()))
    masked = workflow.swap(data, swap=["sex"], pairs=20, insecure_seed=1)
    refused = [
        lambda: workflow.mask(data, {"method": "suppress", "keys": ["born", "sex"]}, insecure_seed=1),
        lambda: workflow.mask(data, {"method": "pram", "attributes": ["born"]}, insecure_seed=1),
        lambda: workflow.risky(data, keys=["born", "sex"]),
        lambda: workflow.assess(masked, measures=["hellinger:attributes=born+sex"]),
        lambda: workflow.assess(masked, measures=["k_anonymity:keys=born+sex"]),
        lambda: workflow.swap(data, swap=["sex"], pairs=2, targeting={"keys": ["born"]}, insecure_seed=1),
    ]
    for call in refused:
        with pytest.raises(SpecError) as error:
            call()
        assert "date_band" in error.value.hint, error.value
    left_out = workflow.assess(masked, attributes=["born", "sex"]).left_out
    assert {"hellinger", "n_rule"} <= {each.measure for each in left_out}
    assert workflow.assess(masked, measures=["share_changed:attributes=born"]).scores[0].value == 0
    banded = apply_step(data, {"step": "date_band", "attribute": "born", "by": "year", "breaks": [1950, 2000]})
    assert workflow.risky(banded, keys=["born", "sex"]) is not None
    assert "born" in banded.schema.categorical
    assert "born" not in data.schema.categorical


def test_a_banded_date_is_compared_in_its_bands():
    data = read(table_of(days(), pa.date32()))
    step = {"step": "date_band", "attribute": "born", "by": "year", "breaks": [1950, 2000]}
    masked = ss.mask(data, {"method": "recode", "steps": [step]}, insecure_seed=1)
    scores = workflow.assess(masked, measures=["information_loss"], attributes=["born"])
    assert scores.scores[0].value > 0


def test_means_of_dates_are_measured_in_days_relative_to_their_spread():
    values = days(missing=False)
    data = read(table_of(values, pa.date32()))
    masked = ss.mask(data, {"method": "top_bottom", "attributes": ["born"], "latest": "1990-01-01"}, insecure_seed=1)
    assessment = workflow.assess(masked, measures=["mean_change:variables=born"])
    numbers = [day.toordinal() for day in values]
    after = [min(day, dt.date(1990, 1, 1)).toordinal() for day in values]
    expected = (statistics.fmean(after) - statistics.fmean(numbers)) / statistics.pstdev(numbers)
    assert assessment.scores[0].value == pytest.approx(abs(expected), rel=1e-6)
    default = workflow.assess(masked)
    assert "mean_change" in {score.measure for score in default.scores}


def test_parsing_of_dates_agrees_with_the_calendar():
    for year in (1896, 1900, 1904, 2000, 2023, 2024):
        for month in range(1, 13):
            for day in range(1, 32):
                text = f"{year}-{month:02d}-{day:02d}"
                try:
                    expected = dt.date(year, month, day)
                except ValueError:
                    expected = None
                assert parse_date(text) == expected
                assert (to_days(pa.array([text])) is None) == (expected is None)
