"""What a commit of the worker moves, in bytes: measured once, for the floor to move the same.

A worker runs in this process, on the log in memory, over one model; polls of several sizes tell
what each request and each row adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.synthetic import LocalWorker, local_worker, model_id, register_model, request
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Flush, Message, Producer
from lethe.engine.fit.objective import Kind
from lethe.engine.store.apply import Change
from lethe.engine.store.layout.codec import row_size

TOPICS = {
    "deletions": topics.DELETIONS,
    "commits": topics.COMMITS,
    "receipts": topics.RECEIPTS,
    "versions": topics.VERSIONS,
    "models": topics.MODELS,
}
_POLLS = ((1, 2), (1, 4), (1, 12), (8, 1))
"""Of each poll: rows of a request, and how many requests; the first warms up."""

_ROWS = 40


@dataclass(frozen=True, slots=True)
class Shape:
    """Bytes of one model's batch.

    Attributes
    ----------
    commit
        Of a record: what does not depend on the batch, what each request adds, what each row adds.
    receipt, version
        Of a published value, without the request ids in it.
    parameters, headers
        Of a published value; names of the headers, and bytes of each value.
    head, packed, v, q, row
        Of the head's fields, by name; of a request in the index, a row of V, a row of Q (0: none)
        and a row record.
    topics
        Names of the topics, by their short names.
    """

    commit: tuple[float, float, float]
    receipt: int
    version: int
    parameters: int
    headers: Sequence[tuple[str, int]]
    head: dict[str, int]
    packed: int
    v: int
    q: int
    row: int
    topics: dict[str, str] = field(default_factory=lambda: dict(TOPICS))


@dataclass(slots=True)
class _Seen:
    """What one poll sent and wrote."""

    messages: list[Message] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def size(self, topic: str) -> int:
        """Return the bytes of the first message of a topic."""
        return next(len(m.value or b"") for m in self.messages if m.topic == topic)


class _Watched(Producer):
    """A producer whose messages are seen."""

    def __init__(self, inner: Producer, seen: _Seen) -> None:
        self._inner, self._seen = inner, seen

    def begin(self, messages: Any) -> Flush:
        batch = list(messages)
        self._seen.messages += batch
        return self._inner.begin(batch)

    def close(self) -> None:
        self._inner.close()


def measure(method: str, d: int, seed: int, directory: Path) -> Shape:
    """Return what the worker moves for a model of d features."""
    with local_worker(directory) as local:
        register_model(local.registrar, model_id(0), Kind.LINEAR, _ROWS, d, seed, method)
        polls = _polls(local)
    last = polls[2]
    [change], [*_, version] = last.changes, last.messages
    arrays = change.arrays
    if arrays is None:
        raise AssertionError("a deletion adds a row to V")
    ids = [len(one) for one in change.requests]
    head = {**change.head, "commit": b"0", "digest": bytes(64), "arrays": arrays.renewed.encode()}
    return Shape(
        commit=_commit_sizes(*(poll.size(topics.COMMITS) for poll in polls[1:])),
        receipt=last.size(topics.RECEIPTS) - ids[0],
        version=last.size(topics.VERSIONS) - sum(ids) - 3 * len(ids),
        parameters=last.size(topics.MODELS),
        headers=[(name, len(value)) for name, value in version.headers],
        head={name: len(value) for name, value in head.items()},
        packed=round(sum(map(len, change.requests.values())) / len(ids)),
        v=len(arrays.V_rows[0]),
        q=len(arrays.Q_rows[0]) if arrays.Q_rows else 0,
        row=row_size(d, 1),
    )


def _commit_sizes(few: int, many: int, of_rows: int) -> tuple[float, float, float]:
    """Return `Shape.commit` from the records of the last three polls."""
    (_, a), (_, b), (rows, _) = _POLLS[1:]
    both = (many - few) / (b - a)
    base = few - a * both
    row = (of_rows - base - both) / (rows - 1)
    return base, both - row, row


def _polls(local: LocalWorker) -> list[_Seen]:
    """Return what the worker sent and wrote for each of `_POLLS`."""
    polls: list[_Seen] = []
    worker, store = local.worker, local.store
    apply = store.apply
    local.drain()
    numbers, rows = count(), count()
    for size, requests in _POLLS:
        seen = _Seen()
        worker._journal._producer = worker._publisher._producer = _Watched(worker._producer, seen)

        def watched(changes: Sequence[Change], queue: Any = None) -> Any:
            seen.changes += changes  # noqa: B023
            return apply(changes, queue)

        store.apply = watched  # type: ignore[method-assign]
        local.send(
            request(next(numbers), 0, [next(rows) for _ in range(size)]) for _ in range(requests)
        )
        local.drain()
        polls.append(seen)
    return polls
