"""The named steps of a request, of a refresh and of a registration: where a crash is tried.

The workers call ``at_step`` with a name as they reach it; in production nothing listens. The crash
tests end the process there in every way (tests/integration/test_crash.py, which also checks that
it reaches every name in this list), and the simulation interleaves actors and faults there.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

AtStep = Callable[[str], None]
"""Called with the name of each step as it is reached."""


def unwatched(_: str) -> None:
    """Nothing listens."""


class Step(StrEnum):
    """Each name says what comes next; what came before it is done."""

    # Of the deletion worker, in the order of docs/commit.md
    TAKE_OVER = "take_over"
    """Partitions were assigned; nothing was compared with the log yet."""
    TAKEN_OVER = "taken_over"
    """What a former owner left is published and erased; no position was taken yet."""
    POLL = "poll"
    """1. The next records are asked for."""
    VALIDATE = "validate"
    """2. Records were read; nothing is known of them."""
    LOAD = "load"
    """3. A model's state is not in memory and is read."""
    COMPUTE = "compute"
    """4. State, rows and receipts are in memory; the step is computed."""
    COMMIT = "commit"
    """5. The transition is made; the script is sent."""
    BARRIER = "barrier"
    """6. The script has answered; the commit may not be on disk yet."""
    DURABLE = "durable"
    """The commit is on disk; memory holds the state before it."""
    PUBLISH = "publish"
    """7. Every group of the batch is committed; the outbox is read."""
    PUBLISH_RECEIPTS = "publish_receipts"
    """Parameters are acknowledged; receipts are sent."""
    PUBLISH_VERSIONS = "publish_versions"
    """Receipts are acknowledged; versions are sent."""
    PUBLISH_AFTER = "publish_after"
    """Versions are acknowledged; refresh jobs and dead letters are sent."""
    DEAD_LETTER = "dead_letter"
    """As `PUBLISH_AFTER`, with a dead letter among what is sent."""
    TRIM = "trim"
    """Everything is acknowledged; the outbox still holds it."""
    ERASE = "erase"
    """8. Nothing waits to be published; records of deleted rows are removed."""
    ERASED = "erased"
    """Records are removed; the set of those to remove still names them."""
    DISCARD = "discard"
    """A former generation or data set is removed."""
    DISCARDED = "discarded"
    """It is removed; the set of those to remove still names it."""
    ADVANCE = "advance"
    """9. The partition's watermark is moved."""
    HINT = "hint"
    """The watermark is moved; the log's own offset is not."""

    # Of the refresh worker
    REFRESH_SNAPSHOT = "refresh_snapshot"
    """A job is counted as begun; the model is read."""
    REFRESH_STAGE = "refresh_stage"
    """Some of a new generation's rows are staged."""
    REFRESH_WRITE = "refresh_write"
    """The work is done, a new generation is staged; the result is stored."""
    REFRESH_COMPLETE = "refresh_complete"
    """The result is stored; the event that names it is sent."""
    REFRESH_ADVANCE = "refresh_advance"
    """The event is acknowledged; the watermark of the jobs is moved."""
    REFRESH_SWAP = "refresh_swap"
    """In the deletion worker: a result was read; its commit is made (then as any commit)."""

    # Of a registration (its publishing and erasing pass through the steps above as well)
    REGISTER_STAGE = "register_stage"
    """Some rows are staged."""
    REGISTER_ANNOUNCE = "register_announce"
    """All is staged; the model is not on the list of models."""
    REGISTER_COMMIT = "register_commit"
    """It is on that list; the script is sent."""
    REGISTER_FINISH = "register_finish"
    """Version 0 (or the next one) is committed; nothing of it is published."""
