"""The floor with what the contract and the mathematics demand, and nothing else of ours.

Of each request it validates the body and makes the commitment to its rows, the receipt and the
receipt's leaf; of each batch it makes the engine's step, the version with its digests and the
parameters, and seals the commit's bytes. Decisions, checks and the commit itself are left out. So
it tells how much of a worker's time no other worker with these messages and libraries could save.

Run as `benchmarks.floor` is.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks.floor import Batch, Floor, Job, main
from benchmarks.floor_logs import Request
from kernel_measures.steps import synthetic_deletion
from lethe.consumers.commits.publish import parameters_value
from lethe.consumers.contract.commitment import new_secret, rows_commitment
from lethe.consumers.contract.events import DeletionRequest, Source, Version
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.version_chain import parameters_digest, version_digest
from lethe.engine.deletion.correction import Correction
from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.deletion.stream import Stream, delete
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.merkle import leaf_hash
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.records import ErrorRecord

_ERROR = ErrorRecord(
    value=1e-3, kind="exact", bound=1e-3, certified_version=1, budget=1e6, relative=1e-3
)
_DIGEST = "0" * 64


class ContractFloor(Floor):
    """Moves bytes, and makes what they have to be."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._deletion = synthetic_deletion(np.random.default_rng(0), job.d, 0, job.n, job.method)
        self._streams: dict[str, tuple[Stream, int]] = {}
        self._config = ModelConfig(
            model_id="model-0",
            kind=Kind.LINEAR,
            method=job.method,
            ridge=1.0,
            fit_intercept=False,
            feature_names=tuple(f"feature_{column}" for column in range(job.d)),
            target_names=("target",),
            error_budget=1e6,
        )
        self._secret, self._cipher = new_secret(), AESGCM(AESGCM.generate_key(256))

    def _turn(self, requests: list[Request]) -> None:
        now = datetime.now(UTC)
        for request in requests:
            DeletionRequest.model_validate_json(request.value)
        for batch in self._grouped(requests):
            theta = self._step(batch)
            for request in batch.requests:
                leaf_hash(self._receipt(request, now))
            self._publish(batch, theta, now)
            self._cipher.encrypt(os.urandom(12), self._commit(batch).value, b"")
        super()._turn(requests)

    def _step(self, batch: Batch) -> Array:
        """Delete as many rows; a model that has no more begins anew."""
        deletion, k = self._deletion, len(batch.rows())
        stream, first = self._streams.get(batch.model, (deletion.stream, 0))
        if first == 0 or first + k > len(deletion.rows):
            first = 0
            V, Q = deletion.stream.V.array, deletion.stream.Q.array
            stream = deletion.stream._replace(V=Correction.of(V), Q=GrowingRows.of(Q))
        chosen = slice(first, first + k)
        rows, W = deletion.rows.take(chosen), deletion.W[chosen]
        after = delete(deletion.generation, stream, rows, W, deletion.method).stream
        self._streams[batch.model] = after, first + k
        return after.published

    def _receipt(self, request: Request, now: datetime) -> bytes:
        return Receipt(
            request_id=request.id,
            model_id=request.model,
            status="APPLIED",
            rows_deleted=len(request.rows),
            version=1,
            generation=0,
            error=_ERROR,
            source=Source(
                topic="lethe.deletions", partition=request.partition, offset=request.offset
            ),
            completed_at=now,
            rows_commitment=rows_commitment(self._secret, request.id, request.rows),
        ).value()

    def _publish(self, batch: Batch, theta: Array, now: datetime) -> None:
        """Make the version and the parameters of a batch."""
        config = self._config
        unsigned = Version(
            model_id=batch.model,
            generation=0,
            version=1,
            prev_digest=_DIGEST,
            digest="",
            parameters_digest=parameters_digest(
                theta, config.feature_names, config.target_names, fit_intercept=False
            ),
            method=config.method,
            kind="linear",
            status="ACTIVE",
            rows_live=1,
            rows_deleted=1,
            error=_ERROR,
            certificate=None,
            request_ids=tuple(request.id for request in batch.requests),
            created_at=now,
            commit=1,
            commit_prev=_DIGEST,
        )
        version = unsigned.model_copy(update={"digest": version_digest(unsigned)})
        version.value()
        parameters_value(version, config, theta)


if __name__ == "__main__":
    main(sys.argv[1], ContractFloor)
