"""``lethe work`` as a service: signals, waiting receipts, health, and servers that come late."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe
from tests.support.servers import free_port
from tests.support.training import write

# One worker runs the file: its tests share servers, and some build on those before.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_work")]


def stopped(process: subprocess.Popen[str], number: signal.Signals) -> tuple[str, str]:
    """Send a signal; return what the process said when it had left with exit code 0."""
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    return out, err


@pytest.fixture(scope="module")
def lethe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lethe]:
    data = write(tmp_path_factory.mktemp("files") / "rows.parquet", logistic=True)
    with EmbeddedValkey(tmp_path_factory.mktemp("work")) as server:
        lethe = Lethe(server.data_dir)
        lethe("register", "m", "--data", str(data), "--id", "id", "--target", "y", "--subject",
              "household", "--kind", "logistic", "--ridge", "1")  # fmt: skip
        yield lethe


def test_a_worker_answers_those_who_wait_and_leaves_on_sigterm(lethe: Lethe) -> None:
    port = free_port()
    with lethe.working("--http-port", str(port), "--log-format", "json", "--json") as worker:
        applied = lethe("delete", "m", "--subject", "h1", "--wait", "120", "--json").document
        rejected = lethe("delete", "m", "--row", "nobody", "--wait", "120", "--json", code=1)
        version = lethe("refresh", "m", "--size", "rebuild", "--wait", "120", "--json").document
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            ready = json.load(answer)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            metrics = answer.read().decode()
        taken = lethe("work", "--http-port", str(port), code=2)
        out, err = stopped(worker, signal.SIGTERM)

    assert (applied["status"], applied["rows_deleted"], applied["version"]) == ("APPLIED", 3, 1)
    assert rejected.document["code"] == "UNKNOWN_ROWS"
    assert (version["refresh"]["size"], version["generation"]) == ("rebuild", 1)
    assert ready["ok"] is True
    assert 'lethe_rows_deleted_total{model="m"} 3.0' in metrics
    assert f"127.0.0.1:{port} cannot be listened on" in taken.err
    assert json.loads(out)["state"] == "stopped"
    lines = [json.loads(line) for line in err.splitlines()]
    assert all("action" in line for line in lines)
    assert applied["request_id"] in {r for line in lines for r in line.get("request_ids", ())}


def test_the_same_request_again_brings_the_same_receipt(lethe: Lethe) -> None:
    with lethe.working("deletions") as worker:
        request = ("delete", "m", "--row", "u40", "--request-id", "r1", "--wait", "120", "--json")
        first, second = lethe(*request), lethe(*request)
        stopped(worker, signal.SIGINT)

    assert first.document["status"] == "APPLIED"
    assert first.out == second.out


def test_a_server_that_is_down_is_waited_for(tmp_path: Path) -> None:
    late = Lethe(tmp_path, LETHE_REDIS_URL=f"unix://{tmp_path}/valkey.sock")

    def reads(worker: subprocess.Popen[str], action: str) -> str:
        """Return the next line about an action."""
        assert worker.stderr is not None
        for line in worker.stderr:
            if f"action={action}" in line:
                return line
        raise AssertionError(f"the worker has left without {action}")

    impatient = late("work", "--until-idle", code=3)
    with late.working() as worker:
        waiting = reads(worker, "retry")
        with EmbeddedValkey(tmp_path):
            reads(worker, "take_over")
            out, _ = stopped(worker, signal.SIGTERM)

    assert "cannot be reached" in impatient.err
    assert "cannot be reached" in waiting
    assert out.startswith("stopped")


def test_following_prints_a_document_a_line(lethe: Lethe) -> None:
    follower = lethe.start("versions", "m", "--follow", "--json")
    try:
        assert follower.stdout is not None
        first = json.loads(follower.stdout.readline())
    finally:
        os.kill(follower.pid, signal.SIGINT)
        follower.communicate(timeout=120)

    assert (first["model_id"], first["version"]) == ("m", 0)
    assert follower.returncode == 130


_FAILS_DURING_A_REFRESH = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from lethe.consumers.cli import main
from lethe.consumers.cli.run import work
from lethe.engine.errors import LogReset
def run(*_, **__):
    ThreadPoolExecutor(1, thread_name_prefix="refresh").submit(threading.Event().wait, 300)
    raise LogReset("records were lost")
work._run = run
sys.exit(main.run(["work", "--http-port", "0", "--data-dir", sys.argv[1]]))
"""


def test_a_worker_that_fails_does_not_wait_for_a_refresh(tmp_path: Path) -> None:
    """Given a refresh under way, whoever restarts workers need not wait until it is done."""
    done = subprocess.run(
        [sys.executable, "-c", _FAILS_DURING_A_REFRESH, str(tmp_path)],
        env={**os.environ, "LETHE_EMBEDDED_LINGER": "0"},
        timeout=120, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.endswith("lethe: records were lost\n")
