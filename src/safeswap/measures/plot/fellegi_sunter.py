"""Probabilistic linkage instead of a distance: Fellegi & Sunter 1969, using splink.

For every key, agreement is graded in levels; m is the probability of a level among true pairs, u among false pairs,
and a pair's match weight is the sum of log₂(m/u) over the keys (and of the prior odds). Neighbours of a released
record are the archive records whose weight is at least τ, the least weight reached by at most the share α of the false
pairs; the nearest neighbour has the greatest weight.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from safeswap.arrays.names import Names
from safeswap.arrays.types import Floats, Int64s, Rows
from safeswap.errors import EngineError, SpecError
from safeswap.measures.plot.frequencies import Coded, encode_alike
from safeswap.measures.plot.numeric_keys import check_request
from safeswap.measures.plot.values import ConfidentialityPlot, Policy, match_rows, record_labels
from safeswap.model.checked import check_types
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import finite_numbers

LEVELS = (0.01, 0.05, 0.10, 0.25, 0.50)
"""Upper limits of the relative difference for each level of agreement between numbers."""

_UNSEEN = 1e-6
_EM_PAIRS = 1e7  # maximum number of pairs sampled for expectation maximisation

MOST_PAIRS = 25_000_000
"""Maximum number of pairs, since a weight is computed for every pair."""


@check_types
def fellegi_sunter_plot(
    original: Microdata,
    released: Microdata,
    keys: Sequence[str],
    *,
    alpha: float = 0.05,
    archive: Microdata | None = None,
    policy: Policy | None = None,
    training: Literal["truth", "em"] = "truth",
    levels: Sequence[float] = LEVELS,
) -> ConfidentialityPlot:
    """Make the confidentiality plot by match weights, on numeric and categorical keys.

    ``training`` is the source of m and u. "truth": counted over true and false pairs, which the agency knows (the
    worst case). "em": as an intruder would have to, m by expectation maximisation and u over all pairs. "exact" in the
    settings means that no sample was drawn. Needs the extra ``safeswap[linkage]``.
    """
    asked = check_request(keys, alpha=alpha, scale="linear", distance="relative")
    steps = _check_levels(levels)
    to_original, how = match_rows(released, original)
    known = original if archive is None else archive
    to_known, also = (to_original, "") if archive is None else match_rows(released, archive, by_position=False)
    if len(released) * len(known) > MOST_PAIRS:
        raise SpecError(
            f"{len(released) * len(known):,} pairs would have to be compared, more than {MOST_PAIRS:,}",
            code="too-many-pairs",
            hint="use distances, which need no list of pairs, or a subset of the file, such as one division",
        )
    rows, files = np.arange(len(released)), (original, released, known)
    numeric = [not any(data.schema[name].kind.is_categorical for data in files) for name in asked]
    # A key that was recoded is known in the categories of the release.
    categories = {
        name: encode_alike(*files, name, to_original)
        for name, is_number in zip(asked, numeric, strict=True)
        if not is_number
    }
    counted, shown = ({n: getattr(c, side) for n, c in categories.items()} for side in ("counted", "released"))
    tables = (
        _splink_table(known, asked, counted, np.arange(len(known))),
        _splink_table(released, asked, shown, np.where(to_known >= 0, to_known, -1 - rows)),
    )
    weights, trained = _weigh_pairs(*tables, numeric=numeric, levels=steps, training=training)
    threshold = _threshold(weights, to_known, alpha)
    own = np.where(to_known >= 0, weights[rows, to_known], -np.inf)
    best = weights.max(axis=1)
    return ConfidentialityPlot(
        kind="fellegi_sunter",
        keys=asked,
        across=(weights >= threshold).sum(axis=1).astype(np.float64),
        perturbation=_perturbation(original, released, asked, categories, to_original),
        nearest_true=own == best,
        ties=(weights == best[:, None]).sum(axis=1),
        within=own >= threshold,
        labels=record_labels(released),
        policy=policy or Policy(),
        threshold=threshold,
        settings={
            "alpha": alpha,
            "training": training,
            "pairs": int(weights.size),
            "exact": training == "truth" or weights.size <= _EM_PAIRS,
        },
        match_weights=_tabulate_weights(trained, asked),
        own_weight=np.where(to_known >= 0, own, np.nan),
        notes=tuple(note for note in (how, also, *(each.note for each in categories.values())) if note),
    )


def _check_levels(levels: Sequence[float]) -> tuple[float, ...]:
    steps = tuple(float(level) for level in levels)
    if not steps or not all(0 < level < 1 for level in steps) or list(steps) != sorted(set(steps)):
        raise SpecError(
            "levels are relative differences between 0 and 1, ascending",
            code="bad-levels",
            hint="levels=(0.01, 0.05, 0.1, 0.25, 0.5)",
        )
    return steps


def _splink_table(data: Microdata, keys: Names, categories: Mapping[str, Int64s], who: Rows) -> pa.Table:
    """Return the table to pass to splink, with columns renamed: names from outside never become SQL."""
    columns: dict[str, Any] = {"unique_id": np.arange(len(data)), "who": who}
    for number, name in enumerate(keys):
        values = categories[name] if name in categories else finite_numbers(data, name)
        columns[f"k{number}"] = pa.array(values, mask=values < 0 if name in categories else np.isnan(values))
    return pa.table(columns)


def _weigh_pairs(
    archive: pa.Table, released: pa.Table, *, numeric: list[bool], levels: tuple[float, ...], training: str
) -> tuple[Floats, list[dict[str, Any]]]:
    """Compute the match weight of every pair, released × archive; also return splink's trained comparisons."""
    duckdb, splink = _import_splink()
    with _silence_splink(), duckdb.connect(":memory:", config={"enable_external_access": "false"}) as connection:
        database = splink["DuckDBAPI"](connection)
        sides = [database.register(t, dataset_display_name=n) for t, n in ((archive, "a"), (released, "r"))]
        connection.register("known_side", archive)
        connection.register("released_side", released)
        known = [_level_shares(connection, f"k{j}", levels if is_number else ()) for j, is_number in enumerate(numeric)]
        settings = splink["SettingsCreator"](
            link_type="link_only",
            comparisons=[
                _comparison(splink, f"k{j}", levels if is_number else (), known[j], truth=training == "truth")
                for j, is_number in enumerate(numeric)
            ],
            blocking_rules_to_generate_predictions=["1=1"],
            probability_two_random_records_match=min(0.5, 1 / max(1, archive.num_rows)),
            retain_matching_columns=False,
        )
        linker = splink["Linker"](sides, settings, log_level=logging.CRITICAL)
        if training == "em":
            linker.training.estimate_parameters_using_expectation_maximisation("1=1", max_pairs=_EM_PAIRS)
        found = linker.inference.predict().as_pyarrow_table()
        learnt = linker.misc.save_model_to_json()["comparisons"]
    weights = np.full((released.num_rows, archive.num_rows), -np.inf)
    left = found["unique_id_l"].to_numpy(), found["unique_id_r"].to_numpy()
    swapped = found["source_dataset_l"].to_numpy(zero_copy_only=False) == "r"
    row, column = np.where(swapped, left[0], left[1]), np.where(swapped, left[1], left[0])
    weights[row, column] = found["match_weight"].to_numpy()
    return weights, learnt


def _conditions(column: str, levels: tuple[float, ...]) -> list[tuple[str, str]]:
    """Return the levels of a key except the last, best first, each as SQL condition and label."""
    left, right = f"{column}_l", f"{column}_r"
    graded = [
        (f"abs({left} - {right}) <= {level!r} * greatest(abs({left}), abs({right}))", f"differs by at most {level:.3g}")
        for level in levels
    ]
    return [(f"{left} = {right}", "equal"), *graded]


def _level_shares(connection: Any, column: str, levels: tuple[float, ...]) -> dict[str, list[float]]:
    """Return the share of each level of a key among all pairs in which it is not missing.

    Counted over true pairs ("m"), false pairs ("u") and all pairs ("all").
    """
    cases = " ".join(f"when {sql} then {number}" for number, (sql, _) in enumerate(_conditions(column, levels)))
    last = len(levels) + 1
    rows = connection.execute(
        f"with pairs as (select a.{column} as {column}_l, r.{column} as {column}_r, a.who = r.who as together "  # noqa: S608
        f"from known_side a, released_side r where a.{column} is not null and r.{column} is not null) "
        f"select together, case {cases} else {last} end as level, count(*) from pairs group by all"
    ).fetchall()
    counts = np.zeros((2, last + 1))
    for together, level, number in rows:
        counts[int(together), level] = number
    found = {"m": counts[1], "u": counts[0], "all": counts.sum(axis=0)}
    return {name: (each / max(1.0, each.sum())).tolist() for name, each in found.items()}


def _comparison(
    splink: dict[str, Any], column: str, levels: tuple[float, ...], known: dict[str, list[float]], *, truth: bool
) -> Any:
    """Return the levels of one key, best first, with their probabilities: m and u if truth is known, else u for EM.

    A level that no pair shows gets a tiny probability. For EM, u includes the true pairs, which an intruder cannot
    exclude; they are one in as many as there are records.
    """
    stated = [splink["CustomLevel"](sql, label_for_charts=label) for sql, label in _conditions(column, levels)]
    graded = [*stated, splink["ElseLevel"]()]
    for number, level in enumerate(graded):
        u = max(known["u" if truth else "all"][number], _UNSEEN)
        graded[number] = (
            level.configure(m_probability=max(known["m"][number], _UNSEEN), u_probability=u)
            if truth
            else level.configure(u_probability=u)
        )
    return splink["CustomComparison"](
        output_column_name=column, comparison_levels=[splink["NullLevel"](column), *graded]
    )


def _threshold(weights: Floats, partners: Rows, alpha: float) -> float:
    """Return the least weight that at most the share alpha of the false pairs reaches."""
    apart = np.ones(weights.shape, dtype=np.bool_)
    linked = np.flatnonzero(partners >= 0)
    apart[linked, partners[linked]] = False
    values, counts = np.unique(weights[apart], return_counts=True)
    reached = np.cumsum(counts[::-1])[::-1] / max(1, counts.sum())
    enough = np.flatnonzero(reached <= alpha)
    return (
        float(values[enough[0]]) if len(enough) else float(np.nextafter(values[-1], np.inf)) if len(values) else np.inf
    )


def _perturbation(
    original: Microdata, released: Microdata, keys: Names, categories: Mapping[str, Coded], rows: Rows
) -> Floats:
    """Return the mean loss over the keys: the relative change of a number, 1 for a changed category."""
    losses = []
    for name in keys:
        if name in categories:
            losses.append(categories[name].changed.astype(np.float64))
            continue
        before, after = finite_numbers(original, name)[rows], finite_numbers(released, name)
        with np.errstate(divide="ignore", invalid="ignore"):
            losses.append(np.where(after == before, 0.0, np.abs(after - before) / np.abs(before)))
    lost = np.mean(losses, axis=0)
    return np.where(rows >= 0, lost, np.nan)


def _tabulate_weights(comparisons: list[dict[str, Any]], keys: tuple[str, ...]) -> pa.Table:
    """Return m, u and the weight of each level as a table."""
    rows = []
    for comparison in comparisons:
        name = keys[int(comparison["output_column_name"][1:])]
        for level in comparison["comparison_levels"]:
            if level.get("is_null_level"):
                continue
            m, u = level.get("m_probability"), level.get("u_probability")
            weight = float(np.log2(m / u)) if m and u else None
            rows.append({"key": name, "level": level["label_for_charts"], "m": m, "u": u, "weight": weight})
    kinds = {"key": pa.string(), "level": pa.string(), "m": pa.float64(), "u": pa.float64(), "weight": pa.float64()}
    return pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))


def _import_splink() -> tuple[Any, dict[str, Any]]:
    try:
        import duckdb
        import splink
        from splink import comparison_level_library, comparison_library
        from splink.backends.duckdb import DuckDBAPI
    except ImportError:
        raise EngineError(
            "linkage by probabilities needs splink, which is not installed",
            code="extra-missing",
            hint="pip install 'safeswap[linkage]'",
        ) from None
    parts = {"Linker": splink.Linker, "SettingsCreator": splink.SettingsCreator, "DuckDBAPI": DuckDBAPI}
    parts |= {name: getattr(comparison_level_library, name) for name in ("CustomLevel", "NullLevel", "ElseLevel")}
    return duckdb, {**parts, "CustomComparison": comparison_library.CustomComparison}


@contextmanager
def _silence_splink() -> Iterator[None]:
    """Silence splink's log and warnings, which show table names and SQL."""
    import warnings

    logger = logging.getLogger("splink")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
