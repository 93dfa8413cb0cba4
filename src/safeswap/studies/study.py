"""The result of a study: one row per candidate, the frontier and the choice.

It is stored as Parquet (candidates, 2-way tables) and JSON (question, facts). All of it is internal: only the owner can
read the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from safeswap import registry
from safeswap.arrays.two_way import MEASURES as TABLE_MEASURES
from safeswap.arrays.types import Float32s, Floats, Int64s
from safeswap.errors import InputError, SpecError
from safeswap.files.atomic import PRIVATE_FILE, atomic_directory, atomic_write
from safeswap.measures.base import to_comparable
from safeswap.model.checked import check_types
from safeswap.model.columns import to_frame_type
from safeswap.model.microdata import Microdata
from safeswap.model.spec import MaskSpec
from safeswap.model.study import StudySpec, find_undominated
from safeswap.model.text import plural
from safeswap.studies.choice import Choice, Objective, as_objective, choose_candidate, take_candidate

CANDIDATES, FACTS, TWO_WAY = "study.parquet", "study.json", "two_way.parquet"
"""The files of a stored study."""

FORMAT = "safeswap-study-1"


@dataclass(frozen=True, eq=False, kw_only=True)
class Study:
    """All candidates of a study with their scores. Scores only: no masked record is kept.

    ``table`` has one row per candidate, replicate after replicate: number, specification (number and text), label,
    swap attributes, constraint, rate, replicate, outcome, pairs made, the reason if it was rejected, and a column
    per measure.
    """

    spec: StudySpec
    table: pa.Table
    specs: tuple[MaskSpec, ...]  # by the number in the column "specification"
    facts: Mapping[str, Any]  # facts about the data that disclose no record
    two_way: npt.NDArray[np.float32] | None = None  # (candidates, tables, measures)
    table_pairs: tuple[tuple[str, str], ...] = ()
    frame_type: str = "pyarrow"  # the library of the caller's dataframes

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @classmethod
    @check_types
    def load(cls, path: str | PathLike[str]) -> Study:
        """Load a saved study.

        >>> from safeswap import datasets, study
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "study"
        >>> found = study(datasets.cps8d(), attributes=["Race"], rates=[0.01], insecure_seed=1)
        >>> found.save(path, pages=False)
        >>> Study.load(path).table.equals(found.table)
        True
        """
        folder = Path(path)
        document = _document(folder)
        table = _read_parquet(folder / CANDIDATES)
        pairs = tuple((str(a), str(b)) for a, b in document["table_pairs"])
        spec = StudySpec(**document["study"])
        _check_rows(folder, table, spec)
        return cls(
            spec=spec,
            table=table,
            specs=_parse_specs(table),
            facts=document["facts"],
            two_way=_two_way(folder, len(table), len(pairs), document["table_measures"]) if pairs else None,
            table_pairs=pairs,
        )

    @check_types
    def save(
        self,
        path: str | PathLike[str],
        *,
        choice: Choice | None = None,
        data: Any = None,
        pages: bool = True,
        publish_figures: bool = False,
        force: bool = False,
    ) -> None:
        """Save to an internal directory: ``study.parquet``, ``study.json``, ``two_way.parquet``.

        With ``pages`` the map is saved too and, given a ``choice``, the reports; given the ``data``, these say what the
        chosen swap keeps exactly. With ``publish_figures`` the public report has the map and the figures, from which
        the rate can be inferred, and says so; ``study.json`` records this consent. :meth:`load` reads the study back.
        """
        from safeswap.files.read import read

        further: dict[str, Any] = {"publish_figures": publish_figures}
        if choice is not None:
            further["choice"] = choice.as_dict()
        with atomic_directory(path, force=force, marker=FACTS) as folder:
            _write(self, folder, further)
            if pages:
                known = data if data is None or isinstance(data, Microdata) else read(data)
                self._write_pages(choice, known, folder, publish_figures=publish_figures)

    def _write_pages(
        self, choice: Choice | None, data: Microdata | None, folder: Path, *, publish_figures: bool
    ) -> None:
        """Write the map and the two reports, internal and public."""
        from safeswap.charts.map import map_html
        from safeswap.reports.study import write_study_report

        with atomic_write(folder / "map.html") as part:
            part.write_text(map_html(self, choice=choice), encoding="utf-8")
        if choice is None:
            return
        promises = () if data is None else registry.method(choice.spec.method).invariants(data, choice.spec)
        names = () if data is None else data.schema.categorical
        public = [seen for promise in promises if (seen := promise.for_users_of(names)) is not None]
        inside, outside = (tuple(dict.fromkeys(promise.sentence for promise in kept)) for kept in (promises, public))
        write_study_report(self, choice, folder / "report.html", version="internal", kept=inside)
        write_study_report(
            self, choice, folder / "report-public.html", version="public", kept=outside, publish_figures=publish_figures
        )

    @check_types
    def scores(self, measure: str) -> Floats:
        """Return the signed scores of one measure, a number per candidate; NaN for rejected ones."""
        if measure not in self.spec.measures:
            raise SpecError(
                f"{measure!r} was not measured in this study",
                code="unknown-measure",
                hint="measured were: " + ", ".join(self.spec.measures),
            )
        values: Floats = self.table.column(measure).to_numpy().astype(np.float64, copy=False)
        return values

    @check_types
    def axes(self, risk: str | None = None, distortion: str | None = None) -> tuple[Floats, Floats]:
        """Return risk and distortion of every candidate for comparison; by default the first measure of each kind.

        A signed measure is compared by its magnitude: far from the original is far in either direction.
        """
        names = risk or self.spec.risk[0], distortion or self.spec.distortion[0]
        y, x = (to_comparable(registry.measure(name), self.scores(name)) for name in names)
        return y, x

    @check_types
    def frontier(self, *, risk: str | None = None, distortion: str | None = None, rate: float | None = None) -> Int64s:
        """Return the undominated candidates by number, in order of distortion; of one rate, or of all."""
        y, x = self.axes(risk, distortion)
        rows = np.arange(len(self))
        if rate is not None:
            rows = np.flatnonzero(np.isclose(self._rates(), rate, rtol=1e-9, atol=0.0))
            if not len(rows):
                raise SpecError(
                    f"no candidate of this study has rate {rate:g}",
                    code="unknown-rate",
                    hint="the rates are: " + ", ".join(f"{known:g}" for known in self.spec.rates),
                )
        best = rows[find_undominated(y[rows], x[rows])]
        ordered: Int64s = best[np.lexsort((y[best], x[best]))]
        return ordered

    def rejected(self) -> pa.Table:
        """Return the rejected candidates, with the reason."""
        import pyarrow.compute as pc

        bad = self.table.filter(pc.equal(self.table.column("outcome"), "rejected"))
        return bad.select(["candidate", "label", "constraint", "rate", "replicate", "reason"])

    @check_types
    def summary(self, *, risk: str | None = None, distortion: str | None = None) -> pa.Table:
        """Return a row per specification: mean and spread over its replicates, and how often it is on the frontier."""
        y, x = (values.reshape(-1, len(self.specs)) for values in self.axes(risk, distortion))
        first = self.table.slice(0, len(self.specs))
        columns: dict[str, Any] = {
            name: first.column(name) for name in ("specification", "label", "constraint", "rate")
        }
        for axis, values in (("risk", y), ("distortion", x)):
            columns[f"{axis}_mean"], columns[f"{axis}_sd"] = mean_and_spread(values)
        made = (~np.isnan(y)).sum(axis=0)
        columns["replicates"] = made.astype(np.int64)
        on_frontier = np.zeros(len(self.specs))
        for risks, distortions in zip(y, x, strict=True):
            on_frontier += find_undominated(risks, distortions)
        columns["on_frontier"] = np.divide(on_frontier, made, out=np.full(len(made), np.nan), where=made > 0)
        # A specification that was never made has nulls, not NaN.
        return pa.table(
            {name: pa.array(c, from_pandas=True) if isinstance(c, np.ndarray) else c for name, c in columns.items()}
        )

    @check_types
    def find(self, spec: MaskSpec, replicate: int = 0) -> int | None:
        """Return the candidate that a masking by this specification is; None if it is none of them.

        Names of steps do not matter: they decide draws, and a candidate stands for all draws of its specification.

        >>> from safeswap import SwapSpec, datasets, study
        >>> found = study(datasets.cps8d(), attributes=["Race"], rates=[0.01, 0.05], insecure_seed=1)
        >>> found.find(SwapSpec(swap=["Race"], rate=0.05)), found.find(SwapSpec(swap=["Race"], rate=0.5))
        (1, None)
        """
        asked = _nameless(spec)
        place = next((number for number, each in enumerate(self.specs) if _nameless(each) == asked), None)
        drawn = replicate if replicate < self.spec.replicates else 0
        return None if place is None else place + drawn * len(self.specs)

    @check_types
    def take(self, candidate: int) -> Choice:
        """Return a candidate as the choice, for reports: people chose it, whatever a rule says."""
        self._require_candidate(candidate)
        return take_candidate(self, candidate)

    def _require_candidate(self, number: int) -> None:
        if not 0 <= number < len(self):
            raise SpecError(
                f"there is no candidate {number:,}",
                code="unknown-candidate",
                hint=f"candidates are numbered from 0 to {len(self) - 1:,}",
            )

    @check_types
    def choose(
        self,
        objective: str | Objective | Callable[[float, float], float] | None = None,
        *,
        risk: str | None = None,
        distortion: str | None = None,
    ) -> Choice:
        """Choose one candidate, with the reasons.

        Specifications are compared by their mean over replicates, since one draw is noise, among those whose mean is
        on the frontier. Of the best one's draws the one nearest to its mean is chosen: taking the luckiest would make
        the scores look better than they are.
        """
        rule = as_objective(self.spec.objective if objective is None else objective)
        return choose_candidate(self, rule, risk=risk, distortion=distortion)

    @check_types
    def distortion_table(self, number: int, measure: str) -> pa.Table | None:
        """Return the 2-way distortions of one candidate (attribute a, attribute b, value); None if not kept."""
        if measure not in TABLE_MEASURES:
            raise SpecError(
                f"{measure!r} is not a measure of 2-way tables",
                code="unknown-measure",
                hint="they are: " + ", ".join(TABLE_MEASURES),
            )
        self._require_candidate(number)
        if self.two_way is None:
            return None
        values = self.two_way[number, :, TABLE_MEASURES.index(measure)]
        a, b = zip(*self.table_pairs, strict=True) if self.table_pairs else ((), ())
        return pa.table({"a": list(a), "b": list(b), measure: values.astype(np.float64)})

    @check_types
    def to_frame(self, part: Literal["candidates", "summary", "frontier", "rejected"] = "candidates") -> Any:
        """Return a part of the study as a dataframe of the data's own type; an Arrow table if read from a file.

        >>> import pandas
        >>> from safeswap.workflow import study
        >>> frame = pandas.DataFrame({"A": list("xyxy") * 5, "B": list("ppqq") * 5})
        >>> found = study(frame, rates=[0.5], insecure_seed=1)
        >>> type(found.to_frame("frontier")).__module__.split(".")[0]
        'pandas'
        """
        parts: dict[str, Callable[[], pa.Table]] = {
            "candidates": lambda: self.table,
            "summary": self.summary,
            "frontier": lambda: self.table.take(pa.array(self.frontier())),
            "rejected": self.rejected,
        }
        if part not in parts:
            raise SpecError(
                f"a study has no part {part!r}", code="unknown-part", hint="the parts are: " + ", ".join(parts)
            )
        return to_frame_type(parts[part](), self.frame_type)

    def _rates(self) -> Floats:
        rates: Floats = self.table.column("rate").to_numpy().astype(np.float64, copy=False)
        return rates

    def __repr__(self) -> str:
        rejected, frontier = self.rejected().num_rows, len(self.frontier())
        return (
            f"<Study of {plural(len(self.specs), 'specification')} × {plural(self.spec.replicates, 'replicate')}: "
            f"{plural(len(self), 'candidate')}, {rejected:,} rejected, {frontier:,} on the frontier>"
        )

    def _repr_html_(self) -> str:
        from safeswap.charts.map import map_html

        page: str = map_html(self, standalone=False)
        return page


def mean_and_spread(values: Floats) -> tuple[Floats, Floats]:
    """Return the mean and standard deviation of each column, ignoring NaN."""
    known = ~np.isnan(values)
    number = known.sum(axis=0)
    filled = np.where(known, values, 0.0)
    mean = np.divide(filled.sum(axis=0), number, out=np.full(len(number), np.nan), where=number > 0)
    squares = np.square(np.where(known, values - mean, 0.0)).sum(axis=0)
    spread = np.divide(squares, number - 1, out=np.full(len(number), np.nan), where=number > 1)
    return mean, np.sqrt(spread)


def _nameless(spec: MaskSpec) -> tuple[dict[str, Any], ...]:
    """Return what a specification does, step by step, without the names of the steps."""
    values = spec.as_dict()
    steps = values["steps"] if spec.method == "pipeline" else [values]
    return tuple({name: value for name, value in step.items() if name != "name"} for step in steps)


def _parse_specs(table: pa.Table) -> tuple[MaskSpec, ...]:
    """Parse the specifications of a study from the text in its table."""
    count = int(table.column("specification").to_numpy().max(initial=-1)) + 1
    specs = [json.loads(text) for text in table.column("spec").slice(0, count).to_pylist()]
    # Look each method up once: there may be a hundred thousand specifications.
    types = {name: registry.method(name).spec_type for name in {values.pop("method") for values in map(dict, specs)}}
    return tuple(types[values.pop("method")](**values) for values in specs)


def _write(study: Study, folder: Path, further: Mapping[str, Any]) -> None:
    """Write the files of a study into an existing folder. ``further`` is added to the JSON file as it is."""
    _write_parquet(study.table, folder / CANDIDATES)
    if study.two_way is not None:
        _write_parquet(_as_rows(study.two_way, study.table_pairs), folder / TWO_WAY)
    document = {
        "format": FORMAT,
        "confidential": "stays inside: holds rates, replicates and the name of the key",
        "study": study.spec.model_dump(mode="json"),
        "facts": dict(study.facts),
        "table_pairs": [list(pair) for pair in study.table_pairs],
        "table_measures": list(TABLE_MEASURES),
        **further,
    }
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_write(folder / FACTS, force=True) as part:
        part.write_text(text + "\n", encoding="utf-8")


def _write_parquet(table: pa.Table, path: Path) -> None:
    with atomic_write(path, force=True, mode=PRIVATE_FILE) as part:
        parquet.write_table(table, part, compression="zstd")


def _as_rows(values: Float32s, pairs: tuple[tuple[str, str], ...]) -> pa.Table:
    """Return one row per candidate and table."""
    candidates, tables, _ = values.shape
    which = np.tile(np.arange(tables, dtype=np.int32), candidates)
    names = [[pair[side] for pair in pairs] for side in (0, 1)]
    columns: dict[str, Any] = {"candidate": np.repeat(np.arange(candidates), tables)}
    columns |= {
        side: pa.DictionaryArray.from_arrays(pa.array(which), pa.array(names[i], type=pa.string()))
        for i, side in enumerate(("a", "b"))
    }
    columns |= {name: pa.array(values[:, :, i].ravel(), from_pandas=True) for i, name in enumerate(TABLE_MEASURES)}
    return pa.table(columns)


def _two_way(folder: Path, candidates: int, tables: int, measures: list[str]) -> Float32s:
    table = _read_parquet(folder / TWO_WAY)
    if len(table) != candidates * tables or not set(measures) <= set(table.column_names):
        raise _bad(folder, TWO_WAY)
    values = [table.column(name).to_numpy().astype(np.float32, copy=False) for name in measures]
    return np.stack([column.reshape(candidates, tables) for column in values], axis=2)


def _read_parquet(path: Path) -> pa.Table:
    try:
        with parquet.ParquetFile(path) as file:
            return file.read()
    except FileNotFoundError:
        raise _missing(path) from None
    except (pa.ArrowException, OSError):
        raise _bad(path.parent, path.name) from None


def _document(folder: Path) -> dict[str, Any]:
    try:
        document = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(folder / FACTS) from None
    except (OSError, ValueError, RecursionError):
        raise _bad(folder, FACTS) from None
    fields = {"study": dict, "facts": dict, "table_pairs": list, "table_measures": list}
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _bad(folder, FACTS)
    if not all(isinstance(document.get(name), kind) for name, kind in fields.items()):
        raise _bad(folder, FACTS)
    return document


def _check_rows(folder: Path, table: pa.Table, spec: StudySpec) -> None:
    """Refuse a table whose rows are not replicate after replicate, each with all specifications in order."""
    wanted = {"candidate", "specification", "label", "swap", "constraint", "rate", "spec", "replicate", "outcome"}
    if not {*wanted, "pairs", "reason", *spec.measures} <= set(table.column_names) or not len(table):
        raise _bad(folder, CANDIDATES)
    number = table.column("specification").to_numpy()
    specs = int(number.max()) + 1
    replicates = -(-len(table) // specs)
    fits = len(table) == specs * replicates and np.array_equal(number, np.tile(np.arange(specs), replicates))
    if not fits or not np.array_equal(table.column("candidate").to_numpy(), np.arange(len(table))):
        raise _bad(folder, CANDIDATES)


def _missing(path: Path) -> InputError:
    return InputError(
        f"there is no {path.name!r} in {path.parent.name!r}",
        code="no-study",
        hint="give the directory that a study was saved to",
        file=str(path),
    )


def _bad(folder: Path, name: str) -> InputError:
    return InputError(
        f"{name!r} in {folder.name!r} is not a file of a study, or was damaged",
        code="bad-study",
        hint="run the study again",
        file=str(folder / name),
    )
