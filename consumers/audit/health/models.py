"""What `lethe check` checks for each model: invariants of the stored state, and its history."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from functools import partial

from lethe.consumers.audit.health.checks import Check
from lethe.consumers.log.base import Log
from lethe.consumers.subscriber.history import history
from lethe.consumers.subscriber.published import published_of
from lethe.consumers.versions.refresh_schedule import is_stuck
from lethe.consumers.workers.drained import stuck
from lethe.engine.error.drift import PROBES, RESIDUAL, audit, dual_residual, sums_fault
from lethe.engine.error.estimate import scale
from lethe.engine.errors import LetheError, RowsMissing
from lethe.engine.fit import blocks
from lethe.engine.store.layout.keys import FORMAT
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.layout.stored_rows import read_rows
from lethe.engine.store.offline.live_rows import LiveRows, read_live_rows
from lethe.engine.store.offline.snapshot import load_factor
from lethe.engine.store.row_files import unknown_folders
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.store import ModelStore

_REBUILD = "run `lethe refresh --size rebuild`, then check again"

AUDITED_NUMBERS = 25_000_000
"""Numbers of a model's rows and dual rows (200 MB) up to which a check reads all of them."""


def check_model(store: ModelStore, log: Log | None, model: str) -> Iterator[Check]:
    """Check one model's stored invariants, and its history if there is a ``log``."""
    subject = f"model {model}"
    try:
        state = store.load_model(model)  # parses the head; V and Q have the lengths it names
        yield _head(state)
        event, _ = published_of(state)
        detail = f"of version {event.version} match their digest"
        yield Check(f"{subject}, parameters", True, detail)
        rows = _records(store, state)
        yield rows
        if rows.ok and not state.awaiting_rebuild:
            sound = True
            if state.stream.solution is None and state.meta.row_files is None:
                probe = _probe(store, state)
                yield probe
                sound = probe.ok
            if sound:  # a damaged factor would fail both
                yield _drift(store, state)
        yield _deferred(state)
        if log is not None:
            yield _history(store, log, state)
    except LetheError as error:
        yield Check(subject, False, str(error))


def _head(state: ModelState) -> Check:
    subject, meta = f"model {state.model_id}", state.meta
    where = f"version {state.version}, commit {state.head.commit}, format {FORMAT}"
    if state.awaiting_rebuild:
        lost = "V and Q were lost with the store's last writes; a rebuild will restore them"
        return Check(subject, True, f"{where}; {lost}")
    return Check(subject, True, f"{where}, V {meta.K} rows, Q {meta.r} rows, as its head says")


def _records(store: ModelStore, state: ModelState) -> Check:
    """Compare row records with live rows, those of files among them."""
    subject = f"model {state.model_id}, rows"
    if state.meta.row_files is None:
        return _counted(store, state, subject)
    if state.meta.rows_in_store:
        counted = _counted(store, state, f"{subject} since the files")
        if not counted.ok:
            return counted
    return _row_files(store, state, subject)


def _counted(store: ModelStore, state: ModelState, subject: str) -> Check:
    live = state.generation_keys
    pipeline = store.client.pipeline(transaction=True)
    for key in live.every_rows():
        pipeline.hlen(key)
    pipeline.hget(state.keys.head, "commit")
    with reachable(store.client):
        *counts, commit = pipeline.execute()
    if int(commit or 0) != state.head.commit:
        return Check(subject, True, "not counted: deletions are being committed")
    records, live_rows = sum(counts), state.meta.rows_in_store
    if records == live_rows:
        return Check(subject, True, f"{records} live, each with its record")
    if records < live_rows:
        detail = f"DATA_LOST: {live_rows - records} of {live_rows} live rows have no record"
    else:
        detail = f"{records} records for {live_rows} live rows"
    advice = "restore the store from a backup, or register the model again with --replace"
    return Check(subject, False, f"{detail}; {advice}")


def _row_files(store: ModelStore, state: ModelState, subject: str) -> Check:
    """Read every file of rows, each of which must have its digest, and count the live rows."""
    found = former = 0
    try:
        for bucket in store.row_files.every(state.meta):
            hidden = len(store.hidden(state, bucket.ids))
            found += len(bucket) - hidden
            former += hidden
    except RowsMissing:
        if store.load_model(state.model_id).meta.row_files == state.meta.row_files:
            raise
        return Check(subject, True, "not counted: a refresh has written the files anew meanwhile")
    live = state.meta.rows_live - state.meta.rows_in_store
    detail = f"{found} live and {former} former ones in files, which have their digests"
    if found == live:
        unknown = unknown_folders(store.client, state.meta)
        if unknown:
            detail += (
                "; beside them folders of which this store knows nothing "
                f"({', '.join(unknown[:3])}): remove them, unless they are another store's"
            )
        return Check(subject, True, detail)
    if store.load_model(state.model_id).head != state.head:
        return Check(subject, True, "not counted: deletions are being committed")
    return Check(subject, False, f"{detail}, and {live} should be live; {_REBUILD}")


def _probe(store: ModelStore, state: ModelState) -> Check:
    """Multiply stored dual rows back: L L^T w_i = x_i, from the stored bytes."""
    subject = f"model {state.model_id}, dual rows"
    ids_key = state.keys.dataset(state.meta.dataset_key).ids
    with reachable(store.client):
        n = int(store.client.llen(ids_key))
        places = random.sample(range(n), min(n, 64 * PROBES))
        pipeline = store.client.pipeline(transaction=False)
        for place in places:
            pipeline.lindex(ids_key, place)
        ids = [text(row) for row in pipeline.execute() if row is not None]
    records = list(store.row_records(state.generation_keys, ids).values())[:PROBES]
    if not records:
        drawn_all = len(places) == n
        fine = state.meta.rows_live == 0 or not drawn_all
        return Check(subject, fine, f"none of {len(places)} rows drawn has a record")
    config = state.meta.config
    if not config.blocks:
        return Check(subject, True, f"it has none; {len(records)} random rows have their records")
    rows = read_rows(config, state.pipeline, records, subject)
    factor = load_factor(store, state)
    worst = max(
        dual_residual(factor.block(c), rows.rows.X, blocks.part(rows.W, c, config.d))
        for c in range(config.blocks)
    )
    if worst <= RESIDUAL:
        detail = f"L L^T w = x on {len(records)} random rows, residual {worst:.1e}"
        return Check(subject, True, detail)
    detail = (
        f"L L^T w differs from x by {worst:.1e} (at most {RESIDUAL:.0e}): the stored factor or "
        "dual rows are damaged; run `lethe refresh --size rebuild`, then check again"
    )
    return Check(subject, False, detail)


def _drift(store: ModelStore, state: ModelState) -> Check:
    """Audit V and the exact answer against all live rows, unless there are too many."""
    subject, meta = f"model {state.model_id}, drift", state.meta
    numbers = (1 + meta.config.blocks) * meta.rows_live * meta.config.d
    if meta.rows_live == 0:
        return Check(subject, True, "no row is left")
    if numbers > AUDITED_NUMBERS:
        detail = f"not audited here: {numbers} numbers; refreshes that read the rows audit them"
        return Check(subject, True, detail)
    return read_live_rows(store, state.model_id, partial(_audited, store, subject))


def _audited(store: ModelStore, subject: str, live: LiveRows) -> Check:
    now, snapshot = live.state, live.snapshot
    if now.stream.solution is not None:
        fault = sums_fault(now.stream.solution, live.rows)
        detail = f"the exact sums are those of {len(live.rows)} live rows, digit for digit"
        return Check(subject, fault is None, detail if fault is None else f"{fault}; {_REBUILD}")
    if snapshot is None:
        detail = "not audited: the rows are in files; each rebuild fits them anew"
        return Check(subject, True, detail)
    drift = audit(
        now.generation,
        now.stream,
        load_factor(store, now),
        snapshot.rows,
        snapshot.W,
        tolerated=now.meta.config.error_budget * scale(now.generation, now.stream),
    )
    if drift.fault is None:
        detail = (
            f"V matches {len(snapshot.ids)} live rows, residual {drift.inverse:.1e}; the exact "
            f"answer is off by {drift.theta:.1e}, {drift.allowed:.1e} allowed"
        )
        return Check(subject, True, detail)
    return Check(subject, False, f"{drift.fault}; {_REBUILD}")


def _deferred(state: ModelState) -> Check:
    subject = f"model {state.model_id}, deferred requests"
    if is_stuck(state):
        return Check(subject, False, stuck(state))
    waiting = f"{len(state.deferred)} wait for a rebuild that is pending"
    return Check(subject, True, waiting if state.deferred else "none")


def _history(store: ModelStore, log: Log, state: ModelState) -> Check:
    """Check every link of the published chain, and its end against the stored head."""
    subject = f"model {state.model_id}, history"
    cursors = store.cursors.read(state.keys.partition).of_model(state.model_id)
    tip = None
    passed = False  # a worker may publish newer versions meanwhile
    with closing(log.reader()) as reader:
        for version in history(reader, state.model_id):
            tip = version
            passed = passed or (version.version, version.digest) == (state.version, state.digest)
    if passed and tip is not None:
        detail = f"{tip.version + 1} versions linked; the stored head is among them"
        return Check(subject, True, detail)
    end = "is empty" if tip is None else f"ends with version {tip.version}"
    if cursors.published < cursors.apply and (tip is None or tip.version < state.version):
        return Check(subject, True, f"published history {end}; the rest is still to be published")
    detail = (
        f"published history {end}, but the store holds version {state.version} with digest "
        f"{state.digest[:12]}: one of them was reset or rolled back. Stop the workers, and restore "
        "the one that is behind"
    )
    return Check(subject, False, detail)
