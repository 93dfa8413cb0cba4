"""Dates as days, and dates and times of Stata, SPSS and SAS files: numbers on disk, dates in memory.

A date is a day without a time. Columns of dates hold Arrow dates, timestamps at midnight without a zone, or ISO texts
(``2024-02-29``, as in CSV files). :func:`to_days` numbers the days from 1970-01-01, :func:`from_days` converts back.

These programs store a date as a number and mark it by its display format. A column is read as dates only if every value
converts back to the same number; otherwise it stays numeric, with its display format. So do periods (months and
quarters of Stata) and durations, for which there is no type; :func:`is_date_format` shows that they are not quantities.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.types import Floats

Program = Literal["spss", "stata", "sas"]

ISO_DATE = r"\d{4}-\d{2}-\d{2}"
EPOCH = dt.date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = ((dt.date(*day) - EPOCH).days for day in ((1, 1, 1), (9999, 12, 31)))


def to_days(values: pa.Array | pa.ChunkedArray) -> Floats | None:
    """Return the number of each day since 1970-01-01, NaN for missing; None unless every value is a date.

    >>> to_days(pa.array(["1970-01-02", None, "1899-12-31"])).tolist(), to_days(pa.array(["2023-02-29"]))
    ([1.0, nan, -25568.0], None)
    >>> to_days(pa.array([dt.datetime(1970, 1, 2, 12)]))
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        return to_days(values.cast(kind.value_type))
    if not (pa.types.is_date(kind) or is_text(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)):
        return None
    if is_text(kind):
        values = values.cast(pa.large_string())
        if not pc.all(pc.match_substring_regex(values, f"^{ISO_DATE}$"), min_count=0).as_py():
            return None
    try:
        days = values.cast(pa.date32())  # refuses a day that does not exist
    except pa.ArrowInvalid:
        return None
    if pa.types.is_timestamp(kind) and not days.cast(kind).equals(values):
        return None  # a time of day
    numbers: Floats = days.cast(pa.int32()).cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
    return numbers if not (numbers < _FIRST_DAY).any() and not (numbers > _LAST_DAY).any() else None


def from_days(numbers: Floats, kind: pa.DataType) -> pa.Array:
    """Return whole day numbers as dates in the type of a column; NaN is missing. Days lie in the years 1 to 9999.

    >>> from_days(np.array([19_782.0, np.nan]), pa.string()).to_pylist()
    ['2024-02-29', None]
    """
    days = np.clip(numbers, _FIRST_DAY, _LAST_DAY)
    dates = pa.array(days, from_pandas=True).cast(pa.int32()).cast(pa.date32())
    return dates.cast(kind.value_type if pa.types.is_dictionary(kind) else kind)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def parse_date(text: str) -> dt.date | None:
    """Return the date that a text denotes, also one with midnight as its time; None if it denotes none.

    >>> parse_date("2024-02-29 00:00:00"), parse_date("2023-02-29"), parse_date("20240229")
    (datetime.date(2024, 2, 29), None, None)
    """
    if not re.fullmatch(ISO_DATE + r"( 00:00:00)?", text, re.ASCII):
        return None
    try:
        return dt.date.fromisoformat(text[:10])
    except ValueError:
        return None


_DAY = 86_400_000_000  # microseconds, the unit of all arithmetic
_EPOCH = {"spss": dt.date(1582, 10, 14), "stata": dt.date(1960, 1, 1), "sas": dt.date(1960, 1, 1)}
_EARLIEST, _LATEST = ((dt.date(year, 1, 1) - EPOCH).days * _DAY for year in (1000, 9999))

_STATA_TIME = r"%-?tc[Hh]{1,2}:?MM(:?SS(\.s+)?)?(\s?[AaPp]\.?[Mm]\.?)?"
# SAS also stores a date where its format shows only a part of it, such as the month.
_SAS_DATES = (
    r"DATE|(DDMMYY|MMDDYY|YYMMDD|MMYY|YYMM|YYQR?)[BCDNPS]?|[EB]8601DA|WORDDAT[EX]|WEEKDAT[EX]|JULIAN"
    r"|MONYY|YYMON|YEAR|QTRR?|MONTH|MONNAME|DAY|DOWNAME|WEEKDAY|WEEK[UVW]|JULDAY"
)
_SAS_MOMENTS = r"DATETIME|DATEAMPM|MDYAMPM|[EB]8601D[TN]|DTDATE|DTMONYY|DTYEAR|DTYYQC|DTWKDATX"
_TYPES: dict[Program, tuple[tuple[str, str, int], ...]] = {  # pattern of the format, type, microseconds per unit
    "spss": (
        (r"([AESJ]?DATE|QYR|MOYR|WKYR)\d*", "date", 1_000_000),
        (r"(DATETIME|YMDHMS)\d*(\.\d+)?", "timestamp", 1_000_000),
        (r"TIME\d*(\.\d+)?", "time", 1_000_000),
    ),
    "stata": (
        (_STATA_TIME, "time", 1_000),
        (r"%-?tc.*", "timestamp", 1_000),
        (r"%-?t?d.*", "date", _DAY),
    ),
    "sas": (
        (r"(" + _SAS_DATES + r")\d*", "date", _DAY),
        (r"(" + _SAS_MOMENTS + r")\d*(\.\d+)?", "timestamp", 1_000_000),
        (r"(TIME|TOD|HHMM|HOUR|MMSS|TIMEAMPM|[EB]8601TM)\d*(\.\d+)?", "time", 1_000_000),
    ),
}
_FORMATS: dict[Program, dict[str, str]] = {
    "spss": {"date": "DATE11", "timestamp": "DATETIME23.3", "time": "TIME12.3"},
    "stata": {"date": "%td", "timestamp": "%tc", "time": "%tcHH:MM:SS"},
}
_PERIODS = re.compile(r"%-?t[Cwmqhy].*|(DTIME|MTIME|WKDAY|MONTH)\d*(\.\d+)?")


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The rule by which a program stores one type of dates or times as numbers.

    >>> clock = clock_of("%td", "stata")
    >>> clock.read([0.0, None]).to_pylist()
    [datetime.date(1960, 1, 1), None]
    >>> clock.write(clock.read([10_959.0])).tolist()
    [10959.0]
    """

    program: Program
    sort: str
    unit: int

    def read(self, values: Iterable[float | None]) -> pa.Array | None:
        """Convert numbers to dates or times; None unless all of them convert exactly."""
        try:
            numbers = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        except (TypeError, ValueError):
            return None
        missing = np.isnan(numbers)
        micro = np.where(missing, 0.0, np.where(missing, 0.0, numbers) * self.unit + self._origin)
        if not (np.isfinite(micro).all() and ((micro >= self._bounds[0]) & (micro < self._bounds[1]))[~missing].all()):
            return None
        whole = _round_to_unit(numbers, missing, self.unit) + self._origin * ~missing
        if (whole % self._step).any() or (self._numbers(whole) != numbers)[~missing].any():
            return None
        types = {"date": pa.timestamp("us"), "timestamp": pa.timestamp("us"), "time": pa.time64("us")}
        found = pa.array(whole, type=pa.int64(), mask=missing).cast(types[self.sort])
        return found.cast(pa.date32()) if self.sort == "date" else found

    def write(self, column: pa.Array | pa.ChunkedArray) -> Floats | None:
        """Convert dates or times to numbers; None unless all of them convert exactly."""
        whole = _microseconds(column)
        if whole is None:
            return None
        numbers = self._numbers(whole)
        numbers[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
        again = self.read(numbers)
        exact = None if again is None else _microseconds(again)
        return numbers if exact is not None and np.array_equal(exact, whole) else None

    def _numbers(self, whole: npt.NDArray[np.int64]) -> Floats:
        return np.asarray((whole - self._origin) / self.unit, dtype=np.float64)

    @property
    def _origin(self) -> int:
        return 0 if self.sort == "time" else (_EPOCH[self.program] - EPOCH).days * _DAY

    @property
    def _step(self) -> int:
        return _DAY if self.sort == "date" else 1

    @property
    def _bounds(self) -> tuple[int, int]:
        return (0, _DAY) if self.sort == "time" else (_EARLIEST, _LATEST)


def clock_of(display: str, program: Program) -> Clock | None:
    """Return the clock that a column's display format implies, if any."""
    for pattern, sort, unit in _TYPES[program]:
        if re.fullmatch(pattern, display):
            return Clock(program=program, sort=sort, unit=unit)
    return None


def clock_for(kind: pa.DataType, display: str, program: Program) -> tuple[Clock, str] | None:
    """Return the clock and format to write a column of this type: its own format if the program has it for the type."""
    sort = next((name for name, is_sort in _SORTS.items() if is_sort(kind)), None)
    if sort is None or (sort == "timestamp" and kind.tz is not None):
        return None
    own = clock_of(display, program)
    if own is not None and own.sort == sort:
        return own, display
    wanted = _FORMATS[program][sort]
    clock = clock_of(wanted, program)
    return None if clock is None else (clock, wanted)


_SORTS = {"date": pa.types.is_date, "timestamp": pa.types.is_timestamp, "time": pa.types.is_time}


def is_date_format(display: str) -> bool:
    """Return whether a display format shows numbers as dates, times, periods or durations.

    >>> [is_date_format(each) for each in ("%tm", "DTIME10", "EDATE10", "F8.2", "%9.0g", "")]
    [True, True, True, False, False, False]
    """
    programs: tuple[Program, ...] = ("spss", "stata", "sas")
    return bool(_PERIODS.fullmatch(display)) or any(clock_of(display, program) for program in programs)


def _round_to_unit(numbers: Floats, missing: npt.NDArray[np.bool_], unit: int) -> npt.NDArray[np.int64]:
    """Convert to microseconds, rounded to the millisecond where that gives the same number back."""
    known = np.where(missing, 0.0, numbers)
    fine = np.round(known * unit).astype(np.int64)
    coarse = np.round(known * unit / 1000).astype(np.int64) * 1000
    return np.where(coarse / unit == known, coarse, fine)


def _microseconds(column: Any) -> npt.NDArray[np.int64] | None:
    """Convert dates or times to whole microseconds, missing as 0; None if a value is finer than that."""
    kind = column.type
    try:
        plain = column.cast(pa.time64("us") if pa.types.is_time(kind) else pa.timestamp("us"))
    except pa.ArrowInvalid:
        return None
    found: npt.NDArray[np.int64] = plain.cast(pa.int64()).fill_null(0).to_numpy()
    return found
