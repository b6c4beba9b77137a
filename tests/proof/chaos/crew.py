"""The workers of a run: started, killed, stopped and continued by name; replaced when they die."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.servers import ROOT

SESSION_SECONDS = 3.0
ROLES = ("deletions", "refresh", "erasures")
_REFUSES = re.compile(r"(?:LogReset|PartitionReset): (lethe\.(?:deletions|erasures))\b")


@dataclass
class Member:
    """One process."""

    name: str
    role: str
    pid: int
    stopped: bool = False
    killed: bool = False
    taken: bool = False  # by a fault that is still going on

    def alive(self) -> bool:
        """Return whether the process is there."""
        return Path(f"/proc/{self.pid}").exists() if Path("/proc/self").exists() else self._there()

    def _there(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


class Crew:
    """Deletion workers of one group, and refresh workers."""

    def __init__(self, directory: Path, orders: dict[str, Any]) -> None:
        self.diaries = directory / "diaries"
        self._logs = directory / "logs"
        self.diaries.mkdir()
        self._logs.mkdir()
        self._orders = orders
        self._made = 0
        self.lock = threading.RLock()
        self.members: list[Member] = []
        self.deserters: list[str] = []  # processes that ended by themselves
        with (self._logs / "workers.log").open("ab") as log:
            self._nursery = subprocess.Popen(
                [
                    sys.executable,
                    "-W",
                    "ignore::DeprecationWarning",
                    "-m",
                    "tests.proof.chaos.worker",
                ],
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def start(self, role: str) -> Member:
        """Start one more worker."""
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        with self.lock:
            self._made += 1
            name = f"{role}-{self._made}"
            orders = {
                **self._orders,
                "name": name,
                "role": role,
                "session": SESSION_SECONDS,
                "diary": str(self.diaries / f"{name}.jsonl"),
                "log": str(self._logs / f"{name}.log"),
            }
            self._nursery.stdin.write(json.dumps(orders) + "\n")
            self._nursery.stdin.flush()
            member = Member(name, role, int(self._nursery.stdout.readline()))
            self.members.append(member)
            return member

    def of(self, role: str) -> list[Member]:
        """Return the workers of a role that live and to whom nothing is happening."""
        with self.lock:
            return [m for m in self.members if m.role == role and not m.taken and not m.killed]

    def kill(self, member: Member) -> None:
        """Kill a worker with SIGKILL and start another in its place."""
        member.killed = True
        self._signal(member, signal.SIGKILL)
        self.start(member.role)

    def kill_all(self) -> None:
        """Kill every worker and start another in its place, which asks what the store syncs."""
        with self.lock:
            for member in [m for m in self.members if not m.killed]:
                self.kill(member)

    @contextlib.contextmanager
    def without(self, *roles: str) -> Iterator[None]:
        """Kill the workers of some roles, and start others in their places when the block ends."""
        with self.lock:
            gone = [m for m in self.members if m.role in roles and not m.killed]
            for member in gone:
                member.killed = True
                self._signal(member, signal.SIGKILL)
            try:
                yield
            finally:
                for member in gone:
                    self.start(member.role)

    def refused(self) -> tuple[str, float] | None:
        """Return the topic for whose loss some worker has ended, as it must, and when it did."""
        with self.lock:
            dead = [m for m in self.members if not m.killed and not m.alive()]
            return next(filter(None, map(self._refuses, dead)), None)

    def _refuses(self, member: Member) -> tuple[str, float] | None:
        for line in self._diary(member, newest=1 << 12):
            if line["what"] == "ended" and (found := _REFUSES.match(line["reason"])):
                return found[1], line["t"]
        return None

    def stop(self, member: Member) -> None:
        """Stop a worker where it is."""
        member.stopped = True
        self._signal(member, signal.SIGSTOP)

    def go_on(self, member: Member) -> None:
        """Let a stopped worker go on."""
        self._signal(member, signal.SIGCONT)
        member.stopped = member.taken = False

    def holding(self, member: Member) -> set[str]:
        """Return the partitions that a worker works on, as it wrote down itself."""
        held: set[str] = set()
        for line in self._diary(member):
            if line["what"] == "seek":
                held.add(line["partition"])
            elif line["what"] == "lost":
                held.difference_update(line["partitions"])
        return held

    def applied(self, partitions: set[str], since: float) -> bool:
        """Return whether rows of a request in one of these partitions were deleted since."""
        return any(
            line["what"] == "commit"
            and line["deleted"]
            and line["t"] > since
            and not partitions.isdisjoint(line["partitions"])
            for member in self.of("deletions")
            for line in self._diary(member, newest=1 << 16)
        )

    def _diary(self, member: Member, newest: int = 0) -> Iterator[dict[str, Any]]:
        path = self.diaries / f"{member.name}.jsonl"
        if not path.exists():
            return
        with path.open("rb") as handle:
            if newest:
                handle.seek(max(0, path.stat().st_size - newest))
            for line in handle:
                if line.startswith(b"{") and line.endswith(b"}\n"):
                    yield json.loads(line)

    def halts(self) -> Counter[str]:
        """Return how often models were halted, by what the workers said of the reason."""
        found: Counter[str] = Counter()
        for path in sorted(self._logs.glob("deletions-*.log")):
            for line in path.read_text(errors="replace").splitlines():
                if "action=halt" in line:
                    found[line.partition("reason=")[2][:160]] += 1
        return found

    def replace_deserters(self) -> None:
        """Start others in place of those that ended by themselves, and remember that they did.

        Not of those that ended because a topic has lost requests: a person must act first.
        """
        with self.lock:
            for member in list(self.members):
                if not member.alive() and (member.killed or self._refuses(member) is None):
                    self.members.remove(member)
                    if not member.killed:
                        self.deserters.append(member.name)
                        self.start(member.role)

    def _signal(self, member: Member, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member.pid, number)

    def close(self) -> None:
        """Kill all of them."""
        for member in self.members:
            if not member.killed:
                member.killed = True
                self._signal(member, signal.SIGKILL)
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._nursery.stdin.close()
        self._nursery.wait(60)
        self._nursery.stdout.close()


def wait_until(true: Any, seconds: float, what: str) -> None:
    """Wait until a condition holds.

    Raises
    ------
    TimeoutError
        It did not within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)
