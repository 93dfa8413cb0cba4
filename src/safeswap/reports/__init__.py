"""HTML reports, each a self-contained file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any


@cache
def load_template(name: str) -> Any:
    """Load a template of this package; values are escaped, and a missing value is an error."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    loader = FunctionLoader(read_asset)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(name)


def read_asset(name: str) -> str:
    """Return the text of a template or a style sheet."""
    return files("safeswap.reports").joinpath("templates", name).read_text("utf-8")
