"""One's own tokens, for programs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from sqlalchemy import Row, select

from safeswap.service import auditlog, tables, tokens
from safeswap.service.callers import Caller
from safeswap.service.paging import Page, Paged, page_of
from safeswap.service.problems import NotFound
from safeswap.service.roles import allow
from safeswap.service.schemas.common import moment
from safeswap.service.schemas.people import TokenAnswer, TokenRequest
from safeswap.service.state import service_of

router = APIRouter(prefix="/tokens", tags=["session"])

Self = Annotated[Caller, Depends(allow("self", once=False))]  # the answer holds a secret: it is not kept


@router.get("")
def list_tokens(request: Request, user: Self, paging: Paged) -> Page[TokenAnswer]:
    """One's own tokens, newest first, without their secrets."""
    mine = select(tables.tokens).where(tables.tokens.c.user_id == user.id)
    order = (tables.tokens.c.created_at, tables.tokens.c.id)
    with service_of(request).database.read() as connection:
        return page_of(connection, mine, order=order, paging=paging, make=_shown)


@router.post("", status_code=201)
def make_token(request: Request, user: Self, body: TokenRequest) -> TokenAnswer:
    """A new token. Its secret is in this answer and nowhere else."""
    with service_of(request).database.write() as connection:
        token_id, secret = tokens.make(connection, user_id=user.id, name=body.name, scopes=body.scopes, days=body.days)
        auditlog.record(connection, user.name, "token.make", "", token_id, {"scopes": list(body.scopes)})
        row = connection.execute(select(tables.tokens).where(tables.tokens.c.id == token_id)).one()
    return _shown(row).model_copy(update={"secret": secret})


@router.delete("/{token_id}", status_code=204)
def revoke_token(request: Request, user: Self, token_id: Annotated[str, Path(max_length=64)]) -> None:
    """End a token of one's own."""
    with service_of(request).database.write() as connection:
        if not tokens.revoke(connection, token_id=token_id, user_id=user.id):
            raise NotFound("there is no such token", hint="see GET /tokens")
        auditlog.record(connection, user.name, "token.revoke", "", token_id)


def _shown(row: Row[Any]) -> TokenAnswer:
    return TokenAnswer(
        id=row.id,
        name=row.name,
        scopes=tuple(row.scopes),
        created_at=moment(row.created_at),
        expires_at=moment(row.expires_at),
        last_used_at=moment(row.last_used_at),
        revoked=row.revoked_at is not None,
    )
