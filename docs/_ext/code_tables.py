"""Tables generated from the code, so that they cannot become outdated.

::

    ```{error-table}      every error class with its exit code and HTTP status
    ```{method-table}     every registered method with its sources
    ```{measure-table}    every registered measure
    ```{parameter-table} swap    the parameters of a method
    ```{parameters}       the parameters of every registered method, under headings
    ```{model-table} safeswap.model.study:StudySpec    the settings of any model
    ```{engine-table}     what each engine can do
"""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args

from docutils import nodes
from pydantic import BaseModel
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sphinx.application import Sphinx


def first_sentence(thing: object) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n", maxsplit=1)[0].split())


class CodeTable(SphinxDirective):
    """A table with a heading and one row per item."""

    heading: tuple[str, ...]

    def rows(self) -> Iterable[Sequence[str]]:
        """Return the cells of each row, in the markup of the page."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Return the table as nodes."""
        group = nodes.tgroup(cols=len(self.heading))
        group += [nodes.colspec(colwidth=1) for _ in self.heading]
        group += nodes.thead("", self.row(self.heading))
        group += nodes.tbody("", *(self.row(cells) for cells in self.rows()))
        return [nodes.table("", group)]

    def row(self, cells: Sequence[str]) -> nodes.row:
        """Return one row."""
        return nodes.row("", *(nodes.entry("", *self.parse_text_to_nodes(cell)) for cell in cells))


class ErrorTable(CodeTable):
    """Class, exit code and HTTP status of each kind of error."""

    heading = ("error", "exit code", "HTTP status", "meaning")

    def rows(self) -> Iterable[Sequence[str]]:
        """Yield a row per error class, in the order of ``ERROR_CLASSES``."""
        from safeswap.errors import ERROR_CLASSES

        for error in ERROR_CLASSES:
            yield f"`{error.__name__}`", str(error.exit_code), str(error.http_status), first_sentence(error)


class MethodTable(CodeTable):
    """Name, title, specification and sources of each method."""

    heading = ("method", "what it does", "specification", "sources")

    def rows(self) -> Iterable[Sequence[str]]:
        """Yield a row per method, in the order of the registry."""
        from safeswap import registry

        for name, method in registry.methods().items():
            yield f"`{name}`", method.title, f"`{method.spec_type.__name__}`", "; ".join(method.sources)


class MeasureTable(CodeTable):
    """Name, title, parameters and sources of each measure."""

    heading = ("measure", "axis", "full name", "parameters", "sources")

    def rows(self) -> Iterable[Sequence[str]]:
        """Yield a row per measure, in the order of the registry."""
        from safeswap import registry

        for name, measure in registry.measures().items():
            parameters = ", ".join(f"`{key}={json.dumps(value)}`" for key, value in measure.parameters.items())
            yield f"`{name}`", measure.axis.value, measure.title, parameters, "; ".join(measure.sources)


class ModelTable(CodeTable):
    """The fields of a pydantic model; those of a nested model are prefixed with its name and a dot."""

    heading = ("setting", "default", "meaning")
    required_arguments = 1

    def model(self) -> type[BaseModel]:
        """Return the model named by the argument, as ``module:Class``."""
        module, _, name = self.arguments[0].partition(":")
        found: type[BaseModel] = getattr(import_module(module), name)
        return found

    def rows(self) -> Iterable[Sequence[str]]:
        """Return a row per field, in the order of the model."""
        return list_fields(self.model())


def list_fields(model: type[BaseModel], prefix: str = "") -> Iterator[Sequence[str]]:
    """Yield name, default and meaning of each field."""
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "required" if field.is_required() else f"`{json.dumps(default, default=to_plain)}`"
        yield f"`{prefix}{name}`", shown, field.description or ""
        for inner in get_args(field.annotation):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from list_fields(inner, f"{prefix}{name}.")


def to_plain(value: object) -> object:
    """Convert a default for JSON: a model to its values, an enumeration to its word."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


class ParameterTable(ModelTable):
    """The parameters of a method, from its specification type."""

    heading = ("parameter", "default", "meaning")

    def model(self) -> type[BaseModel]:
        """Return the specification type of the method named by the argument."""
        from safeswap import registry

        return registry.method(self.arguments[0]).spec_type


class Parameters(SphinxDirective):
    """Every registered method with its parameters, under a heading of its own."""

    def run(self) -> list[nodes.Node]:
        """Return the parsed sections."""
        from safeswap import registry

        parts = (
            f"## {name}\n\n{method.title}. {first_sentence(method.spec_type)}\n\n```{{parameter-table}} {name}\n```"
            for name, method in registry.methods().items()
        )
        return list(self.parse_text_to_nodes("\n\n".join(parts), allow_section_headings=True))


class EngineTable(CodeTable):
    """What each engine can do."""

    @property
    def heading(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return one column per engine."""
        from safeswap.on_disk.job import ENGINES

        return ("what", *(f"`{name}`" for name in ENGINES))

    def rows(self) -> Iterable[Sequence[str]]:
        """Yield a row per method and per need, as the classes of the engines declare them."""
        from safeswap.on_disk.job import list_abilities

        for what, engines in list_abilities():
            yield what, *("yes" if able else "–" for able in engines)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("error-table", ErrorTable)
    app.add_directive("method-table", MethodTable)
    app.add_directive("measure-table", MeasureTable)
    app.add_directive("parameter-table", ParameterTable)
    app.add_directive("parameters", Parameters)
    app.add_directive("model-table", ModelTable)
    app.add_directive("engine-table", EngineTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
