"""The agency's policy on attacks: the largest advantage that each may have on a release.

One policy is in force for the whole service. Officers and administrators replace it; every version is kept, and every
change is in the audit log. Until one is stored, that of the configuration (``SAFESWAP_POLICY``) or the default holds.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field
from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from safeswap.attacks.run import POLICY, ReleasePolicy, configured_policy, parse_policy
from safeswap.service.http.etags import require_match, set_etag, version_conflict
from safeswap.service.http.problems import Unprocessable
from safeswap.service.http.wire import Wire, example
from safeswap.service.keeping import auditlog
from safeswap.service.keeping.database import Database, now
from safeswap.service.keeping.tables import policies
from safeswap.service.people.roles import Caller, Governor, allow
from safeswap.service.state import service_of

router = APIRouter(tags=["policy"])


class PolicyAnswer(Wire):
    """The policy in force."""

    model_config = example(
        name="Public-use files",
        limits={"linkage": 0.05},
        text='name = "Public-use files"\n\n[limits]\nlinkage = 0.05\n',
        source="stored",
        version=1,
        set_by="olga",
        set_at="2026-01-01T09:00:00Z",
    )

    name: str
    limits: dict[str, float] = Field(description="Largest advantage allowed, by attack; others are shown only.")
    text: str = Field(description="The policy as TOML.")
    source: Literal["stored", "configured", "default"]
    version: int = Field(description="0 until a policy is stored.")
    set_by: str = ""
    set_at: datetime | None = None


class PolicyRequest(Wire):
    """A new policy: as TOML, or its name and limits."""

    model_config = example(text='name = "Public-use files"\n[limits]\nlinkage = 0.05\n')

    text: str | None = Field(default=None, max_length=2**16)
    name: str = Field(default="", max_length=200)
    limits: dict[str, float] | None = Field(default=None, max_length=200)

    def policy(self) -> ReleasePolicy:
        """Return the policy that is stated; refused if it is invalid or stated twice."""
        if (self.text is None) == (self.limits is None):
            raise Unprocessable("state the policy as text, or by its limits", code="bad-policy")
        if self.text is not None:
            return parse_policy(self.text)
        return ReleasePolicy(name=self.name or "unnamed", limits=self.limits or {})


@router.get("/release-policy")
def get_policy(request: Request, response: Response, _: Annotated[Caller, Depends(allow("self"))]) -> PolicyAnswer:
    """Get the policy that releases are judged by."""
    found = _answer(service_of(request).database)
    set_etag(response, found.version)
    return found


@router.put("/release-policy")
def put_policy(request: Request, response: Response, caller: Governor, body: PolicyRequest) -> PolicyAnswer:
    """Replace the policy. It holds for releases that are requested from now on."""
    database = service_of(request).database
    require_match(request, _answer(database).version)
    policy = body.policy()
    try:
        with database.write() as connection:
            store_policy(connection, policy, by=caller.name)
    except IntegrityError:  # somebody else has stored this version at the same moment
        raise version_conflict() from None
    found = _answer(database)
    set_etag(response, found.version)
    return found


def store_policy(connection: Connection, policy: ReleasePolicy, *, by: str) -> int:
    """Store a policy as the one in force, and enter it in the audit log; return its number."""
    last = connection.scalar(select(policies.c.number).order_by(policies.c.number.desc()).limit(1)) or 0
    content = policy.model_dump(mode="json")
    connection.execute(insert(policies).values(number=last + 1, content=content, set_by=by, set_at=now()))
    auditlog.record(connection, by, "policy.set", subject=str(last + 1), detail=content)
    return last + 1


def policy_in_force(database: Database) -> ReleasePolicy:
    """Return the policy that a release is judged by."""
    row = _newest(database)
    return configured_policy() if row is None else ReleasePolicy(**row.content)


def _newest(database: Database) -> Any:
    with database.read() as connection:
        return connection.execute(select(policies).order_by(policies.c.number.desc()).limit(1)).one_or_none()


def _answer(database: Database) -> PolicyAnswer:
    row = _newest(database)
    policy = configured_policy() if row is None else ReleasePolicy(**row.content)
    source = "stored" if row is not None else "configured" if os.environ.get(POLICY) else "default"
    stated: dict[str, Any] = {} if row is None else {"set_by": row.set_by, "set_at": row.set_at}
    version = 0 if row is None else row.number
    return PolicyAnswer(
        name=policy.name, limits=policy.limits, text=policy.text, source=source, version=version, **stated
    )
