"""Run events of refreshes, for OpenLineage. An optional extra: `LETHE_OPENLINEAGE` imports it.

A refresh is a run of the job ``refresh.MODEL``. It reads the dataset ``MODEL.rows``, the live rows
of a generation, and writes the dataset ``MODEL``. Where events go is OpenLineage's configuration.

Events are told to people and tools; nothing depends on them. One that cannot be sent is a line in
the log, and the refresh goes on.
"""

from __future__ import annotations

import os
import uuid
from datetime import UTC, datetime
from typing import Any

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
    set_producer,
)
from openlineage.client.facet_v2 import dataset_version_dataset, error_message_run, tags_run

from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.service.telemetry.logs import logger
from lethe.engine.store.offline.jobs import JobResult

NAMESPACE = "lethe"
_RUNS = uuid.UUID("9d8ff4b2-0f3c-5d0e-9a55-3a2b7c1c6e10")
"""Names the runs: the same job has the same run, however often it is begun."""


class RefreshLineage:
    """Sends START, and then COMPLETE, FAIL or ABORT, for each refresh job."""

    def __init__(self) -> None:
        set_producer("lethe")
        self._client = OpenLineageClient()
        self._job_namespace = os.environ.get("OPENLINEAGE_NAMESPACE", NAMESPACE)
        self._log = logger("lineage")

    def begun(self, job: RefreshRequested) -> None:
        """Report a job that is begun, perhaps not for the first time."""
        self._send(RunState.START, job, {}, None)

    def done(self, job: RefreshRequested, result: JobResult) -> None:
        """Report a stored result; the deletion worker swaps it in with the next version."""
        said = {"size": result.size.value, "reason": result.reason}
        generation = job.generation if result.generation is None else result.generation
        self._send(RunState.COMPLETE, job, {"tags": _tags(job, said)}, generation)

    def failed(self, job: RefreshRequested, reason: str) -> None:
        """Report a job that failed; the policy schedules another."""
        facet = error_message_run.ErrorMessageRunFacet(reason, "Python")
        self._send(RunState.FAIL, job, {"errorMessage": facet}, None)

    def aborted(self, job: RefreshRequested) -> None:
        """Report a job that is not needed any more, or was interrupted and is begun again."""
        self._send(RunState.ABORT, job, {}, None)

    def _send(
        self, state: Any, job: RefreshRequested, facets: dict[str, Any], generation: int | None
    ) -> None:
        run = Run(str(uuid.uuid5(_RUNS, f"{job.model_id}\n{job.job_id}")))
        run.facets = {"tags": _tags(job, {}), **facets}
        outputs = [OutputDataset(NAMESPACE, job.model_id)]
        if generation is not None:
            outputs[0].facets = _version(generation)
        rows = InputDataset(NAMESPACE, f"{job.model_id}.rows", facets=_version(job.generation))
        event = RunEvent(
            eventTime=datetime.now(UTC).isoformat(),
            run=run,
            job=Job(self._job_namespace, f"refresh.{job.model_id}"),
            eventType=state,
            inputs=[rows],
            outputs=outputs,
        )
        try:
            self._client.emit(event)
        except Exception as error:  # whatever the transport raises: a refresh does not need it
            self._log.warning(
                "the run event was not sent",
                action="lineage",
                model=job.model_id,
                job=job.job_id,
                reason=f"{type(error).__name__}: {error}",
            )


def _version(generation: int) -> dict[str, Any]:
    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(f"{generation}")}


def _tags(job: RefreshRequested, more: dict[str, str]) -> Any:
    """Return what versions name a refresh by (``refresh.job_id``), and what it did."""
    said = {"job_id": job.job_id, "from_version": str(job.version), **more}
    return tags_run.TagsRunFacet(
        [tags_run.TagsRunFacetFields(key, value, "lethe") for key, value in said.items()]
    )
