"""The targeted edit on files small enough to follow by hand, and against the walk told record by record."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dwellings import KEY, KEYS, column, dwellings, edit, microdata

from safeswap import registry
from safeswap.errors import InputError, SafeswapError, SpecError
from safeswap.methods.edit_targeted.method import EditTargeted, EditTargetedSpec
from safeswap.model.invariant import verify
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.study import StudySpec
from safeswap.studies.run import run_study


def as_printed(keys: list[Any], values: list[Any], tolerance: int) -> list[Any]:
    """Moore's walk, record by record: the file comes sorted, values move between neighbours."""
    values = list(values)
    counter = 0
    for i in range(len(keys)):
        if i == 0 or keys[i] == keys[i - 1]:
            counter += 1
        elif counter >= tolerance:
            counter = 1
        else:
            values[i - 1], values[i] = values[i], values[i - 1]
            counter = tolerance
    if 0 < counter < tolerance and len(set(keys)) > 1:
        first = next(i for i in range(len(keys)) if keys[i] == keys[-1])
        values[first - 1], values[first] = values[first], values[first - 1]
    return values


@given(
    keys=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=60),
    tolerance=st.integers(2, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_by_the_letter_is_the_printed_walk(keys: list[tuple[int, int]], tolerance: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = sorted(keys)
    places = rng.integers(0, 5, len(keys)).tolist()
    expected = as_printed(keys, places, tolerance)
    rows = rng.permutation(len(keys))
    data = microdata(
        {
            "id": pa.array(rows, pa.int64()),
            "BEDS": pa.array([keys[i][0] for i in rows], pa.int64()),
            "BATHS": pa.array([keys[i][1] for i in rows], pa.int64()),
            "PLACE": pa.array([places[i] for i in rows], pa.int64()),
        }
    )
    masked = edit(data, keys=("BEDS", "BATHS"), geography=("PLACE",), tolerance=tolerance, variant="letter")
    assert column(masked.data, "PLACE") == [expected[i] for i in rows]


def small(places: str, beds: list[int], **more: Any) -> Microdata:
    return microdata({"id": list(range(len(beds))), "BEDS": beds, "PLACE": list(places), **more})


def letter(data: Microdata, **parameters: Any) -> Masked:
    return edit(data, **{"keys": ("BEDS",), "geography": ("PLACE",), "variant": "letter", **parameters})


def test_a_class_below_tolerance_exchanges_its_last_record_with_the_first_of_the_next() -> None:
    masked = letter(small("abcdef", [1, 1, 2, 2, 2, 2]))
    assert "".join(column(masked.data, "PLACE")) == "acbdef"


def test_the_class_that_was_exchanged_with_counts_as_treated() -> None:
    masked = letter(small("abcdef", [1, 2, 3, 3, 3, 3]))
    assert "".join(column(masked.data, "PLACE")) == "bacdef"


def test_the_last_class_exchanges_with_the_record_before_it() -> None:
    masked = letter(small("abcdef", [1, 1, 1, 1, 2, 2]))
    assert "".join(column(masked.data, "PLACE")) == "abcedf"


def test_three_unique_records_make_a_ring() -> None:
    masked = letter(small("abc", [1, 2, 3]), tolerance=2)
    assert "".join(column(masked.data, "PLACE")) == "bca"
    assert len(masked.audit.exchanges) == 2
    assert masked.audit.facts["took_part"] == 3


def test_within_walks_each_part_as_a_file_of_its_own() -> None:
    data = small("abcdef", [1, 2, 2, 1, 1, 2], State=["n", "n", "n", "p", "p", "p"])
    masked = letter(data, within=("State",), tolerance=2)
    assert "".join(column(masked.data, "PLACE")) == "bacdfe"


@pytest.mark.parametrize("variant", ["letter", "keyed"])
@pytest.mark.parametrize("exchange", [1, 2, 3])
@pytest.mark.parametrize("records", [0, 1, 2, 3, 7])
def test_tiny_files_work(records: int, exchange: int, variant: str) -> None:
    data = dwellings(records)
    masked = edit(data, exchange=exchange, variant=variant)
    checked = verify(EditTargeted().invariants(data, masked.spec), before=data, after=masked.data, audit=masked.audit)
    assert all(finding.ok for finding in checked)
    assert masked.audit.facts["left"] == (1 if records == 1 else 0)


def test_one_class_only_has_nobody_to_exchange_with_and_says_so() -> None:
    for variant in ("letter", "keyed"):
        masked = edit(small("ab", [1, 1]), keys=("BEDS",), geography=("PLACE",), variant=variant)
        assert masked.audit.made == 0
        assert masked.audit.facts["left"] == masked.audit.facts["left_though_kept"] == 1
        assert not masked.plan.is_feasible
        assert "at most 0 can be" in masked.plan.sentence


def test_a_file_without_rare_combinations_is_left_alone() -> None:
    data = small("abcdef", [1, 1, 1, 2, 2, 2])
    for variant in ("letter", "keyed"):
        masked = edit(data, keys=("BEDS",), geography=("PLACE",), variant=variant)
        assert masked.data.table.equals(data.table)
        assert masked.plan.sentence == "0 of 2 combinations of the keys have fewer than 3 records"


def test_all_classes_below_tolerance_are_treated() -> None:
    data = small("abcdefghijklmnopqrstuvwxyz", list(range(26)))
    for variant in ("letter", "keyed"):
        masked = edit(data, keys=("BEDS",), geography=("PLACE",), variant=variant)
        assert masked.audit.facts["left"] == 0
        assert all(a != b for a, b in zip(column(data, "PLACE"), column(masked.data, "PLACE"), strict=True))


def test_the_letter_leaves_what_its_neighbour_has_too_and_counts_it() -> None:
    """Sorted by region first, neighbours have the same region: exchanging it changes next to nothing."""
    data = dwellings(4000)
    keys = ("REGION", *KEYS)
    printed = edit(data, keys=keys, geography=("REGION",), variant="letter")
    drawn = edit(data, keys=keys, geography=("REGION",))
    assert printed.audit.facts["left"] > 0.9 * printed.audit.facts["below_tolerance"]
    assert drawn.audit.facts["left"] == 0


@pytest.mark.parametrize("exchange", ["geography", "continuous", "categorical"])
def test_every_rare_combination_is_treated_by_the_key(exchange: str) -> None:
    data = dwellings(6000)
    masked = edit(data, exchange=exchange)
    facts = masked.audit.facts
    assert facts["below_tolerance"] > 50
    assert facts["left"] == 0
    assert facts["changed"] == facts["took_part"] == 2 * masked.audit.made
    assert masked.audit.made <= masked.audit.asked == masked.audit.feasible == facts["below_tolerance"]


def test_a_value_that_nearly_all_records_have_leaves_classes_and_counts_them() -> None:
    places = ["a"] * 95 + ["b"] * 5
    data = microdata({"id": list(range(100)), "BEDS": list(range(100)), "PLACE": places})
    masked = edit(data, keys=("BEDS",), geography=("PLACE",))
    # Each of the five other values can serve one class besides its own.
    assert masked.audit.facts["left"] == 90
    assert masked.audit.made == 5
    checked = verify(EditTargeted().invariants(data, masked.spec), before=data, after=masked.data, audit=masked.audit)
    assert all(finding.ok for finding in checked)


def test_partners_are_drawn_among_at_least_ten() -> None:
    data = dwellings(3000, seed=5)
    combinations = list(zip(*(column(data, name) for name in KEYS), strict=True))
    counts = Counter(combinations)
    row = next(i for i, combination in enumerate(combinations) if counts[combination] == 1)
    partners: Counter[int] = Counter()
    for replicate in range(300):
        masked = edit(data, replicate=replicate, tolerance=2)
        pairs = np.concatenate([exchange.pairs for exchange in masked.audit.exchanges])
        mine = pairs[(pairs == row).any(axis=1)][0]
        partners[int(mine[mine != row][0])] += 1
    assert len(partners) >= 10
    assert max(partners.values()) < 300 / 4


def test_the_record_of_a_class_is_drawn_too() -> None:
    data = small("abcdefghijklmnopqrstuvwx", [1, 1, *([2] * 11), *([3] * 11)])
    chosen = {
        int(edit(data, keys=("BEDS",), geography=("PLACE",), replicate=r).audit.exchanges[0].pairs[0, 0])
        for r in range(30)
    }
    assert chosen == {0, 1}


def test_a_fraction_of_the_failing_classes_is_kept_and_the_rest_counted() -> None:
    data = dwellings(6000)
    whole, half, less = (edit(data, keep_fraction=q).audit.facts for q in (1.0, 0.5, 0.25))
    assert half["kept"] == int(whole["below_tolerance"] / 2 + 0.5)
    assert less["kept"] == int(whole["below_tolerance"] / 4 + 0.5)
    assert whole["left"] == 0 < half["left"] < less["left"]
    assert half["left_though_kept"] == less["left_though_kept"] == 0
    assert edit(data, keep_fraction=0.5, variant="letter").audit.facts["kept"] == half["kept"]


def test_the_near_optimal_order_is_used_and_told() -> None:
    data = dwellings(3000)
    masked = edit(data, order="near_optimal", order_by=["INCOME"])
    assert sorted(masked.audit.facts["order"]) == sorted(KEYS)
    same = edit(data, keys=tuple(masked.audit.facts["order"]))
    assert same.data.table.equals(masked.data.table)


def test_how_far_records_moved_is_counted_by_level() -> None:
    masked = edit(dwellings(6000, places=3), geography=("REGION", "PLACE"))
    within = masked.audit.facts["pairs_within"]
    assert set(within) == {"REGION", "PLACE"}
    assert 0 == within["PLACE"] < within["REGION"] < masked.audit.made


def test_by_the_letter_is_never_for_release() -> None:
    data = dwellings(500)
    assert edit(data).audit.releasable
    assert not edit(data, variant="letter").audit.releasable
    assert not edit(data, key=Key.insecure(seed=1)).audit.releasable


def test_methods_may_be_given_by_number_or_name() -> None:
    for number, name in ((1, "geography"), (2, "continuous"), (3, "categorical")):
        for written in (number, str(number), name):
            assert EditTargetedSpec(keys=["a"], exchange=written).exchange == name
    spec = EditTargetedSpec(keys=["a", "b"], exchange=2, tolerance=4, within=["b"])
    assert registry.make_spec(spec.as_dict()) == spec


@pytest.mark.parametrize(
    "parameters",
    [
        {"tolerance": 1},
        {"tolerance": 0},
        {"keys": ()},
        {"keys": ("BEDS", "BEDS")},
        {"exchange": 4},
        {"exchange": "income"},
        {"candidates": 9},
        {"keep_fraction": 0},
        {"keep_fraction": 1.5},
        {"within": ("REGION",), "geography": ("REGION",)},
        {"keys": ("BEDS",), "within": ("BEDS",)},
        {"continuous": ("BEDS",)},
        {"order": "near_optimal"},
        {"variant": "by heart"},
        {"unknown": 1},
    ],
)
def test_a_specification_that_makes_no_sense_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        EditTargetedSpec(**{"keys": KEYS, **parameters})
    assert caught.value.code == "bad-spec"


def refusal(data: Microdata, **parameters: Any) -> SafeswapError:
    with pytest.raises(SafeswapError) as caught:
        edit(data, **parameters)
    return caught.value


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"keys": ("INCOME",)}, "key-not-categorical"),
        ({"keys": ("id",)}, "key-not-categorical"),
        ({"keys": ("BEDROOMS",)}, "unknown-attribute"),
        ({"geography": ("COUNTY",)}, "unknown-attribute"),
        ({"geography": ("INCOME",)}, "not-geography"),
        ({"geography": ("PLACE", "REGION")}, "geography-not-nested"),
        ({"exchange": 2, "continuous": ("REGION",)}, "not-numeric"),
        ({"within": ("INCOME",)}, "key-not-categorical"),
        ({"order": "near_optimal", "order_by": ("PRICE",)}, "unknown-attribute"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(parameters: dict[str, Any], code: str) -> None:
    error = refusal(dwellings(50), **parameters)
    assert isinstance(error, SpecError)
    assert error.code == code
    assert error.hint


def test_without_geography_or_amounts_there_is_nothing_to_exchange() -> None:
    data = microdata({"BEDS": [1, 2, 3]})
    assert refusal(data, keys=("BEDS",)).code == "no-geography"
    assert refusal(data, keys=("BEDS",), exchange=2).code == "no-continuous-item"


def test_missing_keys_are_refused_unless_taken_as_a_value() -> None:
    data = microdata({"BEDS": [1, 1, None, 2, 2, 2], "PLACE": list("abcdef")})
    error = refusal(data, keys=("BEDS",))
    assert isinstance(error, InputError)
    assert (error.code, dict(error.fields["records"])) == ("missing-keys", {"BEDS": 1})
    masked = edit(data, keys=("BEDS",), missing_keys="level", tolerance=2)
    assert masked.audit.facts["below_tolerance"] == 1
    assert column(masked.data, "PLACE")[2] != "c"


def test_a_code_for_missing_is_missing() -> None:
    table = pa.table({"BEDS": ["1", "no answer"], "PLACE": ["a", "b"]})
    beds = Attribute(name="BEDS", kind=Kind.ORDINAL, missing=("no answer",))
    data = Microdata(table, Schema(attributes=(beds, Attribute(name="PLACE", kind=Kind.GEOGRAPHY))))
    assert refusal(data, keys=("BEDS",)).code == "missing-keys"


def test_local_codes_need_not_nest() -> None:
    data = microdata({"BEDS": [1, 2], "REGION": ["n", "s"], "PLACE": ["001", "001"]})
    assert refusal(data, keys=("BEDS",)).code == "geography-not-nested"
    masked = edit(data, keys=("BEDS",), geography_codes="local")
    assert column(masked.data, "REGION") == ["s", "n"]


def test_errors_never_hold_a_value() -> None:
    data = microdata({"BEDS": [1, 2], "REGION": ["Atlantis", "Eldorado"], "PLACE": ["Xanadu", "Xanadu"]})
    error = refusal(data, keys=("BEDS",))
    spoken = str(error.as_dict())
    assert not any(word in spoken for word in ("Atlantis", "Eldorado", "Xanadu"))


def test_the_plan_says_what_is_below_tolerance_before_anything_is_touched() -> None:
    data = dwellings(3000)
    plan = EditTargeted().plan(data, EditTargetedSpec(keys=KEYS, keep_fraction=0.5))
    counts = Counter(zip(*(column(data, name) for name in KEYS), strict=True))
    assert plan.below == sum(n < 3 for n in counts.values())
    assert plan.classes == len(counts)
    assert plan.asked == int(plan.below / 2 + 0.5)
    assert f"{plan.asked:,} of them are to be treated" in plan.sentence


def test_another_key_another_edit_and_the_same_key_the_same() -> None:
    data = dwellings(2000)
    one, same, other = edit(data), edit(data), edit(data, key=Key(bytes(32)))
    assert one.data.table.equals(same.data.table)
    assert not one.data.table.equals(other.data.table)
    assert one.audit.key_id == KEY.id


def test_it_stands_on_the_risk_utility_map_beside_swaps() -> None:
    replay, bias = "replay:keys=BATHS+BEDS+YR_BLT", "percentage_bias:variables=INCOME"
    edits = ({"method": "edit_targeted", "keys": KEYS}, {"method": "edit_targeted", "keys": KEYS, "variant": "letter"})
    question = StudySpec(
        attributes=("BEDS",), up_to=1, rates=(0.05,), others=edits, risk=(replay, "n_rule"), distortion=(bias,)
    )
    study = run_study(dwellings(1500), question, key=KEY)
    assert set(study.table["outcome"].to_pylist()) == {"made"}
    drawn, printed = (row for row in study.table.to_pylist() if "edit_targeted" in row["spec"])
    assert printed[replay] > 0.99
    assert drawn[replay] < 0.3
    assert drawn[bias] > 0
