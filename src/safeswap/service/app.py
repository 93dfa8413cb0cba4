"""The ASGI application: middleware, routes and error handlers.

::

    request → headers → peer → host → log → body limit → plain JSON → not modified → stored replies → route
                                                                                 permission, then the work ┘
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version

from fastapi import APIRouter, FastAPI
from fastapi.concurrency import run_in_threadpool

from safeswap.service import routes
from safeswap.service.http import contract, etags, handlers
from safeswap.service.http.etags import NotModified
from safeswap.service.http.handlers import RequestLog
from safeswap.service.http.headers import BodyLimit, HostCheck, PlainJson, SecurityHeaders, Streamed, allowed_hosts
from safeswap.service.http.proxy import ProxyOnly
from safeswap.service.keeping.store import free_projects
from safeswap.service.people.sessions import StartTokens
from safeswap.service.settings import Settings
from safeswap.service.state import open_service

API = "/api/v1"

DESCRIPTION = """Statistical disclosure limitation on the agency's own network.

Log in with `POST /session` or send a token (`Authorization: Bearer ssw_…`). Long operations are jobs: the response is
202 with the job's address. Lists are paginated. Updates to shared resources require `If-Match`. A `POST` with an
`Idempotency-Key` is executed once. Every error is a problem document."""


def create_app(settings: Settings, *, start_tokens: StartTokens | None = None) -> FastAPI:
    """Create the application. ``start_tokens`` admit the only user of single-user mode."""
    app = FastAPI(
        title="safeswap",
        version=version("safeswap"),
        description=DESCRIPTION,
        openapi_url=contract.ADDRESS if settings.shows_api_pages else None,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        telemetry={
            "auto_configure": False,
            "tracing": False,
            "metrics": False,
            "logs": False,
        },  # it would record bodies
        lifespan=_lifespan(settings, start_tokens),
    )
    for router in _api_routers():
        app.include_router(router, prefix=API)
    app.include_router(routes.health.router)  # at the root, for monitoring
    handlers.install(app)
    app.add_exception_handler(etags.StoredReply, etags.replay)
    contract.install(app, pages=settings.shows_api_pages)
    _add_middleware(app, settings)
    return app


def _api_routers() -> tuple[APIRouter, ...]:
    """Return the routers below ``/api/v1``, in the order of the contract."""
    return (
        routes.session.router,
        routes.session.provider_router,
        routes.users.router,
        routes.users.tokens_router,
        routes.projects.members_router,
        routes.library.router,
        routes.policy.router,
        routes.projects.router,
        routes.data.router,
        routes.settings.router,
        routes.households.router,
        routes.exchange.router,
        routes.jobs.router,
        routes.maskings.router,
        routes.studies.router,
        routes.attacks.router,
        routes.confidentiality.router,
        routes.argus.router,
        routes.risk_views.router,
        routes.safe_tables.router,
        routes.scripts.router,
        routes.logs.session_log_router,
        routes.releases.router,
        routes.reports.router,
        routes.logs.router,
    )


def _lifespan(
    settings: Settings, start_tokens: StartTokens | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = await run_in_threadpool(open_service, settings, start_tokens=start_tokens)
        await run_in_threadpool(free_projects, service.database)
        app.state.service = service
        try:
            yield
        finally:
            service.close()

    return lifespan


def _add_middleware(app: FastAPI, settings: Settings) -> None:
    """Add the middleware; the last one added sees a request first."""
    app.add_middleware(etags.StoreReplies)
    app.add_middleware(NotModified)
    app.add_middleware(PlainJson, streamed=_streamed_routes(app))
    app.add_middleware(BodyLimit, streamed=_streamed_routes(app), upload_bytes=settings.limits.upload_bytes)
    app.add_middleware(RequestLog, paths={route.endpoint: route.path for route in contract.routes_of(app)})
    app.add_middleware(HostCheck, hosts=allowed_hosts(settings))
    app.add_middleware(ProxyOnly, settings=settings)
    app.add_middleware(SecurityHeaders, settings=settings)


def _streamed_routes(app: FastAPI) -> tuple[Streamed, ...]:
    """Return the routes marked ``openapi_extra={"x-streamed": True}``, which read ``request.stream()`` themselves."""
    return tuple(
        Streamed(method=method, path=route.path_regex)
        for route in contract.routes_of(app)
        if (route.openapi_extra or {}).get("x-streamed")
        for method in route.methods or ()
    )
