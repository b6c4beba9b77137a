"""What a registration knows of a model: what was published, and if the store goes with it."""

from __future__ import annotations

from dataclasses import dataclass

from consumers.cut_off import Branch, read_branch
from consumers.events import Version
from consumers.log.base import Reader
from consumers.publisher import Publisher
from consumers.signing import TrustedKeys
from consumers.takeover import settle_models, version_tails
from engine.errors import CommitConflict, LetheError, VersionFork
from engine.store.keys import ModelKeys
from engine.store.predecessor import Predecessor
from engine.store.store import ModelStore

_TRIES = 50  # each one looks again at what others committed meanwhile


@dataclass(frozen=True, slots=True)
class Past:
    """What the log has of a model, and the store beside it."""

    store: ModelStore
    reader: Reader
    publisher: Publisher
    model_id: str
    trusted: TrustedKeys | None

    def settle(self) -> LetheError | None:
        """Finish what others left, and take from the log what the store has lost.

        Its deletions must not come back with a file. Nothing of a model that halts is published;
        why it does is returned. What others commit meanwhile is looked at again. Parameters are
        not sent again: those of the replacement follow.

        Raises
        ------
        CommitConflict
            Others commit all the time: what is lost could not be taken.
        """
        for _ in range(_TRIES):
            try:
                _, halted = settle_models(
                    self.store, self.reader, self.publisher, [self.model_id], self.trusted
                )
            except CommitConflict:
                continue
            error = halted.get(ModelKeys.of_model(self.model_id))
            if error is None or isinstance(error, LetheError):
                return error
            raise error  # a defect of ours
        raise CommitConflict(
            f"model {self.model_id!r}: others committed {_TRIES} times in a row; try again when "
            "fewer deletions arrive"
        )

    def published(self) -> Version | None:
        """Return the newest published version."""
        return version_tails(self.reader, [self.model_id]).get(self.model_id)


@dataclass(frozen=True, slots=True)
class Known:
    """The newest published version, and why the model halts, if it does."""

    past: Past
    published: Version | None
    halt: LetheError | None

    @property
    def forked(self) -> bool:
        """Whether the store holds a history of its own."""
        return self.published is not None and isinstance(self.halt, VersionFork)

    def again(self) -> Known:
        """Return what is known now: a forked store may have been restored meanwhile."""
        halt = self.past.settle()
        return Known(self.past, self.past.published(), halt)

    def branch(self, before: Predecessor) -> Branch | None:
        """Return what has to be settled where the store is forked.

        What is known must have been read after ``before``: it is then said of that very state, or
        the commit fails.
        """
        if self.published is None or not self.forked:
            return None
        past = self.past
        return read_branch(past.store, past.reader, before, self.published, past.trusted)
