"""Run, search, save and load studies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safeswap.model.checked import checked
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.study import StudySpec
from safeswap.studies.files import CheckpointDirectory
from safeswap.workflow.arguments import as_key, as_study_spec
from safeswap.workflow.reading import _frame_type, read

if TYPE_CHECKING:
    from safeswap.studies.choice import Choice
    from safeswap.studies.study import Study


@checked
def study(
    data: Any,
    spec: StudySpec | Mapping[str, Any] | str | PathLike[str] | None = None,
    *,
    key: Key | None = None,
    insecure_seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    checkpoint: str | PathLike[str] | CheckpointDirectory | None = None,
    threads: int | None = None,
    **parameters: Any,
) -> Study:
    """Score the risk and distortion of many candidate releases: scores only, no masked file.

    Give a :class:`StudySpec`, a TOML file with one, or its parameters. ``progress`` is called with the number of
    candidates done and the total. Finished work is saved in the directory ``checkpoint``, from which the same call
    resumes.

    >>> from safeswap import datasets
    >>> found = study(datasets.cps8d(), attributes=["Race", "Sex"], rates=[0.01, 0.1], insecure_seed=1)
    >>> found.choose("cap_risk:0.0145").objective
    'least distortion with risk at most 0.0145'
    """
    from safeswap.studies.run import run_study

    question, secret, data = as_study_spec(spec, **parameters), as_key(key, insecure_seed), read(data)
    kept = _checkpoint(checkpoint)
    found = run_study(data, question, key=secret, progress=progress, checkpoint=kept, threads=threads)
    return replace(found, frame_type=_frame_type(data))


@checked
def number_of_candidates(
    data: Any, spec: StudySpec | Mapping[str, Any] | str | PathLike[str] | None = None, **parameters: Any
) -> int:
    """Count the candidates of a study before it runs. An invalid study is refused; nothing is scored.

    >>> from safeswap import datasets
    >>> number_of_candidates(datasets.cps8d(), replicates=10)
    1080
    """
    from safeswap.studies.prepare import check_question, swap_attributes

    question, data = as_study_spec(spec, **parameters), read(data)
    check_question(data, question)
    return question.number_of_candidates(swap_attributes(data, question))


@checked
def search(
    data: Any,
    spec: StudySpec | Mapping[str, Any] | str | PathLike[str] | None = None,
    *,
    budget: int,
    key: Key | None = None,
    insecure_seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    checkpoint: str | PathLike[str] | CheckpointDirectory | None = None,
    threads: int | None = None,
    **parameters: Any,
) -> Study:
    """Study ``budget`` specifications, chosen by a multi-objective search, when there are too many to try all.

    >>> from safeswap import datasets
    >>> found = search(datasets.cps8d(), up_to=4, budget=40, insecure_seed=1)
    >>> len(found), found.facts["search"]["possible"]
    (40, 486)
    """
    from safeswap.studies.search import search_study

    question, secret, data = as_study_spec(spec, **parameters), as_key(key, insecure_seed), read(data)
    kept = _checkpoint(checkpoint)
    found = search_study(data, question, key=secret, budget=budget, progress=progress, checkpoint=kept, threads=threads)
    return replace(found, frame_type=_frame_type(data))


@checked
def save_study(
    study: Study,
    path: str | PathLike[str],
    *,
    choice: Choice | None = None,
    data: Any = None,
    pages: bool = True,
    publish_figures: bool = False,
    force: bool = False,
) -> None:
    """Save a study to an internal directory: ``study.parquet``, ``study.json``, ``two_way.parquet``.

    With ``pages`` the map is saved too and, given a ``choice``, the reports; given the ``data``, these say what the
    chosen swap keeps exactly. With ``publish_figures`` the public report has the map and the figures, from which the
    rate can be inferred, and says so; ``study.json`` records this consent. :func:`load_study` reads the study back.
    """
    from safeswap.arrays.two_way import MEASURES
    from safeswap.files.atomic import atomic_directory
    from safeswap.studies import files

    further: dict[str, Any] = {"publish_figures": publish_figures}
    if choice is not None:
        further["choice"] = choice.as_dict()
    with atomic_directory(path, force=force, marker=files.FACTS) as folder:
        files.write_study(study, folder, table_measures=MEASURES, further=further)
        if pages:
            known = None if data is None else read(data)
            _write_pages(study, choice, known, folder, publish_figures=publish_figures)


@checked
def load_study(path: str | PathLike[str]) -> Study:
    """Load a saved study.

    >>> from safeswap import datasets
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "study"
    >>> found = study(datasets.cps8d(), attributes=["Race"], rates=[0.01], insecure_seed=1)
    >>> save_study(found, path, pages=False)
    >>> load_study(path).table.equals(found.table)
    True
    """
    from safeswap.studies.files import read_study
    from safeswap.studies.study import Study
    from safeswap.studies.table import specs_of

    stored = read_study(path)
    return Study(
        spec=stored.spec,
        table=stored.table,
        specs=specs_of(stored.table),
        facts=stored.facts,
        two_way=stored.two_way,
        table_pairs=stored.table_pairs,
    )


def _write_pages(
    study: Study, choice: Choice | None, data: Microdata | None, folder: Path, *, publish_figures: bool
) -> None:
    """Write the map and the two reports, internal and public."""
    from safeswap import registry
    from safeswap.charts.map import map_html
    from safeswap.files.atomic import atomic_write
    from safeswap.reports.study import write_study_report

    with atomic_write(folder / "map.html") as part:
        part.write_text(map_html(study, choice=choice), encoding="utf-8")
    if choice is None:
        return
    promises = () if data is None else registry.method(choice.spec.method).invariants(data, choice.spec)
    names = () if data is None else data.schema.categorical
    public = [seen for promise in promises if (seen := promise.for_users_of(names)) is not None]
    inside, outside = (tuple(dict.fromkeys(promise.sentence for promise in kept)) for kept in (promises, public))
    write_study_report(study, choice, folder / "report.html", version="internal", kept=inside)
    write_study_report(
        study, choice, folder / "report-public.html", version="public", kept=outside, publish_figures=publish_figures
    )


def _checkpoint(path: str | PathLike[str] | CheckpointDirectory | None) -> CheckpointDirectory | None:
    return CheckpointDirectory(path) if isinstance(path, (str, PathLike)) else path
