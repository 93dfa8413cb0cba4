"""What an administrator decides: where things lie, who may connect, and how much any one file may cost."""

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
    """What one file, one job and one person may take."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    upload_bytes: int = Field(default=20 * 2**30, gt=0, description="Largest file that may be uploaded.")
    project_bytes: int = Field(default=200 * 2**30, gt=0, description="All that is kept for one project.")
    reserve_bytes: int = Field(default=2**30, ge=0, description="What must stay free on the disk of the store.")
    parse_memory_bytes: int = Field(default=8 * 2**30, gt=0, description="Memory of the process that reads a file.")
    parse_seconds: int = Field(default=1800, gt=0, description="Processor time of the process that reads a file.")
    job_memory_bytes: int = Field(default=16 * 2**30, gt=0, description="Memory of the process that does a job.")
    job_seconds: int = Field(default=24 * 3600, gt=0, description="Processor time of the process that does a job.")
    cached_bytes: int = Field(default=2 * 2**30, ge=0, description="Coded data the server keeps in memory.")
    questions: int = Field(default=4, gt=0, le=64, description="Questions that the server answers at the same time.")
    running_jobs: int = Field(
        default=0, ge=0, description="Jobs of one person that run at the same time; 0: one fewer than `workers`."
    )
    question_work: int = Field(default=10**9, gt=0, description="Records times tables that one of them may count.")
    candidates: int = Field(default=100_000, gt=0, description="Most candidates of one study.")
    page_size: int = Field(default=200, gt=0, le=1000, description="Most entries on one page of a list.")


class OpenIdConnect(BaseModel):
    """Log-in through the agency's own identity provider."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str
    client_id: str
    client_secret_file: Path
    name_claim: str = "preferred_username"


class TrustedProxy(BaseModel):
    """Log-in done by a proxy in front of the service, which tells the name in a header."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    header: str = "X-Remote-User"
    addresses: tuple[str, ...] = Field(default=("127.0.0.1",), min_length=1)


class Settings(BaseModel):
    """All settings of one service; a file of TOML, then the environment, then the command line.

    >>> Settings(store="/srv/safeswap", master_key_file="/etc/safeswap/master.key").host
    '127.0.0.1'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: Path = Field(description="Directory for projects; only the service may enter it.")
    master_key_file: Path = Field(description="Key for confidential records; must lie outside the store.")
    database_url: str = Field(default="", description="SQLAlchemy address; empty: SQLite in the store.")
    host: str = "127.0.0.1"
    port: int = Field(default=8765, ge=0, le=65535)
    hosts: tuple[str, ...] = Field(default=(), description="Names under which browsers reach the service.")
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    workers: int = Field(default=2, ge=0, le=64, description="Worker processes started beside the server.")
    folders: tuple[Path, ...] = Field(default=(), description="Folders on the server from which files may be taken.")
    tolerance: int = Field(default=3, ge=1, description="Smallest count that is shown: default and floor.")
    analysts_export: bool = Field(default=False, description="Whether analysts may export confidential data.")
    metrics: bool | None = Field(default=None, description="Whether everybody sees /metrics; unset: on loopback only.")
    api_pages: bool | None = Field(default=None, description="Whether everybody sees /api/docs; unset: the same.")
    ledger_alarm: float = Field(
        default=0.5, gt=0, le=1, description="Share of records released before from which a release needs a reason."
    )
    retention_days: int = Field(default=0, ge=0, description="Days after which an idle project is deleted; 0: never.")
    session_minutes: int = Field(default=30, gt=0, description="A log-in ends after this long without use.")
    session_hours: int = Field(default=12, gt=0, description="A log-in ends after this long in any case.")
    lease_seconds: float = Field(default=30.0, gt=0, description="A worker that is silent this long has lost its job.")
    single_user: bool = Field(default=False, description="One person on her own machine: no account, no second person.")
    limits: Limits = Limits()
    oidc: OpenIdConnect | None = None
    trusted_proxy: TrustedProxy | None = None
    log_format: Literal["json", "text"] = "json"

    @field_validator("store", "master_key_file", "tls_certificate", "tls_key", mode="after")
    @classmethod
    def _whole_path(cls, path: Path | None) -> Path | None:
        # A worker's process has a directory of its own: there a relative path would be another file.
        return None if path is None else path.absolute()

    @field_validator("folders", mode="after")
    @classmethod
    def _whole_paths(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(path.absolute() for path in paths)

    @field_validator("database_url", mode="after")
    @classmethod
    def _postgresql(cls, address: str) -> str:
        # A second place for SQLite would be one that backups do not know of.
        if address and not address.startswith(("postgresql:", "postgresql+", "postgres:")):
            raise ValueError("an address of PostgreSQL; SQLite lies in the store, and needs none")
        return address

    @model_validator(mode="after")
    def _coherent(self) -> Settings:
        if _real(self.master_key_file).is_relative_to(_real(self.store)):
            raise ValueError("the master key must lie outside the store: a copy of the store would open itself")
        store, key = _real(self.store), _real(self.master_key_file)
        for folder in map(_real, self.folders):
            if store.is_relative_to(folder) or key.is_relative_to(folder) or folder.is_relative_to(store):
                raise ValueError("a folder from which files may be taken must not hold the store or the master key")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together")
        if not self.loopback and self.tls_certificate is None and self.trusted_proxy is None:
            raise ValueError("an address other than loopback needs a TLS certificate, or a trusted proxy that has one")
        if self.host in {"0.0.0.0", "::"} and not self.hosts:  # noqa: S104  (asked about, not bound to)
            raise ValueError("a service that listens on every address has to know its names: hosts")
        if self.single_user and not self.loopback:
            raise ValueError("without accounts the service listens on loopback only")
        return self

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine can connect."""
        if self.host == "localhost":
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False

    @property
    def shows_metrics(self) -> bool:
        """Whether ``/metrics`` answers, to everybody who can connect."""
        return self._alone if self.metrics is None else self.metrics

    @property
    def shows_api_pages(self) -> bool:
        """Whether the contract and its page are there, for everybody who can connect."""
        return self._alone if self.api_pages is None else self.api_pages

    @property
    def _alone(self) -> bool:
        return self.loopback and not self.hosts and self.trusted_proxy is None

    @property
    def running_jobs_each(self) -> int:
        """How many jobs of one person run at the same time: a worker is left for the others where there are several."""
        if self.limits.running_jobs:
            return self.limits.running_jobs
        if self.single_user or not self.workers:  # alone, or workers run elsewhere and nobody knows how many
            return sys.maxsize
        return max(1, self.workers - 1)

    @property
    def secure_cookies(self) -> bool:
        """Whether a browser reaches the service over TLS, so that cookies may insist on it."""
        return self.tls_certificate is not None or self.trusted_proxy is not None

    @property
    def cookie(self) -> str:
        """The name of the session cookie: a browser sends the cookies of a host to every port of it.

        >>> Settings(store="/srv/s", master_key_file="/etc/k").cookie
        'safeswap_session_75347b82'
        """
        instance = hashlib.sha256(str(_real(self.store)).encode()).hexdigest()[:8]
        return f"{'__Host-' if self.secure_cookies else ''}safeswap_session_{instance}"

    @property
    def device_cookie(self) -> str:
        """The name of the cookie by which a browser is known in which somebody has logged in before."""
        return self.cookie.replace("session", "device")

    @property
    def database(self) -> str:
        """The address of the database."""
        return self.database_url or f"sqlite:///{self.store / 'safeswap.db'}"


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def read_settings(path: Path | None = None, *, environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """The settings of a TOML file, overridden by ``SAFESWAP_…`` variables, overridden by what is given here.

    >>> read_settings(environment={"SAFESWAP_STORE": "/srv/s", "SAFESWAP_MASTER_KEY_FILE": "/etc/k"}, port=9000).port
    9000
    """
    found = _from_file(path) if path is not None else {}
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


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(
            f"the settings file {path.name} cannot be read: {error.strerror}", code="bad-settings"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"the settings file {path.name} is not TOML: {error}", code="bad-settings") from None
