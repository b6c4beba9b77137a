"""Other usual ways to write a subject's id: for an erasure of somebody whom no model knows.

A subject is found under exactly the id that the training data have. A platform may write it in
another way: a CSV file turns 5 into 5.0, a spreadsheet 00007 into 7, a keyboard é into e and an
accent. Nothing is erased under another spelling; people are told that a model knows one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from lethe.consumers.erasures.models import Registered, rows_of_subjects
from lethe.engine.store.store import ModelStore

_NUMBER = re.compile(r"([+-]?)0*([0-9]+)(?:\.([0-9]*?)0*)?")
_WIDTH = 12
"""Digits of the longest id that is looked up with zeros before it."""

_LONGEST = 128
"""Characters of a subject's id."""


def spellings(subject_id: str) -> list[str]:
    """Return other usual ways to write an id, sorted: some twenty of a number, ten of a text."""
    plain = subject_id.strip()
    forms = {plain, plain.lower(), plain.upper(), *_of_number(plain), *_of_uuid(plain)}
    normal = {unicodedata.normalize(name, form) for form in forms for name in ("NFC", "NFD")}
    normal.add(unicodedata.normalize("NFKC", plain))
    return sorted(form for form in normal - {subject_id} if 0 < len(form) <= _LONGEST)


def _of_number(text: str) -> set[str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return set()
    sign, digits, fraction = match[1].replace("+", ""), match[2], match[3]
    if fraction:
        return {f"{sign}{digits}.{fraction}"}
    padded = {digits.zfill(width) for width in range(len(digits), _WIDTH + 1)}
    return {f"{sign}{digits}.0", *(f"{sign}{form}" for form in padded | {digits})}


def _of_uuid(text: str) -> set[str]:
    with suppress(ValueError):
        one = UUID(text)
        return {str(one), one.hex, str(one).upper(), one.hex.upper()}
    return set()


def known_spellings(
    store: ModelStore, models: Iterable[Registered], namespace: str, subject_id: str
) -> Mapping[str, Sequence[str]]:
    """Return, by model, the other spellings of a subject that it knows. One round trip."""
    asked = [model for model in models if model.knows(namespace)]
    found = rows_of_subjects(store, asked, [spellings(subject_id)] * len(asked))
    return {
        model.model_id: sorted(known) for model, known in zip(asked, found, strict=True) if known
    }
