"""Check a study, enumerate its candidates, and run them on all cores, in blocks that can be checkpointed.

The scores of a candidate are a pure function of data, study, key and replicate; they do not depend on the thread or
session that computes a block.

A checkpoint has one file per finished block, named by the digest of question, key and data and written atomically; a
damaged file counts as missing. All of it is internal (scores of many draws, the rate, the name of the key): only the
owner can read the files.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from safeswap import registry
from safeswap.arrays import keyed
from safeswap.arrays.names import Names
from safeswap.errors import EngineError, InfeasibleError, InputError, OutputError, SafeswapError, SpecError
from safeswap.files.atomic import PRIVATE_DIRECTORY, atomic_write
from safeswap.measures.base import Measure, ParametricMeasure, score_by_unit
from safeswap.measures.utility.estimates import LineMeasure
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata, record_identity
from safeswap.model.scenario import Resolved
from safeswap.model.schema import Kind, level_texts
from safeswap.model.score import Axis, Comparison
from safeswap.model.spec import SwapSpec
from safeswap.model.study import ConstraintSet, Figures, StudySpec
from safeswap.studies.choice import as_objective
from safeswap.studies.evaluate import Evaluator, FixedSteps, Group, measure_frontier, pose_comparison, study_of
from safeswap.studies.quick import SwapGroup
from safeswap.studies.study import Study

MOST_CANDIDATES = 2_000_000
"""A larger grid is refused, with its size and a search suggested instead."""

_NAME = re.compile(r"(?P<digest>[0-9a-f]{32})-(?P<number>\d+)\.npz")
_LEFT_OVER = re.compile(r"\.safeswap-[0-9a-f]{16}\.(part\.npz|lock)")  # left by a killed writer
_GIVEN = frozenset({"touched"})
"""The needs of a measure that a study can meet besides the two files."""


@dataclass(frozen=True, eq=False)
class Checked:
    """The measures of a valid study, and their values on the untouched original as far as they apply to it."""

    measures: dict[str, Measure]
    before: dict[str, float | None]


def check(data: Microdata, study: StudySpec, original: Microdata | None = None) -> Checked:
    """Refuse a study that cannot run; score the untouched original.

    ``data`` is the file after the steps that come first, ``original`` the one before them, if there are any.

    >>> from safeswap import datasets
    >>> round(check(datasets.cps8d(), StudySpec()).before["n_rule"], 5)
    0.01501
    """
    measures = check_question(data, study)
    before: dict[str, float | None] = {text: _score_before(data, study, measure) for text, measure in measures.items()}
    return Checked(measures, before if original is None else {**before, **_score_original(original, study, before)})


def check_question(data: Microdata, study: StudySpec) -> dict[str, Measure]:
    """Refuse a study that cannot run, as far as that shows without scoring; return its measures by text."""
    if not len(data):
        raise InputError("the file has no records", code="no-records", hint="give a file with records")
    as_objective(study.objective)
    _check_attributes(data, study)
    measures = make_measures(data, study)
    _check_axes(study, measures)
    _check_others(data, study)
    if not study.number_of_candidates(swap_attributes(data, study)):
        raise SpecError(
            "the study has no candidates",
            code="empty-study",
            hint="name at least one attribute that may be swapped",
        )
    return measures


def make_measures(data: Microdata, study: StudySpec) -> dict[str, Measure]:
    """Return the measures by text; those of risk with what the scenario states."""
    measures = {text: _for_all_candidates(registry.measure(text)) for text in study.measures}
    if study.scenario is None:
        return measures
    resolved = study.scenario.resolve(data.schema, data.schema)
    return {text: _pose_one(text, measure, resolved, data) for text, measure in measures.items()}


def _for_all_candidates(measure: Measure) -> Measure:
    """Return the measure that all candidates are scored by; what it omits is measured on the frontier."""
    return measure.for_study() if isinstance(measure, LineMeasure) else measure


def _pose_one(text: str, measure: Measure, resolved: Resolved, data: Microdata) -> Measure:
    if measure.axis is not Axis.RISK or not isinstance(measure, ParametricMeasure):
        return measure
    posed = measure.pose(resolved, data)
    if len(posed) != 1:
        raise SpecError(
            f"{text!r} has a figure for each of {len(posed)} sensitive attributes, and a candidate has one",
            code="several-sensitive",
            hint=f"name one: {measure.name}:sensitive={resolved.sensitive[0]}",
        )
    return posed[0][1]


def grid(data: Microdata, study: StudySpec) -> tuple[Group, ...]:
    """Enumerate the candidates of a study that passed :func:`check`, in groups that differ only in the rate.

    >>> from safeswap import datasets
    >>> len(grid(datasets.cps8d(), StudySpec()))
    36
    """
    names = swap_attributes(data, study)
    total = study.number_of_candidates(names)
    if total > MOST_CANDIDATES:
        raise SpecError(
            f"the study has {total:,} candidates, more than {MOST_CANDIDATES:,}",
            code="study-too-large",
            hint="swap fewer attributes together, name fewer attributes, or search: budget=N, or --search BUDGET",
            candidates=total,
        )
    groups = [swap_group(study, chosen, constraint, study.rates) for chosen, constraint in study.groups(names)]
    groups += [other_group(values, label) for values, label in study.stated()]
    return tuple(groups)


def count_candidates(data: Microdata, study: StudySpec) -> int:
    """Count the candidates of a study before it runs. An invalid study is refused; nothing is scored.

    >>> from safeswap import datasets
    >>> count_candidates(datasets.cps8d(), StudySpec(replicates=10))
    1080
    """
    check_question(data, study)
    return study.number_of_candidates(swap_attributes(data, study))


def swap_attributes(data: Microdata, study: StudySpec) -> Names:
    """Return the attributes that may be swapped: those given, or all categorical ones."""
    return study.attributes or data.schema.categorical


def swap_group(study: StudySpec, names: Names, constraint: ConstraintSet, rates: tuple[float, ...]) -> Group:
    """Return the same swap at several rates."""
    specs = tuple(study.swap_spec(names, constraint, rate) for rate in rates)
    return Group(specs=specs, labels=names, constraint=constraint)


def other_group(values: dict[str, object], label: str = "") -> Group:
    """Return the group of one fully specified candidate; ``label`` distinguishes it from others of its method."""
    spec = registry.make_spec(values)
    return Group(specs=(spec,), labels=spec.swap if isinstance(spec, SwapSpec) else (), varied=label)


def _check_attributes(data: Microdata, study: StudySpec) -> None:
    names = swap_attributes(data, study)
    constrained = [name for c in study.constraints for name in (*c.fixed, *c.differ)]
    for name in (*names, *constrained, *study.keys):
        if data.schema[name].kind is Kind.IDENTIFIER:
            raise SpecError(
                f"{name!r} is the record identifier and can have no role in a study",
                code="identifier-role",
                hint="omit it; it stays with its record",
                attribute=name,
            )
    for constraint in study.constraints:
        if names and not set(names) - {*constraint.fixed, *constraint.differ}:
            raise SpecError(
                f"no attribute is left to swap under the constraints: {constraint.label}",
                code="empty-study",
                hint="name an attribute that is neither held fixed nor required to differ",
            )
    if not (study.keys or data.schema.categorical):
        raise SpecError(
            "the file has no categorical attribute to form cells from",
            code="no-categorical-attribute",
            hint="describe some attributes as nominal or ordinal, or name the attributes: keys",
        )


def _check_axes(study: StudySpec, measures: dict[str, Measure]) -> None:
    stated = [*((text, "risk") for text in study.risk), *((text, "distortion") for text in study.distortion)]
    for text, axis in stated:
        measure = measures[text]
        if measure.axis.value != axis:
            raise SpecError(
                f"{text!r} measures {measure.axis.value}, not {axis}",
                code="wrong-axis",
                hint=f"state it under {measure.axis.value}",
            )
        if missing := sorted(measure.needs - _GIVEN):
            raise SpecError(
                f"{text!r} needs {' and '.join(missing)} of the audit record, which candidates of a study do not keep",
                code="needs-audit",
                hint="choose another measure for the study, and assess the chosen release by this one",
            )


def _check_others(data: Microdata, study: StudySpec) -> None:
    for values, _ in study.stated():
        spec = registry.make_spec(values)
        try:
            registry.method(spec.method).plan(data, spec)
        except InfeasibleError:
            continue  # it will be a rejected candidate, with its reason


def _score_original(original: Microdata, study: StudySpec, scored: Iterable[str]) -> dict[str, float | None]:
    """Score the risk of the file before all steps, with its own levels; None where a measure does not apply to it.

    Its distortion is that of the file after the first steps, in whose categories distances are measured: none.
    """
    found: dict[str, float | None] = {}
    for text in (text for text in scored if registry.measure(text).axis is Axis.RISK):
        try:
            found[text] = _score_before(original, study, make_measures(original, study)[text])
        except SafeswapError:
            found[text] = None
    return found


def _score_before(data: Microdata, study: StudySpec, measure: Measure) -> float:
    """Score the untouched file, so that a measure that cannot be computed fails before anything runs."""
    keys = study.keys or data.schema.categorical
    untouched = np.zeros(len(data), dtype=np.bool_)
    seen = Comparison(before=data, after=data, attributes=keys, touched=untouched)
    try:
        return score_by_unit(measure, pose_comparison(seen, study.scenario, measure)).value
    except SafeswapError:
        raise
    except Exception as error:  # noqa: BLE001  (a plug-in may fail in any way; its words could quote a record)
        raise EngineError(
            f"the measure {measure.text!r} cannot be computed on this file ({type(error).__name__})",
            code="measure-failed",
            hint="choose another measure, or report this to its author",
        ) from None


_BLOCK_COST = 4_000_000  # records read; about a tenth of a second

Progress = Callable[[int, int], None]
"""Called with the number of candidates done and the total."""


@dataclass(frozen=True)
class Block:
    """A run of consecutive candidates, as pieces (replicate, first group, group after the last)."""

    number: int
    candidates: int
    pieces: tuple[tuple[int, int, int], ...]


def run_study(
    data: Microdata,
    study: StudySpec,
    *,
    key: Key,
    progress: Progress | None = None,
    checkpoint: CheckpointDirectory | None = None,
    threads: int | None = None,
) -> Study:
    """Score all candidates of the study.

    >>> from safeswap import datasets
    >>> study = run_study(datasets.cps8d(), StudySpec(attributes=("Race", "Sex"), up_to=1), key=Key.insecure(seed=1))
    >>> len(study)
    6
    """
    fixed = FixedSteps.of(data, study, key)
    base = data if fixed is None else fixed.data
    checked = check(base, study, None if fixed is None else data)
    groups = grid(base, study)
    total = sum(len(group.specs) for group in groups) * study.replicates
    measures = list(checked.measures.values())
    evaluator = Evaluator(base, study, key, candidates=total, measures=measures, fixed=fixed)
    saved = SavedBlocks(checkpoint, study_digest(data, study, key)) if checkpoint else None
    runner = BlockRunner(evaluator, saved, threads=threads)
    figures = runner.evaluate(groups, (lambda done: progress(done, total)) if progress else None)
    return measure_frontier(study_of(study, evaluator, groups, figures, checked.before), evaluator)


class CheckpointDirectory:
    """A directory of finished blocks. With ``must_match``, finding only blocks of another study is an error.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> checkpoint = CheckpointDirectory(Path(folder.name) / "unfinished")
    >>> checkpoint.save("0" * 32, 4, Figures.rejected(["too few pairs"], measures=1))
    >>> checkpoint.load("0" * 32)[4].reasons, checkpoint.load("1" * 32)
    (('too few pairs',), {})
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, must_match: bool = False) -> None:
        self.path = Path(path)
        self._must_match = must_match
        # Created with the first block, so that a refused study leaves nothing; whether it can be is checked here.
        if not (self.path.is_dir() or (self.path.absolute().parent.is_dir() and not os.path.lexists(self.path))):
            raise self._unusable("choose a directory, or a name in a directory that exists")

    def load(self, digest: str) -> dict[int, Figures]:
        """Return the finished blocks of the study with this digest, by number."""
        if self._must_match and digest not in (known := self.digests()) and known:
            raise InputError(
                f"the unfinished study in {self.path.name!r} is a different one",
                code="other-study",
                hint="resume with the same file, key and question (and budget of a search), or start again",
                file=str(self.path),
            )
        found: dict[int, Figures] = {}
        for path in self._files():
            name = _NAME.fullmatch(path.name)
            if name and name["digest"] == digest and (figures := _read_block(path)) is not None:
                found[int(name["number"])] = figures
        return found

    def save(self, digest: str, number: int, figures: Figures) -> None:
        """Save one finished block."""
        try:
            self.path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        except OSError:
            raise self._unusable("check that the directory is writable") from None
        reasons = np.frombuffer(json.dumps(figures.reasons).encode(), dtype=np.uint8)
        arrays: dict[str, np.ndarray[Any, Any]] = {"scores": figures.scores, "made": figures.made, "reasons": reasons}
        if figures.tables is not None:
            arrays["tables"] = figures.tables
        with atomic_write(self.path / f"{digest}-{number}.npz", force=True) as part, part.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    def digests(self) -> set[str]:
        """Return the digests of the studies that have blocks here."""
        return {name["digest"] for path in self._files() if (name := _NAME.fullmatch(path.name))}

    def discard(self) -> None:
        """Remove all blocks, and the directory if it is then empty."""
        for path in self._files():
            if _NAME.fullmatch(path.name) or _LEFT_OVER.fullmatch(path.name):
                path.unlink(missing_ok=True)
        if self.path.is_dir() and not self._files():
            self.path.rmdir()

    def _files(self) -> list[Path]:
        return list(self.path.iterdir()) if self.path.is_dir() else []

    def _unusable(self, hint: str) -> OutputError:
        return OutputError(
            f"an unfinished study cannot be kept in {self.path.name!r}",
            code="no-checkpoint",
            hint=hint,
            file=str(self.path),
        )


def _read_block(path: Path) -> Figures | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            figures = Figures(
                arrays["scores"],
                arrays["made"],
                tuple(json.loads(arrays["reasons"].tobytes())),
                arrays.get("tables"),
            )
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    return figures if figures.is_consistent else None


class SavedBlocks:
    """The finished blocks of one study in a checkpoint."""

    def __init__(self, checkpoint: CheckpointDirectory, digest: str) -> None:
        self._checkpoint, self._digest = checkpoint, digest
        self._finished = checkpoint.load(digest)

    def find(self, block: Block) -> Figures | None:
        """Return the scores of a block, None if it is not finished."""
        figures = self._finished.get(block.number)
        return figures if figures is not None and len(figures) == block.candidates else None

    def add(self, number: int, figures: Figures) -> None:
        """Save one more block."""
        self._checkpoint.save(self._digest, number, figures)


class BlockRunner:
    """Evaluates groups of candidates in blocks, numbered across calls; finished blocks are looked up in ``saved``."""

    def __init__(self, evaluator: Evaluator, saved: SavedBlocks | None = None, *, threads: int | None = None) -> None:
        self.evaluator = evaluator
        self._saved = saved
        self._threads = threads
        self._blocks = 0

    def evaluate(self, groups: Sequence[Group], progress: Callable[[int], None] | None = None) -> Figures:
        """Return the scores of every replicate. ``progress`` is called with the number of candidates done."""
        prepared = [self.evaluator.prepare(group) for group in groups]
        blocks = _cut_blocks(self.evaluator, prepared, first=self._blocks)
        self._blocks += len(blocks)
        found = {block.number: self._saved.find(block) for block in blocks} if self._saved else {}
        done = {number: figures for number, figures in found.items() if figures is not None}
        counted = sum(map(len, done.values()))
        if progress:
            progress(counted)
        rest = [block for block in blocks if block.number not in done]
        for number, figures in _evaluate_blocks(self.evaluator, prepared, rest, self._threads):
            done[number] = figures
            if self._saved:
                self._saved.add(number, figures)
            counted += len(figures)
            if progress:
                progress(counted)
        return Figures.joined([done[block.number] for block in blocks])


def study_digest(data: Microdata, study: StudySpec, key: Key, *further: str) -> str:
    """Return a digest of question, key and file: a checkpoint is resumed only if its digest is the same.

    It is keyed: a plain hash of a file of few attributes could be found by trial and error.
    """
    digest = hmac.new(keyed.derive(key.secret, "study", "checkpoint"), digestmod="sha256")
    # The objective is left out: another choice can resume from the same scores.
    # So is a scenario that is not stated: unfinished studies of earlier versions can be resumed.
    absent = {"objective"} if study.scenario else {"objective", "scenario"}
    question = json.dumps(study.model_dump(mode="json", exclude=absent), sort_keys=True)
    for part in (keyed.ALGORITHM, str(_BLOCK_COST), question, data.schema.model_dump_json(), str(len(data)), *further):
        digest.update(f"{len(part)}\0{part}".encode())
    digest.update(_bytes(record_identity(data, keyed.derive(key.secret, "identity"))))
    named = [*study.attributes, *study.keys, *(n for c in study.constraints for n in (*c.fixed, *c.differ))]
    whole = study.others or study.vary or study.first or study.last or study.scenario
    every = whole or any(":" in text for text in study.measures)
    for name in data.attributes if every else dict.fromkeys((*data.schema.categorical, *named)):
        coded = data.coded(name)
        digest.update("\0".join([name, *level_texts(coded.levels)]).encode())
        digest.update(_bytes(coded.codes))
    return digest.hexdigest()[:32]


def _bytes(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> memoryview:
    return np.ascontiguousarray(values).view(np.uint8).data


def _cut_blocks(evaluator: Evaluator, groups: list[SwapGroup | Group], *, first: int) -> list[Block]:
    """Divide the work into blocks of about equal cost, whatever the number of threads; ``first`` numbers the first."""
    replicates = evaluator.study.replicates
    costs = [evaluator.cost(group) for group in groups]
    sizes = [len(group.specs) for group in groups]
    blocks: list[Block] = []
    pieces: list[tuple[int, int, int]] = []
    cost = candidates = 0
    for replicate in range(replicates):
        start = 0
        for position in range(len(groups)):
            cost += costs[position]
            candidates += sizes[position]
            if cost >= _BLOCK_COST:
                pieces.append((replicate, start, position + 1))
                blocks.append(Block(first + len(blocks), candidates, tuple(pieces)))
                start, cost, candidates, pieces = position + 1, 0, 0, []
        if start < len(groups):
            pieces.append((replicate, start, len(groups)))
    if pieces:
        blocks.append(Block(first + len(blocks), candidates, tuple(pieces)))
    return blocks


def _evaluate_blocks(
    evaluator: Evaluator, groups: list[SwapGroup | Group], blocks: list[Block], threads: int | None = None
) -> Iterator[tuple[int, Figures]]:
    """Yield the scores of each block as it finishes."""

    def work(block: Block) -> tuple[int, Figures]:
        parts = [evaluator.figures(groups[first:stop], replicate) for replicate, first, stop in block.pieces]
        return block.number, Figures.joined(parts)

    workers = min(threads or os.cpu_count() or 1, len(blocks))
    if workers <= 1:
        yield from map(work, blocks)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: set[Future[tuple[int, Figures]]] = set()
        queue = iter(blocks)
        try:
            while True:
                for block in queue:
                    waiting.add(pool.submit(work, block))
                    if len(waiting) >= 2 * workers:
                        break
                if not waiting:
                    return
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        finally:
            for future in waiting:
                future.cancel()
