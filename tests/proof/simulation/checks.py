"""The promises, checked at the end of a run against what the log ever had."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.consumers.commits.packed_receipt import unpack
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Version
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.deletions.batching import Batching
from lethe.consumers.log.base import Log, Record
from lethe.engine.fit.objective import Kind, norm
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.keys import SHARDS, ModelKeys, every_partition
from lethe.engine.store.layout.records import CertificateRecord
from lethe.engine.store.offline.staging import sweep_registrations
from lethe.engine.store.row_files import folder_of, stored_meta
from lethe.engine.store.server.connection import text
from tests.proof.agreement import check_published, check_store
from tests.proof.independent_fold import ModelFold
from tests.proof.live_rows import LiveRows, data_of
from tests.proof.simulation.log import SimulatedLog
from tests.proof.simulation.requests import Producers
from tests.proof.simulation.truth import Truth
from tests.proof.tables import TableData, check_pipeline, stored_values
from tests.support.families import Data
from tests.support.invariants import check_theta, keys_of, retrained
from tests.support.oracles import distance
from tests.support.platform import Platform

if TYPE_CHECKING:
    from tests.proof.simulation.world import World

CERTIFIED = "certified"
"""Name of the family whose models are certified."""

TABLE, BY_ORDER = "table", "table by order"
"""Names of the families whose models have preprocessing."""


class SimulatedPlatform(Platform):
    """A platform that also sees what retention removed, and partitions that were added."""

    log: Log
    truth: Truth

    def live_data(self, model_id: str = "m") -> Data:
        """Return a model's live rows as training data, by the log alone."""
        return data_of([*self.truth.rows[model_id].live.values()], self.data[model_id])

    def records(self, topic: str) -> list[Record]:
        """Return everything that a topic ever had."""
        assert isinstance(self.log, SimulatedLog)
        return self.log.everything(topic)

    def versions(self, model_id: str = "m") -> list[Version]:
        """Return the published versions by number, without byte-identical repeats."""
        return sorted(super().versions(model_id), key=lambda version: version.version)


def undecided(platform: Platform, producers: Producers, truth: Truth) -> list[str]:
    """Return the requests that the log took and that have no final outcome.

    One that came before its model has an answer for each time that it was sent; any other one has
    exactly one receipt (that no commit gives it another is seen when the commit lands).
    """
    published = defaultdict(set)
    for receipt, value in _receipts(platform):
        published[receipt.model_id, receipt.request_id].add(value)
    missing = []
    for record in requests_in(platform):
        named = producers.of_record(record)
        if named is None:
            continue
        model = truth.models.get(named[0], ModelFold())
        where = f"{named[0]}/{named[1]} at {record.partition.index}/{record.offset}"
        if _is_of_model(platform, model, record):
            final = model.finals.get(named[1])
            if final is None or final not in published[named]:
                missing.append(where)
        elif not any(_answers(value, record) for value in published[named]):
            missing.append(f"{where}, which came before its model")
    return missing


def requests_in(platform: Platform) -> list[Record]:
    """Return all requests that the log ever had, of both topics."""
    return platform.records(topics.DELETIONS) + platform.records(topics.ROW_CHANGES)


def answers_of_commits(platform: Platform) -> set[bytes]:
    """Return all receipts but those of requests that came before their models.

    These are judged as they become visible (`Truth.check_visible`), and missed where they lack.
    """
    return {value for receipt, value in _receipts(platform) if receipt.code != "UNKNOWN_MODEL"}


def _receipts(platform: Platform) -> list[tuple[Receipt, bytes]]:
    values = dict.fromkeys(r.value or b"" for r in platform.records(topics.RECEIPTS))
    return [(Receipt.model_validate_json(value), value) for value in values]


def _is_of_model(platform: Platform, model: ModelFold, record: Record) -> bool:
    """Return whether a record came behind the opening, in the topic of then or a later one."""
    assert isinstance(platform.log, SimulatedLog)
    if model.opening is None:
        return False
    lives = platform.log.lives(record.partition.topic)
    opened = {place.rpartition("/")[0] for place in model.opening}.intersection(lives)
    if lives.index(record.partition.topic_id) < max(map(lives.index, opened)):
        return False
    return record.offset >= model.opening.get(str(record.partition), 0)


def _answers(value: bytes, record: Record) -> bool:
    receipt = json.loads(value)
    place = {
        "topic": record.partition.topic,
        "partition": record.partition.index,
        "offset": record.offset,
    }
    return bool(receipt["code"] == "UNKNOWN_MODEL" and receipt["source"] == place)


def check_stored(platform: Platform, model_id: str, fold: ModelFold) -> None:
    """Check that the store is what the log says."""
    raw, keys = platform.raw(), ModelKeys(model_id)
    head: dict[bytes, bytes] = raw.hgetall(keys.head)  # type: ignore[assignment]  # redis-py's types
    stored: dict[bytes, bytes] = raw.hgetall(keys.requests)  # type: ignore[assignment]  # as above
    kept = {text(name): value for name, value in stored.items()}
    indexed = {name: unpack(value, model_id, name) for name, value in kept.items()}
    check_store(
        fold,
        head=(int(head[b"commit"]), text(head[b"digest"])),
        version=int(head[b"version"]),
        ledger={text(row): int(at) for row, at in raw.hgetall(keys.ledger).items()},
        offsets={text(place): int(at) for place, at in raw.hgetall(keys.offsets).items()},
        finals={name: one.receipt.value() for name, one in indexed.items() if one.final},
        deferred=[text(name) for name in raw.hkeys(keys.deferred)],
    )
    published = head[b"published"] or head[b"theta_exact"]
    assert published == fold.thetas["published"], f"{model_id}: other parameters are stored"
    if fold.meta["status"] != "UNREGISTERED":  # else its data set expires: `check_rows`
        dataset = keys.dataset(fold.meta["dataset_key"])
        sweep_registrations(platform.raw(), keys, seconds=0)
        in_files = fold.meta.get("row_files") is not None
        assert in_files or raw.exists(dataset.ids), f"{model_id}: which rows it has is not stored"
        disclosed: dict[bytes, bytes] = raw.hgetall(dataset.disclosed)  # type: ignore[assignment]  # as above
        found = {text(row): entries for row, entries in disclosed.items()}
        assert found == fold.disclosed, f"{model_id}: other disclosures are stored"
    retired = {text(row) for row in raw.smembers(keys.retired)}
    assert retired == fold.retired, f"{model_id}: other rows are retired"


def check_rows(
    platform: Platform,
    model_id: str,
    fold: ModelFold,
    rows: LiveRows,
    forgotten: Collection[str] = (),
) -> None:
    """Live rows have records, no others have; what is neither live nor about to be expires."""
    raw, keys = platform.raw(), ModelKeys(model_id)
    generation = text(raw.hget(keys.head, "rows") or b"")
    held: dict[str, bytes] = {}
    for shard in range(SHARDS):
        records: dict[bytes, bytes] = raw.hgetall(keys.generation(generation).rows(shard))  # type: ignore[assignment]  # redis-py's types
        held |= {text(row): record for row, record in records.items()}
    meta = stored_meta(raw, model_id)
    files = None if meta is None else platform.store.row_files.of(meta)
    if files is not None and meta is not None:
        assert len(held) == meta.rows_in_store, f"{model_id}: rows beside its files"
        others = fold.ledger.keys() | held.keys()  # of which files have what was before
        names = [row for bucket in files.scan() for row in bucket.ids if row not in others]
        held |= platform.store.row_files.records(meta, names)
        files.remove_orphans(-1.0)
        folder = Path(meta.config.rows_url or "") / folder_of(model_id)
        live_folder = "" if meta.row_files is None else meta.row_files.folder
        assert {path.name for path in (folder / live_folder).iterdir()} == files.files()
        noted = {text(name) for name in raw.hkeys(keys.stagings)}  # may still become live
        former = {path.name for path in folder.iterdir()} - noted - {live_folder}
        former -= {*forgotten}  # an earlier store came back, which did not know of them
        assert not former, f"{model_id}: files of {sorted(former)}"
    live = rows.live
    assert held.keys() == live.keys(), f"{model_id}: records of {sorted(held.keys() ^ live.keys())}"
    _check_values(held, rows, platform.data[model_id], fold)
    assert fold.meta["rows_live"] == len(live), f"{model_id}: counts {fold.meta['rows_live']}"
    deletions = [text(row) for row in raw.lrange(keys.deletions, 0, -1)]
    first = int(raw.hget(keys.head, "deletions_from") or b"0")
    assert len(deletions) == len(set(deletions))
    assert fold.ledger.keys() >= set(deletions)
    assert first + len(deletions) == fold.meta["deletions_logged"] == len(fold.ledger)
    stagings = map(text, raw.hkeys(keys.stagings))  # what is complete stays until it is swept
    staged = [name for name in stagings if raw.hexists(keys.generation(name).fixed, "complete")]
    registered = fold.meta["status"] != "UNREGISTERED"
    stays = [f":gen:{generation}:", f":data:{fold.meta['dataset_key']}:"] if registered else []
    stays += [f":{kind}:{name}:" for name in staged for kind in ("gen", "data")]
    for name in keys_of(platform, model_id):
        if any(one in name for one in stays):
            assert raw.ttl(name) == -1, f"{name} would expire"
        elif any(one in name for one in (":gen:", ":data:", ":job:")):
            assert raw.ttl(name) > 0, f"{name} stays for ever"


def _check_values(held: Mapping[str, bytes], rows: LiveRows, data: Data, fold: ModelFold) -> None:
    """Check that records have the newest values of their rows, bit for bit, and no former ones."""
    d, m = data.X.shape[1] + data.intercept, data.y.shape[1]
    for name, record in held.items():
        if isinstance(data, TableData):
            row = rows.live[name]
            values = stored_values(record, fold.config, name)
            assert values == (*row.x, *row.y, row.weight), f"{name}: other values are stored"
            continue
        blocks = m if fold.config.get("class_names") else 1
        if data.kind == "softmax" or fold.config.get("exact_sums", False):
            blocks = 0  # no dual rows
        found = codec.unpack_rows([record], d, m, name, blocks)
        row = rows.live[name]
        values = (*found.X[0, : len(row.x)].tolist(), *found.y[0].tolist(), found.weight[0])
        assert values == (*row.x, *row.y, row.weight), f"{name}: other values are stored"


def check_answer(platform: Platform, model_id: str) -> None:
    """Check that what is published is retraining, within what it says of itself."""
    if platform.data[model_id].name == CERTIFIED:
        _check_certificates(platform, model_id)
    elif isinstance(live := platform.live_data(model_id), TableData):
        check_pipeline(platform, model_id, live, 1e-8)
    else:
        check_theta(platform, model_id, 1e-8)
    _check_budget(platform, model_id)


def _check_budget(platform: Platform, model_id: str) -> None:
    """Check that no linear model publishes a projection over its budget, unless it is to."""
    config = platform.load(model_id).meta.config
    if config.kind is Kind.LINEAR and config.completes:
        for version in platform.versions(model_id):
            assert not version.error.over, f"{model_id}: version {version.version} is over"


def check_newest(platform: Platform, model_id: str, fold: ModelFold) -> None:
    """Check that compaction keeps the newest parameters."""
    newest = json.loads(fold.versions[-1])["digest"]
    kept = platform.parameters(model_id).digest
    assert kept == newest, f"{model_id}: compaction keeps parameters of an older version"


def _check_certificates(platform: Platform, model: str) -> None:
    """No version spends more than it may; the newest spends at least its true gradient."""
    versions = platform.versions(model)
    for version in versions:
        if isinstance(version.certificate, CertificateRecord):
            assert version.certificate.spent <= version.certificate.budget
    state = platform.load(model)
    if state.meta.rows_live == 0 or state.awaiting_rebuild:
        return  # the noise of a generation that was lost went with it
    terms = state.meta.config.output_noise
    if terms is not None:
        exact, published = state.stream.theta_exact, state.stream.published
        retrain = retrained(platform, model, penalised=True)
        assert distance(exact, retrain) <= terms.alpha
        assert 0 < norm(published - exact) <= terms.alpha + terms.radius(exact.shape)
        return
    stored = platform.raw().hget(state.generation_keys.fixed, "noise")
    assert isinstance(stored, bytes)
    noise = codec.unpack(stored, (state.meta.config.d, state.meta.config.m), "noise")
    data, theta = platform.live_data(model), state.stream.published
    X = data.design.astype(np.longdouble)
    margin = X @ theta
    mean = margin if data.kind == "linear" else 1 / (1 + np.exp(-margin))
    gradient = X.T @ (mean - data.y) + data.ridge * theta + noise
    certificate = versions[-1].certificate
    assert isinstance(certificate, CertificateRecord)
    assert float(np.linalg.norm(gradient.astype(np.float64))) <= certificate.spent


def check_company(platform: Platform, model: str, batching: Batching) -> None:
    """Check that no version leaves out a few rows whose requests could have waited longer."""
    sent: dict[tuple[int, int], float] = {}
    for record in platform.records(topics.DELETIONS):
        sent.setdefault((record.partition.index, record.offset), record.timestamp_ms / 1000)
    deleted = 0
    for version in platform.versions(model):
        gone, deleted = version.rows_deleted - deleted, version.rows_deleted
        source = version.source
        if version.refresh is None and source is not None and source.topic == topics.DELETIONS:
            since = sent[source.partition, source.first_offset]
            waited = version.created_at.timestamp() - since
            enough = gone >= batching.rows or waited > batching.seconds - 0.01
            assert enough, f"{model}: version {version.version} leaves out {gone} rows"


def check(world: World) -> None:
    """Check every promise at the end of a run.

    Raises
    ------
    AssertionError
        One is broken.
    """
    missing = world.undecided()
    assert not missing, f"no final outcome of {missing}"
    platform, models = world.platform, world.truth.models
    receipts = answers_of_commits(platform)
    versions = {record.value or b"" for record in platform.records(topics.VERSIONS)}
    check_published(models, receipts, versions)
    for partition in every_partition():
        behind = platform.store.cursors.read(partition).behind
        assert not behind, f"cursors of {sorted(behind)} lag behind"
    for model, fold in models.items():
        if not fold.commits:
            continue
        check_stored(platform, model, fold)
        check_rows(platform, model, fold, world.truth.rows[model], world.people.forgotten)
        check_company(platform, model, world.batching)
        if world.truth.registered(model):
            check_newest(platform, model, fold)
            check_answer(platform, model)
            if isinstance(platform.data[model], TableData):
                world.count_event("pipeline refitted by the judge")
    if world.erasures is not None:
        world.erasures.check()
    letters = {record.value for record in platform.records(topics.DEAD_LETTERS)}
    assert letters == world.producers.garbage, "dead letters are not the garbage that was sent"
