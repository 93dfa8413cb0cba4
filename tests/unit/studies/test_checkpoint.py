"""Finished blocks on disk: complete or not at all, and never trusted blindly."""

import numpy as np
import pytest

from safeswap.errors import InputError, OutputError
from safeswap.model.study import Figures
from safeswap.studies.run import CheckpointDirectory

DIGEST = "0123456789abcdef" * 2


def figures(rows: int = 3, *, tables: bool = True) -> Figures:
    rng = np.random.default_rng(rows)
    scores = rng.random((rows, 2))
    scores[0] = np.nan
    return Figures(
        scores,
        np.arange(rows, dtype=np.int64),
        ("zu wenige Paare: 3 < 4",) + ("",) * (rows - 1),
        rng.random((rows, 6, 5)).astype(np.float32) if tables else None,
    )


@pytest.fixture
def kept(tmp_path):
    return CheckpointDirectory(tmp_path / "unfinished")


@pytest.mark.parametrize("tables", [True, False])
def test_what_is_kept_comes_back_bit_by_bit(kept, tables):
    one = figures(tables=tables)
    kept.save(DIGEST, 12, one)
    found = kept.load(DIGEST)
    assert list(found) == [12]
    assert found[12].scores.tobytes() == one.scores.tobytes()
    assert found[12].made.tolist() == one.made.tolist()
    assert found[12].reasons == one.reasons
    assert (found[12].tables is None) == (not tables)
    if tables:
        assert found[12].tables.tobytes() == one.tables.tobytes()


def test_blocks_of_another_study_are_not_seen(kept):
    kept.save(DIGEST, 0, figures())
    assert kept.load("f" * 32) == {}
    assert kept.digests() == {DIGEST}


def test_damaged_blocks_count_as_not_there(kept):
    for number in range(4):
        kept.save(DIGEST, number, figures())
    paths = [kept.path / f"{DIGEST}-{number}.npz" for number in range(4)]
    paths[0].write_bytes(paths[0].read_bytes()[:100])
    paths[1].write_bytes(b"")
    paths[2].write_bytes(paths[2].read_bytes().replace(b"scores", b"scores"[::-1]))
    assert list(kept.load(DIGEST)) == [3]


def test_parts_that_do_not_fit_together_count_as_not_there(kept):
    one = figures()
    kept.save(DIGEST, 0, Figures(one.scores, one.made[:2], one.reasons, one.tables))
    assert kept.load(DIGEST) == {}


def test_nothing_that_could_run_code_is_loaded(kept):
    kept.path.mkdir()
    np.savez(
        kept.path / f"{DIGEST}-0.npz",
        scores=np.array([object()]),
        made=np.zeros(1),
        reasons=np.frombuffer(b'[""]', np.uint8),
    )
    assert kept.digests() == {DIGEST}
    assert kept.load(DIGEST) == {}


def test_discarding_removes_blocks_and_what_a_killed_writer_left_but_nothing_else(kept):
    kept.save(DIGEST, 0, figures())
    (kept.path / ".safeswap-0123456789abcdef.part.npz").write_bytes(b"half")
    (kept.path / "notes.txt").write_text("mine")
    kept.discard()
    assert [path.name for path in kept.path.iterdir()] == ["notes.txt"]
    (kept.path / "notes.txt").unlink()
    kept.discard()
    assert not kept.path.exists()


def test_nothing_is_made_before_there_is_something_to_keep(kept):
    assert kept.load(DIGEST) == {}
    assert kept.digests() == set()
    kept.discard()
    assert not kept.path.exists()


def test_blocks_of_another_study_only_are_an_error_where_they_must_match(kept):
    strict = CheckpointDirectory(kept.path, must_match=True)
    assert strict.load(DIGEST) == {}
    kept.save("f" * 32, 0, figures())
    with pytest.raises(InputError) as refusal:
        strict.load(DIGEST)
    assert refusal.value.code == "other-study"
    kept.save(DIGEST, 3, figures())
    assert list(strict.load(DIGEST)) == [3]


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "no" / "where"):
        with pytest.raises(OutputError) as refusal:
            CheckpointDirectory(path)
        assert refusal.value.code == "no-checkpoint"
