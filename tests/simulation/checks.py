"""The promises, checked at the end of a run against what the log ever had."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from consumers import topics
from consumers.batching import Batching
from consumers.events import Parameters, Receipt, Version
from consumers.log.base import Log, Record
from engine.store import codec
from tests.simulation.log import SimulatedLog
from tests.simulation.requests import Producers
from tests.support.invariants import (
    check_model,
    check_receipts,
    check_rows,
    check_theta,
    check_versions,
    ledger_of,
    live_mask,
)
from tests.support.platform import Platform

CERTIFIED = "certified"
"""Name of the family whose models are certified."""


class SimulatedPlatform(Platform):
    """A platform that also sees what retention removed, and partitions that were added."""

    log: Log

    def records(self, topic: str) -> list[Record]:
        """Return everything that a topic ever had."""
        assert isinstance(self.log, SimulatedLog)
        return self.log.everything(topic)

    def versions(self, model_id: str = "m") -> list[Version]:
        """Return the published versions by number, without byte-identical repeats."""
        return sorted(super().versions(model_id), key=lambda version: version.version)

    def parameters(self, model_id: str = "m") -> Parameters:
        """Return the newest of the parameters that are the last of their partition."""
        last = {r.partition: r for r in self.records(topics.MODELS) if r.key == model_id.encode()}
        found = [Parameters.model_validate_json(record.value or b"") for record in last.values()]
        return max(found, key=lambda parameters: parameters.version)


def contradictions(platform: Platform, model: str) -> tuple[int, int]:
    """Return how many numbers were published, and how many of them with two contents."""
    contents: dict[int, set[str]] = defaultdict(set)
    for version in platform.versions(model):
        contents[version.version].add(version.digest)
    return len(contents), sum(len(digests) > 1 for digests in contents.values())


def check_answers(platform: Platform, producers: Producers) -> None:
    """Every request has exactly one final receipt."""
    models = {model for model, _ in producers.asked}
    finals = {model: platform.finals(model) for model in models}
    missing = [f"{model}/{name}" for model, name in producers.asked if name not in finals[model]]
    assert not missing, f"no final receipt of {missing}"
    for model, name in producers.asked:
        bodies = producers.bodies_of(finals[model][name])
        platform.asked[model, name] = rows_named(platform, model, bodies[0])


def rows_named(platform: Platform, model: str, body: dict[str, Any]) -> tuple[str, ...]:
    """Return the rows that a request names."""
    if "row_ids" in body:
        return tuple(body["row_ids"])
    if model not in platform.data:
        return ()
    number = int(body["subject_id"].removeprefix("subject-"))
    rows = range(3 * number, min(3 * number + 3, len(platform.data[model].X)))
    return tuple(f"row-{row}" for row in rows)


def check_simulated(platform: Platform, model: str, *, released: bool) -> None:
    """Check one model.

    After a release by registering again the ledger has lost rows that were deleted once more, so
    receipts count them twice; all else holds.
    """
    certified = platform.data[model].name == CERTIFIED
    if not certified and not released:
        check_model(platform, model)
        return
    check_versions(platform, model, accounted=not released)
    check_rows(platform, model)
    if released:
        assert not forgotten(platform, model), "rows came back"
    else:
        check_receipts(platform, model)
    if certified:
        check_certificates(platform, model)
    else:
        check_theta(platform, model, 1e-8)


def registered_over_loss(platform: Platform, model: str) -> bool:
    """Return whether a model was registered again while the store was behind.

    The new version goes on from what was published, and requests that were lost are then decided
    again, for a later version.
    """
    versions = platform.versions(model)
    named = Counter(name for version in versions for name in version.request_ids)
    again = any(version.version > 0 and version.source is None for version in versions)
    return again and any(times > 1 for times in named.values())


def registered_over_answers(platform: Platform, model: str) -> bool:
    """Return whether a registration has the number of a version that a receipt names.

    The receipt went out, and the store lost the version: its rows are left out one version later.
    """
    applied = {r.version for r in platform.finals(model).values() if r.status == "APPLIED"}
    return any(
        version.version in applied
        for version in platform.versions(model)
        if version.version > 0 and version.source is None and version.refresh is None
    )


def forgotten(platform: Platform, model: str) -> list[Receipt]:
    """Return the receipts of deletions that the store knows nothing of."""
    ledger = ledger_of(platform, model)
    return [
        receipt
        for (of_model, name), rows in platform.asked.items()
        if of_model == model
        and (receipt := platform.finals(model)[name]).status in ("APPLIED", "ALREADY_APPLIED")
        and sum(row in ledger for row in rows) < len(set(rows)) - receipt.rows_unknown
    ]


def check_certificates(platform: Platform, model: str) -> None:
    """No version spends more than it may; the newest spends at least its true gradient."""
    versions = platform.versions(model)
    for version in versions:
        if version.certificate is not None:
            assert version.certificate.spent <= version.certificate.budget
    state = platform.load(model)
    if state.meta.rows_live == 0:
        return
    stored = platform.raw().hget(state.generation_keys.fixed, "noise")
    assert isinstance(stored, bytes)
    noise = codec.unpack(stored, (state.meta.config.d, state.meta.config.m), "noise")
    data, live = platform.data[model], live_mask(platform, model)
    X, theta = data.design[live].astype(np.longdouble), state.stream.published
    margin = X @ theta
    mean = margin if data.kind == "linear" else 1 / (1 + np.exp(-margin))
    gradient = X.T @ (mean - data.y[live]) + data.ridge * theta + noise
    certificate = versions[-1].certificate
    assert certificate is not None
    assert float(np.linalg.norm(gradient.astype(np.float64))) <= certificate.spent


def check_company(platform: Platform, model: str, batching: Batching) -> None:
    """Check that no version leaves out a few rows whose requests could have waited longer."""
    sent: dict[tuple[int, int], float] = {}
    for record in platform.records(topics.DELETIONS):
        sent.setdefault((record.partition.index, record.offset), record.timestamp_ms / 1000)
    deleted = 0
    for version in platform.versions(model):
        gone, deleted = version.rows_deleted - deleted, version.rows_deleted
        if version.refresh is None and version.source is not None:
            since = sent[version.source.partition, version.source.first_offset]
            waited = version.created_at.timestamp() - since
            enough = gone >= batching.rows or waited > batching.seconds - 0.01
            assert enough, f"{model}: version {version.version} leaves out {gone} rows"
