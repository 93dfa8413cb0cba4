"""The ledger of released content and the register of maskings: one for all projects, sealed with the master key.

Only this module decides what one project may learn about another's releases:

* A job compares sketches only. The confidential record of an earlier release is opened only if some officer is a member
  of both projects; then, and only where the changed columns are the same value by value, differences are counted.
* Figures, and the number of an earlier release, are shown only to such an officer.
* Any other deciding officer reads one fixed sentence if there is an alarm, however many releases raised it.
* Everyone else reads one fixed sentence that is the same with or without an alarm.

A release tells every step that its values went through, also those done in another project (see
:mod:`safeswap.releases.register`). So the table of a masking or a release is entered when its job has finished, and a
file is named when it is uploaded, by its bytes, its records and its columns. Before it is masked or released the worker
looks these names up, since a job has no database; what it finds comes with the data as their past.

An entry holds methods and attributes, but no project, no person and no time, so it can tell nobody more about another
project than what the uploaded file itself went through. It outlives the project: the masked file does so too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from safeswap.arrays.keyed import derive
from safeswap.arrays.sketch import ALARM_SHARE
from safeswap.errors import OutputError
from safeswap.model.ledger import NOT_SEEN, Entry, Likeness, compare
from safeswap.model.microdata import join_pasts
from safeswap.releases.register import Past, dump_steps, load_steps
from safeswap.service.keeping.database import now
from safeswap.service.keeping.tables import ledger, maskings, members, projects, releases, users
from safeswap.service.keeping.vault import Vault
from safeswap.service.people.roles import Caller, Role

if TYPE_CHECKING:
    from sqlalchemy import Row

    from safeswap.releases.register import Register
    from safeswap.service.keeping.store import Store
    from safeswap.service.work.jobs import Claim

ENTRIES = "ledger"

FOR_OFFICERS = "Whether these records have been released before is shown to the officer who decides."
ELSEWHERE = (
    "Many of these records have been released before, in a project of which you are not a member. Approve only with a "
    "reason, or ask an officer who is a member of both projects."
)
CLEAR = f"The ledger shows no sign that these records have been released before. {NOT_SEEN}"


def secret_of(vault: Vault) -> bytes:
    """Return the secret with which contents are hashed."""
    return derive(vault.master_key.secret, "ledger")


def seal_entry(vault: Vault, release_id: str, entry: Entry) -> bytes:
    """Seal an entry for storage."""
    return vault.seal(entry.to_bytes(), _context(release_id))


def open_entry(vault: Vault, release_id: str, sealed: bytes) -> Entry:
    """Open the sealed entry of a release."""
    return Entry.from_bytes(vault.open(sealed, _context(release_id)))


def _context(release_id: str) -> str:
    return f"ledger {release_id}"


@dataclass
class NewEntry:
    """A write-only ledger that collects the entry of a release; comparing and deciding come later.

    ``registers`` learn of the released table.
    """

    secret: bytes = field(repr=False)
    alarm_share: float = ALARM_SHARE
    registers: tuple[Register, ...] = ()
    entered: list[Entry] = field(default_factory=list)

    @contextmanager
    def open(self) -> Iterator[NewEntry]:
        """Open without locking."""
        yield self

    def entries(self) -> Iterator[Entry]:
        """Return no entries: the library must not compare."""
        return iter(())

    def enter(self, entry: Entry) -> None:
        """Collect the entry until the release is approved."""
        self.entered.append(entry)


class Earlier(NamedTuple):
    """An earlier release in the ledger; ``entry`` is None if it predates the ledger of content."""

    number: int
    release_id: str
    project_id: str
    data_version: int
    entry: Entry | None


def export_entries(connection: Connection, claim: Claim, store: Store) -> None:
    """Write the sealed entries to the job's scratch folder, since a job has no database."""
    rows = connection.execute(select(ledger))
    files = (
        (f"{row.number:08d} {row.data_version} {row.release_id} {row.project_id}", row.content or b"") for row in rows
    )
    lay_out(store.scratch(claim.id, claim.fence) / ENTRIES, files)


def lay_out(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Write files for a job, or for the worker that ends it, into a folder of the job's scratch folder."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for name, content in files:
            (folder / name).write_bytes(content)
    except OSError:
        raise OutputError(
            "the ledger could not be prepared for the job: the disk is full or not writable",
            code="disk-full",
            hint="ask the administrator to free disk space",
        ) from None


def read_entries(folder: Path, vault: Vault) -> Iterator[Earlier]:
    """Yield the exported entries, oldest first."""
    for path in sorted((folder / ENTRIES).iterdir()):
        number, version, release_id, project_id = path.name.split(" ")
        yield Earlier(
            int(number), release_id, project_id, int(version), _open_if_any(vault, release_id, path.read_bytes())
        )


def entries_after(connection: Connection, vault: Vault, number: int) -> Iterator[Earlier]:
    """Yield the entries after a number, oldest first."""
    for row in connection.execute(select(ledger).where(ledger.c.number > number).order_by(ledger.c.number)):
        entry = _open_if_any(vault, row.release_id, row.content)
        yield Earlier(row.number, row.release_id, row.project_id, row.data_version, entry)


def _open_if_any(vault: Vault, release_id: str, sealed: bytes | None) -> Entry | None:
    return open_entry(vault, release_id, sealed) if sealed else None


def find_alike(mine: Entry, earlier: Earlier, *, file: tuple[str, int], alarm_share: float) -> Likeness | None:
    """Return the likeness of a release to an earlier one, or None if it is negligible.

    ``file`` is project and data version: for two releases of one file nothing has to be estimated.
    """
    name = f"release {earlier.release_id}"
    found = Likeness(release=name, share=0.0, side="original", identifiers=0.0, alarm=False)
    if earlier.entry is not None:
        found = replace(compare(mine, earlier.entry, alarm_share=alarm_share), release=name)
    if (earlier.project_id, earlier.data_version) == file:
        found = replace(found, share=1.0, alarm=True)
    return found if found.alarm or found.identifiers >= ALARM_SHARE else None


def find_comparable(connection: Connection, project_id: str) -> list[dict[str, str]]:
    """Return the earlier releases whose figures some officer may see, as a member of both projects."""
    here, there = members.alias("here"), members.alias("there")
    shared = (
        select(there.c.project_id)
        .join(here, here.c.user_id == there.c.user_id)
        .join(users, users.c.id == here.c.user_id)
        .where(here.c.project_id == project_id, users.c.role == Role.OFFICER, users.c.active.is_(True))
    )
    statement = (
        select(ledger.c.release_id, releases.c.project_id, releases.c.checks)
        .join(releases, releases.c.id == ledger.c.release_id)
        .where(releases.c.project_id.in_(shared))
    )
    return [
        {"id": row.release_id, "project_id": row.project_id, "folder": (row.checks or {}).get("folder", "")}
        for row in connection.execute(statement)
    ]


def insert_entry(connection: Connection, number: int, row: Row[Any], *, by: str, content: bytes, reason: str) -> None:
    """Insert an entry at a number; the primary key refuses a number taken concurrently."""
    entry = {"number": number, "release_id": row.id, "project_id": row.project_id, "content": content}
    entry |= {"data_version": row.checks["data_version"], "manifest_hash": row.manifest_hash}
    entry |= {"approved_by": by, "approved_at": now(), "override_reason": reason}
    connection.execute(insert(ledger).values(**entry))


def memberships(connection: Connection, user_id: str) -> frozenset[str]:
    """Return the existing projects a person is a member of."""
    statement = select(members.c.project_id).join(projects, projects.c.id == members.c.project_id)
    mine = statement.where(members.c.user_id == user_id, projects.c.state != "deleted")
    return frozenset(connection.execute(mine).scalars())


def list_alarms(row: Row[Any]) -> list[dict[str, Any]]:
    """Return the earlier releases with at least the alarm share of the records."""
    return [each for each in row.differencing or () if each["alarm"]]


def visible_findings(caller: Caller, mine: Collection[str], row: Row[Any]) -> list[dict[str, Any]]:
    """Return the findings a person may see: officers, those of projects they are a member of."""
    if caller.role != Role.OFFICER or row.project_id not in mine:
        return []
    return [each for each in row.differencing or () if each["project_id"] in mine]


def sentence(caller: Caller, mine: Collection[str], row: Row[Any]) -> str:
    """Return the sentence about the ledger for a person; fixed, except for an officer who may see every alarm."""
    if caller.role != Role.OFFICER:
        return FOR_OFFICERS
    if row.state == "preparing":
        return ""
    raised, seen = list_alarms(row), visible_findings(caller, mine, row)
    if not raised:
        return CLEAR
    if any(each not in seen for each in raised):
        return ELSEWHERE
    return "These records have been released before."


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
        object.__setattr__(self, "secret", derive(secret_of(self.vault), "register names"))

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
        sealed = ((name, self.vault.seal(dump_steps(past), _masking_context(name))) for name, past in new.items())
        lay_out(folder, sealed)


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
    lay_out(store.scratch(claim.id, claim.fence) / _KNOWN, files)


def read_past(scratch: Path, vault: Vault) -> Past:
    """Return the contents of the exported entries, oldest first."""
    folder = scratch / _KNOWN
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return join_pasts(load_steps(vault.open(path.read_bytes(), _masking_context(path.name[-64:]))) for path in paths)


def insert_new(connection: Connection, scratch: Path) -> None:
    """Insert the entries that a job has collected, except those whose name is known."""
    folder = scratch / _NEW
    # In the order of their names: two jobs that insert the same ones must not wait for each other.
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    for path in paths:
        row = {"name": path.name, "content": path.read_bytes()}
        connection.execute(insert(maskings).values(row).on_conflict_do_nothing())


def _masking_context(name: str) -> str:
    return f"masking {name}"
