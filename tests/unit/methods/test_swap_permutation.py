"""Permutation swapping: its law by enumeration, ε, and an exchange that is not pairs."""

from __future__ import annotations

import json
from collections import Counter
from itertools import permutations
from math import factorial, inf, log
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import safeswap as ss
from safeswap import registry
from safeswap.errors import InfeasibleError, SpecError
from safeswap.methods.swap_permutation import (
    Derange,
    SwapPermutationSpec,
    epsilon_of,
    for_epsilon,
    least_epsilon,
)
from safeswap.model.audit import Audit, Exchange, undo
from safeswap.model.invariant import ReplaysFromAudit, verify
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Schema
from safeswap.on_disk.audit_record import dump_audit, load_audit

KEY = Key(bytes(range(32)))
FIGURES = json.loads((Path(__file__).parents[2] / "published/data/permutation_epsilon.json").read_text())


def law(n: int, p: float) -> dict[tuple[int, ...], float]:
    """The probability of every permutation, from the words of the rule: select, again if one, uniform derangement."""
    found: Counter[tuple[int, ...]] = Counter()
    for chosen in range(1 << n):
        members = [i for i in range(n) if chosen >> i & 1]
        if len(members) == 1:
            continue
        weight = p ** len(members) * (1 - p) ** (n - len(members))
        ways = [each for each in permutations(members) if all(a != b for a, b in zip(members, each, strict=True))]
        for way in ways:
            whole = list(range(n))
            for place, source in zip(members, way, strict=True):
                whole[place] = source
            found[tuple(whole)] += weight / len(ways)
    total = sum(found.values())
    return {each: weight / total for each, weight in found.items()}


def exact_epsilon(n: int, p: float) -> tuple[float, float]:
    """The largest log ratio of two files that differ by an exchange, and the largest per changed record, of any two."""
    chances = law(n, p)
    exchange = per_record = 0.0
    for change in permutations(range(n)):
        moved = sum(i != j for i, j in enumerate(change))
        if moved:
            composed = (tuple(change[i] for i in each) for each in chances)
            ratio = max(abs(log(chance / chances[c])) for chance, c in zip(chances.values(), composed, strict=True))
            per_record = max(per_record, ratio / moved)
            exchange = max(exchange, ratio) if moved == 2 else exchange
    return exchange, per_record


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.7, 0.95])
def test_no_two_tiny_files_are_told_apart_by_more_than_epsilon(n: int, p: float) -> None:
    exchange, per_record = exact_epsilon(n, p)
    assert per_record <= epsilon_of(p, n) * (1 + 1e-12)
    assert exchange <= 2 * epsilon_of(p, n) * (1 + 1e-12)
    published = {(row[0], row[1]): row[2:4] for row in FIGURES["cases"]}
    if (n, p) in published:
        assert [exchange, per_record] == pytest.approx(published[n, p], abs=1e-10)


def test_epsilon_is_that_of_independent_software_and_never_below_the_exact_one() -> None:
    for n, p, exchange, exact, formula in FIGURES["cases"]:
        assert epsilon_of(p, n) == pytest.approx(formula, abs=1e-10)
        assert epsilon_of(p, n) >= exact - 1e-10
        assert 2 * epsilon_of(p, n) >= exchange - 1e-10
    for largest, p, least in FIGURES["least"]:
        assert least_epsilon(largest) == pytest.approx(least, abs=1e-7)
        assert for_epsilon(least_epsilon(largest), largest) == pytest.approx(p, abs=1e-6)


def test_without_chance_there_is_no_finite_epsilon() -> None:
    assert epsilon_of(0.0, 5) == epsilon_of(1.0, 5) == inf


@pytest.mark.parametrize("largest", [1, 2, 50, 10_000])
@pytest.mark.parametrize("extra", [0.0, 0.5, 4.0])
def test_the_probability_found_gives_the_epsilon_asked_for(largest: int, extra: float) -> None:
    wanted = least_epsilon(largest) + extra
    assert epsilon_of(for_epsilon(wanted, largest), largest) == pytest.approx(wanted)


def test_too_small_an_epsilon_is_refused_with_the_least() -> None:
    with pytest.raises(InfeasibleError) as refused:
        for_epsilon(1.0, 100)
    assert refused.value.code == "epsilon-too-small"
    assert refused.value.fields["least"] == pytest.approx(log(101) / 2)


@pytest.mark.parametrize(("n", "p"), [(2, 0.5), (3, 0.2), (3, 0.8), (4, 0.6)])
def test_the_draw_follows_the_law(n: int, p: float) -> None:
    """Chi-square at level 0.001 under a fixed key: 12,000 strata of the same size."""
    strata = 12_000
    words = np.random.default_rng(n).integers(-(2**62), 2**62, n * strata)
    bounds = np.arange(0, n * strata + 1, n)
    source = Derange("word", p, bytes(range(32)))(bounds, {"word": words})["source"].reshape(-1, n)
    own = np.arange(n * strata).reshape(-1, n)
    source = np.where(source < 0, own, source) - bounds[:-1, None]
    counts = Counter(map(tuple, source.tolist()))
    chances = law(n, p)
    assert set(counts) <= set(chances)
    statistic = sum((counts[each] - strata * chance) ** 2 / (strata * chance) for each, chance in chances.items())
    degrees = len(chances) - 1
    # The 0.999 quantile by Wilson and Hilferty, within 1%.
    assert statistic < 1.01 * degrees * (1 - 2 / (9 * degrees) + 3.0902 * (2 / (9 * degrees)) ** 0.5) ** 3
    assert len(chances) == factorial(n)  # every permutation can come about


def small_file(records: int = 40) -> Microdata:
    rng = np.random.default_rng(5)
    columns = {"id": np.arange(records), "Sex": rng.integers(0, 3, records), "Job": rng.integers(0, 7, records)}
    kinds = {"id": "identifier"}
    schema = Schema(name="s", attributes=tuple(Attribute(name=n, kind=kinds.get(n, "nominal")) for n in columns))
    return Microdata(pa.table(columns), schema)


def masked(data: Microdata | None = None, **stated: Any) -> Any:
    spec = {"method": "swap_permutation", "swap": ["Job"], "fixed": ["Sex"], "probability": 0.8, **stated}
    return ss.mask(data or small_file(), spec, key=KEY)


def test_values_stay_in_their_stratum_and_undo_takes_the_inverse() -> None:
    done = masked()
    before, after = (data.table.to_pylist() for data in (done.original, done.data))
    assert Counter((row["Sex"], row["Job"]) for row in before) == Counter((row["Sex"], row["Job"]) for row in after)
    (exchange,) = done.audit.exchanges
    assert exchange.directed
    assert not np.array_equal(exchange.permutation(40)[exchange.permutation(40)], np.arange(40))
    assert done.undo().table.equals(done.original.table)
    assert undo(done.data, load_audit(*dump_audit(done.audit))).table.equals(done.original.table)


def test_an_exchange_taken_for_pairs_or_backwards_is_found_out() -> None:
    done = masked()
    (exchange,) = done.audit.exchanges
    for wrong in (
        Exchange(attributes=("Job",), pairs=exchange.pairs),
        exchange.inverse,
        Exchange(attributes=("Job",), pairs=exchange.pairs[1:], directed=True),
        Exchange(attributes=("Job",), pairs=np.vstack([exchange.pairs, exchange.pairs[:1]]), directed=True),
    ):
        audit = Audit(records=40, exchanges=(wrong,))
        promises = registry.method("swap_permutation").invariants(done.original, done.spec)
        findings = verify(promises, before=done.original, after=done.data, audit=audit)
        assert not all(finding.ok for finding in findings)
    right = Audit(records=40, exchanges=done.audit.exchanges)
    assert ReplaysFromAudit().check(done.original, done.data, right).ok


def test_a_pipeline_of_two_permutations_is_undone_and_its_steps_are_accounted_for() -> None:
    steps = [{"method": "swap_permutation", "swap": ["Job"], "probability": p} for p in (0.7, 0.9)]
    done = ss.mask(small_file(), ss.Pipeline(steps), key=KEY)
    assert done.undo().table.equals(done.original.table)
    assert all(finding.ok for finding in done.account.findings)


def test_the_plan_tells_epsilon_what_it_is_given_and_what_voids_it() -> None:
    plan = ss.plan(small_file(), {"method": "swap_permutation", "swap": ["Job"], "fixed": ["Sex"], "probability": 0.8})
    largest = max(Counter(small_file().table["Sex"].to_pylist()).values())
    assert plan.details["largest_stratum"] == largest
    assert plan.details["epsilon"] == pytest.approx(epsilon_of(0.8, largest))
    for told in ("per changed record", "2ε", "given", "chosen by its score", "targeted", "exact number"):
        assert told in plan.sentence
    nothing = ss.plan(small_file(), {"method": "swap_permutation", "swap": ["Job"], "probability": 1.0})
    assert "no finite ε" in nothing.sentence


def test_the_public_report_states_the_probability(tmp_path: Path) -> None:
    published = ss.release(masked(), tmp_path / "public", audit=tmp_path / "audit", key=KEY)
    assert "probability p = 0.8" in (published.public / "report.html").read_text("utf-8")


def test_strata_of_one_never_move_and_all_others_do_at_probability_one() -> None:
    data = Microdata(
        pa.table({"g": [1, 2, 2, 3, 3, 3], "v": list("abcdef")}),
        Schema(attributes=(Attribute(name="g"), Attribute(name="v"))),
    )
    done = masked(data, swap=["v"], fixed=["g"], probability=1.0)
    after = done.data.table["v"].to_pylist()
    assert after[:3] == ["a", "c", "b"]
    assert all(a != b for a, b in zip(after[3:], "def", strict=True))


@pytest.mark.parametrize(
    "stated",
    [
        {"probability": 0.5, "epsilon": 2.0},
        {},
        {"probability": 1.5},
        {"probability": 0.5, "fixed": ["Job"]},
        {"epsilon": 0.0},
        {"probability": 0.5, "swap": []},
    ],
)
def test_a_bad_request_is_refused(stated: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        SwapPermutationSpec(**{"swap": ["Job"], **stated})


def test_the_identifier_has_no_role() -> None:
    with pytest.raises(SpecError) as refused:
        masked(swap=["id"])
    assert refused.value.code == "identifier-role"
