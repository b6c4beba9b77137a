"""Attacks by somebody who may write to ``lethe.erasures``, where nobody has to sign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from tests.proof.attacks.attack import Act, Attack, Mark, Trace, letter, sends
from tests.proof.attacks.world import World


def answered(erasure_id: str, *wanted: tuple[str, str | None]) -> Mark:
    """The final combined receipts of an erasure are these: status and code."""

    def mark(world: World) -> Trace:
        def found() -> set[tuple[str, str | None]]:
            values = [r.value or b"" for r in world.platform.records(topics.ERASURE_RECEIPTS)]
            read = [SubjectErasureCompleted.read(value) for value in values]
            return {(r.status, r.code) for r in read if r.erasure_id == erasure_id and r.final}

        return Trace(f"receipts of {erasure_id}", found, set(wanted))

    return mark


def erases(erasure_id: str, subject: Any, *marks: Mark, **members: Any) -> Act:
    """Return what sends an erasure or a lift."""
    body = {"erasure_id": erasure_id, "subject_id": subject, **members}
    return sends(topics.ERASURES, str(subject), body, *marks)


CONFLICT = ("REJECTED", "REQUEST_ID_CONFLICT")


def of_nobody(world: World) -> Sequence[Trace]:
    """Erase 100 people whom nobody knows."""
    traces = [
        world.forge(topics.ERASURES, "x", {"erasure_id": f"a-{i}", "subject_id": f"nobody-{i}"})
        for i in range(100)
    ]
    return [traces[-1], answered("a-99", ("COMPLETE", None))(world)]


def again_and_again(world: World) -> Sequence[Trace]:
    """Send an answered erasure 50 times, and a waiting one."""
    return [
        world.forge(topics.ERASURES, subject, {"erasure_id": name, "subject_id": subject})
        for _ in range(25)
        for name, subject in (("old-erasure", "subject-1"), ("before-erasure", "subject-8"))
    ][-1:]


ATTACKS = (
    Attack(
        "an answered erasure's id",
        "Erases somebody under the id of an answered erasure.",
        "The receipt is bound to its subject: `REQUEST_ID_CONFLICT`.",
        erases("old-erasure", "subject-20", answered("old-erasure", ("COMPLETE", None), CONFLICT)),
    ),
    Attack(
        "a waiting erasure's id",
        "Erases somebody under the id of an erasure that waits.",
        "The order of the log: `REQUEST_ID_CONFLICT`.",
        erases(
            "before-erasure", "subject-20", answered("before-erasure", ("COMPLETE", None), CONFLICT)
        ),
    ),
    Attack(
        "a lift under an erasure's id",
        "Lifts an erasure under that erasure's own id.",
        "What a receipt is bound to says whether it is a lift: `REQUEST_ID_CONFLICT`.",
        erases(
            "old-erasure",
            "subject-1",
            answered("old-erasure", ("COMPLETE", None), CONFLICT),
            lift=True,
        ),
    ),
    Attack(
        "a lift before the end",
        "Lifts an erasure that is not finished, to stop it.",
        "`ERASURE_PENDING`.",
        erases("a-1", "subject-8", answered("a-1", ("REJECTED", "ERASURE_PENDING")), lift=True),
    ),
    Attack(
        "a lift in another namespace",
        "Lifts the erasure of somebody of the same id elsewhere.",
        "A mark is of namespace and subject.",
        erases("a-1", "subject-1", answered("a-1", ("COMPLETE", None)), lift=True, namespace="crm"),
    ),
    Attack(
        "a lift of another spelling",
        "Lifts the erasure of `Subject-1`.",
        "A mark is of the bytes of the id.",
        erases("a-1", "Subject-1", answered("a-1", ("COMPLETE", None)), lift=True),
    ),
    Attack(
        "a namespace that runs into the subject",
        "Splits a person's id between namespace and subject in another way.",
        "A mark is made of both with their lengths.",
        erases("a-1", "ject-1", answered("a-1", ("COMPLETE", None)), lift=True, namespace="sub"),
    ),
    Attack(
        "a lift that is text",
        "Gives `lift` as the text `true`.",
        "A dead letter.",
        erases("a-1", "subject-1", letter(), lift="true"),
    ),
    Attack(
        "somebody of another spelling",
        "Erases `SUBJECT-20`, so that a receipt says complete and the person stays.",
        "The receipt says that nobody knows the subject, and which models know a similar one.",
        erases("a-1", "SUBJECT-20", answered("a-1", ("COMPLETE", None))),
    ),
    Attack(
        "everybody",
        "Erases the subject `*`, and one of no characters.",
        "Nothing is a pattern.",
        lambda world: [
            *erases("a-1", "*", answered("a-1", ("COMPLETE", None)))(world),
            *erases("a-2", "", letter())(world),
        ],
    ),
    Attack(
        "an erasure without subject",
        "Sends an erasure that names nobody.",
        "A dead letter.",
        sends(topics.ERASURES, "x", {"erasure_id": "a-1"}, letter()),
    ),
    Attack(
        "garbage among erasures",
        "Sends bytes that are no JSON.",
        "A dead letter.",
        sends(topics.ERASURES, "x", b"\xfe", letter()),
    ),
    Attack(
        "an erasure without value",
        "Sends a null record.",
        "A dead letter.",
        sends(topics.ERASURES, "x", None, letter()),
    ),
    Attack(
        "a deep erasure",
        "Sends JSON that is nested 100,000 deep.",
        "A dead letter.",
        sends(topics.ERASURES, "x", b'{"a":' * 100_000, letter()),
    ),
    Attack(
        "a hundred erasures of nobody",
        "Erases 100 people whom nobody knows.",
        "Each leaves a mark and a receipt; others are not held up.",
        of_nobody,
    ),
    Attack(
        "an erasure fifty times",
        "Sends an answered and a waiting erasure 25 times each.",
        "They get the receipt that they have.",
        again_and_again,
    ),
    Attack(
        "an erased person again",
        "Erases somebody again under another id.",
        "There is no row left: `COMPLETE` with none.",
        erases("a-1", "subject-1", answered("a-1", ("COMPLETE", None))),
    ),
)
