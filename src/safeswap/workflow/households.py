"""Join a file of households and a file of persons to one person file, and divide it again.

The person file holds everything that a job needs; what the household file has is marked as the household's, so that
methods change it for all members or for none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from safeswap.model.checked import check_types
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.spec import MaskSpec
from safeswap.model.two_files import merge_files, order_like, split_file
from safeswap.workflow.masking import mask, read, undo


@check_types
def merge_households(households: Any, persons: Any, *, on: str | None = None) -> Microdata:
    """Return the person file with the attributes of the household file, marked as the household's.

    ``on`` names the number of the household, a column of both files; by default it is the person file's attribute of
    kind household. A person without a number, or with one that the schema lists as missing, lives outside households
    and gets no values. Every other number must be in the household file exactly once, and every household must have a
    person: one without would be lost.

    >>> import pyarrow as pa
    >>> homes = pa.table({"home": [1, 2], "tenure": ["own", "rent"]})
    >>> people = pa.table({"id": ["a", "b", "c"], "home": [2, 1, 2]})
    >>> merged = merge_households(homes, people, on="home")
    >>> merged.table["tenure"].to_pylist(), merged.schema["tenure"].household
    (['rent', 'own', 'rent'], True)
    """
    return merge_files(read(households), read(persons), on)


@check_types
def split_households(data: Any) -> tuple[Microdata, Microdata]:
    """Return the file of households and the file of persons of a person file, both with the household's number.

    What is marked as the household's goes to the file of households, one record each in the order in which they first
    appear. A masking gives the two files of its result.

    >>> import pyarrow as pa
    >>> homes = pa.table({"home": [1, 2], "tenure": ["own", "rent"]})
    >>> people = pa.table({"id": ["a", "b", "c"], "home": [2, 1, 2]})
    >>> first, second = split_households(merge_households(homes, people, on="home"))
    >>> first.table.to_pydict(), second.attributes
    ({'home': [2, 1], 'tenure': ['rent', 'own']}, ('id', 'home'))
    """
    return split_file(read(data.data if isinstance(data, Masked) else data))


@dataclass(frozen=True, kw_only=True)
class MaskedHouseholds:
    """The masking of a household file and a person file in one job: both results, and the masking of the merged file.

    ``masked`` is assessed, reported, attacked and released like any other; its audit record undoes both files.
    """

    masked: Masked
    households: Microdata
    persons: Microdata

    def keep(
        self,
        households: str | PathLike[str],
        persons: str | PathLike[str],
        *,
        audit: str | PathLike[str],
        sources: Sequence[str | PathLike[str]] = (),
        reading: Mapping[str, Any] | None = None,
        force: bool = False,
    ) -> Path:
        """Write both files and the confidential record, all or nothing; return the path of the record.

        ``sources`` are the files of households and of persons that were masked, and ``reading`` is how that of persons
        was read beyond its schema; its value ``households`` is how that of households was.
        """
        from safeswap.files.atomic import atomic_write
        from safeswap.files.write import write_part
        from safeswap.on_disk.masking import digest_of, digest_of_both, note, write_both
        from safeswap.releases.ledger import configured_ledger
        from safeswap.releases.register import FileRegister, enter_masked, with_known_past

        register = FileRegister(configured_ledger())
        before = [Path(each) for each in sources]
        source_digest = digest_of_both(before[1], before[0]) if before else ""
        known = with_known_past(self.masked, register, digest=source_digest)
        with (
            write_both(Path(audit), Path(persons)) as records,
            atomic_write(persons, force=force) as people,
            atomic_write(households, force=force) as homes,
        ):
            write_part(self.households, homes, Path(households))
            write_part(self.persons, people, Path(persons))
            digest = digest_of_both(people, homes)
            notes: dict[str, Any] = {"persons_sha256": digest_of(people), "households_sha256": digest_of(homes)}
            notes["household_columns"] = list(self.households.attributes)
            digests = {"digest": digest, "source_digest": source_digest}
            record = note(
                known, people, audit=Path(audit), reading=reading or {}, records=records, notes=notes, **digests
            )
            enter_masked(known, register, digest=digest)
        return record


@check_types
def mask_households(
    households: Any,
    persons: Any,
    spec: MaskSpec | Mapping[str, Any],
    *,
    on: str | None = None,
    key: Key | None = None,
    insecure_seed: int | None = None,
    replicate: int = 0,
) -> MaskedHouseholds:
    """Mask a household file and a person file in one job, by any method or pipeline; both keep their order.

    The specification may name columns of either file. ``on`` numbers the households in both.

    >>> import pyarrow as pa
    >>> homes = pa.table({"home": [1, 2, 3, 4], "town": ["x", "y", "y", "x"]})
    >>> people = pa.table({"id": ["a", "b", "c", "d", "e"], "home": [2, 1, 2, 3, 4]})
    >>> spec = {"method": "swap", "swap": ["town"], "pairs": 1}
    >>> done = mask_households(homes, people, spec, on="home", insecure_seed=1)
    >>> sorted(done.households.table["town"].to_pylist()), done.persons.table.equals(people)
    (['x', 'x', 'y', 'y'], True)
    """
    homes = read(households)
    masked = mask(
        merge_households(homes, persons, on=on), spec, key=key, insecure_seed=insecure_seed, replicate=replicate
    )
    return split_masked(masked, homes)


def split_masked(masked: Masked, households: Microdata) -> MaskedHouseholds:
    """Divide the masking of a merged file: columns and households are those of the household file that was merged."""
    after, people = split_file(masked.data, households.attributes)
    return MaskedHouseholds(masked=masked, households=order_like(after, households), persons=people)


@check_types
def undo_households(
    households: Any, persons: Any, record: str | PathLike[str], *, on: str | None = None
) -> tuple[Microdata, Microdata]:
    """Restore a household file and a person file from their masked files and the audit record of the job."""
    homes = read(households)
    before, people = split_file(undo(merge_households(homes, persons, on=on), record), homes.attributes)
    return order_like(before, homes), people
