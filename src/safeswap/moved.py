"""Documented module paths that have moved: the old ones work for one more version, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "safeswap.io": "safeswap.files",
    "safeswap.io.argus_files": "safeswap.projects.argus",
    "safeswap.io.read": "safeswap.files.read",
    "safeswap.io.webswap": "safeswap.projects.webswap",
}


class MovedModules(MetaPathFinder, Loader):
    """Importer of old module paths: an empty module that looks names up at the new path."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a moved module, None for any other."""
        return ModuleSpec(fullname, self, is_package=fullname == "safeswap.io") if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Warn, and delegate to the new module."""
        new = MOVED[module.__name__]
        message = f"{module.__name__} is now {new}; the old path goes in version 0.3"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        found = import_module(new)
        module.__getattr__ = lambda name: getattr(found, name)  # type: ignore[method-assign]


def install() -> None:
    """Register the importer after all others."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
