"""Thinning brings the bias under its bound, and predictions stand beside what came of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.dwellings import KEY, KEYS, dwellings, edit

from safeswap.errors import InfeasibleError, SpecError
from safeswap.measures.utility.bias import percentage_bias
from safeswap.methods.edit_targeted.method import EditTargetedSpec
from safeswap.workflow.thresholds import Thinning, thin_to

DATA = dwellings(8000)


def thinned(bound: Any = None, *, thin: dict[str, Any] | None = None, **parameters: Any) -> Thinning:
    spec = EditTargetedSpec(**{"keys": KEYS, **parameters})
    return thin_to(DATA, spec, bound, key=KEY, **(thin or {}))


def observed(spec: EditTargetedSpec, variable: str = "INCOME") -> float:
    values = spec.model_dump(exclude_defaults=True)
    return percentage_bias(edit(DATA, **values), variables=[variable]).pointwise(variable)


@pytest.mark.parametrize("variant", ["letter", "keyed"])
@pytest.mark.parametrize("share", [0.8, 0.5, 0.2])
def test_a_fraction_brings_the_bias_under_its_bound(variant: str, share: float) -> None:
    bound = share * observed(EditTargetedSpec(keys=KEYS, variant=variant))
    found = thinned({"INCOME": bound}, variant=variant)
    assert 0 < found.spec.keep_fraction < 1
    assert observed(found.spec) <= bound
    assert found.chosen.observed["INCOME"] == pytest.approx(observed(found.spec))
    assert [trial.name for trial in found][:3] == ["as asked", "A.2", "A.3"]


def test_theorem_a3_predicts_how_many_records_take_part_better_than_a2() -> None:
    spec = EditTargetedSpec(keys=("REGION", *KEYS), variant="letter", tolerance=2)
    bound = 2 / 3 * observed(spec)
    trials = {t.name: t for t in thin_to(DATA, spec, {"INCOME": bound}, key=KEY)}
    first, corrected = trials["A.2"], trials["A.3"]
    assert first.expected_records == corrected.expected_records == pytest.approx(4 / 9 * trials["as asked"].records)
    assert corrected.records == pytest.approx(corrected.expected_records, rel=0.1)
    assert first.records > 1.15 * first.expected_records


def test_within_the_bound_nothing_is_thinned() -> None:
    found = thinned(1e9)
    assert found.spec.keep_fraction == 1
    assert [trial.name for trial in found] == ["as asked"]


def test_the_default_bound_is_that_of_theorem_a1() -> None:
    report = percentage_bias(edit(DATA))
    found = thinned(thin={"f": 1e-3})
    assert found.bounds == {v.variable: v.bounds.upper for v in report.verdicts(f=1e-3)}
    assert all(found.chosen.observed[name] <= bound for name, bound in found.bounds.items())


def test_a_lower_tolerance_brings_it_under_the_bound_too() -> None:
    spec = EditTargetedSpec(keys=KEYS, tolerance=8)
    bound = 0.7 * observed(spec)
    found = thinned({"INCOME": bound}, tolerance=8, thin={"how": "tolerance"})
    assert 2 <= found.spec.tolerance < 8
    assert found.spec.keep_fraction == 1
    assert observed(found.spec) <= bound
    assert found.trials[-1].name == f"Q = {found.spec.tolerance}"


def test_a_tolerance_of_two_cannot_be_lowered() -> None:
    with pytest.raises(InfeasibleError) as caught:
        thinned(1e-6, tolerance=2, thin={"how": "tolerance"})
    assert caught.value.code == "bound-too-low"
    assert "fraction" in caught.value.hint


def test_a_bound_that_no_exchange_keeps_is_said_to_be_too_low() -> None:
    with pytest.raises(InfeasibleError) as caught:
        thinned(1e-9)
    assert caught.value.code == "bound-too-low"
    assert set(caught.value.fields["least"]) == {"INCOME", "TAXES"}


def test_class_means_can_be_bounded_instead() -> None:
    free = thinned(1e9, thin={"reading": "class", "variables": ("INCOME",)})
    bound = free.trials[0].observed["INCOME"] / 2
    found = thinned(bound, thin={"reading": "class", "variables": ("INCOME",)})
    assert found.chosen.observed["INCOME"] <= bound


def test_the_table_has_the_form_of_table_8() -> None:
    bound = 0.5 * observed(EditTargetedSpec(keys=KEYS))
    table = thinned({"INCOME": bound}).table()
    assert table["figure"].to_pylist() == ["records", "INCOME"]
    assert table.column_names[:6] == [
        "figure",
        "bound",
        "observed, as asked",
        "expected, A.2",
        "observed, A.2",
        "expected, A.3",
    ]


@pytest.mark.parametrize("bound", [0, -1, {}, {"PRICE": 3}])
def test_a_bound_that_makes_no_sense_is_refused(bound: Any) -> None:
    with pytest.raises(SpecError):
        thinned(bound)


def test_a_file_without_rare_combinations_needs_no_thinning() -> None:
    data = dwellings(100)
    spec = EditTargetedSpec(keys=("REGION",), geography=("PLACE",))
    found = thin_to(data, spec, key=KEY)
    assert found.spec == spec
    assert found.chosen.records == 0
