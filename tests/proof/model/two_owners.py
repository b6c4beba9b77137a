"""Starvation (3.2 step 6): two owners of one model with endless backlogs, in simulated time.

A round of an owner: decide and compute, append (it lands after half of the round trip, the answer
comes after all of it), then, if won, apply and publish; if void, read the gap, fold, decide again.
The slower owner of two never wins: each time it appends, the faster one was there before. So who
wins and sees a rival's void record waits a random time before its next append of that model. It
sees one in the gap below its own record, so with the append after.
"""

from __future__ import annotations

import heapq
import random
import time
from dataclasses import dataclass, field

from tests.proof.model.checker import HOLDS, VIOLATED, Outcome

MILLISECOND = 1e-3
_JITTER = 0.3


@dataclass(frozen=True, slots=True)
class Owners:
    """Seconds that each part of a round takes; `compute` of the one and of the other owner."""

    compute: tuple[float, float]
    append: float
    gap: float
    fold: float
    publish: float

    @property
    def wait(self) -> float:
        """The longest wait of a winner: two rounds of the slower owner after a void record."""
        return 2 * (max(self.compute) + self.gap + self.fold)


@dataclass(slots=True)
class Tally:
    """What came of it: wins, void records, and the longest time between two wins, by owner."""

    won: list[int] = field(default_factory=lambda: [0, 0])
    void: list[int] = field(default_factory=lambda: [0, 0])
    longest: list[float] = field(default_factory=lambda: [0.0, 0.0])


def simulate(owners: Owners, seconds: float, seed: int, *, random_wait: bool) -> Tally:
    """Let two owners compete for a time."""
    draws = random.Random(seed)

    def about(length: float) -> float:
        return length * draws.uniform(1 - _JITTER, 1 + _JITTER)

    tally, head = Tally(), 0
    knows, based, wins, since = [0, 0], [0, 0], [False, False], [0.0, 0.0]
    rival_void, seen = [False, False], [False, False]
    events = [(about(owners.compute[owner]), owner, "append") for owner in (0, 1)]
    heapq.heapify(events)
    while events:
        now, owner, what = heapq.heappop(events)
        if now > seconds:
            break
        if what == "append":
            based[owner] = knows[owner]
            heapq.heappush(events, (now + about(owners.append) / 2, owner, "land"))
        elif what == "land":
            wins[owner] = based[owner] == head
            head += wins[owner]
            rival_void[1 - owner] |= not wins[owner]
            if wins[owner]:
                seen[owner], rival_void[owner] = rival_void[owner], False
            heapq.heappush(events, (now + about(owners.append) / 2, owner, "hear"))
        elif what == "hear" and wins[owner]:
            tally.won[owner] += 1
            tally.longest[owner] = max(tally.longest[owner], now - since[owner])
            since[owner], knows[owner] = now, based[owner] + 1
            rest = about(owners.publish) + about(owners.compute[owner])
            if random_wait and seen[owner]:
                rest += about(owners.gap) + draws.uniform(0, owners.wait)
            heapq.heappush(events, (now + rest, owner, "append"))
        elif what == "hear":
            tally.void[owner] += 1
            heapq.heappush(events, (now + about(owners.gap), owner, "read"))
        else:
            knows[owner] = head
            rest = about(owners.fold) + about(owners.compute[owner])
            heapq.heappush(events, (now + rest, owner, "append"))
    for owner in (0, 1):
        tally.longest[owner] = max(tally.longest[owner], seconds - since[owner])
    return tally


def starvation(
    owners: Owners, *, seconds: float, longest: float, random_wait: bool = True
) -> Outcome:
    """Say whether an owner waited longer than `longest` seconds for a win, over three seeds."""
    began = time.process_time()
    appends, worst = 0, Tally()
    for seed in range(3):
        tally = simulate(owners, seconds, seed, random_wait=random_wait)
        appends += sum(tally.won) + sum(tally.void)
        if max(tally.longest) > max(worst.longest):
            worst = tally
    waited, taken = max(worst.longest), time.process_time() - began
    if waited <= longest:
        return Outcome(HOLDS, appends, taken)
    broken = f"an owner waited {waited:.1f} s; won {worst.won}, void {worst.void}"
    return Outcome(VIOLATED, appends, taken, broken)
