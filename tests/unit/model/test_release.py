import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hand_made import survey

from safeswap.errors import SpecError, UnsafeRelease
from safeswap.model.columns import aligned_columns, flag_changes
from safeswap.model.key import Key
from safeswap.model.keyed_order import keyed_order, names_of
from safeswap.model.microdata import Microdata
from safeswap.model.release import PublicFacts, prepare_release, released_names
from safeswap.model.schema import Attribute, Kind, Schema

KEY = Key(bytes(range(32)))


def prepare(data: Microdata, **options):
    facts = PublicFacts(method="swapping", records=len(data))
    return prepare_release(data, **{"key": KEY, "facts": facts, **options})


def permuted(data: Microdata, seed: int = 3) -> Microdata:
    order = np.random.default_rng(seed).permutation(len(data))
    return Microdata(data.table.take(pa.array(order)), data.schema)


def toy(columns: dict, **kinds: Kind) -> Microdata:
    attributes = tuple(Attribute(name=n, kind=kinds.get(n, Kind.NOMINAL)) for n in columns)
    return Microdata(pa.table(columns), Schema(attributes=attributes))


def test_every_record_leaves_once_with_its_values():
    data = survey()
    release, rows = prepare(data)
    assert sorted(rows.tolist()) == list(range(len(data)))
    for name in ("Race", "Sex", "Age", "Town", "Income"):
        taken = data.table.column(name).take(pa.array(rows))
        assert not flag_changes(*aligned_columns(taken, release.table.column(name))).any()


def test_identifiers_are_new_and_say_nothing():
    data = survey()
    release, rows = prepare(data)
    assert release.table["id"].to_pylist() == list(range(1, len(data) + 1))
    old = np.asarray(data.table["id"])[rows]
    assert abs(np.corrcoef(old, np.asarray(release.table["id"]))[0, 1]) < 0.2
    assert "id" not in prepare(data, identifiers="none")[0].table.column_names


def test_the_order_does_not_depend_on_the_order_of_the_input():
    data = survey()
    one, other = prepare(data)[0], prepare(permuted(data))[0]
    assert one.table.drop_columns("Income").equals(other.table.drop_columns("Income"))
    assert not flag_changes(*aligned_columns(one.table["Income"], other.table["Income"])).any()


def test_the_order_depends_on_every_bit_of_the_key_and_on_the_context():
    data = survey()
    flipped = Key(bytes([1, *range(1, 32)]))
    orders = [
        prepare(data)[1],
        prepare(data, key=flipped)[1],
        prepare(data, context=("swap", 1))[1],
        prepare(data, context=("swap", 2))[1],
    ]
    agreements = [np.count_nonzero(a == b) for i, a in enumerate(orders) for b in orders[:i]]
    assert max(agreements) < 12  # one on average in two random orders


def test_rows_do_not_stay_near_where_they_were():
    order = keyed_order(np.arange(20_000), bytes(32))
    assert abs(np.corrcoef(order, np.arange(20_000))[0, 1]) < 0.05
    assert np.mean(np.abs(order - np.arange(20_000))) == pytest.approx(20_000 / 3, rel=0.05)


def test_households_stay_together_under_new_numbers():
    data = survey()
    release, rows = prepare(data)
    old = np.array(data.table["household"].to_pylist())[rows]
    new = np.asarray(release.table["household"])
    pairs = set(zip(old.tolist(), new.tolist(), strict=True))
    assert len(pairs) == len(set(old)) == len(set(new))
    assert sorted(set(new)) == list(range(1, len(set(old)) + 1))
    by_name = [number for _, number in sorted(pairs)]
    assert abs(np.corrcoef(by_name, np.arange(len(by_name)))[0, 1]) < 0.3


def test_a_missing_household_stays_missing():
    data = toy({"h": pa.array(["a", None, "a", "b"]), "x": [1, 2, 3, 4]}, h=Kind.HOUSEHOLD)
    release, rows = prepare(data)
    assert release.table["h"].to_pylist()[rows.tolist().index(1)] is None
    assert release.table["h"].null_count == 1


def test_only_categories_that_occur_are_released_in_an_order_that_tells_nothing():
    codes = pa.array([3, 1, None, 3], pa.int8())
    column = pa.DictionaryArray.from_arrays(codes, ["never", "b", "nobody", "a"])
    release, _ = prepare(toy({"x": column}))
    assert release.table["x"].chunk(0).dictionary.to_pylist() == ["a", "b"]
    assert release.schema["x"].levels == ("a", "b")
    assert sorted(release.table["x"].to_pylist(), key=str) == [None, "a", "a", "b"]


def test_ordinal_levels_keep_their_order():
    schema = Schema(attributes=(Attribute(name="x", kind=Kind.ORDINAL, levels=("low", "never", "mid", "high")),))
    release, _ = prepare(Microdata(pa.table({"x": ["high", "low", "odd", "mid"]}), schema))
    assert release.schema["x"].levels == ("low", "mid", "high", "odd")
    assert release.table["x"].chunk(0).dictionary.to_pylist() == ["low", "mid", "high", "odd"]


def test_the_description_is_cut_down_to_what_occurs():
    attribute = Attribute(
        name="x",
        labels={"1": "one", "2": "two", "9": "secret"},
        missing=("1", "8"),
        hierarchy=({"1": "odd", "2": "even", "9": "hidden"}, {"odd": "all", "even": "all", "hidden": "vault"}),
        label="a label",
        inferred=True,
    )
    release, _ = prepare(Microdata(pa.table({"x": [2, 1, 2]}), Schema(name="inside", attributes=(attribute,))))
    found = release.schema["x"]
    assert found.labels == {"1": "one", "2": "two"}
    assert found.missing == ("1",)
    assert found.hierarchy == ({"1": "odd", "2": "even"}, {"odd": "all", "even": "all"})
    assert (found.label, found.levels, found.inferred) == ("a label", ("1", "2"), False)
    assert release.schema.name == ""


def test_metadata_of_files_and_fields_stay_behind():
    field = pa.field("x", pa.int64(), metadata={"note": "secret"})
    table = pa.table([pa.array([1, 2])], schema=pa.schema([field], metadata={"pandas": "secret"}))
    release, _ = prepare(Microdata(table, Schema(attributes=(Attribute(name="x"),))))
    assert not release.table.schema.metadata
    assert not release.table.schema.field("x").metadata


def test_index_columns_are_left_out():
    data = toy({"__index_level_0__": [7, 8], "Unnamed: 0": [0, 1], "x": ["a", "b"]})
    assert prepare(data)[0].table.column_names == ["x"]


def test_floats_leave_bit_by_bit():
    bits = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000, 0], dtype=np.uint64)
    release, rows = prepare(toy({"x": bits.view(np.float64)}, x=Kind.NUMERIC))
    assert (np.asarray(release.table["x"]).view(np.uint64) == bits[rows]).all()


def test_dropped_columns_do_not_leave():
    data = survey()
    assert "Town" not in prepare(data, drop=("Town",))[0].table.column_names
    with pytest.raises(SpecError) as caught:
        prepare(data, drop=("Nowhere",))
    assert caught.value.code == "unknown-attribute"
    with pytest.raises(SpecError) as caught:
        released_names(data.schema, drop=[n for n in data.attributes if n != "id"])
    assert caught.value.code == "nothing-left"


def test_an_insecure_seed_releases_nothing():
    with pytest.raises(UnsafeRelease) as caught:
        prepare(survey(), key=Key.insecure(seed=1))
    assert caught.value.code == "not-for-release"


def test_lists_cannot_leave():
    with pytest.raises(UnsafeRelease) as caught:
        prepare(toy({"x": [[1], [2]], "y": [1, 2]}))
    assert caught.value.code == "nested-column"


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=50), st.binary(min_size=32, max_size=32))
def test_text_and_numbers_are_ordered_alike(numbers, key):
    as_numbers = pa.chunked_array([pa.array(numbers, pa.int64())])
    order = keyed_order(names_of(as_numbers, key), key)
    assert sorted(order.tolist()) == list(range(len(numbers)))
    for column in (as_numbers.cast(pa.string()), as_numbers.cast(pa.string()).dictionary_encode()):
        assert keyed_order(names_of(column, key), key).tolist() == order.tolist()


def test_equal_shortened_draws_are_put_in_order_by_the_whole_ones(monkeypatch):
    """With so few bits of the draw left that nearly all are equal, the order must still not depend on the input's."""
    from safeswap.model import keyed_order as module

    packed = module._pack

    def coarse(names, key, bits):
        return packed(names, key, bits) & ~np.uint64(((1 << 62) - 1) ^ ((1 << bits) - 1))

    monkeypatch.setattr(module, "_pack", coarse)
    monkeypatch.setattr(module, "_CHUNK", 7)
    names = np.arange(1000)
    shuffled = np.random.default_rng(1).permutation(1000)
    assert (shuffled[keyed_order(shuffled, bytes(32))] == names[keyed_order(names, bytes(32))]).all()


@pytest.mark.parametrize("coded", [False, True])
def test_very_many_texts_leave_as_they_are_whether_coded_or_not(coded: bool):
    texts = pa.array([None if n % 7 == 0 else f"note {n % 13_000}" for n in range(20_000)])
    few = pa.array([f"level {n % 3}" for n in range(20_000)])
    data = toy({"note": texts.dictionary_encode() if coded else texts, "few": few})
    (with_codes, rows), (without, same_rows) = prepare(data), prepare(data, as_codes=False)
    assert rows.tolist() == same_rows.tolist()
    assert without.table.to_pydict() == with_codes.table.to_pydict() == data.table.take(pa.array(rows)).to_pydict()
    assert without.schema == with_codes.schema
    assert [pa.types.is_dictionary(kind) for kind in without.table.schema.types] == [False, True]


def test_codes_are_shared_by_files_with_the_same_columns():
    one, other = (toy({"a": ["x", "y", None], "b": ["u", "u", "v"]}) for _ in range(2))
    one.coded("a")
    other.share_codes(one, ["a", "b"])
    assert other.coded("a") is one.coded("a")
    assert other.coded("b") is not one.coded("b")
    assert [one.count_distinct(name) for name in "ab"] == [2, 2]
