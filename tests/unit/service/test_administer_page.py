"""The page on administration says of every setting what it is, and what it is unless stated."""

from __future__ import annotations

from pathlib import Path

import pytest

from safeswap.service.settings import Limits, OpenIdConnect, Settings, TrustedProxy

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "administer.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("|")]


@pytest.mark.parametrize(
    "name", [name for model in (Settings, Limits, OpenIdConnect, TrustedProxy) for name in model.model_fields]
)
def test_every_setting_is_in_a_table_of_the_page(name):
    assert any(f"`{name}`" in row for row in ROWS) or name == "limits"


@pytest.mark.parametrize(
    ("name", "shown", "value"),
    [
        ("upload_bytes", "20 GiB", 20 * 2**30),
        ("project_bytes", "200 GiB", 200 * 2**30),
        ("reserve_bytes", "1 GiB", 2**30),
        ("parse_memory_bytes", "8 GiB", 8 * 2**30),
        ("parse_seconds", "1,800 s", 1800),
        ("job_memory_bytes", "16 GiB", 16 * 2**30),
        ("job_seconds", "24 h", 24 * 3600),
        ("cached_bytes", "2 GiB", 2 * 2**30),
        ("candidates", "100,000", 100_000),
        ("page_size", "200", 200),
    ],
)
def test_the_limits_on_the_page_are_those_of_the_code(name, shown, value):
    (row,) = [row for row in ROWS if f"`{name}`" in row]
    assert shown in row
    assert Limits.model_fields[name].default == value
