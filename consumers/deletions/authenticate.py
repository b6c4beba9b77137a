"""Who may ask for deletions: signatures on requests, checked against a list of public keys.

A request that is not signed by a key on the list goes to dead letters and gets no receipt, because
a stored receipt would let a forger use up somebody else's request id. A signed request that is sent
again is the same request (its id is in the signed bytes), and it names its model, so it cannot be
replayed against another one. Refresh events need no signature: they only name a job.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import DELETION_REQUESTED, ROWS_CHANGED
from lethe.consumers.contract.requests import is_of_erasure
from lethe.consumers.contract.signatures import (
    TrustedKeys,
    key_id_of,
    parse_trusted,
    read_public_text,
)
from lethe.consumers.deletions.validate import Invalid, Refreshed, Valid, Validated, validate
from lethe.engine.errors import Unauthenticated

UNAUTHENTICATED = Unauthenticated.code


@dataclass(frozen=True, slots=True)
class RequestKeys:
    """The keys whose requests are accepted.

    Attributes
    ----------
    trusted
        The public keys.
    models
        By key id: patterns (``*``, ``?``, ``[...]``) of the models that the key may delete from; a
        key that is not listed here may delete from every model.
    """

    trusted: TrustedKeys
    models: Mapping[str, tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.trusted)

    def with_unrestricted(self, others: TrustedKeys) -> RequestKeys:
        """Return these keys and others, which may delete from every model."""
        models = {name: only for name, only in self.models.items() if name not in others.keys}
        return RequestKeys(self.trusted | others, models)

    def checked(self, item: Validated) -> Validated:
        """Return an item unchanged, or refused if no key that counts for its model signed it."""
        if isinstance(item, Refreshed) or (isinstance(item, Invalid) and item.request_id is None):
            return item
        try:
            self._check(item)
        except Unauthenticated as error:
            return Invalid(item.record, UNAUTHENTICATED, str(error))
        return item

    def _check(self, item: Valid | Invalid) -> None:
        record = item.record
        changes = record.partition.topic == topics.ROW_CHANGES
        kind = ROWS_CHANGED if changes else DELETION_REQUESTED
        key_id = self.trusted.check(kind, record.value or b"", record.headers)
        # Key and headers are not signed, so they must neither add nor change anything.
        if _content(validate(replace(record, key=None, headers=()))) != _content(item):
            raise Unauthenticated(
                "the signed value alone is a different request from the one with key and headers: "
                "model_id and request_id must be in the value, and key and headers must not "
                "contradict it"
            )
        model_id, request_id = item.model_id or "", item.request_id or ""
        patterns = self.models.get(key_id)
        if patterns is not None and is_of_erasure(request_id):
            raise Unauthenticated(
                f"key {key_id} is for some models only, but this id is reserved for the requests "
                "of erasures, which need a key for every model"
            )
        if patterns is not None and not any(fnmatchcase(model_id, pattern) for pattern in patterns):
            raise Unauthenticated(f"key {key_id} is not for model {model_id!r}")


def _content(item: Validated) -> tuple[str | bytes | None, ...]:
    match item:
        case Valid():
            return item.request.model_id, item.request.request_id, item.body
        case Invalid():
            return item.model_id, item.request_id, item.body, item.code
        case Refreshed():
            return (item.event.job_id,)


def read_request_keys(path: Path) -> RequestKeys:
    """Read an allow-list: one public key per line, in base64, then patterns of its models, if any.

    ``#`` starts a comment. A PEM block is a key for every model.

    Raises
    ------
    InvalidData
        The file cannot be read, or a line is not an Ed25519 public key.
    """
    return parse_request_keys(read_public_text(path), str(path))


def parse_request_keys(text: str, what: str) -> RequestKeys:
    """Parse an allow-list; ``what`` names it in errors."""
    trusted = parse_trusted(text, what)
    unrestricted: set[str] = set()
    models: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        word, *patterns = line.partition("#")[0].split() or [""]
        key_id = _key_id(word)
        if patterns:
            models[key_id] = (*models.get(key_id, ()), *patterns)
        else:
            unrestricted.add(key_id)
    return RequestKeys(trusted, {k: p for k, p in models.items() if k not in unrestricted})


def _key_id(word: str) -> str:
    """Return the id of the key at the start of a line; empty if there is no key."""
    try:
        return key_id_of(base64.b64decode(word, validate=True))
    except ValueError:
        return ""
