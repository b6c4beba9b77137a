"""A platform, compared with the fold that was written apart from the product."""

from __future__ import annotations

from typing import Any

from lethe.consumers.commits.packed_receipt import unpack
from lethe.consumers.contract import topics
from tests.proof.agreement import check_published, check_store
from tests.proof.independent_fold import ModelFold, fold
from tests.support.platform import Platform


def commits_of(platform: Platform) -> dict[int, list[bytes | None]]:
    """Return all records of ``lethe.commits``, by partition."""
    found: dict[int, list[bytes | None]] = {}
    for record in platform.records(topics.COMMITS):
        found.setdefault(record.partition.index, []).append(record.value)
    return found


def check_agreement(
    platform: Platform, *, secret: bytes = bytes(range(32))
) -> dict[str, ModelFold]:
    """Check topics and store of a platform that is at rest; return what its commits come to."""
    models = fold(commits_of(platform), secret)
    check_published(models, _values(platform, topics.RECEIPTS), _values(platform, topics.VERSIONS))
    for model_id, model in models.items():
        if not model.commits:
            continue
        state, raw = platform.load(model_id), platform.raw()
        ledger: Any = raw.hgetall(state.keys.ledger)
        requests: Any = raw.hgetall(state.keys.requests)
        indexed = {
            name.decode(): unpack(stored, model_id, name.decode())
            for name, stored in requests.items()
        }
        check_store(
            model,
            head=(state.head.commit, state.head.digest),
            version=state.version,
            ledger={row.decode(): int(version) for row, version in ledger.items()},
            offsets=state.offsets,
            finals={name: one.receipt.value() for name, one in indexed.items() if one.final},
            deferred=state.deferred.keys(),
        )
    return models


def _values(platform: Platform, topic: str) -> list[bytes]:
    return [record.value or b"" for record in platform.records(topic)]
