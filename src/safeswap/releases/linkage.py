"""Find ways to join released records with one another or with another file, although they were masked.

Three checks on the real values that are about to be released:

- Did the masking split what belongs together? If a column followed from another (what the members of a household
  share, the region of a county) and no longer does, the untouched records reveal the values of the others.
- Does a column of unconfirmed kind number persons or households? Its values would be released unchanged.
- Which untouched columns are different in (nearly) every record? Each joins every record with any file that has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from safeswap.arrays.types import Flags, Floats
from safeswap.files.identifiers import (
    CONSTANT,
    FEWEST,
    LARGEST_HOUSEHOLD,
    MOSTLY_DISTINCT,
    is_determined,
    is_ruled_out,
    numbers_households,
    numbers_persons,
    sample_rows,
    split_groups,
)
from safeswap.model.evidence import Evidence
from safeswap.model.households import Households, find_households, find_split
from safeswap.model.masked import Masked
from safeswap.model.microdata import Coded, Microdata, code_column
from safeswap.model.schema import Kind, household_attributes, household_column
from safeswap.model.text import plural
from safeswap.releases.scan_data import Remark, refusal, warning

_RENUMBERED = (Kind.IDENTIFIER, Kind.HOUSEHOLD)
_FOLLOWS = 0.99  # for groups larger than households, where many columns depend on each other
_BY_CHANCE = 0.05  # share of the groups with changed records that two households may share by chance
_GROUPED = 0.8  # a column with more distinct values per record than this forms no groups


@dataclass(frozen=True, eq=False)
class Linkage:
    """The changes of a masking in the released columns, and the dependencies among these columns."""

    masked: Masked
    names: tuple[str, ...]

    @cached_property
    def changed(self) -> dict[str, Flags]:
        """The released columns with changed values, and the records in which they changed."""
        evidence = Evidence(self.masked.original, self.masked.data, self.masked.audit)
        found = {name: evidence.changed(name) for name in self._values}
        return {name: flags for name, flags in found.items() if flags is not None and flags.any()}

    def remarks(self) -> list[Remark]:
        """Return all findings, refusals first."""
        splits = list(self._splits())
        known = {(remark.code, remark.column) for remark in splits}
        households = [remark for remark in self._households() if (remark.code, remark.column) not in known]
        found = [*splits, *households, *self._find_undescribed(), *self._joinable()]
        return sorted(found, key=lambda remark: not remark.refuses)

    @property
    def _values(self) -> tuple[str, ...]:
        """The columns whose values are released; identifiers get new numbers."""
        return tuple(name for name in self.names if self._kind(name) not in _RENUMBERED)

    def _kind(self, name: str) -> Kind:
        return self.masked.original.schema[name].kind

    def _coded_before(self, name: str) -> Coded:
        return self.masked.original.coded(name)

    def _coded_after(self, name: str) -> Coded:
        return (self.masked.data if name in self.changed else self.masked.original).coded(name)

    @cached_property
    def _sample(self) -> pa.Array:
        return pa.array(sample_rows(self._records))

    @cached_property
    def _sampled(self) -> dict[str, Coded]:
        table = self.masked.original.table
        return {name: code_column(table.column(name).take(self._sample)) for name in self._distinct}

    def _may_follow(self, group: str, value: str, kappa: float) -> bool:
        """Return whether a check of all records is worthwhile, from a sample."""
        return not is_ruled_out(self._sampled[group], self._sampled[value], kappa=kappa)

    @cached_property
    def _distinct(self) -> dict[str, int]:
        names = [name for name in self.names if self._kind(name) is not Kind.IDENTIFIER]
        # By codes, which the attacks on a release need as well: each column is coded once.
        return {name: self.masked.original.count_distinct(name) for name in names}

    @property
    def _records(self) -> int:
        return len(self.masked.original)

    def _splits(self) -> Iterator[Remark]:
        """Find columns that followed from another before, with groups that agreed and no longer do."""
        grouping = [name for name, number in self._distinct.items() if 2 <= number <= _GROUPED * self._records]
        for value in self._values:
            for group in grouping:
                if group != value and self._is_exposed(group, value) and self._is_followed(group, value):
                    split = self._count_split(group, value)
                    if split:
                        yield self._split_remark(group, value, split)

    def _households(self) -> Iterator[Remark]:
        """Find what households promise and no longer hold: who lives together, what is theirs, and their size.

        Only where the schema says what members share; each household counts, however few there are.
        """
        schema = self.masked.original.schema
        shared = [name for name in household_attributes(schema) if name in self._values]
        own = household_column(schema)
        if not shared or own not in self.names:
            return
        before, after = find_households(self.masked.original), find_households(self.masked.data)
        if len(before) != len(after) or not np.array_equal(before.of_record, after.of_record):
            message = f"{own!r} does not group the records as in the original: households have different members"
            yield refusal("household-changed", message, column=own)
            return
        for name in (name for name in shared if name in self.changed):
            was, now = (find_split(data, name, before) for data in (self.masked.original, self.masked.data))
            if number := int(np.count_nonzero(now & ~was)):
                yield self._split_remark(own, name, number)
            yield from self._sizes(name, before)

    def _sizes(self, name: str, homes: Households) -> Iterator[Remark]:
        """Find a number of members that was true of its household and is not now."""
        if self._kind(name).is_measurable and self._kind(name) is not Kind.NUMERIC:
            return
        both = [_as_numbers(data, name, homes) for data in (self.masked.original, self.masked.data)]
        if both[0] is None or both[1] is None or not np.array_equal(both[0], homes.sizes):
            return
        if wrong := int(np.count_nonzero((both[1] != homes.sizes) & ~np.isnan(both[1]))):
            households = plural(wrong, "household has", "households have")
            message = f"{households} a different number of members from what {name!r} says, unlike in the original"
            yield refusal("household-size", message, column=name)

    def _is_exposed(self, group: str, value: str) -> bool:
        """Return whether values changed while their group did not, or one of two areas changed."""
        if self._are_areas(group, value):
            return bool({group, value} & self.changed.keys())
        if value not in self.changed or group not in self.changed:
            return value in self.changed
        return bool((self.changed[value] & ~self.changed[group]).any())

    def _is_followed(self, group: str, value: str) -> bool:
        kappa = CONSTANT if self._is_small(group) or self._are_areas(group, value) else _FOLLOWS
        return self._may_follow(group, value, kappa) and is_determined(
            self._coded_before(group), self._coded_before(value), kappa=kappa
        )

    def _count_split(self, group: str, value: str) -> int:
        """Count groups that agreed before and do not now; 0 if they are too few of those with changed records."""
        before, after = self._coded_before(group), self._coded_after(group)
        split = split_groups(after, self._coded_after(value))
        if group in self.changed:
            number = int(np.count_nonzero(split)) - int(
                np.count_nonzero(split_groups(before, self._coded_before(value)))
            )
        else:
            number = int(np.count_nonzero(split & ~split_groups(before, self._coded_before(value))))
        # A group inferred from structure may contain two households that are alike by chance.
        stated = self._kind(group) is Kind.HOUSEHOLD or self._are_areas(group, value)
        return number if stated or number > _BY_CHANCE * self._count_changed(after, group, value) else 0

    def _count_changed(self, coded: Coded, *names: str) -> int:
        """Count groups of two or more records of which one has changed."""
        rows = np.logical_or.reduce([self.changed[name] for name in names if name in self.changed])
        touched = np.zeros(coded.cardinality, dtype=np.bool_)
        touched[coded.codes[rows]] = True
        sizes = np.bincount(coded.codes, minlength=coded.cardinality)
        return int(np.count_nonzero(touched & (sizes > 1)))

    def _split_remark(self, group: str, value: str, split: int) -> Remark:
        if self._are_areas(group, value):
            areas = plural(split, f"area of {group!r} lies", f"areas of {group!r} lie")
            message = f"{areas} in more than one area of {value!r}, unlike in the original"
            return refusal("geography-split", message, column=value, revealed_by=group)
        groups = plural(split, "group", "groups")
        if self._kind(group) is Kind.HOUSEHOLD or self._is_small(group):
            message = (
                f"records of the same {group!r} have the same {value!r} in the original; in {groups} it was changed "
                "for some records only, so that the others reveal it"
            )
            return refusal("household-split", message, column=value, revealed_by=group)
        message = f"{value!r} follows from {group!r} in the original: where it was changed, {group!r} reveals it"
        return refusal("read-off", f"{message} ({groups} of equal values)", column=value, revealed_by=group)

    def _is_small(self, group: str) -> bool:
        return self._distinct[group] * LARGEST_HOUSEHOLD >= self._records

    def _are_areas(self, *names: str) -> bool:
        return all(self._kind(name) is Kind.GEOGRAPHY for name in names)

    def _find_undescribed(self) -> Iterator[Remark]:
        """Find columns that seem to number persons or households, but whose inferred kind would release the numbers."""
        for name in self._mostly_unchanged():
            attribute = self.masked.original.schema[name]
            if not attribute.inferred or attribute.kind in (Kind.GEOGRAPHY, Kind.WEIGHT, Kind.DATE):
                continue
            if looks := self._looks_like(name):
                message = f"{name!r} {looks}, and its kind ({attribute.kind.value}) was inferred, not confirmed"
                yield refusal("unconfirmed-identifier", message, column=name)

    def _looks_like(self, name: str) -> str:
        distinct, records = self._distinct[name], self._records
        if distinct < max(FEWEST, records / LARGEST_HOUSEHOLD):
            return ""
        column = self.masked.original.table.column(name)
        if distinct >= MOSTLY_DISTINCT * (records - column.null_count):
            if _is_text(column.type) and self._kind(name) is not Kind.NUMERIC:
                return "is text that is different in nearly every record"
            return "looks like the number of a person" if numbers_persons(column, distinct=distinct) else ""
        others = {other: self._coded_before(other) for other in self._values if self._is_partner(other, name)}
        if others and numbers_households(self.masked.original.coded(name), others):
            return "looks like the number of a household"
        return ""

    def _is_partner(self, other: str, name: str) -> bool:
        """Return whether it may be constant within households; a column that differs in every record cannot be."""
        repeats = 2 <= self._distinct[other] <= _GROUPED * self._records
        return other != name and repeats and self._may_follow(name, other, CONSTANT)

    def _joinable(self) -> Iterator[Remark]:
        for name in self._mostly_unchanged():
            distinct = self._distinct[name]
            if distinct < max(FEWEST, MOSTLY_DISTINCT * self._records):
                continue
            most = "unchanged in most records" if name in self.changed else "unchanged"
            every = "every record" if distinct == self._records else "nearly every record"
            message = f"{name!r}: {plural(distinct, 'distinct value')}, {most}: {every} can be joined on it"
            yield warning("joinable", message, column=name)

    def _mostly_unchanged(self) -> Sequence[str]:
        count = {name: int(np.count_nonzero(flags)) for name, flags in self.changed.items()}
        return [name for name in self._values if 2 * count.get(name, 0) < self._records]


def _as_numbers(data: Microdata, name: str, homes: Households) -> Floats | None:
    """Return the values of first members as numbers, NaN where one is missing; None if they are not numbers."""
    column = data.table.column(name).take(pa.array(homes.first))
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
