"""``/v1/models/{model_id}/deletions``: requests to delete rows, and what became of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from lethe.consumers.contract import topics
from lethe.consumers.contract.cloudevents import trace_context
from lethe.consumers.contract.events import DeletionRequest
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.requests import check_own_id
from lethe.consumers.contract.tlog import MEDIA_TYPE as TLOG_PROOF
from lethe.consumers.deletions.validate import Invalid, Valid, validate_deletion
from lethe.consumers.log.base import Partition, Record
from lethe.consumers.server.api.bodies import JSON, invalid, json_object, with_identity
from lethe.consumers.server.api.direct import DirectRoute
from lethe.consumers.server.api.events import EVENT_STREAM, PING, event, stream
from lethe.consumers.server.api.sending import RETRY_SECONDS, id_is_taken, send
from lethe.consumers.server.evidence import not_acceptable, receipt_proof
from lethe.consumers.server.feeds import MAX_STREAM_SECONDS, PING_SECONDS, within
from lethe.consumers.server.guard import CallerOf, caller_of, check_may_use
from lethe.consumers.server.outcomes import Sent
from lethe.consumers.server.paths import PathId, segment
from lethe.consumers.server.problems import Problem, responses, unknown_model
from lethe.consumers.server.services import Services, ServicesOf, services_of
from lethe.engine.errors import InvalidRequest, LetheError, UnknownModel

router = APIRouter(tags=["deletions"])
requests = APIRouter(tags=["deletions"], route_class=DirectRoute)

STEP_SECONDS = 1.0
"""How often a stream looks if nothing rings: the store has a receipt before the topic has it."""

_OTHERS = (EVENT_STREAM, TLOG_PROOF)

DEFERRED_SECONDS = "30"
"""``Retry-After`` of a request that waits for a rebuild."""


def location(model_id: str, request_id: str) -> str:
    """Return where the receipt of a request is found."""
    return f"/v1/models/{segment(model_id)}/deletions/{segment(request_id)}"


def _schema() -> dict[str, Any]:
    """Return the schema of a body: the event's, but for what the path and the header can say."""
    schema = DeletionRequest.model_json_schema()
    schema.pop("required", None)
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}


@requests.post(
    "/v1/models/{model_id}/deletions",
    status_code=202,
    summary="Request a deletion",
    openapi_extra=_schema(),
    responses=responses(400, 404, 409, 413, 415, 503),
)
async def request_deletion(model_id: PathId, request: Request) -> Response:
    """Answer once the log has acknowledged the request; ``Location`` has its receipt."""
    services = await services_of(request)
    check_may_use(await caller_of(request), model_id)
    data = with_identity(await json_object(request), request, "request_id")
    if data.setdefault("model_id", model_id) != model_id:
        raise invalid("model_id in the body is not the model in the path")
    asked = _validated(data)
    models = services.models
    if not models.has(model_id) and not await run_in_threadpool(models.look_up, model_id):
        raise unknown_model()
    named = asked.request
    assert isinstance(named, DeletionRequest)  # noqa: S101 (mypy: the topic says so)
    await send(services, named, body=asked.body, trace=trace_context(request.headers))
    headers = {"Location": location(model_id, named.request_id), "Retry-After": RETRY_SECONDS}
    document = {"request_id": named.request_id, "model_id": model_id, "status": "PENDING"}
    return Response(json.dumps(document).encode(), 202, headers, JSON)


_UNSENT = Record(Partition(topics.DELETIONS, "", 0), 0, None, None)


def _validated(data: dict[str, Any]) -> Valid:
    """Return a request that the worker will not refuse for its form: its own judgement.

    A body is the data of an event and never an event: one in a body would name a model of its own,
    which nobody has looked at.
    """
    item = validate_deletion(_UNSENT, data)
    if isinstance(item, Invalid):
        raise Problem(400, item.code, item.detail)
    try:
        check_own_id(item.request.request_id)
    except InvalidRequest as error:
        raise invalid(str(error)) from None
    return item


@router.get(
    "/v1/models/{model_id}/deletions/{request_id}",
    summary="Read what became of a deletion",
    response_model=Receipt,
    responses={
        200: {"content": {kind: {"schema": {"type": "string"}} for kind in _OTHERS}},
        202: {"description": "Not decided yet: ask again after Retry-After"},
        **responses(404, 406, 409, 503),
    },
)
async def read_deletion(
    model_id: PathId,
    request_id: PathId,
    services: ServicesOf,
    caller: CallerOf,
    accept: Annotated[str, Header(include_in_schema=False)] = JSON,
) -> Response:
    """Answer with the receipt; 202 and ``Retry-After`` while the request is undecided.

    With ``Accept: text/event-stream``: an event for each step of its way, up to the final receipt.
    With ``Accept: application/x-tlog-proof``: the receipt with its place in the receipt log; 406 if
    it has none, or this server has no key to sign with.
    """
    check_may_use(caller, model_id)
    sent = services.recent.find(model_id, request_id)
    answer = await run_in_threadpool(_outcome, services, model_id, request_id, sent)
    if TLOG_PROOF in accept:
        if answer.status_code != 200:
            raise not_acceptable("it has no final receipt yet, and so no proof: ask again later")
        return await run_in_threadpool(receipt_proof, services, model_id, request_id)
    if EVENT_STREAM not in accept:
        return answer
    return stream(services.bell, caller, _steps(services, model_id, request_id, sent))


async def _steps(
    services: Services, model_id: str, request_id: str, sent: Sent | None
) -> AsyncIterator[bytes]:
    """Yield an event whenever the outcome changes: PENDING, DEFERRED, and what is final."""
    now = asyncio.get_running_loop().time
    end, shown, number, spoke_at = now() + MAX_STREAM_SECONDS, b"", 0, now()
    while now() < end and not services.bell.stopped:
        with services.bell.rung() as rung:
            try:
                answer = await run_in_threadpool(_outcome, services, model_id, request_id, sent)
            except (Problem, LetheError):
                return  # the client comes back, and is told
            value = bytes(answer.body)
            if value != shown:
                yield event("final" if answer.status_code == 200 else "waiting", number, value)
                shown, number, spoke_at = value, number + 1, now()
            elif now() - spoke_at > PING_SECONDS:
                yield PING
                spoke_at = now()
            if answer.status_code == 200:
                return
            await within(rung, STEP_SECONDS)


def _outcome(services: Services, model_id: str, request_id: str, sent: Sent | None) -> Response:
    receipt = _receipt(services, model_id, request_id, sent)
    if receipt is None or receipt.code == UnknownModel.code:
        # That code answers one record alone: sent again, the request gets another receipt.
        waiting = services.outcomes.may_be_waiting(topics.DELETIONS, model_id, sent)
        receipt = None if waiting else _receipt(services, model_id, request_id, sent)
        if receipt is None and not waiting:
            raise Problem(
                404,
                "UNKNOWN_REQUEST",
                "no such request: it was never sent, or it was refused as not authenticated"
                + services.outcomes.losses(topics.DELETIONS),
            )
    if receipt is None:
        document = {"request_id": request_id, "model_id": model_id, "status": "PENDING"}
        content = json.dumps(document).encode()
        return Response(content, 202, {"Retry-After": RETRY_SECONDS}, JSON)
    if not receipt.final:
        return Response(receipt.value(), 202, {"Retry-After": DEFERRED_SECONDS}, JSON)
    return Response(receipt.value(), 200, media_type=JSON)


def _receipt(
    services: Services, model_id: str, request_id: str, sent: Sent | None
) -> Receipt | None:
    """Return the newest receipt of a request, None if there is none yet.

    Raises
    ------
    Problem
        409: it belongs to another request, which another server had sent with this id before.
    """
    stored = services.outcomes.stored(model_id, request_id)
    if stored is None:
        return services.published.receipt(model_id, request_id)
    if sent is not None and stored.body != sent.body:
        raise id_is_taken(request_id)
    return stored.receipt
