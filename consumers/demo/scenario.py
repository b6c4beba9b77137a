"""The demo's deletion requests, and the receipt that each must get.

In every wave patients withdraw, named by row or by subject, sometimes several in one batch. The
first waves also contain what goes wrong in real life.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lethe.consumers.contract import topics
from lethe.consumers.demo.data import SEED, DemoModel
from lethe.consumers.log.base import Message

WAVES = 20
"""Number of waves: enough for each model to exceed its budget several times."""


@dataclass(frozen=True, slots=True)
class Request:
    """One record of ``lethe.deletions``, and its outcome under the contract.

    Attributes
    ----------
    what
        A description for people.
    message
        The record as it is sent.
    model_id, request_id
        Its identity; ``request_id`` None: it cannot be read and becomes a dead letter.
    rows
        The rows that it names; for a request by subject, the subject's rows.
    status, code
        Status and code of the receipt; status None: there is no receipt.
    """

    what: str
    message: Message
    model_id: str
    request_id: str | None
    rows: tuple[str, ...]
    status: str | None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Wave:
    """Requests that are sent together; those for one model become one version."""

    requests: tuple[Request, ...]


def waves(models: Sequence[DemoModel]) -> tuple[Wave, ...]:
    """Return the whole scenario, the same in every run."""
    rng = np.random.default_rng(SEED)
    withdrawals = [_withdrawals(model, rng) for model in models]
    script: list[Wave] = []
    for number in range(WAVES):
        wave = [request for stream in withdrawals for request in next(stream)]
        if number < len(_TROUBLES):
            wave += _TROUBLES[number](models[number % len(models)], script)
        script.append(Wave(tuple(wave)))
    return tuple(script)


def _withdrawals(model: DemoModel, rng: np.random.Generator) -> Iterator[list[Request]]:
    """Yield each wave's requests for a model; nobody withdraws twice."""
    subjects = model.data.subjects
    order = [list(subjects)[i] for i in rng.permutation(len(subjects))]
    patients = iter(order)
    number = 0

    def by_subject() -> Request:
        nonlocal number
        number += 1
        subject = next(patients)
        rows = tuple(subjects[subject])
        return _request(model.model_id, f"withdraw-{number:02d}", rows, subject=subject)

    def by_row(count: int) -> Request:
        nonlocal number
        number += 1
        rows = tuple(row for _ in range(count) for row in subjects[next(patients)])
        return _request(model.model_id, f"withdraw-{number:02d}", rows)

    while True:
        yield [by_subject()]
        yield [by_row(1)]
        yield [by_subject(), by_row(1)]
        yield [by_row(2)]


def _request(
    model_id: str,
    request_id: str,
    rows: tuple[str, ...],
    *,
    subject: str | None = None,
    status: str = "APPLIED",
    code: str | None = None,
    what: str = "",
) -> Request:
    body: dict[str, object] = {"request_id": request_id, "model_id": model_id}
    body |= {"row_ids": list(rows)} if subject is None else {"subject_id": subject}
    target = f"rows {', '.join(rows)}" if subject is None else f"subject {subject}"
    message = Message(topics.DELETIONS, model_id.encode(), json.dumps(body).encode())
    return Request(what or target, message, model_id, request_id, rows, status, code)


# -- what goes wrong in real life: one kind per wave -----------------------------------------------


def _nothing(_model: DemoModel, _sent: Sequence[Wave]) -> list[Request]:
    return []


def _not_json(model: DemoModel, _sent: Sequence[Wave]) -> list[Request]:
    message = Message(topics.DELETIONS, model.model_id.encode(), b"please forget me {")
    return [Request("a record that is not JSON", message, model.model_id, None, (), None)]


def _unknown_model(_model: DemoModel, _sent: Sequence[Wave]) -> list[Request]:
    what = "a model that nobody registered"
    rows = ("p001.1",)
    return [_request("churn", "stray-1", rows, status="REJECTED", code="UNKNOWN_MODEL", what=what)]


def _unknown_row(model: DemoModel, _sent: Sequence[Wave]) -> list[Request]:
    what = "a row that was never a member"
    rows = ("p999.1",)
    code = "UNKNOWN_ROWS"
    return [_request(model.model_id, "stray-2", rows, status="REJECTED", code=code, what=what)]


def _first(model: DemoModel, sent: Sequence[Wave]) -> Request:
    return next(r for r in sent[0].requests if r.model_id == model.model_id)


def _repeated(model: DemoModel, sent: Sequence[Wave]) -> list[Request]:
    first = _first(model, sent)
    what = f"{first.request_id} once more, the same body"
    return [
        Request(what, first.message, model.model_id, first.request_id, first.rows, first.status)
    ]


def _conflicting(model: DemoModel, sent: Sequence[Wave]) -> list[Request]:
    first = _first(model, sent)
    other = (model.data.ids[-1],)
    what = f"{first.request_id} once more, with another body"
    conflict = _request(model.model_id, str(first.request_id), other, what=what)
    return [
        Request(
            what,
            conflict.message,
            model.model_id,
            first.request_id,
            (),
            "REJECTED",
            "REQUEST_ID_CONFLICT",
        )
    ]


def _gone_already(model: DemoModel, sent: Sequence[Wave]) -> list[Request]:
    rows = _first(model, sent).rows
    what = "a new request for rows that are gone"
    return [_request(model.model_id, "late-1", rows, status="ALREADY_APPLIED", what=what)]


_TROUBLES = (
    _nothing,
    _not_json,
    _unknown_model,
    _unknown_row,
    _repeated,
    _conflicting,
    _gone_already,
)
