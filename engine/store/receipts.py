"""A receipt as the state keeps it: ``F`` final or ``P`` pending, then JSON of body and receipt."""

from __future__ import annotations

import json
from dataclasses import dataclass

from engine.errors import CorruptState
from engine.store.reading import document


@dataclass(frozen=True, slots=True)
class Kept:
    """A stored receipt: whether it is final, what was asked for, and the receipt's own JSON."""

    final: bool
    body: str
    receipt: str


def keep_receipt(kept: Kept) -> str:
    """Return the stored form."""
    content = json.dumps({"body": kept.body, "receipt": kept.receipt}, ensure_ascii=False)
    return ("F" if kept.final else "P") + content


def open_receipt(stored: str, what: str) -> Kept:
    """Return a receipt from its stored form.

    Raises
    ------
    CorruptState
        It is none.
    """
    content = document(stored[1:], f"{what}, its receipt")
    if stored[0] not in "FP" or not isinstance(content, dict):
        raise CorruptState(f"{what}: what is stored is no receipt; run `lethe check`")
    body, receipt = content.get("body"), content.get("receipt")
    if not isinstance(body, str) or not isinstance(receipt, str):
        raise CorruptState(f"{what}: what is stored is no receipt; run `lethe check`")
    return Kept(stored[0] == "F", body, receipt)
