"""Files on Spark: every record stays in the cluster, whose workers also write the output and compare it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from safeswap.arrays import keyed
from safeswap.arrays.names import Names
from safeswap.arrays.types import Rows
from safeswap.engines.base import Drawn, Move, Need
from safeswap.engines.spark.engine import SparkRecords
from safeswap.engines.spark.exchange import Compared, ComparedUnits, Exchanges
from safeswap.engines.spark.session import NEEDED, own_session
from safeswap.errors import EngineError, InputError
from safeswap.model.invariant import Finding, Invariant, PairPromise
from safeswap.model.text import plural
from safeswap.on_disk.job import OpenFile, RecordedOutput, check_promises, check_separate


class SparkFile(RecordedOutput, OpenFile):
    """Files in the caller's session, or in one of our own that ends with the job."""

    name: ClassVar[str] = "spark"
    title: ClassVar[str] = "records sorted and exchanged by a Spark cluster"
    lacks: ClassVar[Mapping[Need, str]] = SparkRecords.lacks
    writes_directories: ClassVar[bool] = True

    records: SparkRecords
    moves: tuple[Move, ...] = ()
    _compared: Compared | None = None

    @cached_property
    def _open(self) -> ExitStack:
        return ExitStack()

    def open(self, read: Names) -> None:
        """Open the files, and check the identifier."""
        spark = self._open.enter_context(spark_session(self.job.session, self.job.threads, records=len(self.files)))
        self.records = SparkRecords(spark, self.files, self.schema)
        self._open.callback(self.records.close)
        self.records.prepare(identity_key=keyed.derive(self.job.key.secret, "identity"), work=self.work)
        _check_identifier(self.records)

    def exchange(self, drawn: Drawn) -> None:
        """Keep the pairs; values are fetched when the files are written."""
        check_separate(drawn, self.name)
        self.moves = drawn.moves

    @cached_property
    def _exchanges(self) -> Exchanges:
        return Exchanges(self.records, self.names, self.moves)

    def write(self, part: Path) -> None:
        """Let the cluster write all records, in the order of the source."""
        self._exchanges.write(part.absolute(), self.work.absolute())

    def find_damaged(self, part: Path) -> list[str]:
        """Return the columns that were to be copied and are not as they were."""
        others = tuple(name for name in self.files.schema.names if name not in self.names)
        if len(list(part.glob("*.parquet"))) != len(self.records.pieces):
            return list(others)
        return self._exchanges.find_damaged(part.absolute(), others)

    def findings(self, part: Path, promises: Sequence[Invariant]) -> tuple[Finding, ...]:
        """Check every promise where the records are."""
        by_record = (promise for promise in promises if not (isinstance(promise, PairPromise) and promise.unit))
        asked = dict.fromkeys(promise.compared for promise in by_record)
        margins = dict.fromkeys((*(names for names in asked if set(names) & set(self.names)), self._table))
        named = {name for names in asked for name in names}
        others = tuple(name for name in self.schema.names if name in named and name not in self.names)
        self._compared = self._exchanges.compare(part.absolute(), others, tuple(margins))
        units = partial(self._exchanges.compare_units, part.absolute())
        return check_promises(promises, SparkEvidence(self, self._compared, units), self.name)

    @property
    def _table(self) -> Names:
        """The attributes of the table that compensating changes leave as it was."""
        return (*self.names, *(name for name in self.schema.categorical if name not in self.names))

    def count_compensating(self) -> int:
        """Count records that changed although the table did not: changed records minus the net change of the cells."""
        assert self._compared is not None  # noqa: S101  (the promises have been checked)
        return self._compared.count_changed() - self._compared.count_net_change(self._table)[0] // 2

    def iter_pairs(self) -> Iterator[tuple[int, Rows]]:
        """Yield the number of an exchange and pairs of row numbers, in the order of drawing, in batches."""
        return self._exchanges.iter_pairs(self.work)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release what the job holds in the cluster, end a session of our own, and translate Spark's errors."""
        self._open.__exit__(kind, error, trace)


class SparkEvidence:
    """Both files and the pairs between them, as counts made by the workers that read them."""

    def __init__(self, opened: SparkFile, compared: Compared, units: Callable[[str, Names], ComparedUnits]) -> None:
        self._compare_units = units
        self._compared, self._names, self._moves = compared, opened.names, opened.moves
        self.identifier = None if opened.schema.identifier is None else opened.schema.identifier.name
        self.attributes = opened.records.attributes
        self.exchanged = tuple(move.names for move in opened.moves)

    def number_of_pairs(self, stage: int) -> int:
        """Return the number of pairs of an exchange."""
        return len(self._moves[stage].pairs)

    def count_changed(self, name: str) -> int:
        """Count the records that have another value; columns that were copied have been compared already."""
        return self._compared.count_changed(name) if name in self._names else 0

    def count_moved_cells(self, names: Names) -> int:
        """Count the cells that have a different count from before."""
        return self._compared.count_net_change(names)[1] if set(names) & set(self._names) else 0

    def count_repeated(self, stage: int) -> int:
        """Count the places in the pairs that go to a record that has one already."""
        return self._compared.count_repeated(stage)

    def count_agreeing(self, stage: int, names: Names) -> int:
        """Count the pairs that agree in all of these attributes."""
        return self._compared.count_pairs(stage, names, agree=True)

    def count_differing(self, stage: int, names: Names) -> int:
        """Count the pairs that differ in all of these attributes."""
        return self._compared.count_pairs(stage, names, agree=False)

    def count_moved_records(self, stage: int) -> int:
        """Count the records that an exchange changed."""
        return self._compared.count_moved(stage, self.exchanged[stage])

    def count_torn(self, unit: str, names: Names) -> int:
        """Count the units of which some members changed and others did not, or which differ now."""
        return self._compare_units(unit, names).count_torn()

    def count_moved_units(self, unit: str, names: Names) -> int:
        """Count the cells that have a different number of units from before."""
        return self._compare_units(unit, names).count_moved_cells()

    def explains(self, name: str) -> bool:
        """Return True if the pairs lead from the values before to those after, and nothing else changed."""
        stage = next((i for i, names in enumerate(self.exchanged) if name in names), None)
        if stage is None:
            return self.count_changed(name) == 0
        traded = self._compared.count_traded(stage, name) == self.number_of_pairs(stage)
        return traded and self._compared.count_moved(stage, (name,)) == self.count_changed(name)

    def restores(self, name: str) -> bool:
        """Return True if undoing gives the values before back: a permutation has an inverse."""
        one_to_one = all(self.count_repeated(i) == 0 for i, move in enumerate(self._moves) if move.directed)
        return one_to_one and self.explains(name)


def _check_identifier(records: SparkRecords) -> None:
    own = records.schema.identifier
    assert own is not None  # noqa: S101  (checked before)
    absent, ascends = records.count_absent(tuple(own.missing))
    if absent:
        raise InputError(
            f"{plural(absent, 'record has', 'records have')} no identifier {own.name!r}",
            code="missing-identifier",
            hint="give every record an identifier",
            column=own.name,
        )
    if not ascends and (number := records.count_repeated()):
        raise InputError(
            f"{plural(number, 'record shares', 'records share')} an identifier {own.name!r} with another",
            code="duplicate-identifier",
            hint="an identifier must be unique; name another column",
            column=own.name,
        )


@contextmanager
def spark_session(session: Any, threads: int | None, *, records: int) -> Iterator[Any]:
    """Yield the caller's session, or one of our own that ends with the block; translate Spark's errors."""
    spark = own_session(master=f"local[{threads or '*'}]", records=records) if session is None else session
    before = {name: spark.conf.get(name, None) for name in NEEDED}
    try:
        for name, value in NEEDED.items():
            spark.conf.set(name, value)
        yield spark
    except Exception as error:
        said = _translate_error(error)
        if said is error:
            raise
        raise said from None
    finally:
        _reset_session(spark, before, own=session is None)


def _reset_session(spark: Any, before: dict[str, str | None], *, own: bool) -> None:
    from py4j.protocol import Py4JError

    # A dead session cannot be reset, and its error is already being reported.
    with suppress(Py4JError, ConnectionError):
        if own:
            spark.stop()
        else:
            for name, value in before.items():
                spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def _translate_error(error: Exception) -> Exception:
    """Replace Spark's messages, which quote plans and may quote data."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(error, Py4JError | PySparkException | ConnectionError):
        return error
    return EngineError(
        "Spark failed; nothing was written",
        code="engine-failed",
        hint="check the logs of the cluster: a disk may be full, or workers may lack memory or safeswap itself",
        reason=type(error).__name__,
    )
