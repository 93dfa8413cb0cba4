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
    "io": "files",
    "io.argus_files": "projects.argus",
    "io.read": "files.read",
    "io.webswap": "projects.webswap",
}
"""New module paths by old ones, both below ``safeswap``."""


class MovedModules(MetaPathFinder, Loader):
    """Importer of old module paths: an empty module that looks names up at the new path."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a moved module, None for any other."""
        package, _, old = fullname.partition(".")
        return ModuleSpec(fullname, self, is_package=old == "io") if package == "safeswap" and old in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Warn, and delegate to the new module."""
        package, _, old = module.__name__.partition(".")
        new = f"{package}.{MOVED[old]}"
        message = f"{module.__name__} is now {new}; the old path goes in version 0.3"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        found = import_module(new)
        module.__getattr__ = lambda name: getattr(found, name)  # type: ignore[method-assign]


def install() -> None:
    """Register the importer after all others."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
