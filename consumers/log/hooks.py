"""When a log in memory lets somebody look on, or fail it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from lethe.consumers.log.base import Message, Record


@dataclass(frozen=True, slots=True)
class HookCall:
    """Where a hook is called.

    A hook that raises *before* a publish leaves nothing in the log; *between*, the messages up to
    here are in it; *after*, all of them are and only the acknowledgement is lost. A poll whose
    hook raises moves no position: the records come again.
    """

    call: Literal["publish", "poll"]
    stage: Literal["before", "between", "after"]
    client: object
    messages: Sequence[Message] = ()
    records: Sequence[Record] = ()


Hook = Callable[[HookCall], None]
