"""Every kind of job has one home, beside the routes that ask for it, and one way into the queue."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

from safeswap import service
from safeswap.errors import InternalError
from safeswap.service import routes
from safeswap.service.work.tasks import MODULES, find

SOURCE = Path(service.__file__).parent


def test_the_table_of_kinds_lists_every_task_of_every_feature():
    named = [each.name for each in walk_packages(routes.__path__, f"{routes.__name__}.")]
    found = {task.name: name for name in named for task in getattr(import_module(name), "TASKS", ())}
    assert found == dict(MODULES)
    assert all(find(kind).name == kind for kind in MODULES)


def test_an_unknown_kind_is_refused():
    with pytest.raises(InternalError, match="does not know jobs of the kind 'knit'"):
        find("knit")


def test_every_job_is_submitted_by_the_same_function():
    calls = {
        (path.relative_to(SOURCE).as_posix(), function.name)
        for path in SOURCE.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "enqueue"
    }
    assert calls == {("routes/jobs.py", "submit")}
