"""A whole platform for tests: a log, a store, both workers; send, drain, read back."""

from __future__ import annotations

import base64
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import redis
from numpy.typing import NDArray

from lethe.consumers.commits.publish import job_message
from lethe.consumers.contract import topics
from lethe.consumers.contract.cloudevents import headers as event_headers
from lethe.consumers.contract.events import (
    REFRESH_COMPLETED,
    Parameters,
    RefreshCompleted,
    RefreshRequested,
    Source,
    Version,
)
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.log.base import Headers, Log, Message, Record
from lethe.consumers.refresh.job import run_job
from lethe.consumers.registration.coding import Coding
from lethe.consumers.registration.in_files import FileRegistrar
from lethe.consumers.registration.register import Registered, Registrar, TrainingData
from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.service.telemetry.steps import AtStep, no_hook
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.consumers.workers.refresh_worker import RefreshWorker
from lethe.engine.error.budget import OverBudget
from lethe.engine.error.terms import Terms
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.table import Table
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.columns import ColumnRecord
from lethe.engine.store.layout.config import LimitsRecord, ModelConfig
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.preprocessing import columns_of
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.jobs import JobResult
from lethe.engine.store.server.barrier import Barrier, NoBarrier
from lethe.engine.store.server.connection import connect, text
from lethe.engine.store.server.row_keys import RowKeys
from lethe.engine.store.store import ModelStore
from tests.support.families import Data, make

DRAIN_SECONDS = 120.0
SECRET = bytes(range(32))

__all__ = [
    "SECRET",
    "Clock",
    "Inline",
    "Platform",
    "config_of",
    "row_ids",
    "seals",
    "store_at",
    "training_data",
]


def store_at(url: str, *, relaxed: bool = False, keys_url: str = "") -> ModelStore:
    """Return a store with connections of its own."""
    client = connect(url)
    row_keys = RowKeys(connect(keys_url)) if keys_url else None
    barrier = NoBarrier() if relaxed else Barrier(client, required=False)
    return ModelStore(client, barrier, row_keys)


def seals() -> SealKeys:
    """Return what all commits of a platform are sealed with."""
    return SealKeys([SECRET])


def seal_file(directory: Path) -> Path:
    """Return a file with what all commits of a platform are sealed with, for the command."""
    path = directory / "seal.keys"
    path.write_bytes(base64.b64encode(SECRET))
    path.chmod(0o600)
    return path


def row_ids(data: Data) -> tuple[str, ...]:
    """Return the ids of a family's rows, in order."""
    return tuple(f"row-{i}" for i in range(len(data.X)))


def training_data(
    data: Data, keep: Sequence[int] | None = None, subjects: bool = True
) -> TrainingData:
    """Return a family's data as a file would give it; rows ``keep`` of it, or all."""
    index = list(range(len(data.X))) if keep is None else list(keep)
    names = row_ids(data)
    owners: dict[str, list[str]] = {}
    for i in index if subjects else ():
        owners.setdefault(f"subject-{i // 3}", []).append(names[i])
    return TrainingData(
        tuple(names[i] for i in index),
        data.X[index],
        data.y[index],
        tuple(f"x{j}" for j in range(data.X.shape[1])),
        target_names(data),
        owners,
        class_names(data),
    )


def with_row_files(config: ModelConfig, url: str, *, subjects: bool = True) -> ModelConfig:
    """Return the configuration of a model whose rows are in files, and may have subjects."""
    namespace = DEFAULT_NAMESPACE if subjects else None
    return config.model_copy(update={"rows_url": url, "subject_namespace": namespace})


def target_names(data: Data) -> tuple[str, ...]:
    """Return the names of a family's targets: one for all of its classes."""
    return ("y0",) if class_names(data) else tuple(f"y{j}" for j in range(data.y.shape[1]))


def class_names(data: Data) -> tuple[str, ...]:
    """Return the names of a family's classes, if it has more than two."""
    several = data.kind in ("logistic", "softmax") and data.y.shape[1] > 1
    return tuple(f"class {c}" for c in range(data.y.shape[1])) if several else ()


def config_of(
    data: Data,
    model_id: str,
    method: str,
    budget: float,
    limits: LimitsRecord,
    certify: Terms | None = None,
    over_budget: OverBudget = OverBudget.COMPLETE,
    disclosure: bool = False,
) -> ModelConfig:
    """Return the settings of a model of this data."""
    return ModelConfig(
        model_id=model_id,
        kind=Kind(data.kind),
        method=method,
        ridge=data.ridge,
        fit_intercept=data.intercept,
        feature_names=tuple(f"x{j}" for j in range(data.X.shape[1])),
        target_names=target_names(data),
        class_names=class_names(data),
        error_budget=budget,
        limits=limits,
        certify=certify,
        over_budget=over_budget,
        disclosure=disclosure,
    )


class Inline(Executor):
    """Computes at once, in the caller's turn."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return a future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Clock:
    """Counts what a test sends, for ids that never repeat."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self) -> int:
        self._count += 1
        return self._count


@dataclass(frozen=True, slots=True)
class Blocks:
    """Training rows as a table that is read in blocks has them."""

    data: TrainingData
    each: int = 50

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.data.ids)

    def blocks(self) -> Iterator[TrainingData]:
        """Yield them in blocks; with preprocessing coded as they come."""
        table, coding = self.data.table, None
        if table is not None:
            columns = {str(name): one for name, one in columns_of(self.data.preprocess).items()}
            coding = Coding(columns, as_written=False)
        for start in range(0, self.rows, self.each):
            part = slice(start, start + self.each)
            ids, subjects = self.data.ids[part], dict[str, Sequence[str]]()
            for subject, rows in self.data.subjects.items():
                if theirs := [row for row in rows if row in ids]:
                    subjects[subject] = theirs
            X, y = self.data.X[part], self.data.y[part]
            block = replace(self.data, ids=ids, X=X, y=y, subjects=subjects)
            if table is not None and coding is not None:
                X = coding.coded(typed(self.data.preprocess, table.take(part)))
                block = replace(block, X=X, preprocess=(), table=None, coding=coding)
            yield block


def typed(records: Sequence[ColumnRecord], table: Table) -> dict[str, Any]:
    """Return the columns of a table as a file would give them."""
    numbers, codes = iter(table.numbers.T), iter(table.codes.T)
    columns: dict[str, Any] = {}
    for record in records:
        if record.step == "date":
            days = next(numbers)
            moments = np.full(len(days), np.datetime64("NaT"), dtype="datetime64[us]")
            known = ~np.isnan(days)
            moments[known] = np.round(days[known] * 86_400e6).astype("datetime64[us]")
            columns[record.name] = moments
        elif record.step == "numeric":
            columns[record.name] = next(numbers)
        else:
            columns[record.name] = [record.categories[code] for code in next(codes)]
    return columns


@dataclass
class Platform:
    """One log, one store, and what was registered and sent.

    Attributes
    ----------
    log, url, bootstrap
        Where requests go, where the state is, and the address of Kafka where there is one.
    relaxed
        Whether the store may lose acknowledged writes.
    keys_url
        Where the keys of row records are, if these are encrypted.
    most_turns
        How many turns it may take to drain the log; 0 for as many as there is time for.
    data
        By model id: what it was registered with last.
    asked
        By (model id, request id): the rows that the first well-formed request names.
    """

    log: Log
    url: str
    partitions: int = 2
    bootstrap: str = ""
    relaxed: bool = False
    keys_url: str = ""
    most_turns: int = 0
    data: dict[str, Data] = field(default_factory=dict)
    asked: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = self.new_store()
        self.log.ensure_topics(topics.specs(self.partitions))
        self._raw = connect(self.url)
        self.producer, self.reader = self.log.producer(), self.log.reader()
        self.seals = seals()
        self._count = Clock()
        self._folders = ExitStack()
        self._workers: list[DeletionWorker | RefreshWorker] = []
        self._pair: tuple[DeletionWorker, RefreshWorker] | None = None

    def folder(self) -> str:
        """Return a new directory, which is removed with the platform."""
        return self._folders.enter_context(tempfile.TemporaryDirectory())

    def new_store(self) -> ModelStore:
        """Return a store with connections of its own."""
        return store_at(self.url, relaxed=self.relaxed, keys_url=self.keys_url)

    def registrar(self, store: ModelStore | None = None, **options: Any) -> Registrar:
        """Return what registers and unregisters models of this platform."""
        return Registrar(store or self.store, self.producer, self.reader, self.seals, **options)

    def file_registrar(self, store: ModelStore | None = None, **options: Any) -> FileRegistrar:
        """Return what registers models whose rows are in files."""
        return FileRegistrar(store or self.store, self.producer, self.reader, self.seals, **options)

    # -- doing --------------------------------------------------------------------------------

    def register(
        self,
        model_id: str = "m",
        family: str | Data = "benign",
        kind: str = "linear",
        *,
        method: str = "pru",
        budget: float = 0.05,
        limits: LimitsRecord | None = None,
        replace_model: bool = False,
        accept_forgotten: bool = False,
        keep: Sequence[int] | None = None,
        store: ModelStore | None = None,
        certify: Terms | None = None,
        over_budget: OverBudget = OverBudget.COMPLETE,
        disclosure: bool = False,
        take_out_of_range: bool = False,
        exact_sums: bool = False,
        class_weights: tuple[float, ...] = (),
        rows_url: str | None = None,
        subjects: bool = True,
        allow_change: bool = True,
        at_step: AtStep = no_hook,
        **options: Any,
    ) -> Registered:
        """Register a model of a family (or of data) with this process."""
        data = make(family, kind) if isinstance(family, str) else family
        limits = limits or LimitsRecord()
        config = config_of(data, model_id, method, budget, limits, certify, over_budget, disclosure)
        config = config.model_copy(
            update={
                "take_out_of_range": take_out_of_range,
                "exact_sums": exact_sums,
                "class_weights": class_weights,
            }
        )
        if rows_url is not None:
            config = with_row_files(config, rows_url, subjects=subjects)
            registrar = self.file_registrar(store, at_step=at_step, **options)
            done = registrar.register_in_files(
                config,
                Blocks(training_data(data, keep, subjects)),
                replace_model=replace_model,
                accept_forgotten=accept_forgotten,
                allow_change=allow_change,
            )
            self.data[model_id] = data
            return done
        done = self.registrar(store, at_step=at_step, **options).register(
            config,
            training_data(data, keep),
            replace_model=replace_model,
            accept_forgotten=accept_forgotten,
            allow_change=allow_change,
        )
        self.data[model_id] = data
        return done

    def send(self, model_id: str, *rows: str, request_id: str | None = None) -> str:
        """Send a well-formed request by rows; return its id."""
        request_id = request_id or f"request-{self._count()}"
        body = {"request_id": request_id, "model_id": model_id, "row_ids": rows}
        self.send_raw(json.dumps(body).encode(), model_id.encode())
        self.asked.setdefault((model_id, request_id), rows)
        return request_id

    def send_index(self, model_id: str, *index: int, request_id: str | None = None) -> str:
        """Send a request for rows by their number in the family."""
        names = row_ids(self.data[model_id])
        return self.send(model_id, *(names[i] for i in index), request_id=request_id)

    def delete(self, model_id: str, *index: int, request_id: str | None = None) -> str:
        """Send a request for rows by their number, and run until everything is decided."""
        sent = self.send_index(model_id, *index, request_id=request_id)
        self.drain()
        return sent

    def send_change(
        self, model_id: str, op: str, *rows: dict[str, Any], request_id: str = ""
    ) -> str:
        """Send a request to insert or correct rows; return its id."""
        request_id = request_id or f"request-{self._count()}"
        body = {"request_id": request_id, "model_id": model_id, "op": op, "rows": rows}
        value = json.dumps(body).encode()
        self.producer.publish([Message(topics.ROW_CHANGES, model_id.encode(), value)])
        return request_id

    def send_raw(self, value: bytes | None, key: bytes = b"m", headers: Headers = ()) -> None:
        """Send any bytes to ``lethe.deletions``."""
        self.producer.publish([Message(topics.DELETIONS, key, value, headers)])

    def order(self, model_id: str, size: RefreshSize) -> RefreshRequested:
        """Send a person's order of a refresh."""
        event = self.ordered(model_id, size)
        self.producer.publish([job_message(event, self.load(model_id).meta.refreshed_at)])
        return event

    def refresh(self, model_id: str, size: RefreshSize) -> RefreshRequested:
        """Order a refresh, and run until it is done."""
        event = self.order(model_id, size)
        self.drain()
        return event

    def ordered(self, model_id: str, size: RefreshSize | None) -> RefreshRequested:
        """Return an order without sending it."""
        state = self.load(model_id)
        return RefreshRequested(
            job_id=f"job-{self._count()}",
            model_id=model_id,
            generation=state.meta.generation,
            version=state.version,
            reason="ordered",
            size=size,
        )

    def compute_refresh(self, event: RefreshRequested) -> JobResult:
        """Do a refresh job here and now, without telling anybody."""
        return run_job(self.store, event, now=self.load(event.model_id).meta.refreshed_at)

    def tell_refreshed(self, event: RefreshRequested) -> None:
        """Send the event that says that a job is done."""
        moment = self.load(event.model_id).meta.refreshed_at
        done = RefreshCompleted(job_id=event.job_id, model_id=event.model_id)
        named = event_headers(REFRESH_COMPLETED, event.job_id, moment, event.model_id)
        self.send_raw(done.value(), event.model_id.encode(), named)

    # -- workers ------------------------------------------------------------------------------

    def deletion_worker(self, store: ModelStore | None = None, **options: Any) -> DeletionWorker:
        """Return a new worker of the group, closed with the platform."""
        store = store or self.new_store()
        worker = DeletionWorker(self.log, store, self.seals, **options)
        self._workers.append(worker)
        return worker

    def refresh_worker(self, **options: Any) -> RefreshWorker:
        """Return a new refresh worker, closed with the platform; its turns do whole jobs."""
        options = {"computing": Inline(), **options}
        worker = RefreshWorker(self.log, self.new_store(), **options)
        self._workers.append(worker)
        return worker

    @property
    def pair(self) -> tuple[DeletionWorker, RefreshWorker]:
        """The platform's own two workers."""
        if self._pair is None:
            self._pair = self.deletion_worker(), self.refresh_worker()
        return self._pair

    def drain(
        self, worker: DeletionWorker | None = None, refresher: RefreshWorker | None = None
    ) -> None:
        """Run both workers in turn until everything is decided and no refresh is under way."""
        if worker is None:
            worker, refresher = self.pair
        deadline = time.monotonic() + DRAIN_SECONDS
        for turns in itertools.count(1):
            done = self.turn(worker)
            done += 0 if refresher is None else refresher.run_once(0.0)
            rest = refresher is None or refresher.idle()
            if done == 0 and rest and worker.idle():
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"not drained after {DRAIN_SECONDS:g} s")
            if turns == self.most_turns:
                raise TimeoutError(f"not drained after {turns} turns")

    def turn_until_decided(self, records: int) -> None:
        """Run the deletion worker alone until it has taken this many records."""
        deadline = time.monotonic() + DRAIN_SECONDS
        taken = 0
        while taken < records:
            taken += self.pair[0].run_once(0.05)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{taken} of {records} records were taken")

    @staticmethod
    def turn(worker: DeletionWorker, timeout: float = 0.002) -> int:
        """Run one turn; recover from what `DeletionWorker.run` recovers from."""
        try:
            return worker.run_once(timeout)
        except TRANSIENT:
            worker.recover()
            return 1

    def close(self) -> None:
        """Close the workers and the connections, each even if another one cannot be closed."""
        ends = [self.log, self.store, self._raw, self.reader, self.producer, *self._workers[::-1]]
        with ExitStack() as stack:
            stack.callback(self._folders.close)
            for end in ends:  # the last one first
                stack.callback(end.close)

    def reconnect(self) -> None:
        """Connect anew to a store that was restarted: a connection that broke says so once."""
        self.store.close()
        self.store = self.new_store()

    # -- reading ------------------------------------------------------------------------------

    def load(self, model_id: str = "m") -> ModelState:
        """Return the stored state."""
        return self.store.load_model(model_id)

    def live_mask(self, model_id: str = "m") -> NDArray[np.bool_]:
        """Return which of the family's rows are live, by the ledger alone."""
        ledger = {text(row) for row in self._raw.hkeys(ModelKeys(model_id).ledger)}
        return np.array([row not in ledger for row in row_ids(self.data[model_id])])

    def live_data(self, model_id: str = "m") -> Data:
        """Return a model's live rows as training data."""
        data, live = self.data[model_id], self.live_mask(model_id)
        return replace(data, X=data.X[live], y=data.y[live], weight=data.weight[live])

    def records(self, topic: str) -> list[Record]:
        """Return everything in a topic, by partition and offset."""
        reader = self.log.reader()
        found: list[Record] = []
        try:
            for partition in reader.partitions(topic):
                bounds = reader.bounds(partition)
                offset = bounds.begin
                while offset < bounds.end:
                    records, after = reader.read(partition, offset, 1.0, 500)
                    found += records
                    offset = after
        finally:
            reader.close()
        return found

    def receipts(self, model_id: str = "m") -> list[Receipt]:
        """Return all receipts of a model, repeats included, in order."""
        return [receipt for receipt, _ in self.published_receipts(model_id)]

    def published_receipts(self, model_id: str = "m") -> list[tuple[Receipt, bytes]]:
        """Return all receipts of a model with their bytes, repeats included, in order."""
        values = [record.value or b"" for record in self.records(topics.RECEIPTS)]
        found = [(Receipt.model_validate_json(value), value) for value in values]
        return [(receipt, value) for receipt, value in found if receipt.model_id == model_id]

    def finals(self, model_id: str = "m") -> dict[str, Receipt]:
        """Return the final receipt of each request; repeats must be byte-identical.

        UNKNOWN_MODEL is not remembered: it answers one record, and the request may be sent again.
        """
        found: dict[str, Receipt] = {}
        unknown: dict[tuple[str, Source], Receipt] = {}
        for receipt in self.receipts(model_id):
            name = receipt.request_id
            if receipt.code == "UNKNOWN_MODEL":
                first = unknown.setdefault((name, receipt.source), receipt)
            elif receipt.final and receipt.code != "REQUEST_ID_CONFLICT":
                first = found.setdefault(name, receipt)
            else:
                continue
            assert receipt.value() == first.value(), f"{name}: two final receipts"
        return {name: receipt for (name, _), receipt in unknown.items()} | found

    def final(self, request_id: str, model_id: str = "m") -> Receipt:
        """Return the one final receipt of a request."""
        return self.finals(model_id)[request_id]

    def answer(self, request_id: str, model_id: str = "m") -> Receipt:
        """Run until everything is decided; return the one final receipt of a request."""
        self.drain()
        return self.final(request_id, model_id)

    def statuses(self, request_id: str, model_id: str = "m") -> list[str]:
        """Return the statuses of a request's receipts, in order."""
        return [r.status for r in self.receipts(model_id) if r.request_id == request_id]

    def versions(self, model_id: str = "m") -> list[Version]:
        """Return the published versions of a model, without byte-identical repeats."""
        values = [r.value for r in self.records(topics.VERSIONS) if r.key == model_id.encode()]
        return [Version.model_validate_json(value or b"") for value in dict.fromkeys(values)]

    def newest_version(self, model_id: str = "m") -> Version:
        """Return the last record of the model's partition of versions; it must be the model's."""
        reader = self.log.reader()
        try:
            partition = reader.partition_for(topics.VERSIONS, model_id.encode())
            [record], _ = reader.read(partition, reader.bounds(partition).end - 1, 1.0, 1)
        finally:
            reader.close()
        assert record.key == model_id.encode()
        return Version.model_validate_json(record.value or b"")

    def parameters(self, model_id: str = "m") -> Parameters:
        """Return the last parameters event of a model."""
        found = [r.value for r in self.records(topics.MODELS) if r.key == model_id.encode()]
        return Parameters.model_validate_json(found[-1] or b"")

    def dead_letters(self) -> list[Record]:
        """Return what lies in dead letters."""
        return self.records(topics.DEAD_LETTERS)

    def raw(self) -> redis.Redis:
        """Return a client for looking behind the store."""
        return self._raw


LogKind = Literal["memory", "streams", "kafka"]
MakePlatform = Callable[..., Platform]
