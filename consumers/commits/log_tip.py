"""Where a model's log ends, when it may be incomplete (`lethe recover`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lethe.consumers.commits.counted import OpenRecord
from lethe.consumers.commits.journal import Verdict, judge
from lethe.engine.store.state import Head


@dataclass(frozen=True, slots=True)
class LogTip:
    """Where a model's log ends.

    Attributes
    ----------
    head, offset, version
        Its last commit that counts, that commit's offset (-1 if the log has none), and the newest
        version that the log names up to it (-1 if none).
    highest
        The highest number of any of its records.
    next
        Offset of the first commit that continues the store's, or None.
    """

    head: Head = Head()  # noqa: RUF009 - it is immutable
    offset: int = -1
    version: int = -1
    highest: int = -1
    next: int | None = None

    def lost(self, stored: Head) -> bool:
        """Return whether no fold can bring store and log together."""
        return self.next is None and (
            self.head != stored or self.highest > max(self.head.commit, stored.commit)
        )


def log_tip(records: Sequence[OpenRecord], stored: Head, index: int) -> LogTip:
    """Return where a model's log ends, judged from the store's commit if the log has it.

    Otherwise the log begins with commit 0, or with the first commit that another one continues.
    """
    highest = max((record.open.number for record in records), default=-1)
    continued = {record.open.prev for record in records}
    stored_record = next((record for record in records if record.digest == stored.digest), None)
    if stored_record is not None:
        versions = [
            record.open.version for record in records if record.open.number <= stored.commit
        ]
        version = max((number for number in versions if number is not None), default=-1)
        head, offset = stored, stored_record.offset
    else:
        first = next(
            (record for record in records if record.open.number == 0 or record.digest in continued),
            None,
        )
        if first is None:
            return LogTip(highest=highest)
        version, head, offset = -1, Head(first.open.number - 1, first.open.prev), -1
    following: int | None = None
    for record in records:
        if judge(record.open, head, index) is Verdict.VALID:
            if stored_record is not None and following is None:
                following = record.offset
            head, offset = Head(record.open.number, record.digest), record.offset
            version = version if record.open.version is None else record.open.version
    return LogTip(head, offset, version, highest, following)
