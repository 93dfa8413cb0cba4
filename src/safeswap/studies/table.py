"""The table of a study, and its facts about the data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap import registry
from safeswap.arrays import cells
from safeswap.arrays.names import Names
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.spec import MaskSpec
from safeswap.model.study import Figures, StudySpec
from safeswap.studies.evaluate import Evaluator, Group
from safeswap.studies.study import Study


def study_of(
    spec: StudySpec, evaluator: Evaluator, groups: Sequence[Group], figures: Figures, before: Mapping[str, float]
) -> Study:
    """Make a study from the scores of all candidates, replicate after replicate."""
    specs = [(s, group) for group in groups for s in group.specs]
    replicates = len(figures) // len(specs)
    per_spec = _per_spec(evaluator.data, specs)
    number = np.tile(np.arange(len(specs)), replicates)
    columns: dict[str, Any] = {"candidate": np.arange(len(figures)), "specification": number}
    columns |= {name: values.take(pa.array(number)) for name, values in per_spec.items()}
    columns["replicate"] = np.repeat(np.arange(replicates), len(specs))
    columns["outcome"] = pa.array(np.where([bool(reason) for reason in figures.reasons], "rejected", "made"))
    columns["pairs"] = figures.made
    columns["reason"] = pa.array(figures.reasons, type=pa.string())
    # A rejected candidate has nulls, not NaN.
    columns |= {name: pa.array(figures.scores[:, i], from_pandas=True) for i, name in enumerate(spec.measures)}
    return Study(
        spec=spec,
        table=pa.table(columns),
        specs=tuple(s for s, _ in specs),
        facts=facts_of(evaluator.data, evaluator.keys, evaluator.key, before, spec),
        two_way=figures.tables,
        table_pairs=evaluator.table_pairs if figures.tables is not None else (),
    )


def _per_spec(data: Microdata, specs: Sequence[tuple[MaskSpec, Group]]) -> dict[str, pa.Array]:
    """Return the columns that candidates of one specification share."""
    return {
        "label": pa.array([label_of(data, s, group.labels) for s, group in specs], type=pa.string()),
        "swap": pa.array([list(group.labels) for _, group in specs], type=pa.list_(pa.string())),
        "constraint": pa.array([group.constraint.label if group.constraint else "" for _, group in specs]),
        "rate": pa.array([getattr(s, "rate", None) for s, _ in specs], type=pa.float64()),
        "spec": pa.array([spec_text(s) for s, _ in specs], type=pa.string()),
    }


def spec_text(spec: MaskSpec) -> str:
    """Serialise a specification to one line of JSON.

    >>> from safeswap.model.spec import SwapSpec
    >>> spec_text(SwapSpec(swap=["Race"], rate=0.05))
    '{"method": "swap", "swap": ["Race"], "rate": 0.05}'
    """
    return json.dumps(spec.as_dict(), ensure_ascii=False)


def specs_of(table: pa.Table) -> tuple[MaskSpec, ...]:
    """Parse the specifications of a study from the text in its table."""
    count = int(table.column("specification").to_numpy().max(initial=-1)) + 1
    specs = [json.loads(text) for text in table.column("spec").slice(0, count).to_pylist()]
    # Look each method up once: there may be a hundred thousand specifications.
    types = {name: registry.method(name).spec_type for name in {values.pop("method") for values in map(dict, specs)}}
    return tuple(types[values.pop("method")](**values) for values in specs)


def label_of(data: Microdata, spec: MaskSpec, names: Names) -> str:
    """Return a short label: the letters of the swapped attributes, their names if they have none, else the method."""
    if not names:
        return spec.method
    letters = [data.schema[name].letter for name in names]
    return "".join(letters) if all(letters) else "+".join(names)


def facts_of(data: Microdata, keys: Names, key: Key, before: Mapping[str, float], spec: StudySpec) -> dict[str, Any]:
    """Return the facts about the data: names, numbers of levels, scores before. No record, no small count."""
    columns, cardinalities = data.coded_columns(keys)
    return {
        "name": data.schema.name,
        "records": len(data),
        "attributes": [
            {
                "name": name,
                "letter": data.schema[name].letter,
                "kind": data.schema[name].kind.value,
                "levels": len(data.coded(name).levels),
            }
            for name in keys
        ],
        "cells": len(cells.count_cells(columns, cardinalities).counts),
        "possible_cells": prod(cardinalities),
        "before": dict(before),
        "risk_before": before[spec.risk[0]],
        "for_release": key.releasable,
        "key_id": key.id,
    }
