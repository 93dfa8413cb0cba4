"""The text of a project file: its line numbers, which a TOML parser does not give, and how it is written for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from safeswap.errors import SafeswapError
from safeswap.files.schema_file import PROJECT_FORMAT
from safeswap.model.combination import CombinationFields
from safeswap.model.schema import Attribute
from safeswap.pipelines.spec import Pipeline, Step
from safeswap.projects.toml import drop_empty

if TYPE_CHECKING:
    from safeswap.projects.project import Project

SECTION_OF = {"steps": "step"}
"""Other names of sections: that of a file which holds a pipeline alone."""


@dataclass(frozen=True)
class Entry:
    """A setting in the text: its section and how many of that name came before, its line, and the mark of a guess."""

    section: str
    number: int
    setting: str
    line: int
    guess: str | None


_HEADING = re.compile(r"\s*\[{1,2}\s*[\"']?(?P<name>\w+)[\"']?(?P<part>\.\w+)?\s*\]{1,2}")
_SETTING = re.compile(r"\s*[\"']?(?P<name>[\w-]+)[\"']?\s*=")
_COLUMN = re.compile(r"\{\s*name\s*=\s*(?P<text>\"(?:[^\"\\]|\\.)*\"|'[^']*')")
_NAMED = re.compile(r"\s*name\s*=\s*(?P<text>\"(?:[^\"\\]|\\.)*\"|'[^']*')")


def list_entries(text: str) -> list[Entry]:
    """List the headings and settings of the text by line. A TOML parser does not give lines; this one needs to."""
    section, number = "", 0
    blocks: dict[str, int] = {}
    found: list[Entry] = []
    for line, written in enumerate(text.split("\n"), start=1):
        code, comment = _split_comment(written)
        guess = comment[1:].strip() if comment.startswith("?") else None
        if heading := _HEADING.match(code):
            section = SECTION_OF.get(heading["name"], heading["name"])
            if heading["part"] is None:
                number = blocks[section] = blocks.get(section, -1) + 1
            found.append(Entry(section, number, "", line, guess))
        elif section == "schema" and (column := _COLUMN.search(code) or _NAMED.match(code)):
            found.append(Entry(section, 0, _unquote(column["text"]), line, guess))
        elif setting := _SETTING.match(code):
            found.append(Entry(section, number, setting["name"], line, guess))
    return found


def _split_comment(line: str) -> tuple[str, str]:
    """Return a line without its comment, and the comment without its mark.

    >>> _split_comment('name = "a # b"  # ? c')
    ('name = "a # b"  ', '? c')
    """
    quote, escaped = "", False
    for place, character in enumerate(line):
        if quote:
            if not escaped and character == quote:
                quote = ""
            escaped = quote == '"' and character == "\\" and not escaped
        elif character in "\"'":
            quote = character
        elif character == "#":
            return line[:place], line[place + 1 :].strip()
    return line, ""


def _unquote(text: str) -> str:
    if text.startswith("'"):
        return text[1:-1]
    try:
        return str(json.loads(text))
    except ValueError:
        return text[1:-1]


_HEADER = """\
# A job of safeswap, from the data to what is released. Edit it freely.
# A comment that begins with a question mark is a guess: check it, correct it, and remove the question mark.
# `safeswap run` carries out the steps below; `safeswap status` says what is out of date; `safeswap release` publishes.
"""
_COMMENTS = {
    "schema": "one line per column; kinds: nominal ordinal numeric date weight household geography identifier",
    "step": "carried out in this order; `name` fixes a step's random draws: keep it when others change",
    "study": "first, last: names of steps above",
    "release": "key: a file, or env:NAME; never the key itself",
}
_EXAMPLES = """\
# Further steps to consider; see the documentation of methods:
# [[step]]
# method = "swap"
# swap = ["region"]
# fixed = ["sex"]
# rate = 0.02
"""


def write_sections(project: Project) -> Iterator[str]:
    """Yield the text of each section of a project."""
    marks = project.guesses
    yield _HEADER
    yield "\n".join(_settings({"format": PROJECT_FORMAT, "title": project.title}, "", marks)) + "\n"
    yield _block("[data]", drop_empty(project.data.model_dump(mode="json", exclude_defaults=True)), "data", marks)
    if project.schema is not None:
        named = {"name": project.schema.name, "label": project.schema.label}
        lines = [*_settings({name: text for name, text in named.items() if text}, "schema", marks), "attributes = ["]
        lines += [
            _mark(f"  {_inline(_column(each))},", marks, f"schema.{each.name}") for each in project.schema.attributes
        ]
        yield "\n".join([_heading("[schema]", "schema"), *lines, "]"]) + "\n"
    content = list_sections(project)
    for scenario in content["scenario"]:
        yield _block("[[scenario]]", scenario, f"scenario.{scenario['name']}", marks)
    for number, step in enumerate(content["step"]):
        yield _block("[[step]]", step, f"step.{step['name']}", marks, told=number == 0)
    yield _EXAMPLES if all(step.spec.method != "swap" for step in project.pipeline) else ""
    if "study" in content:
        yield _block("[study]", content["study"], "study", marks)
    yield _block("[release]", content["release"], "release", marks)


def list_sections(project: Project) -> dict[str, Any]:
    """Return the scenarios, steps, study and release of a project as its file states them, without defaults."""
    return {
        "scenario": [drop_empty(scenario.as_dict()) for scenario in project.scenarios],
        "step": [_short_step(step, project) | ({} if is_on else {"off": True}) for step, is_on in project.listed],
        **({} if project.study is None else {"study": _short_study(project)}),
        "release": _short_release(project),
    }


def _block(heading: str, values: Mapping[str, Any], place: str, marks: Mapping[str, str], *, told: bool = True) -> str:
    first = _heading(heading, place) if told else heading
    return "\n".join([_mark(first, marks, f"{place}."), *_settings(values, place, marks)]) + "\n"


def _heading(heading: str, place: str) -> str:
    comment = _COMMENTS.get(place.partition(".")[0])
    return f"{heading}  # {comment}" if comment else heading


def _settings(values: Mapping[str, Any], place: str, marks: Mapping[str, str]) -> list[str]:
    prefix = f"{place}." if place else ""
    return [_mark(f"{_name(name)} = {_inline(value)}", marks, prefix + name) for name, value in values.items()]


def _mark(line: str, marks: Mapping[str, str], place: str) -> str:
    if place not in marks:
        return line
    return f"{line.partition('  # ')[0] if place.endswith('.') else line}  # ? {marks[place]}".rstrip()


def _column(attribute: Attribute) -> dict[str, Any]:
    return {"name": attribute.name, **attribute.model_dump(mode="json", exclude_defaults=True)}


def _short_release(project: Project) -> dict[str, Any]:
    values = drop_empty(project.release.model_dump(mode="json", exclude_defaults=True))
    shown = {name: getattr(project.release, name) for name in ("key", "public", "audit", "format", "identifiers")}
    require = {name: texts[0] if len(texts) == 1 else list(texts) for name, texts in project.release.require.items()}
    return {**shown, **values, **({"require": require} if require else {})}


def _short_step(step: Step, project: Project) -> dict[str, Any]:
    """Return the values of a step without those that its scenario supplies."""
    values = drop_empty(step.as_dict())
    values = {"method": step.spec.method, **values}
    scenario = {each.name: each for each in project.scenarios}.get(values.get("scenario", ""))
    if scenario is None:
        return values
    supplied = (*CombinationFields.model_fields, "n")
    for names in (supplied, *((name,) for name in supplied)):  # some go only together
        shorter = {key: value for key, value in values.items() if key not in names}
        try:
            made = Pipeline([{**shorter, "scenario": scenario}])[0]
        except SafeswapError:
            continue
        values = shorter if made == step else values
    return values


def _short_study(project: Project) -> dict[str, Any]:
    """Return the values of the study, with names for scenario and steps that the project has."""
    assert project.study is not None  # noqa: S101  (the caller has looked)
    values: dict[str, Any] = drop_empty(project.study.model_dump(mode="json"))
    if project.study.scenario in project.scenarios:
        values["scenario"] = project.study.scenario.name
    named = [(step.as_dict(), step.name) for step in project.pipeline]
    for part in ("first", "last"):
        if part in values:
            given = getattr(project.study, part)
            values[part] = [next((name for steps, name in named if steps == each), each) for each in given]
    return values


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _inline(name)


def _inline(value: Any) -> str:
    """Return a value as TOML on one line.

    >>> _inline({"a": [1, 0.5, True], "b c": "x\\ty"})
    '{ a = [1, 0.5, true], "b c" = "x\\\\ty" }'
    """
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_name(str(name))} = {_inline(item)}" for name, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, float):
        return repr(value)  # inf and nan are spelt as in TOML
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def keep_comments(text: str, before: str) -> str:
    """Return the text of a project with the comments that people wrote into its file ``before``.

    A comment goes with the setting, column or heading that it stands beside or above; if that is gone, with the next
    one that is still there, or to the end. The program's own comments and the marks of guesses are written again.
    """
    above, beside = _collect_comments(text, before)
    lines = text.split("\n")
    for place, line in reversed(list(_list_places(text).items())):
        shown = [f"# {each}" for each in above.get(place, [])]
        if place in beside and not _split_comment(lines[line - 1])[1]:
            lines[line - 1] = f"{lines[line - 1]}  # {beside[place]}"
        elif place in beside:
            shown.append(f"# {beside[place]}")
        lines[line - 1 : line - 1] = shown
    return "\n".join([*lines[:-1], *(f"# {each}" for each in above.get(None, [])), ""])


_Place: TypeAlias = tuple[str, str, str]  # a section, the name of the scenario or step, a setting or column


def _collect_comments(text: str, before: str) -> tuple[dict[_Place | None, list[str]], dict[_Place, str]]:
    """Return people's comments by the place in ``text`` that they are above or beside; None is the end."""
    own = {each.removeprefix("#").strip() for each in (_HEADER + _EXAMPLES).split("\n")} | {*_COMMENTS.values()}
    there = _list_places(text)
    places = {line: place for place, line in _list_places(before).items()}
    above: dict[_Place | None, list[str]] = {}
    beside: dict[_Place, str] = {}
    waiting: list[str] = []
    for line, written in enumerate(before.split("\n"), start=1):
        comment, place = _split_comment(written)[1], places.get(line)
        known = comment in own or comment.startswith("?")
        comment = "" if known else "".join(each if each.isprintable() else " " for each in comment).strip()
        if place in there:
            above[place] = waiting
            waiting = []
            if comment:
                beside[place] = comment
        elif comment:
            waiting.append(comment)
    if waiting:
        above[None] = waiting
    return above, beside


def _list_places(text: str) -> dict[_Place, int]:
    """Return the line of every setting, column and heading; scenarios and steps go by their names, not their order."""
    lines = text.split("\n")
    labels: dict[tuple[str, int], str] = {}
    entries = list_entries(text)
    for each in entries:
        if each.setting in {"name", "method"} and each.section != "schema":
            stated = lines[each.line - 1].partition("=")[2]
            if each.setting == "name" or (each.section, each.number) not in labels:
                labels[each.section, each.number] = _split_comment(stated)[0].strip()
    return {(each.section, labels.get((each.section, each.number), ""), each.setting): each.line for each in entries}
