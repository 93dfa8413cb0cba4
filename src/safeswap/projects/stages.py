"""Finished steps of a project, kept beside its file so that a run resumes where an earlier one stopped.

Everything is sealed with the project's key (AES-GCM) and found by a keyed digest: without the key a file shows its size
and its date. What cannot be opened counts as not there, and is made again.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import secrets
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from safeswap.arrays.keyed import derive
from safeswap.errors import OutputError
from safeswap.files.atomic import PRIVATE_DIRECTORY, atomic_write, remove_leftovers
from safeswap.model.columns import same_memory
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema
from safeswap.model.spec import MaskSpec, recorded_plan
from safeswap.on_disk.audit_record import dump_audit, load_audit

FOLDER = ".safeswap"
_SUFFIX = ".sealed"
_NONCE = 12
_CHANGED = "changed"


def make_private_folder(folder: Path) -> None:
    """Create a directory that only its owner can look into; tighten one that exists."""
    try:
        folder.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        folder.chmod(PRIVATE_DIRECTORY)
    except OSError as error:
        raise OutputError(
            f"the directory {folder.name!r} cannot be made: {error.strerror}",
            code="no-directory",
            hint="check the permissions of the directory of the project file",
            file=str(folder),
        ) from None


class StageStore:
    """Sealed pieces of work by what they depend on."""

    def __init__(self, folder: Path, key: Key) -> None:
        self.folder = folder
        self._names, self._seal = derive(key.secret, "stage names"), derive(key.secret, "stage seal")
        self._used: set[str] = set()
        make_private_folder(folder)
        remove_leftovers(folder)

    def read(self, *about: str) -> bytes | None:
        """Return what is kept about this; None if nothing is, or it cannot be opened."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        name = self._name(about)
        try:
            sealed = (self.folder / name).read_bytes()
            return AESGCM(self._seal).decrypt(sealed[:_NONCE], sealed[_NONCE:], name.encode())
        except (OSError, InvalidTag, ValueError):
            return None

    def write(self, content: bytes, *about: str) -> None:
        """Store this durably; an interrupted write leaves nothing."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        name, nonce = self._name(about), secrets.token_bytes(_NONCE)
        with atomic_write(self.folder / name, force=True) as part:
            part.write_bytes(nonce + AESGCM(self._seal).encrypt(nonce, content, name.encode()))

    def prune(self) -> None:
        """Remove what was not used since the store was opened: confidential work that is out of date."""
        for path in self.folder.glob(f"*{_SUFFIX}"):
            if path.name not in self._used:
                path.unlink(missing_ok=True)

    def _name(self, about: tuple[str, ...]) -> str:
        digest = hmac.new(self._names, json.dumps(about).encode(), hashlib.sha256).hexdigest()
        self._used.add(digest[:32] + _SUFFIX)
        return digest[:32] + _SUFFIX


def dump_stage(stage: Masked) -> bytes:
    """Return what one step made: its record and the columns that it changed."""
    text, tables = dump_audit(stage.audit)
    before, after = stage.original.table, stage.data.table
    changed = [
        name
        for name in stage.data.attributes
        if name not in before.column_names or not same_memory(before.column(name), after.column(name))
    ]
    head = {"audit": text, "schema": stage.data.schema.model_dump(mode="json")}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as parts:
        parts.writestr("stage.json", json.dumps(head))
        for name, table in {**tables, _CHANGED: after.select(changed)}.items():
            parts.writestr(name, _to_bytes(table))
    return packed.getvalue()


def load_stage(content: bytes, before: Microdata, spec: MaskSpec) -> Masked:
    """Return what a step has made of the file before it, with the memory of the columns that it left alone."""
    with zipfile.ZipFile(io.BytesIO(content)) as parts:
        head: dict[str, Any] = json.loads(parts.read("stage.json"))
        tables = {name: _from_bytes(parts.read(name)) for name in parts.namelist() if name != "stage.json"}
    schema, changed = Schema.model_validate(head["schema"]), tables.pop(_CHANGED)
    sources = {name: changed if name in changed.column_names else before.table for name in schema.names}
    table = pa.table({name: source.column(name) for name, source in sources.items()})
    audit = load_audit(head["audit"], tables)
    data = replace(before, table=table, schema=schema, _coded={})
    return Masked(original=before, data=data, spec=spec, plan=recorded_plan(audit), audit=audit)


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _from_bytes(content: bytes) -> pa.Table:
    with pa.ipc.open_stream(content) as stream:
        return stream.read_all()
