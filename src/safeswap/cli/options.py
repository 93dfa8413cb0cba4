"""Options that several commands share, and options made from the fields of a specification."""

from __future__ import annotations

import csv
import inspect
import math
import os
import types
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import typer

from safeswap.cli.console import Console
from safeswap.errors import OutputError, SpecError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


# Refuse an output before the work is done, not after.


def check_outputs(
    outputs: Sequence[Path],
    *,
    inputs: Sequence[Path] = (),
    force: bool = False,
    hint: str = "choose another name, or allow overwriting with --force",
) -> None:
    """Refuse outputs that exist (unless ``force``), that have nowhere to go, or that would cost an input.

    What writes them refuses too; here it costs nothing, after an hour of masking it would be a nuisance.
    """
    for position, output in enumerate(outputs):
        if not output.absolute().parent.is_dir():
            raise OutputError(
                f"the directory of {output.name!r} does not exist",
                code="no-directory",
                hint="make the directory first",
                file=str(output),
            )
        if _is_one_of(output, inputs):
            raise OutputError(
                f"{output.name!r} is an input and would be overwritten",
                code="overwrites-input",
                hint="choose another name for the output",
                file=str(output),
            )
        if _is_one_of(output, outputs[:position]):
            raise OutputError(
                f"two outputs are called {output.name!r}",
                code="same-output",
                hint="give each output a name of its own",
                file=str(output),
            )
        if os.path.lexists(output) and not force:
            raise OutputError(
                f"{output.name!r} exists already",
                code="exists",
                hint=hint,
                file=str(output),
            )


def _is_one_of(path: Path, others: Sequence[Path]) -> bool:
    """Whether two names mean one place: links are followed, for overwriting would follow them too."""
    found = os.path.realpath(path)
    return any(os.path.realpath(other) == found for other in others)


READING = "How the file is read"
RANDOMNESS = "Randomness"
OUTPUT = "Output"
TALK = "What is said"

KeyFile = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="the secret key (see keygen)", rich_help_panel=RANDOMNESS),
]
InsecureSeed = Annotated[
    int | None,
    typer.Option(
        "--insecure-seed",
        metavar="N",
        help="instead of a key, for teaching: anyone can undo the result, and it is stamped not for release",
        rich_help_panel=RANDOMNESS,
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="replace what exists under the name of an output", rich_help_panel=OUTPUT)
]
_READING = {
    "schema": Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="what the columns are, as describe --write-schema has written it"),
    ],
    "identifier": Annotated[str | None, typer.Option(metavar="COLUMN", help="the column that identifies a record")],
    "delimiter": Annotated[str | None, typer.Option(metavar="CHAR", help="what parts the fields of a text file")],
    "encoding": Annotated[str | None, typer.Option(metavar="NAME", help="the encoding of a text file")],
    "quote": Annotated[str | None, typer.Option(metavar="CHAR", help="what quotes a field of a text file")],
    "max_columns": Annotated[int | None, typer.Option(metavar="N", help="refuse a file with more columns")],
    "max_records": Annotated[int | None, typer.Option(metavar="N", help="refuse a file with more records")],
    "max_decoded_bytes": Annotated[int | None, typer.Option(metavar="N", help="refuse a file that takes more memory")],
}
_SWITCHES = {
    "as_json": Annotated[
        bool, typer.Option("--json", help="one JSON document on stdout, errors too", rich_help_panel=TALK)
    ],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="say nothing but errors", rich_help_panel=TALK)],
    "debug": Annotated[
        bool, typer.Option("--debug", help="on an error inside the program, say where it arose", rich_help_panel=TALK)
    ],
}


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the switches that all have; it takes a :class:`Console` as its first argument.

    >>> @command
    ... def greet(console: Console, name: str) -> None: ...
    >>> list(inspect.signature(greet).parameters)
    ['name', 'as_json', 'quiet', 'debug']
    """
    _, *own = inspect.signature(function, eval_str=True).parameters.values()

    @wraps(function)
    def spoken(*, as_json: bool, quiet: bool, debug: bool, **values: Any) -> None:
        function(Console(json=as_json, quiet=quiet), **values)

    switches = [_parameter(name, annotation, default=False) for name, annotation in _SWITCHES.items()]
    return _with_signature(spoken, [*own, *switches])


def reading_options(function: Callable[..., None]) -> Callable[..., None]:
    """Put the options of reading a file in place of the parameter ``reading``.

    The command gets in ``reading`` what was stated, as ``workflow.read`` takes it.
    """
    made = {}
    for name, annotation in _READING.items():
        plain_type, option = get_args(annotation)
        option.rich_help_panel = READING
        made[name] = _parameter(name, Annotated[plain_type, option], default=None)

    def collect(stated: Mapping[str, Any]) -> dict[str, Any]:
        found = {name: value for name, value in stated.items() if value is not None}
        limits = {name: found.pop(name) for name in list(found) if name.startswith("max_")}
        if limits:
            from safeswap.files.sources import Limits

            found["limits"] = Limits(**limits)
        return found

    return _in_place_of("reading", function, made, collect)


def spec_options(
    spec_type: type[BaseModel], *, prefixes: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put one option per field of a specification in place of the parameter ``parameters``.

    The command gets in ``parameters`` what was stated, as plain values; what was not is left to the specification's
    own defaults. The fields of a nested specification become options of their own, under the prefix given for it.
    """
    prefixes = prefixes or {}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        made = _spec_parameters(spec_type, prefixes)
        return _in_place_of("parameters", function, made, lambda stated: _collected(spec_type, stated, prefixes))

    return decorate


def randomness(*, key: Path | None, insecure_seed: int | None) -> dict[str, Any]:
    """The one source of randomness that was stated, as the verbs take it."""
    from safeswap import workflow

    if (key is None) == (insecure_seed is None):
        raise SpecError(
            "state one source of randomness" + (", not two" if key is not None else ""),
            code="no-key",
            hint="--key FILE with a key made by safeswap keygen; --insecure-seed N is for teaching only",
        )
    return {"key": workflow.read_key(key)} if key is not None else {"insecure_seed": insecure_seed}


def names(values: Sequence[str]) -> tuple[str, ...]:
    """Attribute names from repeated options; within one, names are parted by commas, quoted where they hold one.

    >>> names(["Race,Sex", '"Age, grouped"'])
    ('Race', 'Sex', 'Age, grouped')
    """
    try:
        rows = list(csv.reader(values, skipinitialspace=True))
    except csv.Error:
        raise SpecError(
            "a list of names could not be taken apart", code="bad-names", hint="quote a name that holds a line break"
        ) from None
    return tuple(name.strip() for row in rows for name in row if name.strip())


def pairs(values: Sequence[str]) -> dict[str, str]:
    """Attributes with a figure each, from repeated options; within one, pairs are parted by commas.

    >>> pairs(["Age=2,Sex=0.5", '"Job, title=3"'])
    {'Age': '2', 'Sex': '0.5', 'Job, title': '3'}
    """
    found: dict[str, str] = {}
    for text in names(values):
        name, equals, figure = text.rpartition("=")
        if not equals or not name.strip() or not figure.strip():
            raise SpecError(
                f"{text!r} is not an attribute with a figure",
                code="bad-pair",
                hint="write it as NAME=FIGURE, as in Age=2",
            )
        if name.strip() in found:
            raise SpecError(f"{name.strip()!r} has two figures", code="bad-pair", hint="name each attribute once")
        found[name.strip()] = figure.strip()
    return found


def _spec_parameters(spec_type: type[BaseModel], prefixes: Mapping[str, str]) -> dict[str, inspect.Parameter]:
    made = {}
    for name, field in spec_type.model_fields.items():
        nested = _nested(field.annotation)
        if nested is not None:
            prefix = prefixes.get(name, name)
            for inner, parameter in _spec_parameters(nested, {}).items():
                made[f"{prefix}_{inner}"] = parameter.replace(name=f"{prefix}_{inner}")
            continue
        option = typer.Option(
            help=_help_of(field),
            metavar=_metavar(field.annotation),
            rich_help_panel=_title(spec_type),
        )
        made[name] = _parameter(name, Annotated[_option_type(field.annotation), option], default=None)
    return made


def _help_of(field: FieldInfo) -> str:
    """What the field is for, and what holds if it is not stated, where that is a choice or a number."""
    stated = field.description or ""
    told = field.is_required() or field.default in (None, ()) or field.default_factory is not None
    return stated if told else f"{stated} (default: {field.default})"


def _collected(spec_type: type[BaseModel], stated: Mapping[str, Any], prefixes: Mapping[str, str]) -> dict[str, Any]:
    """What was stated, under the names of the fields."""
    found: dict[str, Any] = {}
    for name, field in spec_type.model_fields.items():
        nested = _nested(field.annotation)
        if nested is not None:
            prefix = prefixes.get(name, name) + "_"
            inner = {key.removeprefix(prefix): value for key, value in stated.items() if key.startswith(prefix)}
            if values := _collected(nested, inner, {}):
                found[name] = values
        elif stated[name] is not None:
            found[name] = _value(field.annotation, stated[name])
    return found


def _value(annotation: Any, stated: Any) -> Any:
    """What was stated, as the field takes it."""
    if _is_pairs(annotation):
        return pairs(stated)
    if _is_groups(annotation):
        return [_group(annotation, text) for text in stated]
    return names(stated) if _is_names(annotation) else stated


def _group(annotation: Any, text: str) -> Any:
    """One group of names; where groups have a tolerance it may stand behind a colon.

    >>> from safeswap.model.combination import KeyCombination
    >>> _group(tuple[KeyCombination, ...], "Age,Sex:5"), _group(tuple[tuple[str, ...], ...], "Age,Sex")
    ({'keys': ('Age', 'Sex'), 'tolerance': '5'}, ('Age', 'Sex'))
    """
    if text.lstrip().startswith("{"):
        return _from_json(text)
    before, colon, behind = text.rpartition(":")
    if colon and _nested(get_args(_bare(annotation))[0]) and _is_number(behind):
        return {"keys": names([before]), "tolerance": behind.strip()}
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


def _option_type(annotation: Any) -> Any:
    """The type of an option for a field; every option may be left out."""
    return (list[str] if _is_names(annotation) or _is_pairs(annotation) else _bare(annotation)) | None


def _bare(annotation: Any) -> Any:
    """The type without ``None`` and without the bounds, which the specification checks itself."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _bare(next(part for part in get_args(annotation) if part is not type(None)))
    return annotation


def _is_names(annotation: Any) -> bool:
    return get_origin(_bare(annotation)) is tuple


def _is_groups(annotation: Any) -> bool:
    """Whether each option is a group of names: a tuple of tuples, or of models that begin with names."""
    if not _is_names(annotation):
        return False
    item = _bare(get_args(_bare(annotation))[0])
    return get_origin(item) is tuple or _nested(item) is not None


def _is_pairs(annotation: Any) -> bool:
    return get_origin(_bare(annotation)) is dict


def _metavar(annotation: Any) -> str | None:
    if _is_pairs(annotation):
        return "A=1,B=2"
    if _is_groups(annotation):
        item = _nested(get_args(_bare(annotation))[0])
        if item is not None and "keys" not in item.model_fields:
            return "JSON"
        return "A,B[:Q]" if _nested(get_args(_bare(annotation))[0]) else "A,B"
    return "A,B" if _is_names(annotation) else None


def _nested(annotation: Any) -> type[BaseModel] | None:
    bare = _bare(annotation)
    return bare if isinstance(bare, type) and hasattr(bare, "model_fields") else None


def _title(spec_type: type[BaseModel]) -> str:
    method = getattr(spec_type, "method", None)
    return f"The {method}" if method else spec_type.__name__


def _in_place_of(
    name: str,
    function: Callable[..., None],
    made: Mapping[str, inspect.Parameter],
    collect: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> Callable[..., None]:
    """A function with several options in place of one parameter, which gets what is collected from them."""

    @wraps(function)
    def filled(*arguments: Any, **values: Any) -> None:
        stated = {option: values.pop(option) for option in made}
        function(*arguments, **{name: collect(stated)}, **values)

    own = list(inspect.signature(function, eval_str=True).parameters.values())
    position = [parameter.name for parameter in own].index(name)
    return _with_signature(filled, [*own[:position], *made.values(), *own[position + 1 :]])


def _parameter(name: str, annotation: Any, *, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _with_signature(function: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """Make a function look as typer shall see it."""
    keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    vars(function)["__signature__"] = inspect.Signature(keyword)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in keyword}
    return function
