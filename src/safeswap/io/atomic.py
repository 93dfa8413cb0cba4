"""Files and directories that appear complete or not at all.

What is written goes to a hidden neighbour of the target first (same directory, hence same file system), readable by
its owner only, is forced to disk, and takes its name in one step at the end. Whatever happens before that step, an
error, a full disk, an interrupt, leaves the target as it was and removes the neighbour. What a killed process could not
remove goes when something is written to that directory again (:mod:`safeswap.io.leftovers`).
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safeswap.errors import OutputError, SafeswapError
from safeswap.io.leftovers import ASIDE, claimed, sweep
from safeswap.model.checked import checked

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700

_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


@checked
@contextmanager
def atomic_write(path: str | os.PathLike[str], *, force: bool = False, mode: int = PRIVATE_FILE) -> Iterator[Path]:
    """Give a temporary path to write to, and move it to ``path`` when the block ends without an error.

    An existing ``path`` is refused unless ``force``; one that appears while the block runs is refused too. ``mode``
    are the permissions of the finished file: its owner's alone unless stated otherwise.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> target = Path(folder.name) / "figures.txt"
    >>> with atomic_write(target) as part:
    ...     _ = part.write_text("42")
    >>> target.read_text(), [p.name for p in Path(folder.name).iterdir()]
    ('42', ['figures.txt'])
    >>> folder.cleanup()
    """
    target = _checked_target(path, force=force)
    with _as_output_error(target), claimed(target) as own:
        part = _neighbour(own, target)
        try:
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
            yield part
            _sync(part)
            part.chmod(mode)
            _take_name(part, target, force=force)
            _sync_directory(target.parent)
        finally:
            part.unlink(missing_ok=True)


@checked
@contextmanager
def atomic_directory(
    path: str | os.PathLike[str], *, force: bool = False, marker: str | None = None, mode: int = PRIVATE_DIRECTORY
) -> Iterator[Path]:
    """Give a temporary directory to fill, and move it to ``path`` when the block ends without an error.

    With ``force`` an existing directory is replaced, but only if it is empty or holds a file called ``marker``: a
    slip of the pen must not cost somebody a home directory.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> target = Path(folder.name) / "bundle"
    >>> with atomic_directory(target) as part:
    ...     _ = (part / "data.csv").write_text("x")
    >>> [p.name for p in target.iterdir()]
    ['data.csv']
    >>> folder.cleanup()
    """
    target = _checked_target(path, force=force, marker=marker, directory=True)
    with _as_output_error(target), claimed(target) as own:
        part = _neighbour(own, target)
        try:
            part.mkdir(mode=PRIVATE_DIRECTORY)
            yield part
            _sync_tree(part)
            part.chmod(mode)
            _refuse_existing(target, force=force, marker=marker, directory=True)
            _take_directory_name(part, target, aside=own.with_name(own.name + ASIDE))
            _sync_directory(target.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _checked_target(
    path: str | os.PathLike[str], *, force: bool, marker: str | None = None, directory: bool = False
) -> Path:
    target = Path(path).absolute()
    if not target.parent.is_dir():
        raise OutputError(
            f"the directory of {target.name!r} does not exist",
            code="no-directory",
            hint="make the directory first",
            file=str(target),
        )
    sweep(target.parent)  # first: it may give a directory its name back
    _refuse_existing(target, force=force, marker=marker, directory=directory)
    return target


def _refuse_existing(target: Path, *, force: bool, marker: str | None, directory: bool) -> None:
    if not os.path.lexists(target):
        return
    if not force:
        raise _exists(target)
    is_directory = target.is_dir() and not target.is_symlink()
    if is_directory != directory:
        found = "a directory" if is_directory else "a file"
        raise OutputError(
            f"{target.name!r} exists and is {found}", code="exists", hint="choose another name", file=str(target)
        )
    if directory and any(target.iterdir()) and not (marker and (target / marker).is_file()):
        raise OutputError(
            f"the directory {target.name!r} holds something else and is not replaced",
            code="exists",
            hint="choose another name, or remove the directory yourself",
            file=str(target),
        )


def _exists(target: Path) -> OutputError:
    return OutputError(
        f"{target.name!r} exists already",
        code="exists",
        hint="choose another name, or allow overwriting (--force)",
        file=str(target),
    )


def _neighbour(own: Path, target: Path) -> Path:
    # The suffix stays: some writers of statistical formats go by it.
    suffix = target.suffix if len(target.suffix) < 16 else ""
    return own.with_name(f"{own.name}.part{suffix}")


def _take_name(part: Path, target: Path, *, force: bool) -> None:
    if force:
        part.replace(target)
        return
    try:
        # A hard link, unlike a rename, fails when the name has been taken meanwhile.
        os.link(part, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(target):
            raise _exists(target) from None
        part.rename(target)


def _take_directory_name(part: Path, target: Path, *, aside: Path) -> None:
    if not target.exists():
        part.rename(target)
        return
    try:
        target.rename(aside)
        part.rename(target)
    except BaseException:
        if aside.exists() and not target.exists():
            aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _sync(path: Path) -> None:
    # A file that its writer has made read-only can still be synced, except on Windows.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    if os.name == "nt":  # directories cannot be opened there, and renames are journalled
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems refuse to sync a directory
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(root: Path) -> None:
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            path = Path(folder) / name
            if stat.S_ISREG(path.lstat().st_mode):
                _sync(path)
        _sync_directory(Path(folder))


@contextmanager
def _as_output_error(target: Path) -> Iterator[None]:
    """Say in our own words what the operating system, or a writer on top of it, said in its own."""
    try:
        yield
    except SafeswapError:
        raise
    except OSError as error:
        number = _number(error)
        if number in _FULL:
            raise OutputError(
                f"there is no room to write {target.name!r}; nothing was left behind",
                code="disk-full",
                hint="make room or choose another disk",
                file=str(target),
            ) from None
        reason = os.strerror(number) if number else type(error).__name__
        raise OutputError(
            f"{target.name!r} could not be written: {reason}",
            code="write-failed",
            hint="check that the directory may be written to",
            file=str(target),
        ) from None


def _number(error: OSError) -> int | None:
    """The number of a system error; writers in other languages give it in words."""
    if error.errno is not None:
        return error.errno
    told = re.search(r"\(os error (\d+)\)", str(error))
    return int(told[1]) if told else None
