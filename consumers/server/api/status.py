"""``/healthz`` and ``/readyz``: for what starts, watches and balances servers; no key is needed."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from lethe.consumers.server.services import ServicesOf
from lethe.engine.store.server.connection import reachable

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
async def live() -> Response:
    """Answer, which is all that this process alone can do."""
    return Response("ok\n", media_type="text/plain")


@router.get("/readyz")
def ready(services: ServicesOf) -> Response:
    """Answer 200 if the store and the log can be reached; else 503 with what cannot."""
    with reachable(services.store.client):
        services.store.client.ping()
    services.log.ping()
    return Response("ok\n", media_type="text/plain")
