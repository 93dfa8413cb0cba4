"""Make the confidentiality plot that fits the keys: by distance, match weights or frequency; one or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from safeswap.errors import SpecError
from safeswap.measures.plot.values import ConfidentialityPlot
from safeswap.model.microdata import Microdata
from safeswap.model.schema import level_texts
from safeswap.model.text import list_names

Linkage = Literal["auto", "distance", "fellegi_sunter", "frequency"]

_OPTIONS = {
    "distance": {
        "alpha",
        "scale",
        "distance",
        "archive",
        "policy",
        "largest_units",
        "secret",
        "exact_up_to",
        "densities",
    },
    "fellegi_sunter": {"alpha", "archive", "policy", "training", "levels"},
    "frequency": {"population", "weight", "sampling_fraction", "importance", "k", "numbers_as_levels"},
}


def make_plot(
    original: Microdata,
    released: Microdata,
    keys: Sequence[str],
    *,
    linkage: Linkage = "auto",
    only: Mapping[str, str] | None = None,
    **options: Any,
) -> ConfidentialityPlot:
    """Make one plot. ``auto`` uses distances for numeric keys and frequencies for categorical ones.

    ``only`` restricts all files to records with stated values, such as one division. Options that do not apply to the
    linkage are refused.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex"),))
    >>> data = Microdata(pa.table({"Sex": ["f", "f", "m"]}), schema)
    >>> make_plot(data, data, ["Sex"], k=2).sentence
    '1 of 3 records are unsafe.'
    """
    names = (keys,) if isinstance(keys, str) else tuple(keys)
    way = _choose_linkage(original, names) if linkage == "auto" else linkage
    if way not in _OPTIONS:
        raise SpecError("there is no such linkage", code="bad-linkage", hint="one of auto, " + ", ".join(_OPTIONS))
    stated = {name: value for name, value in options.items() if value is not None}
    if "secret" not in _OPTIONS[way]:
        stated.pop("secret", None)  # a key may be passed to a linkage that draws nothing
    for name in sorted(stated.keys() - _OPTIONS[way]):
        raise SpecError(
            f"{name!r} has no meaning for linkage by {way.replace('_', '-')}",
            code="bad-option",
            hint="its options are: " + ", ".join(sorted(_OPTIONS[way] - {"secret", "exact_up_to"})),
        )
    sides = [_restrict(data, only or {}) for data in (original, released)]
    for name in ("archive", "population"):
        if name in stated:
            stated[name] = _restrict(stated[name], only or {})
    makers = _makers()
    make = makers["counted" if stated.pop("numbers_as_levels", False) else way]
    made: ConfidentialityPlot = make(*sides, names, **stated)
    return made


def plots_by_keys(
    original: Microdata, released: Microdata, key_sets: Sequence[Sequence[str]], **options: Any
) -> pa.Table:
    """Return the totals of the plot for several sets of keys, one row each: what an intruder gains by knowing more.

    >>> from safeswap.model.schema import Attribute, Schema
    >>> schema = Schema(attributes=(Attribute(name="Sex"), Attribute(name="Age")))
    >>> data = Microdata(pa.table({"Sex": ["f", "f", "m"], "Age": ["1", "2", "2"]}), schema)
    >>> plots_by_keys(data, data, [["Sex"], ["Sex", "Age"]], k=2)["unsafe"].to_pylist()
    [1, 3]
    """
    if not key_sets:
        raise SpecError(
            "name at least one set of keys", code="bad-keys", hint='[["turnover"], ["turnover", "employees"]]'
        )
    rows = []
    for keys in key_sets:
        totals = make_plot(original, released, keys, **options).as_dict()
        plain = {name: value for name, value in totals.items() if not isinstance(value, (dict, list))}
        rows.append({"keys": ", ".join(totals["keys"]), **plain})
    return pa.Table.from_pylist(rows)


def _makers() -> dict[str, Any]:
    from safeswap.measures.plot.fellegi_sunter import fellegi_sunter_plot
    from safeswap.measures.plot.frequencies import count_plot, frequency_plot
    from safeswap.measures.plot.numeric_keys import confidentiality_plot

    return {
        "distance": confidentiality_plot,
        "fellegi_sunter": fellegi_sunter_plot,
        "frequency": frequency_plot,
        "counted": count_plot,
    }


def _choose_linkage(data: Microdata, names: tuple[str, ...]) -> str:
    kinds = {data.schema[name].kind.is_categorical for name in names}
    if len(kinds) > 1:
        raise SpecError(
            "some keys are numeric and some are categorical",
            code="mixed-keys",
            hint='linkage="fellegi_sunter" takes both; or name keys of one kind',
        )
    return "frequency" if kinds == {True} else "distance"


def _restrict(data: Microdata, only: Mapping[str, str]) -> Microdata:
    """Return the records with these values, compared as text."""
    if not only:
        return data
    chosen = np.ones(len(data), dtype=np.bool_)
    for name, value in only.items():
        coded = data.coded(name)
        wanted = np.array([text == str(value) for text in level_texts(coded.levels)] + [False])
        chosen &= wanted[coded.codes]
    if not chosen.any():
        raise SpecError(
            f"no record has the stated value of {list_names(only)}",
            code="no-records",
            hint="state a value that occurs in every file",
        )
    return Microdata(data.table.filter(pa.array(chosen)), data.schema)
