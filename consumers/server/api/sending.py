"""Sending a request to the log, once for each identity and content."""

from __future__ import annotations

from lethe.consumers.contract.events import MAX_REQUEST_BYTES
from lethe.consumers.log.base import Message
from lethe.consumers.server.api.bodies import invalid
from lethe.consumers.server.appender import TAKEN, Identity, RequestConflict
from lethe.consumers.server.outcomes import Asked, Sent
from lethe.consumers.server.problems import Problem
from lethe.consumers.server.services import Services
from lethe.engine.errors import LetheError

RETRY_SECONDS = "1"
"""``Retry-After`` of a request on its way, or of a log that did not answer: both take that long."""


def id_is_taken(request_id: str) -> Problem:
    """Return the answer to a request whose id is known with another content."""
    return Problem(409, RequestConflict.code, TAKEN, request_id=request_id)


async def send(
    services: Services, message: Message, identity: Identity, asked: Asked | None = None
) -> None:
    """Append a request, and remember it; ``asked``: what an erasure asks for.

    Raises
    ------
    Problem
        400: it is too long. 409: its id is known with another content. 503: the log has not
        acknowledged it, and it may be processed or not: the same request sent again is one request.
    """
    size = len(message.value or b"")
    if size > MAX_REQUEST_BYTES:  # the body and the ids that the path and the header add
        raise invalid(f"{size} bytes; a request has at most 1 MiB")
    model_id, request_id = identity.model_id, identity.request_id
    recent = services.recent.find(model_id, request_id)
    if recent is not None and recent.body != identity.body:
        raise id_is_taken(request_id)
    services.recent.add(model_id, request_id, Sent(identity.body, asked=asked))
    try:
        place = await services.appender.append(message, identity if model_id else None)
    except RequestConflict:
        services.recent.forget(model_id, request_id)
        raise id_is_taken(request_id) from None
    except LetheError as error:
        headers = {"Retry-After": RETRY_SECONDS}
        raise Problem(503, error.code, str(error), headers, request_id=request_id) from None
    services.recent.add(model_id, request_id, Sent(identity.body, place, asked))
