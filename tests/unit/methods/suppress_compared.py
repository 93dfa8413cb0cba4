"""What the product makes of a tiny file, compared with trying everything."""

from __future__ import annotations

import pyarrow as pa
from tests.unit.methods import suppress_by_hand as by_hand

from safeswap import registry
from safeswap.errors import InfeasibleError
from safeswap.methods.suppress.method import SuppressSpec
from safeswap.model.invariant import verify
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.workflow import mask, risky


def microdata(case: by_hand.Case) -> Microdata:
    columns = {
        name: pa.array([None if r[j] is None else f"v{r[j]}" for r in case.records], pa.string())
        for j, name in enumerate(case.names)
    }
    attributes = [Attribute(name=name) for name in case.names]
    if case.weights is not None:
        columns["w"] = pa.array(case.weights, pa.float64())
        attributes.append(Attribute(name="w", kind=Kind.WEIGHT))
    return Microdata(pa.table(columns), Schema(attributes=tuple(attributes)))


def plain(data: Microdata, case: by_hand.Case) -> list[by_hand.Record]:
    columns = [data.table.column(name).to_pylist() for name in case.names]
    return [tuple(None if v is None else int(v[1:]) for v in record) for record in zip(*columns, strict=True)]


def disagreements(case: by_hand.Case, *, solver: str = "optimal") -> list[str]:
    """Everything in which the product and trying everything differ on one case."""
    data, least = microdata(case), by_hand.least(case)
    spec = SuppressSpec(**case.stated, solver=solver)
    found = risky(data, spec)
    wrong = [] if found.rows().tolist() == by_hand.unsafe(case, case.records) else ["unsafe records"]
    try:
        masked = mask(data, spec, insecure_seed=1)
    except InfeasibleError:
        return wrong if least is None else [*wrong, "refused, but it is possible"]
    if least is None:
        return [*wrong, "done, but it is not possible"]
    return wrong + _of_answer(case, least, masked, solver)


def _of_answer(case: by_hand.Case, least: float, masked, solver: str) -> list[str]:
    after, facts = plain(masked.data, case), masked.audit.facts
    places = [
        (i, k)
        for i, (one, other) in enumerate(zip(case.records, after, strict=True))
        for k in range(len(one))
        if one[k] != other[k]
    ]
    paid, bound = by_hand.cost(case, places), facts["least_possible"]
    below = facts["records_still_below_tolerance"]
    promises = verify(
        registry.method("suppress").invariants(masked.original, masked.spec),
        before=masked.original,
        after=masked.data,
        audit=masked.audit,
    )
    checks = {
        "still unsafe": not by_hand.unsafe(case, after),
        "not only allowed blanks": all(k in case.allowed and after[i][k] is None for i, k in places),
        "bound above the least": bound <= least + 1e-6,
        "bound above the cost": bound <= paid + 1e-9,
        "not the least": solver == "greedy" or abs(paid - least) < 1e-6,
        "optimal, but it is not": "optimal" not in facts["answer"] or abs(paid - least) < 1e-6,
        "records still below": below == by_hand.still_below(case, after),
        "a broken promise": all(finding.ok for finding in promises),
        "some below against the promise": below == 0 or not masked.spec.guards_published_keys,
        "a safe record is blanked": case.missing not in ("none", "any")
        or _only_unsafe_are_blanked(case, after, places),
    }
    return [name for name, holds in checks.items() if not holds]


def _only_unsafe_are_blanked(case: by_hand.Case, after, places) -> bool:
    """Whether every blanked record would be unsafe with its values, the others being as they are."""
    for i in {i for i, _ in places}:
        again = [*after[:i], case.records[i], *after[i + 1 :]]
        if i not in by_hand.unsafe(case, again):
            return False
    return True
