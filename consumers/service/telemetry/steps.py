"""The named steps of a request, a refresh and a registration: the points of the crash tests.

The workers call ``at_step`` with the name of each step they reach; in production the hook does
nothing. The crash tests end the process there in every way
(tests/integration/commits/test_crash.py, which also checks that it reaches every step), and the
simulation interleaves actors and faults there.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

AtStep = Callable[[str], None]
"""Called with the name of each step as it is reached."""


def no_hook(_: str) -> None:
    """Do nothing."""


class Step(StrEnum):
    """Each step is named after what comes next; everything before it is done."""

    # Of the deletion worker, numbered as in docs/commit.md
    POLL = "poll"
    """1. The next records are about to be polled."""
    VALIDATE = "validate"
    """2. Records were read, but not validated."""
    LOAD = "load"
    """3. The models and rows that they name are about to be read."""
    DECIDE = "decide"
    """4. States, rows and receipts are in memory; the outcome of each request is next."""
    COMPUTE = "compute"
    """5. The step of a batch is about to be computed."""
    APPEND = "append"
    """6. Commits are built, but not appended."""
    APPLY = "apply"
    """7. Commits are acknowledged, but not in the store."""
    PUBLISH = "publish"
    """8. Commits are in the store, but not published."""
    ADVANCE = "advance"
    """9. Everything is acknowledged, but cursor and watermark are not moved."""

    TAKE_OVER = "take_over"
    """Partitions were assigned, but none of their commits was read."""
    FOLD_APPLY = "fold_apply"
    """A fold has read commits, but not applied them."""
    FOLD_PUBLISH = "fold_publish"
    """A fold has applied commits, but not published them."""
    FOLD_ADVANCE = "fold_advance"
    """A fold has published commits, but not moved the cursor of publication."""
    SHRED = "shred"
    """A commit is applied (not yet if it leaves no row), but no key is dropped or set to expire.

    Only with LETHE_ROW_KEYS_URL.
    """

    # Of the refresh worker
    REFRESH_SNAPSHOT = "refresh_snapshot"
    """A job is counted as begun; the model is about to be read."""
    REFRESH_STAGE = "refresh_stage"
    """Some of a new generation's rows are staged."""
    REFRESH_WRITE = "refresh_write"
    """The work is done and a new generation is staged, but the result is not stored."""
    REFRESH_COMPLETE = "refresh_complete"
    """The result is stored, but the event that names it is not sent."""
    REFRESH_ADVANCE = "refresh_advance"
    """The event is acknowledged, but the watermark of the jobs is not moved."""
    REFRESH_SWAP = "refresh_swap"
    """In the deletion worker: a result was read; its commit is next (then as for any commit)."""

    # Of the erasure worker
    ERASE_SUPPRESS = "erase_suppress"
    """Erasures were read, but their subjects are not on the list."""
    ERASE_ASK = "erase_ask"
    """The subjects are on the list; whom to ask is known, but nobody is asked."""
    ERASE_AWAIT = "erase_await"
    """The requests are acknowledged, but nothing is remembered of them."""
    ERASE_ASK_AGAIN = "erase_ask_again"
    """Row changes that were on their way are decided; the index is about to be read again."""
    ERASE_PUBLISH = "erase_publish"
    """Every model has answered, but the combined receipt is not published."""
    ERASE_ADVANCE = "erase_advance"
    """The combined receipt is acknowledged, but the watermark is not moved."""
    ERASE_SWEEP = "erase_sweep"
    """A registration was searched and its models are asked, but that is not noted."""

    # Of a registration (after them, as for any commit)
    REGISTER_STAGE = "register_stage"
    """Some rows are staged."""
    REGISTER_APPEND = "register_append"
    """Everything is staged and on disk, but the commit is not appended."""
    REGISTER_APPLY = "register_apply"
    """The commit is acknowledged, but not in the store."""
    REGISTER_OPEN = "register_open"
    """The commit is applied, but the offsets from which the model takes requests are not stored."""
    REGISTER_FINISH = "register_finish"
    """All commits are applied, but nothing is published."""


class IntakeStep(StrEnum):
    """The steps of the intake worker, which is in no request's way: it sends requests."""

    POLL = "intake_poll"
    """The next changes are about to be polled."""
    SEND = "intake_send"
    """Changes were read, but none of their requests is sent."""
    DELETE = "intake_delete"
    """Rows are inserted under their new ids, and nothing else is sent."""
    ADVANCE = "intake_advance"
    """All requests are acknowledged, but the position is not moved."""
