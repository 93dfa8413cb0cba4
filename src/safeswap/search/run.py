"""Run a study: all candidates, on all cores, in blocks that can be kept and gone on from.

The figures of a candidate are a pure function of data, study, key and replicate; which thread computes a block, and in
which session, plays no part.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from safeswap import registry
from safeswap.errors import SpecError
from safeswap.kernels import keyed
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.spec import Names
from safeswap.model.study import ConstraintSet, StudySpec
from safeswap.search.evaluate import Evaluator, Figures, Group
from safeswap.search.study import Study, study_of

MOST_CANDIDATES = 2_000_000
"""Above this a grid is refused: the count is stated and a search offered instead."""

Progress = Callable[[int, int], None]
"""Called with the number of candidates done and the number of all."""


@dataclass(frozen=True, eq=False)
class Block:
    """The figures of all groups in one replicate."""

    replicate: int
    scores: npt.NDArray[np.float64]
    made: npt.NDArray[np.int64]
    reasons: tuple[str, ...]
    tables: npt.NDArray[np.float32] | None


class Checkpoint(Protocol):
    """Where finished blocks are kept, so that a study that was stopped goes on where it was."""

    def finished(self, digest: str) -> dict[int, Block]:
        """The blocks kept so far for the study of this digest."""
        ...

    def keep(self, digest: str, block: Block) -> None:
        """Keep one more."""
        ...


def prepare(data: Microdata, study: StudySpec) -> tuple[tuple[Group, ...], Names]:
    """Check everything that can be checked before anything runs; the groups, and the attributes that may be swapped.

    >>> from safeswap import datasets
    >>> groups, names = prepare(datasets.cps8d(), StudySpec())
    >>> len(groups), len(names)
    (36, 8)
    """
    names = study.attributes or data.schema.categorical
    constrained = [name for c in study.constraints for name in (*c.fixed, *c.differ)]
    for name in (*names, *constrained, *study.keys):
        data.schema[name]
    for text, axis in [*((m, "risk") for m in study.risk), *((m, "distortion") for m in study.distortion)]:
        measure = registry.measure(text)
        if measure.axis.value != axis:
            raise SpecError(
                f"{text!r} measures {measure.axis.value}, not {axis}",
                code="wrong-axis",
                hint=f"state it under {measure.axis.value}",
            )
    total = study.number_of_candidates(names)
    if total == 0:
        raise SpecError(
            "the study has no candidate",
            code="empty-study",
            hint="name at least one attribute that may be swapped and is not held fixed or made to differ",
        )
    if total > MOST_CANDIDATES:
        raise SpecError(
            f"the study has {total:,} candidates, more than {MOST_CANDIDATES:,}",
            code="study-too-large",
            hint="swap fewer attributes together, name fewer attributes, or search: `search(...)`, `--search BUDGET`",
            candidates=total,
        )
    groups = [_swap_group(study, chosen, constraint) for chosen, constraint in study.groups(names)]
    groups += [Group(specs=(registry.make_spec(spec),)) for spec in study.others]
    return tuple(groups), names


def _swap_group(study: StudySpec, names: Names, constraint: ConstraintSet) -> Group:
    specs = tuple(study.swap_spec(names, constraint, rate) for rate in study.rates)
    return Group(specs=specs, labels=names, constraint=constraint)


def run_study(
    data: Microdata,
    study: StudySpec,
    *,
    key: Key,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    threads: int | None = None,
) -> Study:
    """All candidates of the study with their figures.

    >>> from safeswap import datasets
    >>> study = run_study(datasets.cps8d(), StudySpec(attributes=("Race", "Sex"), up_to=1), key=Key.insecure(seed=1))
    >>> len(study)
    6
    """
    groups, _ = prepare(data, study)
    evaluator = Evaluator(data, study, key)
    digest = study_digest(data, study, key)
    done = checkpoint.finished(digest) if checkpoint else {}
    per_block = sum(len(group.specs) for group in groups)
    if progress:
        progress(per_block * len(done), per_block * study.replicates)
    for block in _blocks(evaluator, groups, [r for r in range(study.replicates) if r not in done], threads):
        done[block.replicate] = block
        if checkpoint:
            checkpoint.keep(digest, block)
        if progress:
            progress(per_block * len(done), per_block * study.replicates)
    ordered = [done[r] for r in range(study.replicates)]
    return study_of(study, key, evaluator, groups, ordered)


def study_digest(data: Microdata, study: StudySpec, key: Key) -> str:
    """What a checkpoint must agree in to be gone on from: the question, the key, and the file as far as it is coded."""
    keys = study.keys or data.schema.categorical
    columns = hashlib.sha256()
    for name in keys:
        coded = data.coded(name)
        columns.update(f"{name}\0{coded.cardinality}\0".encode())
        columns.update(np.ascontiguousarray(coded.codes).view(np.uint8).data)
    question = json.dumps(study.model_dump(mode="json"), sort_keys=True)
    parts = (keyed.ALGORITHM, key.id, data.schema.name, str(len(data)), columns.hexdigest(), question)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _blocks(
    evaluator: Evaluator, groups: tuple[Group, ...], replicates: list[int], threads: int | None
) -> Iterator[Block]:
    """Blocks as they are finished: replicates side by side, or the groups of a single one."""
    workers = threads or os.cpu_count() or 1
    if not replicates:
        return
    if len(replicates) < workers:
        for replicate in replicates:
            yield _block(replicate, _side_by_side(evaluator, groups, replicate, workers))
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: set[Future[Block]] = set()
        queue = iter(replicates)
        try:
            while True:
                for replicate in queue:
                    waiting.add(pool.submit(_evaluated, evaluator, groups, replicate))
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


def _evaluated(evaluator: Evaluator, groups: tuple[Group, ...], replicate: int) -> Block:
    return _block(replicate, evaluator.evaluate(groups, replicate))


def _side_by_side(evaluator: Evaluator, groups: tuple[Group, ...], replicate: int, workers: int) -> list[Figures]:
    if workers == 1 or len(groups) < 2 * workers:
        return evaluator.evaluate(groups, replicate)
    parts = [groups[i::workers] for i in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(lambda part: evaluator.evaluate(part, replicate), parts))
    return [found[i % workers][i // workers] for i in range(len(groups))]


def _block(replicate: int, figures: list[Figures]) -> Block:
    tables = None
    if all(f.tables is not None for f in figures):
        tables = np.concatenate([f.tables for f in figures if f.tables is not None])
    return Block(
        replicate,
        np.concatenate([f.scores for f in figures]),
        np.concatenate([f.made for f in figures]),
        tuple(reason for f in figures for reason in f.reasons),
        tables,
    )
