"""The OpenAPI contract, and a page that shows it offline."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts

from safeswap.errors import InternalError
from safeswap.service.http.problems import MEDIA_TYPE, Problem
from safeswap.service.people.roles import permission_of

ADDRESS = "/api/openapi.json"
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
  url: "{ADDRESS}", dom_id: "#contract", deepLinking: true, filter: true, validatorUrl: null, tryItOutEnabled: false,
  requestInterceptor: withToken,
}});
"""

# Swagger UI sets inline styles; scripts come from files only.
_PAGE_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'"
)


def install(app: FastAPI, *, pages: bool = True) -> None:
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
