"""Hooks of the in-memory log: they observe its calls, and can make them fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from lethe.consumers.log.base import Message, Record


@dataclass(frozen=True, slots=True)
class HookCall:
    """The point at which a hook is called.

    If a hook raises *before* a publish, the log has none of the messages; *between*, it has those
    up to this point; *after*, it has all of them and only the acknowledgement is lost. A poll
    whose hook raises moves no position: it delivers the records again.
    """

    call: Literal["publish", "poll"]
    stage: Literal["before", "between", "after"]
    client: object
    messages: Sequence[Message] = ()
    records: Sequence[Record] = ()


Hook = Callable[[HookCall], None]
