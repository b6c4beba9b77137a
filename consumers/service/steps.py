"""The named steps of a request, of a refresh and of a registration: where a crash is tried.

The workers call ``at_step`` with a name as they reach it; in production nothing listens. The crash
tests end the process there in every way (tests/integration/commits/test_crash.py, which also checks
that it reaches every name in this list), and the simulation interleaves actors and faults there.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

AtStep = Callable[[str], None]
"""Called with the name of each step as it is reached."""


def no_hook(_: str) -> None:
    """Nothing listens."""


class Step(StrEnum):
    """Each name says what comes next; what came before it is done."""

    # Of the deletion worker, numbered as in docs/commit.md
    POLL = "poll"
    """1. The next records are asked for."""
    VALIDATE = "validate"
    """2. Records were read; nothing is known of them."""
    LOAD = "load"
    """3. What they name is read."""
    DECIDE = "decide"
    """4. States, rows and receipts are in memory; what each request comes to is decided."""
    COMPUTE = "compute"
    """5. The step of a batch is computed."""
    APPEND = "append"
    """6. Commits are made; they are appended."""
    APPLY = "apply"
    """7. Commits are acknowledged; the store knows nothing of them."""
    PUBLISH = "publish"
    """8. The store has them; nothing of them is published."""
    ADVANCE = "advance"
    """9. All is acknowledged; cursor and watermark are where they were."""

    TAKE_OVER = "take_over"
    """Partitions were assigned; nothing of their commits was read yet."""
    FOLD_APPLY = "fold_apply"
    """A fold has read commits; they are applied."""
    FOLD_PUBLISH = "fold_publish"
    """A fold has applied commits; they are published."""
    FOLD_ADVANCE = "fold_advance"
    """A fold has published commits; the cursor of what is published is where it was."""
    SHRED = "shred"
    """A receipt's rows are erased; their keys are not dropped yet (LETHE_ROW_KEYS_URL)."""

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

    # Of a registration (after them, as for any commit)
    REGISTER_STAGE = "register_stage"
    """Some rows are staged."""
    REGISTER_APPEND = "register_append"
    """All is staged and on disk; the commit is appended."""
    REGISTER_APPLY = "register_apply"
    """Its commit is acknowledged; the store knows nothing of it."""
    REGISTER_OPEN = "register_open"
    """It is applied; from which offsets on requests are the model's is not known yet."""
    REGISTER_FINISH = "register_finish"
    """All commits are applied; nothing is published."""
