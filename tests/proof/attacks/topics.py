"""Attacks by somebody who may write to the topics of requests, where nobody has to sign."""

from __future__ import annotations

from collections.abc import Sequence

from lethe.consumers.contract import topics
from tests.proof.attacks.attack import Attack, Trace
from tests.proof.attacks.world import LINE, LOGIT, World


def same_id_other_rows(world: World) -> Sequence[Trace]:
    body = {"request_id": "old-line", "model_id": LINE, "row_ids": ["row-40"]}
    return [world.forge(topics.DELETIONS, LINE, body), world.conflict(LINE, "old-line")]


def garbage(world: World) -> Sequence[Trace]:
    return [world.forge(topics.DELETIONS, LINE, b"\xff{"), world.letters("INVALID_REQUEST")]


def key_and_body(world: World) -> Sequence[Trace]:
    body = {"request_id": "a-1", "model_id": LOGIT, "row_ids": ["row-40"]}
    return [
        world.forge(topics.DELETIONS, LINE, body),
        world.receipt(LOGIT, "a-1", "REJECTED", "INVALID_REQUEST"),
    ]


ATTACKS = (
    Attack(
        "request id of another request",
        "Sends other rows under the id of a request that was answered.",
        "The index of requests: `REQUEST_ID_CONFLICT`, and the first receipt stands.",
        same_id_other_rows,
    ),
    Attack(
        "garbage among requests",
        "Sends bytes that are no JSON, to stop the worker.",
        "Each record is validated alone, and becomes a dead letter.",
        garbage,
    ),
    Attack(
        "key of one model, body of another",
        "Names one model in the record's key and another in its body.",
        "A key that contradicts the body is `INVALID_REQUEST`.",
        key_and_body,
    ),
)
