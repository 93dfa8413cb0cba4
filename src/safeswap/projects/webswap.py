"""Project files modelled on WebSwap (Sanil, Gomatam, Karr and Liu 2003).

A project is a folder of plain UTF-8 text files. The original layouts are not public; these are ours:

``NAME.orig``
    The data: comma-separated, with a header line.
``NAME.desc``
    The description: one line per attribute in column order, its kind and its name: ``nominal "Race"``.
``NAME.specs``
    The specification: ``records``, the names of the five files, ``swap-rate``, and one line per attribute with its
    role letter: ``S "Race"`` (S swap, F fixed, D differ, O other). The rate is the share of *records*, 2k/N.
``NAME.out``, ``NAME.log``
    The masked data and a log (totals only), written when the project is swapped.

Names are in double quotes with JSON escapes, so that any name can be written. Lines that begin with ``#`` and blank
lines are comments. Files are named without a folder: all are next to the specification.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safeswap.errors import InputError, SpecError
from safeswap.files.atomic import atomic_write
from safeswap.files.formats import existing_file, unreadable_error
from safeswap.files.read import read
from safeswap.files.write import write_csv
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.spec import Role, SwapSpec
from safeswap.model.text import plural

FILES = ("data", "description", "specification", "log", "output")
_SETTING = re.compile(r"([a-z][a-z-]*)\s*=\s*(\S.*)", re.ASCII)
_NAMED = re.compile(r"([A-Za-z]+)\s+(\".*\")", re.ASCII | re.DOTALL)
_LARGEST = 64 * 2**20

DESCRIPTION_HEADER = """\
# WebSwap description, layout 1: one line per attribute in column order, its kind and its name.
# Kinds: nominal, ordinal, numeric, identifier, weight, household, geography. Names are quoted as in JSON.
"""

SPECIFICATION_HEADER = """\
# WebSwap specification, layout 1. Names are quoted as in JSON; the files lie next to this one.
# swap-rate is the share of RECORDS that take part in a swap: 2k/N for k pairs among N records.
# (Gomatam, Karr and Sanil 2003 write half of it, k/N: their 0.01 is 0.02 here.)
"""

ROLES_HEADER = "\n# The role of each attribute: S swap, F fixed (equal in a pair), D differ, O other.\n"

LOG_HEADER = "# WebSwap log, layout 1: totals of what was done; it names no record.\n"


def quote(name: str) -> str:
    """Quote a name for a project file.

    >>> print(quote('say "x"\\n'))
    "say \\"x\\"\\n"
    """
    return json.dumps(name, ensure_ascii=False)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return a line per setting.

    >>> print(settings_text({"records": 3, "data": "a.orig"}), end="")
    records = 3
    data = "a.orig"
    """
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in settings.items())


def named_text(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a line per attribute: a word, and its name in quotes."""
    return "".join(f"{word} {quote(name)}\n" for word, name in pairs)


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither blank nor comments, with their numbers."""
    file = existing_file(path)
    try:
        if file.stat().st_size > _LARGEST:
            raise bad_line(file, 1, "the file is too large for a project file")
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        position = 1 + error.object[: error.start].count(b"\n")
        raise bad_line(file, position, "the file is not UTF-8 text") from None
    except OSError as error:
        raise unreadable_error(file, error) from None
    # Split at line feeds only: a name may contain other characters that count as line ends.
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip(" \t\r")
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def parse(path: Path) -> tuple[dict[str, tuple[int, Any]], list[tuple[int, str, str]]]:
    """Return the settings with their lines, and the named lines (number, word, name)."""
    settings: dict[str, tuple[int, Any]] = {}
    named: list[tuple[int, str, str]] = []
    for number, line in numbered_lines(path):
        if match := _SETTING.fullmatch(line):
            if match[1] in settings:
                raise bad_line(path, number, f"{match[1]!r} is set twice")
            settings[match[1]] = (number, _value(path, number, match[2]))
        elif match := _NAMED.fullmatch(line):
            name = _value(path, number, match[2])
            if not name:
                raise bad_line(path, number, "the name is empty")
            named.append((number, match[1], name))
        else:
            raise bad_line(path, number, "the line is neither a setting, nor an attribute, nor a comment")
    return settings, named


def _value(path: Path, number: int, text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise bad_line(path, number, "the value is not written as in JSON") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise bad_line(path, number, "the value is not a finite number")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise bad_line(path, number, "the text holds half of a character") from None
    return value


def bad_line(path: Path, line: int, what: str) -> InputError:
    """Make an error for a line of a project file."""
    return InputError(
        f"line {line} of {path.name!r}: {what}",
        code="bad-project-file",
        hint="the layouts are described in the documentation of safeswap.projects.webswap",
        file=str(path),
        line=line,
    )


_SUFFIXES = {"data": ".orig", "description": ".desc", "specification": ".specs", "log": ".log", "output": ".out"}


@dataclass(frozen=True, kw_only=True)
class ProjectAttribute:
    """An attribute of a project, with its kind and its role in the swap."""

    name: str
    kind: Kind = Kind.NOMINAL
    role: Role = Role.OTHER


@dataclass(frozen=True, kw_only=True)
class Project:
    """A planned swap: its data, rate, roles of attributes and files.

    ``rate`` is the share of records that take part, 2k/N for k pairs. File names are without a folder.

    >>> project = Project(
    ...     folder=Path("."),
    ...     records=100,
    ...     rate=0.05,
    ...     data="a.orig",
    ...     description="a.desc",
    ...     specification="a.specs",
    ...     log="a.log",
    ...     output="a.out",
    ...     attributes=(ProjectAttribute(name="Race", role=Role.SWAP),),
    ... )
    >>> project.swap_spec()
    SwapSpec(swap=('Race',), fixed=(), differ=(), rate=0.05, ...)
    """

    folder: Path
    records: int
    rate: float
    attributes: tuple[ProjectAttribute, ...]
    data: str
    description: str
    specification: str
    log: str
    output: str

    def __post_init__(self) -> None:
        files = [getattr(self, which) for which in FILES]
        if any(_leads_elsewhere(name) for name in files):
            raise _bad_project("file names are given without a folder")
        if len({name.casefold() for name in files}) < len(files):
            raise _bad_project("two files of the project have the same name")
        names = [a.name for a in self.attributes]
        if len(set(names)) < len(names) or not all(names):
            raise _bad_project("an attribute name is empty or occurs twice")
        if any(a.kind is Kind.IDENTIFIER and a.role is not Role.OTHER for a in self.attributes):
            raise _bad_project("an identifier can only have the role O")
        if not 0 < self.rate <= 1:
            raise _bad_project("the swap rate must be above 0 and at most 1")
        if self.records < 1:
            raise _bad_project("the number of records must be at least 1")

    def path(self, which: str) -> Path:
        """Return the path of one of the files: data, description, specification, log or output."""
        return self.folder / str(getattr(self, which))

    def names(self, role: Role) -> tuple[str, ...]:
        """Return the attributes with a role, in column order."""
        return tuple(a.name for a in self.attributes if a.role is role)

    def swap_spec(self) -> SwapSpec:
        """Return the specification of the swap."""
        return SwapSpec(
            swap=self.names(Role.SWAP),
            fixed=self.names(Role.FIXED),
            differ=self.names(Role.DIFFER),
            rate=self.rate,
        )

    def microdata(self) -> Microdata:
        """Read the data with the project's description; refuse data that do not match it."""
        data = read(
            self.path("data"),
            schema=Schema(attributes=tuple(Attribute(name=a.name, kind=a.kind) for a in self.attributes)),
            kinds={a.name: a.kind for a in self.attributes if a.kind is Kind.ORDINAL},  # finds their order
            delimiter=",",
            encoding="utf-8",
            quote='"',
            name=Path(self.data).stem,
        )
        if data.attributes != tuple(a.name for a in self.attributes):
            raise _disagree(self, "the data hold the attributes in another order than the description")
        if len(data) != self.records:
            raise _disagree(
                self, f"the data hold {plural(len(data), 'record')}, the specification says {self.records:,}"
            )
        return data

    def save(self, *, force: bool = False) -> None:
        """Write description and specification, the specification last, since it opens the project."""
        description = named_text((a.kind.value, a.name) for a in self.attributes)
        settings = {"records": self.records, **{which: getattr(self, which) for which in FILES}}
        roles = named_text((a.role.value, a.name) for a in self.attributes)
        _write_text(self.path("description"), DESCRIPTION_HEADER + description, force=force)
        specification = settings_text({**settings, "swap-rate": self.rate}) + ROLES_HEADER + roles
        _write_text(self.path("specification"), SPECIFICATION_HEADER + specification, force=force)

    def write_results(self, masked: Masked, *, force: bool = False) -> None:
        """Write the masked data and the log: totals only, no pair and no record."""
        write_csv(masked, self.path("output"), force=force)
        totals = {
            "records": len(masked.data),
            "pairs-asked": masked.plan.asked,
            "pairs-feasible": masked.plan.feasible,
            **({} if masked.plan.at_most is None else {"pairs-feasible-at-most": masked.plan.at_most}),
            "pairs-made": masked.audit.made,
            "pairs-compensating": masked.audit.compensating,
            "key-id": masked.audit.key_id,
            "for-release": masked.audit.releasable,
        }
        _write_text(self.path("log"), LOG_HEADER + settings_text(totals), force=force)


def new_project(
    data: Any,
    folder: str | os.PathLike[str],
    *,
    name: str,
    swap: Sequence[str],
    rate: float,
    fixed: Sequence[str] = (),
    differ: Sequence[str] = (),
    force: bool = False,
) -> Project:
    """Create a project in an existing folder: data, description and specification.

    ``data`` is whatever ``read`` takes, or microdata.

    >>> import tempfile, pyarrow as pa
    >>> table = pa.table({"id": ["1", "2", "3"], "Race": ["a", "b", "b"], "Sex": ["F", "M", "F"]})
    >>> with tempfile.TemporaryDirectory() as place:
    ...     made = new_project(table, place, name="toy", swap=["Race"], fixed=["Sex"], rate=0.5)
    ...     open_project(Path(place) / "toy.specs") == made
    True
    """
    microdata = data if isinstance(data, Microdata) else read(data)
    spec = SwapSpec(swap=tuple(swap), fixed=tuple(fixed), differ=tuple(differ), rate=rate)
    for attribute in (*spec.swap, *spec.fixed, *spec.differ):
        microdata.schema[attribute]  # raises for an unknown attribute
    files = {which: name + suffix for which, suffix in _SUFFIXES.items()}
    project = Project(
        folder=Path(folder),
        records=len(microdata),
        rate=rate,
        attributes=tuple(
            ProjectAttribute(name=a.name, kind=a.kind, role=spec.role(a.name)) for a in microdata.schema.attributes
        ),
        **files,
    )
    write_csv(microdata, project.path("data"), force=force)
    project.save(force=force)
    return project


def open_project(path: str | os.PathLike[str]) -> Project:
    """Open a project by its specification file, and check that its files exist and agree."""
    project = read_project(path)
    project.microdata()
    return project


def read_project(path: str | os.PathLike[str]) -> Project:
    """Read a project from its specification and description, without reading the data."""
    file = existing_file(path)
    settings, named = parse(file)
    values = _check_settings(file, settings)
    roles = {name: _word(file, line, word, Role) for line, word, name in named}
    described = parse(existing_file(file.parent / values["description"]))[1]
    kinds = {name: _word(file.parent / values["description"], line, word, Kind) for line, word, name in described}
    if len(roles) < len(named) or len(kinds) < len(described):
        raise bad_line(file, named[0][0] if named else 1, "an attribute is named twice")
    if list(roles) != list(kinds):
        raise bad_line(file, named[0][0] if named else 1, "the description names other attributes")
    return Project(
        folder=file.parent,
        records=values["records"],
        rate=float(values["swap-rate"]),
        attributes=tuple(ProjectAttribute(name=n, kind=kinds[n], role=roles[n]) for n in roles),
        **{which: values[which] for which in FILES},
    )


def _check_settings(file: Path, settings: Mapping[str, tuple[int, Any]]) -> dict[str, Any]:
    wanted: dict[str, tuple[type, ...]] = {
        "records": (int,),
        "swap-rate": (int, float),
        **dict.fromkeys(FILES, (str,)),
    }
    for key, (line, value) in settings.items():
        if key not in wanted:
            raise bad_line(file, line, f"there is no setting {key!r}")
        if not isinstance(value, wanted[key]) or isinstance(value, bool):
            raise bad_line(file, line, f"{key!r} is not of the right type")
    for key in wanted:
        if key not in settings:
            raise bad_line(file, 1, f"{key!r} is not set")
    if any(_leads_elsewhere(settings[which][1]) for which in FILES):  # before any of them is opened
        raise _bad_project("file names are given without a folder")
    if settings["specification"][1] != file.name:
        raise bad_line(file, settings["specification"][0], "the specification file has another name")
    return {key: value for key, (_, value) in settings.items()}


def _leads_elsewhere(name: str) -> bool:
    return not name or name in {".", ".."} or bool(set(name) & set("/\\\0"))


def _word(file: Path, line: int, word: str, words: type[Role] | type[Kind]) -> Any:
    try:
        return words(word)
    except ValueError:
        raise bad_line(file, line, "use one of " + ", ".join(w.value for w in words)) from None


def _write_text(path: Path, text: str, *, force: bool) -> None:
    with atomic_write(path, force=force) as part:
        part.write_bytes(text.encode("utf-8"))


def _bad_project(what: str) -> SpecError:
    return SpecError(
        f"the project is not valid: {what}",
        code="bad-project",
        hint="see the documentation of safeswap.projects.webswap",
    )


def _disagree(project: Project, what: str) -> InputError:
    return InputError(
        f"the files of the project do not agree: {what}",
        code="project-mismatch",
        hint="create the project again from its data",
        file=str(project.path("specification")),
    )
