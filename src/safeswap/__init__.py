"""safeswap: publish microdata without giving anyone away.

>>> import safeswap as ss
>>> data = ss.datasets.cps8d()
>>> masked = ss.swap(data, swap=["Race"], rate=0.05, key=ss.Key.generate())
>>> ss.assess(masked, measures=["share_changed"])["share_changed"].value == 2442 / 48842
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from safeswap import moved

if TYPE_CHECKING:
    from safeswap import datasets as datasets
    from safeswap.errors import SafeswapError as SafeswapError
    from safeswap.model.key import Key as Key
    from safeswap.model.microdata import Microdata as Microdata
    from safeswap.model.scenario import Scenario as Scenario
    from safeswap.model.schema import Schema as Schema
    from safeswap.model.spec import SwapSpec as SwapSpec
    from safeswap.model.study import StudySpec as StudySpec
    from safeswap.pipelines.spec import Pipeline as Pipeline
    from safeswap.projects.project import Project as Project
    from safeswap.workflow import assess as assess
    from safeswap.workflow import describe as describe
    from safeswap.workflow import mask as mask
    from safeswap.workflow import plan as plan
    from safeswap.workflow import read as read
    from safeswap.workflow import read_key as read_key
    from safeswap.workflow import release as release
    from safeswap.workflow import study as study
    from safeswap.workflow import swap as swap
    from safeswap.workflow import to_frame as to_frame
    from safeswap.workflow import undo as undo
    from safeswap.workflow import verify as verify
    from safeswap.workflow.record_swapping import record_swap as record_swap
    from safeswap.workflow.releasing import attack as attack
    from safeswap.workflow.reporting import report as report
    from safeswap.workflow.risks import suggest_keys as suggest_keys

__version__ = "0.1.0"

_HOME = {
    "Key": "safeswap.model.key",
    "Microdata": "safeswap.model.microdata",
    "Pipeline": "safeswap.pipelines.spec",
    "Project": "safeswap.projects.project",
    "SafeswapError": "safeswap.errors",
    "Scenario": "safeswap.model.scenario",
    "Schema": "safeswap.model.schema",
    "StudySpec": "safeswap.model.study",
    "SwapSpec": "safeswap.model.spec",
    "assess": "safeswap.workflow",
    "attack": "safeswap.workflow.releasing",
    "datasets": "",
    "describe": "safeswap.workflow",
    "mask": "safeswap.workflow",
    "plan": "safeswap.workflow",
    "read": "safeswap.workflow",
    "read_key": "safeswap.workflow",
    "record_swap": "safeswap.workflow.record_swapping",
    "release": "safeswap.workflow",
    "report": "safeswap.workflow.reporting",
    "study": "safeswap.workflow",
    "suggest_keys": "safeswap.workflow.risks",
    "swap": "safeswap.workflow",
    "to_frame": "safeswap.workflow",
    "undo": "safeswap.workflow",
    "verify": "safeswap.workflow",
}

__all__ = sorted(_HOME)  # noqa: PLE0605  (the list is the keys of the table above)


def __getattr__(name: str) -> Any:
    # Loaded on first use: `safeswap --help` must not wait for NumPy, Arrow and Numba.
    if name not in _HOME:
        raise AttributeError(f"module 'safeswap' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name) if _HOME[name] else import_module(f"safeswap.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


moved.install()
