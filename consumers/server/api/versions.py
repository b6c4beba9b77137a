"""``/v1/models/{model_id}/versions``: a page of them, or each as it is published."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel

from lethe.consumers.contract.events import Version
from lethe.consumers.server.api.bodies import JSON
from lethe.consumers.server.api.events import EVENT_STREAM, PING, event, stream
from lethe.consumers.server.api.models import PAGE, Limit
from lethe.consumers.server.feeds import Entry
from lethe.consumers.server.guard import CallerOf, check_may_use
from lethe.consumers.server.paths import PathId
from lethe.consumers.server.problems import responses, unknown_model
from lethe.consumers.server.services import Services, ServicesOf

router = APIRouter(tags=["models"])

MOST = 2**53 - 1
"""Largest number of a version that JSON carries exactly."""

_NUMBER = r"^(-1|\d{1,15})$"


class VersionsPage(BaseModel):
    """A page of versions, ascending; ``next`` is the ``after`` of the next page, or null."""

    versions: tuple[Version, ...]
    next: int | None


@router.get(
    "/v1/models/{model_id}/versions",
    summary="Read a model's versions, or follow them",
    response_model=VersionsPage,
    responses={
        200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}},
        **responses(404, 503),
    },
)
async def read_versions(
    model_id: PathId,
    services: ServicesOf,
    caller: CallerOf,
    after: Annotated[int | None, Query(ge=-1, le=MOST, description="Begin above it.")] = None,
    limit: Limit = PAGE,
    accept: Annotated[str, Header(include_in_schema=False)] = JSON,
    last_event_id: Annotated[str | None, Header(pattern=_NUMBER)] = None,
) -> Response:
    """Read versions in the order of their numbers; or, with ``Accept: text/event-stream``, live.

    A stream begins with the newest version, or above ``Last-Event-ID`` (or ``after``), and sends
    each new one as an event whose id is its number. It ends after an hour at the latest: connect
    again, as browsers do by themselves.
    """
    check_may_use(caller, model_id)
    if not await run_in_threadpool(services.models.look_up, model_id):
        raise unknown_model()
    if EVENT_STREAM in accept:
        begin = after if last_event_id is None else int(last_event_id)
        return stream(services.bell, caller, _events(services, model_id, begin))
    above = -1 if after is None else after
    entries = await run_in_threadpool(services.published.versions, model_id, above, limit + 1)
    return _page(entries, limit)


def _page(entries: Sequence[Entry], limit: int) -> Response:
    page = entries[:limit]
    following = str(page[-1][0]) if len(entries) > limit else "null"
    values = b",".join(value for _, value in page)
    content = b'{"versions":[' + values + b'],"next":' + following.encode() + b"}"
    return Response(content, media_type=JSON)


async def _events(services: Services, model_id: str, after: int | None) -> AsyncIterator[bytes]:
    async for entries in services.feeds.listen(model_id, after):
        yield b"".join(event("version", number, value) for number, value in entries) or PING
