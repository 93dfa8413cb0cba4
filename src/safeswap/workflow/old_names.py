"""Names that ``safeswap.workflow`` had in version 0.1; they go in version 0.3.

Here are those whose arguments changed; the others are found where :data:`safeswap.moved.VERBS` says they live now.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from safeswap.charts.confidentiality import write_plot as write_confidentiality
from safeswap.files.keyfile import generate_key
from safeswap.files.write import write_microdata
from safeswap.measures.plot.plots import plots_by_keys
from safeswap.measures.risk.risky import Risky
from safeswap.measures.table_check import TableCheck
from safeswap.methods.safe.spec import SafeTables
from safeswap.model.checked import check_types
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.score import Assessment
from safeswap.model.text import Part
from safeswap.moved import VERBS
from safeswap.projects import toml
from safeswap.projects.tables import write_long
from safeswap.reports.masking import write_masking_report
from safeswap.reports.safe import write_safe_report as safe_table_report
from safeswap.studies.choice import Choice
from safeswap.studies.run import count_candidates
from safeswap.studies.study import Study
from safeswap.workflow.assessing import assess
from safeswap.workflow.masking import as_study_spec, read
from safeswap.workflow.risks import two_files
from safeswap.workflow.session import ArgusSession, Steps, as_recipe
from safeswap.workflow.studying import study

Paths = str | PathLike[str]


def find_verb(name: str) -> Any:
    """Return what an old name means: its translation here, or the function where it lives now."""
    return globals()[name] if name in globals() else resolve_name(VERBS[name])


keygen = check_types(generate_key)
read_recipe = check_types(toml.read_recipe)
safe_table_report = check_types(safe_table_report)
write_confidentiality = check_types(write_confidentiality)


@check_types
def confidentiality_by_keys(
    original: Any, released: Any = None, key_sets: Sequence[Sequence[str]] = (), **options: Any
) -> Any:
    """Translate to :func:`safeswap.measures.plot.plots.plots_by_keys`."""
    return plots_by_keys(*two_files(original, released), key_sets, **options)


@check_types
def number_of_candidates(data: Any, spec: Any = None, **parameters: Any) -> int:
    """Translate to :func:`safeswap.studies.run.count_candidates`."""
    return count_candidates(read(data), as_study_spec(spec, **parameters))


@check_types
def report(masked: Masked, path: Paths, *, assessment: Assessment | None = None, **options: Any) -> Path:
    """Translate to :func:`safeswap.reports.masking.write_masking_report`."""
    known = assess(masked) if assessment is None else assessment
    return write_masking_report(masked, path, assessment=known, **options)


@check_types
def risky_after(recipe: Steps, data: Any, combinations: Any, *, key: Key | None = None) -> list[dict[str, Any]]:
    """Translate to :meth:`safeswap.workflow.session.ArgusSession.as_dict`."""
    return [stage.as_dict() for stage in ArgusSession.start(data, combinations, recipe=recipe, key=key).stages]


@check_types
def save_study(study: Study, path: Paths, *, choice: Choice | None = None, **options: Any) -> None:
    """Translate to :meth:`safeswap.studies.study.Study.save`."""
    study.save(path, choice=choice, **options)


@check_types
def search(data: Any, spec: Any = None, *, budget: int, **options: Any) -> Study:
    """Translate to :func:`safeswap.workflow.study`."""
    return study(data, spec, budget=budget, **options)


@check_types
def write(data: Masked | Microdata, path: Paths, *, force: bool = False) -> tuple[str, ...]:
    """Translate to :func:`safeswap.files.write.write_microdata`."""
    return write_microdata(data, path, force=force)


@check_types
def write_checked(found: TableCheck, path: Paths, *, force: bool = False) -> None:
    """Translate to :meth:`safeswap.measures.table_check.TableCheck.write`."""
    found.write(path, force=force)


@check_types
def write_recipe(recipe: Steps, path: Paths, *, data: Any = None, force: bool = False) -> None:
    """Translate to :func:`safeswap.projects.toml.write_recipe`, of a recipe pinned to the data."""
    found = as_recipe(recipe)
    toml.write_recipe(found if data is None else found.pinned(read(data)), path, force=force)


@check_types
def write_risky(found: Risky, path: Paths, *, part: Part = "unsafe", force: bool = False) -> None:
    """Translate to :meth:`safeswap.measures.risk.risky.Risky.write`."""
    found.write(path, part=part, force=force)


@check_types
def write_safe_tables(result: SafeTables, path: Paths, *, number: int = 0, force: bool = False) -> Path:
    """Translate to :func:`safeswap.projects.tables.write_long`."""
    return write_long(result, path, number=number, force=force)
