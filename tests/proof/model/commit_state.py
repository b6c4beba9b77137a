"""Pages 3.2 and 3.3 as states: one commits partition, two models, two workers.

A state is the log, the records in flight, the store and a backup of it, the two workers, and what
was published. EITHER worker may decide ANY undecided request at ANY time: more than rebalances,
zombies and strays can do. A record in flight lands at any later time, or never. Answers are lost,
workers crash anywhere, flushes fail, the store goes back to any earlier state between two scripts.

A worker goes empty -> reading -> applying -> idle (a fold), then idle -> sent -> applying -> idle
(steps 3 to 7). What it has to publish waits in a queue of its own, because step 8 overlaps with
the next poll. Arrays are the rows that they lack; the arrays id is compared as their content.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.proof.model.checker import rule
from tests.proof.model.journal import Heads, Log

Placed = tuple[int, int]
"""A record and its offset."""

EMPTY, READING, IDLE, SENT, APPLYING, HALTED = (
    "empty",
    "reading",
    "idle",
    "sent",
    "applying",
    "halted",
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the commit that can be taken away."""

    gap_read: bool = rule("an append that does not continue the tail reads the gap before it acts")
    gap_published: bool = rule("every valid record of a gap is published, in order")
    apply_cursor: bool = rule("the apply cursor moves only from the end of the valid record before")
    published_cursor: bool = rule("the published cursor moves only over what its mover published")
    prev_compared: bool = rule("apply compares the head with what the record continues")
    arrays_id: bool = rule("apply from memory compares the arrays id, too")
    refold: bool = rule("a fold runs the script of records that heads have already")
    end_after_heads: bool = rule("a fold asks for the log's end after it has read the store")
    lost_connection: bool = rule(
        "single-node: after a lost connection the worker drops its memory and folds"
    )
    one_flush: bool = rule("a flush begins when the one before is acknowledged")
    failed_flush_folds: bool = rule("a failed flush drops the memory and what waits behind it")


APPLY_FIRST, PUBLISH_FIRST, ANY_ORDER = "apply first", "publish first", "any order"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen, and which form of the protocol is run.

    Attributes
    ----------
    requests
        Pairs of a request's id and its model.
    order
        Whether a worker applies a record before it publishes it, after, or in any order.
    overlap
        The next append may be made while flushes are not acknowledged yet; at most two wait.
    slow_reads
        A fold reads the store and the log in two steps, and things happen between them.
    rows_roll_back
        False: deleted rows' records stay erased when the store goes back (partial loss).
    conditional
        Single-node mode: the log refuses a record that does not continue its model, and log and
        store go back together.
    versions_ordered
        Versions are promised to appear in order. Without this promise a worker that goes on after
        a failed flush is harmless, and the published cursor alone keeps what it lost.
    reader
        The second worker holds no partition: it folds, applies and publishes, and never appends.
    """

    requests: tuple[tuple[str, int], ...] = (("a1", 0), ("a2", 0), ("b1", 1))
    appends: int = 3
    crashes: int = 0
    rollbacks: int = 0
    lost_answers: int = 0
    failed_flushes: int = 0
    log_length: int = 6
    pairs: bool = True
    order: str = APPLY_FIRST
    overlap: bool = False
    slow_reads: bool = False
    rows_roll_back: bool = True
    conditional: bool = False
    reader: bool = False
    versions_ordered: bool = True


class Budget(NamedTuple):
    """What may still happen."""

    appends: int
    crashes: int
    rollbacks: int
    lost_answers: int
    failed_flushes: int


class Arrays(NamedTuple):
    """V and Q of one model: the rows that they lack; `awaiting` when they cannot be made."""

    lacking: frozenset[str]
    awaiting: bool


class Store(NamedTuple):
    """What Redis holds for the partition."""

    heads: Heads
    applied: int
    published: int
    arrays: tuple[Arrays, ...]


class Publication(NamedTuple):
    """One flush: the records still to send, and the part of the log that it covers."""

    records: tuple[int, ...]
    start: int
    end: int


class Worker(NamedTuple):
    """What a worker has in memory.

    `tail` is the end of the log that it knows, `valid_end` the end of the last valid record in it:
    there are only void ones between. `view` and `end` are the store and the log's end as
    a fold read them. `todo` are the valid records to apply; the apply cursor may be moved by the
    first of them if it stands at `covered` or past it. `waiting` is published after the applying.
    """

    phase: str = EMPTY
    heads: Heads = ()
    arrays: tuple[Arrays, ...] | None = None
    tail: int = 0
    valid_end: int = 0
    view: Store | None = None
    end: int = 0
    sent: tuple[int, ...] = ()
    todo: tuple[Placed, ...] = ()
    covered: int = 0
    folding: bool = False
    refused: bool = False
    waiting: Publication | None = None
    queue: tuple[Publication, ...] = ()


class Folded(NamedTuple):
    """What a fold has found: heads, what to apply, and what to publish."""

    heads: Heads
    apply: tuple[Placed, ...]
    publish: tuple[int, ...]


class State(NamedTuple):
    """Everything; see the module."""

    log: Log
    flight: tuple[int, ...]
    store: Store
    backup: tuple[Store, Log]
    erased: frozenset[str]
    workers: tuple[Worker, ...]
    published: frozenset[int]
    first_seen: tuple[tuple[int, ...], ...]
    budget: Budget


def with_worker(state: State, number: int, worker: Worker) -> State:
    """Put a worker in its place."""
    workers = (worker, state.workers[1]) if number == 0 else (state.workers[0], worker)
    return state._replace(workers=workers)


def with_arrays(arrays: tuple[Arrays, ...], model: int, changed: Arrays) -> tuple[Arrays, ...]:
    """Put the arrays of one model in their place."""
    return (changed, arrays[1]) if model == 0 else (arrays[0], changed)
