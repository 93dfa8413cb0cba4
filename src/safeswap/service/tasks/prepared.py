"""What the tasks of the library share: the data as the project's recipe leaves them, masked as the payload says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safeswap import workflow
from safeswap.errors import InputError

if TYPE_CHECKING:
    from safeswap.model.masked import Masked
    from safeswap.model.microdata import Microdata
    from safeswap.model.score import Assessment
    from safeswap.service.tasks.context import Context


def plain_data(context: Context, payload: dict[str, Any]) -> Microdata:
    """The project's data, if they are still those for which the job was asked."""
    asked_for = payload.get("data_version", context.project["data_version"])
    if asked_for != context.project["data_version"]:
        raise InputError(
            "the project has other data now than when this was asked for",
            code="data-changed",
            hint="look at the data, and ask again",
        )
    return context.data()


def prepared_data(context: Context, payload: dict[str, Any]) -> Microdata:
    """The project's data after the recodes that stood in its recipe when the job was asked for."""
    data = plain_data(context, payload)
    recipe = payload.get("recipe")
    return workflow.recode(data, recipe, key=context.key()) if recipe else data


def masked_data(context: Context, payload: dict[str, Any]) -> Masked:
    """Mask the project's data.

    A masking is a pure function of data, specification and key, so nothing confidential lies about between masking and
    release: whoever needs the masked records makes the same ones again.
    """
    return workflow.mask(
        prepared_data(context, payload), payload["spec"], key=context.key(), replicate=payload.get("replicate", 0)
    )


def summary_of(masked: Masked, assessment: Assessment) -> dict[str, Any]:
    """What may be shown of a masking inside the building: totals and figures, no record."""
    return {
        **masked.as_dict(),
        "plan": masked.plan.sentence,
        "unit": masked.audit.unit,
        **assessment.as_dict(),
    }


def asked(payload: dict[str, Any], *names: str) -> dict[str, Any]:
    """The part of a payload that says what was asked for, as it is kept with the result."""
    return {name: payload[name] for name in ("spec", "recipe", *names) if payload.get(name) is not None}
