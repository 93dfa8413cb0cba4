"""The library's methods, with the schemas of their specifications, and its measures."""

from __future__ import annotations

from inspect import getdoc
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from pydantic import Field

from safeswap import registry
from safeswap.errors import SpecError
from safeswap.measures.base import default_situations, is_signed, tells_the_rate
from safeswap.methods.base import Method
from safeswap.service.http.problems import NotFound
from safeswap.service.http.wire import Wire
from safeswap.service.people.roles import allow

router = APIRouter(tags=["library"])


class MethodAnswer(Wire):
    """A masking method, with its sources and the schema of its specification."""

    name: str
    title: str
    sources: tuple[str, ...]
    description: str = ""
    takes_scenario: bool = Field(default=False, description="A `scenario` can state its keys.")
    spec_schema: dict[str, Any] = Field(description="JSON schema of the specification, without `method`.")


class MeasureAnswer(Wire):
    """A measure of risk or distortion, and its parameters with defaults."""

    name: str
    title: str
    axis: str
    sources: tuple[str, ...]
    parameters: dict[str, Any]
    default_for: tuple[str, ...] = Field(
        default=(),
        description="Situations in which it is a default: `categories`, `numbers`, `recoding` or `study`.",
    )
    signed: bool = Field(default=True, description="The sign is a direction: figures compare by magnitude.")
    tells_the_rate: bool = Field(default=True, description="The rate may follow from the figure: do not publish it.")


class AttackAnswer(Wire):
    """An attack: what it does, what the intruder has, and what it needs to be tried."""

    name: str
    title: str
    intruder: str
    description: str
    quick: bool = Field(description="It is tried on every release; the others with `full`.")
    needs: tuple[str, ...] = Field(description="original, scenario, sensitive, rules, tables, earlier, bundle, …")


@router.get("/attacks", dependencies=[Depends(allow("self"))])
def list_attacks() -> list[AttackAnswer]:
    """List the attacks that a release is tried by."""
    from safeswap.attacks.run import ATTACKS

    return [
        AttackAnswer(
            name=attack.name,
            title=attack.title,
            intruder=attack.intruder,
            description=(getdoc(type(attack)) or "").split("\n\n")[0].replace("\n", " "),
            quick=attack.quick,
            needs=tuple(sorted(attack.needs)),
        )
        for attack in ATTACKS.values()
    ]


@router.get("/methods", dependencies=[Depends(allow("self"))])
def list_methods() -> list[MethodAnswer]:
    """List the masking methods, including those of plug-ins."""
    return [_method_answer(method) for method in registry.methods().values()]


@router.get("/methods/{name}", dependencies=[Depends(allow("self"))])
def get_method(name: Annotated[str, Path(max_length=100, examples=["swap"])]) -> MethodAnswer:
    """Get one method, with the schema of its specification."""
    try:
        return _method_answer(registry.method(name))
    except SpecError:
        raise NotFound("there is no such method", hint="see GET /methods") from None


@router.get("/measures", dependencies=[Depends(allow("self"))])
def list_measures() -> list[MeasureAnswer]:
    """List the measures of risk and distortion, with their parameters."""
    return [
        MeasureAnswer(
            name=measure.name,
            title=measure.title,
            axis=measure.axis.value,
            sources=measure.sources,
            parameters=_to_json(measure.parameters),
            default_for=tuple(sorted(default_situations(measure))),
            signed=is_signed(measure),
            tells_the_rate=tells_the_rate(measure),
        )
        for measure in registry.measures().values()
    ]


def _method_answer(method: Method) -> MethodAnswer:
    schema = method.spec_type.model_json_schema()
    takes_scenario = "scenario" in method.spec_type.model_fields
    for part in (schema, *schema.get("$defs", {}).values()):
        for name in ("method", "scenario"):  # a form states the keys themselves
            part.get("properties", {}).pop(name, None)
    return MethodAnswer(
        name=method.name,
        title=method.title,
        sources=method.sources,
        description=(getdoc(type(method)) or "").split("\n\n")[0].replace("\n", " "),
        takes_scenario=takes_scenario,
        spec_schema=schema,
    )


def _to_json(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in parameters.items()}
