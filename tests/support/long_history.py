"""An exported history of many receipts, consistent and signed, as a busy model would have it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.consumers.contract import topics, version_chain
from lethe.consumers.contract.events import Parameters, Source, Version
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.signatures import HEADER, Signer
from lethe.engine.merkle import Frontier, leaf_hash
from lethe.engine.store.layout.columns import FittedColumn
from lethe.engine.store.layout.records import ErrorRecord, LogHead
from tests.support.bundles import TYPES

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_ERROR = ErrorRecord(
    value=0.1, kind="estimate", bound=0.2, certified_version=None, budget=0.01, relative=0.004
)


def write(
    path: Path, receipts: int, together: int = 25, columns: tuple[FittedColumn, ...] = ()
) -> None:
    """Write the export of a model with so many receipts, ``together`` of them in each version."""
    theta = np.linspace(-1.0, 1.0, 6)[:, None]
    names = tuple(f"x{i}" for i in range(5))
    digest = version_chain.parameters_digest(
        theta, names, ("y",), fit_intercept=True, columns=columns
    )
    identity: dict[str, Any] = {
        "model_id": "busy", "generation": 0, "method": "pru", "kind": "linear", "status": "ACTIVE",
        "parameters_digest": digest,
    }  # fmt: skip
    versions: list[Version] = []
    answers: list[Receipt] = []
    frontier = Frontier()
    for number in range(receipts // together + 1):
        at = _BEGAN + timedelta(minutes=number)
        requests = [f"r-{number:05d}-{i:02d}" for i in range(together if number else 0)]
        made = [
            _receipt(request, number, len(answers) + i, at) for i, request in enumerate(requests)
        ]
        frontier = frontier.appended(leaf_hash(one.value()) for one in made)
        answers += made
        version = Version(
            **identity, version=number, prev_digest=versions[-1].digest if versions else "",
            digest="", rows_live=1_000_000 - len(answers), rows_deleted=len(answers),
            error=_ERROR, request_ids=tuple(requests), created_at=at, commit=number,
            commit_prev="", receipt_log=LogHead(size=frontier.size, root=frontier.root.hex()),
        )  # fmt: skip
        digest_of_it = version_chain.version_digest(version)
        versions.append(version.model_copy(update={"digest": digest_of_it}))
    newest = versions[-1]
    parameters = Parameters(
        **identity, version=newest.version, prev_digest=newest.prev_digest, digest=newest.digest,
        created_at=newest.created_at, feature_names=names, target_names=("y",),
        fit_intercept=True, theta=tuple(theta[:-1, 0]), intercept=float(theta[-1, 0]),
        columns=columns,
    )  # fmt: skip
    with path.open("w") as file:
        head = {"lethe_bundle": 1, "model_id": "busy", "public_keys": [SIGNER.public_text]}
        file.write(json.dumps(head) + "\n")
        count = 0
        for topic, events in (
            (topics.VERSIONS, versions),
            (topics.RECEIPTS, answers),
            (topics.MODELS, [parameters]),
        ):
            for offset, event in enumerate(events):
                file.write(json.dumps(_line(topic, offset, event.value())) + "\n")
                count += 1
        leaves = b"".join(leaf_hash(one.value()) for one in answers)
        for start in range(0, len(leaves), 32 * 16_384):
            part = base64.b64encode(leaves[start : start + 32 * 16_384]).decode()
            file.write(json.dumps({"receipt_log": part}) + "\n")
        file.write(json.dumps({"lethe_bundle_end": 1, "records": count}) + "\n")


def _receipt(request_id: str, version: int, offset: int, at: datetime) -> Receipt:
    return Receipt(
        request_id=request_id,
        model_id="busy",
        status="APPLIED",
        rows_deleted=1,
        version=version,
        generation=0,
        error=_ERROR,
        source=Source(topic=topics.DELETIONS, partition=0, offset=offset),
        completed_at=at,
        rows_commitment="0" * 64,
    )


def _line(topic: str, offset: int, value: bytes) -> dict[str, Any]:
    signature = SIGNER.sign(TYPES[topic], value)
    return {
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "headers": [[HEADER, base64.b64encode(signature).decode()]],
        "value": base64.b64encode(value).decode(),
    }
