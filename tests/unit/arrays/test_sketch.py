"""The lowest cells of every view, against a count by dictionary; and what must not matter."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.arrays.sketch import CELLS, Columns, LevelCodes, Sketch, choose_columns, sketch_blocks, sketch_words


def random_words(seed: int, records: int, levels: list[int]) -> np.ndarray:
    rng = np.random.default_rng(seed)
    palette = rng.integers(1, 2**63, (len(levels), 5000)).astype(np.uint64)
    return np.stack([palette[column, rng.integers(0, number, records)] for column, number in enumerate(levels)])


def lists(sketch: Sketch) -> list[list[tuple[int, int]]]:
    """The cells of every view with their counts, whatever the order of the views."""
    pairs = zip(sketch.cells.tolist(), sketch.counts.tolist(), strict=True)
    return sorted([(cell, count) for cell, count in zip(*row, strict=True) if count] for row in pairs)


@given(
    st.integers(0, 10**6), st.integers(1, 900), st.lists(st.sampled_from([1, 2, 3, 9, 40, 400]), min_size=1, max_size=6)
)
def test_the_counts_are_those_of_the_combinations_that_occur(seed, records, levels):
    words = random_words(seed, records, levels)
    sketch = sketch_words(words, list(words))
    for view, counts, ceiling in zip(sketch.views, sketch.counts, sketch.ceilings, strict=True):
        cells = Counter(map(tuple, words[view[view >= 0]].T.tolist()))
        kept = Counter(counts[counts > 0].tolist())
        assert sum(kept.values()) == min(CELLS, len(cells))
        assert not kept - Counter(cells.values())
        if len(cells) <= CELLS:
            assert kept == Counter(cells.values())
            assert int(ceiling) == 2**64 - 1


@given(st.integers(0, 10**6), st.integers(2, 700))
def test_neither_the_order_of_records_nor_that_of_columns_matters(seed, records):
    words = random_words(seed, records, [2, 5, 30, 300, 4])
    rng = np.random.default_rng(seed)
    moved = words[rng.permutation(len(words))][:, rng.permutation(records)]
    assert lists(sketch_words(words, list(words))) == lists(sketch_words(moved, list(moved)))


def test_a_large_file_gives_the_same_cells_as_its_chunks_counted_one_by_one():
    words = random_words(1, 60_000, [3, 50, 2000])
    sketch = sketch_words(words, [column[:4096] for column in words])
    rows = {tuple(view[view >= 0].tolist()): place for place, view in enumerate(sketch.views)}
    for view, place in rows.items():
        cells = Counter(map(tuple, words[list(view)].T.tolist()))
        assert not Counter(sketch.counts[place].tolist()) - Counter(cells.values())


def test_a_file_without_varied_columns_has_an_empty_sketch():
    assert choose_columns([np.ones(4, np.uint64)]) == []
    assert len(sketch_words(np.empty((0, 4), np.uint64), []).views) == 0


@pytest.mark.parametrize("columns", [1, 16])
def test_a_view_has_at_most_eight_columns(columns):
    words = random_words(2, 500, [2] * columns)
    sketch = sketch_words(words, list(words))
    assert len(sketch.views) >= 1
    assert (sketch.views >= 0).sum(axis=1).max() <= 8


def test_sketches_of_several_files_in_blocks_are_those_of_each_file_alone() -> None:
    words = random_words(7, 6000, [2, 5, 16, 50, 400, 5000])
    masked = words.copy()
    masked[2, :900] = masked[2, :900][::-1]
    rows = np.vstack([words, masked[2:3]])
    blocks = [rows[:, start : start + 2500].copy() for start in range(0, 6000, 2500)]
    order = [4, 1, 2, 0, 5, 3]  # the second file lists its columns in another order
    files = [
        Columns(list(words[:, :4096]), range(6)),
        Columns(list(masked[order, :4096]), [6 if column == 2 else column for column in order]),
    ]
    alone = [sketch_words(words, files[0].samples), sketch_words(masked[order], files[1].samples)]
    assert not np.array_equal(alone[0].cells, alone[1].cells)
    for made, expected in zip(sketch_blocks(blocks, 6000, files), alone, strict=True):
        for one, other in zip(made, expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("seed", range(12))
def test_views_counted_by_codes_are_those_counted_record_by_record(seed, monkeypatch):
    monkeypatch.setattr("safeswap.arrays.sketch._LARGE", 0)
    rng = np.random.default_rng(seed)
    records, levels = int(rng.integers(1, 20_000)), rng.choice([1, 2, 3, 9, 40, 400, 5000], 6)
    # Levels that do not occur, and levels with the same word: two spellings of a number.
    palettes = [rng.choice(rng.integers(0, 2**64, number + 2, np.uint64), number + 2) for number in levels]
    codes = [rng.integers(0, number, records).astype(np.uint16) for number in levels]
    words = np.stack([palette[column] for palette, column in zip(palettes, codes, strict=True)])
    files = [Columns([column[:4096] for column in words[rows]], list(rows)) for rows in ([0, 1, 2, 3], [5, 0, 4, 2])]
    coded = {row: LevelCodes(codes[row], palettes[row]) for row in range(6) if row != 1}
    blocks = [words[:, start : start + 7000] for start in range(0, records, 7000)]
    plain, quick = sketch_blocks(blocks, records, files), sketch_blocks(blocks, records, files, coded)
    for one, other in zip(plain, quick, strict=True):
        assert all(
            np.array_equal(*pair) and np.asarray(pair[0]).dtype == np.asarray(pair[1]).dtype
            for pair in zip(one, other, strict=True)
        )
