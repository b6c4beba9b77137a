"""A receipt with its place in the receipt log, as C2SP defines such proofs (docs/evidence.md)."""

from __future__ import annotations

from lethe.consumers.audit.request.report import RequestReport
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.contract.tlog import checkpoint, log_name, tlog_proof
from lethe.engine.errors import BrokenChain, InvalidRequest


def proof_of(report: RequestReport, signer: Signer) -> str:
    """Return the proof of a request's receipt.

    Raises
    ------
    BrokenChain
        A check failed, or no trusted key signed the version: its tree head is not signed again.
    InvalidRequest
        The receipt is in no tree head.
    """
    faults, found = report.faults(), report.inclusion
    if faults:
        raise BrokenChain(f"request {report.request_id!r}: {faults[0]}; nothing is signed")
    if found is None:
        raise InvalidRequest(
            f"request {report.request_id!r} of model {report.model_id!r} has no receipt in the "
            "receipt log of a published version: it is pending, or was answered before the model"
        )
    name = log_name(signer, report.model_id)
    signed = report.history.signed
    if signed is None or found.version > signed[1]:
        raise BrokenChain(
            f"model {report.model_id!r}, version {found.version}: no trusted key signed it, nor a "
            "version after it; its tree head is not signed again"
        )
    head = checkpoint(signer, name, found.size, bytes.fromhex(found.root))
    path = [bytes.fromhex(node) for node in found.proof]
    return tlog_proof(report.last.value, found.index, path, head)
