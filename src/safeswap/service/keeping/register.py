"""The register of maskings in the service's database: one for all projects, sealed with the master key.

A release tells every step that its values went through, also those done in another project (see
:mod:`safeswap.releases.register`). So the table of a masking or a release is entered when its job has finished, and a
file is named when it is uploaded, by its bytes, its records and its columns. Before it is masked or released the worker
looks these names up, since a job has no database; what it finds comes with the data as their past.

An entry holds methods and attributes, but no project, no person and no time, so it can tell nobody more about another
project than what the uploaded file itself went through. It outlives the project: the masked file does so too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from safeswap.arrays.keyed import derive
from safeswap.releases.register import Past, dump_steps, join_pasts, load_steps
from safeswap.service.keeping import ledger
from safeswap.service.keeping.tables import maskings, projects
from safeswap.service.keeping.vault import Vault

if TYPE_CHECKING:
    from safeswap.service.keeping.store import Store
    from safeswap.service.work.jobs import Claim

NAMES = "names"
"""The names of a version of the data, in its folder."""

_KNOWN, _NEW = "known-maskings", "new-maskings"
_AT_ONCE = 500  # names in one query


@dataclass(frozen=True)
class NewMaskings:
    """A write-only register that collects the entries of a job; what was known before comes with the data."""

    vault: Vault
    scratch: Path
    secret: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "secret", derive(ledger.secret_of(self.vault), "register names"))

    @property
    def is_empty(self) -> bool:
        """True: the library has nothing to look up here."""
        return True

    def read(self, _names: Sequence[bytes]) -> list[Past]:
        """Return nothing: the worker has looked up what is known."""
        return []

    def write(self, entries: Mapping[bytes, Past]) -> None:
        """Collect entries until the job has succeeded; the first of a name stays."""
        folder = self.scratch / _NEW
        known = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        new = {name.hex(): past for name, past in entries.items() if name.hex() not in known}
        sealed = ((name, self.vault.seal(dump_steps(past), _context(name))) for name, past in new.items())
        ledger.lay_out(folder, sealed)


def write_names(folder: Path, names: Iterable[bytes], *, carried: Iterable[str] = ()) -> None:
    """Write the names of a version of the data into its folder; ``carried`` are those of the version it was made of."""
    lines = dict.fromkeys((*carried, *(name.hex() for name in names)))
    (folder / NAMES).write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


def read_names(folder: Path) -> list[str]:
    """Return the names of a version of the data; none if it was uploaded before there was a register."""
    path = folder / NAMES
    return path.read_text(encoding="ascii").split() if path.is_file() else []


def export_known(connection: Connection, claim: Claim, store: Store) -> None:
    """Write the sealed entries of the project's data to the job's scratch folder, since a job has no database."""
    version = connection.scalar(select(projects.c.data_version).where(projects.c.id == claim.project_id))
    if claim.project_id is None or not version:
        return
    names = read_names(store.data(claim.project_id, version))
    found: list[Any] = []
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        found += connection.execute(select(maskings).where(maskings.c.name.in_(some)))
    files = ((f"{row.number:012d} {row.name}", row.content) for row in found)
    ledger.lay_out(store.scratch(claim.id, claim.fence) / _KNOWN, files)


def read_past(scratch: Path, vault: Vault) -> Past:
    """Return all that the exported entries tell, oldest first."""
    folder = scratch / _KNOWN
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return join_pasts(load_steps(vault.open(path.read_bytes(), _context(path.name[-64:]))) for path in paths)


def insert_new(connection: Connection, scratch: Path) -> None:
    """Insert the entries that a job has collected, except those whose name is known."""
    folder = scratch / _NEW
    # In the order of their names: two jobs that insert the same ones must not wait for each other.
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    for path in paths:
        row = {"name": path.name, "content": path.read_bytes()}
        connection.execute(insert(maskings).values(row).on_conflict_do_nothing())


def _context(name: str) -> str:
    return f"masking {name}"
