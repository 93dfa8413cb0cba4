"""No message counts "1 records": a number before a plural noun goes through ``several``, or cannot be 1."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import safeswap

SOURCE = Path(safeswap.__file__).parent
NOUNS = (
    *("areas", "attempts", "attributes", "bits", "blanks", "blocks", "bytes", "candidates", "categories", "cells"),
    *("characters", "classes", "codes", "columns", "combinations", "days", "digits", "draws", "entries", "families"),
    *("figures", "files", "findings", "groups", "hours", "households", "identifiers", "jobs", "keys", "labels"),
    *("levels", "lines", "margins", "minutes", "moves", "numbers", "pairs", "people", "persons", "points", "problems"),
    *("projects", "queries", "ranges", "recodes", "records", "releases", "replicates", "results", "rows", "seconds"),
    *("spans", "specifications", "steps", "strata", "sums", "tables", "texts", "times", "tokens", "units", "users"),
    *("values", "variables", "votes"),
)
# An adjective or two may stand between; words such as "of" end what is counted.
_BETWEEN = r"(?: (?!(?:of|the|in|and|or|are|is|to|have|has|had|by|at|with|from|for|on|as|that|times)\b)[a-z-]+){0,2}?"
PLURAL = re.compile(rf"{_BETWEEN} (?:{'|'.join(NOUNS)})\b")

NEVER_ONE = {
    ("measures/base.py", "number"): "more keys than are taken at a time",
    ("measures/base.py", "measure.name"): "a name, and no noun",
    ("methods/suppress/households.py", "number"): "a tolerance is at least 2",
    ("model/scenario.py", "what"): "a name, and no noun",
    ("model/schema.py", "' and '.join(map(repr, found[:2]))"): "two names, and no noun",
    ("service/routes/risk_views.py", "found.bars[0].label"): "fewer than some number above 1",
    ("studies/choice.py", "draws"): "only told for more than one draw",
    ("files/encoding.py", "len(dialects)"): "an ambiguity has at least two candidates",
    ("measures/plot/fellegi_sunter.py", "len(released) * len(known)"): "above the limit on pairs",
    ("measures/plot/numeric_keys.py", "which"): "a word, inside several",
    ("measures/risk/key_measures.py", "'different' if self.kind == 'distinct' else 'effective'"): "a word, after l > 1",
    ("measures/risk/n_rule.py", "self.n"): "n is at least 2",
    ("measures/utility/categories.py", "_TABLES_OF[sizes[row]]"): "a word: the largest among several tables",
    ("methods/safe/spec.py", "self.tolerance"): "a tolerance is at least 2",
    ("methods/suppress/promises.py", "len(self.combinations)"): "one combination is told by its names",
    ("model/combination.py", "len(names)"): "above the limit on keys",
    ("model/table.py", "prod(sizes)"): "above the limit on cells",
    ("projects/argus.py", "number"): "the number of a line",
    ("releases/scan_data.py", "position"): "the number of a column",
    ("reports/safe.py", "len(lines)"): "more than are shown",
    ("reports/safe.py", "len(places)"): "more than are listed",
    ("service/http/headers.py", "most"): "a limit of the service",
    ("service/routes/data.py", "most"): "a limit of the service",
    ("service/routes/exchange.py", "most_bytes"): "a limit of the service",
    ("service/routes/studies.py", "size"): "above the limit on candidates",
    ("service/routes/jobs.py", "records"): "above the limit on work",
    ("service/routes/jobs.py", "tables"): "above the limit on work",
    ("studies/run.py", "total"): "above the limit on candidates",
}
"""Numbers that are never 1 where they are told, and texts that are no numbers, with the reason."""


def counted(tree: ast.AST) -> Iterator[tuple[ast.FormattedValue, str]]:
    """All values of f-strings that a plural noun follows."""
    for text in ast.walk(tree):
        parts = text.values if isinstance(text, ast.JoinedStr) else []
        for value, after in pairwise(parts):
            if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                found = PLURAL.match(after.value)
                if found:
                    yield value, found[0]


def is_share_or_name(value: ast.FormattedValue) -> bool:
    """A percentage, the repr of a name, or a number that has its noun already."""
    spec = ast.unparse(value.format_spec) if value.format_spec is not None else ""
    return "%" in spec or value.conversion != -1 or ast.unparse(value.value).startswith("plural(")


def is_constant(value: ast.FormattedValue, module: str) -> bool:
    """A constant of the module other than 1."""
    name = ast.unparse(value.value)
    return name.isupper() and getattr(importlib.import_module(module), name) != 1


def is_guarded(value: ast.FormattedValue, tree: ast.AST) -> bool:
    """Inside a choice that compares this very number with 1 or more."""
    compared = re.compile(re.escape(ast.unparse(value.value)) + " (==|!=|>|<=|>=|<) [1-9]")
    choices = (node for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp))
    around = (choice for choice in choices if any(part is value for part in ast.walk(choice)))
    return any(compared.search(ast.unparse(choice.test)) for choice in around)


def unproved() -> Iterator[tuple[str, str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        where = path.relative_to(SOURCE).as_posix()
        tree = ast.parse(path.read_text("utf-8"))
        module = "safeswap." + where.removesuffix(".py").replace("/", ".")
        for value, noun in counted(tree):
            if not (is_share_or_name(value) or is_constant(value, module) or is_guarded(value, tree)):
                yield where, ast.unparse(value.value), noun


def test_no_message_counts_one_of_many() -> None:
    found = list(unproved())
    assert [each for each in found if each[:2] not in NEVER_ONE] == []
    assert set(NEVER_ONE) == {each[:2] for each in found}  # no exception outlives its message


BRACES = {".js": re.compile(r"\$\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}" + PLURAL.pattern)}
BRACES[".html"] = re.compile(r"\{\{ ([^{}]*) \}\}" + PLURAL.pattern)
NEVER_ONE_IN_PAGES = {
    ("study-form.js", "count(wanted.replicates)"): "only told for more than one draw",
    ("risk.js", "size"): "one key is told as such",
    ("data.js", "power(cells.possible)"): "a thousand million or more",
    ("households.js", "title(each)"): "one person is told as such",
}


def test_no_page_counts_one_of_many() -> None:
    pages = [path for path in SOURCE.rglob("*") if path.suffix in BRACES and "vendor" not in path.parts]
    assert {"dom.js", "map.js", "public_report.html", "data.html", "figures.js"} <= {path.name for path in pages}
    found = set()
    for path in pages:
        told = BRACES[path.suffix].findall(" ".join(path.read_text("utf-8").split()))
        found |= {(path.name, value) for value in told if not value.startswith(("several(", "share("))}
    assert found == set(NEVER_ONE_IN_PAGES)
    sample = "`${count(n)} unsafe records, ${several(n, 'record')} of ${several(m, 'cell')} lost`"
    assert BRACES[".js"].findall(sample) == ["count(n)"]
    assert BRACES[".html"].findall("{{ n }} records, {{ m|length }} cell{{ '' if m else 's' }}") == ["n"]


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ('f"{n:,} records"', True),
        ('f"{len(x)} unsafe records are"', True),
        ('f"{n:.1%} of the records"', False),
        ('f"{n} of the records"', False),
        ("f\"{plural(n, 'record')} with values\"", False),
        ('f"{n:,} records" if n > 1 else "a record"', False),
        ('f"{n:,} records" if m > 1 else "a record"', True),
    ],
)
def test_the_scan_sees_what_it_should(code: str, wrong: bool) -> None:
    tree = ast.parse(code)
    found = [v for v, _ in counted(tree) if not is_share_or_name(v) and not is_guarded(v, tree)]
    assert bool(found) == wrong
