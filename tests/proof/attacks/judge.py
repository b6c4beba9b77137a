"""The one judge of all attacks: what must hold once one is over, by what was rightfully asked."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from lethe.consumers.audit.auditor import audit_bundle, audit_model
from lethe.consumers.audit.published.bundle import BundleReader
from lethe.consumers.audit.published.finding import Verdict
from lethe.consumers.audit.request.report import report_of
from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.contract.events import Version
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.signed_log import is_believed
from lethe.consumers.contract.version_chain import check_version
from lethe.consumers.log.base import Record
from lethe.consumers.server.index.follower import Feed
from lethe.consumers.server.index.schema import IndexFile
from lethe.consumers.subscriber.subscriber import ModelSubscriber
from lethe.engine.errors import BrokenChain
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.keys import every_partition
from lethe.engine.store.server.connection import text
from tests.proof.attacks.attack import Attack, Trace
from tests.proof.attacks.world import LINE, LOGIT, MODELS, TRUSTED, World
from tests.proof.live_rows import data_of
from tests.support.invariants import live_rows
from tests.support.oracles import distance, relative, retrain_wide

MOST_SECONDS = 20.0
MOST_MEGABYTES = 500
MOST_KEYS = 400
"""What one attack by a small input may cost: time, memory of this process, keys of the store."""


def run(world: World, attack: Attack) -> None:
    """Attack, and judge.

    Raises
    ------
    AssertionError
        The attack succeeded, or did nothing.
    """
    with world.attacked():
        began, held = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        keys = world.client.dbsize()
        world.in_flight()
        traces = attack.act(world)
        world.afterwards()
        world.work()
        if attack.remedy is not None:
            waits = waiting(world) or pending(world)
            assert world.stopped or halted(world) or waits, "there is no halt to end"
            world.stop_workers()
            world.stopped = ""
            attack.remedy(world)
            world.work()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held) / 1024
        assert time.monotonic() - began < MOST_SECONDS
        assert grown < MOST_MEGABYTES, f"{grown:.0f} MB"
        assert world.client.dbsize() - keys < MOST_KEYS
        assert traces, "nothing shows that it took place"
        judge(world, traces)


def judge(world: World, traces: Sequence[Trace]) -> None:
    """Judge a world after an attack."""
    for trace in traces:
        trace.check()
    check_not_halted(world)
    check_answers(world)
    check_erasures(world)
    for model in MODELS:
        check_rows(world, model)
        check_parameters(world, model)
        check_chain(world, model)
    check_index(world)
    check_report(world)
    for model in MODELS:
        check_subscriber(world, model)
        check_audit(world, model)
    check_memory(world)
    said = world.said.getvalue()
    assert said, "the workers said nothing: their log is not looked at"
    for secret in world.secrets():
        assert secret not in said, "a secret was printed"


# -- the workers --------------------------------------------------------------------------------


def halted(world: World) -> list[str]:
    """Return which models the deletion worker has halted; names that nobody registered are none."""
    assert world.deletion is not None
    return [model for model in MODELS if model in world.deletion._halts]


def waiting(world: World) -> set[tuple[str, str]]:
    """Return which rightful requests have no final receipt."""
    finals = {(model, name) for model in MODELS for name in world.platform.finals(model)}
    return world.truth.owed.keys() - finals


def pending(world: World) -> set[str]:
    """Return which rightful erasures have no final receipt."""
    return world.truth.erasures.keys() - combined(world).keys()


def check_not_halted(world: World) -> None:
    """No model is halted, and nothing waits."""
    assert not world.stopped, world.stopped
    assert not halted(world), f"models are halted: {world.said.getvalue()[-2000:]}"
    for partition in every_partition():
        behind = world.store.cursors.read(partition).behind
        assert not set(behind) & set(MODELS), f"{sorted(behind)} lag behind"


def believed(world: World, topic: str) -> list[Record]:
    """Return the records of a topic that a reader with keys believes."""
    return [record for record in world.platform.records(topic) if is_believed(record, TRUSTED)]


def check_answers(world: World) -> None:
    """Every rightful request has its receipt, and nothing else was done."""
    found: dict[tuple[str, str], Receipt] = {}
    for record in believed(world, topics.RECEIPTS):
        receipt = Receipt.model_validate_json(record.value or b"")
        name = (receipt.model_id, receipt.request_id)
        if not receipt.final or receipt.code in ("REQUEST_ID_CONFLICT", "UNKNOWN_MODEL"):
            continue
        first = found.setdefault(name, receipt)
        assert first.value() == receipt.value(), f"{name}: two final receipts"
    for name, owed in world.truth.owed.items():
        assert name in found, f"{name} has no final receipt"
        one = found.pop(name)
        rows = one.rows_deleted + (one.rows_inserted or 0) + (one.rows_corrected or 0)
        assert (one.status, rows, one.code) == (owed.status, owed.rows, owed.code), name
    of_erasures = {
        request: one for (_, request), one in found.items() if request.startswith("erasure-")
    }
    deleted = sum(one.rows_deleted for one in of_erasures.values())
    assert deleted == sum(world.truth.erasures.values()), "erasures deleted other rows"
    for name, one in found.items():
        if name[1] not in of_erasures:
            assert one.status in ("REJECTED", "ALREADY_APPLIED"), f"{name}: {one.status}"


def combined(world: World) -> dict[str, SubjectErasureCompleted]:
    """Return the combined receipts that are final, by erasure id."""
    found: dict[str, SubjectErasureCompleted] = {}
    for record in believed(world, topics.ERASURE_RECEIPTS):
        receipt = SubjectErasureCompleted.read(record.value or b"")
        if receipt.final and receipt.code != "REQUEST_ID_CONFLICT":
            found.setdefault(receipt.erasure_id, receipt)
    return found


def check_erasures(world: World) -> None:
    """Every rightful erasure is complete, and no other says that it deleted anything."""
    found = combined(world)
    for name, rows in world.truth.erasures.items():
        assert name in found, f"erasure {name} has no final receipt"
        one = found.pop(name)
        assert (one.status, one.rows_deleted) == ("COMPLETE", rows), f"{name}: {one}"
    for one in found.values():
        assert one.rows_deleted == 0, f"nobody asked for {one.erasure_id}"


# -- the models ---------------------------------------------------------------------------------


def check_rows(world: World, model: str) -> None:
    """The live rows are those that were asked for, with their values; the ledger has the others."""
    platform, live = world.platform, world.truth.live[model]
    held = live_rows(platform, model)
    assert held == live.keys(), f"{model}: {sorted(held ^ live.keys())}"
    state = platform.load(model)
    assert state.meta.rows_live == len(live)
    ledger = {text(row) for row in world.client.hkeys(state.keys.ledger)}
    assert ledger == world.truth.gone[model], f"{model}: {ledger ^ world.truth.gone[model]}"
    data = platform.data[model]
    d, m = data.X.shape[1] + 1, 1
    for shard in state.generation_keys.every_rows():
        for name, record in world.client.hgetall(shard).items():
            row = live[text(name)]
            rows = codec.unpack_rows([record], d, m, text(name), 1)
            stored = (*rows.X[0, : len(row.x)].tolist(), *rows.y[0].tolist())
            assert stored == (*row.x, *row.y), f"{model}: {text(name)} has other values"


def check_parameters(world: World, model: str) -> None:
    """What is published is retraining on those rows, within what it says."""
    state = world.platform.load(model)
    like = world.platform.data[model]
    data = replace(data_of(list(world.truth.live[model].values()), like))
    wide = retrain_wide(data.kind, data.design, data.y, data.weight, data.penalty)
    if data.kind == "linear":
        assert relative(state.stream.theta_exact, np.asarray(wide, dtype=float)) < 1e-8
    error = state.meta.error
    far = distance(state.stream.published, wide)
    if error.bound is not None:
        assert far <= error.bound
    assert far < 0.05 * np.linalg.norm(np.asarray(wide, dtype=float)), far


def check_chain(world: World, model: str) -> None:
    """The versions that a reader with keys believes are dense and linked, up to the store's."""
    values = dict.fromkeys(record.value or b"" for record in believed(world, topics.VERSIONS))
    made = [Version.model_validate_json(value) for value in values]
    versions = [version for version in made if version.model_id == model]
    previous = None
    for version in sorted(versions, key=lambda one: one.version):
        check_version(version, previous)
        previous = version
    assert previous is not None
    state = world.platform.load(model)
    assert (previous.version, previous.digest) == (state.version, state.digest)
    assert [one.version for one in sorted(versions, key=lambda one: one.version)] == list(
        range(state.version + 1)
    )


# -- readers with keys --------------------------------------------------------------------------


def check_index(world: World) -> None:
    """The server's index, and so HTTP and the console, has what is believed, and nothing else."""
    folder = world.folder / f"index-{time.monotonic_ns()}"
    folder.mkdir()
    file = IndexFile(folder)
    with (
        closing(world.platform.log.reader()) as reader,
        closing(file.open_for_writing(TRUSTED)) as connection,
    ):
        feed = Feed(connection, reader, TRUSTED)
        while feed.advance() or feed.behind:
            pass
        stored = connection.execute("SELECT value FROM receipts").fetchall()
        receipts = {record.value for record in believed(world, topics.RECEIPTS)}
        assert {bytes(value) for (value,) in stored} <= receipts, "a forged receipt is shown"
        rows = connection.execute("SELECT model_id, version, digest FROM versions").fetchall()
        shown: dict[str, dict[int, str]] = {}
        for model, version, digest in rows:
            shown.setdefault(model, {})[version] = digest
        made: dict[str, dict[int, str]] = {}
        for record in believed(world, topics.VERSIONS):
            one = json.loads(record.value or b"")
            made.setdefault(one["model_id"], {})[one["version"]] = one["digest"]
        assert shown == made, "other versions are shown"


def check_report(world: World) -> None:
    """`lethe receipt` tells of a rightful request what its true receipt says."""
    parts = world.store, world.platform.reader
    for model, request_id in ((LINE, "before-line"), (LOGIT, "after-logit")):
        owed = world.truth.owed[model, request_id]
        report = report_of(*parts, request_id, model, TRUSTED)
        last = report.last.receipt
        assert (last.status, last.rows_deleted) == (owed.status, owed.rows)
        assert report.last.signature.valid


def check_subscriber(world: World, model: str) -> None:
    """A subscriber gets the stored parameters."""
    with ModelSubscriber(world.platform.log, world.client, TRUSTED) as subscriber:
        try:
            latest = subscriber.latest(model, timeout=5.0)
        except BrokenChain as error:
            raise AssertionError(f"subscribers of {model} are stopped") from error
    state = world.platform.load(model)
    assert latest.version == state.version
    assert np.array_equal(latest.theta.ravel(), state.stream.published[:-1].ravel())


def check_audit(world: World, model: str) -> None:
    """An audit either names what is forged, or finds nothing because nothing forged is there."""
    path = world.folder / f"{model}.bundle"
    path.unlink(missing_ok=True)
    audit_model(
        world.store,
        world.platform.reader,
        model,
        trusted=TRUSTED,
        seals=world.platform.seals,
        remembered=lambda _model: None,
        export=path,
        bound=False,
        log_alone=False,
    )
    outcome = audit_bundle(
        path, model_id=model, trusted=TRUSTED, remembered=lambda _model: None, holding=None
    )
    with BundleReader(path) as bundle:
        records = [item for item in bundle if isinstance(item, Record)]
    forged = [
        record
        for record in records
        if not is_believed(record, TRUSTED) or json.loads(record.value or b"")["model_id"] != model
    ]
    wanted = outcome.verdict is not Verdict.HOLDS if forged else outcome.verdict is Verdict.HOLDS
    assert wanted, f"{model}: {outcome.verdict}, with {len(forged)} forged records"


# -- what must never be forgotten ---------------------------------------------------------------


def check_memory(world: World) -> None:
    """Who is erased stays away, deleted rows too, and an old request gets its old receipt again."""
    sent: list[tuple[str, dict[str, Any], str]] = [
        ("who-is-erased", {"id": "again-1", "subject": "subject-1"}, "SUBJECT_ERASED"),
        ("what-is-deleted", {"id": "row-0"}, "ROW_DELETED"),
    ]
    for request_id, row, _ in sent:
        given = {"values": [0.1] * 4, "target": 1, **row}
        body = {"request_id": request_id, "model_id": LINE, "op": "insert", "rows": [given]}
        world.ask(topics.ROW_CHANGES, LINE, "lethe.rows.changed.v1", body)
    again = {"request_id": "old-line", "model_id": LINE, "row_ids": ["row-0"]}
    world.ask(topics.DELETIONS, LINE, "lethe.deletion.requested.v1", again)
    world.work()
    finals: dict[str, list[Receipt]] = {}
    for record in believed(world, topics.RECEIPTS):
        receipt = Receipt.model_validate_json(record.value or b"")
        if receipt.model_id == LINE and receipt.code != "REQUEST_ID_CONFLICT":
            finals.setdefault(receipt.request_id, []).append(receipt)
    for request_id, _, code in sent:
        assert [one.code for one in finals[request_id]] == [code], finals[request_id]
    first, *repeats = finals["old-line"]
    assert repeats, "an old request gets no receipt again"
    assert all(one.value() == first.value() for one in repeats)
