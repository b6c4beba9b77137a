"""Finds rows of erased subjects in models that were registered while somebody was erased.

A registration leaves out the rows of all subjects that are on the list when it commits. If it reads
the list just before a subject is put on it, and commits just after the erasure has looked for
models, both have missed each other. So each new registration is searched once it is in the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lethe.consumers.erasures.fan_out import SentRequest, requests_to
from lethe.consumers.erasures.models import (
    Models,
    Registered,
    every_subject,
    rows_of_subjects,
)
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.consumers.suppression.suppressions import Suppressions
from lethe.engine.store.layout.keys import ERASED_CHECKED
from lethe.engine.store.membership import live_members
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.server.pipeline import present
from lethe.engine.store.store import ModelStore


def unchecked(store: ModelStore, models: Models) -> list[Registered]:
    """Return the models whose present registration was not searched yet. One round trip."""
    names = [model.model_id for model in models.registered]
    if not names:
        return []
    with reachable(store.client):
        values: Any = store.client.hmget(ERASED_CHECKED, names)
    checked = {name: text(value) for name, value in present(names, values).items()}
    return [one for one in models.registered if checked.get(one.model_id) != one.registration]


class Sweep:
    """Searches registrations for subjects that are on the list; one thread uses it."""

    def __init__(self, store: ModelStore, suppressions: Suppressions) -> None:
        self._store = store
        self._suppressions = suppressions

    def search(self, model: Registered) -> list[SentRequest]:
        """Return requests for the rows of all suppressed subjects that a model holds.

        The list must have been read since the model was (`Suppressions.catch_up`). Cost O(number of
        subjects), if anybody is on the list.
        """
        namespace = model.namespace or DEFAULT_NAMESPACE
        store, asked = self._store, list[SentRequest]()
        if not len(self._suppressions):
            return asked
        for subjects in every_subject(store, model):
            suppressed = self._suppressions.of(namespace, subjects)
            if suppressed:
                [rows_of] = rows_of_subjects(store, [model], [suppressed])
                for subject, rows in rows_of.items():
                    if live_members(store.client, model.model_id, rows, store.row_keys):
                        asked += requests_to(model, suppressed[subject], subject, rows)
        return asked

    def note(self, models: Sequence[Registered]) -> None:
        """Note that what was found in these models is asked for: they need no other search."""
        if models:
            checked: Any = {model.model_id: model.registration for model in models}
            with reachable(self._store.client):
                self._store.client.hset(ERASED_CHECKED, mapping=checked)
