"""Step 8: the messages that others read, made from commits alone.

The same commit always gives the same bytes, so repeats change nothing: readers drop them. The
contract promises no order between the parameters, receipts and version of a commit.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import accumulate
from operator import itemgetter

from lethe.consumers.commits.apply import thetas_in
from lethe.consumers.commits.commit import Commit
from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.events import (
    DELETION_RECEIPT,
    MODEL_PARAMETERS,
    MODEL_VERSION,
    REFRESH_REQUESTED,
    Parameters,
    RefreshRequested,
    Version,
)
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.log.base import Message
from lethe.engine.fit.objective import Array
from lethe.engine.store.generation import PARAMETERS
from lethe.engine.store.layout.columns import FittedColumn, packed_columns
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.lookup import read_shown
from lethe.engine.store.store import ModelStore

PARAMETERS_LIMIT = 900_000
"""Bytes of a parameters event; beyond this, theta stays in the store and is named by uri."""


def messages_of(commits: Sequence[Commit]) -> list[Message]:
    """Return all that commits publish, in their order; of a model's parameters the newest only."""
    newest = {commit.model_id: commit for commit in commits if commit.version is not None}
    messages: list[Message] = []
    for commit in commits:
        if newest.get(commit.model_id) is commit:
            messages.append(parameters_of(commit))
        messages += [receipt_message(receipt, value) for receipt, value in _receipts(commit)]
        if commit.version is not None:
            messages.append(version_message(commit.version, commit.version_value))
        if commit.job is not None:
            messages.append(job_message(commit.job, commit.ordered_at))
    return messages


def without_replaced(messages: Sequence[Message]) -> list[Message]:
    """Leave out parameters that a later message of the same model replaces."""
    newest = {each.key: each for each in messages if each.topic == topics.MODELS}
    return [each for each in messages if each.topic != topics.MODELS or newest[each.key] is each]


def _receipts(commit: Commit) -> Iterable[tuple[Receipt, bytes]]:
    """Return a commit's receipts, conflicts included, in the order of their requests.

    A receipt of an earlier commit that is sent again names the place of its first request, possibly
    in a former topic. So its own offset does not order it: it stays right after the receipt before
    it.
    """
    answers = [(answer.receipt, answer.value) for answer in commit.answers]
    if not commit.repeats:
        return answers
    repeats = [(Receipt.read(value), value) for value in commit.repeats]
    own = {value for _, value in answers}
    places = [
        receipt.source.offset if receipt.conflicts_with is not None or value in own else -1
        for receipt, value in repeats
    ]
    ordered = heapq.merge(
        ((receipt.source.offset, receipt, value) for receipt, value in answers),
        ((place, *pair) for place, pair in zip(accumulate(places, max), repeats, strict=True)),
        key=itemgetter(0),
    )
    return ((receipt, value) for _, receipt, value in ordered)


def receipt_message(receipt: Receipt, value: bytes) -> Message:
    """Return the message of a receipt; the same receipt gives the same bytes."""
    identity = f"{receipt.model_id}\n{receipt.request_id}\n{receipt.status}\n{receipt.code}"
    event_id = hashlib.sha256(identity.encode()).hexdigest()[:32]
    moment, model_id = receipt.completed_at, receipt.model_id
    return cloudevents.message(topics.RECEIPTS, DELETION_RECEIPT, event_id, moment, model_id, value)


def version_message(version: Version, value: bytes) -> Message:
    """Return the message of a version."""
    return _of_version(topics.VERSIONS, MODEL_VERSION, version, value)


def _of_version(topic: str, event_type: str, version: Version, value: bytes) -> Message:
    event_id, moment = version.digest[:32], version.created_at
    return cloudevents.message(topic, event_type, event_id, moment, version.model_id, value)


def job_message(job: RefreshRequested, at: datetime) -> Message:
    """Return the message that schedules a refresh."""
    return cloudevents.message(
        topics.REFRESH_JOBS, REFRESH_REQUESTED, job.job_id, at, job.model_id, job.value()
    )


def parameters_of(commit: Commit) -> Message:
    """Return the message of the parameters that a commit publishes."""
    if commit.version is None:
        raise AssertionError(f"commit {commit.number} makes no version")
    published = thetas_in(commit)[PARAMETERS if commit.columns else "published"]
    return parameters_message(commit.version, commit.meta.config, published, commit.columns)


def newest_parameters(store: ModelStore, models: Sequence[str]) -> list[Message]:
    """Return the messages of models' newest parameters again; none of a damaged model."""
    messages = []
    for shown in read_shown(store.client, models):
        with suppress(ValueError):  # the model halts when it is next needed
            version = Version.read(shown.version)
            columns = packed_columns(shown.columns) if shown.columns else b""
            messages.append(parameters_message(version, shown.config, shown.theta, columns))
    return messages


def parameters_message(
    version: Version, config: ModelConfig, theta: Array, columns: bytes = b""
) -> Message:
    """Return the message of a version's parameters, theta d x m with any intercept last.

    Too large a theta stays in the head, named by uri. The event is serialised once: that is 36 KB
    for 1,000 features. ``columns``, its last member, are those of a model with preprocessing,
    fitted: JSON already, they are put in as they are, and can be longer than the rest.
    """
    end = b',"columns":%b}' % columns if columns else b"}"
    event = parameters_event(version, config, theta)
    value = event.value()[:-1] + end
    if len(value) > PARAMETERS_LIMIT:
        uri = f"lethe-store:{ModelKeys(version.model_id).head}#published"
        by_uri = event.model_copy(update={"theta": None, "intercept": None, "uri": uri})
        value = by_uri.value()[:-1] + end
    return _of_version(topics.MODELS, MODEL_PARAMETERS, version, value)


def parameters_event(
    version: Version, config: ModelConfig, theta: Array, columns: tuple[FittedColumn, ...] = ()
) -> Parameters:
    """Return the parameters event of a version, with its theta."""
    p = len(config.feature_names)
    flat = config.m == 1
    block = theta[:p, 0] if flat else theta[:p]
    intercept = theta[p].tolist() if config.fit_intercept else None
    return Parameters(
        model_id=version.model_id,
        generation=version.generation,
        version=version.version,
        prev_digest=version.prev_digest,
        digest=version.digest,
        parameters_digest=version.parameters_digest,
        method=version.method,
        kind=version.kind,
        status=version.status,
        created_at=version.created_at,
        feature_names=config.feature_names,
        target_names=config.target_names,
        fit_intercept=config.fit_intercept,
        intercept=None if intercept is None else intercept[0] if flat else tuple(intercept),
        theta=tuple(block.tolist() if flat else map(tuple, block.tolist())),
        classes=config.class_names,
        columns=columns,
    )
