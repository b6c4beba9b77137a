"""Opens the commits that count.

One that cannot be opened is skipped if a later registration continued without it; otherwise its
model halts.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from lethe.consumers.commits.commit import Commit, CommitKind
from lethe.consumers.commits.frame import Framed
from lethe.consumers.commits.journal import read_records
from lethe.consumers.commits.record import open_commit
from lethe.consumers.commits.recovery.counted import OpenRecord
from lethe.consumers.commits.recovery.replay import Replay
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.log.base import Partition, Reader
from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.config import ModelConfig


class Opener:
    """Opens the records of one commits partition, in the order of the log.

    Parameters
    ----------
    reader, partition
        Where the records are.
    seals, trusted
        What opens commits, and who must have signed them; None if signatures are not checked.
    replay
        Has the configuration of a model whose earlier commits are not read.
    """

    def __init__(
        self,
        reader: Reader,
        partition: Partition,
        seals: SealKeys,
        trusted: TrustedKeys | None,
        replay: Replay,
    ) -> None:
        self._reader = reader
        self._partition = partition
        self._seals = seals
        self._trusted = trusted
        self._replay = replay
        self._configs: dict[str, ModelConfig] = {}
        self._newest_registration: dict[str, int] = {}

    def open(
        self, record: OpenRecord, framed: Framed, valid: Mapping[int, OpenRecord]
    ) -> Commit | None:
        """Return the commit of a record; None if it cannot be opened, and need not be.

        ``valid`` are the records that count, by offset.

        Raises
        ------
        LetheError
            The record cannot be opened: its model halts.
        """
        model_id = record.open.model_id
        try:
            commit = open_commit(framed, self._seals, self._trusted, self._config(model_id))
        except CorruptState:
            if self._superseded(record, valid):
                return None
            raise
        self._configs[model_id] = commit.meta.config
        return commit

    def _config(self, model_id: str) -> ModelConfig | None:
        config = self._configs.get(model_id)
        if config is None:
            state = self._replay.state(model_id)
            config = None if state is None else state.meta.config
        return config

    def _superseded(self, record: OpenRecord, valid: Mapping[int, OpenRecord]) -> bool:
        """Return whether a later registration goes on without a record that cannot be opened."""
        model = record.open.model_id
        if model not in self._newest_registration:
            skipping = [
                later.offset
                for later in valid.values()
                if later.open.model_id == model and later.open.skips
            ]
            self._newest_registration[model] = max(
                filter(self._is_registration, skipping), default=-1
            )
        return record.offset < self._newest_registration[model]

    def _is_registration(self, offset: int) -> bool:
        """Return whether the record at an offset is a registration."""
        for _, framed in read_records(self._reader, self._partition, offset, offset + 1):
            with suppress(CorruptState):
                commit = framed and open_commit(framed, self._seals, self._trusted, None)
                if commit and commit.kind is CommitKind.REGISTRATION:
                    return True
        return False
