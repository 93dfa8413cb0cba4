"""Columns that number persons or households: detected by their structure, whatever their name; identifiers are checked.

Serial numbers are whole and dense, ascend with the rows, or are long and of equal length. A person's number differs in
(nearly) every record. A household's number repeats, in small groups whose members agree in other columns far more often
than by chance. Columns that are steps of the number itself, such as an age group beside an age, are no evidence.

An identifier is present and unique; errors name records, never values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safeswap.arrays.types import Codes, Flags
from safeswap.errors import InputError
from safeswap.files.columns import distinct_count
from safeswap.model.columns import decode_dictionary
from safeswap.model.microdata import Coded, code_column
from safeswap.model.text import plural

# Let a column divide the records into groups. Another column *follows* from it (the region from a county, say) if two
# records of one group agree far more often than two records of the file: Cohen's kappa, (agreement - chance) /
# (1 - chance), is close to 1, and there are enough pairs to rule out chance. If a masking then changes only some
# records of a group, the others reveal the original value. So a release must know which groups no longer agree.
#
# The cost is linear in the records: each record is compared with one representative of its group.

ENOUGH = 20.0
"""Pairs times the chance to disagree: this many pairs agree by chance with a probability below exp(-20)."""

_RUNS, _RUN = 10, 2_000


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Agreement within groups: ``pairs`` compared, the number that agree, and the chance that two records do."""

    pairs: int
    agreeing: int
    chance: float

    @property
    def kappa(self) -> float:
        """Agreement beyond chance, from 0 (none) to 1 (full); also 0 if too few pairs were compared."""
        if not self.is_enough:
            return 0.0
        return (self.agreeing / self.pairs - self.chance) / (1 - self.chance)

    @property
    def is_enough(self) -> bool:
        """True if full agreement could not be due to chance."""
        return self.pairs * (1 - self.chance) >= ENOUGH


def agreement(group: Coded, value: Coded) -> Agreement:
    """Compare each record with a representative of its group; records without a group are skipped.

    >>> import pyarrow as pa
    >>> from safeswap.model.microdata import code_column
    >>> household, region = ([n // 3 for n in range(90)], [n // 3 % 4 for n in range(90)])
    >>> found = agreement(*(code_column(pa.chunked_array([values])) for values in (household, region)))
    >>> found.pairs, found.agreeing, round(found.chance, 2), found.kappa
    (60, 60, 0.25, 1.0)
    """
    codes, values = _drop_ungrouped(group, value)
    representative, present = _representatives(codes, values, len(group.levels))
    agreeing = int(np.count_nonzero(representative[codes] == values)) - present
    counts = np.bincount(values) if len(values) else np.ones(1)
    chance = float(np.sum((counts / max(len(values), 1)) ** 2))
    return Agreement(pairs=len(codes) - present, agreeing=agreeing, chance=min(chance, 1.0))


def is_determined(group: Coded, value: Coded, *, kappa: float) -> bool:
    """Return whether a column follows from another."""
    return agreement(group, value).kappa >= kappa


def is_ruled_out(group: Coded, value: Coded, *, kappa: float) -> bool:
    """Return whether a sample of the records already shows that a column does not follow from another."""
    seen = agreement(group, value)
    return seen.is_enough and seen.kappa < kappa - 0.1


def split_groups(group: Coded, value: Coded) -> Flags:
    """Flag the groups whose records do not all agree; missing counts as a value."""
    codes, values = _drop_ungrouped(group, value)
    representative, _ = _representatives(codes, values, len(group.levels))
    flags = np.zeros(len(group.levels), dtype=np.bool_)
    flags[codes[representative[codes] != values]] = True
    return flags


def _drop_ungrouped(group: Coded, value: Coded) -> tuple[Codes, Codes]:
    codes, values = group.codes, value.codes
    if not group.has_missing:
        return codes, values
    known = codes < len(group.levels)
    return codes[known], values[known]


def _representatives(codes: Codes, values: Codes, groups: int) -> tuple[npt.NDArray[Any], int]:
    """Return the value of the last record of each group, and the number of non-empty groups."""
    representative = np.zeros(groups, dtype=values.dtype)
    representative[codes] = values
    present = np.zeros(groups, dtype=np.bool_)
    present[codes] = True
    return representative, int(np.count_nonzero(present))


def sample_rows(records: int) -> npt.NDArray[np.int64]:
    """Sample runs of neighbours, since households are often adjacent; all rows if the file is hardly larger."""
    if records <= 2 * _RUNS * _RUN:
        return np.arange(records)
    starts = np.linspace(0, records - _RUN, _RUNS).astype(np.int64)
    return (starts[:, None] + np.arange(_RUN)).ravel()


FEWEST = 30
"""Fewer distinct values are not taken for a numbering."""

LARGEST_HOUSEHOLD = 10
"""The largest average group; larger groups are areas, institutions or years."""

MOSTLY_DISTINCT = 0.95
CONSTANT = 0.95

_CLOSE = 4  # possible numbers per number that occurs
_LONG = 7  # digits
_MARKS = 3  # texts such as "NA" among numbers
_MOST_COLUMNS = 200
_MOST_SORTED = 100_000

Numbers = npt.NDArray[np.int64]


def numbers_persons(column: pa.ChunkedArray, *, distinct: int, scale: float = 1.0) -> bool:
    """Return whether a column holds numbers, ``distinct`` of them, that differ in (nearly) every record.

    ``scale`` is the size of the file relative to these records, if they are a sample.

    >>> rows = range(100)
    >>> columns = [1000 + n for n in rows], [n * n * 997 % 10_007 / 7 for n in rows], [n % 20 for n in rows]
    >>> [numbers_persons(pa.chunked_array([values]), distinct=len(set(values))) for values in columns]
    [True, False, False]
    """
    known = len(column) - column.null_count
    if distinct < max(FEWEST, MOSTLY_DISTINCT * known):
        return False
    numbers = _whole_numbers(decode_dictionary(column).drop_null())
    return numbers is not None and (_are_close(numbers, distinct * scale) or _are_ascending(numbers))


def counts_records(column: pa.ChunkedArray) -> bool:
    """Return whether a column is a permutation of successive whole numbers.

    >>> counts_records(pa.chunked_array([["p3", "p1", "p2"]])), counts_records(pa.chunked_array([[1, 2, 4]]))
    (True, False)
    """
    if column.null_count or len(column) < 2:
        return False
    values = decode_dictionary(column)
    if not pa.types.is_integer(values.type):
        found = _whole_numbers(values)
        if found is None:
            return False
        values = pa.chunked_array([pa.array(found)])
    ends = pc.min_max(values).as_py()
    return bool(ends["max"] - ends["min"] + 1 == len(column)) and is_unique(values)


def numbers_households(coded: Coded, others: Mapping[str, Coded], *, scale: float = 1.0) -> bool:
    """Return whether a column holds numbers that repeat in small groups, within which several others are constant.

    One other is enough if equal numbers are adjacent in the file.

    >>> from safeswap.model.microdata import code_column
    >>> values = [n // 3 for n in range(300)], [n // 3 * 7 % 4 for n in range(300)], [n % 5 for n in range(300)]
    >>> household, region, age = (code_column(pa.chunked_array([each])) for each in values)
    >>> numbers_households(household, {"region": region, "age": age}), numbers_households(age, {"region": region})
    (True, False)
    """
    distinct, records = len(coded.levels), len(_known_codes(coded))
    repeats = distinct < MOSTLY_DISTINCT * records
    if not (distinct >= FEWEST and repeats and records <= LARGEST_HOUSEHOLD * distinct):
        return False
    numbers = _whole_numbers(pa.chunked_array([coded.levels]))
    if numbers is None or not (_are_close(numbers, distinct * scale) or _are_ascending(numbers[_known_codes(coded)])):
        return False
    needed = 1 if _are_adjacent(coded) else 2
    for other in list(others.values())[:_MOST_COLUMNS]:
        if is_determined(coded, other, kappa=CONSTANT) and not _is_step_of(numbers, coded, other):
            needed -= 1
            if not needed:
                return True
    return False


def _known_codes(coded: Coded) -> npt.NDArray[np.unsignedinteger]:
    return coded.codes[coded.codes < len(coded.levels)] if coded.has_missing else coded.codes


def _are_close(numbers: Numbers, distinct: float) -> bool:
    """Return whether the numbers are dense, or all long and of equal length."""
    least, most = int(numbers.min()), int(numbers.max())
    return least >= 0 and (most - least < _CLOSE * distinct or len(str(least)) == len(str(most)) >= _LONG)


def _are_ascending(numbers: Numbers) -> bool:
    return bool(numbers[0] >= 0 and (numbers[1:] >= numbers[:-1]).all())


def _whole_numbers(values: pa.ChunkedArray) -> Numbers | None:
    """Convert values to whole numbers, texts by their digits; None if they are not, or if two texts become one."""
    kind = values.type
    try:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            numbers = values.cast(pa.int64())  # refuses fractions
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            numbers = _parse_texts(values)
        else:
            return None
    except pa.ArrowInvalid:
        return None
    if not len(numbers) or numbers.null_count == len(numbers):
        return None
    found: Numbers = numbers.fill_null(pc.min(numbers)).to_numpy()
    return found


def _parse_texts(levels: pa.ChunkedArray) -> pa.ChunkedArray:
    """Parse texts as numbers, else by their digits; null for a mark without digits."""
    if _are_quantities(levels):
        raise pa.ArrowInvalid("fractions")
    digits = pc.replace_substring_regex(levels, r"[^0-9]", "")
    if distinct_count(digits) < distinct_count(levels):
        raise pa.ArrowInvalid("two texts have the same digits")
    marks = pc.equal(digits, "")
    if (pc.sum(marks).as_py() or 0) > _MARKS:
        raise pa.ArrowInvalid("no numbers")
    texts = pc.if_else(marks, None, levels)
    try:
        quantities = texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return pc.if_else(marks, None, digits).cast(pa.int64())
    return pc.if_else(marks, None, digits if _are_digits(texts) else quantities).cast(pa.int64())


def _are_quantities(texts: pa.ChunkedArray) -> bool:
    """Return whether all texts are numbers, some with fractions; much faster than to look at their digits."""
    try:
        numbers = texts.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return False
    finite = numbers[np.isfinite(numbers)]
    return bool((finite != np.floor(finite)).any())


def _are_digits(texts: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, "^[0-9]+$")).as_py())


def _are_adjacent(coded: Coded) -> bool:
    """Return whether the records of each value are adjacent."""
    codes = _known_codes(coded)
    return 1 + int(np.count_nonzero(codes[1:] != codes[:-1])) == len(coded.levels)


def _is_step_of(numbers: Numbers, coded: Coded, other: Coded) -> bool:
    """Return whether a column changes much more rarely along the numbers than in random order."""
    value = np.zeros(coded.cardinality, dtype=other.codes.dtype)
    value[coded.codes] = other.codes
    some = slice(None, None, 1 + len(numbers) // _MOST_SORTED)
    along = value[: len(numbers)][some][np.argsort(numbers[some])]
    shares = np.bincount(along) / len(along)
    expected = len(along) * (1 - float(np.sum(shares**2)))
    return int(np.count_nonzero(along[1:] != along[:-1])) < expected / 4


_SHOWN = 10

Lines = Callable[[list[int]], list[int]]
"""Converts record positions to line numbers, for text files."""


def check_identifier(
    column: pa.ChunkedArray,
    *,
    name: str,
    missing: Sequence[str] = (),
    file: str = "",
    lines: Lines | None = None,
) -> None:
    """Refuse a column that does not identify every record.

    >>> check_identifier(pa.chunked_array([["a", "b"]]), name="id")
    >>> check_identifier(pa.chunked_array([["a", "b", "a"]]), name="id")
    Traceback (most recent call last):
    safeswap.errors.InputError: 2 records share their identifier 'id' with another, the first in records 1, 3
    """
    where = {"file": file} if file else {}
    absent = find_missing(column, missing)
    if absent.size:
        raise InputError(
            f"{plural(absent.size, 'record has', 'records have')} no identifier {name!r}, "
            f"the first in {describe_positions(absent, lines)}",
            code="missing-identifier",
            hint="give every record an identifier, or name no identifier column",
            column=name,
            **where,
            **positions_of(absent, lines),
        )
    if is_unique(column):
        return
    codes = code_column(column).codes
    counts = np.bincount(codes)
    shared = np.flatnonzero(counts[codes] > 1)
    first = np.flatnonzero(codes == codes[shared[0]])
    raise InputError(
        f"{plural(shared.size, 'record shares its', 'records share their')} identifier {name!r} with another, "
        f"the first in {describe_positions(first, lines)}",
        code="duplicate-identifier",
        hint="an identifier must be unique; name another column, or none to know records by their position",
        column=name,
        **where,
        **positions_of(first, lines),
    )


def find_missing(column: pa.ChunkedArray, codes: Sequence[str] = ()) -> Any:
    """Return the positions of records without an identifier: null, NaN, empty, or a stated missing code."""
    absent = pc.is_null(column, nan_is_null=True)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = column.cast(kind) if pa.types.is_dictionary(column.type) else column
        absent = pc.or_(absent, pc.is_in(values, value_set=pa.array(["", *codes], type=kind)))
    return np.flatnonzero(absent.to_numpy())


def is_unique(column: pa.ChunkedArray) -> bool:
    """Return whether no value occurs twice, missing excluded; a sorted column, the usual case, takes one pass.

    >>> is_unique(pa.chunked_array([[3, 1, 2]])), is_unique(pa.chunked_array([["a"], ["a"]]))
    (True, False)
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if len(column) < 2:
        return True
    try:
        if pc.all(pc.less(column.slice(0, len(column) - 1), column.slice(1))).as_py():
            return True
    except pa.ArrowNotImplementedError:  # a type without an order can still be counted
        pass
    if pa.types.is_integer(column.type) and not column.null_count:
        spread = _count_by_marks(column.to_numpy())
        if spread is not None:
            return spread == len(column)
    return bool(distinct_count(column) + column.null_count == len(column))


def _count_by_marks(values: npt.NDArray[np.integer[Any]]) -> int | None:
    """Count distinct integers with one byte per possible value; None if there are too many possible values.

    This costs a fraction of a hash table of all identifiers.
    """
    least, most = int(values.min()), int(values.max())
    if most - least >= 8 * len(values):
        return None
    marks = np.zeros(most - least + 1, dtype=np.bool_)
    marks[values - least] = True
    return int(np.count_nonzero(marks))


def positions_of(positions: Any, lines: Lines | None) -> dict[str, list[int]]:
    """Return the first few positions as fields of an error: record numbers from 1, and lines of a text file."""
    shown = positions[:_SHOWN].tolist()
    found = {"records": [position + 1 for position in shown]}
    return {**found, "lines": lines(shown)} if lines else found


def describe_positions(positions: Any, lines: Lines | None) -> str:
    """Return the first few positions in words."""
    found = positions_of(positions, lines)
    numbers = ", ".join(f"{n:,}" for n in found.get("lines", found["records"]))
    return f"{'lines' if lines else 'records'} {numbers}" + (" …" if positions.size > _SHOWN else "")
