"""What a killed run leaves behind, and how a later run knows that it may go.

Whoever writes has a hidden name of its own beside the target, ``.safeswap-<16 hexadecimal digits>``, with which the
names of all its files begin, and holds a lock on one of them, ``….lock``, as long as it lives. The operating system
takes the lock from a process that dies, whatever it dies of: what bears a lock that can be had belongs to nobody.

Locks of one machine need not be seen by another that shares the file system, nor by a container's next host. Therefore
the file says since when the machine runs, as the kernel's random number of this start, and only what the same start has
left behind is touched, and only by the user whom it belongs to. All else stays until somebody removes it by hand.
"""

from __future__ import annotations

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

ASIDE = ".aside"
"""How the name ends of a directory that makes way for a new one: the only thing that must not be lost."""

_LOCK = re.compile(r"(\.safeswap-[0-9a-f]{16})\.lock")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LONGEST = 4096


@contextmanager
def claimed(target: Path) -> Iterator[Path]:
    """A hidden name beside ``target`` with which names may begin that belong to this run.

    What begins with it is the caller's to remove; should the caller be killed, :func:`sweep` does.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with claimed(Path(folder.name) / "figures.txt") as own:
    ...     own.name[:10], [path.suffix for path in own.parent.iterdir()]
    ('.safeswap-', ['.lock'])
    >>> list(Path(folder.name).iterdir())
    []
    >>> folder.cleanup()
    """
    own = target.parent / f".safeswap-{secrets.token_hex(8)}"
    lock = _lock_of(own)
    if os.name == "nt":  # there are no such locks there, so nothing is swept
        yield own
        return
    descriptor: int | None = None
    try:
        # Within the block, since an interrupt may come before the next line: the file would stay.
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        # Said after it is locked: a file without these words is one whose owner is about to lock it.
        if _locked(descriptor, wait=True):
            os.write(descriptor, json.dumps({"boot": _boot(), "target": target.name}).encode())
        yield own
    finally:
        if descriptor is None or not _beginning_with(own):  # else a later run has another try
            lock.unlink(missing_ok=True)
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def working_directory() -> Iterator[Path]:
    """A private directory among the system's temporary files; it goes at the end, or with the next call if killed."""
    place = Path(tempfile.gettempdir()) / "safeswap"
    sweep(place.parent)
    with claimed(place) as own:
        work = own.with_name(f"{own.name}.work")
        work.mkdir(mode=0o700)
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what runs that are dead have left in a directory. A failure is none of the caller's concern."""
    if os.name == "nt" or not _boot():
        return
    with suppress(OSError):
        names = [found[1] for entry in os.scandir(folder) if (found := _LOCK.fullmatch(entry.name))]
        for name in names:
            with suppress(OSError, ValueError):
                _sweep_one(folder / name)


def _sweep_one(own: Path) -> None:
    descriptor = os.open(_lock_of(own), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or not _locked(descriptor, wait=False):
            return
        said = json.loads(os.read(descriptor, _LONGEST) or b"{}")
        if isinstance(said, dict) and said.get("boot") == _boot():
            _remove(own, said)
    finally:
        os.close(descriptor)


def _remove(own: Path, said: dict[str, Any]) -> None:
    """Remove what begins with a name; the lock last, so that what cannot be removed now is tried again."""
    target = own.parent / Path(str(said.get("target", ""))).name
    aside = own.with_name(own.name + ASIDE)
    if aside.exists() and not os.path.lexists(target):
        # Killed between two renames: the directory that was to be replaced gets its name back.
        aside.rename(target)
    for path in _beginning_with(own):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if not _beginning_with(own):
        _lock_of(own).unlink(missing_ok=True)


def _beginning_with(own: Path) -> list[Path]:
    lock = _lock_of(own)
    return [path for path in own.parent.iterdir() if path.name.startswith(f"{own.name}.") and path != lock]


def _lock_of(own: Path) -> Path:
    return own.with_name(f"{own.name}.lock")


def _locked(descriptor: int, *, wait: bool) -> bool:
    """Whether the lock could be had; a file system without locks gives none."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _boot() -> str:
    """The random number of this start of the machine; empty where the kernel gives none."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""
