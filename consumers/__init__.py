"""What listens, works and publishes.

Each package imports what stands below it here, and the engine (tests/unit/test_imports.py).

- `demo`: ``lethe demo``
- `cli`: the commands
- `server`: the HTTP API and the console of ``lethe serve``
- `audit`: what an auditor needs
- `export`: models on their way to where they are served
- `subscriber`: what a reader of models needs
- `workers`: the processes, and what supervises them
- `cdc`: rows that a database deletes or changes become requests
- `erasures`: a person erased from every model
- `registration`: models registered, replaced, unregistered, recovered
- `deletions`: requests to delete, insert and correct rows, from bytes to a commit
- `refresh`: jobs that refresh a model, and the commits that swap in what they computed
- `versions`: from one version of a model to the next
- `commits`: the commit protocol
- `suppression`: who is erased, so that their rows are not registered again
- `service`: what every process needs: settings, servers, telemetry
- `contract`: topics, events, signatures, the chain of versions
- `log`: Kafka and Redis Streams behind one small interface
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lethe.consumers.subscriber.subscriber import ModelSubscriber

__all__ = ["ModelSubscriber"]


def __getattr__(name: str) -> Any:
    """Import the subscriber when it is first asked for: it brings Kafka and Redis (PEP 562)."""
    if name == "ModelSubscriber":
        from lethe.consumers.subscriber.subscriber import ModelSubscriber  # noqa: PLC0415 (see above)

        return ModelSubscriber
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
