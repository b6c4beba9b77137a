"""What proves something, gathered from the log: the evidence of an erasure, a receipt's proof."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from fastapi.responses import Response

from lethe.consumers.audit.erasure import evidence_of
from lethe.consumers.audit.published.bundle import bundle_lines
from lethe.consumers.audit.request.proof import proof_of
from lethe.consumers.audit.request.report import UnknownRequest, report_of
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.tlog import MEDIA_TYPE
from lethe.consumers.erasures.known import UnknownErasure
from lethe.consumers.log.base import Reader
from lethe.consumers.server.paths import attachment
from lethe.consumers.server.problems import Problem
from lethe.consumers.server.services import Services
from lethe.engine.errors import BrokenChain, InvalidRequest

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
    try:
        with _reading(services) as reader:
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
    content = "".join(bundle_lines(found.header, found.items)).encode()
    own = "" if subject_id is None else "-own-copy"
    return Response(content, 200, attachment(f"erasure-{erasure_id}{own}.bundle"), BUNDLE)


def receipt_proof(services: Services, model_id: str, request_id: str) -> Response:
    """Return what `lethe receipt --format tlog-proof` prints; blocks.

    Raises
    ------
    Problem
        404: there is no such receipt. 406: it cannot be proved here. 503: others are being made.
    """
    signer = services.proof_signer()
    if signer is None:
        raise not_acceptable("this server has no key that signs tree heads (LETHE_SIGNING_KEY)")
    trusted = services.published.trusted or TrustedKeys.of([signer.public])
    try:
        with _reading(services) as reader:
            report = report_of(services.store, reader, request_id, model_id, trusted)
        proof = proof_of(services.store, report, signer)
    except UnknownRequest as error:
        raise Problem(404, error.code, str(error)) from None
    except (BrokenChain, InvalidRequest) as error:
        raise not_acceptable(str(error)) from None
    return Response(proof.encode(), 200, media_type=MEDIA_TYPE)


def not_acceptable(detail: str) -> Problem:
    """Return the answer where a proof is asked for and there is none."""
    return Problem(406, "NOT_ACCEPTABLE", detail)


@contextmanager
def _reading(services: Services) -> Iterator[Reader]:
    """Yield a reader of the log, unless too many have one."""
    if not _MOST.acquire(blocking=False):
        detail = "other evidence is being gathered; try again"
        raise Problem(503, "BUSY", detail, {"Retry-After": "2"})
    try:
        with closing(services.log.reader()) as reader:
            yield reader
    finally:
        _MOST.release()
