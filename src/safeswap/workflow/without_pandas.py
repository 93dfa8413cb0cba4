"""Keep pandas out of the program where only Arrow asks for it.

Whenever pyarrow converts values, it imports pandas if installed, to recognise its types: half a second, and none
of our own data are pandas objects, except where a labelled file is read or written. Told that there is no pandas,
pyarrow goes on without. Whoever else imports pandas gets it, and a plug-in may hand it to pyarrow, so nothing is hidden
where one is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_NEED_PANDAS = ("safeswap.files.labelled", "safeswap.files.frames")


class _Hide:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas" and _is_asked_by_arrow() and not _has_plug_ins():
            raise ModuleNotFoundError("pandas is not needed here", name="pandas")
        return None


def hide_pandas() -> None:
    """Hide pandas from pyarrow from now on, for programs that are only ours."""
    sys.meta_path.insert(0, _Hide())


def _is_asked_by_arrow() -> bool:
    """Return whether the nearest Python code is ours or pyarrow's own; pyarrow's compiled code has no frame."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
        frame = frame.f_back
    module = frame.f_globals.get("__name__", "")
    return module.split(".")[0] in ("safeswap", "pyarrow") and module not in _NEED_PANDAS


def _has_plug_ins() -> bool:
    from safeswap.registry import has_plug_ins

    return has_plug_ins()
