"""What erasures wait for: receipts of their requests, row changes and commits on their way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lethe.consumers.commits.packed_receipt import body_of, unpack
from lethe.consumers.contract import topics
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.erasures.pending import CONFLICT, Awaited
from lethe.consumers.log.base import Partition, Reader
from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS, ModelKeys, every_partition
from lethe.engine.store.server.pipeline import chunks, run_pipeline
from lethe.engine.store.store import ModelStore


def read_receipts(store: ModelStore, awaited: Sequence[Awaited]) -> None:
    """Note the newest receipt of each request. One round trip.

    The receipts are those of the store's index, which holds what commits have decided: a final one
    never changes again. A receipt that cannot be read is none yet; its model is halted.
    """
    by_model: dict[str, list[Awaited]] = {}
    for one in awaited:
        by_model.setdefault(one.asked.model.model_id, []).append(one)
    parts = [
        (model_id, list(chunks([one.asked.request_id for one in waiting])))
        for model_id, waiting in by_model.items()
    ]
    answers = run_pipeline(
        store.client,
        (),
        lambda pipe: [
            pipe.hmget(ModelKeys(model_id).requests, ids)
            for model_id, many in parts
            for ids in many
        ],
        each=True,
    )
    stored = iter(answers)
    for model_id, many in parts:
        values: list[bytes | None] = []
        for ids in many:
            answer = next(stored)
            values += [None] * len(ids) if isinstance(answer, CorruptState) else answer
        for one, value in zip(by_model[model_id], values, strict=True):
            if value is not None:
                one.receipt = _receipt(one, value) or one.receipt


def _receipt(one: Awaited, stored: bytes) -> Receipt | None:
    """Return a request's receipt; a conflict if its id was used for something else."""
    model_id, request_id = one.asked.model.model_id, one.asked.request_id
    try:
        receipt = unpack(stored, model_id, request_id).receipt
    except CorruptState:
        return None
    if body_of(stored) == one.asked.body:
        return receipt
    return receipt.model_copy(
        update={
            "status": "REJECTED",
            "code": CONFLICT,
            "detail": "its request id was used for other rows; erase again under another id",
            "rows_deleted": 0,
        }
    )


def changes_sent(reader: Reader) -> Mapping[str, int]:
    """Return where each partition of ``lethe.row-changes`` ends now."""
    return _ends(reader, reader.partitions(topics.ROW_CHANGES))


def commits_sent(reader: Reader) -> Mapping[str, int]:
    """Return where each partition of ``lethe.commits`` ends now; those added later have none."""
    partitions = reader.partitions(topics.COMMITS)
    return _ends(reader, [one for one in partitions if one.index < COMMIT_PARTITIONS])


def _ends(reader: Reader, partitions: Sequence[Partition]) -> Mapping[str, int]:
    return {str(partition): end for partition, end in reader.ends(partitions).items()}


def changes_decided(store: ModelStore, reader: Reader) -> Mapping[str, int]:
    """Return below which offset of each partition every row change is decided.

    Of what expired before it was decided nothing will ever be decided.
    """
    return {
        str(partition): max(
            store.cursors.watermark(str(partition)) or 0, reader.bounds(partition).begin
        )
        for partition in reader.partitions(topics.ROW_CHANGES)
    }


def commits_applied(store: ModelStore) -> Mapping[str, int]:
    """Return below which offset of each partition every commit is in the store, of all models."""
    partitions = every_partition()
    return {
        f"{cursors.topic_id}/{partition.index}": min(
            pair.apply for pair in (cursors.pair, *cursors.behind.values())
        )
        for partition, cursors in zip(partitions, store.cursors.read_all(partitions), strict=True)
    }
