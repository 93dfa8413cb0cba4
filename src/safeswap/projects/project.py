"""The project file: a whole job, from the data to the settings of its release, in one TOML file that people edit.

``[data]``, ``[schema]``, ``[[scenario]]``, ``[[step]]``, ``[study]`` and ``[release]`` are the formats of the separate
files under a heading, and a section may also name such a file: ``schema = "survey.schema.toml"``. A comment that begins
with ``# ?`` marks a guess that is not confirmed yet; to confirm it, remove the mark. An error names the
line and the section, and never quotes a value.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from safeswap.errors import InputError, SafeswapError, SpecError
from safeswap.files.atomic import PRIVATE_FILE, atomic_write
from safeswap.files.formats import existing_file
from safeswap.files.schema_file import PROJECT_FORMAT as FORMAT
from safeswap.files.schema_file import read_schema
from safeswap.model.checked import check_types
from safeswap.model.scenario import Scenario, as_scenario
from safeswap.model.schema import Attribute, Schema, attribute_hint
from safeswap.model.study import StudySpec
from safeswap.pipelines.spec import Pipeline, Step
from safeswap.projects.project_text import SECTION_OF, keep_comments, list_entries, list_sections, write_sections
from safeswap.projects.settings import DataSource, ReleaseSettings
from safeswap.projects.toml import (
    FileError,
    load_toml,
    name_place,
    parse_toml,
    read_pipeline,
    read_step,
    read_study_spec,
)

_LARGEST = 64 * 2**20
_FILE = "project.toml"
_UNNAMED = "data"
_bad_project = FileError(code="bad-project-file", hint="`safeswap init FILE` writes a project file to start from")
_SECTIONS = ("format", "title", "data", "schema", "scenario", "step", "study", "release")


@dataclass(frozen=True, kw_only=True)
class Project:
    """A whole job: data, schema, scenarios, pipeline, study and settings of the release.

    ``guesses`` has, by place (``"schema.age"``), the evidence for what was guessed and is not confirmed. A step with
    ``off = true`` is kept in its place but not carried out: ``pipeline`` has the others, ``listed`` has all.

    >>> project = Project(
    ...     data="survey.csv",
    ...     scenarios=[{"name": "prosecutor", "keys": ["age", "sex"]}],
    ...     pipeline=[{"method": "suppress", "scenario": "prosecutor"}],
    ... )
    >>> project.pipeline["suppress"].spec.keys
    ('age', 'sex')
    >>> Project.parse(project.text()) == project
    True
    """

    title: str = ""
    data: DataSource
    schema: Schema | None = None
    scenarios: tuple[Scenario, ...] = ()
    pipeline: Pipeline = field(default_factory=lambda: Pipeline(()))
    aside: tuple[tuple[int, Step], ...] = ()  # steps that are switched off, each with its place among all
    study: StudySpec | None = None
    release: ReleaseSettings = field(default_factory=ReleaseSettings)
    guesses: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        made: dict[str, Any] = {}
        if isinstance(self.data, str | os.PathLike):
            made["data"] = DataSource(file=str(self.data))
        made["scenarios"] = tuple(as_scenario(each) for each in _as_items(self.scenarios, "scenarios"))
        known = {each.name: each for each in made["scenarios"]}
        if not isinstance(self.pipeline, Pipeline):
            made["pipeline"], made["aside"] = set_aside(_as_items(self.pipeline, "pipeline"), known)
        for name, kind in _KINDS.items():
            given = made.get(name, getattr(self, name))
            if isinstance(given, Mapping) and kind not in (str, Mapping):
                made[name] = kind(**{str(setting): value for setting, value in given.items()})
            elif not isinstance(given, kind) and (given is not None or name not in ("schema", "study")):
                raise _wrong_argument(name)
        if not _are_aside(self.aside):
            raise _wrong_argument("aside")
        if not all(isinstance(text, str) for each in self.guesses.items() for text in each):
            raise _wrong_argument("guesses")
        for name, value in made.items():
            object.__setattr__(self, name, value)
        self._check(known)

    @property
    def listed(self) -> tuple[tuple[Step, bool], ...]:
        """All steps in order, each with whether it is carried out."""
        every = [(step, True) for step in self.pipeline]
        for place, step in self.aside:
            every.insert(place, (step, False))
        return tuple(every)

    @property
    def question(self) -> StudySpec | None:
        """The study under the scenario that it names; under the first of the project if it names none."""
        if self.study is None or self.study.scenario is not None or not self.scenarios:
            return self.study
        return self.study.model_copy(update={"scenario": self.scenarios[0]})

    @check_types
    def with_steps(self, steps: Sequence[Mapping[str, Any]]) -> Project:
        """Return the project with other steps, stated as in its file; the study follows those that it names.

        >>> project = Project(data="survey.csv", pipeline=[{"method": "pram", "attributes": ["sex"]}])
        >>> project.with_steps([{**project.content()["step"][0], "off": True}]).pipeline.names
        ()
        """
        made = Project.of({**self.content(), "step": [dict(each) for each in steps]})
        return replace(self, pipeline=made.pipeline, aside=made.aside, study=made.study)

    def _check(self, scenarios: Mapping[str, Scenario]) -> None:
        """Refuse names that nothing in the project has."""
        Pipeline(tuple(step for step, _ in self.listed))  # all names differ
        if len(scenarios) < len(self.scenarios):
            raise SpecError("two scenarios have one name", code="bad-project", hint="give each a unique name")
        for name in self.release.require:
            if name not in scenarios:
                raise SpecError(
                    f"require names the scenario {name!r}, which the project does not have",
                    code="unknown-scenario",
                    hint=_suggest(name, scenarios, "scenarios"),
                    section="release",
                    setting="require",
                )
        _ = self.release.requirements
        for section, number, setting, name in self._columns():
            if self.schema is not None and name not in self.schema:
                raise SpecError(
                    f"{setting} names {name!r}, which is not a column of the schema",
                    code="unknown-attribute",
                    hint=_closest(name, self.schema.names) or attribute_hint(name, self.schema.names),
                    section=section,
                    number=number,
                    setting=setting,
                    attribute=name,
                )

    def _columns(self) -> Iterator[tuple[str, int, str, str]]:
        """Yield the columns that the sections name: section, which of its kind, setting, column."""
        named: list[tuple[str, int, str, Iterable[str | None]]] = [
            ("data", 0, "identifier", [self.data.identifier]),
            ("data", 0, "household", [self.data.household]),
            ("release", 0, "drop", self.release.drop),
        ]
        for number, each in enumerate(self.scenarios):
            named.append(("scenario", number, "keys", each.names))
            named.append(("scenario", number, "sensitive", each.sensitive))
            named.append(("scenario", number, "weight", [each.weight]))
        for section, number, setting, names in named:
            yield from ((section, number, setting, name) for name in names if name is not None)

    @classmethod
    @check_types
    def read(cls, path: str | os.PathLike[str]) -> Project:
        """Read a project file. Errors name the line and the section."""
        file = existing_file(path)
        content = load_toml(file, what="project", largest=_LARGEST, bad=_bad_project)
        return _Reader(file.read_text(encoding="utf-8-sig"), file).make(content)

    @classmethod
    @check_types
    def parse(cls, text: str) -> Project:
        """Read a project from the text of its file; files that it names are taken from the working directory."""
        file = Path(_FILE)
        return _Reader(text, file).make(parse_toml(text, file, bad=_bad_project))

    @classmethod
    @check_types
    def of(cls, content: Mapping[str, Any]) -> Project:
        """Make a project from the content of its file, which may omit the data; other files are not read.

        >>> Project.of({"scenario": [{"name": "prosecutor", "keys": ["age"]}]}).scenarios[0].keys
        ('age',)
        """
        return _Reader("", None).make({"data": {"file": _UNNAMED}, **content})

    def content(self) -> dict[str, Any]:
        """Return scenarios, steps, study and release as the file states them; :meth:`of` makes a project of them."""
        return list_sections(self)

    @classmethod
    @check_types
    def parse_alone(cls, text: str) -> Project:
        """Read a project from the text of a file that came without others; it may omit the data."""
        content = parse_toml(text, Path(_FILE), bad=_bad_project)
        return _Reader(text, None).make({"data": {"file": _UNNAMED}, **content})

    @classmethod
    @check_types
    def start(
        cls,
        path: str | os.PathLike[str],
        *,
        folder: str | os.PathLike[str] | None = None,
        households: str | os.PathLike[str] | None = None,
        on: str | None = None,
        **reading: Any,
    ) -> Project:
        """Propose a project for a data file, with every guess marked; ``folder`` is where its file is to lie.

        ``households`` is the file of households that belongs to a file of persons, and ``on`` numbers them in both.
        """
        from safeswap.projects.proposal import propose

        place = Path(path).parent if folder is None else Path(folder)
        homes = None if households is None else Path(households)
        return propose(Path(path), place, households=homes, on=on, **reading)

    @check_types
    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the project file, which :meth:`read` reads back as the same project.

        Comments that people wrote into the file that is replaced are kept.
        """
        text, file = self.text(), Path(path)
        if force and file.is_file() and file.stat().st_size <= _LARGEST:
            text = keep_comments(text, file.read_text(encoding="utf-8-sig", errors="replace"))
        with atomic_write(path, force=force, mode=PRIVATE_FILE) as part:
            part.write_bytes(text.encode("utf-8"))

    def text(self) -> str:
        """Return the project as the text of its file."""
        return "\n".join(write_sections(self))


_KINDS: dict[str, Any] = {
    "title": str,
    "data": DataSource,
    "schema": Schema,
    "study": StudySpec,
    "release": ReleaseSettings,
    "guesses": Mapping,
}


def _as_items(given: Any, name: str) -> list[Any]:
    if isinstance(given, list | tuple):
        return list(given)
    raise _wrong_argument(name)


def _are_aside(given: Any) -> bool:
    """Return whether a value is a tuple of steps with their places."""
    pairs = given if isinstance(given, tuple) else (None,)
    return all(isinstance(each, tuple) and [type(part) for part in each] == [int, Step] for each in pairs)


def _wrong_argument(name: str) -> SpecError:
    return SpecError(
        f"Project: {name!r} has a value of the wrong type",
        code="bad-argument",
        hint="give values of the sections of a project file; Project.read(path) reads them",
        argument=name,
    )


def with_scenario(values: Any, scenarios: Mapping[str, Scenario]) -> Any:
    """Return the values of a step with the scenario instead of its name."""
    if not isinstance(values, Mapping) or not isinstance(name := values.get("scenario"), str) or not name:
        return values
    if name in scenarios:
        return {**values, "scenario": scenarios[name]}
    if " (with " in name:  # a scenario that the step has changed: it states its own keys
        return values
    raise SpecError(
        f"there is no scenario {name!r}", code="unknown-scenario", hint=_suggest(name, scenarios, "scenarios")
    )


def set_aside(items: list[Any], scenarios: Mapping[str, Scenario]) -> tuple[Pipeline, tuple[tuple[int, Step], ...]]:
    """Return the steps that are carried out, and those with ``off = true``, each with its place among all.

    >>> drop, noise = {"step": "drop", "attributes": ["a"], "off": True}, {"method": "pram", "attributes": ["b"]}
    >>> on, aside = set_aside([drop, noise], {})
    >>> on.names, aside[0][0], aside[0][1].name
    (('pram',), 0, 'recode')
    """
    steps, off = [], []
    for number, each in enumerate(items, start=1):
        is_off = each.get("off", False) if isinstance(each, Mapping) else False
        if not isinstance(is_off, bool):
            message = f"step {number}: off is true or false"
            raise SpecError(message, code="bad-spec", hint="off = true keeps a step but skips it", position=number)
        plain = {name: value for name, value in each.items() if name != "off"} if isinstance(each, Mapping) else each
        steps.append(with_scenario(plain, scenarios))
        off.append(is_off)
    every = Pipeline(steps)
    on = tuple(step for step, is_off in zip(every, off, strict=True) if not is_off)
    return Pipeline(on), tuple((place, step) for place, step in enumerate(every) if off[place])


class _Reader:
    """Makes a project from the content of a file, and finds the line of what is wrong in its text.

    Without a ``file`` the content came alone: other files that it names are refused.
    """

    def __init__(self, text: str, file: Path | None) -> None:
        self.folder, self.has_text, self.outline = file and file.parent, bool(text), list_entries(text)
        self.file = file or Path(_FILE)

    def make(self, content: dict[str, Any]) -> Project:
        """Return the project."""
        content = {SECTION_OF.get(name, name): value for name, value in content.items()}
        self._refuse_unknown(content, _SECTIONS)
        if content.get("format", FORMAT) != FORMAT:
            raise self._error(f"the format is not {FORMAT!r}", "", 0, "format")
        if not isinstance(content.get("data"), dict):
            raise self._error(
                "there is no [data] with the file", "data", 0, hint='write [data] and file = "survey.csv"'
            )
        scenarios = self._scenarios(content.get("scenario", []))
        known = {each.name: each for each in scenarios}
        pipeline, aside = self._pipeline(content.get("step", []), known)
        release = self._section(content, "release", ReleaseSettings)
        made: dict[str, Any] = {
            "title": content.get("title", ""),
            "data": self._section(content, "data", DataSource),
            "schema": self._schema(content.get("schema")),
            "scenarios": scenarios,
            "pipeline": pipeline,
            "aside": aside,
            "study": self._study(content.get("study"), known, pipeline),
            "release": release,
            "guesses": {},
        }
        if not isinstance(made["title"], str):
            raise self._error("title is not text", "", 0, "title")
        with _Located(self, "release"):
            project = Project(**made)
        return replace(project, guesses=self._list_guesses(project))

    def _section(self, content: dict[str, Any], name: str, kind: Any) -> Any:
        values = content.get(name, {})
        if not isinstance(values, dict):
            raise self._error(f"[{name}] is not a section", name, 0)
        self._refuse_unknown(values, kind.model_fields, name, 0)
        with _Located(self, name):
            return kind(**values)

    def _schema(self, values: Any) -> Schema | None:
        if values is None:
            return None
        if isinstance(values, str):
            return read_schema(self._find_file(values))
        if not isinstance(values, dict) or not isinstance(values.get("attributes"), list):
            raise self._error("the schema has no list of attributes", "schema", 0)
        self._refuse_unknown(values, (*Schema.model_fields, "format"), "schema", 0)
        attributes = []
        for place, each in enumerate(values["attributes"], start=1):
            if not isinstance(each, dict):
                raise self._error(f"attribute {place} of the schema is not a table", "schema", 0)
            name = str(each.get("name", ""))
            self._refuse_unknown(each, Attribute.model_fields, "schema", 0, at=name)
            with _Located(self, "schema", setting=name):
                attributes.append(Attribute(**each))
        named = {name: value for name, value in values.items() if name in ("name", "label")}
        with _Located(self, "schema"):
            return Schema(**named, attributes=tuple(attributes))

    def _scenarios(self, listed: Any) -> tuple[Scenario, ...]:
        found: dict[str, Scenario] = {}
        for number, values in enumerate(self._blocks(listed, "scenario")):
            self._refuse_unknown(values, Scenario.model_fields, "scenario", number)
            with _Located(self, "scenario", number):
                made = Scenario(**values)
            if made.name in found:
                raise self._error(f"two scenarios have the name {made.name!r}", "scenario", number)
            found[made.name] = made
        return tuple(found.values())

    def _pipeline(
        self, listed: Any, scenarios: Mapping[str, Scenario]
    ) -> tuple[Pipeline, tuple[tuple[int, Step], ...]]:
        if isinstance(listed, str):
            return read_pipeline(self._find_file(listed)), ()
        steps: Any = []
        for number, values in enumerate(self._blocks(listed, "step")):
            with _Located(self, "step", number):
                off = {"off": values["off"]} if "off" in values else {}
                plain = self._read_step({name: value for name, value in values.items() if name != "off"})
                steps.append({**with_scenario(plain, scenarios), **off})
        try:
            return set_aside(steps, {})
        except SpecError as error:
            raise self._locate(error, "step", int(error.fields.get("position", 1)) - 1) from None

    def _study(self, values: Any, scenarios: Mapping[str, Scenario], pipeline: Pipeline) -> StudySpec | None:
        if values is None:
            return None
        if isinstance(values, str):
            return read_study_spec(self._find_file(values))
        if not isinstance(values, dict):
            raise self._error("[study] is not a section", "study", 0)
        self._refuse_unknown(values, StudySpec.model_fields, "study", 0)
        with _Located(self, "study"):
            named = {name: self._steps(values[name], pipeline) for name in ("first", "last") if name in values}
            return StudySpec(**with_scenario({**values, **named}, scenarios))

    def _steps(self, listed: Any, pipeline: Pipeline) -> Any:
        """Return steps that a study names by their values."""
        if not isinstance(listed, list):
            return listed
        return [pipeline[each].as_dict() if isinstance(each, str) else each for each in listed]

    def _blocks(self, listed: Any, name: str) -> list[dict[str, Any]]:
        if not isinstance(listed, list) or not all(isinstance(values, dict) for values in listed):
            raise self._error(f"write [[{name}]] for each {name}", name, 0)
        return listed

    def _read_step(self, values: dict[str, Any]) -> Any:
        if self.folder is None:
            for name in ("grc", "file"):
                if isinstance(values.get(name), str):
                    self._find_file(values[name])
            return values
        return read_step(values, self.folder)

    def _find_file(self, name: str) -> Path:
        if self.folder is None:
            raise SpecError(
                f"the project names another file, {name!r}, which was not included",
                code="bad-project-file",
                hint="copy its content into the project file",
            )
        return self.folder / name

    def _list_guesses(self, project: Project) -> dict[str, str]:
        steps = [step.name for step, _ in project.listed]
        named = {"scenario": [each.name for each in project.scenarios], "step": steps}
        found = {}
        for entry in self.outline:
            if entry.guess is not None:
                inside = named.get(entry.section, [])[entry.number : entry.number + 1]
                found[".".join([*filter(None, [entry.section]), *inside, entry.setting])] = entry.guess
        return found

    def _refuse_unknown(
        self, values: Iterable[str], known: Iterable[str], section: str = "", number: int = 0, *, at: str = ""
    ) -> None:
        """Refuse a setting that a section does not have, or a section that a project does not have."""
        names = list(known)
        for name in values:
            if name not in names:
                what = f"setting {name!r} in [{section}]" if section else f"section {name!r}"
                hint = _suggest(name, names, "settings" if section else "sections")
                # A section that is not known is listed under its own name.
                place = (section, number, at or name) if section else (name, 0, "")
                raise self._error(f"there is no {what}", *place, hint=hint)

    def line_of(self, section: str, number: int, setting: str = "") -> int | None:
        """Return the line of a setting; that of its section where it is not found, None where neither is."""
        inside = [each for each in self.outline if (each.section, each.number) == (section, number)]
        inside = inside or [each for each in self.outline if not each.section and each.setting == section]
        exact = [each.line for each in inside if each.setting == setting]
        return exact[0] if exact else inside[0].line if inside else None

    def _error(self, what: str, section: str, number: int, setting: str = "", *, hint: str = "") -> InputError:
        line = self.line_of(section, number, setting)
        return _bad_project(self.file, what, hint=hint, line=line, section=section)

    def _locate(self, error: SafeswapError, section: str, number: int, setting: str = "") -> SafeswapError:
        """Return the error with file, line and section."""
        section, number = error.fields.get("section", section), error.fields.get("number", number)
        problems = error.fields.get("problems") or [{}]
        setting = setting or str(error.fields.get("setting", problems[0].get("parameter", ""))).split(".")[0]
        line = self.line_of(section, number, setting)
        if not self.has_text:
            return type(error)(error.message, code=error.code, hint=error.hint, **{**error.fields, "section": section})
        where = name_place(self.file, line) + (f", [{section}]" if section else "")
        fields = {**error.fields, "file": str(self.file), "section": section}
        fields |= {} if line is None else {"line": line}
        return type(error)(f"{where}: {error.message}", code=error.code, hint=error.hint, **fields)


class _Located:
    """Adds file, line and section to an error that is raised within."""

    def __init__(self, reader: _Reader, section: str, number: int = 0, setting: str = "") -> None:
        self.reader, self.place = reader, (section, number, setting)

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SafeswapError) and "file" not in error.fields:
            raise self.reader._locate(error, *self.place) from None


def _closest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else ""


def _suggest(name: str, known: Iterable[str], what: str) -> str:
    names = list(known)
    return _closest(name, names) or (f"the {what} are: {', '.join(names)}" if names else f"there are no {what}")
