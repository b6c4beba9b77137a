"""Topic and group names of one test: several tests share one Kafka."""

from __future__ import annotations

from lethe.consumers.contract import topics
from lethe.consumers.workers import deletion_worker, erasure_worker, refresh_worker

_TOPICS = (
    "DELETIONS",
    "ROW_CHANGES",
    "COMMITS",
    "RECEIPTS",
    "VERSIONS",
    "MODELS",
    "REFRESH_JOBS",
    "DEAD_LETTERS",
    "ERASURES",
    "ERASURE_RECEIPTS",
    "SUPPRESSIONS",
)
_PLAIN = {name: getattr(topics, name) for name in _TOPICS}
_GROUPS = {module: module.GROUP for module in (deletion_worker, refresh_worker, erasure_worker)}


def use_prefix(prefix: str) -> None:
    """Put ``prefix`` before all names of this process; the empty one restores them."""
    for name, plain in _PLAIN.items():
        setattr(topics, name, prefix + plain)
    for module, plain in _GROUPS.items():
        module.GROUP = prefix + plain  # type: ignore[attr-defined]  # a module's constant
