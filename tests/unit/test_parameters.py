"""A request that passes through several functions is one value: no function has more than eight parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import safeswap

SOURCE = Path(safeswap.__file__).parent
MOST = 8


def long_functions(text: str) -> Iterator[str]:
    """Names of the functions with too many parameters, other than compiled kernels."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _decorators(node) & {"njit", "inner"}:
            given = node.args
            names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            packed = [each for each in (given.vararg, given.kwarg) if each is not None]
            if len(names) - (names[:1] in (["self"], ["cls"])) + len(packed) > MOST:
                yield node.name


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    called = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return {ast.unparse(each).rpartition(".")[2] for each in called}


def test_no_function_has_more_than_eight_parameters():
    found = {
        path.relative_to(SOURCE).as_posix(): names
        for path in SOURCE.rglob("*.py")
        if (names := set(long_functions(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("head", "is_long"),
    [
        ("def f(a, b, c, d, e, f, g, h): ...", False),
        ("def f(a, b, c, d, e, f, g, h, i): ...", True),
        ("def f(a, b, /, c, d, *, e, f, g, h, **more): ...", True),
        ("async def f(a, b, c, d, *rest, e, f, g, h): ...", True),
        ("class A:\n    def f(self, a, b, c, d, e, f, g, h): ...", False),
        ("@numba.njit(cache=True)\ndef f(a, b, c, d, e, f, g, h, i): ...", False),
        ("@inner\ndef f(a, b, c, d, e, f, g, h, i): ...", False),
        ("@app.command()\ndef f(a, b, c, d, e, f, g, h, i): ...", True),
        ("@checked\ndef f(a, b, c, d, e, f, g, h, i): ...", True),
    ],
)
def test_the_count_is_right(head, is_long):
    assert bool([*long_functions(head)]) is is_long
