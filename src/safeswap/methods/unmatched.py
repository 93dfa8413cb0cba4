"""Why sampled households found no partner: which key, dropped or coarsened, would have found them one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from safeswap.engines.household_areas import HouseholdAreas
from safeswap.kernels import cells
from safeswap.kernels.near_keys import agree_but_one
from safeswap.kernels.same_key import count_matched
from safeswap.kernels.types import Codes, Rows
from safeswap.model.edit_1990_spec import Edit1990Spec
from safeswap.model.levels import level_texts
from safeswap.model.microdata import Microdata, smallest_code_type
from safeswap.model.schema import Kind, Schema
from safeswap.model.value_order import ranked


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A change of one key, and how many more households would have found a partner by it."""

    key: str
    change: str
    more: int


def remedies(data: Microdata, spec: Edit1990Spec, areas: HouseholdAreas, *, alone: Rows, used: Rows) -> list[Remedy]:
    """What would help the households left alone, most helpful first.

    Partners are those that nobody uses: neither in the sample nor in a pair. A key that the others determine, such as
    one of several counts with a given sum, cannot help by itself.
    """
    keys = tuple(name for name in spec.matched if name not in spec.geography)
    if not len(alone) or not keys:
        return []
    fixed = tuple(name for name in spec.matched if name in spec.geography)
    taken = np.zeros(len(data), dtype=np.bool_)
    taken[used] = True
    taken[alone] = True
    columns, sizes = data.coded_columns((*fixed, *keys))
    near = agree_but_one(columns[: len(fixed)], columns[len(fixed) :], alone, taken)
    rows = np.concatenate([alone, near])
    across = areas.across[rows]
    some = [column[rows] for column in columns]
    found = []
    for place, name in enumerate(keys, start=len(fixed)):
        for change, new_codes in _changes(data, name):
            changed = [*some[:place], new_codes[some[place]], *some[place + 1 :]]
            matched = count_matched(cells.pack(changed, sizes)[0], across, len(alone))
            found.append(Remedy(key=name, change=change, more=matched))
    return sorted(found, key=lambda remedy: -remedy.more)


def _changes(data: Microdata, name: str) -> Iterator[tuple[str, Codes]]:
    """A key left out, and where it can be made coarser the coarser one: what is done, and the new code of each code."""
    attribute, coded = data.schema[name], data.coded(name)
    kind = smallest_code_type(coded.cardinality)
    yield f"drop {name}", np.zeros(coded.cardinality, dtype=kind)
    if attribute.hierarchy:
        texts = [attribute.hierarchy[0].get(text, text) for text in level_texts(coded.levels)]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        coarse = [*(numbers[text] for text in texts), coded.cardinality - 1][: coded.cardinality]
        yield f"coarsen {name} to its parent categories", np.array(coarse, dtype=kind)
    elif attribute.kind is Kind.ORDINAL and len(coded.levels) > 2:
        levels = Microdata(pa.table({name: coded.levels}), Schema(attributes=(attribute,)))
        coarse = [*(ranked(levels, name)[0] // 2).tolist(), coded.cardinality - 1][: coded.cardinality]
        yield f"coarsen {name}, neighbouring categories in twos", np.array(coarse, dtype=kind)
