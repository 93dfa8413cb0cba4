"""API models: users, tokens, members and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field, SecretStr

from safeswap.service.schemas.projects import Name, Text, Wire, example

RoleName = Literal["viewer", "analyst", "officer", "admin"]
Scope = Literal["read", "write", "release"]


class UserRequest(Wire):
    """A new user."""

    model_config = ConfigDict(json_schema_extra=example(name="ada", role="analyst", display_name="Ada Lovelace"))

    name: Name
    role: RoleName
    display_name: Text = Field(default="", max_length=200)
    password: SecretStr | None = Field(
        default=None, max_length=1000, description="Omit for login through a provider or proxy."
    )


class UserChange(Wire):
    """Changes to a user. A new role, a new password or deactivation ends all sessions."""

    model_config = ConfigDict(json_schema_extra=example(role="officer"))

    role: RoleName | None = None
    display_name: Text | None = Field(default=None, max_length=200)
    active: bool | None = None
    password: SecretStr | None = Field(default=None, max_length=1000)
    revoke_tokens: bool = Field(default=True, description="Whether a new password also revokes the user's tokens.")


class PasswordChange(Wire):
    """A new password for the current user."""

    model_config = ConfigDict(json_schema_extra=example(current="…", new="…"))

    current: SecretStr = Field(max_length=1000)
    new: SecretStr = Field(max_length=1000)
    revoke_tokens: bool = Field(default=True, description="Whether to revoke your tokens too.")


class UserAnswer(Wire):
    """A user."""

    model_config = ConfigDict(
        json_schema_extra=example(
            id="5f0c",
            name="ada",
            display_name="Ada Lovelace",
            role="analyst",
            active=True,
            has_password=True,
            created_at="2026-01-01T09:00:00Z",
            version=1,
        )
    )

    id: str
    name: str
    display_name: str
    role: RoleName
    active: bool
    has_password: bool
    created_at: datetime | None
    version: int


class TokenRequest(Wire):
    """A new token for a program."""

    model_config = ConfigDict(json_schema_extra=example(name="nightly run", scopes=["read", "write"], days=30))

    name: Name
    scopes: tuple[Scope, ...] = Field(min_length=1, max_length=3)
    days: int = Field(default=30, ge=1, le=366, description="Days until the token expires.")


class TokenAnswer(Wire):
    """An API token; its secret is shown only on creation."""

    model_config = ConfigDict(
        json_schema_extra=example(
            id="11aa",
            name="nightly run",
            scopes=["read", "write"],
            created_at="2026-01-01T09:00:00Z",
            expires_at="2026-01-31T09:00:00Z",
            last_used_at=None,
            revoked=False,
            secret=None,
        )
    )

    id: str
    name: str
    scopes: tuple[Scope, ...]
    created_at: datetime | None
    expires_at: datetime | None
    last_used_at: datetime | None = None
    revoked: bool = False
    secret: str | None = Field(default=None, description="Shown only once.")


class MemberAnswer(Wire):
    """A member of a project."""

    model_config = ConfigDict(
        json_schema_extra=example(name="ada", display_name="Ada", role="analyst", added_at="2026-01-01T09:00:00Z")
    )

    name: str
    display_name: str
    role: RoleName
    added_at: datetime | None


class OverviewAnswer(Wire):
    """A project as administrators see it: owner and last use, nothing about the data."""

    model_config = ConfigDict(
        json_schema_extra=example(
            id="5f0c",
            name="Survey",
            state="ready",
            created_by="ada",
            created_at="2026-01-01T09:00:00Z",
            used_at="2026-01-01T09:00:00Z",
            members=2,
        )
    )

    id: str
    name: str
    state: str
    created_by: str
    created_at: datetime | None
    used_at: datetime | None
    members: int


class EntryAnswer(Wire):
    """An entry of the audit log."""

    model_config = ConfigDict(
        json_schema_extra=example(
            number=7,
            at="2026-01-01T09:00:00Z",
            actor="ada",
            action="release.request",
            project_id="5f0c",
            subject="77aa",
            detail={"masking": "5f0c1b"},
            previous="0" * 64,
            hash="1" * 64,
        )
    )

    number: int
    at: datetime | None
    actor: str
    action: str
    project_id: str
    subject: str
    detail: dict[str, Any]
    previous: str
    hash: str


class VerdictAnswer(Wire):
    """Result of verifying the audit log, and its end, to be kept elsewhere as an anchor."""

    model_config = ConfigDict(
        json_schema_extra=example(entries=7, ok=True, number=7, hash="1" * 64, first_broken=None, problem="")
    )

    entries: int
    ok: bool
    number: int = Field(description="Number of the last intact entry.")
    hash: str
    first_broken: int | None = None
    problem: str = ""
