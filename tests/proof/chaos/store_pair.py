"""A primary and a replica behind a proxy, and what can happen to them.

Clients know one address, ``redis`` of the proxies. The replica follows the primary through the
route ``replication``, which is held before a failover, so that the replica lags by what is
written meanwhile. Each method leaves a store that works, if not the same one.

How much the servers promise (`Durability`) can be changed while they run. Without an append-only
file a server that is killed comes back as its newest snapshot has it, which `snapshot` takes:
whoever runs this does so after each registration and each new generation, as docs/operations.md
says for such a store. Snapshots are kept as backups, of which any can be restored at any time.

A full disk: ``RLIMIT_FSIZE`` of the server's process is lowered to what its append-only file
has now (``prlimit``: needs no privileges). The next write fails with EFBIG, and a server with
``appendfsync always`` ends, as on a disk that is full; it ends again and again until there is
room.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import redis

from lethe.engine.store.layout.keys import ModelKeys, every_partition
from lethe.engine.store.server.connection import text
from tests.proof.chaos.append_only_file import cut_at_damage
from tests.proof.chaos.crew import wait_until
from tests.proof.chaos.proxy import Proxies
from tests.support.servers import ValkeyProcess, free_port

_SYNC_SECONDS = 60.0
_DAMAGED = "Bad file format reading the append only file"
_SNAPSHOT_SECONDS = 20.0  # of a server without a file
_PATIENCE_SECONDS = 4.0  # with workers that commit nothing
_SETTINGS = {
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": "0",
    "repl-backlog-size": "16mb",
    "rdbcompression": "no",  # so that a row's bytes can be looked for in files
    "enable-debug-command": "no",
}


Durability = Literal["always", "everysec", "none"]
"""``appendfsync``, or no append-only file at all."""

DURABILITIES: tuple[Durability, ...] = get_args(Durability)
_BACKUPS = 12  # kept: the first one, and the newest


@dataclass(frozen=True, slots=True)
class Loss:
    """Acknowledged commits that the store lost, and how. Times are of the machine's clock."""

    how: str
    durability: Durability
    commits: int
    begin: float
    end: float


@dataclass
class StorePair:
    """The two servers.

    Attributes
    ----------
    directory, proxies
        Where their data are, and what stands before them.
    losses
        What was lost so far.
    busy
        Held while something is done to the servers, or must not be.
    """

    directory: Path
    proxies: Proxies
    losses: list[Loss] = field(default_factory=list)
    busy: threading.RLock = field(default_factory=threading.RLock)
    durability: Durability = "always"
    backups: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port, self._replication = free_port(), free_port()
        self.primary = ValkeyProcess(self.directory / "a", _SETTINGS)
        self.replica = ValkeyProcess(self.directory / "b", _SETTINGS)
        self._live: dict[str, str] = {}
        self._snapshot_due = 0.0

    @property
    def routes(self) -> tuple[str, ...]:
        """The proxies before it that clients pass."""
        return ("redis",)

    @property
    def url(self) -> str:
        """Where clients connect to: the proxy."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start both, and the proxy before them."""
        self.proxies.tell("listen", "redis", port=self.port, target=self.primary.port)
        self.proxies.tell("listen", "replication", port=self._replication, target=self.primary.port)
        self.primary.start()
        self.replica.start()
        self._follow()

    def close(self) -> None:
        """Stop both."""
        self.primary.close()
        self.replica.close()

    # -- what they promise ----------------------------------------------------------------------

    def promise(self, durability: Durability) -> None:
        """Have both servers promise this from now on, also when they are started again."""
        with self.busy:
            self.durability = durability
            for server in (self.primary, self.replica):
                self._promise(server)
            self.snapshot()

    def _promise(self, server: ValkeyProcess) -> None:
        appends = "no" if self.durability == "none" else "yes"
        fsync = "everysec" if self.durability == "none" else self.durability
        server.settings |= {"appendonly": appends, "appendfsync": fsync}
        settings = {"appendfsync": fsync, "appendonly": appends}
        with self._client(server) as client:
            wait_until(lambda: self._takes(client, settings), _SYNC_SECONDS, "settings are taken")
        if appends == "yes":
            self._written(server)

    @staticmethod
    def _takes(client: redis.Redis, settings: Mapping[str, str]) -> bool:
        """Set these; False while the server loads its data, as a replica may at any time."""
        try:
            for name, value in settings.items():
                client.config_set(name, value)
        except redis.BusyLoadingError:
            return False
        return True

    def snapshot(self) -> None:
        """Write both servers' snapshots now, and keep the primary's as a backup."""
        with self.busy:
            for server in (self.primary, self.replica):
                with self._client(server) as client, contextlib.suppress(redis.BusyLoadingError):
                    wait_until(lambda: self._saved(client), _SYNC_SECONDS, "a snapshot")
            kept = self.directory / f"backup-{time.time_ns()}.rdb"
            shutil.copy(self.primary.data / "dump.rdb", kept)
            self.backups.append(kept)
            while len(self.backups) > _BACKUPS:
                self.backups.pop(1 + len(self.backups) // 3).unlink()

    def tend(self) -> None:
        """Take a snapshot once some model has another generation: whoever keeps no file does so.

        And every so often, as a server does that has save points in place of a file, and as
        whoever keeps backups does.
        """
        with self.busy:
            live = self._generations()
            due = time.monotonic() > self._snapshot_due
            if live != self._live or due:
                self.snapshot()
                pause = _SNAPSHOT_SECONDS * (1 if self.durability == "none" else 3)
                self._live, self._snapshot_due = live, time.monotonic() + pause

    def _generations(self) -> dict[str, str]:
        """Return the name of every model's live generation."""
        with self.busy, self._client(self.primary) as client:
            pipe = client.pipeline(transaction=False)
            for partition in every_partition():
                pipe.smembers(partition.models)
            names = [text(name) for members in pipe.execute() for name in members]
            for name in names:
                pipe.hget(ModelKeys(name).head, "rows")
            return dict(zip(names, (text(rows or b"") for rows in pipe.execute()), strict=True))

    @staticmethod
    def _saved(client: redis.Redis) -> bool:
        try:
            return bool(client.save())
        except redis.ResponseError:  # one is being written, or sent to the replica
            return False

    # -- faults that lose nothing, if there is an append-only file --------------------------------

    def kill(self) -> None:
        """Kill the primary with SIGKILL and start it again: as far as its files say."""
        with self.busy:
            before, begin = self._commits(self.primary), time.time()
            self.primary.kill()
            cut = self._start(self.primary)
            if cut or self.durability == "none":
                self._lost(
                    "file that cannot be loaded" if cut else "kill without a file", before, begin
                )
            self._follow()

    def run_out_of_memory(self, seconds: float) -> None:
        """Let the primary refuse all writes for a while."""
        with self.busy:
            with contextlib.suppress(redis.RedisError), self._client(self.primary) as client:
                client.config_set("maxmemory", "1mb")
            time.sleep(seconds)
            with self._client(self.primary) as client:
                client.config_set("maxmemory", "0")

    def fill_disk(self, seconds: float, room: int) -> int:
        """Leave ``room`` bytes on the primary's disk for a while; return how often it ended."""
        ended, cut = 0, False
        with self.busy:
            before, begin = self._commits(self.primary), time.time()
            deadline = time.monotonic() + seconds
            self._limit(self._newest_file(self.primary).stat().st_size + room)
            while time.monotonic() < deadline:
                if self.primary.pid == 0:
                    ended += 1
                    self.primary.kill()
                    cut |= self._start(self.primary)
                    self._limit(self._newest_file(self.primary).stat().st_size)
                time.sleep(0.05)
            self._limit(resource.RLIM_INFINITY)
            if not self._answers(self.primary):
                ended += 1
                self.primary.kill()
                cut |= self._start(self.primary)
            if cut:
                self._lost("file that cannot be loaded", before, begin)
            self._follow()
        return ended

    def _answers(self, server: ValkeyProcess) -> bool:
        """Return whether a server lives on: one that met a full disk may be about to end."""
        with self._client(server) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

    def _limit(self, size: int) -> None:
        if self.primary.pid:
            hard = resource.prlimit(self.primary.pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(self.primary.pid, resource.RLIMIT_FSIZE, (size, hard))

    # -- faults that lose acknowledged writes ----------------------------------------------------

    def truncate(self, seconds: float, torn: int) -> None:
        """Kill the primary and cut its file back to what it was some commits ago.

        ``torn`` bytes of what followed stay: most often a part of a command.
        """
        with self.busy:
            path = self._newest_file(self.primary)
            size = path.stat().st_size + torn
            before, begin = self._commits_made(seconds), time.time()
            self.proxies.tell("close", "redis")
            self.primary.kill()
            newest = self._newest_file(self.primary)
            if newest != path:  # a rewrite has begun another one since
                path, size = newest, torn
            with path.open("r+b") as handle:
                handle.truncate(min(size, path.stat().st_size))
            self._start(self.primary)
            self._lost("truncation", before, begin)
            self.proxies.tell("open", "redis", target=self.primary.port)
            self._follow()

    def restore(self, backup: Path) -> None:
        """Kill the primary, and start it with what a backup has."""
        with self.busy:
            before, begin = self._commits(self.primary), time.time()
            self.proxies.tell("close", "redis")
            self.primary.kill()
            self._start_on(self.primary, backup)
            self._lost("restored backup", before, begin)
            self.proxies.tell("open", "redis", target=self.primary.port)
            self._follow()

    def fail_over(self, lag: float) -> None:
        """Hold the replication for a while, kill the primary, and promote the replica."""
        with self.busy:
            self._in_sync()
            self.proxies.tell("hold", "replication")
            before, begin = self._commits_made(lag), time.time()
            self.proxies.tell("close", "redis")
            self.primary.kill()
            self.proxies.tell("close", "replication")
            with self._client(self.replica) as client:
                client.replicaof("NO", "ONE")  # it is in sync, so it loads nothing
            self.primary, self.replica = self.replica, self.primary
            self._lost("failover", before, begin)
            self.proxies.tell("open", "redis", target=self.primary.port)
            self.proxies.tell("open", "replication", target=self.primary.port)
            self._start(self.replica)
            self._follow()

    def _start(self, server: ValkeyProcess) -> bool:
        """Start a server; return whether its file had to be cut first, as its log says to.

        Where that does not help, it is started on the newest backup, as its operator would.
        """
        try:
            server.start()
        except RuntimeError as error:
            if _DAMAGED in str(error).splitlines()[-1]:
                cut_at_damage(self._newest_file(server))
                server.start()
            else:
                self._start_on(server, self.backups[-1])
            return True
        return False

    def _start_on(self, server: ValkeyProcess, backup: Path) -> None:
        """Start a server with what a backup has, in place of its data."""
        shutil.rmtree(server.data / "appendonlydir", ignore_errors=True)
        shutil.copy(backup, server.data / "dump.rdb")
        server.settings["appendonly"] = "no"  # else it looks for no snapshot
        server.start()
        self._promise(server)

    def _commits_made(self, seconds: float) -> dict[str, int]:
        """Wait until something was committed, and ``seconds`` more; return all commits."""
        first = self._commits(self.primary)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._commits(self.primary) == first and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(seconds)
        return self._commits(self.primary)

    def _lost(self, how: str, before: dict[str, int], begin: float) -> None:
        """Count what is not there any more."""
        after = self._commits(self.primary)
        lost = sum(max(0, seen - after.get(model, 0)) for model, seen in before.items())
        self.losses.append(Loss(how, self.durability, lost, begin, time.time()))

    def _commits(self, server: ValkeyProcess) -> dict[str, int]:
        """Return the number of every model's newest commit."""
        with self._client(server) as client:
            names = sorted(
                text(name)
                for partition in every_partition()
                for name in client.smembers(partition.models)
            )
            found = [client.hget(ModelKeys(name).head, "commit") for name in names]
        return {name: int(number or 0) for name, number in zip(names, found, strict=True)}

    # -- the two ----------------------------------------------------------------------------------

    def _follow(self) -> None:
        with self._client(self.replica) as client:

            def told() -> bool:
                with contextlib.suppress(redis.BusyLoadingError):  # it takes an earlier copy in
                    client.replicaof("127.0.0.1", str(self._replication))
                    return True
                return False

            wait_until(told, _SYNC_SECONDS, "the replica takes orders")

    def _in_sync(self) -> None:
        def in_sync() -> bool:
            with self._client(self.replica) as client:
                there: Any = client.info("replication")
            with self._client(self.primary) as client:
                here: Any = client.info("replication")
            up = there.get("master_link_status") == "up"
            behind = int(here["master_repl_offset"]) - int(there.get("slave_repl_offset", 0))
            return up and behind < 1 << 20

        wait_until(in_sync, _SYNC_SECONDS, "the replica follows")

    def _caught_up(self) -> None:
        """Wait until the replica has all that the primary has now."""
        with self._client(self.primary) as client:
            now: Any = client.info("replication")

        def has_it() -> bool:
            with self._client(self.replica) as client:
                there: Any = client.info("replication")
            up = there.get("master_link_status") == "up"
            return up and int(there["slave_repl_offset"]) >= int(now["master_repl_offset"])

        wait_until(has_it, _SYNC_SECONDS, "the replica has everything")

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Keep faults away; at the end what was written can not be lost by those to come."""
        with self.busy:
            yield
            self.rewrite(self.primary)
            self._caught_up()
            self.rewrite(self.replica)
            self.snapshot()

    def rewrite(self, server: ValkeyProcess) -> None:
        """Have a server write its append-only file anew, and wait for it."""
        self._written(server)
        with self._client(server) as client:
            client.bgrewriteaof()
        time.sleep(0.02)
        self._written(server)

    def _written(self, server: ValkeyProcess) -> None:
        """Wait until no rewrite is under way."""
        with self._client(server) as client:

            def idle() -> bool:
                now: Any = client.info("persistence")
                busy = now["aof_rewrite_in_progress"] or now["aof_rewrite_scheduled"]
                return not busy and now.get("aof_last_bgrewrite_status") == "ok"

            wait_until(idle, _SYNC_SECONDS, "the append-only file is rewritten")

    def rewritten(self) -> dict[str, Path]:
        """Have both servers write all of their files anew; return where these are."""
        with self.busy:
            self.promise("always")
            self._caught_up()
            self.rewrite(self.primary)
            self.rewrite(self.replica)
            self.snapshot()
        return {"primary": self.primary.data, "replica": self.replica.data}

    @staticmethod
    def _newest_file(server: ValkeyProcess) -> Path:
        files = list((server.data / "appendonlydir").glob("*.incr.aof"))
        return max(files, key=lambda path: int(path.name.split(".")[-3]))

    @staticmethod
    @contextmanager
    def _client(server: ValkeyProcess) -> Iterator[redis.Redis]:
        with redis.Redis.from_url(server.url, socket_timeout=20.0) as client:
            yield client
