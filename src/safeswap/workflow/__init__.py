"""The public verbs: read → describe → plan → mask → assess → release, one function each.

What a verb returns has methods for the rest: ``masked.undo()``, ``study.choose()``, ``study.save()``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from safeswap import moved

if TYPE_CHECKING:
    from safeswap.workflow.assessing import assess as assess
    from safeswap.workflow.assessing import assess_file as assess_file
    from safeswap.workflow.masking import describe as describe
    from safeswap.workflow.masking import mask as mask
    from safeswap.workflow.masking import mask_file as mask_file
    from safeswap.workflow.masking import plan as plan
    from safeswap.workflow.masking import read as read
    from safeswap.workflow.masking import read_key as read_key
    from safeswap.workflow.masking import swap as swap
    from safeswap.workflow.masking import to_frame as to_frame
    from safeswap.workflow.masking import undo as undo
    from safeswap.workflow.releasing import release as release
    from safeswap.workflow.releasing import verify as verify
    from safeswap.workflow.risks import confidentiality as confidentiality
    from safeswap.workflow.risks import risky as risky
    from safeswap.workflow.safe import check_tables as check_tables
    from safeswap.workflow.safe import safe_records as safe_records
    from safeswap.workflow.safe import safe_table as safe_table
    from safeswap.workflow.session import recode as recode
    from safeswap.workflow.studying import study as study

_HOME = {
    "assess": "assessing",
    "assess_file": "assessing",
    "check_tables": "safe",
    "confidentiality": "risks",
    "describe": "masking",
    "mask": "masking",
    "mask_file": "masking",
    "plan": "masking",
    "read": "masking",
    "read_key": "masking",
    "recode": "session",
    "release": "releasing",
    "risky": "risks",
    "safe_records": "safe",
    "safe_table": "safe",
    "study": "studying",
    "swap": "masking",
    "to_frame": "masking",
    "undo": "masking",
    "verify": "releasing",
}

__all__ = sorted(_HOME)  # noqa: PLE0605  (the list is the keys of the table above)


def __getattr__(name: str) -> Any:
    # Loaded on first use: a swap must not wait for studies, tables and reports.
    if name in _HOME:
        globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        return globals()[name]
    if name not in moved.VERBS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    moved.warn_of_move(f"{__name__}.{name}", moved.VERBS[name])
    return import_module("safeswap.workflow.old_names").find_verb(name)
