"""Settings of a service: locations, access and resource limits."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from safeswap.errors import SpecError

PREFIX = "SAFESWAP_"


class Limits(BaseModel):
    """Resource limits per file, job and person."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    upload_bytes: int = Field(default=20 * 2**30, gt=0, description="Largest file that may be uploaded.")
    project_bytes: int = Field(default=200 * 2**30, gt=0, description="Total storage of one project.")
    reserve_bytes: int = Field(default=2**30, ge=0, description="Disk space that must stay free in the store.")
    parse_memory_bytes: int = Field(default=8 * 2**30, gt=0, description="Memory limit for reading a file.")
    parse_seconds: int = Field(default=1800, gt=0, description="Processor time limit for reading a file.")
    job_memory_bytes: int = Field(default=16 * 2**30, gt=0, description="Memory limit of a job.")
    job_seconds: int = Field(default=24 * 3600, gt=0, description="Processor time limit of a job.")
    cached_bytes: int = Field(default=2 * 2**30, ge=0, description="Size of the server's in-memory data cache.")
    questions: int = Field(default=4, gt=0, le=64, description="Interactive queries answered concurrently.")
    running_jobs: int = Field(default=0, ge=0, description="Concurrent jobs per person; 0: one fewer than `workers`.")
    question_work: int = Field(default=10**9, gt=0, description="Maximum records × tables of one interactive query.")
    candidates: int = Field(default=100_000, gt=0, description="Maximum number of candidates of one study.")
    page_size: int = Field(default=200, gt=0, le=1000, description="Maximum number of entries on one page of a list.")


class OpenIdConnect(BaseModel):
    """Login through the agency's identity provider."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str
    client_id: str
    client_secret_file: Path
    name_claim: str = "preferred_username"


class TrustedProxy(BaseModel):
    """Login by a proxy in front of the service, which passes the user name in a header."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    header: str = "X-Remote-User"
    addresses: tuple[str, ...] = Field(default=("127.0.0.1",), min_length=1)


class Settings(BaseModel):
    """Settings of one service, from a TOML file, the environment and the command line, in increasing priority.

    >>> Settings(store="/srv/safeswap", master_key_file="/etc/safeswap/master.key").host
    '127.0.0.1'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: Path = Field(description="Directory for projects, private to the service.")
    master_key_file: Path = Field(description="Key for confidential records; must be outside the store.")
    database_url: str = Field(default="", description="SQLAlchemy URL; empty: SQLite in the store.")
    host: str = "127.0.0.1"
    port: int = Field(default=8765, ge=0, le=65535)
    hosts: tuple[str, ...] = Field(default=(), description="Host names by which browsers reach the service.")
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    workers: int = Field(default=2, ge=0, le=64, description="Worker processes started with the server.")
    folders: tuple[Path, ...] = Field(default=(), description="Server folders from which data files may be read.")
    tolerance: int = Field(default=3, ge=1, description="Smallest count shown: default and floor.")
    analysts_export: bool = Field(default=False, description="Whether analysts may export confidential data.")
    metrics: bool | None = Field(default=None, description="Serve /metrics to everyone; unset: on loopback only.")
    api_pages: bool | None = Field(default=None, description="Serve /api/docs to everyone; unset: on loopback only.")
    ledger_alarm: float = Field(
        default=0.5, gt=0, le=1, description="Share of previously released records from which a release needs a reason."
    )
    agency_ledger: Path | None = Field(
        default=None, description="Ledger file of Python and the command line, whose register is shared; unset: none."
    )
    agency_ledger_key: Path | None = Field(default=None, description="Its key; unset: beside it.")
    retention_days: int = Field(default=0, ge=0, description="Days after which an idle project is deleted; 0: never.")
    session_minutes: int = Field(default=30, gt=0, description="Idle timeout of a session.")
    session_hours: int = Field(default=12, gt=0, description="Maximum lifetime of a session.")
    lease_seconds: float = Field(default=30.0, gt=0, description="Lease of a job; renewed by the worker's heartbeat.")
    single_user: bool = Field(
        default=False, description="One person on their own machine: no accounts, no second approver."
    )
    limits: Limits = Limits()
    oidc: OpenIdConnect | None = None
    trusted_proxy: TrustedProxy | None = None
    log_format: Literal["json", "text"] = "json"

    @field_validator(
        "store", "master_key_file", "tls_certificate", "tls_key", "agency_ledger", "agency_ledger_key", mode="after"
    )
    @classmethod
    def _make_absolute(cls, path: Path | None) -> Path | None:
        # A job process runs in its own directory, where a relative path would name another file.
        return None if path is None else path.absolute()

    @field_validator("folders", mode="after")
    @classmethod
    def _make_all_absolute(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(path.absolute() for path in paths)

    @field_validator("database_url", mode="after")
    @classmethod
    def _check_database_url(cls, address: str) -> str:
        # Backups only know the SQLite file in the store.
        if address and not address.startswith(("postgresql:", "postgresql+", "postgres:")):
            raise ValueError("an address of PostgreSQL; SQLite lies in the store, and needs none")
        return address

    @model_validator(mode="after")
    def _check_consistency(self) -> Settings:
        if _resolve(self.master_key_file).is_relative_to(_resolve(self.store)):
            raise ValueError(
                "the master key must be outside the store: otherwise a copy of the store could open itself"
            )
        store, key = _resolve(self.store), _resolve(self.master_key_file)
        for folder in map(_resolve, self.folders):
            if store.is_relative_to(folder) or key.is_relative_to(folder) or folder.is_relative_to(store):
                raise ValueError("a folder from which files may be taken must not contain the store or the master key")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key must be given together")
        if not self.loopback and self.tls_certificate is None and self.trusted_proxy is None:
            raise ValueError("an address other than loopback needs a TLS certificate, or a trusted proxy that has one")
        if self.host in {"0.0.0.0", "::"} and not self.hosts:  # noqa: S104  (compared, not bound to)
            raise ValueError("a service that listens on every address must know its names: hosts")
        if self.single_user and not self.loopback:
            raise ValueError("without accounts the service listens on loopback only")
        return self

    @property
    def loopback(self) -> bool:
        """True if only programs on this machine can connect."""
        if self.host == "localhost":
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False

    @property
    def shows_metrics(self) -> bool:
        """True if ``/metrics`` is served to everyone who can connect."""
        return self._is_local_only if self.metrics is None else self.metrics

    @property
    def shows_api_pages(self) -> bool:
        """True if the API contract and its page are served to everyone who can connect."""
        return self._is_local_only if self.api_pages is None else self.api_pages

    @property
    def _is_local_only(self) -> bool:
        return self.loopback and not self.hosts and self.trusted_proxy is None

    @property
    def running_jobs_each(self) -> int:
        """Maximum concurrent jobs per person; with several workers, one is left for others."""
        if self.limits.running_jobs:
            return self.limits.running_jobs
        if self.single_user or not self.workers:  # one person, or an unknown number of workers elsewhere
            return sys.maxsize
        return max(1, self.workers - 1)

    @property
    def secure_cookies(self) -> bool:
        """True if browsers reach the service over TLS, so that cookies can require it."""
        return self.tls_certificate is not None or self.trusted_proxy is not None

    @property
    def cookie(self) -> str:
        """Name of the session cookie, distinct per instance: browsers send a host's cookies to every port.

        >>> one, other = (Settings(store=store, master_key_file="/etc/k").cookie for store in ("/srv/a", "/srv/b"))
        >>> one.startswith("safeswap_session_"), one == other
        (True, False)
        """
        instance = hashlib.sha256(str(_resolve(self.store)).encode()).hexdigest()[:8]
        return f"{'__Host-' if self.secure_cookies else ''}safeswap_session_{instance}"

    @property
    def device_cookie(self) -> str:
        """Name of the cookie that marks a browser with an earlier login."""
        return self.cookie.replace("session", "device")

    @property
    def database(self) -> str:
        """The database URL."""
        return self.database_url or f"sqlite:///{self.store / 'safeswap.db'}"


def _resolve(path: Path) -> Path:
    return Path(os.path.realpath(path))


def read_settings(path: Path | None = None, *, environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """Read settings from a TOML file, overridden by ``SAFESWAP_…`` variables, overridden by ``given``.

    >>> read_settings(environment={"SAFESWAP_STORE": "/srv/s", "SAFESWAP_MASTER_KEY_FILE": "/etc/k"}, port=9000).port
    9000
    """
    found = _read_file(path) if path is not None else {}
    variables = os.environ if environment is None else environment
    names = set(Settings.model_fields)
    for name, value in variables.items():
        field = name.removeprefix(PREFIX).lower()
        if name.startswith(PREFIX) and field in names:
            found[field] = value.split(os.pathsep) if field in {"folders", "hosts"} else value
    found.update({name: value for name, value in given.items() if value is not None})
    try:
        return Settings.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "settings"
        raise SpecError(
            f"the settings cannot be used: {where}: {first['msg']}",
            code="bad-settings",
            hint="see the page on administration",
            setting=where,
        ) from None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(
            f"the settings file {path.name} cannot be read: {error.strerror}", code="bad-settings"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"the settings file {path.name} is not TOML: {error}", code="bad-settings") from None
