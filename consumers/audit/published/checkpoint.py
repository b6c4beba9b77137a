"""What an auditor remembers from one audit to the next, so that a rollback is detected.

One JSON object in a file: the newest version with its digest, and the tree head of its receipt
log. Whoever keeps it can see that history continues from there, without trusting the log, the
store or the keys.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from lethe.consumers.audit.published.bundle import new_file
from lethe.consumers.audit.published.finding import Faults, Finding
from lethe.consumers.audit.published.history import History
from lethe.consumers.audit.published.receipts import leaves_of_log
from lethe.engine.errors import InvalidData
from lethe.engine.merkle import root_of
from lethe.engine.store.layout.reading import Count, parse_json
from lethe.engine.store.layout.records import Hash, LogHead

_BYTES = 64 * 1024


class Checkpoint(BaseModel):
    """Where an earlier audit ended.

    ``model_id`` is empty if a person gave version and digest; ``receipt_log`` is that of the
    version, if it had one.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    lethe_checkpoint: int = 1
    model_id: str = ""
    version: Count
    digest: Hash
    receipt_log: LogHead | None = None


def read_checkpoint(path: Path, model_id: str) -> Checkpoint | None:
    """Return the checkpoint of a model; None if there is no file yet.

    Raises
    ------
    InvalidData
        The file is not a checkpoint, or belongs to another model.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidData(f"{path}: cannot be read ({error.strerror}); check the path") from None
    try:
        document = parse_json(data if len(data) <= _BYTES else b"")
        seen = Checkpoint.model_validate(document, strict=True)
    except (ValueError, RecursionError):
        raise InvalidData(
            f"{path}: is not a checkpoint of `lethe audit`; name another file"
        ) from None
    if seen.model_id != model_id:
        raise InvalidData(f"{path}: is a checkpoint of another model, not of {model_id!r}")
    return seen


def parse_since(text: str) -> Checkpoint:
    """Return a checkpoint from ``VERSION:DIGEST``.

    Raises
    ------
    InvalidData
        The text has another form.
    """
    match = re.fullmatch(r"([0-9]{1,15}):([0-9a-f]{64})", text)
    if match is None:
        raise InvalidData(
            "--since is not VERSION:DIGEST with the 64 hexadecimal digits of a version's digest"
        )
    return Checkpoint(version=int(match[1]), digest=match[2])


def write_checkpoint(path: Path, history: History) -> None:
    """Write the newest version as checkpoint; the old file stays until the new one is complete.

    Raises
    ------
    InvalidData
        The file cannot be written.
    """
    if history.tip is None:
        return
    event = history.tip.event
    checkpoint = Checkpoint(
        model_id=history.model_id,
        version=event.version,
        digest=event.digest,
        receipt_log=event.receipt_log,
    )
    with new_file(path) as file:
        file.write(json.dumps(checkpoint.model_dump(exclude_none=True), indent=2) + "\n")


def checkpoint_finding(history: History, seen: Checkpoint) -> Finding:
    """Check that a history continues from what was seen before."""
    faults, tip = Faults(), history.tip
    fact = history.versions.get(seen.version)
    if fact is None or tip is None:
        end = "is empty" if tip is None else f"ends with version {tip.event.version}"
        faults.add(f"version {seen.version} was seen before, but history {end}: it was rolled back")
    elif fact.event.digest != seen.digest:
        faults.add(
            f"version {seen.version} was seen before with digest {seen.digest[:12]}, but now has "
            f"{fact.event.digest[:12]}: history was rewritten"
        )
    elif seen.receipt_log is not None and not _grown(history, seen.receipt_log):
        faults.add("the receipt log does not extend the one that was seen before")
    return Finding.of("checkpoint", faults, f"continues from version {seen.version} as seen before")


def _grown(history: History, seen: LogHead) -> bool:
    """Whoever has all leaves needs no proof: the first ones must have the root that was seen."""
    head, leaves = history.head, leaves_of_log(history)
    if head is None or not seen.size <= head.size <= len(leaves):
        return False
    heads = (seen, head)
    return all(root_of(leaves[: one.size]).hex() == one.root for one in heads)
