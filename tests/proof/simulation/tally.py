"""What happened in a run, counted, and the kinds of which many runs must show every one.

A kind of fault that silently stopped to happen would leave the simulation green and worthless:
the test run asserts that all of these were seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

FAULTS = (
    "a cluster's shard goes back",
    "actor killed at a point of its steps",
    "actor killed between turns",
    "answer of a commit lost",
    "answer of the store lost",
    "append lands late",
    "clock leaps by seven hours",
    "command to the store lost",
    "commit lands late",
    "disk does not sync",
    "erasure or lift sent",
    "erasure worker killed",
    "log cut after a publish, before its acknowledgement",
    "log cut amid a publish",
    "log cut around a poll",
    "log cut before a publish",
    "log cut while it is read",
    "model registered during the run",
    "model replaced during the run",
    "model unregistered during the run",
    "other body under a used request id",
    "partitions added",
    "pipeline cut between two commands",
    "producer retries: the same append twice",
    "producer with another partitioner",
    "request delayed",
    "request for a model that is not registered",
    "request that cannot be read",
    "request to correct rows",
    "request to insert rows",
    "results of refreshes gone",
    "retention removes old commits",
    "retention removes old changes of rows",
    "retention removes old deletions",
    "seal secret rotated",
    "store goes back",
    "store restarts",
    "store wiped",
    "topic made again",
    "worker with a wrong secret",
    "zombie",
)

EVENTS = (
    "combined receipt repeated",
    "commit in vain",
    "commits folded",
    "commits lost by the store",
    "erasure complete",
    "erasure id used twice",
    "halt",
    "insert of an erased subject refused",
    "lift complete",
    "lift rejected",
    "pipeline refitted by the judge",
    "refresh result dropped",
    "refresh swapped in",
    "release by registering again",
    "request deferred",
    "request repeated",
    "row corrected",
    "row inserted",
    "rows of erased subjects left out of a registration",
    "suppression written late",
    "takeover",
    "the store refuses a commit",
)

_ACTIONS = {
    "drop_result": "refresh result dropped",
    "fold": "commits folded",
    "halt": "halt",
    "refused": "the store refuses a commit",
    "swap": "refresh swapped in",
    "take_over": "takeover",
}

_POINTS = {
    "barrier": "disk does not sync",
    "log: poll after": "log cut around a poll",
    "log: poll before": "log cut around a poll",
    "log: publish after": "log cut after a publish, before its acknowledgement",
    "log: publish before": "log cut before a publish",
    "log: publish between": "log cut amid a publish",
    "log: read": "log cut while it is read",
    "store: answer": "answer of the store lost",
    "store: commit answer": "answer of a commit lost",
    "store: send": "command to the store lost",
}

BETWEEN = ("start", "turn", "step: poll", "log: poll before", "log: poll after")
"""Points at which a worker holds nothing that it has begun."""


def fault_at(point: str) -> str:
    """Return the kind of a fault that is raised at a point: a kill where it is a step."""
    return _POINTS.get(point) or kill_at(point)


def kill_at(point: str) -> str:
    """Return the kind of a kill."""
    between = point in BETWEEN
    return f"actor killed {'between turns' if between else 'at a point of its steps'}"


def missing(faults: Counter[str], events: Counter[str]) -> list[str]:
    """Return the kinds that did not happen."""
    return [name for name in FAULTS if not faults[name]] + [
        name for name in EVENTS if not events[name]
    ]


def listen(counted: Callable[[str], None], noted: Callable[[str], None]) -> None:
    """Have every event that the product logs counted; what is rare goes into the trace."""

    def count(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
        action = event.get("action", "")
        if action in _ACTIONS:
            counted(_ACTIONS[action])
            if action in ("halt", "fold", "refused"):
                said = {k: v for k, v in event.items() if k not in ("action", "seconds")}
                noted(f"  {action}: {said}")
        if action == "decide" and event.get("status") == "DEFERRED":
            counted("request deferred")
        if action == "decide" and event.get("status") == "REPEATED":
            counted("request repeated")
        raise structlog.DropEvent

    structlog.configure(
        processors=[count],
        wrapper_class=structlog.make_filtering_bound_logger("DEBUG"),
        cache_logger_on_first_use=False,
    )
