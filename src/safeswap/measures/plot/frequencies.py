"""The confidentiality plot of categorical keys: the frequency of a record's keys against its information loss.

The risk of a record is 1/F, with F the number of population units that share the combination of keys shown in the
release (Seri; Franconi & Polettini 2004). F is counted in a population file, or else in the original file: as the sum
of survey weights, as the frequency divided by the sampling fraction, or as the frequency itself. The counted file is
recoded in the same way as the release. A suppressed value reveals nothing: it agrees with every value. Loss is the
weighted share of keys whose value was recoded or suppressed. The policy is the vertical line F = k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from safeswap.arrays import cells
from safeswap.arrays.types import Floats, Int64s
from safeswap.errors import InputError, SpecError
from safeswap.measures.key_cells import read_weights
from safeswap.measures.plot.numeric_keys import check_request
from safeswap.measures.plot.values import ConfidentialityPlot, Policy, match_rows, record_labels
from safeswap.model.checked import check_types
from safeswap.model.columns import missing_codes
from safeswap.model.microdata import Microdata
from safeswap.model.schema import level_texts, refuse_date
from safeswap.model.text import plural


@dataclass(frozen=True, eq=False, kw_only=True)
class Coded:
    """One key in two files: codes from 0, −1 for a missing value, and flags of the records that changed."""

    released: Int64s
    counted: Int64s
    changed: npt.NDArray[np.bool_]
    levels: int
    note: str = ""


def encode_alike(original: Microdata, released: Microdata, counted: Microdata, name: str, rows: Int64s) -> Coded:
    """Encode the key in the released and the counted file; ``rows`` are the originals of the released records, or −1.

    If each value of the original became a single value of the release, that is a recoding, and it is applied to the
    counted file. A value that does not occur in the original is kept.
    """
    before, after, there = (_texts(data, name) for data in (original, released, counted))
    levels = {text: number for number, text in enumerate(dict.fromkeys((*after[0], *before[0], *there[0])))}
    then = np.where(rows >= 0, _recode(before, levels)[rows], -1)
    now, people = _recode(after, levels), _recode(there, levels)
    recoding = _find_recoding(then, now, len(levels))
    if recoding is not None:
        people = np.where(people >= 0, recoding[people], -1)
    note = "" if recoding is None or counted is original else f"{name} of the population is recoded as in the release."
    return Coded(released=now, counted=people, changed=then != now, levels=len(levels), note=note)


def _texts(data: Microdata, name: str) -> tuple[list[str], Int64s]:
    """Return the levels as text, and each record's level, −1 if missing."""
    coded = data.coded(name)
    codes = np.where(missing_codes(data, name)[coded.codes], -1, coded.codes.astype(np.int64))
    return level_texts(coded.levels), codes


def _recode(side: tuple[list[str], Int64s], levels: dict[str, int]) -> Int64s:
    texts, codes = side
    table = np.array([*(levels.get(text, -1) for text in texts), -1], dtype=np.int64)
    return np.asarray(table[codes])


def _find_recoding(then: Int64s, now: Int64s, levels: int) -> Int64s | None:
    """Return the recoding of each level, if each became a single level and at least one changed."""
    seen = (then >= 0) & (now >= 0)
    pairs = np.unique(np.stack([then[seen], now[seen]], axis=1), axis=0)
    if len(np.unique(pairs[:, 0])) < len(pairs) or (pairs[:, 0] == pairs[:, 1]).all():
        return None
    recoding = np.arange(levels, dtype=np.int64)
    recoding[pairs[:, 0]] = pairs[:, 1]
    return recoding


@check_types
def frequency_plot(
    original: Microdata,
    released: Microdata,
    keys: Sequence[str],
    *,
    population: Microdata | None = None,
    weight: str | None = None,
    sampling_fraction: float | None = None,
    importance: Mapping[str, float] | None = None,
    k: float = 3.0,
) -> ConfidentialityPlot:
    """Place every released record by the frequency of its keys; pass at most one source of F.

    ``importance`` weights the keys in the information loss, 1 each by default. ``weight`` names the survey weight in
    the original file. Keys that are numbers are refused; :func:`count_plot` takes each of their values as a level.

    >>> import pyarrow as pa
    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex"), Attribute(name="Status")))
    >>> before = Microdata(pa.table({"Sex": ["f", "f", "m"], "Status": ["single", "widow", "single"]}), schema)
    >>> after = Microdata(pa.table({"Sex": ["f", "f", "m"], "Status": ["single", None, "single"]}), schema)
    >>> plot = frequency_plot(before, after, ["Sex", "Status"], k=2)
    >>> plot.across.tolist(), plot.perturbation.tolist(), plot.unsafe.tolist()
    ([1.0, 2.0, 1.0], [0.0, 0.5, 0.0], [True, False, True])
    """
    _check_categorical(original, check_request(keys, alpha=0.5, scale="linear", distance="relative"))
    sources = {"population": population, "weight": weight, "sampling_fraction": sampling_fraction}
    return count_plot(original, released, keys, importance=importance, k=k, **sources)  # type: ignore[arg-type]


def count_plot(
    original: Microdata,
    released: Microdata,
    keys: Sequence[str],
    *,
    population: Microdata | None = None,
    weight: str | None = None,
    sampling_fraction: float | None = None,
    importance: Mapping[str, float] | None = None,
    k: float = 3.0,
) -> ConfidentialityPlot:
    """Make the plot of :func:`frequency_plot` by keys of any kind."""
    asked = check_request(keys, alpha=0.5, scale="linear", distance="relative")
    if sum(source is not None for source in (population, weight, sampling_fraction)) > 1:
        raise SpecError(
            "give one source of the frequencies",
            code="bad-frequency",
            hint="a population file, or a weight, or a sampling fraction",
        )
    rows, how = _match_all(released, original)
    counted = original if population is None else population
    columns = [encode_alike(original, released, counted, name, rows) for name in asked]
    frequencies = _count_matches(columns, None if weight is None else read_weights(original, weight))
    source = "population" if population is not None else "weights" if weight else "sample"
    if sampling_fraction is not None:
        frequencies, source = frequencies / _check_fraction(sampling_fraction), "estimate"
    number, strangers = len(released), int(np.count_nonzero(frequencies == 0))
    notes = [how, *(column.note for column in columns if column.note)]
    if strangers:
        notes.append(
            f"{plural(strangers, 'record shows', 'records show')} a combination of keys that no counted record has."
        )
    return ConfidentialityPlot(
        kind="categorical",
        keys=asked,
        across=frequencies,
        perturbation=_information_loss(columns, [(importance or {}).get(name, 1.0) for name in asked]),
        nearest_true=np.zeros(number, dtype=np.bool_),
        ties=np.zeros(number, dtype=np.int64),
        within=np.zeros(number, dtype=np.bool_),
        labels=record_labels(released),
        policy=Policy(r=None, k=k),
        settings={"frequency": source},
        notes=tuple(notes),
    )


def _check_categorical(data: Microdata, names: Sequence[str]) -> None:
    for name in names:
        refuse_date(data.schema, name)
        if not data.schema[name].kind.is_categorical:
            raise SpecError(
                f"{name!r} is {data.schema[name].kind.value}, and frequencies need categorical keys",
                code="key-not-categorical",
                hint="describe it as nominal or ordinal, or plot numeric keys by distances",
                attribute=name,
            )


def _match_all(released: Microdata, original: Microdata) -> tuple[Int64s, str]:
    """Return the original of each released record, and how it was found; refuse if one has none."""
    rows, how = match_rows(released, original)
    if (rows < 0).any():
        raise InputError(
            plural(int(np.count_nonzero(rows < 0)), "released record is", "released records are")
            + " not in the original file",
            code="identifiers-differ",
            hint="give the original file of this release",
        )
    return rows, how


def _check_fraction(share: float) -> float:
    if not 0 < share <= 1:
        raise SpecError(
            "the sampling fraction must be above 0 and at most 1", code="bad-fraction", hint="sampling_fraction=0.05"
        )
    return share


def _count_matches(columns: list[Coded], weights: Floats | None) -> Floats:
    """Count, for each released record, the records (or the weight) of the other file that agree with it.

    Records with the same known keys are counted together over those keys alone, so that a suppressed key agrees with
    every value.
    """
    shown = np.stack([column.released >= 0 for column in columns], axis=1)
    patterns, which = np.unique(shown, axis=0, return_inverse=True)
    found = np.empty(len(shown))
    for number, pattern in enumerate(patterns):
        rows = np.flatnonzero(which.ravel() == number)
        chosen = [column for column, is_shown in zip(columns, pattern, strict=True) if is_shown]
        if chosen:
            found[rows] = _count_agreeing(chosen, rows, weights)
        else:
            found[rows] = len(columns[0].counted) if weights is None else weights.sum()
    return found


def _count_agreeing(columns: list[Coded], rows: Int64s, weights: Floats | None) -> Floats:
    """Count over the cells of some keys; a missing value in the counted file agrees with none."""
    both = []
    for column in columns:
        counted = np.where(column.counted < 0, column.levels, column.counted)
        both.append(np.concatenate([column.released[rows], counted]).astype(np.uint64))
    packed, _ = cells.pack(both, [column.levels + 1 for column in columns])
    _, inverse = np.unique(packed, return_inverse=True)
    totals = np.bincount(inverse[len(rows) :], weights=weights, minlength=int(inverse.max()) + 1)
    return np.asarray(totals[inverse[: len(rows)]], dtype=np.float64)


def _information_loss(columns: list[Coded], importance: list[float]) -> Floats:
    weights = np.array(importance, dtype=np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise SpecError(
            "the importance of a key must be 0 or more, and not 0 for all keys",
            code="bad-importance",
            hint='importance={"Age": 2.0}',
        )
    changed = np.stack([column.changed for column in columns], axis=1)
    return np.asarray(changed @ weights / weights.sum())
