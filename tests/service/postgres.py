"""A PostgreSQL server for tests: a cluster of its own in a temporary folder, reached by a socket in that folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
_MEMORY = Path("/dev/shm")
_SETTINGS = "-c listen_addresses='' -c max_connections=60 -c fsync=on -c synchronous_commit=on -c shared_buffers=32MB"


def programs() -> Path | None:
    """Where initdb and pg_ctl are."""
    folders = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep)]
    for pattern in _PLACES:
        folders += sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
    for folder in folders:
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "pg_ctl")):
            return Path(os.path.realpath(folder / "pg_ctl")).parent
    return None


@dataclass(frozen=True)
class Cluster:
    """A server that can be started, stopped and crashed."""

    folder: Path
    bin: Path

    @classmethod
    def make(cls, found: Path) -> Cluster:
        # In a short path of its own: the path of a socket may have a hundred characters. In memory where that can be.
        place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        cluster = cls(Path(tempfile.mkdtemp(prefix="safeswap-pg-", dir=place)), found)
        _hand_over(cluster.folder)
        cluster._run("initdb", "-D", str(cluster.folder / "data"), "-A", "trust", "-U", "safeswap", "--no-sync")
        return cluster

    @property
    def address(self) -> str:
        """By which SQLAlchemy reaches it."""
        return f"postgresql://safeswap@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = f"{_SETTINGS} -c unix_socket_directories={self.folder}"
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "-o", options, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` is a crash: what was not committed is lost, every connection is cut."""
        self._control("-m", mode, "stop")

    def remove(self) -> None:
        """Stop it and leave nothing behind."""
        self.stop("immediate")
        shutil.rmtree(self.folder)

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", *arguments)

    def _run(self, name: str, *arguments: str) -> None:
        # The server refuses to run as root.
        user = _user().pw_name if os.getuid() == 0 else None
        done = subprocess.run(
            [self.bin / name, *arguments],
            user=user,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if name != "pg_ctl" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{name} failed: {(done.stdout or b'').decode(errors='replace')[-500:]}")


def _hand_over(folder: Path) -> None:
    if os.getuid() == 0:
        user = _user()
        os.chown(folder, user.pw_uid, user.pw_gid)
        folder.chmod(0o755)


def _user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("there is neither a user postgres nor a user nobody to run the server as")
