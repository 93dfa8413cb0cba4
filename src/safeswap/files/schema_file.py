"""Schemas as TOML files that people can read, correct and keep under version control."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from safeswap.errors import InputError, SpecError
from safeswap.files.atomic import PRIVATE_FILE, atomic_write
from safeswap.files.formats import existing_file, unreadable_error
from safeswap.model.schema import Attribute, Schema

FORMAT = "safeswap-schema-1"
PROJECT_FORMAT = "safeswap-project-1"
"""The format of a file that has a schema, steps, scenarios and a study as sections."""
_LARGEST = 64 * 2**20
_AT_LINE = re.compile(r"\(at line (\d+), column (\d+)\)")
_TABLE = re.compile(r"\s*\[\[\s*(?:attributes|\"attributes\"|'attributes')\s*\]\]")

_HEADER = """\
# What is known about a data set. One [[attributes]] block per column, in column order.
# kind: nominal, ordinal, numeric, date, identifier, weight, household or geography.
# inferred = true marks a kind that was guessed: check it, correct it, and take the line out.
# levels: the values as text, from low to high where the attribute is ordinal. missing: codes that mean "no answer".
# household = true marks an attribute that is the same for all members of a household.
# design: stratum, psu (primary sampling unit) or replicate (a replicate weight), where the file is a sample.
# labels: what a value means. hierarchy: from fine to coarse, each level's parent.

"""


def write_schema(
    schema: Schema, path: str | os.PathLike[str], *, force: bool = False, mode: int = PRIVATE_FILE
) -> None:
    """Write a schema; ``read_schema`` returns an equal one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.schema.toml"
    ...     schema = Schema(name="toy", attributes=(Attribute(name="Sex", labels={"1": "male"}),))
    ...     write_schema(schema, path)
    ...     read_schema(path) == schema
    True
    """
    import tomli_w

    label = {"label": schema.label} if schema.label else {}
    head = tomli_w.dumps({"format": FORMAT, "name": schema.name, **label})
    # One block per attribute, even if short enough for a single line: people edit this.
    blocks = (tomli_w.dumps({"attributes": _to_plain(attribute)}) for attribute in schema.attributes)
    body = "" if schema.attributes else "attributes = []\n"
    body += "".join("\n" + block.replace("[attributes]", "[[attributes]]", 1) for block in blocks)
    with atomic_write(path, force=force, mode=mode) as part:
        part.write_bytes((_HEADER + head + body).encode("utf-8"))


def _to_plain(attribute: Attribute) -> dict[str, Any]:
    # The kind is always written: people look for it.
    stated = attribute.model_dump(mode="json", exclude_defaults=True)
    return {"name": attribute.name, "kind": attribute.kind.value, **stated}


def read_schema(path: str | os.PathLike[str]) -> Schema:
    """Read a schema file; an error names the line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.schema.toml"
    ...     _ = path.write_text('[[attributes]]\\nname = "Sex"\\nkind = "nominable"\\n')
    ...     read_schema(path)
    Traceback (most recent call last):
    safeswap.errors.InputError: line 1 of 'toy.schema.toml', attribute 1, kind: ...
    """
    file = existing_file(path)
    text = _read_text(file)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _toml_error(file, str(error)) from None
    except RecursionError:
        raise _schema_error(file, "the file is nested too deeply", line=1) from None
    content = _take_section(file, content)
    stated = content.pop("format", FORMAT)
    if stated != FORMAT:
        raise _schema_error(file, f"the format is not {FORMAT!r}", line=1)
    blocks = content.pop("attributes", ())
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise _schema_error(file, "the attributes are not [[attributes]] blocks", line=1)
    attributes: list[Attribute] = []
    try:
        attributes.extend(Attribute(**block) for block in blocks)
        return Schema(**content, attributes=tuple(attributes))
    except SpecError as error:
        raise _attribute_error(file, text, error, after=len(attributes), within=len(attributes) < len(blocks)) from None


def _take_section(file: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a project file, with the kinds that its section data states; other content as it is."""
    if content.get("format") != PROJECT_FORMAT:
        return content
    schema, data = content.get("schema"), content.get("data", {})
    if not isinstance(schema, dict) or not isinstance(schema.get("attributes"), list) or not isinstance(data, dict):
        raise _schema_error(file, "the project has no [schema] with attributes", line=1)
    kinds = {data[kind]: kind for kind in ("identifier", "household") if isinstance(data.get(kind), str)}
    named = (each if isinstance(each, dict) else {} for each in schema["attributes"])
    attributes = [{**each, **({"kind": kinds[name]} if (name := each.get("name")) in kinds else {})} for each in named]
    return {**schema, "attributes": attributes}


def _read_text(file: Path) -> str:
    try:
        if file.stat().st_size > _LARGEST:
            raise _schema_error(file, "the file is too large for a schema", line=1)
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise _schema_error(file, "the file is not UTF-8 text", line=1) from None
    except OSError as error:
        raise unreadable_error(file, error) from None


def _toml_error(file: Path, message: str) -> InputError:
    # Only the position is used: the parser's message may quote the file.
    if (position := _AT_LINE.search(message)) is None:
        return _schema_error(file, "the file ends unexpectedly", line=0)
    line, column = int(position[1]), int(position[2])
    return _schema_error(file, f"line {line} of {file.name!r} is not valid TOML", line=line, column=column)


def _attribute_error(file: Path, text: str, error: SpecError, *, after: int, within: bool) -> InputError:
    """Return the error for the first problem of the attribute after ``after`` others, or of the file as a whole."""
    first = error.fields["problems"][0]
    line = _line_of_attribute(text, after) if within else 1
    place = [f"attribute {after + 1}"] if within else []
    place += [part for part in first["parameter"].split(".")[:1] if part]
    where = "".join(f", {part}" for part in place)
    return _schema_error(file, f"line {line} of {file.name!r}{where}: {first['problem']}", line=line)


def _line_of_attribute(text: str, number: int) -> int:
    found = [i for i, line in enumerate(text.split("\n"), start=1) if _TABLE.match(line)]
    return found[number] if number < len(found) else 1


def _schema_error(file: Path, message: str, **position: int) -> InputError:
    return InputError(
        message,
        code="bad-schema-file",
        hint="`safeswap describe` can write a schema file to start from",
        file=str(file),
        **{name: value for name, value in position.items() if value},
    )
