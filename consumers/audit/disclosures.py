"""What the published versions of a model have disclosed of its rows, as the store keeps it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lethe.engine.errors import InvalidData
from lethe.engine.store.layout.disclosed import Disclosure, unpack_disclosures
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.lookup import Summary, read_summary
from lethe.engine.store.membership import live_members
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.store import ModelStore

_SCAN = 1000


@dataclass(frozen=True, slots=True)
class DisclosedRow:
    """What versions have disclosed of a row, in the order of the versions."""

    row_id: str
    versions: Sequence[Disclosure]

    @property
    def distance(self) -> float:
        """Cook's distances of all versions together; those that are not known count nothing."""
        return math.fsum(one.distance or 0.0 for one in self.versions)

    @property
    def length(self) -> float:
        """The lengths together: the root of the sum of their squares."""
        return math.hypot(*(one.length or 0.0 for one in self.versions))

    @property
    def unpriced(self) -> int:
        """How many versions are not priced: the distance is then at least what it says."""
        return sum(one.distance is None for one in self.versions)


@dataclass(frozen=True, slots=True)
class DisclosureReport:
    """The rows that were disclosed most, first; ``total`` counts all that something is kept of."""

    model: Summary
    rows: Sequence[DisclosedRow]
    total: int


def most_disclosed(store: ModelStore, model_id: str, top: int) -> DisclosureReport:
    """Return the rows that versions have disclosed most, those that are not priced first.

    Raises
    ------
    UnknownModel
        It is not registered.
    InvalidData
        It does not keep disclosures.
    """
    model = _read(store, model_id)
    total = 0

    def counted() -> Iterator[DisclosedRow]:
        nonlocal total
        for row in _every_row(store, model):
            total += 1
            yield row

    most = heapq.nlargest(top, counted(), key=lambda row: (row.unpriced > 0, row.distance))
    return DisclosureReport(model, most, total)


def disclosed_row(
    store: ModelStore, model_id: str, row_id: str
) -> tuple[DisclosureReport, str | None]:
    """Return what versions have disclosed of one row, or why nothing is kept.

    Raises
    ------
    UnknownModel, InvalidData
        As `most_disclosed`; also if it was never a row of the model.
    """
    model = _read(store, model_id)
    with reachable(store.client):
        stored = store.client.hget(_key(model), row_id)
    if isinstance(stored, bytes):
        row = DisclosedRow(row_id, unpack_disclosures(stored, _what(model)))
        return DisclosureReport(model, [row], 1), None
    if live_members(store.client, model_id, [row_id], store.row_keys):
        why = "no version has deleted, corrected or inserted it since the model was registered"
    elif store.rows_in_ledger(ModelKeys(model_id), [row_id]):
        why = "it was deleted, and nothing is kept: a person was erased, or the model did not keep "
        why += "disclosures then"
    else:
        raise InvalidData(f"model {model_id!r} has no row {row_id!r}")
    return DisclosureReport(model, [], 0), why


def _every_row(store: ModelStore, model: Summary) -> Iterator[DisclosedRow]:
    seen: set[bytes] = set()  # a scan may return a field twice
    with reachable(store.client):
        for row, stored in store.client.hscan_iter(_key(model), count=_SCAN):
            if row not in seen:
                seen.add(row)
                yield DisclosedRow(text(row), unpack_disclosures(stored, _what(model)))


def _key(model: Summary) -> str:
    return ModelKeys(model.model_id).dataset(model.meta.dataset_key).disclosed


def _what(model: Summary) -> str:
    return f"model {model.model_id!r}, a row"


def _read(store: ModelStore, model_id: str) -> Summary:
    model = read_summary(store.client, model_id)
    if not model.meta.config.disclosure:
        raise InvalidData(
            f"model {model_id!r} does not keep what its versions disclose; register it again with "
            "`--replace --disclosure`"
        )
    return model
