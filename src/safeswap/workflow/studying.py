"""Try many candidate releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

from safeswap.model.checked import Default, check_types
from safeswap.model.key import Key
from safeswap.model.study import StudySpec
from safeswap.studies.run import CheckpointDirectory, run_study
from safeswap.workflow.masking import as_key, as_study_spec, find_frame_type, read

if TYPE_CHECKING:
    from safeswap.studies.study import Study


class StudyRun(TypedDict, total=False):
    """Options for running a study."""

    progress: Annotated[Callable[[int, int], None] | None, Default(None)]
    checkpoint: Annotated[str | PathLike[str] | CheckpointDirectory | None, Default(None)]
    threads: Annotated[int | None, Default(None)]
    budget: Annotated[int | None, Default(None)]


class StudyOptions(StudyRun, total=False):
    """Options for running a study, and the names of its parameters, which :class:`StudySpec` describes and checks."""

    attributes: Any
    up_to: Any
    rates: Any
    constraints: Any
    true_swap: Any
    pairing: Any
    replicates: Any
    others: Any
    vary: Any
    swaps: Any
    first: Any
    last: Any
    risk: Any
    distortion: Any
    keys: Any
    scenario: Any
    objective: Any


@check_types
def study(
    data: Any,
    spec: StudySpec | Mapping[str, Any] | str | PathLike[str] | None = None,
    *,
    key: Key | None = None,
    insecure_seed: int | None = None,
    **options: Unpack[StudyOptions],
) -> Study:
    """Score the risk and distortion of many candidate releases: scores only, no masked file.

    Give a :class:`StudySpec`, a TOML file with one, or its parameters. ``progress`` is called with the number of
    candidates done and the total. Finished work is saved in the directory ``checkpoint``, from which the same call
    resumes. With a ``budget``, only that many specifications are tried, chosen by a multi-objective search.

    >>> from safeswap import datasets
    >>> found = study(datasets.cps8d(), attributes=["Race", "Sex"], rates=[0.01, 0.1], insecure_seed=1)
    >>> found.choose("cap_risk:0.0145").objective
    'least distortion with risk at most 0.0145'
    >>> found = study(datasets.cps8d(), up_to=4, budget=40, insecure_seed=1)
    >>> len(found), found.facts["search"]["possible"]
    (40, 486)
    """
    checkpoint, budget = options["checkpoint"], options["budget"]
    parameters = {name: value for name, value in options.items() if name not in StudyRun.__annotations__}
    question, secret, data = as_study_spec(spec, **parameters), as_key(key, insecure_seed), read(data)
    how: dict[str, Any] = {"key": secret, "progress": options["progress"], "threads": options["threads"]}
    how["checkpoint"] = CheckpointDirectory(checkpoint) if isinstance(checkpoint, str | PathLike) else checkpoint
    if budget is None:
        found = run_study(data, question, **how)
    else:
        from safeswap.studies.search import search_study

        found = search_study(data, question, budget=budget, **how)
    return replace(found, frame_type=find_frame_type(data))
