"""Sending a request to the log, once for each identity and content."""

from __future__ import annotations

from dataclasses import replace

from fastapi.concurrency import run_in_threadpool

from lethe.consumers.contract.erasure_events import SubjectErasureRequested
from lethe.consumers.contract.events import DeletionRequest
from lethe.consumers.contract.requests import check_size, request_message
from lethe.consumers.deletions.validate import content_digest
from lethe.consumers.log.base import Headers
from lethe.consumers.server.api.bodies import invalid
from lethe.consumers.server.appender import TAKEN, Identity, RequestConflict
from lethe.consumers.server.outcomes import ErasureAsked, Sent
from lethe.consumers.server.problems import Problem
from lethe.consumers.server.services import Services
from lethe.engine.errors import InvalidRequest, LetheError

RETRY_SECONDS = "1"
"""``Retry-After`` of a request on its way, or of a log that did not answer: both take that long."""

NO_MODEL = ""
"""In place of a model id, where requests are remembered: an erasure is of all models."""


def id_is_taken(request_id: str) -> Problem:
    """Return the answer to a request whose id is known with another content."""
    return Problem(409, RequestConflict.code, TAKEN, request_id=request_id)


async def send(
    services: Services,
    request: DeletionRequest | SubjectErasureRequested,
    *,
    body: bytes | None = None,
    trace: Headers = (),
) -> None:
    """Append a request, and remember it; the worker would find the same, but later.

    ``body`` is the digest of its content, where that is known already; ``trace`` headers to add.

    Raises
    ------
    Problem
        400: it is too long. 409: its id is known with another content. 503: the log has not
        acknowledged it, and it may be processed or not: the same request sent again is one request.
    """
    asked = None
    if isinstance(request, DeletionRequest):
        identity = Identity(request.model_id, request.request_id, body or content_digest(request))
    else:
        asked = ErasureAsked.by(request)
        identity = Identity(NO_MODEL, request.erasure_id, asked.digest)
    model_id, request_id = identity.model_id, identity.request_id
    message = request_message(request, services.signer)
    try:
        check_size(message.value or b"")  # the body and the ids that the path and the header add
    except InvalidRequest as error:
        raise invalid(str(error)) from None
    if asked is not None and await run_in_threadpool(_is_taken, services, request_id, asked):
        raise id_is_taken(request_id)
    recent = services.recent.find(model_id, request_id)
    if recent is not None and recent.body != identity.body:
        raise id_is_taken(request_id)
    services.recent.add(model_id, request_id, Sent(identity.body, asked=asked))
    message = replace(message, headers=message.headers + trace)
    try:
        place = await services.appender.append(message, identity if model_id else None)
    except RequestConflict:
        services.recent.forget(model_id, request_id)
        raise id_is_taken(request_id) from None
    except LetheError as error:
        headers = {"Retry-After": RETRY_SECONDS}
        raise Problem(503, error.code, str(error), headers, request_id=request_id) from None
    services.recent.add(model_id, request_id, Sent(identity.body, place, asked))


def _is_taken(services: Services, erasure_id: str, asked: ErasureAsked) -> bool:
    """Return whether an erasure's id was used for another, or nobody can tell any more; blocks.

    The worker looks, too, but the receipt that is found under the id is that of the first.
    """
    try:
        return services.outcomes.is_taken(erasure_id, asked)
    except LetheError:
        return False  # the log may still take it
