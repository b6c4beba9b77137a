"""Models whose first deletion since a rebuild is too old, including those without new requests.

V, Q and theta_b derive from deleted rows, so a rebuild must eventually purge them. A commit
schedules it when the limit has passed; models without new commits are found here.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.versions.refresh_schedule import refresh_reason
from lethe.engine.errors import LetheError, Unavailable
from lethe.engine.store.lookup import read_summaries
from lethe.engine.store.membership import registered_models
from lethe.engine.store.offline.staging import TIME_TO_LIVE
from lethe.engine.store.store import ModelStore


def past_age_limit(store: ModelStore, now: datetime) -> list[RefreshRequested]:
    """Return the rebuilds that the age limit requires and that no pending job will do.

    Of models that are young enough, only the heads are read. A job's id follows from the reason why
    it is due, as with `lethe refresh --due`.
    """
    jobs = []
    for summary in read_summaries(store.client, registered_models(store.client)):
        model, meta = summary.model_id, summary.meta
        age = 0.0 if meta.first_deletion_at is None else _since(meta.first_deletion_at, now)
        if age <= meta.config.limits.limits().age_seconds or meta.rows_live == 0:
            continue
        pending = meta.pending_job
        if pending is not None and _since(pending.ordered_at, now) < TIME_TO_LIVE:
            continue
        job = _job(store, model, now)
        if job is not None:
            jobs.append(job)
    return jobs


def _job(store: ModelStore, model: str, now: datetime) -> RefreshRequested | None:
    try:
        state = store.load_model(model)
    except Unavailable:
        raise
    except LetheError:
        return None  # a damaged model halts where it is used, and `lethe check` says so
    reason = refresh_reason(state, now)
    if reason is None:
        return None
    seed = f"{model}\n{reason}\n{state.head.commit}"
    return RefreshRequested(
        job_id=hashlib.sha256(seed.encode()).hexdigest()[:32],
        model_id=model,
        generation=state.meta.generation,
        version=state.version,
        reason=reason,
    )


def _since(moment: datetime, now: datetime) -> float:
    return (now - moment).total_seconds()
