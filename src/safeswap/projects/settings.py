"""The sections ``[data]`` and ``[release]`` of a project file: the data, place and requirements of a release."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from safeswap import registry
from safeswap.arrays.names import Names
from safeswap.errors import SpecError
from safeswap.files.formats import existing_file, format_of
from safeswap.files.keyfile import PREFIX
from safeswap.files.read import read, read_joined
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema
from safeswap.model.spec import Stated
from safeswap.on_disk.masking import digest_of_both

RISKY = "risky"
"""The requirement that counts unsafe combinations; all others are measures."""

_REQUIREMENT = re.compile(r"\s*(?P<measure>[^<>=\s][^<>]*?)\s*(?P<sign><=|<)\s*(?P<limit>\d+(?:\.\d+)?)\s*", re.ASCII)


class DataSource(Stated):
    """The file with the data, relative to the project file, and how it is read.

    With ``households``, the file has persons, and both are masked in one job: ``household`` numbers the households in
    both files, and the ways of reading a text file hold for both.
    """

    called: ClassVar[str] = "the section data"

    file: Annotated[str, Field(min_length=1, description="the data, relative to the project file")]
    households: Annotated[
        str | None, Field(min_length=1, description="file of households, if the data are persons in another file")
    ] = None
    sha256: Annotated[
        str,
        Field(
            pattern=r"^([0-9a-f]{64})?$",
            description="digest of the file, or of persons and households together; empty: not checked",
        ),
    ] = ""
    identifier: Annotated[str | None, Field(description="column that identifies a record")] = None
    household: Annotated[str | None, Field(description="column that numbers households")] = None
    delimiter: Annotated[str | None, Field(description="field delimiter of a text file")] = None
    encoding: Annotated[str | None, Field(description="encoding of a text file")] = None
    quote: Annotated[str | None, Field(description="quote character of a text file")] = None
    decimal: Annotated[str | None, Field(description="decimal mark of the numbers in a text file")] = None
    missing: Annotated[Names, Field(description='codes that mean "no answer" in every column')] = ()

    def reading(self, schema: Schema | None) -> dict[str, Any]:
        """Return the options with which the file is read."""
        given = self.model_dump(exclude={"file", "households", "sha256", "household"}, exclude_none=True)
        given |= {"kinds": {self.household: "household"}} if self.household else {}
        given |= {} if schema is None else {"schema": schema}
        return {name: value for name, value in given.items() if value != ()}

    def files(self, folder: Path) -> tuple[Path, Path | None]:
        """Return the path of the data, and of the file of households if there is one."""
        return folder / self.file, None if self.households is None else folder / self.households

    def digest(self, folder: Path) -> str:
        """Return the digest of the data: of both files together, if there are two."""
        persons, homes = self.files(folder)
        return digest_of_both(existing_file(persons), homes and existing_file(homes))

    def layout_of(self, households: Path) -> dict[str, Any]:
        """Return the options for reading the file of households: those that its format takes."""
        known = {*format_of(existing_file(households)).options, "missing"}
        return {name: value for name, value in self.reading(None).items() if name in known}

    def read(self, folder: Path, schema: Schema | None) -> Microdata:
        """Read the data; persons are joined with their households."""
        persons, homes = self.files(folder)
        if homes is None:
            return read(persons, **self.reading(schema))
        return read_joined(persons, homes, on=self.household, layout=self.layout_of(homes), **self.reading(schema))


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A requirement on a release under a scenario: a figure at most, or below, a limit.

    >>> rule = Requirement.parse("prosecutor", "risky <= 0")
    >>> rule.holds(0), rule.holds(1), rule.text
    (True, False, 'prosecutor: risky <= 0')
    """

    scenario: str
    measure: str
    sign: str
    limit: float

    @classmethod
    def parse(cls, scenario: str, text: str) -> Requirement:
        """Read a requirement such as ``"n_rule <= 0.01"``; the measure must exist."""
        found = _REQUIREMENT.fullmatch(text)
        if found is None:
            raise SpecError(
                f"the requirement for {scenario!r} cannot be read",
                code="bad-requirement",
                hint='write a measure and its limit, such as "risky <= 0" or "k_anonymity <= 0.01"',
                scenario=scenario,
            )
        if found["measure"] != RISKY:
            registry.measure(found["measure"])
        return cls(scenario=scenario, measure=found["measure"], sign=found["sign"], limit=float(found["limit"]))

    @property
    def text(self) -> str:
        """The requirement in a line."""
        return f"{self.scenario}: {self.measure} {self.sign} {self.limit:g}"

    def holds(self, value: float) -> bool:
        """Return whether a figure satisfies it; a figure that is no number does not."""
        return value <= self.limit if self.sign == "<=" else value < self.limit


def _as_list(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    return {name: (text,) if isinstance(text, str) else text for name, text in given.items()}


class ReleaseSettings(Stated):
    """The place of a release, its key, and its requirements. Paths are relative to the project file."""

    called: ClassVar[str] = "the section release"

    key: Annotated[str, Field(description="key file, or env:NAME of a variable with the key or its file")] = (
        "env:SAFESWAP_KEY"
    )
    public: Annotated[str, Field(min_length=1, description="directory to publish")] = "release"
    audit: Annotated[str, Field(min_length=1, description="confidential directory: masked file, audit records")] = (
        "confidential"
    )
    format: Literal["csv", "parquet", "dta", "sav"] = "csv"
    two_files: Annotated[
        bool | None, Field(description="publish households and persons apart; by default if the data are two files")
    ] = None
    identifiers: Annotated[Literal["new", "none"], Field(description="assign new record numbers, or none")] = "new"
    drop: Annotated[Names, Field(description="columns to omit")] = ()
    date: Annotated[str, Field(description="date of the release")] = ""
    publish_rate: Annotated[bool, Field(description="publish the share of records that took part")] = False
    publish_errors: Annotated[
        str, Field(description="file of key indicators: publish by how much masking enlarges their standard errors")
    ] = ""
    require: Annotated[
        dict[str, tuple[str, ...]],
        BeforeValidator(_as_list),
        Field(description='by scenario, what must hold, such as "risky <= 0"'),
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_prudent(self) -> ReleaseSettings:
        if PREFIX in self.key:
            raise ValueError("key: name a file or env:VARIABLE; the key itself must not be written here")
        public, audit = (Path(os.path.normpath(path)) for path in (self.public, self.audit))
        if public in (audit, *audit.parents):
            raise ValueError("audit: the confidential directory must not lie inside the public one")
        return self

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """Everything that must hold."""
        return tuple(Requirement.parse(name, text) for name, texts in self.require.items() for text in texts)
