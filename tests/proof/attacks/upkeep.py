"""Attacks by moments: processes that die, stall or have another clock; models that are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from lethe.consumers.contract import topics
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.errors import LetheError
from tests.proof.attacks.attack import Act, Attack, Trace
from tests.proof.attacks.commits import replaced
from tests.proof.attacks.world import LINE, LOGIT, SIGNER, TRUSTED, World
from tests.support.lost_topics import go_on_without, make_again


class Died(BaseException):
    """Ends a worker; nothing of the product catches it."""


def worker_of(world: World, **options: Any) -> DeletionWorker:
    """Return another worker of the group."""
    store = world.platform.new_store()
    world._workers.callback(store.close)
    parts = world.platform.log, store, world.platform.seals
    made = DeletionWorker(*parts, signer=lambda: SIGNER, trusted=TRUSTED, **options)
    world._workers.callback(made.close)
    return made


def dies_at(*steps: str) -> Act:
    """Return what lets a worker die at each of these steps in turn, with a request in hand."""

    def act(world: World) -> Sequence[Trace]:
        died: list[str] = []
        for number, step in enumerate(steps):
            world.delete(LINE, f"row-{50 + number}")

            def at_step(reached: str, step: str = step) -> None:
                if reached == step:
                    raise Died

            worker = worker_of(world, at_step=at_step)
            try:
                for _ in range(6):
                    worker.run_once(0.001)
            except Died:
                died.append(step)
            with suppress(Died):
                world.stop_workers()
        return [Trace("deaths", lambda: died, list(steps))]

    return act


def by_the_clock(days: float) -> Act:
    """Return what lets a worker decide by a clock that is wrong."""

    def act(world: World) -> Sequence[Trace]:
        gone = {"request_id": "a-0", "model_id": LINE, "row_ids": ["x-1"]}
        sent = world.forge(topics.DELETIONS, LINE, gone)
        world.work()
        world.stop_workers()
        worker = worker_of(world, now=lambda: datetime.now(UTC) + timedelta(days=days))
        row = {"id": "x-1", "values": [0.1] * 4, "target": 1}
        body = {"request_id": "a-1", "model_id": LINE, "op": "insert", "rows": [row]}
        world.forge(topics.ROW_CHANGES, LINE, body)
        for _ in range(6):
            worker.run_once(0.001)
        world.stop_workers()
        return [sent, world.receipt(LINE, "a-1", "REJECTED", "ROW_DELETED")]

    return act


def two_at_once(world: World) -> Sequence[Trace]:
    """Let two workers take turns, and take the first one's partitions from it in between."""
    one, other = worker_of(world), worker_of(world)
    taken = {one: 0, other: 0}
    for turn in range(12):
        world.delete(LINE, f"row-{50 + turn}")
        for worker in (one, other):
            try:
                taken[worker] += worker.run_once(0.001)
            except LetheError:
                worker.recover()
        if turn % 3 == 0:
            world.log.evict(one._consumer)  # type: ignore[arg-type]  # the memory log's
    world.stop_workers()
    return [Trace("both took requests", lambda: min(taken.values()) > 0)]


def stalls(world: World) -> Sequence[Trace]:
    """Let a worker stall before it appends, another decide the same, and the first go on."""
    stalled: list[DeletionWorker] = []

    def at_step(reached: str) -> None:
        if reached == "append" and not stalled:
            stalled.append(first)
            world.log.evict(first._consumer)  # type: ignore[arg-type]  # as above
            second = worker_of(world)
            for _ in range(6):
                second.run_once(0.001)

    first = worker_of(world, at_step=at_step)
    for _ in range(6):
        try:
            first.run_once(0.001)
        except LetheError:
            first.recover()
    world.stop_workers()
    return [Trace("it stalled", lambda: len(stalled), 1)]


def file_with_deleted_rows(world: World) -> Sequence[Trace]:
    """Replace a model by a file that has deleted rows and those of erased people."""
    world.work()
    world.stop_workers()
    replaced(world)
    return [Trace("rows", lambda: world.platform.load(LINE).generation.number, 1)]


def replaced_while_requests_wait(world: World) -> Sequence[Trace]:
    """Replace a model while its requests wait in the log."""
    replaced(world)
    world.truth.erasures["before-erasure"] = 3  # nobody was on the list yet
    return [Trace("versions", lambda: world.platform.load(LINE).generation.number, 1)]


def registered_twice(world: World) -> Sequence[Trace]:
    """Register a name that is taken."""
    try:
        world.register(LOGIT)
        code = "none"
    except LetheError as error:
        code = error.code
    return [Trace("the answer", lambda: code, "MODEL_EXISTS")]


def requests_made_again(world: World) -> Sequence[Trace]:
    """Make the topic of requests again, once all that it had is decided."""
    world.work()
    world.stop_workers()
    make_again(world.platform, topics.DELETIONS)
    ids = {one.topic_id for one in world.platform.reader.partitions(topics.DELETIONS)}
    return [Trace("a new topic", lambda: len(ids), 1)]


def go_on(world: World) -> None:
    """``lethe recover --topic lethe.deletions``; the senders send again what has no receipt."""
    go_on_without(world.platform, topics.DELETIONS)


def read_again(world: World) -> Sequence[Trace]:
    """Read all requests again from the beginning, as after a lost watermark, five times."""
    gone = []
    for _ in range(5):
        world.work()
        world.stop_workers()
        gone.append(sum(map(world.client.delete, world.client.keys("lethe:watermark:*"))))
    return [Trace("watermarks each time", lambda: min(gone) > 0)]


def silent_reader(world: World) -> Sequence[Trace]:
    """Leave the group without a word, with requests that were read and are not decided."""
    left: list[str] = []

    def at_step(reached: str) -> None:
        if reached == "decide" and not left:
            left.append(reached)
            world.log.evict(worker._consumer)  # type: ignore[arg-type]  # as above
            raise Died

    worker = worker_of(world, at_step=at_step)
    with suppress(Died):
        worker.run_once(0.001)
    world.stop_workers()
    return [Trace("it left", lambda: left, ["decide"])]


ATTACKS = (
    Attack(
        "death before the decision",
        "Kills a worker before it appends.",
        "Nothing has happened: requests are read again.",
        dies_at("poll", "load", "append"),
    ),
    Attack(
        "death after the decision",
        "Kills a worker after it has appended, before the store has it.",
        "A fold applies and publishes what the log has.",
        dies_at("apply", "publish", "advance"),
    ),
    Attack(
        "death in the middle of a fold",
        "Kills workers while they read the log again.",
        "What is repeated is byte for byte the same.",
        dies_at("apply", "fold_apply", "fold_publish", "fold_advance"),
    ),
    Attack(
        "a clock a year ahead",
        "Has an unknown row deleted, and inserted by a worker whose clock is a year ahead.",
        "The log's time counts, not the worker's.",
        by_the_clock(365),
    ),
    Attack(
        "a clock a year behind",
        "The same, with a clock that is a year behind.",
        "The log's time counts, not the worker's.",
        by_the_clock(-365),
    ),
    Attack(
        "two owners",
        "Lets two workers write to the same models, in turns.",
        "Of two commits of one number the first counts.",
        two_at_once,
    ),
    Attack(
        "a worker that comes back",
        "Stalls a worker before it appends, and lets it go on later.",
        "Of two commits of one number the first counts.",
        stalls,
    ),
    Attack(
        "a worker that leaves",
        "Takes a worker out of its group with requests in hand.",
        "They are read again from the watermark.",
        silent_reader,
    ),
    Attack(
        "everything read again",
        "Has all requests read again from the beginning, five times.",
        "Each model knows what it has decided.",
        read_again,
    ),
    Attack(
        "a file with deleted rows",
        "Replaces a model by its first file, which has deleted rows and erased people.",
        "The ledger and the list: they are left out.",
        file_with_deleted_rows,
    ),
    Attack(
        "replaced while requests wait",
        "Replaces a model while requests for it wait.",
        "The requests are decided on the new rows, in the order of the log.",
        replaced_while_requests_wait,
    ),
    Attack(
        "a name that is taken",
        "Registers a model under the name of another.",
        "`MODEL_EXISTS`.",
        registered_twice,
    ),
    Attack(
        "the requests' topic made again",
        "Makes the topic of requests again.",
        "Workers stop (`LOG_RESET`) until `lethe recover --topic`; what was decided stands.",
        requests_made_again,
        remedy=go_on,
        not_stopped=True,
    ),
)
