"""The confidential record of a release: enough to undo it, stored apart from it, readable by its owner only."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safeswap.arrays.types import Rows
from safeswap.engines.base import Move
from safeswap.errors import InputError
from safeswap.files.atomic import PRIVATE_DIRECTORY, PRIVATE_FILE
from safeswap.files.formats import sum_file
from safeswap.model.audit import Audit, Exchange, Replacement, StepAudit
from safeswap.model.masked import Masked
from safeswap.model.schema import Schema

AUDIT = "audit.json"
AUDIT_FORMAT, PIPELINE_FORMAT = "safeswap-audit-1", "safeswap-audit-2"
"""The formats of records of one masking, and of a pipeline."""
PAIRS = "pairs.parquet"
ROW_ORDER = "row_order.parquet"
REPLACED = "replaced-{}.parquet"
STEP = "step-{}"
"""The directory of a step's rows in the record of a pipeline."""
_KINDS = ("directed", "mutual")
"""What the record states of an exchange other than one between pairs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AuditRecord:
    """An audit and the notes of its release, as read from a directory.

    ``row_order`` gives the row of the masked file for each released row.
    """

    audit: Audit
    notes: Mapping[str, Any]
    row_order: Rows = field(repr=False)


def write_audit(masked: Masked, directory: Path, *, row_order: npt.NDArray[Any], notes: Mapping[str, Any]) -> None:
    """Write the record into an existing empty directory; ``notes`` holds the findings of the release step."""
    _write_rows(directory / ROW_ORDER, pa.table({"row": _narrow(row_order, masked.audit.records)}))
    for number, audit in enumerate(masked.audit.single, start=1):
        place = directory / STEP.format(number) if masked.audit.steps else directory
        place.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        for name, table in _row_tables(audit):
            _write_rows(place / name, table)
    write_audit_json(directory, _audit_as_dict(masked.audit), masked.original.schema, notes=notes)


def _row_tables(audit: Audit) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of a single masking by the name of their file."""
    yield PAIRS, _pairs_table(audit)
    for count, each in enumerate(audit.replacements):
        yield REPLACED.format(count), pa.table({"row": each.rows, "before": each.before})


def write_pairs(directory: Path, audit: Audit) -> None:
    """Write the pairs of a masking."""
    _write_rows(directory / PAIRS, _pairs_table(audit))


def dump_audit(audit: Audit) -> tuple[str, dict[str, pa.Table]]:
    """Return the audit of a single masking as JSON and tables, for a store other than a directory."""
    return json.dumps(_audit_as_dict(audit), ensure_ascii=False, default=_to_json), dict(_row_tables(audit))


def load_audit(text: str, tables: Mapping[str, pa.Table]) -> Audit:
    """Return the audit that :func:`dump_audit` has made."""
    return _audit_from_dict(json.loads(text), tables)


def write_audit_json(directory: Path, audit: Mapping[str, Any], schema: Schema, *, notes: Mapping[str, Any]) -> None:
    """Write the readable part of a record beside its existing files of rows."""
    content = {
        "format": PIPELINE_FORMAT if audit.get("steps") else AUDIT_FORMAT,
        "confidential": "This record undoes the release. Keep it where the original data are kept.",
        "audit": dict(audit),
        "schema": schema.model_dump(mode="json", exclude_defaults=True),
        "software": software_versions(),
        "notes": dict(notes),
        "files": {str(path.relative_to(directory)): sum_file(path)[1] for path in _list_files(directory)},
    }
    (directory / AUDIT).write_text(json.dumps(content, ensure_ascii=False, indent=1, default=_to_json) + "\n", "utf-8")
    for path in _list_files(directory):
        path.chmod(PRIVATE_FILE)


def _list_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def read_audit(directory: Path) -> Audit:
    """Return the audit of a release: with the masked file it restores the original (``undo``)."""
    return read_audit_record(directory).audit


def read_audit_record(directory: Path) -> AuditRecord:
    """Return everything recorded of a release."""
    directory = Path(directory)
    content = read_audit_json(directory)
    try:
        names = [name for name in _row_files(content["audit"]) if name != ROW_ORDER or name in content["files"]]
        intact = {name: sum_file(directory / name)[1] for name in names} == content["files"]
        tables = {name: _read_rows(directory / name) for name in names} if intact else {}
        audit = _audit_from_dict(content["audit"], tables)
        # The record of a large file omits an order equal to that of the file.
        order = _to_rows(tables[ROW_ORDER]["row"]) if ROW_ORDER in tables else np.arange(audit.records, dtype=np.int64)
        return AuditRecord(audit=audit, notes=content["notes"], row_order=order)
    except (KeyError, TypeError, ValueError, OSError, pa.ArrowException):
        raise _damaged_record(directory) from None


def _row_files(audit: Mapping[str, Any]) -> list[str]:
    return [ROW_ORDER, *(name for place, each in _locate_maskings(audit) for name in _own_files(place, each))]


def _locate_maskings(audit: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the single maskings of a record, each with the place of its files."""
    steps = audit.get("steps")
    return [(STEP.format(number) + "/", each) for number, each in enumerate(steps, start=1)] if steps else [("", audit)]


def _own_files(place: str, audit: Mapping[str, Any]) -> list[str]:
    return [place + PAIRS, *(place + REPLACED.format(number) for number in range(len(audit["replaced"])))]


def read_audit_json(directory: Path) -> dict[str, Any]:
    """Return the readable part of the record, without the pairs."""
    path = Path(directory) / AUDIT
    if not path.is_file():
        raise InputError(
            f"{path.parent.name!r} holds no audit record",
            code="no-audit",
            hint="give the directory of one release within the audit directory",
            file=str(directory),
        )
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise _damaged_record(path.parent) from None
    wanted = {"format", "audit", "schema", "notes", "files"}
    if (
        not isinstance(content, dict)
        or not wanted <= content.keys()
        or content["format"] not in (AUDIT_FORMAT, PIPELINE_FORMAT)
    ):
        raise _damaged_record(path.parent)
    return content


def software_versions() -> dict[str, str]:
    """Return the versions of the software that the result depends on."""
    packages = ("safeswap", "numpy", "pyarrow", "polars", "cryptography", "numba")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _audit_as_dict(audit: Audit) -> dict[str, Any]:
    return {
        "method": audit.method,
        "spec": dict(audit.spec),
        "records": audit.records,
        "asked": audit.asked,
        "feasible": audit.feasible,
        "at_most": audit.at_most,
        "made": audit.made,
        "compensating": audit.compensating,
        "key_id": audit.key_id,
        "releasable": audit.releasable,
        "algorithm": audit.algorithm,
        "replicate": audit.replicate,
        "data_name": audit.data_name,
        "facts": dict(audit.facts),
        "stages": [note_exchange(each.attributes, each) for each in audit.exchanges],
        "replaced": [each.attribute for each in audit.replacements],
        **({"steps": [_step_as_dict(step) for step in audit.steps]} if audit.steps else {}),
    }


def note_exchange(attributes: Sequence[str], move: Exchange | Move) -> dict[str, Any]:
    """Return what the readable part of a record says of an exchange.

    >>> note_exchange(["Race"], Exchange(attributes=("Race",), pairs=np.zeros((7, 2), dtype=np.int64)))
    {'attributes': ['Race'], 'pairs': 7}
    """
    # Only where it is true: records of pairs are as they always were.
    kinds = {name: True for name in _KINDS if getattr(move, name)}
    return {"attributes": list(attributes), "pairs": len(move.pairs), **kinds}


def _step_as_dict(step: StepAudit) -> dict[str, Any]:
    described = {} if step.schema is None else {"schema": step.schema.model_dump(mode="json", exclude_defaults=True)}
    return {"name": step.name, **described, **_audit_as_dict(step.audit)}


def _audit_from_dict(content: dict[str, Any], tables: Mapping[str, pa.Table], place: str = "") -> Audit:
    special = ("stages", "replaced", "steps", "name", "schema")
    fields = {name: value for name, value in content.items() if name not in special}
    if content.get("steps"):
        steps = []
        for inside, step in _locate_maskings(content):
            schema = Schema.model_validate(step["schema"]) if "schema" in step else None
            audit = _audit_from_dict(dict(step), tables, inside)
            steps.append(StepAudit(name=step["name"], audit=audit, schema=schema))
        return Audit(steps=tuple(steps), **fields)
    stage, row_a, row_b = (_to_rows(tables[place + PAIRS][name]) for name in ("stage", "row_a", "row_b"))
    exchanges = []
    for number, noted in enumerate(content["stages"]):
        chosen = stage == number
        pairs = np.column_stack([row_a[chosen], row_b[chosen]])
        if len(pairs) != noted["pairs"]:
            raise ValueError("pairs are missing")
        kinds = {name: bool(noted.get(name, False)) for name in _KINDS}
        exchanges.append(Exchange(attributes=tuple(noted["attributes"]), pairs=pairs, **kinds))
    replacements = []
    for number, attribute in enumerate(content["replaced"]):
        table = tables[place + REPLACED.format(number)]
        before = table["before"].combine_chunks()
        replacements.append(Replacement(attribute=attribute, rows=_to_rows(table["row"]), before=before))
    return Audit(exchanges=tuple(exchanges), replacements=tuple(replacements), **fields)


def _pairs_table(audit: Audit) -> pa.Table:
    stages = np.repeat(np.arange(len(audit.exchanges), dtype=np.int32), [len(e.pairs) for e in audit.exchanges])
    rows = np.concatenate([np.empty((0, 2), dtype=np.int64), *(e.pairs for e in audit.exchanges)])
    columns = (_narrow(rows[:, side], audit.records) for side in (0, 1))
    return pa.table(dict(zip(("stage", "row_a", "row_b"), (stages, *columns), strict=True)))


def _narrow(rows: npt.NDArray[Any], records: int) -> npt.NDArray[Any]:
    return rows.astype(np.int32, copy=False) if records < 2**31 else rows


def _to_rows(column: pa.ChunkedArray) -> Rows:
    return np.asarray(column.to_numpy()).astype(np.int64)


def _write_rows(path: Path, table: pa.Table) -> None:
    from pyarrow import parquet

    # Row numbers in random order: neither a dictionary nor compression would make them smaller.
    parquet.write_table(table, path, use_dictionary=False, compression="none", write_statistics=False)


def _read_rows(path: Path) -> pa.Table:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:  # Arrow's data sets, which read_table uses, take long to import
        return file.read()


def _to_json(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | tuple | set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be stored in an audit record")


def _damaged_record(directory: Path) -> InputError:
    return InputError(
        f"the audit record in {directory.name!r} is damaged or was changed",
        code="audit-damaged",
        hint="restore it from a backup; without it the release cannot be undone",
        file=str(directory),
    )
