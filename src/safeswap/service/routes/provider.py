"""Log-in through the agency's identity provider: there and back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from safeswap.service import oidc
from safeswap.service.problems import NotFound, NotLoggedIn
from safeswap.service.roles import allow
from safeswap.service.routes.session import enter, known_person
from safeswap.service.state import Service, service_of

router = APIRouter(prefix="/session/provider", tags=["session"])

Everybody = Annotated[None, Depends(allow("public"))]

# A redirect would be followed without the new cookie, which is not sent on the way from another site.
_HOME = '<!doctype html><html lang="en"><meta http-equiv="refresh" content="0;url=/"><title>safeswap</title></html>\n'


@router.get("", status_code=303, response_class=Response)
def leave(_: Everybody, request: Request) -> Response:
    """To the identity provider."""
    service = service_of(request)
    scheme = "https" if service.settings.secure_cookies else "http"
    redirect_uri = f"{scheme}://{request.headers['host']}{request.url.path}/return"
    address, departure = _provider(service).departure(redirect_uri=redirect_uri)
    response = Response(status_code=303, headers={"Location": address})
    response.set_cookie(
        oidc.COOKIE,
        departure.sealed(service.vault),
        max_age=oidc.MOST_SECONDS,
        path="/api/v1/session/provider",
        httponly=True,
        samesite="lax",
        secure=service.settings.secure_cookies,
    )
    return response


@router.get("/return", response_class=Response, responses={200: {"content": {"text/html": {}}}})
def come_back(
    _: Everybody,
    request: Request,
    code: Annotated[str, Query(max_length=4000)] = "",
    state: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Back from the identity provider with its proof."""
    service = service_of(request)
    provider = _provider(service)
    departure = oidc.opened(service.vault, request.cookies.get(oidc.COOKIE, ""))
    if not code:
        raise NotLoggedIn("the provider did not let her in", code="provider")
    name = provider.arrival(departure, code=code, state=state)
    response = Response(_HOME, media_type="text/html")
    enter(service, request, response, known_person(service, name))
    response.delete_cookie(oidc.COOKIE, path="/api/v1/session/provider")
    return response


def _provider(service: Service) -> oidc.Provider:
    if service.settings.oidc is None:
        raise NotFound("log-in through a provider is not set up", code="no-provider")
    return oidc.Provider(service.settings.oidc)
