"""The page on people says what the program does."""

from __future__ import annotations

from pathlib import Path

from safeswap.service.people import accounts
from safeswap.service.people.roles import PERMISSIONS, Role
from safeswap.service.routes.session import TokenRequest

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "people-and-releases.md").read_text(encoding="utf-8")


def test_the_table_of_roles_is_the_one_that_is_enforced() -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| `")]
    told = {}
    for row in rows:
        name, *allowed, scope = (cell.strip() for cell in row)
        roles = {role for role, cell in zip(Role, allowed, strict=True) if cell == "yes"}
        told[name.split("`")[1]] = (roles, scope.strip("`") or None)
    assert told == {name: (set(found.roles), found.scope) for name, found in PERMISSIONS.items()}


def test_the_numbers_on_the_page_are_those_of_the_program() -> None:
    assert f"At least {accounts.SHORTEST} characters" in PAGE
    assert accounts.BY_NAME.free == 5
    assert accounts.BY_ADDRESS.free == 50
    assert accounts.LONGEST_PAUSE == 900
    assert accounts.Backoff(free=5).pause(100) == 900
    (most,) = [each.le for each in TokenRequest.model_fields["days"].metadata if hasattr(each, "le")]
    assert f"at most {most}" in PAGE
