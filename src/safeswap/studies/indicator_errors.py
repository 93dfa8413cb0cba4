"""The error that masking adds to key indicators, from several draws of one specification.

One masked file shows one draw: θ̃ − θ̂. Over many draws under the same key, the mean of θ̃ − θ̂ is the bias of the method,
and their variance is what masking adds at random. With v(θ̂) the variance of the sample,

    total error² = v(θ̂) + variance between draws + bias².

It is the second estimate beside v(θ̃) + (θ̃ − θ̂)² of the release itself. A study with replicates makes it for the
specification that its rule chooses. Files of further draws are never kept: the most frequent value per record would
reveal the original.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from safeswap import registry
from safeswap.errors import SpecError
from safeswap.measures.utility.indicators import Indicators
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.score import Comparison
from safeswap.model.spec import MaskSpec


def replicate_errors(
    data: Microdata, spec: MaskSpec, indicators: Indicators, *, key: Key, replicates: int = 20
) -> pa.Table:
    """Mask the file several times; return bias and spread of every estimate, a row each. Confidential.

    A line that cannot be computed in some draw has one row, with the problem.

    >>> from safeswap import SwapSpec, datasets
    >>> means = Indicators(lines=[{"statistic": "share", "of": "AnnSal", "level": "50K+", "by": ["Sex"]}])
    >>> spec = SwapSpec(swap=["AnnSal"], rate=0.05)
    >>> found = replicate_errors(datasets.cps8d(), spec, means, key=Key.insecure(seed=1), replicates=3)
    >>> found.num_rows, found.column_names[-3:]
    (2, ['bias', 'between', 'total_error'])
    """
    if replicates < 2:
        raise SpecError("a variance needs two draws", code="bad-spec", hint="ask for at least 2 replicates")
    method = registry.method(spec.method)
    masked = (method.apply(data, spec, key=key, replicate=replicate).data for replicate in range(replicates))
    return spread_of(indicators, (Comparison(before=data, after=after, attributes=()) for after in masked))


def spread_of(indicators: Indicators, draws_seen: Iterable[Comparison]) -> pa.Table:
    """Return bias and spread of every estimate over several draws of one specification."""
    # The errors of the sample are the same for all draws.
    draws = [list(indicators.evaluate(seen, errors=not number)) for number, seen in enumerate(draws_seen)]
    rows: list[dict[str, Any]] = []
    for number, first in enumerate(draws[0]):
        known = {"indicator": first.line.title, "statistic": first.line.statistic}
        # A quantile or a regression may be missing in some draw: such a line has no spread.
        problem = next((draw[number].problem for draw in draws if draw[number].problem), "")
        changes = [draw[number].change for draw in draws]
        if problem or len({len(change) for change in changes}) > 1:
            rows.append({**known, "problem": problem or "its domains differ between draws"})
            continue
        bias, between = np.mean(changes, axis=0), np.std(changes, axis=0, ddof=1)
        total = np.sqrt(first.error**2 + between**2 + bias**2)
        for i, names in enumerate(first.names):
            numbers = {
                "before": first.before[i],
                "error": first.error[i],
                "bias": bias[i],
                "between": between[i],
                "total_error": total[i],
            }
            rows.append({**known, "problem": "", "domain": names, **numbers})
    texts = [(name, pa.string()) for name in ("indicator", "statistic", "problem")]
    kinds = [*texts, ("domain", pa.list_(pa.string()))]
    kinds += [(name, pa.float64()) for name in ("before", "error", "bias", "between", "total_error")]
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))
