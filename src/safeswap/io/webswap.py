"""Project files in the manner of WebSwap (Sanil, Gomatam, Karr and Liu 2003).

A project is a folder of plain UTF-8 text files. The layouts of the original are not public; these are ours:

``NAME.orig``
    The data: comma-separated, with a header line.
``NAME.desc``
    The description: one line per attribute in column order, its kind and its name: ``nominal "Race"``.
``NAME.specs``
    The specification: ``records``, the names of the five files, ``swap-rate``, and one line per attribute with its
    role letter: ``S "Race"`` (S swap, F fixed, D differ, O other). The rate is the share of *records*, 2k/N.
``NAME.out``, ``NAME.log``
    The masked data and what was done (totals only); they come into being when the project is swapped.

Names stand in double quotes with the escapes of JSON, so that any name can be written. Lines that begin with ``#`` and
blank lines are comments. Files are named without a folder: all lie next to the specification.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safeswap.errors import InputError, SpecError
from safeswap.io import webswap_text as layout
from safeswap.io.atomic import atomic_write
from safeswap.io.read import read
from safeswap.io.sources import existing_file
from safeswap.io.write import write_csv
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.model.spec import Role, SwapSpec

_SUFFIXES = {"data": ".orig", "description": ".desc", "specification": ".specs", "log": ".log", "output": ".out"}


@dataclass(frozen=True, kw_only=True)
class ProjectAttribute:
    """An attribute of a project: what it is, and what the swap does with it."""

    name: str
    kind: Kind = Kind.NOMINAL
    role: Role = Role.OTHER


@dataclass(frozen=True, kw_only=True)
class Project:
    """A swap to be made: which data, which rate, which role for each attribute, and where everything lies.

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
        files = [getattr(self, which) for which in layout.FILES]
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
        """Where one of the files lies: data, description, specification, log or output."""
        return self.folder / str(getattr(self, which))

    def names(self, role: Role) -> tuple[str, ...]:
        """The attributes with a role, in column order."""
        return tuple(a.name for a in self.attributes if a.role is role)

    def swap_spec(self) -> SwapSpec:
        """The swap as the rest of the package takes it."""
        return SwapSpec(
            swap=self.names(Role.SWAP),
            fixed=self.names(Role.FIXED),
            differ=self.names(Role.DIFFER),
            rate=self.rate,
        )

    def microdata(self) -> Microdata:
        """The data of the project, described as the project says; refused if the two do not agree."""
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
            raise _disagree(self, f"the data hold {len(data):,} records, the specification says {self.records:,}")
        return data

    def save(self, *, force: bool = False) -> None:
        """Write description and specification; the specification last, since it is what opens the project."""
        description = layout.named_text((a.kind.value, a.name) for a in self.attributes)
        settings = {"records": self.records, **{which: getattr(self, which) for which in layout.FILES}}
        roles = layout.named_text((a.role.value, a.name) for a in self.attributes)
        _write_text(self.path("description"), layout.DESCRIPTION_HEADER + description, force=force)
        specification = layout.settings_text({**settings, "swap-rate": self.rate}) + layout.ROLES_HEADER + roles
        _write_text(self.path("specification"), layout.SPECIFICATION_HEADER + specification, force=force)

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
        _write_text(self.path("log"), layout.LOG_HEADER + layout.settings_text(totals), force=force)


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
    """Make a project: data, description and specification in a folder that exists.

    ``data`` is whatever ``read`` takes, or microdata that were read.

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
        microdata.schema[attribute]  # an unknown attribute gets its own clear error
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
    """Open a project by its specification file, and check that its files exist and agree with each other."""
    project = read_project(path)
    project.microdata()
    return project


def read_project(path: str | os.PathLike[str]) -> Project:
    """The project that specification and description describe; the data are not looked at."""
    file = existing_file(path)
    settings, named = layout.parsed(file)
    values = _checked_settings(file, settings)
    roles = {name: _word(file, line, word, Role) for line, word, name in named}
    described = layout.parsed(existing_file(file.parent / values["description"]))[1]
    kinds = {name: _word(file.parent / values["description"], line, word, Kind) for line, word, name in described}
    if len(roles) < len(named) or len(kinds) < len(described):
        raise layout.bad_line(file, named[0][0] if named else 1, "an attribute is named twice")
    if list(roles) != list(kinds):
        raise layout.bad_line(file, named[0][0] if named else 1, "the description names other attributes")
    return Project(
        folder=file.parent,
        records=values["records"],
        rate=float(values["swap-rate"]),
        attributes=tuple(ProjectAttribute(name=n, kind=kinds[n], role=roles[n]) for n in roles),
        **{which: values[which] for which in layout.FILES},
    )


def _checked_settings(file: Path, settings: Mapping[str, tuple[int, Any]]) -> dict[str, Any]:
    wanted: dict[str, tuple[type, ...]] = {
        "records": (int,),
        "swap-rate": (int, float),
        **dict.fromkeys(layout.FILES, (str,)),
    }
    for key, (line, value) in settings.items():
        if key not in wanted:
            raise layout.bad_line(file, line, f"there is no setting {key!r}")
        if not isinstance(value, wanted[key]) or isinstance(value, bool):
            raise layout.bad_line(file, line, f"{key!r} is not of the right type")
    for key in wanted:
        if key not in settings:
            raise layout.bad_line(file, 1, f"{key!r} is not set")
    if any(_leads_elsewhere(settings[which][1]) for which in layout.FILES):  # before any of them is opened
        raise _bad_project("file names are given without a folder")
    if settings["specification"][1] != file.name:
        raise layout.bad_line(file, settings["specification"][0], "the specification file has another name")
    return {key: value for key, (_, value) in settings.items()}


def _leads_elsewhere(name: str) -> bool:
    return not name or name in {".", ".."} or bool(set(name) & set("/\\\0"))


def _word(file: Path, line: int, word: str, words: type[Role] | type[Kind]) -> Any:
    try:
        return words(word)
    except ValueError:
        raise layout.bad_line(file, line, "use one of " + ", ".join(w.value for w in words)) from None


def _write_text(path: Path, text: str, *, force: bool) -> None:
    with atomic_write(path, force=force) as part:
        part.write_bytes(text.encode("utf-8"))


def _bad_project(what: str) -> SpecError:
    return SpecError(
        f"the project is not valid: {what}", code="bad-project", hint="see the documentation of safeswap.io.webswap"
    )


def _disagree(project: Project, what: str) -> InputError:
    return InputError(
        f"the files of the project do not agree: {what}",
        code="project-mismatch",
        hint="make the project anew from its data",
        file=str(project.path("specification")),
    )
