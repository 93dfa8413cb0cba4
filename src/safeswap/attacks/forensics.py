"""Look at what surrounds the values: the order of the rows, traces in the files, other releases, published tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import pi, sqrt
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from safeswap.arrays.cells import count_dense
from safeswap.arrays.types import Int64s
from safeswap.attacks.base import Outcome, Setting, Skipped
from safeswap.attacks.inference import Votes, name_swapped
from safeswap.measures.table_check import check_programme
from safeswap.model.microdata import Microdata
from safeswap.model.schema import level_texts
from safeswap.model.table import Programme, tabulate
from safeswap.model.text import plural

_DAY = 86_400
_SIGMAS = 8.0  # neighbours agree so often once in 10^15 random orders
_FEWEST_LEVELS = 7  # fewer are in any given order by chance too often


class RowOrder:
    """Assume that a row that comes after another also did so in the original. The intruder has the bundle alone."""

    name: ClassVar[str] = "row_order"
    title: ClassVar[str] = "Recover the original order from the release"
    intruder: ClassVar[str] = "the release alone"
    quick: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"original"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Count the neighbours that kept their order, or all turned it round."""
        if setting.order is None or len(setting.order) < 2:
            return Skipped(attack=self.name, reason="needs the order in which the rows are released")
        pairs = len(setting.order) - 1
        rising = float((np.diff(setting.order) > 0).mean())
        success = max(rising, 1 - rising)
        # The better of both directions: in random order the number of rises has the variance (pairs + 2) / 12.
        chance = 0.5 + sqrt((pairs + 2) / 12 * 2 / pi) / pairs
        return Outcome(
            attack=self.name,
            success=success,
            baseline=min(chance, 1.0),
            trials=pairs,
            against="random order",
            sentence=f"{success:.1%} of the released neighbours are in the order of the original, or all reversed.",
        )


class BundleTraces:
    """Look for traces in the files of a bundle: order, metadata, statistics, order of dictionaries, dates of files.

    The intruder has the bundle alone. A trace is what random order and files written at once do not have: neighbouring
    rows that are alike, levels listed in the order in which the original has them, blocks of rows whose ranges do not
    overlap, names of programs, dates that differ. One trace is a success.
    """

    name: ClassVar[str] = "bundle_traces"
    title: ClassVar[str] = "Look for traces in the files of the bundle"
    intruder: ClassVar[str] = "the bundle as written"
    quick: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"bundle"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Report the findings of the final scan of the files, and what they reveal besides the values."""
        assert setting.bundle is not None  # noqa: S101  (a need)
        traces = [
            *setting.traces,
            *_alike_neighbours(setting),
            *_listed_as_met(setting, setting.bundle),
            *_told_by_parquet(setting.bundle),
            *_dated_differently(setting.bundle),
        ]
        told = "; ".join(traces[:3]) if traces else "nothing"
        return Outcome(
            attack=self.name,
            success=float(bool(traces)),
            baseline=0.0,
            trials=len(setting.released),
            against="files without traces",
            sentence=f"Besides the values, the files of the bundle reveal {told}.",
            detail={"traces": traces},
        )


def _alike_neighbours(setting: Setting) -> list[str]:
    """Return the columns in which neighbouring rows agree far more often than in random order: the order is a trace.

    Members of a released household stand together, which their number tells anyway: one of each is looked at.
    """
    found, rows = [], np.arange(len(setting.released)) if setting.order is None else setting.order
    for name in setting.households:
        homes = setting.column(name).after[rows]
        rows = rows[np.append(True, homes[1:] != homes[:-1])]
    rows = rows.astype(np.intp)  # or every column would convert them
    for name in setting.names:
        column = setting.column(name)
        codes = column.after.take(rows, mode="clip")  # checks and copies nothing
        counts, pairs = count_dense(codes, column.cardinality).astype(np.float64), max(len(codes) - 1, 1)
        agree = float(counts @ np.maximum(counts - 1, 0)) / (len(codes) * pairs)  # of two rows drawn at random
        spread = sqrt(max(pairs * agree * (1 - agree), 1.0))
        if np.count_nonzero(codes[1:] == codes[:-1]) > pairs * agree + _SIGMAS * spread:
            found.append(f"that neighbouring rows are alike in {name}")
    return found


def _listed_as_met(setting: Setting, bundle: Path) -> list[str]:
    """Return the columns whose levels are listed in the order in which the rows of the original have them."""
    try:
        columns = json.loads((bundle / "dictionary.json").read_text("utf-8"))["columns"]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # that is for the scan of the bundle to say
    found = []
    for column in columns if setting.has_original else ():
        listed, name = [value["value"] for value in column.get("values", ())], column["name"]
        if len(listed) < _FEWEST_LEVELS or name not in setting.names or _is_sorted(listed):
            continue
        met = list(dict.fromkeys(level_texts(setting.original.table.column(name).unique())))
        known = set(listed)
        if [value for value in met if value in known] == listed and not setting.original.schema[name].levels:
            found.append(f"the order in which the original has the levels of {name}")
    return found


def _is_sorted(texts: list[str]) -> bool:
    """Return whether levels are in order, as numbers or as texts."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return texts == sorted(texts)
    return numbers == sorted(numbers) or texts == sorted(texts)


def _told_by_parquet(bundle: Path) -> list[str]:
    """Return what the metadata of a Parquet file reveal: texts of programs, and columns that are sorted by blocks."""
    import pyarrow.parquet as pq

    found: list[str] = []
    for path in sorted(bundle.glob("*.parquet")):
        found += _told_by_file(pq.ParquetFile(path))
    return found


def _told_by_file(known: Any) -> list[str]:
    found = ["a text that a program left in the data file"] if known.schema_arrow.metadata else []
    groups = [known.metadata.row_group(number) for number in range(known.metadata.num_row_groups)]
    for place in range(known.metadata.num_columns if len(groups) > 1 else 0):
        ranges = [group.column(place).statistics for group in groups]
        if all(each is not None and each.has_min_max for each in ranges):
            ends = [(each.min, each.max) for each in ranges]
            in_order = all(one[1] < other[0] for one, other in pairwise(sorted(ends)))
            if in_order and ends != _row_numbers([group.num_rows for group in groups]):
                found.append(f"that blocks of rows are sorted by {groups[0].column(place).path_in_schema}")
    return found


def _row_numbers(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last row of each block, counted from 1: new identifiers reveal no more than that.

    >>> _row_numbers([3, 2])
    [(1, 3), (4, 5)]
    """
    last = list(accumulate(sizes))
    return [(end - size + 1, end) for size, end in zip(sizes, last, strict=True)]


def _dated_differently(bundle: Path) -> list[str]:
    """Return whether files were written at different times: a file's own date would reveal earlier work."""
    dates = [path.stat().st_mtime for path in bundle.iterdir() if path.is_file()]
    apart = max(dates, default=0) - min(dates, default=0)
    return ["that its files were written on different days"] if apart > _DAY else []


class SeveralReleases:
    """Put several releases of the same records side by side: average them, and look where they differ.

    The intruder has this release and earlier ones, and links their records by what none of them changed, which is
    taken to succeed. Averaging takes the value that most releases have; its baseline is the most frequent value of
    all. Differencing names as swapped whoever has different values in two releases; its baseline is naming anyone.
    """

    name: ClassVar[str] = "several_releases"
    title: ClassVar[str] = "Compare several releases of the same records"
    intruder: ClassVar[str] = "this release and earlier ones of the same records"
    quick: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"original", "earlier", "changes"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Vote on every changed value, and name who differs; what succeeds best counts."""
        differ, found = np.zeros(len(setting.released), dtype=np.bool_), []
        for name in setting.changed:
            releases = [codes for data in setting.earlier if (codes := _codes_in(setting, data, name)) is not None]
            if releases:
                now = setting.column(name).after.astype(np.int64)
                differ |= np.any([codes != now for codes in releases], axis=0)
                found.append(self._vote(setting, name, [now, *releases]))
        if not found:
            return Skipped(attack=self.name, reason="no earlier release has an attribute that was changed")
        if differ.any():
            found.append(name_swapped(self.name, differ, setting.touched, "differ between releases"))
        return max(found, key=lambda outcome: (outcome.is_telling, outcome.advantage))

    def _vote(self, setting: Setting, name: str, releases: list[Int64s]) -> Outcome:
        column, number = setting.column(name), len(setting.released)
        votes = Votes(np.tile(np.arange(number), len(releases)), np.concatenate(releases), number)
        truth = column.before.astype(np.int64)
        asked = np.flatnonzero(truth != column.after)
        right, blind = votes.guess(asked, truth[asked]), votes.guess_blindly(truth[asked])
        return Outcome(
            attack=self.name,
            success=float(right.mean()),
            baseline=float(blind.mean()),
            trials=len(asked),
            against="the most frequent value",
            sentence=f"{plural(len(releases), 'release')}: {right.mean():.1%} of the changed values of {name} return.",
            detail={"attribute": name, "releases": len(releases)},
        )


def _codes_in(setting: Setting, earlier: Microdata, name: str) -> Int64s | None:
    """Return the values of an earlier release in the codes of this one; values unknown to it have one more code."""
    import pyarrow.compute as pc

    if name not in earlier.schema or len(earlier) != len(setting.released):
        return None
    levels = setting.column(name).levels
    column = earlier.table.column(name)
    texts = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    places = pc.index_in(texts.cast(levels.type), value_set=levels)
    missing, unknown = len(levels), len(levels) + 1
    codes = pc.if_else(texts.is_null(), missing, pc.fill_null(places, unknown))
    found: Int64s = codes.cast(pa.int64()).to_numpy()
    return found


class PublishedTables:
    """Derive small counts from the tables that are published. The intruder has these tables with their margins.

    Counts below the tolerance are withheld; a right guess is a withheld count that the others determine.
    """

    name: ClassVar[str] = "published_tables"
    title: ClassVar[str] = "Derive small counts from published tables"
    intruder: ClassVar[str] = "the published tables with their margins"
    quick: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"tables"})

    def run(self, setting: Setting) -> Outcome | Skipped:
        """Find the bounds of every withheld count."""
        programme = Programme(tables=tuple(tabulate(setting.released, names) for names in setting.tables))
        check = check_programme(programme, tolerance=setting.tolerance)
        if not check.small:
            return Skipped(attack=self.name, reason="no count is small enough to be withheld")
        return Outcome(
            attack=self.name,
            success=check.derived / check.small,
            baseline=0.0,
            trials=check.small,
            against="nothing derived",
            sentence=check.sentence,
        )
