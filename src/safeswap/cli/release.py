"""``safeswap release``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeswap.cli.console import Console, visible
from safeswap.cli.masking import HOUSEHOLDS
from safeswap.cli.options import (
    OUTPUT,
    RANDOMNESS,
    Force,
    ScenarioFile,
    Shown,
    check_outputs,
    command,
    read_scenario,
    spec_options,
)
from safeswap.releases.spec import ReleaseSpec

if TYPE_CHECKING:
    from safeswap.releases.publish import Published

CONSENT = "Exceptions to confirm"
_CONSENTS = ("second_release", "unmasked", "attack", "override")
DOCUMENTATION = "Documentation"


_SHOWN = {
    "data_format": Shown(flag="--format", panel=OUTPUT),
    **dict.fromkeys(("identifiers", "drop"), Shown(panel=OUTPUT)),
    "two_files": Shown(flag="--two-files", panel=HOUSEHOLDS),
    **dict.fromkeys(("title", "date"), Shown(panel=DOCUMENTATION)),
    "publish_rate": Shown(flag="--publish-rate", panel=DOCUMENTATION),
    "publish_errors": Shown(panel=DOCUMENTATION, metavar="TOML"),
    "second_release": Shown(panel=CONSENT, metavar="REASON"),
    "attack": Shown(panel=CONSENT),
    "override": Shown(panel=CONSENT, metavar="REASON"),
    "unmasked": Shown(flag="--unmasked", panel=CONSENT),
}


@command
@spec_options(ReleaseSpec, shown=_SHOWN)
def release(
    console: Console,
    original: Annotated[Path, typer.Argument(metavar="ORIGINAL", help="original file, or a project file")],
    masked: Annotated[
        Path | None,
        typer.Argument(metavar="MASKED", help="masked file, as written by swap or mask; none for a project"),
    ] = None,
    *,
    audit: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="audit directory of the masking; a record of the release is added"),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="secret key; determines the row order", rich_help_panel=RANDOMNESS),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="BUNDLE", help="directory to publish", rich_help_panel=OUTPUT)
    ] = None,
    force: Force = False,
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="recipe by which ORIGINAL was recoded without an audit record",
            rich_help_panel=DOCUMENTATION,
        ),
    ] = None,
    households: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="original file of households, if two files were masked", rich_help_panel=HOUSEHOLDS
        ),
    ] = None,
    masked_households: Annotated[
        Path | None, typer.Option(metavar="FILE", help="masked file of households", rich_help_panel=HOUSEHOLDS)
    ] = None,
    scenario: ScenarioFile = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="largest advantage allowed by attack; by default SAFESWAP_POLICY",
            rich_help_panel=CONSENT,
        ),
    ] = None,
    control: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="records held out before masking, to judge attacks by", rich_help_panel=CONSENT
        ),
    ] = None,
    parameters: dict[str, Any],
) -> None:
    """Verify a masked file and write the bundle for publication.

    Original, masked file and audit record are read again, and every guarantee is verified on them. The bundle holds the
    data in a secret row order, a dictionary, a report and a manifest. If any check fails, nothing is written. What was
    masked as a household file and a person file is released as two files.

    Of a project file, what its last run made is released with the settings of the file; it is refused if the run is out
    of date, if something required does not hold, or if a guess stands before a column that looks like an identifier.
    """
    if masked is None:
        stated = {"--audit": audit, "--output": output, "--recipe": recipe, "--scenario": scenario}
        stated |= {"--policy": policy, "--control": control}
        stated |= {"--households": households, "--masked-households": masked_households}
        published = _release_project(console, original, key, force=force, stated=stated, parameters=parameters)
    else:
        if audit is None or key is None or output is None:
            absent = "--audit DIR" if audit is None else "--key FILE" if key is None else "--output BUNDLE"
            raise typer.BadParameter(f"missing option: {absent}")
        if (households is None) != (masked_households is None):
            raise typer.BadParameter("--households and --masked-households belong together")
        both = () if households is None or masked_households is None else (households, masked_households)
        parameters = {**parameters, "two_files": True} if both else parameters
        files = _Files(original=original, masked=masked, audit=audit, key=key, output=output, households=both)
        asked = {**parameters, "scenario": read_scenario(scenario), "policy": policy, "control": control}
        published = _release_files(console, files, force=force, recipe=recipe, parameters=asked)
    console.say("Verified:")
    for finding in published.findings:
        console.say(f"  ✓ {visible(finding.sentence)}")
    for remark in published.remarks:
        console.warn(f"! {remark.message}")
    for judged in published.attacks:
        if judged.is_above:
            console.warn(f"! {judged.outcome.attack} is above the policy and was overridden: {judged.outcome.sentence}")
    for each in published.differencing:
        console.warn(f"! {each.sentence}")
    console.say_places(("bundle", published.public, "public"), ("record", published.audit, "confidential"))
    console.result({"command": "release", **published.as_dict()})


@dataclass(frozen=True, kw_only=True)
class _Files:
    original: Path
    masked: Path
    audit: Path
    key: Path
    output: Path
    households: tuple[Path, ...] = ()


def _release_files(
    console: Console, files: _Files, *, force: bool, recipe: Path | None, parameters: dict[str, Any]
) -> Published:
    from safeswap import workflow
    from safeswap.workflow.masking import recall

    inputs = [files.original, files.masked, *files.households, files.key, files.audit]
    check_outputs([files.output], inputs=inputs, force=force)
    secret = workflow.read_key(files.key)
    with console.steps(2) as steps:
        steps.at("reading")
        masking = recall(files.original, files.masked, audit=files.audit, recipe=recipe, households=files.households)
        steps.at("verifying and writing")
        gate = {name: parameters.pop(name) for name in ("scenario", "policy", "control")}
        terms = {**ReleaseSpec(**parameters).model_dump(), **gate}
        return workflow.release(masking, files.output, audit=files.audit, key=secret, force=force, **terms)


def _release_project(
    console: Console,
    project: Path,
    key: Path | None,
    *,
    force: bool,
    stated: Mapping[str, Any],
    parameters: dict[str, Any],
) -> Published:
    """Release from a project file; what it states is not stated again."""
    from safeswap import workflow
    from safeswap.workflow.project import release_project

    if project.suffix.lower() != ".toml" and not project.is_dir():
        raise typer.BadParameter("missing argument MASKED: give the original and the masked file, or a project file")
    twice = [name for name, value in stated.items() if value is not None]
    twice += [f"--{name.replace('_', '-')}" for name in parameters if name not in _CONSENTS]
    if twice:
        raise typer.BadParameter(f"{twice[0]} is stated in the project file: change it there, and run it again")
    secret = None if key is None else workflow.read_key(key)
    with console.steps(1) as steps:
        steps.at("verifying and writing")
        return release_project(project, key=secret, force=force, **parameters)
