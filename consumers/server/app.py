"""The application: routers, errors and the OpenAPI document on one FastAPI."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

from lethe.consumers.server import problems
from lethe.consumers.server.api import deletions, erasures, models, status, versions
from lethe.consumers.server.guard import Access, Guard
from lethe.consumers.server.opendsr.routes import router as opendsr_router
from lethe.consumers.server.paths import RawPath
from lethe.consumers.server.services import Services

_DESCRIPTION = "Deletion requests in, receipts and checked model versions out."


def create_app(services: Services, access: Access | None = None) -> FastAPI:
    """Return the application that answers with ``services``; by default to anybody.

    It has no page of documentation of its own: FastAPI's loads its scripts from elsewhere.
    """
    app = _routed()
    app.state.services = services
    app.add_middleware(RawPath)
    app.add_middleware(Guard, access=access or Access())
    return app


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of all routes, those of OpenDSR too."""
    app = _routed()
    app.include_router(opendsr_router)
    return app.openapi()


def _routed() -> FastAPI:
    app = FastAPI(
        title="Lethe",
        version=version("lethe-engine"),
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    problems.install(app)
    app.include_router(deletions.requests)  # first: it is looked for most often
    for routes in (status, deletions, erasures, models, versions):
        app.include_router(routes.router)
    _complete_schema(app)
    return app


def _complete_schema(app: FastAPI) -> None:
    """Add what FastAPI cannot know to the OpenAPI document."""
    usual = app.openapi

    def openapi() -> dict[str, Any]:
        document = usual()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.setdefault("Problem", dict(problems.SCHEMA))
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)  # an invalid request is a problem, too, and its status 400
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
                operation["responses"] |= problems.responses("default")
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's own documentation does it
