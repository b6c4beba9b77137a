"""Histories as the workers publish them, made by hand, and what a forger would make of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from lethe.consumers.contract import cloudevents, topics, version_chain
from lethe.consumers.contract.events import MODEL_PARAMETERS, MODEL_VERSION, Parameters, Version
from lethe.consumers.log.base import Log, Message
from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.codec import pack
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.records import ErrorRecord

NAMES = ("age", "visits")
ERROR = ErrorRecord(
    value=1e-9, kind="estimate", bound=None, certified_version=0, budget=0.01, relative=2.5e-10
)


@dataclass(frozen=True)
class Release:
    """A version and its parameters."""

    version: Version
    parameters: Parameters


def release(
    before: Release | None, theta: list[float], model_id: str = "churn", **changes: Any
) -> Release:
    """Return the release after ``before``; the last number of theta is the intercept."""
    number = 0 if before is None else before.version.version + 1
    names = NAMES[: len(theta) - 1]
    array = np.array(theta)[:, None]
    identity: dict[str, Any] = {
        "model_id": model_id,
        "generation": 0,
        "version": number,
        "prev_digest": "" if before is None else before.version.digest,
        "digest": "",
        "parameters_digest": version_chain.parameters_digest(
            array, names, ["y"], fit_intercept=True
        ),
        "method": "pru",
        "kind": "linear",
        "status": "ACTIVE",
        "created_at": datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=number),
        **changes,
    }
    version = Version(
        **identity,
        commit=number,
        commit_prev="" if before is None else f"{number - 1:064x}",
        rows_live=100 - number,
        rows_deleted=number,
        error=ERROR,
        request_ids=(f"r{number}",),
    )
    identity["digest"] = version_chain.version_digest(version)
    return Release(
        version.model_copy(update={"digest": identity["digest"]}),
        Parameters(
            **identity,
            feature_names=names,
            target_names=("y",),
            fit_intercept=True,
            intercept=theta[-1],
            theta=tuple(theta[:-1]),
        ),
    )


def releases(count: int, model_id: str = "churn", seed: int = 0) -> list[Release]:
    """Return a history of so many versions."""
    draw = np.random.default_rng(seed)
    made: list[Release] = []
    for _ in range(count):
        made.append(release(made[-1] if made else None, draw.normal(size=3).tolist(), model_id))
    return made


def version_message(version: Version) -> Message:
    """Return the message of a version."""
    return _message(topics.VERSIONS, MODEL_VERSION, version)


def parameters_message(parameters: Parameters) -> Message:
    """Return the message of parameters."""
    return _message(topics.MODELS, MODEL_PARAMETERS, parameters)


def _message(topic: str, event_type: str, event: Version | Parameters) -> Message:
    headers = cloudevents.headers(event_type, event.digest[:32], event.created_at, event.model_id)
    return Message(topic, event.model_id.encode(), event.value(), headers)


def altered(message: Message, change: Callable[[dict[str, Any]], object]) -> Message:
    """Return a message whose JSON was changed and nothing else."""
    data = json.loads(message.value or b"")
    change(data)
    return Message(message.topic, message.key, json.dumps(data).encode(), message.headers)


def publish(log: Log, *messages: Message) -> None:
    """Send messages."""
    with closing(log.producer()) as producer:
        producer.publish(messages)


def publish_all(log: Log, made: list[Release]) -> None:
    """Send releases in the order of the contract."""
    with closing(log.producer()) as producer:
        for one in made:
            producer.publish([parameters_message(one.parameters)])
            producer.publish([version_message(one.version)])


def by_uri(one: Release) -> Parameters:
    """Return the parameters event as it is when theta is too large for it."""
    uri = f"lethe-store:{ModelKeys(one.version.model_id).head}#published"
    return one.parameters.model_copy(update={"theta": None, "intercept": None, "uri": uri})


def stored(one: Release) -> tuple[str, dict[str, bytes]]:
    """Return what the store holds of a release: the key of its head, and the fields of that."""
    theta = version_chain.theta_of(one.parameters)
    config = ModelConfig(
        model_id=one.version.model_id,
        kind=Kind(one.version.kind),
        method=one.version.method,
        ridge=1.0,
        fit_intercept=True,
        feature_names=one.parameters.feature_names,
        target_names=one.parameters.target_names,
        error_budget=0.01,
    )
    fields = {
        "version": str(one.version.version).encode(),
        "version_digest": one.version.digest.encode(),
        "newest": one.version.value(),
        "config": config.model_dump_json().encode(),
        "theta_exact": pack(theta),
        "published": pack(theta),
    }
    return ModelKeys(one.version.model_id).head, fields
