"""Where a model's log ends, when nobody knows whether it is whole (`lethe recover`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lethe.consumers.commits.journal import Verdict, judge
from lethe.consumers.commits.record import OpenPart
from lethe.engine.store.state import Head


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record of one model, as far as everybody can read it."""

    offset: int
    digest: str
    open: OpenPart


@dataclass(frozen=True, slots=True)
class LogTip:
    """Where a model's log ends.

    Attributes
    ----------
    head, offset, version
        Its last commit that counts, where that lies (-1: the log has none), and the newest version
        that the log names up to it (-1: none).
    highest
        The highest number of any of its records.
    next
        Offset of the first commit that continues the store's; None: there is none.
    """

    head: Head = Head()  # noqa: RUF009 - it is immutable
    offset: int = -1
    version: int = -1
    highest: int = -1
    next: int | None = None

    def lost(self, stored: Head) -> bool:
        """Return whether no fold brings store and log together."""
        return self.next is None and (
            self.head != stored or self.highest > max(self.head.commit, stored.commit)
        )


def log_tip(records: Sequence[LogRecord], stored: Head, index: int) -> LogTip:
    """Return where a model's log ends, judged from the store's commit if the log has that one.

    Without it, the log begins with commit 0, or with the first that another one continues.
    """
    highest = max((one.open.number for one in records), default=-1)
    continued = {one.open.prev for one in records}
    known = next((one for one in records if one.digest == stored.digest), None)
    if known is not None:
        below = [one.open.version for one in records if one.open.number <= stored.commit]
        version = max((number for number in below if number is not None), default=-1)
        head, offset = stored, known.offset
    else:
        first = next((r for r in records if r.open.number == 0 or r.digest in continued), None)
        if first is None:
            return LogTip(highest=highest)
        version, head, offset = -1, Head(first.open.number - 1, first.open.prev), -1
    following: int | None = None
    for one in records:
        if judge(one.open, head, index) is Verdict.VALID:
            if known is not None and following is None:
                following = one.offset
            head, offset = Head(one.open.number, one.digest), one.offset
            version = version if one.open.version is None else one.open.version
    return LogTip(head, offset, version, highest, following)
