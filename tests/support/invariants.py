"""What must hold of a model at rest, by routes that do not trust the workers.

The oracle retrains (`tests.support.oracles`); the ledger, the receipts, the versions and the stored
rows are compared with each other and with what was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lethe.consumers.audit.rational_refit import rational_refit
from lethe.consumers.commits.frame import Framed, decode_frame
from lethe.consumers.contract import topics
from lethe.consumers.contract.version_chain import check_parameters, check_version, theta_of
from lethe.consumers.log.streams.log import StreamsLog
from lethe.engine.fit.objective import Rows
from lethe.engine.rowstore.bucket import Bucket
from lethe.engine.store.layout.keys import SHARDS, ModelKeys, commit_partition
from lethe.engine.store.offline import staging
from lethe.engine.store.row_files import RowFilesOfModels
from lethe.engine.store.server.connection import text
from tests.support.disclosed import check_deleted
from tests.support.evidence import check_receipt_log
from tests.support.oracles import Wide, distance, relative, retrain_wide
from tests.support.platform import Platform

Mask: TypeAlias = NDArray[np.bool_]


def live_mask(platform: Platform, model_id: str = "m") -> Mask:
    """Return which of the family's rows are live, by the ledger alone."""
    return platform.live_mask(model_id)


def ledger_of(platform: Platform, model_id: str = "m") -> dict[str, int]:
    """Return the ledger: row id to version."""
    stored = platform.raw().hgetall(ModelKeys(model_id).ledger)
    return {text(row): int(version) for row, version in stored.items()}


def retrained(platform: Platform, model_id: str = "m", *, penalised: bool = False) -> Wide:
    """Return the minimiser on the live rows, in extended precision."""
    data = platform.live_data(model_id)
    penalty = np.full(len(data.penalty), data.ridge) if penalised else data.penalty
    return retrain_wide(data.kind, data.design, data.y, data.weight, penalty)


def rationally_retrained(platform: Platform, model_id: str = "m") -> Wide:
    """Return the minimiser of a linear model on the live rows, correctly rounded."""
    data = platform.live_data(model_id)
    rows = Rows(data.design, data.y, data.weight)
    return rational_refit(rows, data.penalty).astype(np.longdouble)


def true_error(platform: Platform, model_id: str = "m") -> float:
    """Return |published - retrained|, published as subscribers see it."""
    published = theta_of(platform.parameters(model_id))
    return distance(published, retrained(platform, model_id))


def check_model(
    platform: Platform,
    model_id: str = "m",
    *,
    exact_to: float = 1e-8,
    erased: Set[str] = frozenset(),
) -> None:
    """Check every promise on a drained platform; ``erased`` are rows of erased people."""
    check_versions(platform, model_id)
    check_receipts(platform, model_id)
    check_receipt_log(platform, model_id)
    check_rows(platform, model_id)
    check_theta(platform, model_id, exact_to)
    check_commits(platform, model_id)
    check_disclosures(platform, model_id, erased)


def check_disclosures(platform: Platform, model_id: str, erased: Set[str]) -> None:
    """What the store keeps of deleted rows is what refits say, and nothing of erased people."""
    state = platform.load(model_id)
    if state.meta.config.disclosure and state.registered:
        check_deleted(platform, model_id, ledger_of(platform, model_id), erased)


def check_versions(platform: Platform, model_id: str, *, accounted: bool = True) -> None:
    """Dense from 0, each linked, one digest each; the newest parameters are the stored ones.

    Not ``accounted``: the ledger was lost once, and says a later version of some rows.
    """
    versions = platform.versions(model_id)
    state = platform.load(model_id)
    assert [v.version for v in versions] == list(range(state.version + 1))
    previous = None
    for version in versions:
        check_version(version, previous)
        previous = version
    assert versions[-1].digest == state.digest
    parameters = platform.parameters(model_id)
    theta = theta_of(parameters)
    check_parameters(parameters, versions[-1], theta)
    assert np.array_equal(theta, state.stream.published)
    ledger = ledger_of(platform, model_id)
    for version in versions:
        gone = [when for when in ledger.values() if when <= version.version]
        if version.generation == 0 and accounted:
            assert version.rows_deleted == len(gone), f"version {version.version}: {gone}"


def check_receipts(platform: Platform, model_id: str) -> None:
    """One final receipt a request; together they account for the ledger, row by row."""
    ledger = ledger_of(platform, model_id)
    finals = platform.finals(model_id)
    for (model, request_id), rows in platform.asked.items():
        if model != model_id:
            continue
        final = finals[request_id]
        if final.status == "REJECTED":
            continue
        members = [row for row in dict.fromkeys(rows) if row in ledger]
        assert len(members) + final.rows_unknown == len(set(rows)), request_id
        assert all(ledger[row] <= (final.version or 0) for row in members), request_id
    applied = [receipt for receipt in finals.values() if receipt.status == "APPLIED"]
    assert sum(receipt.rows_deleted for receipt in applied) == len(ledger)
    named = Counter(name for version in platform.versions(model_id) for name in version.request_ids)
    assert all(named[receipt.request_id] == 1 for receipt in applied)


def live_rows(platform: Platform, model_id: str = "m") -> set[str]:
    """Return the rows that have a record in the live generation, or in its files."""
    held = stored_rows(platform, model_id)
    return held | {row for bucket in buckets_of(platform, model_id) for row in bucket.ids} - set(
        ledger_of(platform, model_id)
    )


def stored_rows(platform: Platform, model_id: str) -> set[str]:
    """Return the rows that have a record in the store."""
    live = platform.load(model_id).generation_keys
    pipeline = platform.raw().pipeline(transaction=False)
    for shard in range(SHARDS):
        pipeline.hkeys(live.rows(shard))
    return {text(row) for rows in pipeline.execute() for row in rows}


def buckets_of(platform: Platform, model_id: str) -> list[Bucket]:
    """Return the buckets of a model's rows, if they are in files."""
    files = RowFilesOfModels(row_keys=platform.store.row_keys)
    return list(files.every(platform.load(model_id).meta))


def check_row_files(platform: Platform, model_id: str = "m") -> None:
    """Rows that were deleted before the live files were made are in none, and no other file stays.

    What a refresh that was dropped has written stays until the next one removes it.
    """
    state, keys = platform.load(model_id), platform.store.row_keys
    files = RowFilesOfModels(row_keys=keys).of(state.meta)
    if files is None:
        return
    files.remove_orphans(-1.0)
    version = -1 if state.meta.row_files is None else state.meta.row_files.version
    before = {row for row, gone in ledger_of(platform, model_id).items() if gone <= version}
    assert not before & {row for bucket in files.scan() for row in bucket.ids}
    assert len(stored_rows(platform, model_id)) == state.meta.rows_in_store
    url = Path(state.meta.config.rows_url or "")
    assert {path.name for path in url.rglob("*") if path.is_file()} == files.files()
    if keys is not None and state.meta.row_files is not None:
        held: Any = keys._client.hkeys(state.keys.file_keys(state.meta.row_files.folder))
        assert set(map(text, held)) == files.files(), "keys are not those of the live files"


def check_rows(platform: Platform, model_id: str) -> None:
    """Deleted rows have no record; live ones have; nothing but the live generation stays.

    What a registration that died has staged stays until housekeeping sweeps it.
    """
    state, raw = platform.load(model_id), platform.raw()
    live = state.generation_keys
    held = live_rows(platform, model_id)
    ledger = ledger_of(platform, model_id)
    assert not held & ledger.keys(), "records of deleted rows are left"
    assert len(held) == state.meta.rows_live
    deletions = [text(row) for row in raw.lrange(state.keys.deletions, 0, -1)]
    assert len(deletions) == len(set(deletions))
    assert len(deletions) + state.deletions_from == state.meta.deletions_logged == len(ledger)
    assert ledger.keys() >= set(deletions)
    staging.sweep_registrations(raw, state.keys, platform.store.row_keys, seconds=0)
    names = keys_of(platform, model_id)
    pipeline = raw.pipeline(transaction=False)
    for name in names:
        pipeline.ttl(name)
    for name, seconds in zip(names, pipeline.execute(), strict=True):
        stays = f":gen:{live.name}:" in name or f":data:{state.meta.dataset_key}:" in name
        if stays:
            assert seconds == -1, f"{name} would expire"
        elif ":gen:" in name or ":data:" in name or ":job:" in name:
            assert seconds > 0, f"{name} stays for ever"


def keys_of(platform: Platform, model_id: str) -> list[str]:
    """Return the names of all keys of a model."""
    prefix = ModelKeys(model_id).head.removesuffix("head")
    return [text(key) for key in platform.raw().scan_iter(f"{prefix}*", count=1000)]


def check_commits(platform: Platform, model_id: str) -> None:
    """One chain of commits that leads to the stored head, and all of it applied and published.

    Of a log that lost some (`lethe recover`), a checkpoint goes on from the last that it has.
    """
    state, partition = platform.load(model_id), commit_partition(model_id)
    records = [r for r in platform.records(topics.COMMITS) if r.partition.index == partition]
    if not records and isinstance(platform.log, StreamsLog):
        return  # a log that goes with its store drops what is applied and published
    chain: dict[int, Framed] = {}
    gap = False
    for framed in (decode_frame(record.value) for record in records):
        if framed is None or framed.open.model_id != model_id or framed.open.number in chain:
            continue
        before = chain.get(framed.open.number - 1)
        if framed.open.skips and chain:
            before = chain[max(chain)]
        if before is None and framed.open.number > 0 and chain:
            gap = True
            continue
        if before is None or framed.open.prev == before.digest:
            if gap and not framed.open.skips:
                continue
            chain[framed.open.number], gap = framed, False
    first, last = min(chain), max(chain)
    assert (last, chain[last].digest) == (state.head.commit, state.head.digest)
    numbers = {version.version: version for version in platform.versions(model_id)}
    skips = any(framed.open.skips for framed in chain.values())
    assert skips or len(chain) == last - first + 1
    for number, framed in chain.items():
        open_part = framed.open
        if open_part.version is not None:
            version = numbers.pop(open_part.version)
            assert (version.commit, version.commit_prev) == (number, open_part.prev)
    assert first > 0 or skips or not numbers, f"no commit makes versions {sorted(numbers)}"
    cursors = platform.store.cursors.read(state.keys.partition)
    end = records[-1].offset + 1
    assert (cursors.pair.apply, cursors.pair.published) == (end, end)
    assert cursors.behind == {}


def check_theta(platform: Platform, model_id: str, exact_to: float) -> None:
    """The running answer is retraining; what is published is as far from it as it says."""
    state = platform.load(model_id)
    if state.meta.rows_live == 0:
        assert state.meta.status == "EMPTY"
        assert not state.stream.published.any()
        return
    wide = retrained(platform, model_id, penalised=state.meta.status == "INTERCEPT_PENALISED")
    if state.meta.config.exact_sums:
        wide = rationally_retrained(platform, model_id)
        assert np.array_equal(state.stream.theta_exact, wide)
    elif platform.data[model_id].kind == "linear":
        assert relative(state.stream.theta_exact, np.asarray(wide, dtype=float)) < exact_to
    error = state.meta.error
    if error.bound is not None:
        assert distance(state.stream.published, wide) <= error.bound


def unfinished(platform: Platform, model_id: str) -> list[str]:
    """Return the requests that still wait for a final receipt."""
    stored: Any = platform.raw().hgetall(platform.load(model_id).keys.requests)
    return [text(name) for name, kept in stored.items() if kept.startswith(b"P")]
