"""Halted models wait for a person: which, why, and which records hold back the watermark."""

from __future__ import annotations

import time
from collections.abc import Container

from lethe.consumers.deletions.validate import Group
from lethe.consumers.log.base import Partition
from lethe.consumers.service.telemetry.logs import Logger
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.engine.errors import CommitConflict, LetheError

HALT_SECONDS = 30.0
"""After this a halted model is tried again: a person may have repaired what halted it."""


class Halts(Container[str]):
    """The halted models of one worker; one thread uses it."""

    def __init__(self, metrics: Metrics, logger: Logger) -> None:
        self._metrics = metrics
        self._logger = logger
        self._reasons: dict[str, str] = {}
        self._since = 0.0
        self._held_back: dict[tuple[str, Partition], int] = {}

    def __contains__(self, model_id: object) -> bool:
        return model_id in self._reasons

    def __len__(self) -> int:
        return len(self._reasons)

    @property
    def due(self) -> bool:
        """Whether it is time to try them again."""
        return bool(self._reasons) and time.monotonic() - self._since > HALT_SECONDS

    def halt(self, model_id: str, error: Exception) -> None:
        """Halt a model, and log why.

        Raises
        ------
        CommitConflict
            Such an error does not halt a model: others were faster, and it is tried again.
        """
        if isinstance(error, CommitConflict):
            raise error
        self._reasons[model_id] = str(error)
        self._since = time.monotonic()
        self._metrics.halted.set(len(self._reasons))
        known = isinstance(error, LetheError)
        reason = str(error) if known else f"a defect: {type(error).__name__}: {error}"
        self._logger.error("model halted", action="halt", model=model_id, reason=reason)
        if not known:
            self._logger.debug("traceback of the defect", action="halt", exc_info=error)

    def hold_back(self, group: Group) -> None:
        """Keep the watermark below a halted model's first unprocessed record."""
        key = (group.model_id, group.partition)
        self._held_back.setdefault(key, group.items[0].record.offset)

    def first(self, partition: Partition) -> int | None:
        """Return the offset of the first record of a partition that a halted model holds back."""
        return min(
            (offset for (_, p), offset in self._held_back.items() if p == partition), default=None
        )

    def clear(self) -> None:
        """Forget all halts: the partitions are read again from the watermarks."""
        self._reasons.clear()
        self._held_back.clear()
        self._metrics.halted.set(0)
