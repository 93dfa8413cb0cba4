"""Options that several commands share, and options derived from the fields of a specification."""

from __future__ import annotations

import csv
import dataclasses
import inspect
import math
import os
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from safeswap.cli.app import Group
from safeswap.cli.console import Console, escape
from safeswap.errors import OutputError, SpecError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from safeswap.model.masked import Masked
    from safeswap.model.microdata import Microdata


def warn_of_losses(console: Console, data: Masked | Microdata, output: Path) -> None:
    """Print what the format of a written file does not keep of the description of the data."""
    from safeswap.files.write import list_losses

    for what in list_losses(data, output.suffix):
        console.warn(f"! not preserved in the file: {escape(what)}")


def check_outputs(
    outputs: Sequence[Path],
    *,
    inputs: Sequence[Path] = (),
    force: bool = False,
    hint: str = "choose another name, or allow overwriting with --force",
) -> None:
    """Refuse outputs that exist (unless ``force``), have no directory, or would overwrite an input.

    The writers refuse them too, but only after the work is done.
    """
    for position, output in enumerate(outputs):
        if not output.absolute().parent.is_dir():
            raise OutputError(
                f"the directory of {output.name!r} does not exist",
                code="no-directory",
                hint="create the directory first",
                file=str(output),
            )
        if _is_same_file(output, inputs):
            raise OutputError(
                f"{output.name!r} is an input and would be overwritten",
                code="overwrites-input",
                hint="choose another name for the output",
                file=str(output),
            )
        if _is_same_file(output, outputs[:position]):
            raise OutputError(
                f"two outputs have the name {output.name!r}",
                code="same-output",
                hint="give each output a different name",
                file=str(output),
            )
        if os.path.lexists(output) and not force:
            raise OutputError(
                f"{output.name!r} exists already",
                code="exists",
                hint=hint,
                file=str(output),
            )


def _is_same_file(path: Path, others: Sequence[Path]) -> bool:
    """Return whether the path leads to one of the others; links are followed, as they are on overwriting."""
    found = os.path.realpath(path)
    return any(os.path.realpath(other) == found for other in others)


READING = "Reading the file"
RANDOMNESS = "Randomness"
OUTPUT = "Output"
MESSAGES = "Messages"

KeyFile = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="secret key (see keygen)", rich_help_panel=RANDOMNESS),
]
InsecureSeed = Annotated[
    int | None,
    typer.Option(
        "--insecure-seed",
        metavar="N",
        help="seed instead of a key, for teaching only: anyone can undo the result, which is stamped not for release",
        rich_help_panel=RANDOMNESS,
    ),
]
ScenarioFile = Annotated[
    str | None,
    typer.Option(
        "--scenario",
        metavar="FILE[:NAME]",
        help="scenario that states the keys, from a file with [[scenario]] sections",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="overwrite existing outputs", rich_help_panel=OUTPUT)]
_READING = {
    "schema": Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="schema of the columns, as written by describe --write-schema"),
    ],
    "identifier": Annotated[str | None, typer.Option(metavar="COLUMN", help="column that identifies a record")],
    "delimiter": Annotated[str | None, typer.Option(metavar="CHAR", help="field delimiter of a text file")],
    "encoding": Annotated[str | None, typer.Option(metavar="NAME", help="encoding of a text file")],
    "quote": Annotated[str | None, typer.Option(metavar="CHAR", help="quote character of a text file")],
    "decimal": Annotated[
        str | None, typer.Option(metavar="CHAR", help="decimal mark of the numbers in a text file: ',' or '.'")
    ],
    "max_columns": Annotated[int | None, typer.Option(metavar="N", help="refuse a file with more columns")],
    "max_records": Annotated[int | None, typer.Option(metavar="N", help="refuse a file with more records")],
    "max_decoded_bytes": Annotated[int | None, typer.Option(metavar="N", help="refuse a file that needs more memory")],
}
_SWITCHES = {
    "as_json": Annotated[
        bool,
        typer.Option("--json", help="print one JSON document, errors included", rich_help_panel=MESSAGES),
    ],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="print errors only", rich_help_panel=MESSAGES)],
    "debug": Annotated[
        bool, typer.Option("--debug", help="print where an internal error occurred", rich_help_panel=MESSAGES)
    ],
}


def make_group(text: str, **more: Any) -> typer.Typer:
    """Return a group of commands, in the style of the program."""
    style: dict[str, Any] = {"cls": Group, "add_completion": False, "pretty_exceptions_enable": False}
    return typer.Typer(help=text, **(style | more))


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Add the switches that all commands have; the function takes a :class:`Console` as its first argument.

    >>> @command
    ... def greet(console: Console, name: str) -> None: ...
    >>> list(inspect.signature(greet).parameters)
    ['name', 'as_json', 'quiet', 'debug']
    """
    _, *own = inspect.signature(function, eval_str=True).parameters.values()

    @wraps(function)
    def run(*, as_json: bool, quiet: bool, debug: bool, **values: Any) -> None:
        function(Console(json=as_json, quiet=quiet), **values)

    switches = [make_parameter(name, annotation, default=False) for name, annotation in _SWITCHES.items()]
    return _with_signature(run, [*own, *switches])


def reading_options(function: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``reading`` by the options for reading a file.

    The command gets the options that were given, as keyword arguments of ``workflow.read``.
    """
    made = {}
    for name, annotation in _READING.items():
        plain_type, option = get_args(annotation)
        option.rich_help_panel = READING
        made[name] = make_parameter(name, Annotated[plain_type, option], default=None)

    def collect(stated: Mapping[str, Any]) -> dict[str, Any]:
        found = {name: value for name, value in stated.items() if value is not None}
        limits = {name: found.pop(name) for name in list(found) if name.startswith("max_")}
        if limits:
            from safeswap.files.formats import Limits

            found["limits"] = Limits(**limits)
        return found

    return replace_parameter("reading", function, made, collect)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Overrides for the option made from a field of a specification."""

    flag: str | None = None
    panel: str | None = None
    metavar: str | None = None
    parse: Callable[[Any], Any] | None = None
    is_usage: bool = False  # a missing value, or one out of bounds, is an error of usage


def read_scenario(place: str | None) -> Any:
    """Read the scenario that ``--scenario FILE[:NAME]`` names; None if there is none."""
    if place is None:
        return None
    from safeswap.projects.toml import choose_scenario

    return choose_scenario(place)


def read_scenarios(place: str) -> tuple[Any, ...]:
    """Read the scenario that ``FILE:NAME`` names, or all scenarios of ``FILE``."""
    from safeswap.projects.toml import choose_scenario, read_scenarios

    return read_scenarios(place) if Path(place).is_file() or ":" not in place else (choose_scenario(place),)


SCENARIO = Shown(metavar="FILE[:NAME]", parse=read_scenario)
"""A scenario is read from a file, which may have several."""


def spec_options(
    spec_type: type[BaseModel],
    *,
    prefixes: Mapping[str, str] | None = None,
    shown: Mapping[str, Shown] | None = None,
    omit: Collection[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter ``parameters`` by one option per field of a specification.

    The command gets the options that were given, as plain values; the rest is left to the specification's defaults.
    Fields of a nested specification become options with the prefix given for it.
    """
    fields = {name: field for name, field in spec_type.model_fields.items() if name not in omit}
    form = _Form(fields=fields, panel=_panel(spec_type), prefixes=prefixes or {}, shown=shown or {})
    return lambda function: replace_parameter("parameters", function, form.parameters(), form.collect)


REQUIRED = dataclasses.MISSING
"""The default of an option that must be given."""


def option(text: str, *flags: str, default: Any = None, panel: str | None = None, **more: Any) -> Any:
    """Declare an option as a field of a dataclass, for :func:`request_options`: its help, and how typer shows it."""
    shown = typer.Option(*flags, help=text, rich_help_panel=panel, **more)
    return dataclasses.field(default=default, metadata={"option": shown})


def request_options(
    request_type: type[Any], *, omit: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter ``options`` by one option per field of a dataclass, each made by :func:`option`."""
    hints = get_type_hints(request_type, include_extras=True)
    made = {}
    for each in dataclasses.fields(request_type):
        if each.name not in omit:
            hint = Annotated[hints[each.name], each.metadata["option"]] if each.metadata else hints[each.name]
            default = inspect.Parameter.empty if each.default is REQUIRED else each.default
            made[each.name] = make_parameter(each.name, hint, default=default)
    return lambda function: replace_parameter("options", function, made, lambda stated: request_type(**stated))


def randomness(*, key: Path | None, insecure_seed: int | None) -> dict[str, Any]:
    """Return the one source of randomness that was given, as keyword arguments of the workflow."""
    from safeswap import workflow

    if (key is None) == (insecure_seed is None):
        raise SpecError(
            "give a key or an insecure seed, not both" if key is not None else "missing source of randomness",
            code="no-key",
            hint="pass --key FILE with a key made by safeswap keygen; --insecure-seed N is for teaching only",
        )
    return {"key": workflow.read_key(key)} if key is not None else {"insecure_seed": insecure_seed}


def names(values: Sequence[str]) -> tuple[str, ...]:
    """Parse attribute names from repeated options; commas separate names, quotes enclose a name with a comma.

    >>> names(["Race,Sex", '"Age, grouped"'])
    ('Race', 'Sex', 'Age, grouped')
    """
    try:
        rows = list(csv.reader(values, skipinitialspace=True))
    except csv.Error:
        raise SpecError(
            "a list of names could not be parsed", code="bad-names", hint="quote a name that contains a line break"
        ) from None
    return tuple(name.strip() for row in rows for name in row if name.strip())


def pairs(values: Sequence[str]) -> dict[str, str]:
    """Parse attributes with one number each, from repeated options; commas separate pairs.

    >>> pairs(["Age=2,Sex=0.5", '"Job, title=3"'])
    {'Age': '2', 'Sex': '0.5', 'Job, title': '3'}
    """
    found: dict[str, str] = {}
    for text in names(values):
        name, equals, figure = text.rpartition("=")
        if not equals or not name.strip() or not figure.strip():
            raise SpecError(
                f"{text!r} is not an attribute with a number",
                code="bad-pair",
                hint="write NAME=NUMBER, as in Age=2",
            )
        if name.strip() in found:
            raise SpecError(f"{name.strip()!r} is given two numbers", code="bad-pair", hint="name each attribute once")
        found[name.strip()] = figure.strip()
    return found


def as_number(text: str) -> float | str:
    """Convert text to a number; other text is returned as it is, for the specification to refuse.

    >>> as_number("3"), as_number("0.5"), as_number("low")
    (3, 0.5, 'low')
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@dataclass(frozen=True, kw_only=True)
class _Form:
    """The fields of a specification as options."""

    fields: Mapping[str, FieldInfo]
    panel: str
    prefixes: Mapping[str, str]
    shown: Mapping[str, Shown]

    def parameters(self) -> dict[str, inspect.Parameter]:
        """Return a parameter per option."""
        made = {}
        for name, field in self.fields.items():
            if inner := self._inner(name):
                prefix = self.prefixes.get(name, name)
                for each, parameter in inner.parameters().items():
                    made[f"{prefix}_{each}"] = parameter.replace(name=f"{prefix}_{each}")
            else:
                made[name] = self._parameter(name, field)
        return made

    def collect(self, stated: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that were given, by field name."""
        found: dict[str, Any] = {}
        for name, field in self.fields.items():
            if inner := self._inner(name):
                prefix = self.prefixes.get(name, name) + "_"
                own = {key.removeprefix(prefix): value for key, value in stated.items() if key.startswith(prefix)}
                if values := inner.collect(own):
                    found[name] = values
            elif stated[name] is not None:
                parse = self._find_shown(name).parse
                found[name] = parse(stated[name]) if parse else _parse(field.annotation, stated[name])
        return found

    def _inner(self, name: str) -> _Form | None:
        if name == "scenario":
            return None
        nested = _find_model(self.fields[name].annotation)
        if nested is None:
            return None
        return _Form(fields=nested.model_fields, panel=_panel(nested), prefixes={}, shown={})

    def _find_shown(self, name: str) -> Shown:
        return self.shown.get(name, SCENARIO if name == "scenario" else Shown())

    def _parameter(self, name: str, field: FieldInfo) -> inspect.Parameter:
        as_shown = self._find_shown(name)
        option = typer.Option(
            *([as_shown.flag] if as_shown.flag else []),
            help=_help_of(field),
            metavar=as_shown.metavar or _metavar(field.annotation),
            rich_help_panel=as_shown.panel or self.panel,
            **(_bounds_of(field) if as_shown.is_usage else {}),
        )
        is_required = as_shown.is_usage and field.is_required()
        is_list = _is_names(field.annotation) or _is_pairs(field.annotation)
        kind = list[str] if is_list else str if as_shown == SCENARIO else _strip_bounds(field.annotation)
        return make_parameter(
            name, Annotated[kind | None, option], default=inspect.Parameter.empty if is_required else None
        )


def _bounds_of(field: FieldInfo) -> dict[str, Any]:
    """Return the least and greatest value of a field, as typer takes them."""
    found = {"min": [getattr(each, "ge", None) for each in field.metadata]}
    found["max"] = [getattr(each, "le", None) for each in field.metadata]
    return {name: value for name, values in found.items() for value in values if value is not None}


def _help_of(field: FieldInfo) -> str:
    """Return the description of a field, with its default where that is a choice, a number or a list of these.

    >>> from pydantic.fields import FieldInfo
    >>> _help_of(FieldInfo(description="rates to try", default=(0.01, 0.1)))
    'rates to try (default: 0.01,0.1)'
    """
    text, default = field.description or "", field.default
    if field.is_required() or field.default_factory is not None or default in (None, (), "", False):
        return text
    if isinstance(default, tuple):
        plain = all(isinstance(each, str | int | float) for each in default)
        return f"{text} (default: {','.join(map(str, default))})" if plain else text
    return f"{text} (default: {default})"


def _parse(annotation: Any, stated: Any) -> Any:
    """Convert the value of an option to what the field accepts."""
    if _is_pairs(annotation):
        return {name: as_number(text) for name, text in pairs(stated).items()}
    if _is_groups(annotation):
        return [_group(annotation, text) for text in stated]
    if _is_names(annotation) and _strip_bounds(get_args(_strip_bounds(annotation))[0]) in (int, float):
        return tuple(as_number(text) for text in names(stated))
    return names(stated) if _is_names(annotation) else stated


def _group(annotation: Any, text: str) -> Any:
    """Parse one group of names; where groups have a tolerance, it may follow a colon. Some groups parse themselves.

    >>> from safeswap.model.combination import KeyCombination
    >>> _group(tuple[KeyCombination, ...], "Age,Sex:5"), _group(tuple[tuple[str, ...], ...], "Age,Sex")
    ({'keys': ('Age', 'Sex'), 'tolerance': 5}, ('Age', 'Sex'))
    """
    item = _find_model(get_args(_strip_bounds(annotation))[0])
    if item is not None and hasattr(item, "from_text"):
        return item.from_text(text)
    if text.lstrip().startswith("{"):
        return _from_json(text)
    before, colon, behind = text.rpartition(":")
    if colon and item is not None and _is_number(behind):
        return {"keys": names([before]), "tolerance": as_number(behind)}
    return names([text])


def _from_json(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SpecError("an option that begins with { is not valid JSON", code="bad-json", hint="quote it") from None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _strip_bounds(annotation: Any) -> Any:
    """Strip ``None`` and the bounds, which the specification checks itself."""
    if get_origin(annotation) is Annotated:
        return _strip_bounds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _strip_bounds(next(part for part in get_args(annotation) if part is not type(None)))
    return annotation


def _is_names(annotation: Any) -> bool:
    return get_origin(_strip_bounds(annotation)) is tuple


def _is_groups(annotation: Any) -> bool:
    """Return whether each option is a group of names: a tuple of tuples, or of models that begin with names."""
    if not _is_names(annotation):
        return False
    item = _strip_bounds(get_args(_strip_bounds(annotation))[0])
    return get_origin(item) is tuple or _find_model(item) is not None


def _is_pairs(annotation: Any) -> bool:
    return get_origin(_strip_bounds(annotation)) is dict


def _metavar(annotation: Any) -> str | None:
    if _is_pairs(annotation):
        return "A=1,B=2"
    if _is_groups(annotation):
        item = _find_model(get_args(_strip_bounds(annotation))[0])
        if item is not None and "keys" not in item.model_fields:
            return "JSON"
        return "A,B[:Q]" if _find_model(get_args(_strip_bounds(annotation))[0]) else "A,B"
    return "A,B" if _is_names(annotation) else None


def _find_model(annotation: Any) -> type[BaseModel] | None:
    bare = _strip_bounds(annotation)
    return bare if isinstance(bare, type) and hasattr(bare, "model_fields") else None


def _panel(spec_type: type[BaseModel]) -> str:
    method = getattr(spec_type, "method", None)
    return f"Parameters of {method}" if method else "Parameters"


def replace_parameter(
    name: str,
    function: Callable[..., None],
    made: Mapping[str, inspect.Parameter],
    collect: Callable[[Mapping[str, Any]], Any],
) -> Callable[..., None]:
    """Replace one parameter of a function by several options; it gets what ``collect`` makes of them."""

    @wraps(function)
    def run(*arguments: Any, **values: Any) -> None:
        stated = {option: values.pop(option) for option in made}
        function(*arguments, **{name: collect(stated)}, **values)

    own = list(inspect.signature(function, eval_str=True).parameters.values())
    position = [parameter.name for parameter in own].index(name)
    return _with_signature(run, [*own[:position], *made.values(), *own[position + 1 :]])


def make_parameter(name: str, annotation: Any, *, default: Any) -> inspect.Parameter:
    """Make a keyword-only parameter, which typer shows as an option."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _with_signature(function: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """Give a function the signature that typer is to see."""
    keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    vars(function)["__signature__"] = inspect.Signature(keyword)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in keyword}
    return function
