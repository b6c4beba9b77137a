"""What an auditor remembers from one audit to the next, so that a rollback is detected.

One JSON object in a file: the newest version with its digest, and the tree head of its receipt
log. Whoever keeps it can see that history continues from there, without trusting the log, the
store or the keys.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path

from lethe.consumers.audit.checks import Seen
from lethe.consumers.audit.history import History
from lethe.engine.errors import InvalidData

_BYTES = 64 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")


def read_checkpoint(path: Path, model_id: str) -> Seen | None:
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
        document = json.loads(data) if len(data) <= _BYTES else None
        seen = _parse(document) if isinstance(document, dict) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        seen = None
    if seen is None or not isinstance(document, dict):
        raise InvalidData(f"{path}: is not a checkpoint of `lethe audit`; name another file")
    if document.get("model_id") != model_id:
        raise InvalidData(f"{path}: is a checkpoint of another model, not of {model_id!r}")
    return seen


def _parse(document: dict[str, object]) -> Seen | None:
    version, digest, log = document["version"], document["digest"], document.get("receipt_log")
    if type(version) is not int or version < 0 or not _is_digest(digest):
        return None
    if log is None:
        return Seen(version, str(digest))
    if not isinstance(log, dict) or type(log.get("size")) is not int or log["size"] < 0:
        return None
    if not _is_digest(log.get("root")):
        return None
    return Seen(version, str(digest), log["size"], bytes.fromhex(log["root"]))


def parse_since(text: str) -> Seen:
    """Return a checkpoint from ``VERSION:DIGEST``.

    Raises
    ------
    InvalidData
        The text has another form.
    """
    number, _, digest = text.partition(":")
    if not re.fullmatch(r"[0-9]{1,18}", number) or not _is_digest(digest):
        raise InvalidData(
            "--since is not VERSION:DIGEST with the 64 hexadecimal digits of a version's digest"
        )
    return Seen(int(number), digest)


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def write_checkpoint(path: Path, history: History) -> None:
    """Write the newest version as checkpoint; the old file stays until the new one is complete.

    Raises
    ------
    InvalidData
        The file cannot be written.
    """
    tip = history.tip
    if tip is None:
        return
    log = None if tip.head is None else {"size": tip.head.size, "root": tip.head.root.hex()}
    document = {
        "lethe_checkpoint": 1,
        "model_id": history.model_id,
        "version": tip.event.version,
        "digest": tip.event.digest,
        **({} if log is None else {"receipt_log": log}),
    }
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent or ".", prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(json.dumps(document, indent=2) + "\n")
        Path(name).replace(path)
    except OSError as error:
        raise InvalidData(f"{path}: cannot be written ({error.strerror}); check the path") from None
