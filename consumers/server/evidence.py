"""The whole evidence of an erasure as one file, for the API and the console."""

from __future__ import annotations

import threading
from contextlib import closing

from fastapi.responses import Response

from lethe.consumers.audit.erasure import evidence_of
from lethe.consumers.audit.published.bundle import bundle_lines
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.erasures.known import UnknownErasure
from lethe.consumers.server.paths import attachment
from lethe.consumers.server.problems import Problem
from lethe.consumers.server.services import Services

BUNDLE = "application/x-ndjson"

_MOST = threading.BoundedSemaphore(2)
"""Each reads the receipts and the versions of the log: more at a time would hold up requests."""


def evidence_file(
    services: Services,
    erasure_id: str,
    seals: SealKeys | None = None,
    subject_id: str | None = None,
) -> Response:
    """Return the file as a download; blocks.

    ``seals`` and ``subject_id``: the person's own copy, which names them.

    Raises
    ------
    Problem
        404: the erasure has no receipt. 503: others are being made.
    InvalidRequest
        The erasure is not of this person, or cannot be opened here.
    """
    if not _MOST.acquire(blocking=False):
        detail = "evidence of other erasures is being gathered; try again"
        raise Problem(503, "BUSY", detail, {"Retry-After": "2"})
    try:
        with closing(services.log.reader()) as reader:
            found = evidence_of(
                services.store,
                reader,
                erasure_id,
                trusted=services.published.trusted,
                seals=seals,
                subject_id=subject_id,
            )
    except UnknownErasure as error:
        raise Problem(404, error.code, str(error)) from None
    finally:
        _MOST.release()
    content = "".join(bundle_lines(found.header, found.items)).encode()
    own = "" if subject_id is None else "-own-copy"
    return Response(content, 200, attachment(f"erasure-{erasure_id}{own}.bundle"), BUNDLE)
