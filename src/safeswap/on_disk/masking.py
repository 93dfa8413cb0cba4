"""A masking between two commands: ``swap`` saves it, ``release`` loads it.

The audit directory holds a record per masking and per release. A masked file is found by its SHA-256, so neither a
renamed nor a changed file is mistaken for another.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safeswap.errors import InputError, OutputError

if TYPE_CHECKING:
    import pyarrow as pa

    from safeswap.model.masked import Masked
    from safeswap.model.microdata import Microdata, Named, PastStep
    from safeswap.model.schema import Schema


def keep(
    masked: Masked,
    output: Path,
    *,
    audit: Path,
    reading: Mapping[str, Any],
    source_digest: str = "",
    announce: Callable[[str], None] | None = None,
    notes: Mapping[str, Any] | None = None,
    force: bool = False,
) -> Path:
    """Write the masked file and the record that undoes it, both or neither; return the path of the record.

    By the digest of the file that was masked a release finds the records of earlier maskings. ``announce`` is told the
    digest of the masked file before that gets its name. ``notes`` are further facts for the record.
    """
    from safeswap.files.atomic import atomic_write
    from safeswap.files.write import write_part

    with write_both(audit, output) as records, atomic_write(output, force=force) as part:
        write_part(masked, part, output)
        digests: dict[str, Any] = {"digest": digest_of(part), "source_digest": source_digest}
        record = note(masked, part, audit=audit, reading=reading, records=records, notes=notes, **digests)
        if announce is not None:
            announce(digests["digest"])
        return record


def note(
    masked: Masked,
    written: Path,
    *,
    audit: Path,
    reading: Mapping[str, Any],
    digest: str = "",
    source_digest: str = "",
    records: list[Path] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Write the audit record of a masked file into the audit directory; tell ``records`` of it beforehand.

    ``digest`` is that of the masked file, if it is known, ``source_digest`` that of the file it was made from.
    ``notes`` are further facts for the record.
    """
    import numpy as np

    from safeswap.on_disk.audit_record import write_audit

    digest = digest or digest_of(written)
    notes = {"masked_sha256": digest, "reading": _as_notes(reading), **_description(masked), **(notes or {})}
    notes |= {"past": [asdict(step) for step in masked.original.past]}
    notes |= {"source_sha256": source_digest} if source_digest else {}
    order = np.arange(len(masked.data), dtype=np.int64)
    fill = partial(write_audit, masked, row_order=order, notes=notes)
    return write_record(fill, digest, audit, records=[] if records is None else records)


def write_record(fill: Callable[[Path], None], digest: str, audit: Path, *, records: list[Path]) -> Path:
    """Write the record of the masked file with this digest; tell ``records`` of it beforehand; return its path.

    A record that undoes the same masking is replaced. Any other stays: a masking that changes nothing makes the same
    file as the one before it, whose record alone undoes that.
    """
    from safeswap.files.atomic import atomic_directory

    earlier = _records_of(digest, audit)
    record = audit / (_name_record(digest) + (f"-{_number(earlier[-1]) + 1}" if earlier else ""))
    records.append(record)
    with atomic_directory(record) as directory:
        fill(directory)
    for same in earlier:
        if _read_identity(same) == _read_identity(record):
            shutil.rmtree(same)
            return record.rename(same)
    return record


def recall(
    original: Path,
    masked_file: Path,
    *,
    audit: Path,
    source_digest: str = "",
    households: tuple[Path, Path] | None = None,
) -> Masked:
    """Load a masking saved by ``keep`` from its files, independent of the run that made it.

    ``source_digest`` is the digest of the original, if it is known. ``households`` are the original and the masked file
    of households, if the person file was masked together with one.
    """
    from safeswap import registry
    from safeswap.files.formats import existing_file, reading_alike
    from safeswap.model.masked import Masked
    from safeswap.model.schema import Schema
    from safeswap.model.spec import recorded_plan
    from safeswap.on_disk.audit_record import read_audit_json, read_audit_record

    homes = households or (None, None)
    source_digest = source_digest or digest_of_both(existing_file(original), homes[0])
    record = _find_record(digest_of_both(existing_file(masked_file), homes[1]), audit, source=source_digest)
    if record is None:
        _refuse_half(masked_file, audit, is_half=households is None)
        raise InputError(
            f"{masked_file.name!r} is not a file that was masked under the audit directory {audit.name!r}"
            + ("" if households is None else f", together with {households[1].name!r}"),
            code="no-audit",
            hint="give the file as swap has written it, and the audit directory that swap was given",
            file=str(masked_file),
        )
    kept = read_audit_record(record)
    schema = Schema.model_validate(read_audit_json(record)["schema"])
    options: dict[str, Any] = _from_notes(kept.notes["reading"])
    columns, layout = kept.notes.get("household_columns"), options.pop("households", {})
    past = find_past_steps(source_digest, audit, kept.notes, own=record)
    described = Schema.model_validate(kept.notes["masked_schema"]) if "masked_schema" in kept.notes else schema
    types = _read_types(kept.notes)
    layouts = [_layout_of(path) if path else {} for path in (masked_file, homes[1])]
    with reading_alike():
        before = replace(_read_whole((original, homes[0]), schema, columns, (options, layout)), past=past)
        before = replace(before, named=_read_names(kept.notes, before))
        read_back = _read_whole((masked_file, homes[1]), described, columns, layouts)
    after = _cast_like(read_back, before, described, types)
    spec = registry.make_spec(kept.audit.spec)
    masked = Masked(original=before, data=after, spec=spec, plan=recorded_plan(kept.audit), audit=kept.audit)
    if not kept.audit.steps:
        return masked
    from safeswap.pipelines.method import unfold

    return unfold(masked)


def _refuse_half(masked_file: Path, audit: Path, *, is_half: bool) -> None:
    """Refuse a person file without its file of households; or with one, if it was masked alone."""
    known = has_half(masked_file, audit) if is_half else has_record(digest_of(masked_file), audit)
    if known:
        both = "give both: households=(original, masked), or --households and --masked-households"
        told, hint = ("together with", both) if is_half else ("without", "omit the files of households")
        raise InputError(
            f"{masked_file.name!r} was masked {told} a file of households",
            code="two-files",
            hint=hint,
            file=str(masked_file),
        )


def _read_whole(
    files: tuple[Path, Path | None],
    schema: Schema,
    columns: Sequence[str] | None,
    options: Sequence[Mapping[str, Any]],
) -> Microdata:
    """Read a file by its schema, joined with its file of households if there is one, which has these columns."""
    from safeswap.files.read import read
    from safeswap.model.microdata import Microdata
    from safeswap.model.two_files import divide_schema, merge_files

    persons, households = files
    if households is None:
        return read(persons, schema=schema, **options[0])
    of_homes, of_people = divide_schema(schema, columns)
    homes = read(households, schema=of_homes, **options[1])
    merged = merge_files(homes, read(persons, schema=of_people, **options[0]))
    return Microdata(merged.table.select(schema.names), schema)


def find_past_steps(digest: str, audit: Path, notes: Mapping[str, Any], *, own: Path) -> tuple[PastStep, ...]:
    """Return the earlier steps of the file with this digest, from its notes or the records in the audit directory.

    If the source of a masking is itself a masked file, its record is in the same directory, and so on to the original.
    ``own`` is the record of the masked file itself, which has the digest of its source if nothing was changed. Records
    that lead back to a file on the way are refused: some of them do not belong here.
    """
    from safeswap.model.microdata import PastStep
    from safeswap.on_disk.audit_record import read_audit_json

    steps: list[PastStep] = []
    seen, files = {own}, {notes.get("masked_sha256", ""), digest}
    while True:
        noted = [PastStep(**{**step, "attributes": tuple(step["attributes"])}) for step in notes.get("past", ())]
        steps = [*noted, *steps]
        record = next((each for each in _records_of(digest, audit) if each not in seen), None)
        if record is None:
            return tuple(steps)
        seen.add(record)
        content = read_audit_json(record)
        source = content["notes"].get("source_sha256", "")
        if source in files - {"", digest}:
            raise InputError(
                f"the records of earlier maskings form a cycle: {record.name!r} was made from a file made from it",
                code="lineage-cycle",
                hint="move the record that does not belong to these files out of the audit directory",
                record=str(record),
            )
        made = steps_of(content["audit"])
        if noted and made == noted[-len(made) :]:
            return tuple(steps)  # the masking knew the file's past
        steps = [*made, *steps]
        digest, notes = source, content["notes"]
        files.add(source)


def steps_of(audit: Mapping[str, Any]) -> list[PastStep]:
    """Return the masking of this record, or its steps, without those that changed nothing."""
    from safeswap.model.microdata import PastStep

    if audit.get("steps"):
        return [past for step in audit["steps"] for past in steps_of(step)]
    exchanged = [name for stage in audit["stages"] if stage["pairs"] for name in stage["attributes"]]
    changed = tuple(dict.fromkeys((*exchanged, *audit["replaced"])))
    return [PastStep(method=audit["method"], attributes=changed, releasable=audit["releasable"])] if changed else []


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of the digests of all files of a directory sorted by name."""
    from safeswap.files.formats import sum_file

    if path.is_file():
        return sum_file(path)[1]
    sums = [f"{sum_file(each)[1]}  {each.relative_to(path)}\n" for each in sorted(path.rglob("*.parquet"))]
    return hashlib.sha256("".join(sums).encode()).hexdigest()


def digest_of_both(persons: Path, households: Path | None) -> str:
    """Return the digest of a file, or of a file of persons with its file of households.

    A masking may change one of two files alone: neither tells by itself which masking it is from.
    """
    if households is None:
        return digest_of(persons)
    return hashlib.sha256(f"{digest_of(persons)}  persons\n{digest_of(households)}  households\n".encode()).hexdigest()


def _name_record(digest: str) -> str:
    return f"masking-{digest[:16]}"


def _records_of(digest: str, audit: Path) -> list[Path]:
    """Return the records of the maskings that made a file with this digest, oldest first."""
    from safeswap.on_disk.audit_record import AUDIT

    name = _name_record(digest)
    found = [path for path in audit.glob(f"{name}*") if digest and (path / AUDIT).is_file()]
    return sorted(found, key=_number)


def has_record(digest: str, audit: Path) -> bool:
    """Return whether the audit directory has the record of a masking that made the file with this digest."""
    return bool(_records_of(digest, audit))


def has_half(file: Path, audit: Path) -> bool:
    """Return whether the audit directory has the record of a masking of two files that made this one of them."""
    from safeswap.on_disk.audit_record import AUDIT, read_audit_json

    own = digest_of(file)
    found = (read_audit_json(path.parent)["notes"] for path in audit.glob(f"masking-*/{AUDIT}"))
    return any(own in (notes.get("persons_sha256"), notes.get("households_sha256")) for notes in found)


def _number(record: Path) -> int:
    """Return the number of a record among those of one file: ``masking-<digest>`` is 1, ``masking-<digest>-2`` is 2."""
    last = record.name.rpartition("-")[2]
    return int(last) if record.name.count("-") > 1 and last.isdigit() else 1


def _find_record(digest: str, audit: Path, *, source: str) -> Path | None:
    """Return the record of a masked file, if possible the one of its masking from this source."""
    found = _records_of(digest, audit)
    made_from = (record for record in found if _read_identity(record)[:1] == [source])
    return next(made_from, found[0] if found else None)


def _read_identity(record: Path) -> list[Any]:
    """Return what a record undoes: digest of its source, masking, sums of its files; empty if damaged."""
    from safeswap.on_disk.audit_record import read_audit_json

    try:
        content = read_audit_json(record)
    except InputError:
        return []
    return [content["notes"].get("source_sha256"), content["audit"], content["schema"], content["files"]]


@contextmanager
def write_both(audit: Path | None, output: Path, *, new: Sequence[Path] = ()) -> Iterator[list[Path]]:
    """Guard the writing of an output and its record into the audit directory, which is created if needed.

    The block adds its record to the list before it writes it: others may write to the directory at the same time. If it
    fails, ``new`` files are removed, and so is its record unless the output is in place. An interrupt may come when
    everything is done: then both are there, and both stay.
    """
    made = audit is not None and _make_private(audit)
    before = set() if audit is None else {path.name for path in audit.iterdir()}
    stamp = _stamp(output)
    records: list[Path] = []
    try:
        yield records
    except BaseException:
        for path in new:
            path.unlink(missing_ok=True)
        if _stamp(output) in (None, stamp):
            for record in records:
                if record.name not in before:
                    shutil.rmtree(record, ignore_errors=True)
        if audit is not None and made and not any(audit.iterdir()):
            audit.rmdir()
        raise


def _stamp(output: Path) -> tuple[int, int] | None:
    """Return what distinguishes a file from its successor of the same name; None if there is none."""
    try:
        found = output.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _make_private(audit: Path) -> bool:
    """Create the directory unless it exists; return True if it was created."""
    if audit.is_dir():
        return False
    try:
        audit.mkdir(mode=0o700)
    except OSError as error:
        raise OutputError(
            f"the audit directory {audit.name!r} cannot be made: {os.strerror(error.errno or 0)}",
            code="exists" if isinstance(error, FileExistsError) else "no-directory",
            hint="name a directory, or the place for a new one",
            file=str(audit),
        ) from None
    return True


def _as_notes(reading: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the original was read, as far as the schema does not say so."""
    said = {name: value for name, value in reading.items() if name not in ("schema", "identifier", "limits")}
    return {**said, **({"limits": asdict(reading["limits"])} if "limits" in reading else {})}


def _from_notes(notes: Mapping[str, Any]) -> dict[str, Any]:
    from safeswap.files.formats import Limits

    return {**notes, **({"limits": Limits(**notes["limits"])} if "limits" in notes else {})}


def _layout_of(masked_file: Path) -> dict[str, str]:
    """Return the layout of a text file written by safeswap, which need not be inferred."""
    if masked_file.suffix.lower() in (".parquet", ".dta", ".sav", ".zsav"):
        return {}
    return {
        "delimiter": "\t" if masked_file.suffix.lower() == ".tsv" else ",",
        "encoding": "utf-8",
        "quote": '"',
        "decimal": ".",
    }


def _description(masked: Masked) -> dict[str, Any]:
    """Return the description of the columns after the masking, if it changed, and the types that did."""
    before, after = masked.original, masked.data
    if before.schema == after.schema:
        return {}
    types = {name: [value_type(data.table.column(name).type) for data in (before, after)] for name in after.attributes}
    return {"masked_schema": after.schema.model_dump(mode="json"), "types": name_types(types)}


def name_types(types: Mapping[str, Sequence[pa.DataType]]) -> dict[str, str]:
    """Return the types of columns whose type has changed, for the notes of a record."""
    return {name: str(new) for name, (old, new) in types.items() if old != new}


def _read_names(notes: Mapping[str, Any], original: Microdata) -> Named | None:
    """Return the names that the register had of the original, whose content is the same by its digest."""
    from safeswap.model.microdata import Named

    if "register" not in notes or "source_sha256" not in notes:
        return None
    names = tuple(bytes.fromhex(name) for name in notes["register"]["names"])
    return Named(original.table, notes["register"]["of"], names)


def _read_types(notes: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """Return the types that the notes name. In records of the first version, changed columns were text."""
    import pyarrow as pa

    found = dict.fromkeys(notes.get("as_text", ()), pa.string())
    for name, text in notes.get("types", {}).items():
        try:
            found[name] = pa.type_for_alias(text)
        except ValueError:
            found[name] = pa.string()
    return found


def _cast_like(after: Microdata, before: Microdata, described: Schema, types: Mapping[str, pa.DataType]) -> Microdata:
    """Give the masked file the types of the original, which a text file does not hold, or those noted."""
    import pyarrow as pa

    from safeswap.model.columns import share_column
    from safeswap.model.microdata import Microdata

    if set(after.attributes) != set(before.attributes):
        return after  # verification reports what is missing
    columns = {}
    for name in before.attributes:
        kind = types.get(name) or value_type(before.table.column(name).type)
        column = after.table.column(name)
        if value_type(column.type) != kind:
            try:
                column = column.cast(value_type(column.type)).cast(kind)
            except pa.ArrowInvalid:
                raise InputError(
                    f"column {name!r} of the masked file does not hold what the original's column holds",
                    code="masked-types",
                    hint="write the masked file as Parquet with swap",
                    column=name,
                ) from None
        columns[name] = share_column(before.table.column(name), column)
    return Microdata(pa.table(columns), described)


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, also of a dictionary."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind
