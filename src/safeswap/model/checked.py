"""Validate arguments of public functions against their annotations.

One decorator does it for every public function, so that a wrong type raises a :class:`SpecError` with the name of the
argument, never an error from deep inside the program. Messages name types, not values.

A function with many keywords declares them in a ``TypedDict``, as ``**options: Unpack[Options]``: each with its type
and its :class:`Default`. The function is called, and shown by ``help``, as if each stood in its signature. A keyword
without default reaches the function only if it is given: it belongs to a specification, which has its own default and
its own error for a keyword that it does not know.
"""

from __future__ import annotations

import builtins
import inspect
import os
import sys
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from safeswap.errors import SpecError

P = ParamSpec("P")
T = TypeVar("T")

_WORDS: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    NoneType: "None",
    os.PathLike: "a path",
    abc.Callable: "a function",
    abc.Iterable: "a list",
}
_LISTS = (abc.Sequence, tuple, list)
_HINTS = {
    "Key": "key=Key.generate(), or read_key(path) of a file made by `safeswap keygen`",
    "Masked": "mask the data first, with swap() or mask(), and give what that returns",
    "Microdata": "read(source) makes microdata from a file or a dataframe",
}


class _MisfitError(Exception):
    """The value is not of the type."""


@dataclass(frozen=True)
class Default:
    """The value of an omitted keyword: ``title: Annotated[str, Default("")]``."""

    value: Any


@dataclass(frozen=True)
class Keyword:
    """A keyword that a ``TypedDict`` declares: its type, and its value if omitted."""

    hint: Any
    default: Any


LEFT_OUT: Any = ...
"""The default of a keyword without one: the function sees it only if it is given."""


@cache
def list_keywords(options: type) -> dict[str, Keyword]:
    """Return the keywords that a ``TypedDict`` declares.

    >>> from typing import TypedDict
    >>> class Options(TypedDict, total=False):
    ...     title: Annotated[str, Default("")]
    >>> list_keywords(Options)
    {'title': Keyword(hint=<class 'str'>, default='')}
    """
    found = {}
    for name, annotation in options.__annotations__.items():
        module = getattr(annotation, "__forward_module__", None) or options.__module__  # that of the base declaring it
        hint = _evaluate(getattr(annotation, "__forward_arg__", annotation), vars(sys.modules[module]))
        inner, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        found[name] = Keyword(inner, next((each.value for each in more if isinstance(each, Default)), LEFT_OUT))
    return found


def select_stated(options: Mapping[str, Any], declared: type) -> dict[str, Any]:
    """Return those of the options that a ``TypedDict`` declares and that differ from its defaults."""
    known = list_keywords(declared)
    return {name: value for name, value in options.items() if name in known and value is not known[name].default}


def check_types(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function so that it refuses arguments of a type other than its signature states.

    NumPy integers and booleans become Python's own. Annotations are resolved on the first call; a class that is
    imported for type checkers only is matched by its name.

    >>> @check_types
    ... def repeat(text: str, *, times: int = 2) -> str:
    ...     return text * times
    >>> repeat("ab", times=3)
    'ababab'
    >>> repeat("ab", times="3")
    Traceback (most recent call last):
    safeswap.errors.SpecError: repeat: 'times' takes a whole number, not str
    """
    hints: dict[str, Any] = {}
    positional: list[str] = []
    rest: list[str] = []
    keywords = _unpacked_keywords(function)
    defaults = {name: each.default for name, each in keywords.items() if each.default is not LEFT_OUT}
    knows_all = bool(keywords) and len(defaults) == len(keywords)

    def read_signature() -> None:
        hints.update({name: each.hint for name, each in keywords.items()})
        for name, parameter in inspect.signature(function).parameters.items():
            hints[name] = _resolve_annotation(parameter.annotation, function)
            if parameter.kind is parameter.VAR_POSITIONAL:
                rest.append(name)
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                positional.append(name)

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        if not hints:
            read_signature()
        names = positional + rest * max(0, len(args) - len(positional))
        given = [_check_argument(function, name, value, hints[name]) for name, value in zip(names, args, strict=False)]
        given += args[len(given) :]  # surplus arguments: Python raises its own error
        if knows_all:
            _refuse_unknown(function, kwargs, hints)
        named = {name: _check_argument(function, name, value, hints.get(name, Any)) for name, value in kwargs.items()}
        return function(*given, **{**defaults, **named})

    if keywords:
        vars(wrapper)["__signature__"] = _spell_out(function, keywords)
    return wrapper


def _unpacked_keywords(function: Callable[..., Any]) -> dict[str, Keyword]:
    """Return the keywords that the function declares as ``**options: Unpack[…]``."""
    if not inspect.unwrap(function).__code__.co_flags & inspect.CO_VARKEYWORDS:
        return {}  # most functions: no signature is read for them
    *_, last = inspect.signature(function).parameters.values()
    text = last.annotation if isinstance(last.annotation, str) else ""
    if not text.startswith("Unpack["):
        return {}
    return list_keywords(_evaluate(text.removeprefix("Unpack[").removesuffix("]"), function.__globals__))


def _spell_out(function: Callable[..., Any], keywords: Mapping[str, Keyword]) -> inspect.Signature:
    """Return the signature with each keyword instead of ``**options``."""
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    made = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.hint)
        for name, each in keywords.items()
    ]
    return signature.replace(parameters=[*own, *made])


def _refuse_unknown(function: Callable[..., Any], named: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in named:
        if name not in known:
            from difflib import get_close_matches

            close = get_close_matches(name, known, n=1)
            also = f". Did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{also}")


def check_field_types(cls: type[T]) -> type[T]:
    """Wrap a class so that its constructor refuses values of a type other than its fields state."""
    cls.__init__ = check_types(cls.__init__)  # type: ignore[method-assign]
    return cls


class _StandIn:
    """Base of stand-ins for classes of the same name that are imported for type checkers only."""


class _Names(dict[str, Any]):
    """The names that an annotation may use."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name) if hasattr(builtins, name) else type(name, (_StandIn,), {})


def _resolve_annotation(annotation: Any, function: Callable[..., Any]) -> Any:
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    return _evaluate(annotation, inspect.unwrap(function).__globals__)


def _evaluate(annotation: Any, names: Mapping[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, {}, _Names(names))  # noqa: S307  (an annotation of our own source)
    except (AttributeError, TypeError):  # a name that only a type checker knows
        return Any


def _check_argument(function: Callable[..., Any], name: str, value: Any, hint: Any) -> Any:
    try:
        return _convert(value, hint)
    except _MisfitError:
        wanted, found = describe_type(hint), type(value).__name__
        classes = [each.__name__ for each in (hint, *get_args(hint)) if isinstance(each, type)]
        hints = [_HINTS[each] for each in classes if each in _HINTS]
        raise SpecError(
            f"{function.__name__}: {name!r} takes {wanted}, not {'None' if value is None else found}",
            code="bad-argument",
            hint=hints[0] if hints else f"give {wanted} as {name}",
            argument=name,
        ) from None


def _convert(value: Any, hint: Any) -> Any:
    """Return the value if it is of the type, numbers as Python's own; raise ``_MisfitError`` otherwise."""
    if hint is Any or hint is object or (type(value) is hint and (hint is not str or value.isascii())):
        return value  # the usual case first: internal calls pass through here too
    origin = get_origin(hint)
    if origin in _FORMS:
        return _FORMS[origin](value, get_args(hint))
    if hint in _NUMBERS:
        return _NUMBERS[hint](value)
    kind = origin or (NoneType if hint is None else hint)
    if isinstance(kind, type) and issubclass(kind, _StandIn):
        return _require(kind.__name__ in {each.__name__ for each in type(value).__mro__}, value)
    return _require(not isinstance(kind, type) or isinstance(value, kind), value)


def _fits(value: Any, hint: Any) -> bool:
    try:
        _convert(value, hint)
    except _MisfitError:
        return False
    return True


def _require(fits: bool, value: T) -> T:  # noqa: FBT001  (reads as a sentence)
    if not fits:
        raise _MisfitError
    return value


def _convert_union(value: Any, hints: tuple[Any, ...]) -> Any:
    if any((get_origin(hint) or hint) is os.PathLike for hint in hints) and isinstance(value, (str, os.PathLike)):
        return _check_path(value)
    for hint in hints:
        if _fits(value, hint):
            return _convert(value, hint)
    raise _MisfitError


def _check_list(value: Any, hints: tuple[Any, ...]) -> Any:
    flat = isinstance(value, abc.Collection) and not isinstance(value, (str, bytes, Mapping))
    flat = flat and getattr(value, "ndim", 1) == 1  # not a dataframe, which lists its columns
    return _require(flat and all(_fits(each, hints[0]) for each in value), value)


def _check_path(value: Any) -> Any:
    text = os.fspath(value)
    return _require(isinstance(text, str) and "\0" not in text and _is_encodable(text), value)


def _is_encodable(text: str) -> bool:
    """Return whether the text can be encoded: a lone surrogate cannot."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _as_bool(value: Any) -> bool:
    return bool(
        _require(
            isinstance(value, bool)
            or (
                type(value).__module__ == "numpy"
                and getattr(getattr(value, "dtype", None), "kind", "") == "b"
                and not value.ndim
            ),
            value,
        )
    )


_NUMBERS: Mapping[Any, Callable[[Any], Any]] = {
    str: lambda value: _require(isinstance(value, str) and _is_encodable(value), value),
    int: lambda value: int(_require(isinstance(value, Integral) and not isinstance(value, bool), value)),
    float: lambda value: _require(isinstance(value, Real) and not isinstance(value, bool), value),
    bool: _as_bool,
}
_FORMS: Mapping[Any, Callable[[Any, tuple[Any, ...]], Any]] = {
    Annotated: lambda value, hints: _convert(value, hints[0]),
    Union: _convert_union,
    UnionType: _convert_union,
    Literal: lambda value, words: _require(isinstance(value, str) and value in words, value),
    abc.Callable: lambda value, _: _require(callable(value), value),
    abc.Iterable: lambda value, _: _require(
        isinstance(value, abc.Iterable) and not isinstance(value, (str, bytes)), value
    ),
    **dict.fromkeys(_LISTS, _check_list),
    **dict.fromkeys(
        (abc.Mapping, dict),
        lambda value, hints: _require(
            isinstance(value, Mapping) and all(_fits(each, hints[0]) for each in value), value
        ),
    ),
}


def describe_type(hint: Any) -> str:
    """Return a type in plain words.

    >>> describe_type(int | None), describe_type(Literal["new", "none"]), describe_type(tuple[str, ...])
    ('a whole number or None', '"new" or "none"', 'a list of text')
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return describe_type(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(describe_type(each) for each in inner))
    if origin is Literal:
        return " or ".join(f'"{each}"' for each in inner)
    if origin in _LISTS:
        return f"a list of {describe_type(inner[0])}"
    if origin is abc.Mapping or origin is dict:
        return "a mapping"
    kind = origin or (NoneType if hint is None else hint)
    return _WORDS.get(kind) or f"a {getattr(kind, '__name__', 'value')}"
