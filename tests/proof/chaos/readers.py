"""Who looks on while everything goes on: at topics, at the store, and as a subscriber.

Each is a thread that bears that servers are away. What they see is judged later.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Log, Partition, Reader
from lethe.consumers.subscriber.subscriber import ModelSubscriber
from lethe.consumers.versions.version_event import published_digest
from lethe.engine.errors import (
    BrokenChain,
    CommitConflict,
    LetheError,
    LogReset,
    RowsMissing,
    Unavailable,
)
from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.snapshot import Snapshot, take_snapshot
from lethe.engine.store.server.barrier import NoBarrier
from lethe.engine.store.server.connection import connect
from lethe.engine.store.store import ModelStore
from tests.proof.chaos.history import Live, Read

_PAUSE = 0.5
_IDLE = 0.3
_LOOK_SECONDS = 1.5


@dataclass
class Sight:
    """What all of them saw; appended to from several threads."""

    live: list[Live] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    applied: list[tuple[float, str]] = field(default_factory=list)


class Watcher:
    """Follows topics without a group, record by record.

    ``on_record`` is called with the topic and the value of each, in the order of each partition.
    """

    def __init__(self, log: Log, names: Sequence[str], on_record: Callable[[str, bytes], None]):
        self._log = log
        self._names = names
        self._on_record = on_record
        self._next: dict[Partition, int] = {}
        self._partitions: dict[str, Sequence[Partition]] = {}

    def run(self, stop: threading.Event) -> None:
        """Follow until told to stop."""
        while not stop.is_set():
            reader = None
            try:
                reader = self._log.reader()
                while not stop.is_set():
                    if not self._turn(reader):
                        stop.wait(_IDLE)
            except (Unavailable, LogReset):
                stop.wait(_PAUSE)
            finally:
                if reader is not None:
                    reader.close()

    def _turn(self, reader: Reader) -> int:
        seen = 0
        for name in self._names:
            if name not in self._partitions:
                self._partitions[name] = reader.partitions(name)
            for partition, end in reader.ends(self._partitions[name]).items():
                at = self._next.get(partition, 0)
                if end <= at:
                    continue
                records, onward = reader.read(partition, at, 1.0, 1000)
                self._next[partition] = onward
                seen += len(records)
                for record in records:
                    self._on_record(name, record.value or b"")
        return seen


def subscribe(log: Log, model: str, sight: Sight, stop: threading.Event) -> None:
    """Follow a model as a program that predicts would; a broken chain is a broken promise."""
    known: tuple[int, str] | None = None
    while not stop.is_set():
        try:
            subscriber = ModelSubscriber(log)
            for found in subscriber.follow(model, stop=stop, known=known):
                known = found.known
                sight.live.append(Live("subscriber", model, *known))
        except BrokenChain as error:
            sight.broken.append(str(error))
            return
        except (Unavailable, LogReset):
            stop.wait(_PAUSE)


def look(url: str, models: Sequence[str], sight: Sight, stop: threading.Event) -> None:
    """Load states and take snapshots, in turn, as refresh workers and checks do."""
    store: ModelStore | None = None
    turn = 0
    while not stop.wait(_LOOK_SECONDS):
        model = models[turn % len(models)]
        turn += 1
        try:
            if store is None:
                client = connect(url)
                store = ModelStore(client, NoBarrier())
            state = store.load_model(model)
            sight.reads.append(read_of("state", state))
            snapshot = take_snapshot(store, model)
            sight.reads.append(read_of("snapshot", snapshot.state, mismatch_of(snapshot)))
        except (Unavailable, CommitConflict):
            if store is not None:
                store.close()
            store = None
        except RowsMissing:  # of a store that went back past a refresh, until it is folded
            continue
        except LetheError as error:
            sight.broken.append(f"a reader of {model}: {type(error).__name__}: {error}")
    if store is not None:
        store.close()


def read_of(who: str, state: ModelState, mismatch: float = 0.0) -> Read:
    """Return what was seen of a state."""
    return Read(who, state.model_id, state.version, state.digest, published_digest(state), mismatch)


def mismatch_of(snapshot: Snapshot) -> float:
    """Return how far the parts of a snapshot are from belonging together, relative.

    X W^T = X A_b^-1 X^T is symmetric for dual rows of one generation; and for a linear model the
    gradient at its running answer is 0 (with preprocessing, the stored one) on exactly the rows
    that it was computed from. A model that
    waits for a rebuild has neither: rows that were inserted meanwhile have no dual rows yet.
    """
    state, rows = snapshot.state, snapshot.rows
    if len(rows) == 0 or state.awaiting_rebuild:
        return 0.0
    some = np.linspace(0, len(rows) - 1, min(8, len(rows))).astype(int)
    worst = 0.0
    if state.meta.config.blocks == 1:
        B = rows.X[some] @ snapshot.W[some].T
        worst = float(np.abs(B - B.T).max() / np.abs(B).max())
    if state.meta.config.kind is Kind.LINEAR:
        theta, solution = state.stream.theta_exact, state.stream.solution
        rows = rows if solution is None else solution.seen(rows)
        pull = (rows.X * rows.weight[:, None]).T @ (rows.X @ theta - rows.y)
        gradient = pull + state.generation.objective.penalty[:, None] * theta
        gradient -= 0.0 if state.stream.gradient is None else state.stream.gradient
        scale = np.abs(rows.X.T @ rows.y).max() + 1.0
        worst = max(worst, float(np.abs(gradient).max() / scale))
    return worst


def receipts_to(
    answer: Callable[[str, str], None], erased: Callable[[str], None], sight: Sight
) -> Callable[[str, bytes], None]:
    """Return what a watcher of receipts, of erasures' receipts and of versions does with each."""

    def on_record(topic: str, value: bytes) -> None:
        said = json.loads(value)
        if topic == topics.VERSIONS:
            sight.live.append(Live("watcher", said["model_id"], said["version"], said["digest"]))
        elif said["status"] in ("DEFERRED", "PENDING") or said.get("code") == "REQUEST_ID_CONFLICT":
            return
        elif topic == topics.ERASURE_RECEIPTS:
            erased(said["erasure_id"])
        else:
            answer(said["model_id"], said["request_id"])

    return on_record
