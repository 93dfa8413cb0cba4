"""The ledger of content in the service's database: one for all projects, sealed under the master key.

What one project learns of another's releases is decided here, and nowhere else:

* A job compares sketches only. The confidential record of an earlier release is opened only if an officer exists who is
  a member of both projects; then, and only where the changed columns are the same value by value, differences are
  counted.
* Figures, and the number of an earlier release, are shown to such an officer only.
* Another officer, who has to decide, reads one fixed sentence if there is an alarm, however many releases raised it.
* Everybody else reads one fixed sentence that is the same whether there is an alarm or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, insert, select

from safeswap.arrays.keyed import derive
from safeswap.arrays.sketch import ALARM_SHARE
from safeswap.errors import OutputError
from safeswap.model.ledger import NOT_SEEN, Entry, Likeness, compare
from safeswap.service.keeping.database import now
from safeswap.service.keeping.tables import ledger, members, projects, releases, users
from safeswap.service.keeping.vault import Vault
from safeswap.service.people.callers import Caller
from safeswap.service.people.roles import Role

if TYPE_CHECKING:
    from sqlalchemy import Row

    from safeswap.service.keeping.store import Store
    from safeswap.service.work.jobs import Claim

ENTRIES = "ledger"

FOR_OFFICERS = "Whether these records have been released before is shown to the officer who decides."
ELSEWHERE = (
    "Many of these records have been released before, in a project of which you are not a member. Approve only with a "
    "reason, or let an officer look who is a member of both projects."
)
CLEAR = f"The ledger shows no sign that these records have been released before. {NOT_SEEN}"


def secret_of(vault: Vault) -> bytes:
    """The secret under which contents are hashed."""
    return derive(vault.master_key.secret, "ledger")


def seal_entry(vault: Vault, release_id: str, entry: Entry) -> bytes:
    """An entry as it is kept."""
    return vault.seal(entry.to_bytes(), _context(release_id))


def open_entry(vault: Vault, release_id: str, sealed: bytes) -> Entry:
    """The entry that was sealed for this release."""
    return Entry.from_bytes(vault.open(sealed, _context(release_id)))


def _context(release_id: str) -> str:
    return f"ledger {release_id}"


@dataclass
class NewEntry:
    """A ledger that shows nothing and takes down what a release would enter: comparing and deciding come later."""

    secret: bytes = field(repr=False)
    alarm_share: float = ALARM_SHARE
    entered: list[Entry] = field(default_factory=list)

    @contextmanager
    def open(self) -> Iterator[NewEntry]:
        """Nobody has to wait."""
        yield self

    def entries(self) -> Iterator[Entry]:
        """Nothing: the library is not to compare."""
        return iter(())

    def enter(self, entry: Entry) -> None:
        """Keep the entry until the release is approved."""
        self.entered.append(entry)


class Earlier(NamedTuple):
    """An earlier release as the ledger knows it; ``entry`` is None if it is from before the ledger of content."""

    number: int
    release_id: str
    project_id: str
    data_version: int
    entry: Entry | None


def lay_out(connection: Connection, claim: Claim, store: Store) -> None:
    """Put the sealed entries where the job finds them, since a job has no database."""
    try:
        folder = store.scratch(claim.id, claim.fence) / ENTRIES
        folder.mkdir(mode=0o700, exist_ok=True)
        for row in connection.execute(select(ledger)):
            name = f"{row.number:08d} {row.data_version} {row.release_id} {row.project_id}"
            (folder / name).write_bytes(row.content or b"")
    except OSError:
        raise OutputError(
            "the ledger could not be laid out for the job: the disk is full or cannot be written",
            code="disk-full",
            hint="ask the administrator to make room",
        ) from None


def laid_out(folder: Path, vault: Vault) -> Iterator[Earlier]:
    """All that was laid out, oldest first."""
    for path in sorted((folder / ENTRIES).iterdir()):
        number, version, release_id, project_id = path.name.split(" ")
        yield Earlier(int(number), release_id, project_id, int(version), _opened(vault, release_id, path.read_bytes()))


def entries_after(connection: Connection, vault: Vault, number: int) -> Iterator[Earlier]:
    """What was entered since, oldest first."""
    for row in connection.execute(select(ledger).where(ledger.c.number > number).order_by(ledger.c.number)):
        entry = _opened(vault, row.release_id, row.content)
        yield Earlier(row.number, row.release_id, row.project_id, row.data_version, entry)


def _opened(vault: Vault, release_id: str, sealed: bytes | None) -> Entry | None:
    return open_entry(vault, release_id, sealed) if sealed else None


def find_alike(mine: Entry, earlier: Earlier, *, file: tuple[str, int], alarm_share: float) -> Likeness | None:
    """How alike a release and an earlier one are, where it is worth a word.

    ``file`` is project and version of the data: of two releases of one file nothing has to be estimated.
    """
    name = f"release {earlier.release_id}"
    found = Likeness(release=name, share=0.0, side="original", identifiers=0.0, alarm=False)
    if earlier.entry is not None:
        found = replace(compare(mine, earlier.entry, alarm_share=alarm_share), release=name)
    if (earlier.project_id, earlier.data_version) == file:
        found = replace(found, share=1.0, alarm=True)
    return found if found.alarm or found.identifiers >= ALARM_SHARE else None


def comparable(connection: Connection, project_id: str) -> list[dict[str, str]]:
    """Earlier releases whose figures somebody may see: an officer who is a member of this project and of theirs."""
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


def enter(connection: Connection, number: int, row: Row[Any], *, by: str, content: bytes, reason: str) -> None:
    """Take a place in the ledger; where somebody has taken it since, the primary key refuses."""
    entry = {"number": number, "release_id": row.id, "project_id": row.project_id, "content": content}
    entry |= {"data_version": row.checks["data_version"], "manifest_hash": row.manifest_hash}
    entry |= {"approved_by": by, "approved_at": now(), "override_reason": reason}
    connection.execute(insert(ledger).values(**entry))


def memberships(connection: Connection, user_id: str) -> frozenset[str]:
    """The projects of a person that are still there."""
    statement = select(members.c.project_id).join(projects, projects.c.id == members.c.project_id)
    mine = statement.where(members.c.user_id == user_id, projects.c.state != "deleted")
    return frozenset(connection.execute(mine).scalars())


def alarms(row: Row[Any]) -> list[dict[str, Any]]:
    """The earlier releases that hold at least the agreed share of the records."""
    return [each for each in row.differencing or () if each["alarm"]]


def visible(caller: Caller, mine: Collection[str], row: Row[Any]) -> list[dict[str, Any]]:
    """The findings this person may see: an officer, those on projects of which she is a member."""
    if caller.role != Role.OFFICER or row.project_id not in mine:
        return []
    return [each for each in row.differencing or () if each["project_id"] in mine]


def sentence(caller: Caller, mine: Collection[str], row: Row[Any]) -> str:
    """What this person is told of the ledger: one sentence, fixed but for an officer who may see every alarm."""
    if caller.role != Role.OFFICER:
        return FOR_OFFICERS
    if row.state == "preparing":
        return ""
    raised, seen = alarms(row), visible(caller, mine, row)
    if not raised:
        return CLEAR
    if any(each not in seen for each in raised):
        return ELSEWHERE
    return "These records have been released before."
