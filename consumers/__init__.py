"""What listens, works and publishes."""

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
