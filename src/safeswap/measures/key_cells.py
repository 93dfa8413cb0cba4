"""Count the records that share each record's keys, under a stated meaning of missing values; the base of measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from safeswap.arrays.combinations import Classes, group_records, matching_sizes, published_sizes
from safeswap.arrays.types import Codes, Int64s
from safeswap.errors import InputError, SpecError
from safeswap.measures.base import (
    AttributeNames,
    ParametricMeasure,
    choose_attributes,
    left_out_note,
    refuse_identifier,
)
from safeswap.measures.households import compare_households, tell_unit
from safeswap.model.columns import missing_codes, rank_of_code, to_numbers
from safeswap.model.combination import MOST_KEYS, Missing
from safeswap.model.microdata import Microdata, smallest_code_type
from safeswap.model.score import Comparison, Score
from safeswap.model.text import plural


def key_classes(data: Microdata, names: tuple[str, ...], *, missing: Missing, weight: str | None = None) -> Classes:
    """Return the distinct records over these keys, in an order that does not depend on the order of the rows.

    Missing values are blanks, and so are codes that the schema declares as "no answer", unless missing values count
    as values of their own.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex", missing=("?",)),))
    >>> data = Microdata(pa.table({"Sex": ["m", "?", None, "f"]}), schema)
    >>> key_classes(data, ("Sex",), missing="none").sizes.tolist()
    [1, 1, 2]
    >>> key_classes(data, ("Sex",), missing="own").sizes.tolist()
    [1, 1, 1, 1]
    """
    tables = [_rank_table(data, name, unite=missing != "own") for name in names]
    blanks = [len(data.coded(name).levels) for name in names]
    weights = None if weight is None else read_weights(data, weight)
    return group_records(data.coded_columns(names)[0], [blank + 1 for blank in blanks], blanks, weights, tables)


def _rank_table(data: Microdata, name: str, *, unite: bool) -> Codes:
    """Return the rank of each code of the column; that of a blank is above them all."""
    ranks = rank_of_code(data, name)
    if unite:
        missing = missing_codes(data, name)
        ranks = np.where(np.append(missing, True)[: ranks.size], ranks.size - 1, ranks)
    return ranks.astype(smallest_code_type(ranks.size))


def read_weights(data: Microdata, name: str) -> npt.NDArray[np.float64]:
    """Return the weight of each record; refuse weights that are missing, negative or not a number."""
    found = to_numbers(data, name)
    wrong = ~(np.isfinite(found) & (found >= 0))
    if wrong.any():
        raise InputError(
            f"{plural(int(np.count_nonzero(wrong)), 'record has', 'records have')} "
            f"a weight {name!r} that is missing, negative or not a number",
            code="bad-weight",
            hint="complete the weights first",
            column=name,
        )
    return found


@dataclass(frozen=True, eq=False, repr=False)
class KeyCells:
    """The distinct records over some keys, each with the number of records like it.

    ``members`` counts the records of a cell, ``like`` those that match it, itself included: the two differ only where
    keys are missing. Every combination of a record's known keys is considered, and the largest decides: a record that
    agrees in more keys also agrees in fewer.
    """

    names: tuple[str, ...]
    missing: Missing
    classes: Classes
    members: Int64s
    like: Int64s

    @property
    def records(self) -> int:
        """Number of records in the file."""
        return self.classes.of_record.size

    @property
    def incomplete(self) -> int:
        """Number of records with a missing key."""
        complete = self.classes.complete(range(len(self.names)))
        return 0 if complete is None else int(self.members[~complete].sum())

    @property
    def of_record(self) -> npt.NDArray[np.uint32]:
        """The cell of each record."""
        return self.classes.of_record

    def __repr__(self) -> str:
        # A repr ends up in notebooks and logs: never show codes of records.
        cells, keys = plural(len(self.classes), "cell"), plural(len(self.names), "key")
        return f"<KeyCells: {plural(self.records, 'record')} in {cells} of {keys}>"

    def sums(self, sizes: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum a total per cell, e.g. of weights, over the cells that match each cell."""
        return _matching(replace(self.classes, sizes=sizes), self.missing)


def key_cells(data: Microdata, names: Sequence[str], *, missing: Missing) -> KeyCells:
    """Return the cells of these keys.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex"), Attribute(name="Town")))
    >>> data = Microdata(pa.table({"Sex": ["f", "f", "m", "f"], "Town": ["a", "b", "b", None]}), schema)
    >>> for missing in ("own", "none", "any", "vouching"):
    ...     cells = key_cells(data, ["Sex", "Town"], missing=missing)
    ...     print(missing, cells.like[cells.of_record].tolist())
    own [1, 1, 1, 1]
    none [1, 1, 1, 3]
    any [1, 1, 1, 3]
    vouching [2, 2, 1, 3]
    """
    chosen = check_keys(data, names)
    found = key_classes(data, chosen, missing=missing)
    return KeyCells(names=chosen, missing=missing, classes=found, members=found.sizes, like=_matching(found, missing))


def check_keys(data: Microdata, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the keys; refuse names that cannot be keys of this file."""
    chosen = tuple(names)
    if not chosen or len(set(chosen)) != len(chosen):
        raise SpecError(
            "name each key once" if chosen else "name the keys: the attributes that an intruder can be assumed to know",
            code="bad-keys",
            hint='keys=["Age", "Sex"]',
        )
    if len(chosen) > MOST_KEYS:
        raise SpecError(
            f"at most {MOST_KEYS} keys can be examined together",
            code="too-many-keys",
            hint="name those that an intruder can be assumed to know",
        )
    refuse_identifier(data.schema, chosen, role="keys")
    return chosen


def _matching(found: Classes, missing: Missing) -> npt.NDArray[Any]:
    keys = range(len(found.columns))
    if missing == "own" or found.complete(keys) is None:
        return found.sizes
    return matching_sizes(found, keys) if missing == "vouching" else published_sizes(found, keys)


_MEANINGS: dict[Missing, str] = {
    "none": "matches nothing: the record is counted by the keys that it has",
    "own": "is a separate value",
    "any": "could be any value: the record is counted by the keys that it has",
    "vouching": "matches every value, and counts for others too",
}


MEANING_OF_MISSING = (
    "a record counts by the keys that it has (none, any), a missing key is a value (own), or matches all both ways "
    "(vouching)"
)


class KeyMeasure(ParametricMeasure):
    """A figure of the released file, by the keys that an intruder can be assumed to know.

    Anyone with the released file can compute it: it reveals nothing beyond that file.
    """

    tells_the_rate: ClassVar[bool] = False

    keys: Annotated[
        AttributeNames,
        Field(description="key variables, considered in every combination; all categorical ones if empty"),
    ] = ()
    missing: Annotated[Missing, Field(description=MEANING_OF_MISSING)] = "none"

    def score_households(self, comparison: Comparison) -> Score:
        """Score the file of households, each described by its own keys and the multiset of its members'."""
        seen = compare_households(comparison, check_keys(comparison.after, self._names(comparison)))
        measure: Any = self.model_copy(update={"keys": ()})
        return tell_unit(measure.score(seen), len(seen.after))

    def _cells(self, comparison: Comparison) -> KeyCells:
        return key_cells(comparison.after, self._names(comparison), missing=self.missing)

    def _names(self, comparison: Comparison) -> tuple[str, ...]:
        return choose_attributes(comparison, self.keys)

    def _complete_sentence(self, sentence: str, comparison: Comparison, cells: KeyCells) -> str:
        """Add to the sentence how missing keys were treated and what was omitted."""
        lacking = cells.incomplete
        meant = (
            f" A missing key ({lacking:,} record{'s' if lacking > 1 else ''}) {_MEANINGS[self.missing]}."
            if lacking
            else ""
        )
        return sentence + meant + left_out_note(comparison, cells.names)
