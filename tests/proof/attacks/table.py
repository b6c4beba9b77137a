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

REQUESTS = """\
The log holds no values of erased people to compare with, so that values under a new row id and
without a subject are a new row. Where requests must be signed, only those with a key can insert
rows at all.
"""
COMMITS = """\
A record that seems to continue a model's newest commit, or to lie beyond it, halts that model.
Which records count is judged on the part of a commit that everybody can read, so that all workers
agree whatever keys they hold. A worker that skipped a record because it cannot open it, or does not
trust its signature, would also skip the true commits of a worker with a newer key, and the two
would go on from different histories. So it stops, and a person says whether a key is missing or the
record is forged. Nothing that such a record says is applied or published; other models go on;
requests to the halted one wait in the log, its erasures stay `PENDING`, and both are completed once
the halt has ended. A name that nobody has registered halts in the same way. It may be that of a
model whose key is missing here and which has rows of anybody, so that every erasure waits for it:
else one could be `COMPLETE` while such a model keeps the person's rows. Let nobody but workers and
operators write to `lethe.commits` ([security.md](security.md)).
"""
EVIDENCE = """\
A mark of the suppression list under an unknown seal key may be that of an erased person whose key
is missing here. To go on without it could let that person's rows back in, so that processes stop.
"""
STORE = """\
The store is the only place that has a model's rows, its arrays, and which rows are whose: the log
keeps none of these. Where they, or a model's head, are gone or damaged, nothing can make them
again. What is promised is that this is noticed before it has an effect, by counts, lengths, and the
digest of the newest commit, that the model stops then, and that a backup or `lethe register
--replace` ends the halt. No deletion is forgotten as long as the log still has it. Back the store
up ([operations.md](operations.md)), and let nobody but Lethe write to it.
"""
MOMENT = """\
Requests that were only in a topic that somebody has deleted are gone. That is noticed before
anything else is read, and workers stop until a person has accepted it.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an attacker stands, and what is tried from there; ``signed``: requests must be.

    ``remains``: why some of it cannot be stopped, and what holds nevertheless.
    """

    title: str
    attacks: Sequence[Attack]
    signed: bool = False
    remains: str = ""


PLACES = (
    Place("Who may write requests", topics.ATTACKS, remains=REQUESTS),
    Place("Who may write requests, where they must be signed", signed.ATTACKS, signed=True),
    Place("Who may write commits", commits.ATTACKS, remains=COMMITS),
    Place("Who may write evidence", evidence.ATTACKS, remains=EVIDENCE),
    Place("Who may write to the store, or lose it", store.ATTACKS, remains=STORE),
    Place("Who may call the HTTP API", http.ATTACKS),
    Place("Who may write erasures", erasures.ATTACKS),
    Place("Who may write captured changes", cdc.ATTACKS),
    Place("Who hands over an exported history", bundles.ATTACKS),
    Place("Who provides files", files.ATTACKS),
    Place("Who chooses the moment", upkeep.ATTACKS, remains=MOMENT),
)
