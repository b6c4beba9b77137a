"""What was published and what is stored, compared with the independent fold.

A program of the product that reads commits wrongly publishes or stores what this fold does not come
to.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from tests.proof.independent_fold import Disagreement, ModelFold


def check_published(
    models: Mapping[str, ModelFold],
    receipts: Collection[bytes],
    versions: Collection[bytes],
    *,
    complete: bool = True,
) -> None:
    """Check what was published, byte for byte.

    Parameters
    ----------
    models
        What the fold came to, of all models.
    receipts, versions
        Values of all records of ``lethe.receipts`` and ``lethe.versions``, repeats included.
    complete
        Whether everything that was committed must be published by now.

    Raises
    ------
    Disagreement
        Something was published that no commit says, or the other way round.
    """
    sent = {value for model in models.values() for value in model.sent}
    made = {value for model in models.values() for value in model.versions}
    for value in set(receipts) - sent:
        receipt = json.loads(value)
        if not _precedes(receipt, models.get(receipt["model_id"])):
            raise Disagreement(f"a receipt is in no commit: {receipt}")
    if not set(versions) <= made:
        raise Disagreement(f"versions are in no commit: {set(versions) - made}")
    if not complete:
        return
    if not sent <= set(receipts):
        raise Disagreement(f"receipts were never published: {sent - set(receipts)}")
    if not made <= set(versions):
        raise Disagreement(f"versions were never published: {made - set(versions)}")


def _precedes(receipt: Mapping[str, Any], model: ModelFold | None) -> bool:
    """Return whether a receipt may be in no commit: its request came before its model."""
    if receipt["status"] != "REJECTED":
        return False
    if model is None or model.opening is None:
        return True
    source, index = receipt["source"], f"/{receipt['source']['partition']}"
    return any(
        name.endswith(index) and source["offset"] < offset for name, offset in model.opening.items()
    )


def check_store(
    model: ModelFold,
    *,
    head: tuple[int, str],
    version: int,
    ledger: Mapping[str, int],
    offsets: Mapping[str, int],
    finals: Mapping[str, bytes],
    deferred: Collection[str],
) -> None:
    """Check what is stored of a model.

    Parameters
    ----------
    model
        What the fold came to.
    head, version
        Number and digest of its newest commit, and the number of its newest version.
    ledger
        Row id to the version that deleted it.
    offsets
        Next offset by partition.
    finals
        Final receipts as they are published, by request id.
    deferred
        Ids of the requests that wait for a rebuild.

    Raises
    ------
    Disagreement
        Store and log say different things.
    """
    pairs = {
        "head": (model.head, head),
        "version": (model.version, version),
        "ledger": (model.ledger, dict(ledger)),
        "next offsets": (model.offsets, dict(offsets)),
        "final receipts": (model.finals, dict(finals)),
        "deferred requests": (model.deferred, set(deferred)),
    }
    wrong = {name: both for name, both in pairs.items() if both[0] != both[1]}
    if wrong:
        raise Disagreement(f"log and store (in this order) differ: {wrong}")
