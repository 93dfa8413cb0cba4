"""Random classes of records, and the most pairs among them by an algorithm on single records."""

from __future__ import annotations

import networkx as nx
import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Case = tuple[Counts, Counts, Counts]


def maximum_by_records(strata: Counts, coordinates: Counts, counts: Counts) -> int:
    """Edmonds' blossom algorithm on the graph of the records themselves."""
    members = [c for c, count in enumerate(counts.tolist()) for _ in range(count)]
    graph = nx.Graph()
    for i, a in enumerate(members):
        for j, b in enumerate(members[:i]):
            if strata[a] == strata[b] and (coordinates[a] != coordinates[b]).all():
                graph.add_edge(i, j)
    return len(nx.max_weight_matching(graph, maxcardinality=True))


def counted(strata: Counts, labels: Counts) -> Case:
    """The classes of these records."""
    names, counts = np.unique(np.column_stack([strata, labels]), axis=0, return_counts=True)
    return names[:, 0].astype(np.int64), names[:, 1:].astype(np.int64), counts.astype(np.int64)


def small_case(seed: int) -> Case:
    """At most forty records with two to six attributes, crowded more or less, in at most three strata."""
    rng = np.random.default_rng(seed)
    records, width, levels = int(rng.integers(2, 41)), int(rng.integers(2, 7)), int(rng.integers(2, 6))
    crowd = rng.dirichlet(np.full(levels, rng.choice([0.4, 1.0, 5.0])))
    labels = np.stack([rng.choice(levels, size=records, p=crowd) for _ in range(width)], axis=1)
    if rng.random() < 0.3:
        # Few kinds of records, many of each: what two copies of a kind stand for.
        labels = labels[rng.integers(0, min(records, 6), records)]
    return counted(rng.integers(0, rng.integers(1, 4), records), labels)


def wide_case(seed: int) -> Case:
    """Some 200 to 300 records with seven or eight attributes of three levels: nearly as many classes as records."""
    rng = np.random.default_rng(seed)
    records, width = int(rng.integers(200, 301)), int(rng.integers(7, 9))
    crowd = rng.dirichlet([6.0, 4.0, 3.0])
    labels = np.stack([rng.choice(3, size=records, p=crowd) for _ in range(width)], axis=1)
    return counted(np.zeros(records, dtype=np.int64), labels)


def seven_columns() -> Counts:
    """700 records with seven attributes of three levels, of which 350 pairs can be made that differ in all seven."""
    rng = np.random.default_rng(3)
    return np.stack([rng.choice(3, size=700, p=[0.45, 0.3, 0.25]) for _ in range(7)], axis=1).astype(np.int64)
