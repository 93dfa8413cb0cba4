"""The reports of a masking and of a release, each for its readers.

The facts of a masking are stored with its result, those of a release are the same with its decision, its checks and its
public part. What a reader may not know is not in the value that the page is made from; and who may ask is decided by
route: the public report is for all who may read, the members' and the chair's for who may decide, the analyst's and the
audit template for who may work on the file.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response

from safeswap.reports.facts import AttackFacts, Audience, CheckFacts, DecisionFacts, Facts
from safeswap.reports.public import PublicPage
from safeswap.service.http.headers import REPORT_POLICY
from safeswap.service.http.problems import NotFound
from safeswap.service.keeping import ledger
from safeswap.service.people.roles import ProjectAccess, Role, project
from safeswap.service.routes.jobs import ResultId, find_result
from safeswap.service.routes.maskings import FACTS
from safeswap.service.routes.releases import ReleaseId, find_release
from safeswap.service.routes.releases.four_eyes import bundle_folder, told_override
from safeswap.service.routes.releases.task import PUBLIC
from safeswap.service.routes.settings import project_of
from safeswap.workflow.reporting import compare_with_limits

router = APIRouter(tags=["reports"])

PERMISSIONS: dict[Audience, str] = {
    "analyst": "work",
    "chair": "decide",
    "members": "decide",
    "five-safes": "work",
    "public": "read",
}
"""Who may see which report."""

Form = Annotated[Literal["html", "json"], Query(alias="format", description="The page, or the facts behind it.")]


def _offer(audience: Audience, permission: str) -> None:
    """Add the two routes of a report: of a masking, and of a release."""
    access_type = Annotated[ProjectAccess, Depends(project(permission, once=False))]
    name = audience.replace("-", "_")

    def of_masking(access: ProjectAccess, result_id: ResultId, form: Form = "html") -> Response:
        return _answer(_masking_facts(access, result_id), audience, form)

    def of_release(access: ProjectAccess, release_id: ReleaseId, form: Form = "html") -> Response:
        return _answer(_release_facts(access, release_id), audience, form)

    for made, place in ((of_masking, "maskings/{result_id}"), (of_release, "releases/{release_id}")):
        made.__annotations__["access"] = access_type
        kind = place.partition("s/")[0]
        router.get(
            f"/projects/{{project_id}}/{place}/reports/{audience}",
            name=f"get_{kind}_{name}_report",
            description=f"Get the {audience} report of a {kind}, or the facts that it is made from.",
            response_class=Response,
            responses={200: {"content": {"text/html": {}, "application/json": {}}, "description": "The report"}},
        )(made)


def _answer(facts: Facts, audience: Audience, form: str) -> Response:
    if form == "json":
        return Response(facts.dump(audience), media_type="application/json")
    headers = {"Content-Security-Policy": REPORT_POLICY, "X-Frame-Options": "SAMEORIGIN"}
    return Response(facts.page(audience), media_type="text/html; charset=utf-8", headers=headers)


def _masking_facts(access: ProjectAccess, result_id: str) -> Facts:
    """Read the facts that were stored with a masking."""
    row = find_result(access, result_id, "masking", figures=False)
    path = access.service.store.result(access.id, row.id) / FACTS
    if not path.is_file():
        raise NotFound("this masking was made before there were such reports", hint="mask the data again")
    facts = Facts.parse(path.read_bytes())
    figures, unmet = compare_with_limits(facts.figures, project_of(access).release.requirements)
    decision = facts.decision.model_copy(update={"obstacles": (*facts.decision.obstacles, *unmet)})
    title = facts.title or f"Masking of {access.row.name}"
    return facts.replace(title=title, figures=tuple(figures), decision=decision)


def _release_facts(access: ProjectAccess, release_id: str) -> Facts:
    """Return the facts of the masking that is released, with its checks, its decision and its public part."""
    row = find_release(access, release_id)
    path = bundle_folder(access, row).parent / PUBLIC
    if not path.is_file():
        raise NotFound("this release was made before there were such reports", hint="request the release again")
    facts, public = _masking_facts(access, row.masking_id), PublicPage.model_validate_json(path.read_bytes())
    released = {each.name for each in public.columns}
    checks = row.checks or {}
    with access.service.database.read() as connection:
        mine = ledger.memberships(connection, access.user.id)
    told = [each["sentence"] for each in ledger.visible_findings(access.user, mine, row)]
    answer = ledger.sentence(access.user, mine, row)
    return facts.replace(
        title=row.terms.get("title") or facts.title,
        date=row.terms.get("date", ""),
        changes=tuple(c.model_copy(update={"released": c.column in released}) for c in facts.changes),
        checks=tuple(CheckFacts(**each) for each in checks.get("verified", ())),
        attacks=tuple(map(AttackFacts.of, checks.get("attacks", ()))),
        override=told_override(row),
        remarks=tuple(checks.get("remarks", ())),
        ledger=tuple(filter(None, (answer, *told))),
        released_before=bool(ledger.list_alarms(row)),
        decision=_decision(row, facts.decision.obstacles, decides=access.user.role == Role.OFFICER),
        public=public,
    )


def _decision(row: Any, obstacles: tuple[str, ...], *, decides: bool) -> DecisionFacts:
    def moment(seconds: float | None) -> str:
        return "" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"

    return DecisionFacts(
        state=row.state if row.state in ("requested", "approved", "rejected") else "open",
        asked_by=row.asked_by,
        asked_at=moment(row.requested_at),
        decided_by=row.decided_by_name or "",
        decided_at=moment(row.decided_at),
        # The reason of an approval would reveal that there was an alarm.
        reason=(row.reason or "") if decides or row.state != "approved" else "",
        obstacles=obstacles,
    )


for _audience, _permission in PERMISSIONS.items():
    _offer(_audience, _permission)
