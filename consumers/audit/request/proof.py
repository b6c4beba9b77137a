"""A receipt with its place in the receipt log, as C2SP defines such proofs (docs/evidence.md)."""

from __future__ import annotations

from collections.abc import Sequence

from lethe.consumers.audit.request.report import RequestReport
from lethe.consumers.commits.receipt_index import leaves_of
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.contract.tlog import (
    NoteKey,
    SignedHead,
    checkpoint,
    log_name,
    read_head,
    tlog_proof,
)
from lethe.engine.errors import BrokenChain, InvalidRequest, Unauthenticated
from lethe.engine.merkle import inclusion_proof, root_of
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.store import ModelStore


def proof_of(
    store: ModelStore, report: RequestReport, signer: Signer, cosigned: Sequence[str] = ()
) -> str:
    """Return the proof of a request's receipt.

    ``cosigned`` are checkpoints that witnesses have cosigned; the first that has the receipt in its
    tree is put into the proof as it is.

    Raises
    ------
    BrokenChain
        A check failed, no trusted key signed the version (its tree head is not signed again), or a
        cosigned checkpoint is not of this log.
    InvalidRequest
        The receipt is in no tree head, or in none that is cosigned.
    """
    faults, found = report.faults(), report.inclusion
    if faults:
        raise BrokenChain(f"request {report.request_id!r}: {faults[0]}; nothing is signed")
    if found is None:
        raise InvalidRequest(
            f"request {report.request_id!r} of model {report.model_id!r} has no receipt in the "
            "receipt log of a published version: it is pending, or was answered before the model "
            "was registered"
        )
    name = log_name(signer, report.model_id)
    if cosigned:
        head = _cosigned(cosigned, NoteKey.of(signer, name), found.index)
        leaves = leaves_of(store, ModelKeys(report.model_id), head.size)
        if root_of(leaves) != head.root:
            raise BrokenChain(
                f"model {report.model_id!r}: witnesses have cosigned a log of {head.size} receipts "
                "with another root than that in the store; run `lethe audit`"
            )
        path = inclusion_proof(leaves, found.index)
        return tlog_proof(report.last.value, found.index, path, head.note)
    signed = report.history.signed
    if signed is None or found.version > signed[1]:
        raise BrokenChain(
            f"model {report.model_id!r}, version {found.version}: no trusted key signed it, nor a "
            "version after it; its tree head is not signed again"
        )
    note = checkpoint(signer, name, found.size, bytes.fromhex(found.root))
    nodes = [bytes.fromhex(node) for node in found.proof]
    return tlog_proof(report.last.value, found.index, nodes, note)


def _cosigned(notes: Sequence[str], key: NoteKey, index: int) -> SignedHead:
    """Return the first checkpoint of a log that has a receipt in its tree."""
    for head in map(read_head, notes):
        try:
            ours = head.origin == key.name and key.has_signed(head)
        except Unauthenticated as error:
            raise BrokenChain(f"a checkpoint of {head.origin!r}: {error}") from None
        if ours and index < head.size:
            return head
    raise InvalidRequest(
        f"no --cosigned FILE has a checkpoint of {key.name!r}, signed by this key, with receipt "
        f"{index} in its tree"
    )
