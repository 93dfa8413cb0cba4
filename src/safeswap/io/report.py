"""The report of a study: one HTML file that needs nothing else, for inside the agency or for the public.

Both versions come from the same study. The internal one holds everything that speaks for the choice, with the
interactive map. The public one is made of other parts and runs no script.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version as version_of
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from safeswap.charts.map import POLICY
from safeswap.charts.protocol import ChoiceLike, StudyLike
from safeswap.charts.theme import css_variables
from safeswap.errors import SpecError
from safeswap.io.atomic import PRIVATE_FILE, atomic_write
from safeswap.io.internal_study import internal_values
from safeswap.io.public_study import public_values
from safeswap.io.report_parts import Parts
from safeswap.model.score import Assessment

Version = Literal["internal", "public"]

SCRIPTLESS = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"
_VALUES = {"internal": internal_values, "public": public_values}
_POLICIES = {"internal": POLICY, "public": SCRIPTLESS}
_FILE_MODES = {"internal": PRIVATE_FILE, "public": 0o644}


def write_study_report(
    study: StudyLike,
    choice: ChoiceLike,
    path: str | os.PathLike[str],
    *,
    version: Version = "internal",
    force: bool = False,
    **parts: Any,
) -> Path:
    """Write the report; it appears complete or not at all. See :func:`study_report` for the parts.

    >>> import tempfile
    >>> from safeswap import datasets, Key
    >>> from safeswap.model.study import StudySpec
    >>> from safeswap.search.run import run_study
    >>> study = run_study(datasets.cps8d(), StudySpec(attributes=("Race", "Sex")), key=Key.insecure(seed=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "report.html"
    ...     write_study_report(study, study.choose("linear:a=0.1"), path, version="public").name
    'report.html'
    """
    content = study_report(study, choice, version=version, **parts)
    with atomic_write(path, force=force, mode=_FILE_MODES[version]) as part:
        part.write_bytes(content)
    return Path(path)


def study_report(
    study: StudyLike,
    choice: ChoiceLike,
    *,
    version: Version = "internal",
    title: str = "",
    before: Assessment | None = None,
    after: Assessment | None = None,
    kept: Sequence[str] = (),
    limits: Sequence[str] = (),
    tolerance: int = 3,
    publish_figures: bool = False,
    date: str = "",
) -> bytes:
    """The report as bytes; :class:`safeswap.io.report_parts.Parts` says what each part is."""
    if version not in _VALUES:
        raise SpecError(f"there is no version {version!r}", code="bad-version", hint="say internal or public")
    parts = Parts(
        title=title,
        before=before,
        after=after,
        kept=tuple(kept),
        limits=tuple(limits),
        tolerance=tolerance,
        publish_figures=publish_figures,
        date=date,
    )
    text: str = template(f"study_{version}.html").render(
        _VALUES[version](study, choice, parts),
        colours=css_variables(),
        for_release=study.facts["for_release"],
        policy=_POLICIES[version],
        product_version=version_of("safeswap"),
    )
    return text.encode()


def template(name: str) -> Any:
    """A template of this package; what goes into it is escaped, and what it lacks is an error."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def load(file: str) -> str:
        return files("safeswap.io").joinpath("templates", file).read_text("utf-8")

    environment = Environment(
        loader=FunctionLoader(load), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(name)
