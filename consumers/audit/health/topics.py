"""What `lethe check` checks of topics: whether they are those that the store knows.

Read-only. Each check is one line for an operator: what is fine, or what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from lethe.consumers.audit.health.checks import Check
from lethe.consumers.contract import topics
from lethe.consumers.registration.topic_loss import TopicRecovery
from lethe.consumers.service.connect import Runtime
from lethe.consumers.service.topic_watch import advice
from lethe.engine.errors import LetheError
from lethe.engine.store.store import ModelStore


def check_topics(store: ModelStore, runtime: Runtime) -> Iterator[Check]:
    """Check that no topic was lost, made again, or lost what was read of it; name old losses."""
    faults = 0
    try:
        known = store.topics.read()
        with closing(runtime.log.reader()) as reader:
            recovery = TopicRecovery(store, reader)
            for spec in topics.specs():
                plan = recovery.find(spec.name)
                if plan is not None:
                    faults += 1
                    detail = f"LOG_RESET: {'; '.join(plan.faults)}. {advice(spec.name)}"
                    yield Check(f"topic {spec.name}", False, detail)
        for loss in store.topics.losses():
            yield Check(f"topic {loss.topic}", True, loss.statement)
    except LetheError as error:
        yield Check("known topics", False, str(error))
        return
    if not faults:
        own = [spec.name for spec in topics.specs() if spec.name in known]
        detail = f"{len(own)} match what the store knows, and still have every record that was read"
        yield Check("known topics", True, detail)
