"""The public verbs: read → describe → plan → mask → assess → release, one function each.

What a verb returns has methods for the rest: ``masked.undo()``, ``study.choose()``, ``study.save()``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from safeswap import moved
from safeswap.workflow.argus import risky
from safeswap.workflow.assessing import assess, assess_file
from safeswap.workflow.masking import mask, mask_file, plan, swap, undo
from safeswap.workflow.plotting import confidentiality
from safeswap.workflow.reading import describe, read, to_frame
from safeswap.workflow.recoding import recode
from safeswap.workflow.releasing import read_key, release, verify
from safeswap.workflow.safe import check_tables, safe_records, safe_table
from safeswap.workflow.studying import study

if TYPE_CHECKING:
    from safeswap.workflow.old_names import *  # noqa: F403  (what type checkers see of __getattr__)

__all__ = [
    "assess",
    "assess_file",
    "check_tables",
    "confidentiality",
    "describe",
    "mask",
    "mask_file",
    "plan",
    "read",
    "read_key",
    "recode",
    "release",
    "risky",
    "safe_records",
    "safe_table",
    "study",
    "swap",
    "to_frame",
    "undo",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in moved.VERBS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    moved.warn_of_move(f"{__name__}.{name}", moved.VERBS[name])
    return getattr(import_module("safeswap.workflow.old_names"), name)
