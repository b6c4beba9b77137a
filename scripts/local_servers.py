"""What `scripts/kafka` and `scripts/cdc` share: jars from Maven, ports, lasting processes.

Only the standard library is used, so that both work before `make setup`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
STOP_SECONDS = 30.0  # a clean stop takes seconds; after this the process is killed
INSTALL = "on Debian or Ubuntu: apt-get install openjdk-17-jre-headless maven"


class Problem(Exception):
    """Ends the program: one line for the person at the terminal, and the exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def find_program(name: str) -> str:
    """Return the path of ``java`` or ``mvn``; `Problem` says how to get it."""
    home = os.environ.get("JAVA_HOME")
    if name == "java" and home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    path = shutil.which(name)
    if path is None:
        raise Problem(f"{name} is not installed; {INSTALL}", 2)
    return path


@contextlib.contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold an exclusive lock; the kernel lets go of it when this process dies."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


# --- Jars -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Jars:
    """The jars of ``home``/pom.xml, resolved once with Maven into ``home``/run/libs.

    ``home``/libs.sha256 has their digests, and the pom has their version in the property
    ``<name>.version``. ``script`` is what people type to record new digests.
    """

    home: Path
    name: str
    script: str = "kafka"

    @property
    def pom(self) -> Path:
        """The file that names them."""
        return self.home / "pom.xml"

    @property
    def digests(self) -> Path:
        """The file of their digests."""
        return self.home / "libs.sha256"

    def version(self) -> str:
        """Return the version that the pom pins."""
        found = ET.parse(self.pom).getroot().find(f".//{{*}}{self.name}.version")  # noqa: S314 (our own file)
        if found is None or not found.text:
            raise Problem(f"{self.pom} names no {self.name}.version", 2)
        return found.text

    def ensure(self) -> Path:
        """Return the directory of jars, resolving and checking them the first time.

        The directory appears by one rename, under a lock, so that a second start at the same time
        or a start that was killed half-way can never leave a part of it behind under its name.
        """
        run = self.home / "run"
        libs = run / "libs" / self.version()
        if libs.is_dir():
            return libs
        with held(run / "libs.lock"):
            if libs.is_dir():
                return libs
            libs.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=run, prefix="libs-") as scratch:
                fresh = Path(scratch) / "libs"
                self._resolve(fresh)
                if digest_lines(fresh) != self.digests.read_text():
                    raise Problem(
                        f"the jars are not those of {self.digests}: if pom.xml was changed on "
                        f"purpose, run `scripts/{self.script} lock`; otherwise do not trust this "
                        "Maven repository",
                        2,
                    )
                fresh.rename(libs)
        return libs

    def lock(self) -> None:
        """Resolve the pom afresh and record the digests of its jars."""
        run = self.home / "run"
        run.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=run, prefix="libs-") as scratch:
            fresh = Path(scratch) / "libs"
            self._resolve(fresh)
            self.digests.write_text(digest_lines(fresh))
        print(f"{self.script}: wrote {self.digests}", file=sys.stderr)

    def _resolve(self, target: Path) -> None:
        """Copy the jars into the new directory ``target`` with Maven."""
        mvn = find_program("mvn")
        find_program("java")  # mvn without Java fails with a page of text
        print(
            f"{self.script}: resolving the jars of {self.pom} with Maven, once ...",
            file=sys.stderr,
        )
        command = [mvn, "-B", "-q", "--strict-checksums", "-f", str(self.pom)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode != 0:
            print(done.stdout.strip(), file=sys.stderr)
            raise Problem(
                f"Maven could not resolve the jars of {self.name}: is a repository (or its mirror) "
                "in reach?",
                2,
            )


def digest_lines(libs: Path) -> str:
    """Return the digests of all jars in the form that `sha256sum -c` reads."""
    return "".join(
        f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n"
        for jar in sorted(libs.glob("*.jar"))
    )


# --- Ports and processes ----------------------------------------------------------------------


def free_port(besides: int = 0) -> int:
    """Return a TCP port that is free now and is not ``besides``.

    Below the range that the kernel uses for outgoing connections: there, a client that tries to
    reach a stopped server can by chance connect to itself and so take the server's port.
    """
    while (port := random.randint(20_000, 32_000)) == besides or not port_is_free(port):
        continue
    return port


def port_is_free(port: int) -> bool:
    """Tell whether a server could listen on ``port`` (lingering closed connections are no bar)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def command_line(pid: int) -> str:
    """Return the command line of a live process; empty when there is none (or a zombie)."""
    if Path("/proc/self").exists():
        with contextlib.suppress(OSError):
            return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "))
        return ""
    command = ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)]  # macOS
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return "" if shown.startswith("Z") else shown


@dataclass(frozen=True)
class ServerProcess:
    """A server that goes on when the script ends; ``file`` keeps its process id.

    ``marker`` is part of its command line and of no other program's.
    """

    file: Path
    marker: str

    def note(self, pid: int) -> None:
        """Keep the id of a process that was just started."""
        self.file.write_text(str(pid))

    def pid(self) -> int | None:
        """Return the process id, or None; a recycled id of another program does not count."""
        try:
            pid = int(self.file.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None
        return pid if self.marker in command_line(pid) else None

    def end(self, first: signal.Signals = signal.SIGTERM) -> None:
        """Ask the process to end, and kill it when it does not."""
        for number, patience in ((first, STOP_SECONDS), (signal.SIGKILL, 10.0)):
            if (pid := self.pid()) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            deadline = time.monotonic() + patience
            while self.pid() is not None and time.monotonic() < deadline:
                time.sleep(0.05)
        if self.pid() is not None:
            raise Problem(f"process {self.pid()} does not end, not even by SIGKILL", 3)
        self.file.unlink(missing_ok=True)
