"""Files and directories that appear complete or not at all.

Output goes to a hidden neighbour of the target first (same directory, hence same file system), readable by its owner
only, is synced to disk, and is renamed in one step at the end. An error, a full disk or an interrupt before that step
leaves the target as it was and removes the neighbour. Files left by a killed process are removed by the next write to
that directory (:func:`remove_leftovers`).
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safeswap.errors import OutputError, SafeswapError
from safeswap.model.checked import check_types

# Stale files. Each writer has its own hidden prefix beside the target, ``.safeswap-<16 hexadecimal digits>``, for the
# names of all its files, and holds a lock on one of them, ``….lock``, as long as it lives. The operating system
# releases the lock of a dead process, so files whose lock can be acquired have no owner.
#
# Locks of one machine may be invisible to another that shares the file system, or to a container's next host.
# Therefore the lock file records the kernel's boot ID, and only files of the same boot are removed, and only by the
# user who owns them. All others stay until they are removed by hand.

ASIDE = ".aside"
"""The suffix of a directory that is being replaced: the only file that must not be lost."""

_LOCK = re.compile(r"(\.safeswap-[0-9a-f]{16})\.lock")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LONGEST = 4096


@contextmanager
def claim_prefix(target: Path) -> Iterator[Path]:
    """Claim a hidden prefix beside ``target`` for the names of this run's files.

    The caller removes files with this prefix; if the caller is killed, :func:`remove_leftovers` does.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with claim_prefix(Path(folder.name) / "figures.txt") as own:
    ...     own.name[:10], [path.suffix for path in own.parent.iterdir()]
    ('.safeswap-', ['.lock'])
    >>> list(Path(folder.name).iterdir())
    []
    >>> folder.cleanup()
    """
    own = target.parent / f".safeswap-{secrets.token_hex(8)}"
    lock = _lock_path(own)
    if os.name == "nt":  # no such locks there, so nothing is swept
        yield own
        return
    descriptor: int | None = None
    try:
        # Inside the block, since an interrupt before the next line would leave the file.
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        # Written after locking: a file without content is about to be locked by its owner.
        if _try_lock(descriptor, wait=True):
            os.write(descriptor, json.dumps({"boot": _boot_id(), "target": target.name}).encode())
        yield own
    finally:
        if descriptor is None or not _list_owned(own):  # else a later run retries
            lock.unlink(missing_ok=True)
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def working_directory() -> Iterator[Path]:
    """Provide a private temporary directory; removed at the end, or by the next call if the process is killed."""
    place = Path(tempfile.gettempdir()) / "safeswap"
    remove_leftovers(place.parent)
    with claim_prefix(place) as own:
        work = own.with_name(f"{own.name}.work")
        work.mkdir(mode=0o700)
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the files that dead runs left in a directory. Failures are ignored."""
    if os.name == "nt" or not _boot_id():
        return
    with suppress(OSError):
        names = [found[1] for entry in os.scandir(folder) if (found := _LOCK.fullmatch(entry.name))]
        for name in names:
            with suppress(OSError, ValueError):
                _sweep_one(folder / name)


def _sweep_one(own: Path) -> None:
    descriptor = os.open(_lock_path(own), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or not _try_lock(descriptor, wait=False):
            return
        lock = json.loads(os.read(descriptor, _LONGEST) or b"{}")
        if isinstance(lock, dict) and lock.get("boot") == _boot_id():
            _remove(own, lock)
    finally:
        os.close(descriptor)


def _remove(own: Path, lock: dict[str, Any]) -> None:
    """Remove the files with a prefix, the lock last, so that failures are retried later."""
    target = own.parent / Path(str(lock.get("target", ""))).name
    aside = own.with_name(own.name + ASIDE)
    if aside.exists() and not os.path.lexists(target):
        # Killed between two renames: restore the name of the directory that was to be replaced.
        aside.rename(target)
    for path in _list_owned(own):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if not _list_owned(own):
        _lock_path(own).unlink(missing_ok=True)


def _list_owned(own: Path) -> list[Path]:
    lock = _lock_path(own)
    return [path for path in own.parent.iterdir() if path.name.startswith(f"{own.name}.") and path != lock]


def _lock_path(own: Path) -> Path:
    return own.with_name(f"{own.name}.lock")


def _try_lock(descriptor: int, *, wait: bool) -> bool:
    """Try to lock the file; return whether that worked (never on a file system without locks)."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _boot_id() -> str:
    """Return the kernel's boot ID; empty if there is none."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""


PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700

_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


@check_types
@contextmanager
def atomic_write(path: str | os.PathLike[str], *, force: bool = False, mode: int = PRIVATE_FILE) -> Iterator[Path]:
    """Provide a temporary path to write to, and move it to ``path`` when the block ends without an error.

    An existing ``path`` is refused unless ``force``, even if it appears while the block runs. ``mode`` is the
    permissions of the finished file: its owner only by default.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> target = Path(folder.name) / "figures.txt"
    >>> with atomic_write(target) as part:
    ...     _ = part.write_text("42")
    >>> target.read_text(), [p.name for p in Path(folder.name).iterdir()]
    ('42', ['figures.txt'])
    >>> folder.cleanup()
    """
    target = _check_target(path, force=force)
    with _as_output_error(target), claim_prefix(target) as own:
        part = _part_path(own, target)
        try:
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
            yield part
            _sync(part)
            part.chmod(mode)
            _take_name(part, target, force=force)
            _sync_directory(target.parent)
        finally:
            part.unlink(missing_ok=True)


@check_types
@contextmanager
def atomic_directory(
    path: str | os.PathLike[str], *, force: bool = False, marker: str | None = None, mode: int = PRIVATE_DIRECTORY
) -> Iterator[Path]:
    """Provide a temporary directory to fill, and move it to ``path`` when the block ends without an error.

    With ``force`` an existing directory is replaced, but only if it is empty or contains a file called ``marker``: a
    typing mistake must not delete a home directory.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> target = Path(folder.name) / "bundle"
    >>> with atomic_directory(target) as part:
    ...     _ = (part / "data.csv").write_text("x")
    >>> [p.name for p in target.iterdir()]
    ['data.csv']
    >>> folder.cleanup()
    """
    target = _check_target(path, force=force, marker=marker, directory=True)
    with _as_output_error(target), claim_prefix(target) as own:
        part = _part_path(own, target)
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


def _check_target(
    path: str | os.PathLike[str], *, force: bool, marker: str | None = None, directory: bool = False
) -> Path:
    target = Path(path).absolute()
    if not target.parent.is_dir():
        raise OutputError(
            f"the directory of {target.name!r} does not exist",
            code="no-directory",
            hint="create the directory first",
            file=str(target),
        )
    remove_leftovers(target.parent)  # first: it may restore a directory's name
    _refuse_existing(target, force=force, marker=marker, directory=directory)
    return target


def _refuse_existing(target: Path, *, force: bool, marker: str | None, directory: bool) -> None:
    if not os.path.lexists(target):
        return
    if not force:
        raise _exists_error(target)
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


def _exists_error(target: Path) -> OutputError:
    return OutputError(
        f"{target.name!r} exists already",
        code="exists",
        hint="choose another name, or allow overwriting (--force)",
        file=str(target),
    )


def _part_path(own: Path, target: Path) -> Path:
    # The suffix is kept: some writers of statistical formats depend on it.
    suffix = target.suffix if len(target.suffix) < 16 else ""
    return own.with_name(f"{own.name}.part{suffix}")


def _take_name(part: Path, target: Path, *, force: bool) -> None:
    if force:
        part.replace(target)
        return
    try:
        # A hard link, unlike a rename, fails if the name has been taken meanwhile.
        os.link(part, target)
    except FileExistsError:
        raise _exists_error(target) from None
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(target):
            raise _exists_error(target) from None
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
    # A read-only file can still be synced, except on Windows.
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
    """Translate errors of the operating system, or of a writer on top of it, to :class:`OutputError`."""
    try:
        yield
    except SafeswapError:
        raise
    except OSError as error:
        number = _errno_of(error)
        if number in _FULL:
            raise OutputError(
                f"no disk space to write {target.name!r}; nothing was left behind",
                code="disk-full",
                hint="free disk space, or choose another disk",
                file=str(target),
            ) from None
        reason = os.strerror(number) if number else type(error).__name__
        raise OutputError(
            f"{target.name!r} could not be written: {reason}",
            code="write-failed",
            hint="check that the directory is writable",
            file=str(target),
        ) from None


def _errno_of(error: OSError) -> int | None:
    """Return the number of a system error; writers in other languages give it as text."""
    if error.errno is not None:
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None
