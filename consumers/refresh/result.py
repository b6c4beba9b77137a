"""A refresh job under way, and its result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.service.telemetry.progress import Progress
from lethe.consumers.service.telemetry.steps import AtStep, Step
from lethe.consumers.versions.refresh_schedule import AT_LEAST
from lethe.engine.fit.objective import Array
from lethe.engine.refresh.policy import Choice
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.jobs import JobResult, write_result
from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class Job:
    """A refresh job under way.

    Attributes
    ----------
    store, event
        Where the model is, and what was asked for.
    progress, at_step
        Called as the work proceeds.
    began
        When it began, by `time.perf_counter`.
    """

    store: ModelStore
    event: RefreshRequested
    progress: Progress
    at_step: AtStep
    began: float


def result_of(job: Job, state: ModelState, choice: Choice, **more: object) -> JobResult:
    """Return what a job has done to a state; ``more`` depends on the kind of refresh."""
    return JobResult.model_validate(
        {
            "job_id": job.event.job_id,
            "model_id": job.event.model_id,
            "size": choice.size,
            "reason": choice.reason,
            "asked": job.event.reason in AT_LEAST,
            "seconds": time.perf_counter() - job.began,
            "generation_key": state.meta.generation_key,
            "reference_epoch": state.meta.reference_epoch,
            "deletions": state.meta.deletions_logged,
            "changed": state.meta.rows_changed,
            "completions": state.stream.completions,
            "status": state.meta.status,
            **more,
        }
    )


def store_result(
    job: Job, result: JobResult, arrays: Mapping[str, Array] | None = None
) -> JobResult:
    """Store a result and its arrays; return it."""
    job.at_step(Step.REFRESH_WRITE)
    write_result(job.store.client, result, arrays)
    return result
