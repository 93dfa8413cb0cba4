"""Outputs appear complete or not at all."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from safeswap.errors import OutputError
from safeswap.files.atomic import atomic_directory, atomic_write

posix_only = pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_finished_block_leaves_one_complete_file(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "out.csv") as part:
        assert part.parent == tmp_path
        assert part.suffix == ".csv"
        part.write_bytes(b"all of it")
        assert not (tmp_path / "out.csv").exists()
    assert names(tmp_path) == ["out.csv"]
    assert (tmp_path / "out.csv").read_bytes() == b"all of it"


@posix_only
def test_the_file_is_its_owners_alone_unless_stated_otherwise(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "private") as part:
        assert stat.S_IMODE(part.stat().st_mode) == 0o600
    with atomic_write(tmp_path / "public", mode=0o444) as part:
        assert stat.S_IMODE(part.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "public").stat().st_mode) == 0o444


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_any_exception_leaves_nothing_and_passes_through(tmp_path: Path, failure: type[BaseException]) -> None:
    with pytest.raises(failure), atomic_write(tmp_path / "out") as part:
        part.write_text("half")
        raise failure
    assert names(tmp_path) == []


def test_an_existing_file_is_refused_and_kept(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("old")
    with pytest.raises(OutputError) as caught, atomic_write(target):
        raise AssertionError("the block must not run")
    assert caught.value.code == "exists"
    assert target.read_text() == "old"


def test_a_file_that_appears_meanwhile_is_refused_and_kept(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with pytest.raises(OutputError) as caught, atomic_write(target) as part:
        part.write_text("mine")
        target.write_text("theirs")
    assert caught.value.code == "exists"
    assert names(tmp_path) == ["out"]
    assert target.read_text() == "theirs"


def test_a_dangling_link_counts_as_existing(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError), atomic_write(tmp_path / "out"):
        pass


def test_force_replaces_a_file_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("old")
    with pytest.raises(ValueError, match="no"), atomic_write(target, force=True) as part:
        part.write_text("half")
        raise ValueError("no")
    assert target.read_text() == "old"
    with atomic_write(target, force=True) as part:
        part.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"


def test_force_does_not_replace_a_directory_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputError) as caught, atomic_write(tmp_path / "out", force=True):
        pass
    assert caught.value.code == "exists"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught, atomic_write(tmp_path / "none" / "out"):
        pass
    assert caught.value.code == "no-directory"


def test_where_hard_links_do_not_exist_a_rename_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    with atomic_write(tmp_path / "out") as part:
        part.write_text("x")
    assert names(tmp_path) == ["out"]
    with pytest.raises(OutputError), atomic_write(tmp_path / "out2") as part:
        (tmp_path / "out2").write_text("theirs")
    assert (tmp_path / "out2").read_text() == "theirs"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_said_plainly_and_leaves_nothing(tmp_path: Path, number: int) -> None:
    with pytest.raises(OutputError) as caught, atomic_write(tmp_path / "out") as part:
        part.write_text("half")
        raise OSError(number, os.strerror(number))
    assert caught.value.code == "disk-full"
    assert names(tmp_path) == []


def test_a_real_write_beyond_the_limit_leaves_nothing(tmp_path: Path) -> None:
    # A process that may write 4 kB only: the operating system itself refuses the rest.
    program = (
        "import sys\nfrom pathlib import Path\nfrom safeswap.errors import OutputError\n"
        "from safeswap.files.atomic import atomic_write\n"
        "try:\n"
        "    with atomic_write(Path(sys.argv[1])) as part:\n"
        "        part.write_bytes(b'x' * 100_000)\n"
        "except OutputError as error:\n"
        "    print(error.code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert done.stdout.strip() == "disk-full"
    assert names(tmp_path) == []


def test_other_troubles_of_the_system_become_output_errors(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught, atomic_write(tmp_path / "out"):
        raise OSError(errno.EIO, "the disk said: value 4711 of record 12")
    assert caught.value.code == "write-failed"
    assert "4711" not in str(caught.value)


def test_a_directory_appears_at_once(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "bundle") as part:
        (part / "inner").mkdir()
        (part / "inner" / "a").write_text("a")
        (part / "b").write_text("b")
        (part / "b").chmod(0o444)
        assert not (tmp_path / "bundle").exists()
    assert names(tmp_path) == ["bundle"]
    assert names(tmp_path / "bundle") == ["b", "inner"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_an_interrupted_directory_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    with pytest.raises(failure), atomic_directory(tmp_path / "bundle") as part:
        (part / "a").write_text("a")
        raise failure
    assert names(tmp_path) == []


def test_an_existing_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    with pytest.raises(OutputError) as caught, atomic_directory(tmp_path / "bundle"):
        pass
    assert caught.value.code == "exists"


def test_force_replaces_only_a_directory_that_bears_the_marker(tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    target.mkdir()
    (target / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError), atomic_directory(target, force=True, marker="manifest.json"):
        pass
    assert names(target) == ["thesis.tex"]
    (target / "manifest.json").write_text("{}")
    with atomic_directory(target, force=True, marker="manifest.json") as part:
        (part / "new").write_text("new")
    assert names(tmp_path) == ["bundle"]
    assert names(target) == ["new"]


def test_a_replaced_directory_comes_back_when_the_swap_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "bundle"
    target.mkdir()
    (target / "manifest.json").write_text("{}")
    rename = Path.rename

    def fail_on_part(self: Path, to: Path) -> Path:
        if to == target and (self / "new").exists():
            raise KeyboardInterrupt
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fail_on_part)
    with pytest.raises(KeyboardInterrupt), atomic_directory(target, force=True, marker="manifest.json") as part:
        (part / "new").write_text("new")
    assert names(target) == ["manifest.json"]
    assert names(tmp_path) == ["bundle"]
