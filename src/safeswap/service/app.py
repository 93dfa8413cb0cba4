"""The ASGI application: middleware, routes and error handlers; the OpenAPI contract, and a page that shows it offline.

::

    request → headers → peer → host → log → body limit → plain JSON → not modified → stored replies → route
                                                                                 permission, then the work ┘
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import resources
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts

from safeswap.errors import InternalError
from safeswap.service import routes
from safeswap.service.http import problems, wire
from safeswap.service.http.headers import (
    BodyLimit,
    HostCheck,
    PlainJson,
    ProxyOnly,
    SecurityHeaders,
    Streamed,
    allowed_hosts,
)
from safeswap.service.http.problems import MEDIA_TYPE, Problem, RequestLog
from safeswap.service.http.wire import NotModified
from safeswap.service.keeping.store import free_projects
from safeswap.service.people.roles import permission_of
from safeswap.service.people.sessions import StartTokens
from safeswap.service.settings import Settings
from safeswap.service.state import open_service

CONTRACT = "/api/openapi.json"
PAGE = "/api/docs"

_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><title>safeswap: the service</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/api/docs/swagger-ui.css">
<link rel="icon" href="data:,">
</head>
<body>
<div id="contract"></div>
<script src="/api/docs/swagger-ui-bundle.js"></script>
<script src="/api/docs/start.js"></script>
</body>
</html>
"""

_START = f"""const withToken = async (request) => {{
  if (request.method === "GET") return request;
  const session = await fetch("/api/v1/session");
  if (session.ok) request.headers["X-CSRF-Token"] = (await session.json()).csrf_token;
  return request;
}};
SwaggerUIBundle({{
  url: "{CONTRACT}", dom_id: "#contract", deepLinking: true, filter: true, validatorUrl: null, tryItOutEnabled: false,
  requestInterceptor: withToken,
}});
"""

# Swagger UI sets inline styles; scripts come from files only.
_PAGE_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'"
)


def install_contract(app: FastAPI, *, pages: bool = True) -> None:
    """Install the contract and its page; refuse routes that declare no permission."""
    _refuse_undeclared(app)
    app.openapi = lambda: _build_contract(app)  # type: ignore[method-assign]
    if not pages:
        return
    app.add_api_route(PAGE, _serve_page, include_in_schema=False)
    app.add_api_route(f"{PAGE}/start.js", _serve_start, include_in_schema=False)
    for name, media_type in (("swagger-ui-bundle.js", "text/javascript"), ("swagger-ui.css", "text/css")):
        app.add_api_route(f"{PAGE}/{name}", _resource(name, media_type), include_in_schema=False, name=name)


def routes_of(app: FastAPI) -> list[RouteContext]:
    """Return the routes of the contract, with their full paths."""
    found = (each for each in iter_route_contexts(app.routes) if isinstance(each.original_route, APIRoute))
    return [each for each in found if each.include_in_schema]


def _refuse_undeclared(app: FastAPI) -> None:
    for route in routes_of(app):
        if permission_of(route) is None:
            raise InternalError(
                f"the route {route.path} does not declare who may use it",
                code="undeclared-route",
                hint="give it one dependency of allow(...) or project(...)",
            )


def _build_contract(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
        )
        _add_problems(found)
        _add_permissions(found, app)
        app.openapi_schema = found
    return app.openapi_schema


def _add_problems(contract: dict[str, Any]) -> None:
    """Declare a problem document as the error response of every operation."""
    schemas = contract.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    refusal = {
        "description": "The request failed",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for operation in _operations(contract):
        operation["responses"].pop("422", None)
        for status in ("4XX", "5XX"):
            operation["responses"][status] = refusal


def _add_permissions(contract: dict[str, Any], app: FastAPI) -> None:
    contract["components"]["securitySchemes"] = {
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": "safeswap_session",
            "description": "Name, followed by `_` and eight digits of the instance; prefixed with `__Host-` under TLS.",
        },
        "token": {"type": "http", "scheme": "bearer"},
    }
    for route in routes_of(app):
        for method in route.methods or ():
            operation = contract["paths"][route.path_format][method.lower()]
            operation["x-permission"] = permission_of(route)
            if operation["x-permission"] != "public":
                operation["security"] = [{"session": []}, {"token": []}]


def _operations(contract: dict[str, Any]) -> list[dict[str, Any]]:
    verbs = {"get", "put", "post", "patch", "delete"}
    return [operation for path in contract["paths"].values() for verb, operation in path.items() if verb in verbs]


def _serve_page() -> Response:
    return Response(_HTML, media_type="text/html", headers={"Content-Security-Policy": _PAGE_POLICY})


def _serve_start() -> Response:
    return Response(_START, media_type="text/javascript")


def _resource(name: str, media_type: str) -> Callable[[], Response]:
    def serve() -> Response:
        content = resources.files("fastapi_swagger.resources").joinpath(name).read_bytes()
        return Response(content, media_type=media_type, headers={"Cache-Control": "private, max-age=86400"})

    return serve


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
        openapi_url=CONTRACT if settings.shows_api_pages else None,
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
    app.include_router(routes.logs.health_router)  # at the root, for monitoring
    problems.install_handlers(app)
    app.add_exception_handler(wire.StoredReply, wire.replay)
    install_contract(app, pages=settings.shows_api_pages)
    _add_middleware(app, settings)
    return app


def _api_routers() -> tuple[APIRouter, ...]:
    """Return the routers below ``/api/v1``, in the order of the contract."""
    return (
        routes.session.router,
        routes.session.provider_router,
        routes.session.users_router,
        routes.session.tokens_router,
        routes.projects.members_router,
        routes.library.router,
        routes.settings.policy_router,
        routes.projects.router,
        routes.data.router,
        routes.settings.router,
        routes.households.router,
        routes.exchange.router,
        routes.jobs.router,
        routes.maskings.router,
        routes.studies.router,
        routes.attacks.router,
        routes.risk_views.plot_router,
        routes.argus.router,
        routes.risk_views.router,
        routes.safe_tables.router,
        routes.reports.scripts_router,
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
    app.add_middleware(wire.StoreReplies)
    app.add_middleware(NotModified)
    app.add_middleware(PlainJson, streamed=_streamed_routes(app))
    app.add_middleware(BodyLimit, streamed=_streamed_routes(app), upload_bytes=settings.limits.upload_bytes)
    app.add_middleware(RequestLog, paths={route.endpoint: route.path for route in routes_of(app)})
    app.add_middleware(HostCheck, hosts=allowed_hosts(settings))
    app.add_middleware(ProxyOnly, settings=settings)
    app.add_middleware(SecurityHeaders, settings=settings)


def _streamed_routes(app: FastAPI) -> tuple[Streamed, ...]:
    """Return the routes marked ``openapi_extra={"x-streamed": True}``, which read ``request.stream()`` themselves."""
    return tuple(
        Streamed(method=method, path=route.path_regex)
        for route in routes_of(app)
        if (route.openapi_extra or {}).get("x-streamed")
        for method in route.methods or ()
    )
