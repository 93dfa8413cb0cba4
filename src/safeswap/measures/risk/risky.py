"""Find the combinations of key values that too few records share, and these records."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays.combinations import (
    Classes,
    SmallCells,
    cell_codes,
    cell_sizes,
    find_small_cells,
    group_records,
    lowest_safe,
    mask_of,
    matching_sizes,
    published_sizes,
)
from safeswap.arrays.names import Names
from safeswap.arrays.types import Flags, Int64s, Rows, UInt64s
from safeswap.errors import SpecError
from safeswap.measures.households import combine_households
from safeswap.measures.key_cells import key_classes
from safeswap.model.columns import to_frame_type, to_numbers
from safeswap.model.combination import Combinations, Missing, as_combinations, check_combinations, check_sum
from safeswap.model.households import find_households
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Resolved, Scenario, describe_numbers
from safeswap.model.schema import level_texts, require_household
from safeswap.model.text import Part, plural


def table_of(found: Risky, part: Part) -> pa.Table:
    """Return one part as an Arrow table."""
    parts: dict[str, Callable[[Risky], pa.Table]] = {
        "dimensions": dimension_table,
        "keys": key_table,
        "combinations": combination_table,
        "unsafe": unsafe_table,
        "records": record_table,
    }
    if part not in parts:
        raise SpecError(
            f"a list of unsafe combinations has no part {part!r}",
            code="unknown-part",
            hint="the parts are: " + ", ".join(parts),
        )
    return parts[part](found)


def dimension_table(found: Risky) -> pa.Table:
    """Return, by number of keys, the combinations of keys checked and the unsafe combinations of values."""
    sizes = list(found.by_dimension)
    lists = [sum(len(each.keys) == size for each in found.combinations) for size in sizes]
    occupied = [sum(each.occupied for each in found.combinations if len(each.keys) == size) for size in sizes]
    unsafe = list(found.by_dimension.values())
    return pa.table({"keys": sizes, "combinations": lists, "occupied": occupied, "unsafe": unsafe})


def key_table(found: Risky) -> pa.Table:
    """Return, by key, the records that are unsafe with it and those that would be safe without it."""
    return pa.table(
        {
            "key": [each.key for each in found.keys],
            "records": [each.records for each in found.keys],
            "safe_without": [each.alone for each in found.keys],
        }
    )


def combination_table(found: Risky) -> pa.Table:
    """Return, by combination of keys, its tolerance, the values that occur, the unsafe ones, and their records."""
    return pa.table(
        {
            "combination": [" × ".join(each.keys) for each in found.combinations],
            "tolerance": [float(each.tolerance) for each in found.combinations],
            "occupied": [each.occupied for each in found.combinations],
            "unsafe": [each.unsafe for each in found.combinations],
            "records": [each.records for each in found.combinations],
        }
    )


def unsafe_table(found: Risky) -> pa.Table:
    """Return every unsafe combination of values, rarest first, with a column per key. Confidential: shows values.

    A key outside the combination is null, and so is a missing value.
    """
    names = [each.key for each in found.keys]
    texts = {name: pa.array(_texts(found.data, name), pa.string()) for name in names}
    parts = []
    for keys, tolerance, rows, sizes in found.cells():
        told = {
            "combination": pa.array([" × ".join(keys)] * len(rows), pa.string()),
            "count": pa.array(sizes),
            "tolerance": pa.array(np.full(len(rows), float(tolerance))),
        }
        values = {
            name: known.take(pa.array(found.data.coded(name).codes[rows]))
            if name in keys
            else pa.nulls(len(rows), pa.string())
            for name, known in texts.items()
        }
        parts.append(pa.table({**{_unused_name(name, texts): column for name, column in told.items()}, **values}))
    whole = pa.concat_tables(parts)
    order = np.lexsort((np.arange(whole.num_rows), whole.column(1).to_numpy()))
    return whole.take(pa.array(order))


def record_table(found: Risky) -> pa.Table:
    """Return every record in an unsafe combination: row, identifier, number of combinations. Confidential."""
    number = np.zeros(found.records, np.int64)
    for each in found.combinations:
        if each.unsafe:
            number[found.rows(*each.keys)] += 1
    rows = np.flatnonzero(number)
    columns = {"row": pa.array(rows), "unsafe_combinations": pa.array(number[rows])}
    identifier = found.data.schema.identifier
    if identifier is None:
        return pa.table(columns)
    known = found.data.table.column(identifier.name).take(pa.array(rows))
    return pa.table({identifier.name: known, **{_unused_name(n, (identifier.name,)): c for n, c in columns.items()}})


def _unused_name(name: str, taken: Container[str]) -> str:
    while name in taken:
        name += "_"
    return name


_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class RiskyCombination:
    """One combination of keys: the number of combinations of values, the unsafe ones, and their records."""

    keys: Names
    tolerance: float
    occupied: int
    unsafe: int
    records: int


@dataclass(frozen=True, kw_only=True)
class RiskyKey:
    """One key: the number of records in an unsafe combination with it, and of those that would be safe without it."""

    key: str
    records: int
    alone: int


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """What the totals of a count are about: numbers that are equal if the records, or their division, are.

    ``partitions`` are of all cells of each combination, ``combinations`` of the records in its unsafe cells, ``keys``
    of the records of each key and of those that would be safe without it, ``every`` of all unsafe records.
    """

    partitions: tuple[int, ...]
    combinations: tuple[int, ...]
    keys: tuple[tuple[int, int], ...]
    every: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Risky:
    """The unsafe combinations of a file. ``repr`` and ``as_dict`` show totals; values and rows only on request."""

    asked: Combinations
    records: int
    unsafe_records: int
    combinations: tuple[RiskyCombination, ...]
    keys: tuple[RiskyKey, ...]
    frame_type: str = "pyarrow"  # the type of the caller's dataframes
    note: str = ""  # about keys of the scenario that are gone, or that are numbers, and the caution
    caution: str = ""  # why a count of 0 means nothing
    _data: Microdata = field(repr=False)
    _names: Names = field(repr=False)
    _classes: Classes = field(repr=False)
    _somewhere: Int64s = field(repr=False)  # by class: the keys with which it is unsafe in some combination, as bits
    _everywhere: Int64s = field(repr=False)  # by class: the keys that all these combinations have
    _cells: tuple[tuple[Rows, npt.NDArray[Any]], ...] = field(repr=False)
    _is_small: tuple[npt.NDArray[np.uint8], ...] = field(repr=False)  # by combination: the unsafe classes, packed
    _squares: tuple[int, ...] = field(repr=False)

    @property
    def data(self) -> Microdata:
        """The checked file. Confidential."""
        return self._data

    @property
    def unsafe(self) -> int:
        """Number of unsafe combinations of values, over all combinations of keys."""
        return sum(each.unsafe for each in self.combinations)

    @property
    def by_dimension(self) -> dict[int, int]:
        """Number of unsafe combinations by number of keys."""
        found = dict.fromkeys(sorted({len(each.keys) for each in self.combinations}), 0)
        for each in self.combinations:
            found[len(each.keys)] += each.unsafe
        return found

    @property
    def scenario(self) -> str:
        """The name of the scenario that states the combinations; empty if they were stated by themselves."""
        return self.asked.name if isinstance(self.asked, Scenario) else ""

    @property
    def sentence(self) -> str:
        """The finding in plain words."""
        return describe_unsafe(self.unsafe, self.unsafe_records, self.records, self.lists)

    @property
    def lists(self) -> str:
        """The combinations of keys that were examined, in plain words."""
        lists = plural(len(self.combinations), "combination of keys", "combinations of keys")
        return lists + (f" ({self.asked.protected})" if self.asked.keys else "")

    def write(self, path: str | PathLike[str], *, part: Part = "unsafe", force: bool = False) -> None:
        """Write a part as csv or parquet, readable by its owner only.

        ``unsafe`` has the values, ``records`` the records behind them: both are internal.
        """
        from safeswap.files.write import write

        write(table_of(self, part), path, force=force)

    def listed(self, *, most: int | None = None) -> pa.Table:
        """Return every unsafe combination with its values and count, rarest first. Confidential: shows values."""
        which = np.repeat(np.arange(len(self._cells)), [len(classes) for classes, _ in self._cells])
        classes = np.concatenate([np.empty(0, np.int64), *(classes for classes, _ in self._cells)])
        sizes = np.concatenate([np.empty(0, np.int64), *(sizes for _, sizes in self._cells)])
        order = np.lexsort((classes, which, sizes))[:most]
        which, rows, sizes = which[order], self._classes.first[classes[order]], sizes[order]
        names: list[list[str]] = [[]] * len(order)
        values: list[list[str | None]] = [[]] * len(order)
        for i in np.unique(which):
            keys = self.combinations[i].keys
            for place, told in zip(np.flatnonzero(which == i), self._values(keys, rows[which == i]), strict=True):
                names[place], values[place] = list(keys), told
        return pa.table(
            {
                "keys": pa.array(names, pa.list_(pa.string())),
                "values": pa.array(values, pa.list_(pa.string())),
                "count": pa.array(sizes),
            }
        )

    def cells(self) -> Iterator[tuple[Names, float, Rows, npt.NDArray[Any]]]:
        """Yield, for each combination of keys, one record of each unsafe cell, and the cell sizes. Confidential."""
        for each, (classes, sizes) in zip(self.combinations, self._cells, strict=True):
            yield each.keys, each.tolerance, self._classes.first[classes], sizes

    def rows(self, *keys: str) -> Rows:
        """Return the positions of the records in an unsafe combination: of these keys, or of any. Confidential."""
        flags: Flags = self._somewhere != 0
        if keys:
            found = [set(each.keys) == set(keys) for each in self.combinations]
            if not any(found):
                raise SpecError(
                    f"{' × '.join(keys)} is not among the combinations that were examined",
                    code="unknown-combination",
                    hint="name the keys of one of them",
                )
            flags = self._unpack(self._is_small[found.index(True)])
        return np.flatnonzero(flags[self._classes.of_record])

    def _unpack(self, packed: npt.NDArray[np.uint8]) -> Flags:
        return np.unpackbits(packed, count=len(self._classes)).view(np.bool_)

    def subjects(self, words: UInt64s) -> Subjects:
        """Return what each total is about, from a word per record, whatever keys the question names. Confidential."""
        classes = self._classes
        own = np.zeros(len(classes), np.uint64)
        np.add.at(own, classes.of_record, words)

        def total(flags: Flags) -> int:
            return int(own[flags].sum(dtype=np.uint64))

        unsafe = self._somewhere != 0
        alone = np.where(unsafe, self._everywhere, 0)
        bits = [1 << place for place in range(len(self._names))]
        return Subjects(
            partitions=self._squares,
            combinations=tuple(total(self._unpack(packed)) for packed in self._is_small),
            keys=tuple((total((self._somewhere & bit) != 0), total((alone & bit) != 0)) for bit in bits),
            every=total(unsafe),
        )

    def to_frame(self, part: Part = "unsafe") -> Any:
        """Return a part as a dataframe of the input's type; an Arrow table if the data came from a file.

        ``dimensions``, ``keys`` and ``combinations`` are totals. ``unsafe`` shows values and ``records`` shows records:
        both are confidential.
        """
        return to_frame_type(table_of(self, part), self.frame_type)

    def _values(self, keys: Names, rows: Rows) -> list[list[str | None]]:
        """Return the values of some records as texts."""
        columns = [np.array(_texts(self._data, key), dtype=object)[self._data.coded(key).codes[rows]] for key in keys]
        found: list[list[str | None]] = np.stack(columns, axis=1).tolist()
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the totals as plain values."""
        return {
            **({"scenario": self.scenario, "note": self.note} if self.scenario else {}),
            "records": self.records,
            "protected": self.asked.protected,
            "unsafe_records": self.unsafe_records,
            "unsafe_combinations": self.unsafe,
            "by_dimension": {str(size): number for size, number in self.by_dimension.items()},
            "keys": [asdict(each) for each in self.keys],
            "combinations": [{**asdict(each), "keys": list(each.keys)} for each in self.combinations],
        }

    def __repr__(self) -> str:
        by_size = ", ".join(f"{number:,} of {size}" for size, number in self.by_dimension.items())
        worst = sorted((each for each in self.keys if each.records), key=lambda each: -each.records)
        lines = [f"<Risky: {f'{self.scenario}: ' if self.scenario else ''}{self.sentence}"]
        lines += [f"  {self.note}"] if self.note else []
        lines += [f"  by number of keys: {by_size}"] if len(self.by_dimension) > 1 else []
        lines += [
            f"  {each.key}: {plural(each.records, 'record')}, {each.alone:,} safe without it" for each in worst[:_SHOWN]
        ]
        return "\n".join(lines) + ">"


def describe_unsafe(unsafe: int, unsafe_records: int, records: int, lists: str) -> str:
    """Return in plain words how many combinations of values are unsafe, and how many records are in one."""
    if not unsafe:
        return f"no combination of values is unsafe, in {lists} over {plural(records, 'record')}"
    return (
        f"{plural(unsafe, 'combination of values is', 'combinations of values are')} unsafe, in {lists}; "
        f"{unsafe_records:,} of {plural(records, 'record')} ({unsafe_records / records:.2%}) are in one"
    )


def risky(data: Microdata, combinations: Any) -> Risky:
    """Find every unsafe combination: its count is above 0 and below its tolerance.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Town"), Attribute(name="Job")))
    >>> data = Microdata(pa.table({"Town": ["a", "a", "b"], "Job": ["x", "x", "x"]}), schema)
    >>> found = risky(data, {"keys": ["Town", "Job"], "up_to": 2, "tolerance": 2})
    >>> found.by_dimension, found.rows("Town").tolist(), found.listed(most=1).to_pylist()
    ({1: 1, 2: 1}, [2], [{'keys': ['Town'], 'values': ['b'], 'count': 1}])
    """
    asked = as_combinations(combinations)
    if isinstance(asked, Scenario) and asked.unit == "household":
        return _find_households(data, asked)
    stated = check_combinations(asked, data.schema, records=len(data))
    names = tuple(dict.fromkeys(name for keys, _ in stated for name in keys))
    classes = key_classes(data, names, missing=asked.missing, weight=asked.weight)
    if asked.weight is not None:
        check_sum(stated, float(classes.sizes.sum()))
    members = np.bincount(classes.of_record, minlength=len(classes))
    somewhere, everywhere = np.zeros(len(classes), np.int64), np.full(len(classes), -1, np.int64)
    found, cells, flags, squares = [], [], [], []
    for keys, tolerance in stated:
        places = [names.index(name) for name in keys]
        small = unsafe_cells(classes, places, tolerance, missing=asked.missing)
        mask = np.int64(mask_of(places))
        np.bitwise_or(somewhere, mask, out=somewhere, where=small.is_small)
        np.bitwise_and(everywhere, mask, out=everywhere, where=small.is_small)
        cells.append((small.classes, small.sizes))
        flags.append(np.packbits(small.is_small))
        squares.append(int(small.squares) if asked.weight is None else _sum_squares(classes, places, members))
        found.append(_summarise_combination(keys, tolerance, small, members))
    unsafe = somewhere != 0
    caution = "" if asked.weight is None else _doubt_weights(data, asked.weight, stated)
    return Risky(
        asked=asked,
        records=len(data),
        note=caution,
        caution=caution,
        unsafe_records=int(members[unsafe].sum()),
        combinations=tuple(found),
        keys=tuple(_summarise_key(name, 1 << j, somewhere, everywhere, members) for j, name in enumerate(names)),
        _data=data,
        _names=names,
        _classes=classes,
        _somewhere=somewhere,
        _everywhere=everywhere,
        _cells=tuple(cells),
        _is_small=tuple(flags),
        _squares=tuple(squares),
    )


def _doubt_weights(data: Microdata, weight: str, stated: Iterable[tuple[Names, float]]) -> str:
    """Say so if each record alone weighs as much as any tolerance, so that no combination can be unsafe."""
    highest = max(tolerance for _, tolerance in stated)
    if not len(data) or not (to_numbers(data, weight) >= highest).all():
        return ""
    return (
        f"Each record alone weighs {highest:g} or more, the tolerance, so nothing can be unsafe: state the tolerance "
        f"as a sum of {weight}, or leave the weight out to count records."
    )


def find_under(data: Microdata, resolved: Resolved) -> Risky:
    """Find the unsafe combinations under a scenario, by the keys that the file has; none if all are gone."""
    left = resolved.scenario.without(resolved.gone)
    if left is None:
        return _find_none(data, resolved)
    found = risky(data, left)
    told = found.note, resolved.note, describe_numbers(data, (*resolved.numeric, *resolved.dates))
    return replace(found, note=" ".join(filter(None, told)))


def _find_households(data: Microdata, scenario: Scenario) -> Risky:
    """Find the unsafe combinations of households, by their own keys and the multisets of their members' keys."""
    require_household(data.schema)
    check_combinations(scenario, data.schema, records=len(data))
    households, combinations = combine_households(data, scenario, find_households(data))
    return replace(risky(households, combinations), asked=scenario)


def _find_none(data: Microdata, resolved: Resolved) -> Risky:
    return Risky(
        asked=resolved.scenario,
        records=len(data),
        unsafe_records=0,
        combinations=(),
        keys=(),
        note=resolved.note,
        _data=data,
        _names=(),
        _classes=group_records([np.zeros(len(data), np.uint8)], [1], [0]),
        _somewhere=np.zeros(1, np.int64),
        _everywhere=np.zeros(1, np.int64),
        _cells=(),
        _is_small=(),
        _squares=(),
    )


def unsafe_cells(classes: Classes, keys: list[int], tolerance: float, *, missing: Missing) -> SmallCells:
    """Return the unsafe cells of one combination, under the stated meaning of a missing value."""
    if missing in ("none", "own") or classes.complete(keys) is None:
        return find_small_cells(classes, keys, tolerance, skip_blank=missing == "none")
    sizes = published_sizes(classes, keys) if missing == "any" else matching_sizes(classes, keys)
    codes, _ = cell_codes(classes, keys)
    is_small = sizes < lowest_safe(tolerance, sizes)
    _, firsts = np.unique(codes[is_small], return_index=True)
    first = np.sort(np.flatnonzero(is_small)[firsts])
    squares = _sum_squares(classes, keys, classes.sizes)
    return SmallCells(first, sizes[first], int(np.unique(codes).size), squares, is_small)


def _sum_squares(classes: Classes, keys: list[int], sizes: npt.NDArray[Any]) -> int:
    codes, possible = cell_codes(classes, keys)
    table = cell_sizes(codes, possible, sizes)
    return int(np.dot(table, table))


def _summarise_combination(
    keys: Names, tolerance: float, small: SmallCells, members: npt.NDArray[np.int64]
) -> RiskyCombination:
    records = int(members[small.is_small].sum())
    return RiskyCombination(
        keys=keys, tolerance=tolerance, occupied=small.cells, unsafe=len(small.classes), records=records
    )


def _summarise_key(name: str, bit: int, somewhere: Rows, everywhere: Rows, members: Rows) -> RiskyKey:
    unsafe = somewhere != 0
    within = (somewhere & bit) != 0
    alone = unsafe & ((everywhere & bit) != 0)
    return RiskyKey(key=name, records=int(members[within].sum()), alone=int(members[alone].sum()))


def _texts(data: Microdata, name: str) -> list[str | None]:
    return [*level_texts(data.coded(name).levels), None]
