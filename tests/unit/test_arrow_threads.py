"""Arrow's execution plans run in the calling thread.

A thread of Arrow's lets go of NumPy's memory after the caller has its result. If Python is ending by then, the thread
is ended inside a destructor, and the process aborts after its work is done ("terminate called without an active
exception").
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import safeswap

SOURCE = Path(safeswap.__file__).parent


def plans(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that run an execution plan: table.group_by(…).aggregate(…), and joins and sorts of tables."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, inner = node.func.attr, node.func.value
        if name == "aggregate" and isinstance(inner, ast.Call) and getattr(inner.func, "attr", "") == "group_by":
            yield inner
        elif name == "sort_by" or (name == "join" and any(each.arg == "join_type" for each in node.keywords)):
            yield node


def is_threaded(call: ast.Call) -> bool:
    stated = [each.value for each in call.keywords if each.arg == "use_threads"]
    return not stated or not isinstance(stated[0], ast.Constant) or stated[0].value is not False


def test_no_execution_plan_uses_threads() -> None:
    found = [(path, call) for path in sorted(SOURCE.rglob("*.py")) for call in plans(ast.parse(path.read_text()))]
    assert len(found) > 5
    assert [f"{path.relative_to(SOURCE)}:{call.lineno}" for path, call in found if is_threaded(call)] == []


def test_a_plan_with_threads_is_noticed() -> None:
    threaded = 'table.group_by(["a"]).aggregate([]); table.join(other, "a", join_type="inner", use_threads=True)'
    assert [is_threaded(call) for call in plans(ast.parse(threaded))] == [True, True]
