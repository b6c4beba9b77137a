"""Attacks by somebody who may write to the topics of requests, where each request must be signed.

The attacker has no key, or one that is for the model `LINE` alone, or has seen what others signed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lethe.consumers.contract import topics
from lethe.consumers.contract.signatures import HEADER, Signer
from lethe.consumers.log.base import Headers
from tests.proof.attacks.attack import Act, Attack, Mark, Trace, letter, sends
from tests.proof.attacks.world import DESK, LINE, LOGIT, SCOPED, STRANGER, World

DELETION, CHANGE = "lethe.deletion.requested.v1", "lethe.rows.changed.v1"
ERASURE = "lethe.subject.erasure.requested.v1"
_ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of the curve: a signature's second half is a number below it."""

refused = letter("UNAUTHENTICATED")
BODY: Mapping[str, Any] = {"request_id": "a-1", "model_id": LINE, "row_ids": ["row-40"]}


def signs(
    signer: Signer,
    *marks: Mark,
    topic: str = topics.DELETIONS,
    event: str = DELETION,
    body: Mapping[str, Any] = BODY,
    key: str | None = None,
    more: Headers = (),
) -> Act:
    """Return what sends something signed as an event of a type."""
    value = json.dumps(body).encode()
    name = body.get("model_id", "x") if key is None else key
    return sends(topic, name, value, *marks, headers=(*more, *signer.signed(event, value, ())))


def altered(change: Callable[[bytes], Sequence[bytes]]) -> Act:
    """Return what sends a request of the desk's with another signature."""
    value = json.dumps(BODY).encode()
    signature = dict(DESK.signed(DELETION, value, ()))[HEADER]
    headers = tuple((HEADER, one) for one in change(signature))
    return sends(topics.DELETIONS, LINE, value, refused, headers=headers)


def with_the_order_added(signature: bytes) -> Sequence[bytes]:
    """Return another signature that the same equation accepts, if nobody checks its range."""
    start, _, coded = signature.rpartition(b":")
    raw = base64.b64decode(coded)
    number = int.from_bytes(raw[32:], "little") + _ORDER
    return [start + b":" + base64.b64encode(raw[:32] + number.to_bytes(32, "little"))]


def other_trailing_bits(signature: bytes) -> Sequence[bytes]:
    """Return a signature whose base64 has other bits where none count."""
    return [signature[:-3] + bytes([signature[-3] + 1]) + signature[-2:]]


def replayed_as(topic: str, key: str, *marks: Mark) -> Act:
    """Return what sends a request that the desk has signed to another place."""

    def act(world: World) -> Sequence[Trace]:
        [true] = [
            one
            for one in world.platform.records(topics.DELETIONS)
            if b'"before-line"' in (one.value or b"")
        ]
        sent = world.forge(topic, key, true.value, true.headers)
        return [sent, *(mark(world) for mark in marks)]

    return act


def replayed_with_another_id(world: World) -> Sequence[Trace]:
    """Replay a signed request whose value names another id than its header."""
    value = json.dumps({"model_id": LINE, "row_ids": ["row-40"]}).encode()
    signed = DESK.signed(DELETION, value, ())
    world.forge(topics.DELETIONS, LINE, value, (*signed, ("ce_id", b"a-1")))
    sent = world.forge(topics.DELETIONS, LINE, value, (*signed, ("ce_id", b"a-2")))
    return [sent, world.letters("UNAUTHENTICATED", 2)]


def replayed_after_all(world: World) -> Sequence[Trace]:
    """Replay everything that was ever signed."""
    world.work()
    old = [
        one
        for topic in (topics.DELETIONS, topics.ROW_CHANGES)
        for one in world.platform.records(topic)
    ]
    traces = [world.forge(one.partition.topic, one.key, one.value, one.headers) for one in old]
    return traces


def takes_the_erasures_id(world: World) -> Sequence[Trace]:
    """Use the id of a request that an erasure is about to become, before it does."""
    from lethe.consumers.erasures.fan_out import request_id_of
    from lethe.consumers.erasures.models import read_models

    [line] = [one for one in read_models(world.store).registered if one.model_id == LINE]
    name = request_id_of("before-erasure", line)
    return signs(SCOPED, refused, body={**BODY, "request_id": name, "row_ids": ["nobody"]})(world)


ATTACKS = (
    Attack(
        "no signature",
        "Sends a request without a signature.",
        "It goes to dead letters (`UNAUTHENTICATED`), and its id is not used up.",
        sends(topics.DELETIONS, LINE, dict(BODY), refused),
    ),
    Attack(
        "an unsigned request under another's id",
        "Sends an unsigned request under the id of one that waits, to answer for it.",
        "No receipt: the true request is processed under its id.",
        sends(topics.DELETIONS, LINE, {**BODY, "request_id": "after-line"}, refused),
    ),
    Attack(
        "a stranger's signature",
        "Signs with a key that is on no list.",
        "`UNAUTHENTICATED`.",
        signs(STRANGER, refused),
    ),
    Attack(
        "a stranger under another's key id",
        "Signs with a key of their own, and writes the id of a listed key beside it.",
        "The signature is checked with the listed key.",
        altered(
            lambda true: [
                b":".join(
                    [
                        *true.split(b":")[:2],
                        dict(STRANGER.signed(DELETION, json.dumps(BODY).encode(), ()))[
                            HEADER
                        ].split(b":")[2],
                    ]
                )
            ]
        ),
    ),
    Attack(
        "two signatures",
        "Adds a second signature, so that two readers check another one each.",
        "A record has one signature or none.",
        altered(lambda true: [true, true]),
    ),
    Attack(
        "a signature of no bytes",
        "Leaves the header of the signature empty.",
        "The header must have its form.",
        altered(lambda _true: [b""]),
    ),
    Attack(
        "a malleable signature",
        "Adds the order of the curve to a true signature, which makes another one.",
        "Such a number is refused; and an id decides, not a signature.",
        altered(with_the_order_added),
    ),
    Attack(
        "a signature in capitals",
        "Writes the key id of a true signature in capitals.",
        "The header must have its form.",
        altered(lambda true: [true.upper()]),
    ),
    Attack(
        "another model's request",
        "Uses a key that is for one model to delete from another.",
        "The key's patterns are compared with the model in the signed value.",
        signs(SCOPED, refused, body={**BODY, "model_id": LOGIT}),
    ),
    Attack(
        "another model in the key of the record",
        "Signs a request to the model that the key is for, and sends it under another model's key.",
        "A key that contradicts the signed value makes it unsigned.",
        signs(SCOPED, refused, key=LOGIT),
    ),
    Attack(
        "another model's changes of rows",
        "Uses a key that is for one model to insert into another.",
        "The same list holds for changes of rows.",
        signs(
            SCOPED,
            refused,
            topic=topics.ROW_CHANGES,
            event=CHANGE,
            body={
                "request_id": "a-1",
                "model_id": LOGIT,
                "op": "insert",
                "rows": [{"id": "x-1", "values": [0.1] * 4, "target": 1}],
            },
        ),
    ),
    Attack(
        "an erasure by the key of one model",
        "Uses a key that is for one model to erase a person from all.",
        "An erasure takes a key for every model.",
        signs(
            SCOPED,
            refused,
            topic=topics.ERASURES,
            event=ERASURE,
            body={"erasure_id": "a-1", "subject_id": "subject-20"},
        ),
    ),
    Attack(
        "a deletion's signature on an erasure",
        "Signs an erasure as a deletion request, whose type a signature covers.",
        "The type follows from the topic, and is part of what is signed.",
        signs(
            DESK,
            refused,
            topic=topics.ERASURES,
            event=DELETION,
            body={"erasure_id": "a-1", "subject_id": "subject-20", **BODY},
        ),
    ),
    Attack(
        "an erasure's signature on a deletion",
        "Sends a signed erasure to the topic of deletions.",
        "The type follows from the topic.",
        signs(DESK, refused, event=ERASURE),
    ),
    Attack(
        "a signed request in another topic",
        "Sends a deletion that the desk has signed to the topic of row changes.",
        "The type follows from the topic.",
        replayed_as(topics.ROW_CHANGES, LINE, refused),
    ),
    Attack(
        "a signed request to another model",
        "Sends a deletion that the desk has signed under another model's key.",
        "The signed value names the model.",
        replayed_as(topics.DELETIONS, LOGIT, refused),
    ),
    Attack(
        "a signed request again",
        "Sends a signed request a second time, to have it applied twice.",
        "Its id is in the signed value: it is the same request.",
        replayed_as(topics.DELETIONS, LINE),
    ),
    Attack(
        "a signed request under another id",
        "Takes a signed value without an id, and gives it two ids in headers.",
        "The id must be in the signed value.",
        replayed_with_another_id,
    ),
    Attack(
        "everything that was ever signed",
        "Replays all signed requests of both topics at the end.",
        "Each gets its first receipt again.",
        replayed_after_all,
    ),
    Attack(
        "the id of an erasure's request",
        "Learns from the store which request an erasure will become, and uses its id first, by a "
        "key that is for one model.",
        "Such a key may not use ids of that form.",
        takes_the_erasures_id,
    ),
    Attack(
        "a type of one's own",
        "Says in `ce_type` that the record is the result of a refresh, which needs no signature, "
        "and gives it rows.",
        "It only names a job, and its rows are not looked at.",
        sends(
            topics.DELETIONS,
            LINE,
            {**BODY, "job_id": "a-1"},
            headers=(
                ("ce_specversion", b"1.0"),
                ("ce_type", b"lethe.refresh.completed.v1"),
                ("ce_source", b"/x"),
                ("ce_id", b"a-1"),
            ),
        ),
    ),
    Attack(
        "a member that is not covered",
        "Wraps a signed value into an envelope whose own members say another model.",
        "What is signed is the record's value, byte for byte.",
        signs(
            SCOPED,
            refused,
            body={
                "specversion": "1.0",
                "type": DELETION,
                "source": "/x",
                "id": "a-1",
                "data": {**BODY, "model_id": LOGIT},
            },
            key=LOGIT,
            more=(("content-type", b"application/cloudevents+json"),),
        ),
    ),
)
