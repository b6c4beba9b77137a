"""Mirroring: the newest version of each model in a registry, and none of those before it.

A version in a registry holds the influence of every row that was deleted since, so it is deleted
once the next one stands. A version that is superseded before it could be registered never is.

`mirror_version` may be interrupted anywhere and repeated: it ends in the same state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from lethe.consumers.export.mlflow_registry import Entry
from lethe.consumers.service.telemetry.logs import logger
from lethe.consumers.subscriber.history import Known
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.consumers.subscriber.subscriber import ModelSubscriber
from lethe.engine.errors import InvalidData, LetheError, Unavailable

MOST_MODELS = 200
"""Models that one process follows: each takes a thread and two connections to the log."""

_DISCOVER_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


class Registry(Protocol):
    """What a registry has to offer."""

    def entries(self, model_id: str) -> list[Entry]:
        """Return the versions of a model that a mirror has registered, the oldest first."""

    def stands(self, entry: Entry) -> bool:
        """Return whether a version can be served."""

    def add(self, version: ModelVersion) -> Entry:
        """Register a version."""

    def promote(self, entry: Entry) -> None:
        """Give it the alias; raise unless it stands."""

    def remove(self, entry: Entry) -> None:
        """Delete a version and its artifacts."""

    def remove_leftovers(self, model_id: str, keep: Entry) -> int:
        """Delete artifacts that no version names."""


def newest_known(registry: Registry, model_id: str) -> Known | None:
    """Return number and digest of the newest version that the registry has of a model.

    A history that lacks it was rolled back, or is another model's of the same name: a subscriber
    refuses it, and nothing in the registry changes.
    """
    entries = registry.entries(model_id)
    newest = max(entries, key=lambda entry: entry.number, default=None)
    return None if newest is None else (newest.number, newest.digest)


def mirror_version(registry: Registry, version: ModelVersion) -> int:
    """Register a version, move the alias to it, delete those before it; return how many.

    A version that the registry has is not registered again, by its digest. Nothing changes if the
    registry has a later one.
    """
    entries = registry.entries(version.model_id)
    if any(entry.number > version.version for entry in entries):
        return 0
    same = (entry for entry in entries if entry.digest == version.digest)
    current = next(filter(registry.stands, same), None) or registry.add(version)
    registry.promote(current)
    superseded = [entry for entry in entries if entry != current]
    for entry in superseded:
        registry.remove(entry)
    registry.remove_leftovers(version.model_id, current)
    return len(superseded)


class Mirror:
    """Follows models and mirrors their versions until ``stop`` is set.

    Parameters
    ----------
    subscriber, registry
        Where versions come from, and where they go.
    models
        Returns the models to follow; asked again now and then.
    """

    def __init__(
        self,
        subscriber: ModelSubscriber,
        registry: Registry,
        models: Callable[[], Sequence[str]],
    ) -> None:
        self.stop = threading.Event()
        self._subscriber = subscriber
        self._registry = registry
        self._models = models
        self._log = logger("mirror")
        self._newest: dict[str, ModelVersion] = {}
        self._changed = threading.Condition()
        self._threads: dict[str, threading.Thread] = {}
        self._failures: dict[str, LetheError] = {}

    def run_once(self) -> int:
        """Mirror the newest version of each model; return how many models there are.

        Raises
        ------
        Unavailable, BrokenChain, InvalidData
            As `ModelSubscriber.latest`, and from the registry. If it is about one model, after the
            others are mirrored.
        """
        models = self._checked(self._models())
        self._failures.clear()  # those of an earlier call
        for model_id in models:
            try:
                known = newest_known(self._registry, model_id)
                self._mirror(self._subscriber.latest(model_id, known=known))
            except Unavailable:
                raise
            except LetheError as error:
                self._halt(model_id, error)
        self._raise_first_failure()
        return len(models)

    def run(self) -> None:
        """Follow until stopped; wait for servers that are away, and delete nothing meanwhile.

        Raises
        ------
        LetheError
            Something that a person has to look at. If it is about one model, the others go on
            until the mirror is stopped.
        """
        try:
            while not self.stop.is_set():
                self._retry("all", self._follow_new)
                for model_id in self._wait():
                    self._retry(model_id, partial(self._mirror_newest, model_id))
        finally:
            self.stop.set()
            for thread in self._threads.values():
                thread.join()
        self._raise_first_failure()

    def _raise_first_failure(self) -> None:
        for failure in self._failures.values():
            raise failure

    # -- following ----------------------------------------------------------------------------

    def _follow_new(self) -> None:
        """Begin to follow the models that are not followed yet."""
        for model_id in self._checked(self._models()):
            if model_id not in self._threads:
                known = newest_known(self._registry, model_id)
                thread = threading.Thread(target=self._follow, args=(model_id, known))
                self._threads[model_id] = thread
                thread.start()

    def _follow(self, model_id: str, known: Known | None) -> None:
        """Follow one model; keep its newest version for the thread that mirrors."""
        pause = _FIRST_PAUSE
        while not self.stop.is_set():
            try:
                for version in self._subscriber.follow(model_id, stop=self.stop, known=known):
                    pause, known = _FIRST_PAUSE, version.known
                    with self._changed:
                        self._newest[model_id] = version
                        self._changed.notify()
            except Unavailable as error:
                self._log.warning("waiting", action="retry", model=model_id, reason=str(error))
                self.stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            except LetheError as error:
                self._halt(model_id, error)
                return

    def _wait(self) -> list[str]:
        """Return models with new versions; wait for some until it is time to look for models."""
        with self._changed:
            self._changed.wait_for(lambda: self._newest or self.stop.is_set(), _DISCOVER_SECONDS)
            return list(self._newest)

    # -- mirroring ----------------------------------------------------------------------------

    def _mirror_newest(self, model_id: str) -> None:
        """Mirror the newest version at this moment: an earlier try may have waited long."""
        version = self._newest[model_id]
        try:
            self._mirror(version)
        except Unavailable:
            raise
        except LetheError as error:
            self._halt(model_id, error)
        else:
            self._failures.pop(model_id, None)
        with self._changed:
            if self._newest[model_id] is version:
                del self._newest[model_id]

    def _mirror(self, version: ModelVersion) -> None:
        removed = mirror_version(self._registry, version)
        self._log.info(
            "mirrored",
            action="mirror",
            model=version.model_id,
            version=version.version,
            digest=version.digest,
            removed=removed,
        )

    def _retry(self, what: str, act: Callable[[], None]) -> None:
        """Act until it succeeds or the mirror is stopped; wait for servers that are away."""
        pause = _FIRST_PAUSE
        while not self.stop.is_set():
            try:
                return act()
            except Unavailable as error:
                self._log.warning("waiting", action="retry", model=what, reason=str(error))
                self.stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        return None

    def _halt(self, model_id: str, error: LetheError) -> None:
        self._log.error("halted", action="halt", model=model_id, reason=str(error))
        self._failures[model_id] = error

    @staticmethod
    def _checked(models: Sequence[str]) -> Sequence[str]:
        if len(models) > MOST_MODELS:
            raise InvalidData(
                f"{len(models)} models are registered, and one mirror follows {MOST_MODELS}: name "
                "some of them with --model, and run a mirror for the others"
            )
        return models
