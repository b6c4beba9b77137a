"""``/v1/erasures``: a person is erased from every model, and one receipt says what each did."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SubjectErasureCompleted, SubjectErasureRequested
from lethe.consumers.contract.tlog import MEDIA_TYPE as TLOG_PROOF
from lethe.consumers.deletions.validate import Invalid
from lethe.consumers.erasures.request import read_erasure as read_data
from lethe.consumers.log.base import Partition, Record
from lethe.consumers.server.api.bodies import JSON, invalid, json_object, with_identity
from lethe.consumers.server.api.sending import NO_MODEL, RETRY_SECONDS, id_is_taken, send
from lethe.consumers.server.evidence import BUNDLE, evidence_file, not_acceptable
from lethe.consumers.server.guard import CallerForAll
from lethe.consumers.server.outcomes import Sent
from lethe.consumers.server.paths import PathId, segment
from lethe.consumers.server.problems import Problem, responses
from lethe.consumers.server.services import Services, ServicesOf

router = APIRouter(tags=["erasures"])

_BUNDLE: dict[str, Any] = {
    "description": "The file (docs/audit.md)",
    "content": {BUNDLE: {"schema": {"type": "string"}}},
}
_OWN_COPY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "required": ["subject_id"],
                    "properties": {"subject_id": {"type": "string"}},
                }
            }
        },
    }
}


def _schema() -> dict[str, Any]:
    schema = SubjectErasureRequested.model_json_schema()
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}


@router.post(
    "/v1/erasures",
    status_code=202,
    summary="Erase a person from every model",
    openapi_extra=_schema(),
    responses=responses(400, 403, 409, 413, 415, 503),
)
async def request_erasure(request: Request, services: ServicesOf, caller: CallerForAll) -> Response:
    """Answer once the log has acknowledged the request; ``Location`` has the combined receipt."""
    del caller  # a key for every model
    event = validated(with_identity(await json_object(request), request, "erasure_id"))
    await send(services, event)
    headers = {
        "Location": f"/v1/erasures/{segment(event.erasure_id)}",
        "Retry-After": RETRY_SECONDS,
    }
    document = {"erasure_id": event.erasure_id, "status": "PENDING"}
    return Response(json.dumps(document).encode(), 202, headers, JSON)


_UNSENT = Record(Partition(topics.ERASURES, "", 0), 0, None, None)


def validated(data: dict[str, Any]) -> SubjectErasureRequested:
    """Return an erasure that the worker will not refuse for its form: its own judgement.

    A body is the data of an event and never an event: one in a body would be of another id than the
    answer names.

    Raises
    ------
    Problem
        400: it would.
    """
    item = read_data(_UNSENT, data)
    if isinstance(item, Invalid):
        raise Problem(400, item.code, item.detail)
    return item.event


@router.get(
    "/v1/erasures/{erasure_id}",
    summary="Read what became of an erasure",
    response_model=SubjectErasureCompleted,
    responses={
        202: {"description": "Not complete yet: ask again after Retry-After"},
        **responses(403, 404, 406, 409, 503),
    },
)
async def read_erasure(
    erasure_id: PathId,
    services: ServicesOf,
    caller: CallerForAll,
    accept: Annotated[str, Header(include_in_schema=False)] = JSON,
) -> Response:
    """Answer with the combined receipt; 202 and ``Retry-After`` until it is final."""
    del caller  # a key for every model
    if TLOG_PROOF in accept:
        raise not_acceptable(
            "a combined receipt is in no receipt log; the models' own receipts are, and the "
            "evidence of the erasure has their proofs (GET .../evidence)"
        )
    sent = services.recent.find(NO_MODEL, erasure_id)
    receipt = await run_in_threadpool(_outcome, services, erasure_id, sent)
    if receipt is not None and receipt.final:
        return Response(receipt.value(), media_type=JSON)
    document = {"erasure_id": erasure_id, "status": "PENDING"}
    content = json.dumps(document).encode() if receipt is None else receipt.value()
    return Response(content, 202, {"Retry-After": RETRY_SECONDS}, JSON)


def _outcome(
    services: Services, erasure_id: str, sent: Sent | None
) -> SubjectErasureCompleted | None:
    """Return the newest receipt of an erasure; None while it can be on its way without one.

    Raises
    ------
    Problem
        404: there is no such erasure. 409: this server has sent another one under its id.
    """
    outcomes = services.outcomes
    receipt = outcomes.newest_of_erasure(erasure_id)
    if receipt is None and not outcomes.may_be_waiting(topics.ERASURES, erasure_id, sent):
        receipt = outcomes.newest_of_erasure(erasure_id)
        if receipt is None:
            raise Problem(
                404,
                "UNKNOWN_REQUEST",
                "no such erasure: it was never sent, or it was refused as not authenticated"
                + outcomes.losses(topics.ERASURES),
            )
    if receipt is None or sent is None or sent.asked is None:
        return receipt
    if outcomes.answers_other(receipt, sent.asked, sent.place):
        raise id_is_taken(erasure_id)  # another server had sent that before
    return receipt


@router.get(
    "/v1/erasures/{erasure_id}/evidence",
    summary="Download the whole evidence of an erasure",
    response_class=Response,
    responses={200: _BUNDLE, **responses(403, 404, 503)},
)
async def read_evidence(erasure_id: PathId, services: ServicesOf, caller: CallerForAll) -> Response:
    """Answer with one file, which names nobody and `lethe audit --bundle` checks."""
    del caller  # a key for every model
    return await run_in_threadpool(evidence_file, services, erasure_id)


@router.post(
    "/v1/erasures/{erasure_id}/evidence",
    summary="Download the person's own copy of it",
    response_class=Response,
    openapi_extra=_OWN_COPY,
    responses={200: _BUNDLE, **responses(400, 403, 404, 413, 415, 503)},
)
async def read_own_copy(
    erasure_id: PathId, request: Request, services: ServicesOf, caller: CallerForAll
) -> Response:
    """Answer with the same file and what opens the commitment in it: it names the person.

    400 if the erasure is not of this person.
    """
    del caller  # a key for every model
    subject = (await json_object(request)).get("subject_id")
    if not isinstance(subject, str) or not subject:
        raise invalid("name the person: subject_id")
    seals = await run_in_threadpool(services.outcomes.seals)
    return await run_in_threadpool(evidence_file, services, erasure_id, seals, subject)
