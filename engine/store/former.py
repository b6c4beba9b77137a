"""Refusing what an older Lethe stored: its keys have other names, so nothing else would notice."""

from __future__ import annotations

from typing import Any

import redis

from lethe.engine.errors import FormatTooOld
from lethe.engine.store.connection import address, reachable
from lethe.engine.store.format import FORMAT
from lethe.engine.store.keys import FORMER_MODELS


def refuse_former_state(client: redis.Redis) -> None:
    """Refuse a store with models of a format before 5. Cost: one EXISTS.

    Raises
    ------
    FormatTooOld
        The store holds such models.
    """
    with reachable(client):
        exists: Any = client.exists(FORMER_MODELS)
    if exists:
        raise FormatTooOld(
            f"the store at {address(client)} holds models of an older Lethe, before format "
            f"{FORMAT}, which this release does not read; name an empty store (--data-dir or "
            "--redis) and register them there again, or run the older release"
        )
