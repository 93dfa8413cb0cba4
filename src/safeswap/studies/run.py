"""Run a study: all candidates, on all cores, in blocks that can be checkpointed.

The scores of a candidate are a pure function of data, study, key and replicate; they do not depend on the thread or
session that computes a block.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from safeswap.arrays import keyed
from safeswap.engines.identity import record_identity
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.schema import level_texts
from safeswap.model.study import Figures, StudySpec
from safeswap.studies.evaluate import Evaluator, FixedSteps, Group, measure_frontier, study_of
from safeswap.studies.prepare import check, grid
from safeswap.studies.quick import SwapGroup
from safeswap.studies.study import Study

_BLOCK_COST = 4_000_000  # records read; about a tenth of a second

Progress = Callable[[int, int], None]
"""Called with the number of candidates done and the total."""


class Checkpoint(Protocol):
    """Storage of finished blocks, from which an interrupted study resumes."""

    def load(self, digest: str) -> dict[int, Figures]:
        """Return the finished blocks of the study with this digest, by number."""
        ...

    def save(self, digest: str, number: int, figures: Figures) -> None:
        """Save one finished block."""
        ...


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
    checkpoint: Checkpoint | None = None,
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


class SavedBlocks:
    """The finished blocks of one study in a checkpoint."""

    def __init__(self, checkpoint: Checkpoint, digest: str) -> None:
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
        parts = [evaluator.figures(groups[i], r) for r, first, stop in block.pieces for i in range(first, stop)]
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
