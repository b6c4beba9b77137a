"""``lethe demo``: it passes on real data, and it does not pass when a promise is broken."""

from __future__ import annotations

import io
import itertools
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import httpx2
import numpy as np
import pytest
from rich.console import Console

from lethe.consumers.cli.main import run
from lethe.consumers.contract import topics, version_chain
from lethe.consumers.contract.events import RefreshInfo, Source, Version
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.demo import checks
from lethe.consumers.demo.checks import Check
from lethe.consumers.demo.observer import Observed, Observer, Outcome
from lethe.consumers.demo.retraining import Retrained, retrain
from lethe.consumers.demo.scenario import DemoModel, Request
from lethe.consumers.demo.view import LiveView, View, budget_bar, version_line
from lethe.consumers.log.base import Message
from lethe.consumers.registration.register import TrainingData
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.engine.errors import BrokenChain
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.records import ErrorRecord
from tests.support.command import PROGRAM
from tests.support.memory_log import MemoryLog
from tests.support.published import NAMES, parameters_message, publish, releases, version_message

# One worker runs the file: its tests share servers, and some build on those before.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_demo")]

COMMAND = [str(PROGRAM), "demo"]
SIZES = set(checks.WANTED_SIZES)


def processor_seconds() -> float:
    """Return the processor time of all children that ended: neighbours do not add to it."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float, dict[str, Any]]:
    """A whole run: where its plot is, how long it took, and its document."""
    out = tmp_path_factory.mktemp("demo")
    begin = processor_seconds()
    done = subprocess.run(
        [*COMMAND, "--json", "--out", str(out)], capture_output=True, text=True, check=False
    )
    seconds = processor_seconds() - begin
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    return out, seconds, document


Finished = tuple[Path, float, dict[str, Any]]


def test_every_check_passes_in_under_a_minute(finished: Finished) -> None:
    _, seconds, document = finished
    assert document["ok"] is True
    assert len(document["checks"]) == len(checks.CHECKS)
    assert all(check["passed"] for check in document["checks"])
    assert seconds < 60


def test_each_size_of_refresh_happened_with_its_reason(finished: Finished) -> None:
    refreshes = [one["refresh"] for one in finished[2]["versions"] if one["refresh"]]
    assert {refresh["size"] for refresh in refreshes} >= SIZES
    assert all(refresh["reason"] and refresh["seconds"] > 0 for refresh in refreshes)
    # No person ordered one: every order came from the budget or from a generation's limits.
    ordered = {one["ordered"] for one in finished[2]["versions"] if one["refresh"]}
    assert ordered == {"error_budget", "generation"}


def test_every_version_has_its_distance_to_retraining(finished: Finished) -> None:
    versions = finished[2]["versions"]
    for model in ("diabetes", "breast-cancer"):
        own = [one for one in versions if one["model"] == model]
        assert [one["version"] for one in own] == list(range(len(own)))
        assert all(one["true_error"] >= 0 for one in own)
        # The method is the PRU: between refreshes it is off; a linear model is within its budget.
        assert max(one["true_error"] for one in own) > 0.1 * own[0]["budget"]
        if model == "diabetes":
            assert max(one["true_error"] for one in own) <= own[0]["budget"]


def test_the_plot_is_saved(finished: Finished) -> None:
    out = finished[0]
    assert (out / "lethe-demo.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (out / "lethe-demo.svg").read_text(encoding="utf-8")


def test_served_afterwards_on_loopback_until_it_is_stopped(tmp_path: Path) -> None:
    """The command alone: what it serves is shown by `tests/acceptance/test_console.py`."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [*COMMAND, "--out", str(tmp_path), "--serve"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("the console: "):
            break
    url = lines[-1].split()[2]
    assert url.startswith("http://127.0.0.1:"), lines
    end = time.monotonic() + 60
    while "withdraw-25" not in (page := _page(url)):
        assert time.monotonic() < end, page
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    rest, errors = process.communicate(timeout=120)

    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert not list(tmp_path.glob("lethe-demo-*/"))
    assert "lethe demo --serve" not in rest


def _page(url: str) -> str:
    return httpx2.get(url, follow_redirects=True).text


def test_plain_lines_without_a_terminal_a_private_server_and_kept_data_left_alone(
    tmp_path: Path,
) -> None:
    kept = [*COMMAND, "--out", str(tmp_path), "--data-dir", str(tmp_path / "data")]
    elsewhere = {"LETHE_REDIS_URL": "redis://127.0.0.1:1/0", "LETHE_PARTITIONS": "3"}
    first = subprocess.run(
        kept, capture_output=True, text=True, check=False, env={**os.environ, **elsewhere}
    )
    assert first.returncode == 0, first.stdout + first.stderr
    assert "\x1b" not in first.stdout
    assert f"in a browser: lethe serve --data-dir {tmp_path / 'data'}" in first.stdout
    for size in SIZES:
        assert f"{size} in " in first.stdout
        assert first.stdout.count(f" {size}: ") == 1, "explained once"
    *lines, _plot, _kept, _in_a_browser = first.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    second = subprocess.run(kept, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert "holds a demo already" in second.stderr


def test_a_directory_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    target = str(tmp_path / "file" / "out")
    done = subprocess.run([*COMMAND, "--out", target], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "--out" in done.stderr


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)]
)
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: int, code: int) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    # A shell's background job ignores SIGINT, and so would what it starts.
    inherited = signal.signal(number, signal.SIG_DFL)
    try:
        running = subprocess.Popen(
            [*COMMAND, "--out", str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
    finally:
        signal.signal(number, inherited)
    assert running.stdout is not None
    for line in running.stdout:
        if "v2 " in line:
            break
    server = int(next(temporary.glob("*/valkey.pid")).read_text())
    running.send_signal(number)
    running.communicate(timeout=120)
    assert running.returncode == code
    assert list(temporary.iterdir()) == []
    deadline = time.monotonic() + 10  # its parent, init, still has to collect it
    while alive(server):
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- a broken promise is seen ----------------------------------------------------------------------

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SOURCE = Source(topic=topics.DELETIONS, partition=0, offset=7)
DISTANCE = 1e-3


UNKNOWN = {"value": None, "kind": "unknown", "bound": None, "relative": None}


def unknown() -> Observed:
    """Return a version whose error is unknown."""
    seen = observed(None)
    return with_event(seen, error=seen.event.error.model_copy(update=UNKNOWN))


def test_a_version_of_unknown_error_is_shown_as_that() -> None:
    seen = unknown()
    assert seen.error is None
    assert "error unknown" in version_line(seen).plain
    assert "?" in budget_bar(seen.error, seen.budget).plain


def test_a_terminal_shows_a_table_and_the_newest_lines_in_it() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=30)
    with LiveView(console) as view:
        view.version(observed(None))
        view.version(observed(observed(None).event, refresh=RefreshSize.POLISH))
    with console.capture() as shown:
        console.print(view._draw())
    lines = [line.rstrip() for line in click.unstyle(shown.get()).splitlines()]
    assert lines[0].startswith("model         version live deleted error, budget")
    assert lines[1].endswith("polish 100.0 ms")
    assert any("polish: audits the exact answer" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_version_waits_for_its_parameters_and_a_repeat_of_it_is_dropped() -> None:
    log = MemoryLog()
    log.ensure_topics(topics.specs(2))
    first, second = releases(2, "m")
    publish(log, version_message(first.version), parameters_message(first.parameters))
    publish(log, version_message(second.version), version_message(first.version))
    requests = [request("r0", "APPLIED"), request("r1", "APPLIED")]
    with closing(Observer(log, [three_rows()], requests, View(Console(quiet=True)))) as observer:
        versions = observer.outcome.versions["m"]
        observer.catch_up()
        assert [seen.version.version for seen in versions] == [0]
        publish(log, parameters_message(second.parameters))
        observer.catch_up()
        observer.catch_up()
        assert [seen.version.version for seen in versions] == [0, 1]
    theta = second.parameters.theta
    assert theta is not None
    assert versions[1].theta.tolist() == [*theta, second.parameters.intercept]
    assert [(seen.rows_live, seen.newly_deleted) for seen in versions] == [(2, 1), (2, 0)]


def three_rows() -> DemoModel:
    config = ModelConfig(
        model_id="m", kind=Kind.LINEAR, method="pru", ridge=1.0, fit_intercept=True,
        feature_names=NAMES, target_names=("y",), error_budget=0.01,
    )  # fmt: skip
    X, y = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([[1.0], [2.0], [4.0]])
    return DemoModel(config, TrainingData(("r1", "r2", "r3"), X, y, NAMES, ("y",), {}))


def observed(
    previous: Version | None,
    *,
    refresh: RefreshSize | None = None,
    ordered: str | None = None,
    rows_live: int = 9,
    bound: float | None = 2 * DISTANCE,
    completed: bool = False,
) -> Observed:
    """Return the next version of a chain, DISTANCE away from retraining, with |theta| = 1."""
    theta = np.array([0.6, 0.8])
    features, targets = ("a",), ("target",)
    number = 0 if previous is None else previous.version + 1
    error = ErrorRecord(
        value=DISTANCE, kind="exact", bound=bound, certified_version=None, budget=0.01,
        relative=DISTANCE,
    )  # fmt: skip
    unsigned = Version(
        model_id="m", generation=0, version=number,
        prev_digest="" if previous is None else previous.digest, digest="",
        parameters_digest=version_chain.parameters_digest(
            theta[:, None], features, targets, fit_intercept=True
        ),
        method="pru", kind="linear", status="ACTIVE", rows_live=rows_live,
        rows_deleted=10 - rows_live, error=error,
        refresh=None if refresh is None else RefreshInfo(
            job_id=f"j{number}", size=refresh, reason="because", seconds=0.1
        ),
        created_at=NOW, commit=number, completed=completed,
        commit_prev="" if previous is None else f"{number:064x}",
    )  # fmt: skip
    version = unsigned.model_copy(update={"digest": version_chain.version_digest(unsigned)})
    published = ModelVersion.of(version, features, targets, theta[:, None])
    away = Retrained(np.add(theta, [DISTANCE, 0.0]), rounding=1e-12, seconds=0.01)
    return Observed(published, away, rows_live=9, newly_deleted=0, ordered=ordered)


def with_event(seen: Observed, **changes: object) -> Observed:
    """Return the version altered, its digest left as it is."""
    event = seen.event.model_copy(update=changes)
    return replace(seen, version=replace(seen.version, event=event))


def seen_receipt(
    request_id: str, status: str, code: str | None = None, rows_deleted: int = 0
) -> tuple[Receipt, bytes]:
    receipt = Receipt.model_validate(
        {
            "request_id": request_id, "model_id": "m", "status": status, "code": code,
            "rows_deleted": rows_deleted, "source": SOURCE.model_dump(), "completed_at": NOW,
        }
    )  # fmt: skip
    return receipt, receipt.value()


def request(request_id: str, status: str, code: str | None = None) -> Request:
    message = Message(topics.DELETIONS, b"m", b"{}")
    return Request("", message, "m", request_id, ("r1",), status, code)


def good() -> Outcome:
    """Return an outcome that passes every check."""
    versions = [replace(observed(None), identical=True)]
    for size in checks.WANTED_SIZES:
        newest = versions[-1].event
        versions.append(observed(newest, refresh=size, ordered="error_budget"))
    versions.append(observed(versions[-1].event, completed=True))
    return Outcome(
        versions={"m": versions},
        requests=[request("r", "APPLIED"), request("s", "REJECTED", "UNKNOWN_ROWS")],
        receipts=[seen_receipt("r", "APPLIED"), seen_receipt("s", "REJECTED", "UNKNOWN_ROWS")],
        leftovers={"m": []},
        register_seconds={"m": 0.1},
    )


def with_version(outcome: Outcome, number: int, **changes: object) -> Outcome:
    """Return the outcome with one version altered, its digest left as it is."""
    seen = list(outcome.versions["m"])
    seen[number] = with_event(seen[number], **changes)
    return replace(outcome, versions={"m": seen})


def smaller_bound(outcome: Outcome) -> Outcome:
    error = outcome.versions["m"][2].event.error.model_copy(update={"bound": DISTANCE / 2})
    return with_version(outcome, 2, error=error)


def smaller_budget(outcome: Outcome) -> Outcome:
    error = outcome.versions["m"][1].event.error.model_copy(update={"budget": DISTANCE / 2})
    return with_version(outcome, 1, error=error)


def other_parameters(outcome: Outcome) -> Outcome:
    seen = list(outcome.versions["m"])
    forged = replace(seen[1].version, theta=np.array([0.6000000001]))
    seen[1] = replace(seen[1], version=forged)
    return replace(outcome, versions={"m": seen})


def other_bits(outcome: Outcome) -> Outcome:
    seen = list(outcome.versions["m"])
    return replace(outcome, versions={"m": [replace(seen[0], identical=False), *seen[1:]]})


def second_receipt(outcome: Outcome) -> Outcome:
    later = seen_receipt("r", "APPLIED", rows_deleted=5)
    return replace(outcome, receipts=[*outcome.receipts, later])


BROKEN: list[tuple[Callable[[Outcome], Check], Callable[[Outcome], Outcome]]] = [
    (checks.within_bound, smaller_bound),
    (checks.rounded_is_identical, other_bits),
    (checks.rounded_is_identical, lambda o: replace(o, versions={"m": o.versions["m"][1:]})),
    (checks.under_budget_after_refresh, smaller_budget),
    (checks.no_projection_over_budget, smaller_budget),
    (
        checks.no_projection_over_budget,
        lambda o: replace(o, versions={"m": o.versions["m"][:3]}),
    ),
    (checks.chain_holds, lambda o: with_version(o, 2, rows_deleted=3)),
    (checks.chain_holds, lambda o: replace(o, versions={"m": o.versions["m"][1:]})),
    (
        checks.chain_holds,
        lambda o: replace(o, versions={"m": [*o.versions["m"][:1], *o.versions["m"][2:]]}),
    ),
    (checks.chain_holds, other_parameters),
    (checks.rows_agree, lambda o: with_version(o, 3, rows_live=8)),
    (checks.one_receipt_each, second_receipt),
    (checks.one_receipt_each, lambda o: replace(o, receipts=o.receipts[:1])),
    (
        checks.one_receipt_each,
        lambda o: replace(o, receipts=[o.receipts[0], seen_receipt("s", "APPLIED")]),
    ),
    (checks.records_erased, lambda o: replace(o, leftovers={"m": ["r1"]})),
    (checks.records_erased, lambda o: replace(o, leftovers={})),
    (checks.each_size_happened, lambda o: replace(o, versions={"m": o.versions["m"][:2]})),
]


def test_an_outcome_that_keeps_every_promise_passes() -> None:
    assert checks.all_passed(checks.all_checks(good()))


@pytest.mark.parametrize(("check", "breaks"), BROKEN)
def test_a_broken_promise_fails_its_check_and_the_run(
    check: Callable[[Outcome], Check], breaks: Callable[[Outcome], Outcome]
) -> None:
    broken = breaks(good())
    assert not check(broken).passed
    assert not checks.all_passed(checks.all_checks(broken))


def test_a_check_that_has_nothing_to_look_at_fails() -> None:
    unbounded = replace(good(), versions={"m": [observed(None, bound=None)]})
    assert not checks.within_bound(unbounded).passed
    assert not checks.under_budget_after_refresh(unbounded).passed
    assert not checks.all_passed(())


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_the_command_exits_with_1_when_a_check_fails(
    flags: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "lethe.consumers.demo.run.run", lambda *_args, **_named: smaller_bound(good())
    )
    monkeypatch.setattr("lethe.consumers.demo.command.configure_logging", lambda *_args: None)
    assert run(["demo", *flags, "--out", str(tmp_path)]) == 1
    assert "from retraining, bound" in capsys.readouterr().out


def test_a_history_that_breaks_under_the_workers_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, catch_up = itertools.count(), Observer.catch_up

    def broken(observer: Observer) -> None:
        if next(calls) == 3:  # two are of the registrations, before there are workers
            raise BrokenChain("version 1 is not what it was")
        catch_up(observer)

    monkeypatch.setattr(Observer, "catch_up", broken)
    monkeypatch.setattr("lethe.consumers.demo.command.configure_logging", lambda *_args: None)
    assert run(["demo", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "lethe: version 1 is not what it was\n"
    assert next(calls) == 4


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_retraining_is_at_the_optimum(kind: str) -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(80, 6))
    margin = X @ rng.normal(size=6) + 0.3
    y = margin if kind == "linear" else (margin + rng.logistic(size=80) > 0).astype(np.float64)
    ridge = 0.7

    def gradient(theta: Array) -> Array:
        value = X @ theta[:-1] + theta[-1]
        error = (value if kind == "linear" else 1 / (1 + np.exp(-value))) - y
        found: Array = np.append(X.T @ error + ridge * theta[:-1], error.sum())
        return found

    retrained = retrain(kind, X, y, ridge)
    assert float(np.linalg.norm(gradient(retrained.theta))) < 1e-12 * 80
    assert retrained.rounding < 1e-14 * float(np.linalg.norm(retrained.theta)) * 80
