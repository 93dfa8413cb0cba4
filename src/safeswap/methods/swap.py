"""Data swapping: exchange the values of some attributes between random pairs of records.

Sources: Dalenius & Reiss 1982; Gomatam & Karr 2003 (NISS TR 131); Gomatam, Karr & Sanil 2003 (NISS TR 132);
Gomatam, Karr, Liu & Sanil 2003 (NISS WebSwap).
"""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_DOWN, Context
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from safeswap.arrays import keyed, matching
from safeswap.arrays.names import Names
from safeswap.arrays.types import Floats, Int64s
from safeswap.engines.base import Cells, Constraint, Drawn, Move, PairRequest, PartnerRule, Records
from safeswap.engines.memory import MemoryRecords
from safeswap.errors import InfeasibleError, InputError, SpecError
from safeswap.methods.exchange import Columns, Described, ExchangingMethod, Nesting
from safeswap.model.columns import to_numbers
from safeswap.model.dates import to_days
from safeswap.model.effect import Effect, Permuted
from safeswap.model.invariant import (
    ChangedRecords,
    DisjointPairs,
    Invariant,
    KeptMargin,
    PairsAgree,
    PairsDiffer,
    ReplaysFromAudit,
    SameRows,
    UntouchedColumns,
)
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.numeric_column import decimals_of
from safeswap.model.schema import Attribute, Kind, Schema, level_texts, refuse_date
from safeswap.model.spec import Plan, Relaxation, SwapSpec
from safeswap.model.text import plural

Change = tuple[str, str, matching.Total]
"""The change, the attribute that it frees, and the pairs then feasible."""


class Swap(ExchangingMethod):
    """Exchange values between pairs of records."""

    name: ClassVar[str] = "swap"
    title: ClassVar[str] = "Data swapping between random pairs of records"
    spec_type: ClassVar[type[SwapSpec]] = SwapSpec
    sources: ClassVar[tuple[str, ...]] = (
        "Dalenius & Reiss 1982, Data-swapping: a technique for disclosure control",
        "Gomatam & Karr 2003, Distortion measures for categorical data swapping, NISS TR 131",
        "Gomatam, Karr & Sanil 2003, A risk-utility framework for categorical data swapping, NISS TR 132",
    )

    def columns(self, schema: Schema, spec: SwapSpec) -> Columns:
        """Return the roles, the keys of targeting, and the swap attributes as those that change."""
        keys = (spec.targeting.keys or schema.categorical) if spec.targeting else ()
        areas = tuple(attribute.name for attribute in schema.iter_kind(Kind.GEOGRAPHY))
        # Levels of one geography move together, which the plan checks.
        levels = areas if set(areas) & set(spec.swap) else ()
        weight = (weight_of(schema, spec),) if spec.partner != "any" else ()
        read = dict.fromkeys((*spec.swap, *spec.fixed, *spec.differ, *keys, *levels, *weight))
        return Columns(read=tuple(read), changed=spec.swap)

    def plan(self, data: Microdata, spec: SwapSpec) -> Plan:
        """Count the feasible pairs; if they are too few, find what binds and what would help."""
        return make_plan(MemoryRecords(data), spec)

    def draw(self, records: Records, spec: SwapSpec, key: Key, *, replicate: int = 0) -> Drawn:
        """Draw the pairs of every stage. If pairs are too few, refuse or take those available, as the spec says."""
        plan = make_plan(records, spec)
        if not plan.is_feasible and spec.on_shortfall == "error":
            raise shortfall_error(plan)
        moves = []
        for stage, names in enumerate(spec.stages):
            draw_key = stage_key(records, key, stage=stage, replicate=replicate)
            pairs = draw_pairs(records, spec, names, draw_key, expected=plan.pairs_per_record[stage])
            if len(pairs) < plan.asked and spec.on_shortfall == "error":
                raise draw_shortfall_error(plan, len(pairs), pairing=spec.pairing)
            moves.append(Move(names, pairs))
        # The stages exchange different columns. If the maximum is not proved, the draw may find more than the plan.
        made = min(len(move.pairs) for move in moves)
        return Drawn(plan=replace(plan, feasible=max(plan.feasible, made)), moves=tuple(moves), made=made)

    def effects(self, schema: Schema, spec: SwapSpec) -> tuple[Effect, ...]:
        """Return that the attributes of a stage moved together, between records with the same fixed ones."""
        return tuple(Permuted(names, spec.fixed) for names in spec.stages)

    def invariants(self, data: Described, spec: SwapSpec) -> tuple[Invariant, ...]:
        """Promise kept margins, untouched columns and pairs as requested."""
        untouched = tuple(name for name in data.attributes if name not in spec.swap)
        promises: list[Invariant] = [
            SameRows(),
            UntouchedColumns(untouched),
            *(KeptMargin((name,)) for name in spec.swap),
            DisjointPairs(),
            PairsDiffer(spec.swap, spec.true_swap),
            ChangedRecords(),
            ReplaysFromAudit(),
        ]
        promises += [KeptMargin((*names, *spec.fixed)) for names in spec.stages if len(names) + len(spec.fixed) > 1]
        if spec.fixed:
            promises.append(PairsAgree(spec.fixed))
        promises += [PairsDiffer((name,), "all") for name in spec.differ]
        return tuple(promises)


def make_plan(records: Records, spec: SwapSpec) -> Plan:
    """Count the feasible pairs; if they are too few, find what binds and what would help."""
    check_attributes(records, spec, Nesting(records))
    asked = spec.pairs_for(len(records))
    total, tightest, expected = count_feasible(records, spec)
    plan = Plan(
        method=Swap.name,
        records=len(records),
        asked=asked,
        feasible=total.found,
        at_most=_upper_bound(total),
        pairs_per_record=expected,
    )
    if plan.is_feasible:
        return plan
    relaxed = list_relaxations(records, spec, total=total, asked=asked)
    return replace(
        plan,
        binds=_find_binding(relaxed, tightest, total, len(records)),
        relaxations=tuple(
            Relaxation(change=change, feasible=allowed.found, at_most=_upper_bound(allowed))
            for change, _, allowed in relaxed
        ),
    )


def check_attributes(data: Records | Microdata, spec: SwapSpec, nesting: Nesting) -> None:
    """Refuse unknown attributes, identifiers, constant swap attributes, split geography, and targeting without keys."""
    for name in (*spec.swap, *spec.fixed, *spec.differ, *(spec.targeting.keys if spec.targeting else ())):
        attribute = data.schema[name]
        if attribute is data.schema.identifier:
            raise SpecError(
                f"{name!r} is the record identifier and can have no role in a swap",
                code="identifier-role",
                hint="omit it from the specification; it stays with its record",
                attribute=name,
            )
    for name in spec.targeting.keys if spec.targeting else ():
        refuse_date(data.schema, name)
    if spec.targeting and not (spec.targeting.keys or data.schema.categorical):
        raise SpecError(
            "the file has no categorical attribute by which to find records at risk",
            code="no-key-variables",
            hint="name the key variables: targeting.keys",
        )
    for name in spec.swap:
        # Count occupied levels only: declared levels that do not occur would hide a constant attribute.
        if spec.pairs_for(len(data)) and data.is_constant(name):
            raise InfeasibleError(
                f"{name!r} has the same value in every record: exchanging it changes nothing",
                code="constant-attribute",
                hint="swap another attribute",
                attribute=name,
            )
    if spec.pairs_for(len(data)):
        nesting.check(spec.stages, spec.fixed)


def make_constraint(spec: SwapSpec, names: Names) -> Constraint:
    """Return which records may be paired when these attributes are exchanged."""
    each: tuple[Names, ...] = tuple((name,) for name in names)
    if spec.true_swap == "any":
        # If one of them must differ anyway, the exchange is a true swap.
        each = () if set(names) & set(spec.differ) else (names,)
    unequal = tuple(dict.fromkeys((*each, *((name,) for name in spec.differ))))
    decisive = {name for group in unequal for name in group}
    return Constraint(equal=spec.fixed, unequal=unequal, carried=tuple(name for name in names if name not in decisive))


def count_feasible(records: Records, spec: SwapSpec) -> tuple[matching.Total, Names, tuple[float, ...]]:
    """Return the pairs feasible in every stage, the tightest stage, and the pairs expected from one random pass."""
    classes = {names: records.classes(make_constraint(spec, names)) for names in spec.stages}
    totals = {n: matching.largest_total(c.strata, c.coordinates, c.counts) for n, c in classes.items()}
    by_stratum = spec.pairing == "repaired"
    expected = tuple(
        matching.pairs_per_record(c.strata, c.coordinates, c.counts, by_stratum=by_stratum) for c in classes.values()
    )
    tightest = min(totals, key=lambda names: totals[names])
    return matching.Total(totals[tightest].found, min(each.most for each in totals.values())), tightest, expected


def _upper_bound(total: matching.Total) -> int | None:
    """Return the upper bound if it differs from the number found, else None."""
    return None if total.is_proved else total.most


def draw_pairs(records: Records, spec: SwapSpec, names: Names, draw_key: bytes, *, expected: float = 0.25) -> Any:
    """Draw the pairs of one stage, in the engine's form."""
    request = PairRequest(
        constraint=make_constraint(spec, names),
        wanted=min(spec.pairs_for(len(records)), len(records) // 2),
        repair=spec.pairing == "repaired",
        draw_key=draw_key,
        targeting=spec.targeting,
        partners=make_partner_rule(records, spec, names),
        pairs_per_record=expected,
    )
    return records.pair(request)


def weight_of(schema: Schema, spec: SwapSpec) -> str:
    """Return the weight by which partners are chosen: the stated one, else that of the schema."""
    stated = spec.weight or (schema.weight.name if schema.weight is not None else "")
    if not stated:
        raise SpecError(
            f"partner={spec.partner} needs a weight, and the schema has none",
            code="no-weight",
            hint="describe an attribute as weight, or name it: weight=…",
        )
    if schema[stated].kind not in (Kind.WEIGHT, Kind.NUMERIC) or stated in spec.swap:
        raise SpecError(
            f"{stated!r} cannot choose partners: it is swapped itself, or is not a number",
            code="not-a-weight",
            hint="name an attribute of kind weight that is not swapped",
            attribute=stated,
        )
    return stated


def make_partner_rule(records: Records, spec: SwapSpec, names: Names) -> PartnerRule | None:
    """Return how partners are chosen: weights and values as whole numbers, which differ as the values do."""
    if spec.partner == "any":
        return None
    weight = weight_of(records.schema, spec)
    _refuse_bad_weights(records, weight)
    values = names if spec.partner == "least_bias" else ()
    ordered = [name for name in values if records.schema[name].kind in (Kind.NUMERIC, Kind.ORDINAL, Kind.DATE)]
    counted = records.count(*((name,) for name in (weight, *ordered)))
    scales = {
        name: _scale(records.schema[name], cells) for name, cells in zip((weight, *ordered), counted, strict=True)
    }
    return PartnerRule(weight=weight, values=values, scales=scales)


def _weight_error(name: str, wrong: int, first: int = 0) -> InputError:
    where = f"; the first is record {first:,}" if first else ""
    return InputError(
        f"{plural(wrong, 'record has', 'records have')} a weight {name!r} that is missing, infinite, negative or zero"
        f"{where}",
        code="bad-weight",
        hint="complete the weights first",
        column=name,
        **({"record": first} if first else {}),
    )


def _refuse_bad_weights(records: Records, name: str) -> None:
    """Refuse weights that cannot be used by the position of the first, where the records are in memory."""
    data: Microdata | None = getattr(records, "data", None)
    if data is None or data.schema[name].kind is not Kind.WEIGHT:
        return
    numbers = to_numbers(data, name)
    wrong = ~(np.isfinite(numbers) & (numbers > 0))
    if wrong.any():
        raise _weight_error(name, int(np.count_nonzero(wrong)), int(np.flatnonzero(wrong)[0]) + 1)


_FINEST = 1 << 28  # products of two differences stay far below 2**63


def _scale(attribute: Attribute, cells: Cells) -> Int64s:
    """Return a whole number for each code: multiples of a common step if there is one, else a fine grid; or a rank."""
    numbers = _numbers(attribute, cells.values.column(0).combine_chunks())
    if attribute.kind is Kind.WEIGHT and not (np.isfinite(numbers) & (numbers > 0)).all():
        wrong = int(cells.counts[~(np.isfinite(numbers) & (numbers > 0))].sum())
        raise _weight_error(attribute.name, wrong)
    known = np.where(np.isfinite(numbers), numbers, np.nan)
    low = float(np.nanmin(known, initial=np.inf)) if not np.isnan(known).all() else 0.0
    above = np.nan_to_num(known - low)
    places = decimals_of(known)
    step = 10.0 ** (places or 0)
    if places is None or above.max(initial=0.0) * step >= _FINEST:
        step = (_FINEST - 1) / above.max(initial=1.0)
    found = np.zeros(int(cells.codes.max(initial=0)) + 1, dtype=np.int64)
    found[cells.codes[:, 0]] = np.round(above * step).astype(np.int64)
    return found


def _numbers(attribute: Attribute, values: pa.Array) -> Floats:
    """Return the numbers that values stand for: ranks of ordinal levels; NaN for no answer."""
    known = iter(level_texts(values.drop_null()))
    texts = [next(known) if is_valid else None for is_valid in values.is_valid().to_pylist()]
    if attribute.kind is Kind.ORDINAL and attribute.levels:
        place = {text: float(rank) for rank, text in enumerate(attribute.levels)}
        return np.array([place.get(text, np.nan) if text is not None else np.nan for text in texts])
    if attribute.kind is Kind.DATE:
        days = to_days(values)
        return np.full(len(values), np.nan) if days is None else np.asarray(days, dtype=np.float64)
    return np.array([np.nan if text is None or text in attribute.missing else _number(text) for text in texts])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def stage_key(data: Records | Microdata, key: Key, *, stage: int, replicate: int) -> bytes:
    """Derive the key of a stage's draws.

    It is the same for every spec, so that candidates of one replicate are comparable, and a study needs one order per
    replicate instead of one per candidate.
    """
    return keyed.derive(key.secret, "data", data.schema.name, len(data), "swap", "pairs", stage, replicate)


def list_relaxations(records: Records, spec: SwapSpec, *, total: matching.Total, asked: int) -> list[Change]:
    """List single changes of the spec that allow more pairs, cheapest first.

    The cheapest just suffices: it gives up the least of the requested protection. Insufficient changes come last.
    """
    found = [(change, frees, count_feasible(records, relaxed)[0]) for change, frees, relaxed in _relax(spec)]
    found.sort(key=lambda item: (item[2].found < asked, item[2].found if item[2].found >= asked else -item[2].found))
    feasible = total.found
    # Round down: the proposed rate must not ask for one pair too many.
    rate = Context(prec=6, rounding=ROUND_DOWN).divide(2 * feasible, max(len(records), 1))
    less = f"ask for at most {plural(feasible, 'pair')} (rate {rate:f} of {plural(len(records), 'record')})"
    return [*found, (less, "", total)]


def _relax(spec: SwapSpec) -> list[tuple[str, str, SwapSpec]]:
    """List every spec with one requirement removed: the change, the attribute that is freed, the spec."""

    def drop(role: str, name: str) -> SwapSpec:
        return spec.replace(**{role: tuple(other for other in getattr(spec, role) if other != name)})

    changes = [(f"no longer hold {name} fixed", name, drop("fixed", name)) for name in spec.fixed]
    changes += [(f"no longer require {name} to differ", name, drop("differ", name)) for name in spec.differ]
    if len(spec.swap) > 1 and (spec.true_swap == "all" or spec.mode == "sequential"):
        changes += [(f"do not swap {name}", name, drop("swap", name)) for name in spec.swap]
    if len(spec.swap) > 1 and spec.true_swap == "all" and spec.mode == "simultaneous":
        anyone = spec.replace(true_swap="any")
        changes.append(('count a pair if any swap attribute differs (true_swap="any")', "", anyone))
    return changes


def _find_binding(relaxed: list[Change], names: Names, total: matching.Total, records: int) -> Names:
    """Return the attribute whose constraint costs most pairs; the swap attributes if no other does.

    A constraint costs pairs only if more are found without it than are possible with it.
    """
    freeing = [(allowed.found, name) for _, name, allowed in relaxed if name and allowed.found > total.most]
    if freeing:
        return (max(freeing)[1],)
    return () if total.found == records // 2 else names


def shortfall_error(plan: Plan) -> InfeasibleError:
    """Return the error for an infeasible plan, with hints for a feasible request."""
    *changes, lower = (relaxation.change for relaxation in plan.relaxations)
    enough = [change for change, r in zip(changes, plan.relaxations, strict=False) if r.feasible >= plan.asked]
    return InfeasibleError(
        plan.sentence,
        code="shortfall",
        hint="; or ".join([*enough[:3], lower, 'on_shortfall="take" to make as many as there are']),
        asked=plan.asked,
        feasible=plan.feasible,
        binds=list(plan.binds),
        relaxations=[r.as_dict() for r in plan.relaxations],
        **({} if plan.at_most is None else {"at_most": plan.at_most}),
    )


def draw_shortfall_error(plan: Plan, made: int, *, pairing: str) -> InfeasibleError:
    """Return the error for a draw that found fewer pairs than exist: one random pass, or a truncated search."""
    if pairing == "repaired":
        return InfeasibleError(
            f"{plural(plan.asked, 'pair')} requested and feasible, but the search for them ended with {made:,}",
            code="search-shortfall",
            hint=f"ask for at most {plural(made, 'pair')}; or hold an attribute fixed, which divides the file into "
            'smaller strata; or on_shortfall="take" to make as many as were found',
            asked=plan.asked,
            feasible=made,
            maximum=plan.feasible,
        )
    return InfeasibleError(
        f"{plural(plan.asked, 'pair')} requested, but one uniform pass gave {made:,}",
        code="uniform-shortfall",
        hint='pairing="repaired" continues until the requested number or the maximum is reached; or lower the rate; '
        'or on_shortfall="take" to make as many as there are',
        asked=plan.asked,
        feasible=made,
        binds=list(plan.binds),
        maximum=plan.feasible,
    )
