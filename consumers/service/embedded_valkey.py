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
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import quote

from lethe.consumers.service.valkey_server import (
    START_TIMEOUT,
    STOP_TIMEOUT,
    ValkeyServer,
    lock_file,
    try_exclusive,
    wait_until,
)
from lethe.engine.errors import StoreUnavailable

# Another process may be starting or stopping the server at this moment.
TURN_TIMEOUT = START_TIMEOUT + STOP_TIMEOUT
_WATCH_SECONDS = 5.0


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
        self._server = ValkeyServer(self.data_dir)
        self._linger = linger
        self._share: int | None = None
        self._socket: Path | None = None

    @property
    def url(self) -> str:
        """The server's address in redis-py's form, ``unix:///path``."""
        if self._socket is None:
            raise RuntimeError("the embedded Valkey has an address only inside its with statement")
        return f"unix://{quote(str(self._socket))}"

    def __enter__(self) -> Self:
        """Use the running server, or start one."""
        self._prepare_directory()
        with self._turn():
            self._share = lock_file(self.data_dir / "valkey-clients.lock")
            fcntl.flock(self._share, fcntl.LOCK_SH)
            try:
                self._socket = self._server.join_or_start()
            except OSError as error:
                self._let_go()
                raise self._unusable(error) from error
            except BaseException:
                self._let_go()
                raise
        return self

    def __exit__(self, *_: object) -> None:
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
        others = lock_file(self.data_dir / "valkey-clients.lock")
        try:
            if self._socket is not None and try_exclusive(others):
                self._server.stop(self._socket)
        finally:
            os.close(others)

    def _leave_a_watcher(self) -> None:
        """Start a process that stops the server once it has been idle for a while.

        It inherits the lock files: the directory may be removed before it has begun.
        """
        waiting, server = lock_file(self._left), lock_file(self._server.lock_path)
        pid = self._server.pid() or 0
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
        if not try_exclusive(waiting):
            return
        try:
            while (remaining := self._left.stat().st_mtime + self._linger - time.time()) > 0:
                time.sleep(min(remaining, _WATCH_SECONDS))
            with self._turn():
                self._socket = self._server.named_socket()
                self._stop_unless_used()
                os.close(waiting)  # clients that leave from now on start a new watcher
        except (FileNotFoundError, StoreUnavailable):
            if pid and not self.data_dir.exists() and not try_exclusive(server):
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
            turn = lock_file(self.data_dir / "valkey-start.lock")
        except OSError as error:
            raise self._unusable(error) from error
        try:
            if not wait_until(lambda: try_exclusive(turn), TURN_TIMEOUT):
                raise StoreUnavailable(
                    f"another process has been starting or stopping the server of {self.data_dir} "
                    f"for {TURN_TIMEOUT:.0f} s; see {self._server.log_path}"
                )
            yield
        finally:
            os.close(turn)

    def _let_go(self) -> None:
        if self._share is not None:
            os.close(self._share)
            self._share = None


if __name__ == "__main__":
    EmbeddedValkey(sys.argv[1], float(sys.argv[2])).watch(*map(int, sys.argv[3:6]))
