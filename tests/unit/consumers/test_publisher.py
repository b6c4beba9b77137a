"""What leaves together: never receipts whose version waits behind another one."""

from __future__ import annotations

from consumers.publisher import by_version
from engine.store.keys import ModelKeys
from engine.store.outbox import Entry, Stage

M, N = ModelKeys.of_model("m"), ModelKeys.of_model("n")


def _entries(*commits: tuple[int, str]) -> list[tuple[bytes, Entry]]:
    """Return the entries of commits: their number, and a letter for each message."""
    stages = {"p": Stage.PARAMETERS, "r": Stage.RECEIPTS, "v": Stage.VERSIONS, "a": Stage.AFTER}
    return [
        (b"%d-%d" % (number, at), Entry(stages[letter], "topic", b"m", b"%d" % number))
        for number, letters in commits
        for at, letter in enumerate(letters, start=1)
    ]


def test_a_part_ends_with_the_commit_that_holds_a_version() -> None:
    # Given receipts alone, two versions (one with a job behind it), and receipts alone again
    waiting = {M: _entries((1, "r"), (2, "prrva"), (3, "pv"), (4, "r"), (5, "r"))}
    parts = [[entry_id for entry_id, _ in part[M]] for part in by_version(waiting)]
    assert parts == [
        [b"1-1", b"2-1", b"2-2", b"2-3", b"2-4", b"2-5"],
        [b"3-1", b"3-2"],
        [b"4-1", b"5-1"],
    ]


def test_models_go_side_by_side_and_nothing_is_left_out() -> None:
    waiting = {M: _entries((1, "prv"), (2, "prv")), N: _entries((7, "r"))}
    parts = list(by_version(waiting))
    assert [set(part) for part in parts] == [{M, N}, {M}]
    assert sum(len(entries) for part in parts for entries in part.values()) == 7
    assert list(by_version({})) == []
