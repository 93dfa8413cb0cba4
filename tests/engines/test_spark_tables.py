"""Records and tables on Spark give what plain Python gives, and every method masks files there or is refused."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conformance.on_files import check_on_file
from tests.conformance.strategies import CASES, swap_example
from tests.engines import table_checks
from tests.engines.spark_runs import session_on
from tests.engines.table_checks import KEY, FirstAndLast, check_every_operation, make_data
from tests.engines.test_household_files import count_by_hand, tampered
from tests.plug_in import install_trade

from safeswap import registry, workflow
from safeswap.arrays import keyed
from safeswap.engines.base import DRAW
from safeswap.engines.spark.engine import SparkRecords, SparkTable
from safeswap.engines.spark.exchange import Exchanges, part_name
from safeswap.files.parquet import open_parquet
from safeswap.methods.base import Method
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema

if importlib.util.find_spec("pyspark") is None:
    pytest.fail("PySpark is not installed: `make test` installs it, or `make .venv/.spark`", pytrace=False)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(table_checks)  # workers do not find the tests
    try:
        with session_on("local[1]", **{"spark.sql.shuffle.partitions": "2"}) as session:
            yield session
    finally:
        cloudpickle.unregister_pickle_by_value(table_checks)


@pytest.mark.parametrize(("seed", "records"), [(0, 1), (1, 60)])
def test_every_operation_gives_what_plain_python_gives(seed: int, records: int, session: Any, tmp_path: Path) -> None:
    data = make_data(seed, records, identified=True)
    pq.write_table(data.table, tmp_path / "data.parquet", row_group_size=25)
    found = SparkRecords(session, open_parquet(tmp_path / "data.parquet"), data.schema)
    found.prepare(identity_key=keyed.derive(KEY.secret, "identity"), work=tmp_path)

    def rows_of(pairs: Any) -> list[list[int]]:
        listed = pairs.frame.orderBy("k").select("k", "a", "b").collect()
        assert [place for place, _, _ in listed] == list(range(1, len(listed) + 1))
        return [[a, b] for _, a, b in listed]

    try:
        check_every_operation(data, found, rows_of)
    finally:
        found.close()


@pytest.mark.parametrize("method", [pytest.param(m, id=n) for n, m in registry.methods().items()])
def test_a_file_is_masked_as_in_memory_or_refused_as_declared(method: Method, session: Any, tmp_path: Path) -> None:
    check_on_file(method, "spark", CASES[method.name].example(), tmp_path, spark=session)


def test_households_of_other_sizes_change_places_as_in_memory(session: Any, tmp_path: Path) -> None:
    data, spec = CASES["household_swap"].example()
    uneven = spec.replace(match_size=False)
    method = registry.method(uneven.method)
    assert method.apply(data, uneven, key=KEY).audit.exchanges[0].mutual
    check_on_file(method, "spark", (data, uneven), tmp_path, spark=session)


def test_a_file_without_identifier_is_refused_as_declared(session: Any, tmp_path: Path) -> None:
    data, spec = CASES["swap"].example()
    own = data.schema.identifier
    assert own is not None
    unknown = data.schema.replace(own.model_copy(update={"kind": Kind.NOMINAL}))
    check_on_file(registry.method("swap"), "spark", (Microdata(data.table, unknown), spec), tmp_path, spark=session)
    assert [path.name for path in tmp_path.iterdir()] == ["data.parquet"]


def test_files_in_another_order_are_compared_when_they_have_no_other_column(session: Any, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2, 3, 4], "sex": ["f", "m", None, "m"]})
    turned = pa.table({"id": [4, 3, 2, 1], "sex": ["m", "f", "m", "f"]})
    for name, each in (("before", table), ("after", turned)):
        pq.write_table(each, tmp_path / f"{name}.parquet")
    asked: dict[str, Any] = {"measures": ["total_variation"], "identifier": "id", "kinds": {"sex": "nominal"}}
    found = workflow.assess_file(
        tmp_path / "before.parquet", tmp_path / "after.parquet", engine="spark", spark=session, **asked
    )
    frames = (workflow.read(each, identifier="id", kinds={"sex": "nominal"}) for each in (table, turned))
    expected = workflow.assess(*frames, measures=["total_variation"])
    assert found["total_variation"].value == expected["total_variation"].value == 0.25


def test_equal_first_words_are_ordered_by_the_second(session: Any, tmp_path: Path) -> None:
    """Draws are made in processes where the cipher cannot be patched: here tied ones are given."""
    data = make_data(3, 60, identified=True)
    pq.write_table(data.table, tmp_path / "data.parquet")
    records = SparkRecords(session, open_parquet(tmp_path / "data.parquet"), data.schema)
    records.prepare(identity_key=bytes(32), work=tmp_path)
    second = np.random.default_rng(3).permutation(60).tolist()
    rows = [(own, own % 3 - 1, second[own], own % 4, 0) for own in range(60)]
    frame = session.createDataFrame(rows, "i long, h long, l long, c0 long, c1 long").repartition(3)

    numbered = records.number_rows(frame, [], len(rows)).orderBy("n").select("i").collect()
    assert [own for (own,) in numbered] == [own for own, *_ in sorted(rows, key=lambda row: row[1:3])]

    table = SparkTable(records, frame, ("group", "half")).map_groups(("group",), (DRAW,), FirstAndLast())
    pairs = table.pairs("first", "mate", (DRAW,)).frame.orderBy("k").select("a", "b").collect()
    groups = [sorted((row for row in rows if row[3] == group), key=lambda row: row[1:3]) for group in range(4)]
    expected = sorted((group[0][1:3], group[0][0], group[-1][0]) for group in groups)
    assert [tuple(pair) for pair in pairs] == [(a, b) for _, a, b in expected]


def test_a_plug_in_that_exchanges_values_masks_files(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = swap_example()[0]
    with install_trade(tmp_path / "site", monkeypatch) as module:
        session.sparkContext.addPyFile(str(module))
        method = registry.method("trade")
        spec = method.spec_type(attributes=("Race", "Age"), keys=("Sex", "Town"))
        (tmp_path / "files").mkdir()
        check_on_file(method, "spark", (data, spec), tmp_path / "files", spark=session)


def test_torn_units_and_units_by_cell_are_those_counted_by_hand(session: Any, tmp_path: Path) -> None:
    for seed in (0, 3, 7, 12, 21):
        before, after = tampered(seed)
        folder = tmp_path / str(seed)
        (folder / "written").mkdir(parents=True)
        pq.write_table(before, folder / "data.parquet", row_group_size=9)
        attributes = tuple(Attribute(name=name) for name in before.column_names)
        records = SparkRecords(session, open_parquet(folder / "data.parquet"), Schema(attributes=attributes))
        for piece in records.pieces:
            pq.write_table(after.slice(piece.first, piece.records), folder / "written" / part_name(piece))
        compare = Exchanges(records, ("area",), ()).compare_units
        torn = compare(folder / "written", "home", ("area",)).count_torn()
        moved = compare(folder / "written", "home", ("area", "kind")).count_moved_cells()
        assert (torn, moved) == count_by_hand(before, after)
