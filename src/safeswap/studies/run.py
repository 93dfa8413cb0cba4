"""Run a study: all candidates, on all cores, in blocks that can be kept and gone on from.

The figures of a candidate are a pure function of data, study, key and replicate; which thread computes a block, and in
which session, plays no part.
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

_BLOCK_COST = 4_000_000  # records looked at; a tenth of a second or so

Progress = Callable[[int, int], None]
"""Called with the number of candidates done and the number of all."""


class Checkpoint(Protocol):
    """Where finished blocks are kept, so that a study that was stopped goes on where it was."""

    def finished(self, digest: str) -> dict[int, Figures]:
        """The blocks kept so far for the study of this digest, by number."""
        ...

    def keep(self, digest: str, number: int, figures: Figures) -> None:
        """Keep one more."""
        ...


@dataclass(frozen=True)
class Block:
    """A stretch of neighbouring candidates: (replicate, first group, group after the last) one after the other."""

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
    """All candidates of the study with their figures.

    >>> from safeswap import datasets
    >>> study = run_study(datasets.cps8d(), StudySpec(attributes=("Race", "Sex"), up_to=1), key=Key.insecure(seed=1))
    >>> len(study)
    6
    """
    checked = check(data, study)
    groups = grid(data, study)
    total = sum(len(group.specs) for group in groups) * study.replicates
    evaluator = Evaluator(data, study, key, candidates=total, measures=list(checked.measures.values()))
    prepared = [evaluator.prepared(group) for group in groups]
    blocks = cut(evaluator, prepared, study.replicates)
    digest = study_digest(data, study, key) if checkpoint else ""
    finished = checkpoint.finished(digest) if checkpoint else {}
    done = {block.number: finished[block.number] for block in blocks if _fits(block, finished)}
    counted = sum(len(figures) for figures in done.values())
    if progress:
        progress(counted, total)
    for number, figures in evaluated(evaluator, prepared, [b for b in blocks if b.number not in done], threads):
        done[number] = figures
        if checkpoint:
            checkpoint.keep(digest, number, figures)
        counted += len(figures)
        if progress:
            progress(counted, total)
    figures = Figures.joined([done[block.number] for block in blocks])
    return study_of(study, evaluator, groups, figures, checked.before)


def study_digest(data: Microdata, study: StudySpec, key: Key, *further: str) -> str:
    """What a checkpoint must agree in to be gone on from: the question, the key and the file.

    Made under a key of its own: a plain hash of a file of few attributes could be searched for.
    """
    digest = hmac.new(keyed.derive(key.secret, "study", "checkpoint"), digestmod="sha256")
    # How one is chosen plays no part: another objective goes on with the same figures.
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


def cut(evaluator: Evaluator, groups: list[SwapGroup | Group], replicates: int) -> list[Block]:
    """Blocks of about the same work, the same whatever the number of threads."""
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


def evaluated(
    evaluator: Evaluator, groups: list[SwapGroup | Group], blocks: list[Block], threads: int | None = None
) -> Iterator[tuple[int, Figures]]:
    """The figures of each block, as they are finished."""

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
