"""Documented module paths and verbs that have moved: the old ones work for one more version, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "io": "files",
    "io.argus_files": "projects.argus",
    "io.read": "files.read",
    "io.webswap": "projects.webswap",
    "model.plan": "model.spec",
}
"""New module paths by old ones, both below ``safeswap``."""

VERBS = {
    "advice": "safeswap.workflow.recode_advice.advice",
    "argus_session": "safeswap.workflow.session.ArgusSession.start",
    "as_key": "safeswap.workflow.masking.as_key",
    "as_recipe": "safeswap.workflow.session.as_recipe",
    "as_spec": "safeswap.workflow.masking.as_spec",
    "as_study_spec": "safeswap.workflow.masking.as_study_spec",
    "compare": "safeswap.workflow.assessing.compare",
    "confidentiality_by_keys": "safeswap.measures.plot.plots.plots_by_keys",
    "file_risk": "safeswap.measures.risk.by_record.file_risk",
    "find_engine": "safeswap.on_disk.job.find_engine",
    "keep": "safeswap.workflow.masking.keep",
    "keygen": "safeswap.files.keyfile.generate_key",
    "load_study": "safeswap.studies.study.Study.load",
    "number_of_candidates": "safeswap.studies.run.count_candidates",
    "read_grc": "safeswap.projects.argus.read_grc",
    "read_hierarchy": "safeswap.projects.argus.read_hierarchy",
    "read_recipe": "safeswap.projects.toml.read_recipe",
    "recall": "safeswap.workflow.masking.recall",
    "record_risk": "safeswap.measures.risk.by_record.record_risk",
    "report": "safeswap.reports.masking.write_masking_report",
    "risky_after": "safeswap.workflow.session.ArgusSession.as_dict",
    "safe_table_report": "safeswap.reports.safe.write_safe_report",
    "save_study": "safeswap.studies.study.Study.save",
    "search": "safeswap.workflow.study",
    "special_uniques": "safeswap.measures.risk.by_record.special_uniques",
    "suda": "safeswap.measures.risk.by_record.suda",
    "write": "safeswap.files.write.write_microdata",
    "write_checked": "safeswap.measures.table_check.TableCheck.write",
    "write_confidentiality": "safeswap.charts.confidentiality.write_plot",
    "write_recipe": "safeswap.projects.toml.write_recipe",
    "write_record_risks": "safeswap.measures.risk.by_record.write_record_risks",
    "write_risky": "safeswap.measures.risk.risky.Risky.write",
    "write_safe_tables": "safeswap.projects.tables.write_long",
}
"""New homes of the functions that ``safeswap.workflow`` had in version 0.1 besides its verbs."""


def warn_of_move(old: str, new: str) -> None:
    """Warn the caller's caller of a name that has moved."""
    warnings.warn(f"{old} is now {new}; the old name will be removed in version 0.3", DeprecationWarning, stacklevel=3)


class MovedModules:
    """Importer of old module paths: an empty module that looks names up at the new path.

    Python asks for methods, not for the base classes of ``importlib.abc``, whose import takes longer than our own.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a moved module, None for any other."""
        package, _, old = fullname.partition(".")
        if package != "safeswap" or old not in MOVED:
            return None
        return ModuleSpec(fullname, self, is_package=old == "io")  # type: ignore[arg-type]

    def create_module(self, _: ModuleSpec) -> None:
        """Leave it to Python to make an empty module."""

    def exec_module(self, module: ModuleType) -> None:
        """Warn, and delegate to the new module."""
        package, _, old = module.__name__.partition(".")
        new = f"{package}.{MOVED[old]}"
        message = f"{module.__name__} is now {new}; the old path will be removed in version 0.3"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        found = import_module(new)
        module.__getattr__ = lambda name: getattr(found, name)  # type: ignore[method-assign]


def install() -> None:
    """Register the importer after all others."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
