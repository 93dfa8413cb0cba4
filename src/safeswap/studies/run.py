"""Run a study: all candidates, on all cores, in blocks that can be checkpointed.

The scores of a candidate are a pure function of data, study, key and replicate; they do not depend on the thread or
session that computes a block.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Callable, Iterator
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
from safeswap.studies.evaluate import Evaluator, Group
from safeswap.studies.prepare import check, grid
from safeswap.studies.quick import SwapGroup
from safeswap.studies.study import Study
from safeswap.studies.table import study_of

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
    checked = check(data, study)
    groups = grid(data, study)
    total = sum(len(group.specs) for group in groups) * study.replicates
    evaluator = Evaluator(data, study, key, candidates=total, measures=list(checked.measures.values()))
    prepared = [evaluator.prepare(group) for group in groups]
    blocks = cut_blocks(evaluator, prepared, study.replicates)
    digest = study_digest(data, study, key) if checkpoint else ""
    finished = checkpoint.load(digest) if checkpoint else {}
    done = {block.number: finished[block.number] for block in blocks if _fits(block, finished)}
    counted = sum(len(figures) for figures in done.values())
    if progress:
        progress(counted, total)
    for number, figures in evaluate_blocks(evaluator, prepared, [b for b in blocks if b.number not in done], threads):
        done[number] = figures
        if checkpoint:
            checkpoint.save(digest, number, figures)
        counted += len(figures)
        if progress:
            progress(counted, total)
    figures = Figures.joined([done[block.number] for block in blocks])
    return study_of(study, evaluator, groups, figures, checked.before)


def study_digest(data: Microdata, study: StudySpec, key: Key, *further: str) -> str:
    """Return a digest of question, key and file: a checkpoint is resumed only if its digest is the same.

    It is keyed: a plain hash of a file of few attributes could be found by trial and error.
    """
    digest = hmac.new(keyed.derive(key.secret, "study", "checkpoint"), digestmod="sha256")
    # The objective is left out: another choice can resume from the same scores.
    question = json.dumps(study.model_dump(mode="json", exclude={"objective"}), sort_keys=True)
    for part in (keyed.ALGORITHM, str(_BLOCK_COST), question, data.schema.model_dump_json(), str(len(data)), *further):
        digest.update(f"{len(part)}\0{part}".encode())
    digest.update(_bytes(record_identity(data, keyed.derive(key.secret, "identity"))))
    named = [*study.attributes, *study.keys, *(n for c in study.constraints for n in (*c.fixed, *c.differ))]
    every = study.others or any(":" in text for text in study.measures)
    for name in data.attributes if every else dict.fromkeys((*data.schema.categorical, *named)):
        coded = data.coded(name)
        digest.update("\0".join([name, *level_texts(coded.levels)]).encode())
        digest.update(_bytes(coded.codes))
    return digest.hexdigest()[:32]


def _bytes(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> memoryview:
    return np.ascontiguousarray(values).view(np.uint8).data


def cut_blocks(evaluator: Evaluator, groups: list[SwapGroup | Group], replicates: int) -> list[Block]:
    """Divide the work into blocks of about equal cost, whatever the number of threads."""
    costs = [evaluator.cost(group) for group in groups]
    sizes = [len(group.specs) for group in groups]
    blocks: list[Block] = []
    pieces: list[tuple[int, int, int]] = []
    cost = candidates = 0
    for replicate in range(replicates):
        first = 0
        for position in range(len(groups)):
            cost += costs[position]
            candidates += sizes[position]
            if cost >= _BLOCK_COST:
                pieces.append((replicate, first, position + 1))
                blocks.append(Block(len(blocks), candidates, tuple(pieces)))
                first, cost, candidates, pieces = position + 1, 0, 0, []
        if first < len(groups):
            pieces.append((replicate, first, len(groups)))
    if pieces:
        blocks.append(Block(len(blocks), candidates, tuple(pieces)))
    return blocks


def evaluate_blocks(
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


def _fits(block: Block, finished: dict[int, Figures]) -> bool:
    return block.number in finished and len(finished[block.number]) == block.candidates
