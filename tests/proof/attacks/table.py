"""The table of all attacks, by where the attacker stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.proof.attacks import (
    bundles,
    cdc,
    commits,
    erasures,
    evidence,
    files,
    http,
    signed,
    store,
    topics,
    upkeep,
)
from tests.proof.attacks.attack import Attack


@dataclass(frozen=True, slots=True)
class Place:
    """Where an attacker stands, and what is tried from there; ``signed``: requests must be."""

    title: str
    attacks: Sequence[Attack]
    signed: bool = False


PLACES = (
    Place("Who may write requests", topics.ATTACKS),
    Place("Who may write requests, where they must be signed", signed.ATTACKS, signed=True),
    Place("Who may write commits", commits.ATTACKS),
    Place("Who may write evidence", evidence.ATTACKS),
    Place("Who may write to the store, or lose it", store.ATTACKS),
    Place("Who may call the HTTP API", http.ATTACKS),
    Place("Who may write erasures", erasures.ATTACKS),
    Place("Who may write captured changes", cdc.ATTACKS),
    Place("Who hands over an exported history", bundles.ATTACKS),
    Place("Who provides files", files.ATTACKS),
    Place("Who chooses the moment", upkeep.ATTACKS),
)
