"""Attacks by somebody who may write to the topics of evidence: readers trust the workers' key."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from lethe.consumers.contract import topics, version_chain
from lethe.consumers.contract.erasure_events import SUBJECT_ERASURE_COMPLETED
from lethe.consumers.contract.events import DELETION_RECEIPT, MODEL_PARAMETERS, MODEL_VERSION
from lethe.consumers.contract.signatures import HEADER, Signer
from lethe.consumers.log.base import Record
from lethe.consumers.subscriber.subscriber import ModelSubscriber
from lethe.consumers.suppression.marks import marks_of
from tests.proof.attacks.attack import Act, Attack, Trace
from tests.proof.attacks.world import LINE, LOGIT, STRANGER, TRUSTED, World

TYPES = {
    topics.RECEIPTS: DELETION_RECEIPT,
    topics.VERSIONS: MODEL_VERSION,
    topics.MODELS: MODEL_PARAMETERS,
    topics.ERASURE_RECEIPTS: SUBJECT_ERASURE_COMPLETED,
}
Change = Callable[[dict[str, Any]], object]


def newest(world: World, topic: str, key: str) -> Record:
    """Return the newest true record of a key."""
    return [one for one in world.platform.records(topic) if one.key == key.encode()][-1]


def forges(
    topic: str,
    key: str,
    change: Change = lambda _event: None,
    *,
    signer: Signer | None = None,
    keep: bool = False,
    to: str = "",
    copies: int = 1,
) -> Act:
    """Return what writes a true event again with changes: unsigned, signed, or as it was signed.

    ``to`` is the key that it is written under, and ``key`` that of the true one.
    """

    def act(world: World) -> Sequence[Trace]:
        true = newest(world, topic, key)
        event = json.loads(true.value or b"")
        change(event)
        value = json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()
        headers = true.headers if keep else tuple(h for h in true.headers if h[0] != HEADER)
        if signer is not None:
            headers = signer.signed(TYPES[topic], value, headers)
        return [world.forge(topic, to or key, value, headers) for _ in range(copies)][-1:]

    return act


def claims(request_id: str, **members: Any) -> Change:
    """Return what makes a receipt one of another request."""
    return lambda event: event.update(
        request_id=request_id, status="APPLIED", code=None, rows_deleted=7, **members
    )


def completes(erasure_id: str, **members: Any) -> Change:
    """Return what makes a combined receipt one of another erasure."""
    return lambda event: event.update(erasure_id=erasure_id, **members)


def relinked(**members: Any) -> Change:
    """Return what makes a version another one, whose digest is right."""

    def change(event: dict[str, Any]) -> None:
        event |= {name: value(event) for name, value in members.items()}
        event["digest"] = version_chain.content_digest(event)

    return change


following = relinked(
    version=lambda event: event["version"] + 1,
    prev_digest=lambda event: event["digest"],
    rows_live=lambda _event: 3,
)


def writes(topic: str, key: str, value: Any) -> Act:
    """Return what writes anything."""
    return lambda world: [world.forge(topic, key, value)]


def borrows(topic: str, of: str) -> Act:
    """Return what writes a true, signed event of one topic to another."""

    def act(world: World) -> Sequence[Trace]:
        true = newest(world, of, LINE)
        return [world.forge(topic, LINE, true.value, true.headers)]

    return act


def backwards(topic: str) -> Act:
    """Return what writes everything of a topic again, the newest first, as it was signed."""

    def act(world: World) -> Sequence[Trace]:
        world.work()
        return [
            world.forge(topic, one.key, one.value, one.headers)
            for one in reversed(world.platform.records(topic))
        ]

    return act


def two_signatures(world: World) -> Sequence[Trace]:
    true = newest(world, topics.RECEIPTS, LINE)
    headers = (*true.headers, *STRANGER.signed(DELETION_RECEIPT, true.value or b"", ()))
    return [world.forge(topics.RECEIPTS, LINE, true.value, headers)]


def of_an_erasure(world: World, change: Change, signer: Signer | None) -> Sequence[Trace]:
    [true] = [
        one for one in world.platform.records(topics.ERASURE_RECEIPTS)
        if json.loads(one.value or b"")["complete"]
    ]  # fmt: skip
    event = json.loads(true.value or b"")
    change(event)
    value = json.dumps(event).encode()
    headers = () if signer is None else signer.signed(SUBJECT_ERASURE_COMPLETED, value, ())
    return [world.forge(topics.ERASURE_RECEIPTS, "x", value, headers)]


def erasure(change: Change, signer: Signer | None = None) -> Act:
    return lambda world: of_an_erasure(world, change, signer)


def lends_an_erasures_signature(world: World) -> Sequence[Trace]:
    [true] = [
        one for one in world.platform.records(topics.ERASURE_RECEIPTS)
        if json.loads(one.value or b"")["complete"]
    ]  # fmt: skip
    value = (true.value or b"").replace(b"old-erasure", b"before-erasure")
    return [world.forge(topics.ERASURE_RECEIPTS, "x", value, true.headers)]


def stale_erasure_receipts(world: World) -> Sequence[Trace]:
    """Write the receipt of before the end again, after the end."""
    world.work()
    pending = [
        one for one in world.platform.records(topics.ERASURE_RECEIPTS)
        if json.loads(one.value or b"")["status"] == "PENDING"
    ]  # fmt: skip
    return [
        world.forge(topics.ERASURE_RECEIPTS, one.key, one.value, one.headers) for one in pending
    ]


def compacts_away(world: World) -> Sequence[Trace]:
    """Write a null record, and remove what is before it, as compaction does."""
    world.work()
    place = world.log.reader().partition_for(topics.MODELS, LINE.encode())
    end = world.log.bounds(place).end
    trace = world.forge(topics.MODELS, LINE, None)
    world.log.trim(place, end)
    with ModelSubscriber(world.platform.log, world.client, TRUSTED) as subscriber:
        loaded = subscriber.latest(LINE).version
    version = world.platform.load(LINE).version
    return [trace, Trace("what a subscriber loads meanwhile", lambda: loaded, version)]


# -- the suppression list -------------------------------------------------------------------------


def takes_off_the_list(world: World) -> Sequence[Trace]:
    """Remove an erased person's mark from the topic, as compaction would."""
    [one] = [
        r for r in world.platform.records(topics.SUPPRESSIONS) if b"old-erasure" in (r.value or b"")
    ]
    return [world.forge(topics.SUPPRESSIONS, one.key, None)]


def repeats_a_mark(world: World) -> Sequence[Trace]:
    return [
        world.forge(topics.SUPPRESSIONS, one.key, one.value)
        for one in world.platform.records(topics.SUPPRESSIONS)
    ] * 2


def mark_of_no_secret(world: World) -> Sequence[Trace]:
    """List somebody under a seal key that nobody has."""
    mark = "f" * 16 + ":" + "0" * 64
    [one] = [
        r for r in world.platform.records(topics.SUPPRESSIONS) if b"old-erasure" in (r.value or b"")
    ]
    value = json.loads(one.value or b"") | {"mark": mark}
    return [world.forge(topics.SUPPRESSIONS, mark, value)]


def without_secrets(world: World) -> None:
    """``DEL lethe:{erased}:secrets``"""
    assert world.client.delete("lethe:{erased}:secrets") == 1


def a_mark_under_another_key(world: World) -> Sequence[Trace]:
    """Say under one person's key that another is not erased any more."""
    [mark, *_] = marks_of(world.platform.seals, "", "subject-1")
    [one] = [
        r for r in world.platform.records(topics.SUPPRESSIONS) if b"old-erasure" in (r.value or b"")
    ]
    value = json.loads(one.value or b"") | {"lifted": True, "offset": 99}
    assert one.key == mark.encode()
    return [world.forge(topics.SUPPRESSIONS, b"x" + mark.encode(), value)]


NOT_BELIEVED = "Where keys are trusted, a record that none of them signed does not exist."

ATTACKS = (
    Attack(
        "a receipt without a signature",
        "Writes the receipt of a request that nobody has decided.",
        NOT_BELIEVED,
        forges(topics.RECEIPTS, LINE, claims("before-line")),
    ),
    Attack(
        "a receipt that a stranger signed",
        "Writes the receipt of a request that nobody has decided, signed by a key of their own.",
        NOT_BELIEVED,
        forges(topics.RECEIPTS, LINE, claims("before-line"), signer=STRANGER),
    ),
    Attack(
        "a receipt's signature on another receipt",
        "Changes the request in a true receipt, and keeps its signature.",
        "The signature covers the value, byte for byte.",
        forges(topics.RECEIPTS, LINE, claims("before-line"), keep=True),
    ),
    Attack(
        "a receipt of a request to come",
        "Writes the receipt of a request that is sent later.",
        NOT_BELIEVED,
        forges(topics.RECEIPTS, LINE, claims("after-line")),
    ),
    Attack(
        "a receipt that rejects",
        "Writes that a waiting request was rejected, so that its sender gives up.",
        NOT_BELIEVED,
        forges(
            topics.RECEIPTS,
            LINE,
            lambda event: event.update(
                request_id="before-line", status="REJECTED", code="UNKNOWN_ROWS", rows_deleted=0
            ),
        ),
    ),
    Attack(
        "a true receipt under another model's key",
        "Writes a true, signed receipt under another model's key.",
        "The signed value names the model.",
        forges(topics.RECEIPTS, LINE, keep=True, to=LOGIT),
    ),
    Attack(
        "a version for a receipt",
        "Writes a true, signed version to the topic of receipts.",
        "A signature covers the type, which follows from the topic.",
        borrows(topics.RECEIPTS, topics.VERSIONS),
    ),
    Attack(
        "a receipt with two signatures",
        "Adds a stranger's signature to a true receipt.",
        "Two signatures are none; the true record beside it stands.",
        two_signatures,
    ),
    Attack(
        "old receipts again",
        "Writes all true receipts again, backwards.",
        "Repeats are dropped; a final receipt is not replaced.",
        backwards(topics.RECEIPTS),
    ),
    Attack(
        "garbage among receipts",
        "Writes bytes that are no receipt.",
        "It is passed over.",
        writes(topics.RECEIPTS, LINE, b"\xff"),
    ),
    Attack(
        "a receipt without value",
        "Writes a null record to the topic of receipts.",
        "It is passed over.",
        writes(topics.RECEIPTS, LINE, None),
    ),
    Attack(
        "a receipt of a thousand levels",
        "Writes JSON that is nested 100,000 deep.",
        "It is not signed, and so not parsed.",
        writes(topics.RECEIPTS, LINE, b"[" * 100_000),
    ),
    Attack(
        "an erasure that seems complete",
        "Writes that a waiting erasure is complete, so that it is never done.",
        NOT_BELIEVED,
        erasure(completes("before-erasure")),
    ),
    Attack(
        "an erasure that a stranger completes",
        "Writes that a waiting erasure is complete, signed by a key of their own.",
        NOT_BELIEVED,
        erasure(completes("before-erasure"), STRANGER),
    ),
    Attack(
        "an erasure's signature on another",
        "Puts another id into a true combined receipt, and keeps its signature.",
        "The signature covers the value, byte for byte.",
        lends_an_erasures_signature,
    ),
    Attack(
        "an erasure that seems refused",
        "Writes that a waiting erasure was rejected.",
        NOT_BELIEVED,
        erasure(
            completes(
                "before-erasure", status="REJECTED", complete=False, code="REQUEST_ID_CONFLICT"
            )
        ),
    ),
    Attack(
        "an erasure that waits again",
        "Writes the true `PENDING` receipt of a finished erasure again.",
        "The first final receipt counts.",
        stale_erasure_receipts,
    ),
    Attack(
        "garbage among combined receipts",
        "Writes bytes that are no combined receipt.",
        "It is passed over.",
        writes(topics.ERASURE_RECEIPTS, "x", b"\x00"),
    ),
    Attack(
        "the next version",
        "Writes a version that follows the newest, unsigned.",
        NOT_BELIEVED,
        forges(topics.VERSIONS, LINE, following),
    ),
    Attack(
        "the next version by a stranger",
        "Writes a version that follows the newest, signed by a key of their own.",
        NOT_BELIEVED,
        forges(topics.VERSIONS, LINE, following, signer=STRANGER),
    ),
    Attack(
        "a second version of a number",
        "Writes a version beside the newest, of the same number.",
        NOT_BELIEVED,
        forges(topics.VERSIONS, LINE, relinked(rows_live=lambda _event: 3)),
    ),
    Attack(
        "a version far ahead",
        "Writes a version with the number 10^12.",
        NOT_BELIEVED,
        forges(topics.VERSIONS, LINE, relinked(version=lambda _event: 10**12)),
    ),
    Attack(
        "a version of another model",
        "Writes one model's signed version under another's key.",
        "The signed value names the model.",
        forges(topics.VERSIONS, LOGIT, keep=True, to=LINE),
    ),
    Attack(
        "garbage among versions",
        "Writes bytes that are no version.",
        NOT_BELIEVED,
        writes(topics.VERSIONS, LINE, b"{"),
    ),
    Attack(
        "old versions again",
        "Writes all true versions again, backwards, to roll readers back.",
        "A version that was seen is a repeat.",
        backwards(topics.VERSIONS),
    ),
    Attack(
        "other numbers for a version",
        "Writes parameters with other numbers, and the digest of the newest version.",
        NOT_BELIEVED,
        forges(topics.MODELS, LINE, lambda event: event.update(theta=[9.0, 9.0, 9.0, 9.0])),
    ),
    Attack(
        "numbers that are not finite",
        "Writes parameters with a number of 1e999.",
        NOT_BELIEVED,
        forges(topics.MODELS, LINE, lambda event: event.update(theta=[1e999, 0, 0, 0])),
    ),
    Attack(
        "parameters that are elsewhere",
        "Writes parameters without numbers, whose address is another model's key.",
        NOT_BELIEVED + " A subscriber follows an address to its own model's key alone.",
        forges(
            topics.MODELS,
            LINE,
            lambda event: event.update(
                theta=None, intercept=None, uri="lethe-store:lethe:{c00}:logit:head#published"
            ),
        ),
    ),
    Attack(
        "parameters at a web address",
        "Writes parameters whose address is on the web, to have readers call it.",
        NOT_BELIEVED + " No such address is followed.",
        forges(
            topics.MODELS,
            LINE,
            lambda event: event.update(theta=None, intercept=None, uri="http://169.254.169.254/"),
        ),
    ),
    Attack(
        "old parameters again",
        "Writes all true parameters again, backwards.",
        "The newest version names the parameters that are its own.",
        backwards(topics.MODELS),
    ),
    Attack(
        "no parameters",
        "Writes a null record, which has compaction remove the newest.",
        "It is passed over; parameters that are gone are read from the store, or come with the "
        "next version.",
        compacts_away,
    ),
    Attack(
        "a person off the list",
        "Writes a null record under an erased person's mark.",
        "A null record takes nobody off the list.",
        takes_off_the_list,
    ),
    Attack(
        "a mark under another key",
        "Writes that a person is not erased any more, under another record key.",
        "A mark must be its record's key.",
        a_mark_under_another_key,
    ),
    Attack("marks again", "Writes all marks again.", "They say what they said.", repeats_a_mark),
    Attack(
        "garbage on the list",
        "Writes bytes that are no mark.",
        "It is passed over.",
        writes(topics.SUPPRESSIONS, "x", b"\xff"),
    ),
    Attack(
        "a mark under no seal key",
        "Lists somebody under a seal key that nobody has, so that workers cannot read the list.",
        "Processes that need the list stop (`KEY_UNKNOWN`) rather than go on without it, until "
        "`lethe:{erased}:secrets` is deleted in the store.",
        mark_of_no_secret,
        remedy=without_secrets,
        not_stopped=True,
    ),
    Attack(
        "a dead letter of a waiting request",
        "Writes a dead letter that names a waiting request, so that it seems lost.",
        "A receipt ends what a dead letter says.",
        lambda world: [
            world.forge(
                topics.DEAD_LETTERS,
                LINE,
                {"request_id": "before-line", "model_id": LINE},
                (
                    ("lethe-error-code", b"INVALID_REQUEST"),
                    ("lethe-error", b"no"),
                    ("lethe-source", b"lethe.deletions/1/0"),
                ),
            )
        ],
    ),
    Attack(
        "a dead letter of nothing",
        "Writes bytes to the dead letters that no worker wrote.",
        "It is shown as what it is: a letter without a source.",
        writes(topics.DEAD_LETTERS, "x", b"\x00\xff"),
    ),
)
