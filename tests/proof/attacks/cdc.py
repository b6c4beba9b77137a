"""Attacks by somebody who may write to the topic of a table's captured changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from lethe.consumers.contract import topics
from lethe.consumers.log.base import TopicSpec
from lethe.consumers.workers.intake_worker import IntakeWorker, read_shapes
from tests.proof.attacks.attack import Act, Attack, Trace
from tests.proof.attacks.world import LINE, World
from tests.support.captured import CUSTOMERS, envelope, mapping_of

TOPIC = CUSTOMERS["topic"]
ROW, KEY = {"id": "row-40"}, {"id": "row-40"}


def captured(
    value: Any, key: Any = KEY, *, letters: int = 1, copies: int = 1, headers: Any = (),
    **table: Any,
) -> Act:  # fmt: skip
    """Return what writes a record, which the intake worker must refuse: it sends no request."""

    def act(world: World) -> Sequence[Trace]:
        world.log.ensure_topics([TopicSpec(TOPIC)])
        mapping = mapping_of({"models": [LINE], "key": {"id": "text"}, **table})
        name = key if isinstance(key, bytes) else json.dumps(key).encode()
        sent = [world.forge(TOPIC, name, value, headers) for _ in range(copies)]
        before = len(world.platform.records(topics.DELETIONS))
        changes = len(world.platform.records(topics.ROW_CHANGES))
        store = world.platform.new_store()
        worker = IntakeWorker(world.platform.log, store, mapping, read_shapes(store, mapping))
        with closing(store), closing(worker):
            while not worker.run_once(0.02):
                pass
            worker.run_once(0.02)
        after = len(world.platform.records(topics.DELETIONS)) - before
        after += len(world.platform.records(topics.ROW_CHANGES)) - changes
        found = [
            one.value
            for one in world.platform.dead_letters()
            if TOPIC.encode() in dict(one.headers).get("lethe-source", b"")
        ]
        values = any(b"row-40" in (one or b"") for one in found)
        return [
            sent[-1],
            Trace("requests, dead letters, values in them", lambda: (after, len(found), values),
                  (0, letters, False)),
        ]  # fmt: skip

    return act


def deletion(**source: Any) -> dict[str, Any]:
    return envelope("d", before=ROW, **source)


ATTACKS = (
    Attack(
        "a record of another connector",
        "Writes a deletion as another connector's.",
        "The connector must be the mapping's: a dead letter.",
        captured(deletion(name="other")),
    ),
    Attack(
        "a record of another table",
        "Writes a deletion of another table to this one's topic.",
        "The table must be the mapping's: a dead letter.",
        captured(deletion(table="orders")),
    ),
    Attack(
        "a record of another database system",
        "Writes a deletion as MySQL's connector would.",
        "Only PostgreSQL's connector is read: a dead letter.",
        captured(deletion(connector="mysql")),
    ),
    Attack(
        "an operation that is none",
        "Writes a record with the operation `x`.",
        "A dead letter.",
        captured(envelope("x", before=ROW)),
    ),
    Attack(
        "a truncation",
        "Writes that the table was emptied.",
        "`TABLE_TRUNCATED`, a dead letter: a record that names no row deletes none.",
        captured(envelope("t"), b""),
    ),
    Attack(
        "a key that is a fraction",
        "Names the row by a number with a fraction.",
        "A key column has its type: a dead letter.",
        captured(envelope("d", before={"id": 40.5}), {"id": 40.5}),
    ),
    Attack(
        "a key that is null",
        "Names the row by null.",
        "A dead letter.",
        captured(envelope("d", before={"id": None}), {"id": None}),
    ),
    Attack(
        "a deletion without a place",
        "Writes a deletion without its place in the database's log, "
        "so that its repeats are other requests.",
        "A dead letter.",
        captured(deletion(lsn=None)),
    ),
    Attack(
        "a tombstone",
        "Writes a null record, as after a deletion.",
        "It asks for nothing.",
        captured(None, letters=0),
    ),
    Attack(
        "a snapshot",
        "Writes rows as read by a snapshot.",
        "It asks for nothing.",
        captured(envelope("r", after=ROW), letters=0),
    ),
    Attack(
        "an update",
        "Writes that a row was updated, where updates are ignored.",
        "It asks for nothing.",
        captured(envelope("u", before=ROW, after=ROW), letters=0),
    ),
    Attack(
        "a deep record",
        "Writes JSON that is nested 100,000 deep.",
        "A dead letter.",
        captured(b"[" * 100_000, b"{}"),
    ),
    Attack(
        "a long record",
        "Writes a record of 9 MB.",
        "Over 8 MiB it is not parsed: a dead letter.",
        captured(b'{"x":"' + b"x" * (9 << 20) + b'"}'),
    ),
    Attack(
        "garbage among changes",
        "Writes bytes that are no JSON, with a row's values.",
        "A dead letter, which holds a digest and no values.",
        captured(b'{"id": "row-40"'),
    ),
    Attack(
        "a subject of no characters",
        "Writes a deletion whose person is an empty text, where "
        "a deleted row asks for all rows of its person.",
        "An empty value may be the connector's invention: a dead letter.",
        captured(
            envelope("d", before={**ROW, "household": ""}),
            deletes="subject",
            subject={"household": "text"},
            replica_identity="full",
        ),
    ),
)
