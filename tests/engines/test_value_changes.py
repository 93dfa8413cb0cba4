"""Methods that change values record by record mask a file on disk as they mask it in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engines.specs import KEY, write_parts

from safeswap import registry, workflow
from safeswap.errors import EngineError, InfeasibleError, InputError, SpecError, UnsafeRelease
from safeswap.files.parquet import open_parquet
from safeswap.methods.value_change import Draws, ValueChangingMethod
from safeswap.model.masked import Masked, MaskedFile
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.on_disk import value_changes
from safeswap.on_disk.audit_record import read_audit
from safeswap.on_disk.job import list_abilities
from safeswap.workflow.masking import recall

ENGINES = ("memory", "duckdb")
RECORDS = 1_000

SPECS: dict[str, dict[str, Any]] = {
    "pram": {"method": "pram", "attributes": ["Job", "Rooms"], "keep": 0.4},
    "pram within": {"method": "pram", "attributes": ["Job"], "keep": 0.2, "within": ["Town", "Rooms"]},
    "pram, nothing redrawn": {"method": "pram", "attributes": ["Job"], "keep": 1.0},
    "noise": {"method": "noise", "attributes": ["Income", "Wealth"], "size": 0.3},
    "correlated noise": {
        "method": "noise",
        "attributes": ["Wealth", "Income", "Rate"],
        "size": 0.3,
        "kind": "correlated",
    },
    "noise that needs a wider integer": {"method": "noise", "attributes": ["Age"], "size": 3.0},
    "noise that needs a float": {"method": "noise", "attributes": ["Age"], "size": 0.5, "decimals": 1},
    "noise in text": {"method": "noise", "attributes": ["Price"], "size": 0.2},
    "top": {"method": "top_bottom", "attributes": ["Income", "Rate"], "top_share": 0.05},
    "top and bottom by means": {
        "method": "top_bottom",
        "attributes": ["Wealth", "Price"],
        "top_share": 0.04,
        "bottom_share": 0.06,
        "replace_by": "mean",
    },
    "a bound with decimals": {"method": "top_bottom", "attributes": ["Age"], "top": 64.5},
    "a bound nobody is beyond": {"method": "top_bottom", "attributes": ["Age"], "top": 1000.0},
    "recode": {
        "method": "recode",
        "steps": [
            {"step": "recode", "attribute": "Town", "groups": {"North": ["t0", "t1"]}, "otherwise": "keep"},
            {"step": "round", "attribute": "Wealth", "base": 100},
            {"step": "blank", "attribute": "Job", "values": ["j3"]},
        ],
    },
    "recode to another type": {
        "method": "recode",
        "steps": [
            {"step": "ranges", "attribute": "Age", "breaks": [20, 65]},
            {"step": "ranges", "attribute": "Wealth", "equal_count": 4},
            {"step": "drop", "attributes": ["Rate"]},
        ],
    },
}
SCHEMA = Schema(
    name="people",
    attributes=(
        Attribute(name="Town"),
        Attribute(name="Person", kind=Kind.IDENTIFIER),
        Attribute(name="Job", missing=("?",)),
        Attribute(name="Rooms", kind=Kind.ORDINAL),
        Attribute(name="Age", kind=Kind.NUMERIC),
        Attribute(name="Income", kind=Kind.NUMERIC),
        Attribute(name="Wealth", kind=Kind.NUMERIC),
        Attribute(name="Rate", kind=Kind.NUMERIC),
        Attribute(name="Price", kind=Kind.NUMERIC, missing=("-1",)),
    ),
)


def people() -> pa.Table:
    """Every kind of column, with missing values; the last records have values that the first have not."""
    rng = np.random.default_rng(7)
    late = np.arange(RECORDS) >= 700
    income = np.round(rng.lognormal(7, 1, RECORDS), 1)
    hole = rng.random((4, RECORDS)) < 0.05
    prices = [f"{value:.2f}" for value in rng.lognormal(2, 0.5, RECORDS)]
    return pa.table(
        {
            "Town": pa.array([f"t{n}" for n in rng.integers(0, 5 + 3 * late, RECORDS)]),
            "Person": pa.array(rng.permutation(10_000)[:RECORDS]),
            "Job": pa.array(np.where(hole[0], "?", [f"j{n}" for n in rng.integers(0, 4 + 2 * late)])).cast(pa.string()),
            "Rooms": pa.array(rng.integers(1, 9, RECORDS).astype(np.int16), mask=hole[1]),
            "Age": pa.array(np.minimum(rng.integers(0, 90, RECORDS) + 30 * late, 110).astype(np.int8)),
            "Income": pa.array(np.where(late, income + 0.25, income), mask=hole[2]),
            "Wealth": pa.array(rng.normal(0, 1_000, RECORDS)),
            "Rate": pa.array(rng.random(RECORDS).astype(np.float32)),
            "Price": pa.array(["-1" if missing else price for missing, price in zip(hole[3], prices, strict=True)]),
        }
    )


def schema(*, identified: bool) -> Schema:
    return SCHEMA if identified else SCHEMA.replace(Attribute(name="Person", kind=Kind.NUMERIC))


def in_memory(spec: Any, described: Schema) -> Masked:
    return registry.method(spec.method).apply(Microdata(people(), described), spec, key=KEY, replicate=2)


def mask(source: Path, spec: Any, engine: str, described: Schema = SCHEMA, **options: Any) -> MaskedFile:
    stated: dict[str, Any] = {"audit": source.parent / "audit", "replicate": 2, "schema": described, **options}
    return workflow.mask_file(source, source.parent / "masked", spec, key=KEY, engine=engine, name="people", **stated)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that end neither with a row group nor with a file."""
    monkeypatch.setattr(value_changes, "rows_per_batch", lambda _: 83)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("identified", [True, False], ids=["identifier", "positions"])
@pytest.mark.parametrize("name", SPECS)
def test_a_file_becomes_what_memory_makes_of_it(name: str, identified: bool, engine: str, tmp_path: Path) -> None:
    spec, described = registry.make_spec(SPECS[name]), schema(identified=identified)
    expected = in_memory(spec, described)
    result = mask(write_parts(people(), tmp_path / "people", 3), spec, engine, described)
    written = open_parquet(tmp_path / "masked")
    after = pa.concat_tables(pq.read_table(part.path) for part in written.parts)
    assert after.schema.equals(expected.data.table.schema)
    assert after.to_pydict() == expected.data.table.to_pydict()
    totals = {key: value for key, value in result.as_dict().items() if key != "engine"}
    assert totals == expected.as_dict()
    assert dict(result.facts) == dict(expected.audit.facts)
    assert all(finding.ok for finding in result.findings)

    audit = read_audit(result.audit)
    pairs = zip(by_name(audit), by_name(expected.audit), strict=True)
    for mine, theirs in pairs:
        assert mine.attribute == theirs.attribute
        assert mine.rows.tolist() == theirs.rows.tolist()
        assert mine.before.equals(theirs.before)
    before = workflow.undo(Microdata(after, expected.data.schema), audit)
    assert before.table.equals(people())


def by_name(audit: Any) -> list[Any]:
    return sorted(audit.replacements, key=lambda each: each.attribute)


@pytest.mark.parametrize("size", [1, 2, 7, 83, 999])
def test_correlated_noise_has_the_same_bits_in_every_batch(size: int) -> None:
    names = ("a", "b", "c", "d", "e")
    numbers = np.random.default_rng(5).normal(size=(RECORDS, 5)) @ np.random.default_rng(6).normal(size=(5, 5))
    table = pa.table({name: numbers[:, j] for j, name in enumerate(names)})
    described = Schema(name="people", attributes=tuple(Attribute(name=name, kind=Kind.NUMERIC) for name in names))
    data, method = Microdata(table, described), registry.method("noise")
    assert isinstance(method, ValueChangingMethod)
    spec = registry.make_spec({"method": "noise", "attributes": names, "size": 0.5, "kind": "correlated"})
    facts = method.facts(data, spec)
    parts = []
    for start in range(0, RECORDS, size):
        batch = Microdata(table.slice(start, size), described)
        draws = Draws(key=KEY, method="noise", data_name="people", records=RECORDS, replicate=0, start=start)
        changes = method.changes(batch, facts, spec, draws)
        parts.append(pa.table({name: changes[name].column for name in names}))
    assert pa.concat_tables(parts).equals(method.apply(data, spec, key=KEY).data.table)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_file_keeps_its_row_groups_and_copies_the_other_columns(engine: str, tmp_path: Path) -> None:
    pq.write_table(people(), tmp_path / "people.parquet", row_group_size=300)
    spec = registry.make_spec(SPECS["pram"])
    mask(tmp_path / "people.parquet", spec, engine)
    with pq.ParquetFile(tmp_path / "masked") as file:
        assert [file.metadata.row_group(group).num_rows for group in range(4)] == [300, 300, 300, 100]
        assert file.read().to_pydict() == in_memory(spec, SCHEMA).data.table.to_pydict()


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["pram within", "noise in text", "top and bottom by means", "recode"])
def test_dictionaries_special_numbers_and_empty_files_are_masked_alike(name: str, engine: str, tmp_path: Path) -> None:
    wealth = people()["Wealth"].to_numpy().copy()
    wealth[[3, 400, 800]] = [-0.0, 0.0, np.nan]
    awkward = people().set_column(6, "Wealth", pa.array(wealth))
    spec = registry.make_spec(SPECS[name])
    expected = registry.method(spec.method).apply(Microdata(awkward, SCHEMA), spec, key=KEY, replicate=2).data.table
    for column in ("Town", "Job", "Price"):
        place = awkward.column_names.index(column)
        awkward = awkward.set_column(place, column, awkward.column(column).dictionary_encode())
    folder = write_parts(awkward, tmp_path / "people", 3)
    pq.write_table(awkward.slice(0, 0), folder / "part-00000a.parquet")
    result = mask(folder, spec, engine)
    after = pa.concat_tables(pq.read_table(part.path) for part in open_parquet(tmp_path / "masked").parts)
    assert after.schema.equals(awkward.schema)
    assert bits(after) == bits(expected)
    assert bits(workflow.undo(Microdata(after, SCHEMA), read_audit(result.audit)).table) == bits(awkward)


def bits(table: pa.Table) -> list[list[str]]:
    """Values as text, by which −0.0 is not 0.0, and what is no number is equal to itself."""
    return [[repr(value) for value in column.to_pylist()] for column in table.columns]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_column_declared_as_never_missing_can_be_blanked(engine: str, tmp_path: Path) -> None:
    declared = pa.schema([field.with_nullable(field.name != "Job") for field in people().schema])
    spec = registry.make_spec(SPECS["recode"])
    result = mask(write_parts(people().cast(declared), tmp_path / "people", 2), spec, engine)
    after = pa.concat_tables(pq.read_table(part.path) for part in open_parquet(tmp_path / "masked").parts)
    assert after.to_pydict() == in_memory(spec, SCHEMA).data.table.to_pydict()
    assert after["Job"].null_count > 0
    assert workflow.undo(Microdata(after, SCHEMA), read_audit(result.audit)).table.equals(people())


def test_a_recode_without_steps_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    result = mask(write_parts(people(), tmp_path / "people", 2), registry.make_spec({"method": "recode"}), "memory")
    assert result.made == 0
    assert open_parquet(tmp_path / "masked").table(SCHEMA.names).to_pydict() == people().to_pydict()


def test_numbers_that_fit_their_type_in_one_batch_only_widen_it_in_all(tmp_path: Path) -> None:
    """As in memory, where all values are seen at once: negative ones beside those that no signed number holds."""
    large = 2**63 + 2**40
    for first in (5, large):
        values = pa.array([first] * 500 + list(range(500)), pa.uint64())
        data = pa.table({"n": values, "x": pa.array(range(1000))})
        described = Schema(name="people", attributes=(Attribute(name="n", kind=Kind.NUMERIC), Attribute(name="x")))
        spec = registry.make_spec({"method": "noise", "attributes": ["n"], "size": 0.01 if first > 5 else 2.0})
        expected = registry.method("noise").apply(Microdata(data, described), spec, key=KEY, replicate=2).data.table
        source = write_parts(data, tmp_path / str(first) / "people", 4)
        mask(source, spec, "memory", described)
        written = open_parquet(source.parent / "masked")
        assert written.schema.field("n").type == expected.schema.field("n").type
        assert written.table(["n"]).to_pydict() == expected.select(["n"]).to_pydict()


@pytest.mark.parametrize("engine", ENGINES)
def test_an_identified_record_becomes_the_same_wherever_it_is(engine: str, tmp_path: Path) -> None:
    order = np.random.default_rng(3).permutation(RECORDS)
    spec = registry.make_spec(SPECS["pram within"])
    mask(write_parts(people().take(pa.array(order)), tmp_path / "people", 4), spec, engine)
    written = open_parquet(tmp_path / "masked").table(SCHEMA.names)
    assert written.to_pydict() == in_memory(spec, SCHEMA).data.table.take(pa.array(order)).to_pydict()


def test_a_masking_on_disk_is_recalled_and_undone_from_its_files(tmp_path: Path) -> None:
    pq.write_table(people(), tmp_path / "people.parquet")
    spec = registry.make_spec(SPECS["recode to another type"])
    target, audit = tmp_path / "masked.parquet", tmp_path / "audit"
    result = workflow.mask_file(
        tmp_path / "people.parquet", target, spec, audit=audit, key=KEY, schema=SCHEMA, name="people"
    )
    found = recall(tmp_path / "people.parquet", target, audit=audit)
    assert found.data.schema == in_memory(spec, SCHEMA).data.schema
    assert found.data.table.to_pydict() == in_memory(spec, SCHEMA).data.table.to_pydict()
    restored = workflow.undo(target, result.audit)
    assert restored.table.to_pydict() == people().to_pydict()
    assert restored.schema == SCHEMA


@pytest.mark.parametrize("engine", ENGINES)
def test_a_result_that_breaks_a_promise_is_not_kept(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = value_changes.ChangedFile.columns

    def damage(self: Any, start: int, stop: int) -> Any:
        made = columns(self, start, stop)
        return {name: pa.chunked_array([column.combine_chunks()[::-1]]) for name, column in made.items()}

    monkeypatch.setattr(value_changes.ChangedFile, "columns", damage)
    with pytest.raises(UnsafeRelease) as caught:
        mask(write_parts(people(), tmp_path / "people", 2), registry.make_spec(SPECS["top"]), engine)
    assert caught.value.code == "promise-broken"
    assert [path.name for path in tmp_path.iterdir()] == ["people"]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_memory_refuses_is_refused_alike(engine: str, tmp_path: Path) -> None:
    source = write_parts(people(), tmp_path / "people", 2)
    spec = registry.make_spec({**SPECS["top"], "top_share": 0.001, "replace_by": "mean"})
    with pytest.raises(InfeasibleError) as expected:
        in_memory(spec, SCHEMA)
    with pytest.raises(InfeasibleError) as caught:
        mask(source, spec, engine)
    assert caught.value.as_dict() == expected.value.as_dict()
    with pytest.raises(SpecError) as unknown:
        mask(source, registry.make_spec({**SPECS["noise"], "attributes": ["Height"]}), engine)
    assert unknown.value.code == "unknown-attribute"
    assert [path.name for path in tmp_path.iterdir()] == ["people"]


@pytest.mark.parametrize("engine", ENGINES)
def test_identifiers_must_be_there_and_unique(engine: str, tmp_path: Path) -> None:
    persons = people()["Person"].to_numpy().copy()
    persons[17] = persons[900]
    twice = people().set_column(1, "Person", pa.array(persons))
    with pytest.raises(InputError) as caught:
        mask(write_parts(twice, tmp_path / "people", 2), registry.make_spec(SPECS["noise"]), engine)
    assert caught.value.code == "duplicate-identifier"


def test_duckdb_refuses_columns_beyond_its_memory_limit(tmp_path: Path) -> None:
    source, spec = write_parts(people(), tmp_path / "people", 2), registry.make_spec(SPECS["noise"])
    with pytest.raises(EngineError) as caught:
        mask(source, spec, "duckdb", memory_limit="50KB")
    assert caught.value.code == "memory-limit"
    assert [path.name for path in tmp_path.iterdir()] == ["people"]
    assert mask(source, spec, "memory", memory_limit="50KB").records == RECORDS


def test_engines_that_cannot_and_methods_of_the_whole_file_are_refused(tmp_path: Path) -> None:
    source = write_parts(people(), tmp_path / "people", 1)
    with pytest.raises(EngineError) as spark:
        mask(source, registry.make_spec(SPECS["noise"]), "spark")
    assert spark.value.fields["engines"] == ["memory", "duckdb"]
    abilities = dict(list_abilities())
    for method in ("recode", "pram", "noise", "top_bottom"):
        assert abilities[f"the method {method} on Parquet files"] == (True, True, False)
    with pytest.raises(EngineError) as whole:
        mask(source, registry.make_spec({"method": "microaggregation", "attributes": ["Income"]}), "memory")
    assert (whole.value.code, whole.value.fields["engines"]) == ("not-supported", [])


@pytest.mark.parametrize("engine", ENGINES)
def test_measures_on_disk_are_those_in_memory_or_refused(engine: str, tmp_path: Path) -> None:
    source, measures = write_parts(people(), tmp_path / "people", 2), ("hellinger", "n_rule")
    for name in ("noise", "recode", "recode to another type"):
        with pytest.raises(EngineError) as caught:
            mask(source, registry.make_spec(SPECS[name]), engine, measures=measures)
        assert caught.value.code == "not-supported"
        assert [path.name for path in tmp_path.iterdir()] == ["people"]
    spec = registry.make_spec(SPECS["pram"])
    expected = workflow.assess(in_memory(spec, SCHEMA), measures=measures)
    found = mask(source, spec, engine, measures=measures).assessment
    assert found is not None
    assert [score.value for score in found] == pytest.approx([score.value for score in expected])


def test_draws_and_results_show_neither_key_nor_values(tmp_path: Path) -> None:
    draws = Draws(key=KEY, method="noise", data_name="people", records=3, replicate=0)
    assert KEY.secret.hex() not in repr(draws)
    assert "key" not in repr(draws)
    result = mask(write_parts(people(), tmp_path / "people", 1), registry.make_spec(SPECS["top"]), "memory")
    assert repr(result) == f"<MaskedFile by top_bottom: 1,000 records, {result.made} records changed>"
