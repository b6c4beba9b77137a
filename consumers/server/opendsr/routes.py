"""``/opendsr/v1``: discovery, requests, their status, cancelling, the certificate."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from lethe.consumers.contract.erasure_events import SubjectErasureRequested
from lethe.consumers.contract.events import Id, Time, rfc3339
from lethe.consumers.server.api.bodies import JSON, json_object
from lethe.consumers.server.guard import CallerForAll, caller_for_all
from lethe.consumers.server.keys import Caller
from lethe.consumers.server.opendsr.callbacks import MAX_CALLBACKS, check_allowed
from lethe.consumers.server.opendsr.configuration import MAX_IDENTITIES, Configuration
from lethe.consumers.server.opendsr.desk import Desk, cancelled
from lethe.consumers.server.opendsr.record import RequestRecord, State, status_of
from lethe.consumers.server.opendsr.signature import AnswerSigner
from lethe.consumers.server.paths import PathId
from lethe.consumers.server.problems import Problem, responses
from lethe.consumers.server.services import ServicesOf
from lethe.engine.errors import InvalidRequest
from lethe.engine.store.layout.reading import first_error

router = APIRouter(prefix="/opendsr/v1", tags=["OpenDSR"], dependencies=[Depends(caller_for_all)])


class Identity(BaseModel):
    """An identity of the person."""

    identity_type: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    identity_value: Id
    identity_format: Annotated[str, StringConstraints(min_length=1, max_length=128)]


class ErasureAsked(BaseModel):
    """A request of a controller; members that are not listed are ignored."""

    model_config = ConfigDict(extra="ignore")

    regulation: Annotated[str, StringConstraints(max_length=64)] | None = None
    subject_request_id: Annotated[UUID, Field(strict=False)]
    subject_request_type: Literal["erasure"]
    submitted_time: Time
    subject_identities: Annotated[
        tuple[Identity, ...], Field(min_length=1, max_length=MAX_IDENTITIES)
    ]
    api_version: Literal["1.0"] = "1.0"
    status_callback_urls: Annotated[tuple[str, ...], Field(max_length=MAX_CALLBACKS)] = ()


@dataclass(frozen=True, slots=True)
class OpenDsr:
    """What the routes use."""

    configuration: Configuration
    desk: Desk
    signer: AnswerSigner | None

    def answer(self, document: dict[str, Any], status: int = 200) -> Response:
        """Return a signed answer."""
        body = json.dumps(document).encode()
        headers = {"X-OpenDSR-Processor-Domain": self.configuration.domain}
        if self.signer is not None:
            headers = self.signer.headers(body)
        return Response(body, status, headers, JSON)


async def opendsr_of(request: Request) -> OpenDsr:
    """Return what the application was configured with."""
    opendsr: OpenDsr = request.app.state.opendsr
    return opendsr


OpenDsrOf = Annotated[OpenDsr, Depends(opendsr_of)]


def _body() -> dict[str, Any]:
    """Return the documentation of a body, without references into itself."""
    schema = ErasureAsked.model_json_schema()
    schema.pop("$defs")
    schema["properties"]["subject_identities"]["items"] = Identity.model_json_schema()
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}


@router.get("/discovery", summary="Read what can be asked for", responses=responses(403))
async def discover(request: Request, opendsr: OpenDsrOf) -> Response:
    """Name the identities that map to subjects, and where the certificate is."""
    configuration = opendsr.configuration
    certificate = str(request.url.replace(path="/opendsr/v1/certificate", query=""))
    return opendsr.answer(
        {
            "api_version": "1.0",
            "supported_identities": [
                {"identity_type": rule.type, "identity_format": rule.format}
                for rule in configuration.identities
            ],
            "supported_subject_request_types": ["erasure"],
            "processor_certificate": None if opendsr.signer is None else certificate,
        }
    )


class Pem(Response):
    """A certificate."""

    media_type = "application/x-pem-file"


@router.get(
    "/certificate",
    summary="Read the certificate of signatures",
    response_class=Pem,
    responses=responses(403, 404),
)
async def read_certificate(opendsr: OpenDsrOf) -> Response:
    """Return the certificate of the key that signs answers, in PEM form."""
    if opendsr.signer is None:
        raise Problem(404, "NOT_FOUND", "this server has no signing key: answers are not signed")
    return Pem(opendsr.signer.certificate())


@router.post(
    "/requests",
    status_code=201,
    summary="Ask for a person's erasure",
    openapi_extra=_body(),
    responses=responses(400, 403, 413, 415, 503),
)
async def ask(
    request: Request, services: ServicesOf, opendsr: OpenDsrOf, caller: CallerForAll
) -> Response:
    """Answer once the request is in the log, or held until it may no longer be cancelled."""
    data = await json_object(request)
    body = await request.body()
    try:
        asked = ErasureAsked.model_validate(data)
        fresh = _record(asked, body, opendsr.configuration, caller)
    except ValidationError as error:
        raise _refused(InvalidRequest.code, first_error(error)) from None
    except InvalidRequest as error:
        raise _refused(error.code, str(error)) from None

    def enter() -> RequestRecord:
        record = opendsr.desk.records.add(fresh)
        if (record.body, record.controller_id) != (fresh.body, fresh.controller_id):
            raise _refused(
                "REQUEST_ID_CONFLICT", "this subject_request_id is taken by another request"
            )
        if opendsr.configuration.hold:
            services.store.wait_durable()
            return record
        return opendsr.desk.advance(record.subject_request_id) or record

    record = await run_in_threadpool(enter)
    document = status_of(record) | {
        "received_time": rfc3339(record.received_at),
        "encoded_request": base64.b64encode(body).decode(),
    }
    return opendsr.answer(document, 201)


def _record(
    asked: ErasureAsked, body: bytes, configuration: Configuration, caller: Caller
) -> RequestRecord:
    """Return the record of a request.

    Raises
    ------
    InvalidRequest
        An identity maps to no subject, or a callback is not allowed.
    """
    for url in asked.status_callback_urls:
        check_allowed(url, configuration.callbacks)
    subjects = configuration.subjects(
        [
            (one.identity_type, one.identity_format, one.identity_value)
            for one in asked.subject_identities
        ]
    )
    name, now = str(asked.subject_request_id), datetime.now(UTC)
    unguessed = secrets.token_hex(8)  # nobody can have used these ids for another erasure
    events = tuple(
        SubjectErasureRequested(
            erasure_id=f"opendsr-{name}-{number}-{unguessed}",
            subject_id=subject,
            namespace=namespace,
            requested_at=rfc3339(asked.submitted_time),
        )
        for number, (namespace, subject) in enumerate(subjects)
    )
    return RequestRecord(
        subject_request_id=name,
        controller_id=caller.name,
        body=hashlib.sha256(body).hexdigest(),
        received_at=now,
        expected_at=now + timedelta(seconds=configuration.hold + configuration.within),
        due=time.time() + configuration.hold,
        erasure_ids=tuple(event.erasure_id for event in events),
        events=events,
        callback_urls=asked.status_callback_urls,
    )


@router.get(
    "/requests/{subject_request_id}",
    summary="Read where a request stands",
    responses=responses(403, 404, 503),
)
def read_status(
    subject_request_id: PathId, services: ServicesOf, opendsr: OpenDsrOf, caller: CallerForAll
) -> Response:
    """Answer pending, in_progress, completed or cancelled; ``erasures`` has what each model did."""
    record = _find(opendsr, subject_request_id, caller)
    found = [services.outcomes.erasure(one) for one in record.erasure_ids]
    erasures = [one.model_dump(mode="json") for one in found if one is not None]
    return opendsr.answer(status_of(record) | {"erasures": erasures})


@router.delete(
    "/requests/{subject_request_id}",
    status_code=202,
    summary="Cancel a request",
    responses=responses(400, 403, 404, 503),
)
def cancel(subject_request_id: PathId, opendsr: OpenDsrOf, caller: CallerForAll) -> Response:
    """Cancel a request that is still held; what was sent cannot be called back."""
    name = _find(opendsr, subject_request_id, caller).subject_request_id
    record = opendsr.desk.records.change(name, cancelled)
    if record is None or record.state is not State.CANCELLED:
        raise _refused("TOO_LATE", "the request was sent: what is erased cannot be called back")
    document = status_of(record) | {"received_time": rfc3339(datetime.now(UTC))}
    return opendsr.answer(document, 202)


def _find(opendsr: OpenDsr, subject_request_id: str, caller: Caller) -> RequestRecord:
    """Return a request of this controller."""
    record = opendsr.desk.records.find(subject_request_id.lower())
    if record is None or record.controller_id != caller.name:
        raise Problem(404, "UNKNOWN_REQUEST", "no such request of this controller")
    return record


def _refused(code: str, detail: str) -> Problem:
    """Return a refusal in the form of the standard and in ours."""
    return Problem(400, code, detail, error={"code": 400, "message": detail})
