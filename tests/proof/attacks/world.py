"""The small world that is attacked: two models of two namespaces, keys, workers, and requests.

It is built once, and put back to how it was before each attack: topics and store alike. While an
attack is under way, requests of people who have a right to send them are, too; `World.owed` says
what each must come to.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi.testclient import TestClient

from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SUBJECT_ERASURE_REQUESTED
from lethe.consumers.contract.events import DELETION_REQUESTED, ROWS_CHANGED
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.contract.signed_log import SignedLog
from lethe.consumers.deletions.authenticate import RequestKeys, parse_request_keys
from lethe.consumers.log.base import Appended, Headers, Message, Record
from lethe.consumers.registration.register import Registrar
from lethe.consumers.server.app import create_app
from lethe.consumers.server.console.install import Console, install
from lethe.consumers.server.guard import Access
from lethe.consumers.server.services import Services
from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.service.telemetry.logs import configure_logging
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.consumers.workers.refresh_worker import RefreshWorker
from lethe.engine.errors import LetheError
from lethe.engine.store.layout.config import LimitsRecord
from tests.proof.attacks.attack import Trace
from tests.proof.live_rows import Row, changed, rows_of
from tests.support.families import Data
from tests.support.http_server import Served, served, services_of
from tests.support.memory_log import MemoryLog, _Partition
from tests.support.platform import SECRET, Inline, Platform, config_of, training_data
from tests.support.stores import Backup, backup, restore

LINE, LOGIT = "line", "logit"
MODELS = (LINE, LOGIT)
NAMESPACES = {LINE: "", LOGIT: "crm"}
KINDS = {LINE: "linear", LOGIT: "logistic"}
N, P = 90, 4

SIGNER, STRANGER, DESK, SCOPED = (
    Signer(Ed25519PrivateKey.from_private_bytes(bytes([number] * 32))) for number in range(1, 5)
)
"""The workers' key; one that nobody trusts; a request key for all models, and one for `LINE`."""
TRUSTED = TrustedKeys.of([SIGNER.public])

QUIET_SECONDS = 1.2
_TURNS = 2_000


def data_of_kind(kind: str) -> Data:
    """Return the rows of a model: row-i belongs to subject-(i // 3), of its own namespace."""
    draw = np.random.default_rng(len(kind))
    X = draw.standard_normal((N, P))
    signal = X @ np.array([1.0, -1.0, 0.5, 0.0])
    if kind == "linear":
        y = signal + 0.3 * draw.standard_normal(N)
    else:
        y = (draw.random(N) < 1 / (1 + np.exp(-signal))).astype(np.float64)
    return Data("small", kind, X, y[:, None], np.ones(N), 1.0, True, np.arange(0))


@dataclass(frozen=True, slots=True)
class Owed:
    """What a request must come to."""

    status: str
    rows: int = 0
    code: str | None = None


@dataclass
class Truth:
    """What must be true, by what was rightfully asked for alone.

    Attributes
    ----------
    live, gone
        By model, the rows that must be live, and the ids of those deleted.
    owed
        By model and request, its final receipt.
    erasures
        By erasure id, how many rows its combined receipt counts.
    """

    live: dict[str, dict[str, Row]] = field(default_factory=dict)
    gone: dict[str, set[str]] = field(default_factory=dict)
    owed: dict[tuple[str, str], Owed] = field(default_factory=dict)
    erasures: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Truth:
        return Truth(
            {model: dict(rows) for model, rows in self.live.items()},
            {model: set(rows) for model, rows in self.gone.items()},
            dict(self.owed),
            dict(self.erasures),
        )


Topics = Mapping[str, Sequence[tuple[Any, int, Sequence[Record]]]]


class World:
    """Two models, whoever works on them, and whoever asks rightfully.

    Parameters
    ----------
    url
        Of an empty Redis.
    folder
        For files of its own.
    signed
        Whether requests count only if a key on the list signed them.
    """

    def __init__(self, url: str, folder: Path, *, signed: bool) -> None:
        self.signed = signed
        self.folder = folder
        self.url = url
        self.log = MemoryLog()
        self.platform = Platform(SignedLog(self.log, lambda: SIGNER), url)
        self.store = self.platform.store
        self.client: Any = self.platform.raw()
        self.forger = self.log.producer()
        self.truth = Truth()
        self.answers: dict[tuple[str, str], bytes] = {}
        self.said = io.StringIO()
        self._count = itertools.count()
        self._workers = ExitStack()
        self._attack = ExitStack()
        self.stopped = ""
        self.deletion: DeletionWorker | None = None
        self.erasure: ErasureWorker | None = None
        self.metrics = Metrics()
        self._make_history()
        self._kept: tuple[Topics, Backup, Truth] = self._keep()

    # -- as it was ------------------------------------------------------------------------------

    def _make_history(self) -> None:
        """Register the models, and let each have had a deletion, an insert and an erasure."""
        for model in MODELS:
            self.register(model)
            self.truth.live[model] = rows_of(self.platform.data[model])
            self.truth.gone[model] = set()
        self.delete(LINE, "row-0", request_id="old-line")
        self.delete(LOGIT, "row-1", request_id="old-logit")
        self.insert(LINE, "new-0", subject="person-0", request_id="old-insert")
        self.erase("subject-1", "old-erasure", {LINE: ["row-3", "row-4", "row-5"]})
        self.work()
        self.stop_workers()

    def _keep(self) -> tuple[Topics, Backup, Truth]:
        kept = {
            name: [(one.identity, one.begin, tuple(one.records)) for one in partitions]
            for name, partitions in self.log._topics.items()
        }
        return kept, backup(self.platform), self.truth.copy()

    @property
    def kept_store(self) -> Backup:
        """A backup of the store, of before the first attack."""
        return self._kept[1]

    def reset(self) -> None:
        """Put topics, store and truth back to how they were before the first attack."""
        self.stop_workers()
        kept, stored, truth = self._kept
        self.log._topics = {
            name: [_Partition(identity, begin, list(records)) for identity, begin, records in parts]
            for name, parts in kept.items()
        }
        self.log._groups.clear()
        self.log.hook = lambda _call: None
        self.client.flushdb()
        restore(self.platform, stored)
        self.truth = truth.copy()
        self.stopped = ""
        self.said = io.StringIO()

    @contextmanager
    def attacked(self) -> Iterator[None]:
        """Have the world as it was; what the block opens ends with it, and what is said is kept."""
        self.reset()
        with redirect_stdout(self.said), redirect_stderr(self.said):
            configure_logging("DEBUG")
            try:
                with self._attack:
                    yield
            finally:
                self.stop_workers()
                logging.getLogger().handlers.clear()

    def close(self) -> None:
        """End everything."""
        self.stop_workers()
        self.platform.close()

    # -- workers --------------------------------------------------------------------------------

    @property
    def request_keys(self) -> RequestKeys | None:
        """Whose requests count."""
        if not self.signed:
            return None
        return parse_request_keys(f"{DESK.public_text}\n{SCOPED.public_text} {LINE}\n", "keys")

    def start_workers(self) -> None:
        """Start a worker of each kind, if none runs."""
        if self.deletion is not None:
            return
        log, seals = self.platform.log, self.platform.seals
        self.metrics = Metrics()
        keys = self.request_keys
        if keys is not None:
            keys = keys.with_unrestricted(TRUSTED)
        options: dict[str, Any] = {"request_keys": keys, "trusted": TRUSTED}
        stores = [self.platform.new_store() for _ in range(3)]
        self.deletion = DeletionWorker(
            log, stores[0], seals, signer=lambda: SIGNER, metrics=self.metrics, **options
        )
        self.refresh = RefreshWorker(log, stores[1], computing=Inline())
        self.erasure = ErasureWorker(
            log, stores[2], seals, signer=lambda: SIGNER, sweep_seconds=0.0, **options
        )
        for close in (*(store.close for store in stores), self.deletion.close):
            self._workers.callback(close)
        self._workers.callback(self.refresh.close)
        self._workers.callback(self.erasure.close)

    def stop_workers(self) -> None:
        """Stop them in order."""
        self._workers.close()
        self.deletion = self.erasure = None

    def work(self) -> None:
        """Let all workers work until nothing is left to do, or nothing has been done for long."""
        try:
            self._work()
        except LetheError as error:  # a process ends with it; a person has to act
            self.stopped = str(error)
            self.stop_workers()

    def _work(self) -> None:
        self.start_workers()
        assert self.deletion is not None
        assert self.erasure is not None
        quiet = time.monotonic()
        for _ in range(_TURNS):
            done = sum(self._turn(one) for one in (self.deletion, self.refresh, self.erasure))
            if done:
                quiet = time.monotonic()
                continue
            idle = self.deletion.idle() and self.erasure.idle() and self.refresh.idle()
            if idle or time.monotonic() - quiet > QUIET_SECONDS:
                return
        raise TimeoutError(f"the workers were not done after {_TURNS} turns")

    @staticmethod
    def _turn(worker: DeletionWorker | RefreshWorker | ErasureWorker) -> int:
        try:
            return worker.run_once(0.001)
        except TRANSIENT:
            worker.recover()
            return 0

    # -- what is rightfully asked for -----------------------------------------------------------

    def registrar(self, **options: Any) -> Registrar:
        """Return what registers models as a person with all keys does."""
        return self.platform.registrar(signer=lambda: SIGNER, trusted=TRUSTED, **options)

    def register(self, model: str, *, replace_model: bool = False, **options: Any) -> None:
        """Register a model, or replace it."""
        data = data_of_kind(KINDS[model])
        config = config_of(data, model, "pru", 10.0, LimitsRecord())
        config = config.model_copy(update={"subject_namespace": NAMESPACES[model]})
        self.registrar().register(
            config, training_data(data), replace_model=replace_model, allow_change=True, **options
        )
        self.platform.data[model] = data

    def name(self) -> str:
        """Return a new id of a request."""
        return f"mine-{next(self._count)}"

    def ask(self, topic: str, key: str, event_type: str, body: Mapping[str, Any]) -> Message:
        """Send a request, signed by the desk; return it as it was sent."""
        value = json.dumps(body).encode()
        message = Message(topic, key.encode(), value, DESK.signed(event_type, value, ()))
        self.forger.publish([message])
        return message

    def delete(self, model: str, *rows: str, request_id: str = "") -> Message:
        """Ask for a deletion of live rows."""
        request_id = request_id or self.name()
        for row in rows:
            del self.truth.live[model][row]
        self.truth.gone[model] |= set(rows)
        self.truth.owed[model, request_id] = Owed("APPLIED", len(rows))
        body = {"request_id": request_id, "model_id": model, "row_ids": rows}
        return self.ask(topics.DELETIONS, model, DELETION_REQUESTED, body)

    def insert(self, model: str, row: str, *, subject: str, request_id: str = "") -> Message:
        """Ask for an insert."""
        request_id = request_id or self.name()
        given = {"id": row, "values": [0.1, 0.2, -0.1, 0.3], "target": 1, "subject": subject}
        self.truth.live[model][row] = changed(Row((), (), subject=subject), given)
        self.truth.owed[model, request_id] = Owed("APPLIED", 1)
        body = {"request_id": request_id, "model_id": model, "op": "insert", "rows": [given]}
        return self.ask(topics.ROW_CHANGES, model, ROWS_CHANGED, body)

    def erase(self, subject: str, erasure_id: str, rows: Mapping[str, Sequence[str]]) -> Message:
        """Ask for the erasure of a person without namespace, who has these rows."""
        for model, names in rows.items():
            for row in names:
                del self.truth.live[model][row]
            self.truth.gone[model] |= set(names)
        self.truth.erasures[erasure_id] = sum(map(len, rows.values()))
        body = {"erasure_id": erasure_id, "subject_id": subject}
        return self.ask(topics.ERASURES, subject, SUBJECT_ERASURE_REQUESTED, body)

    def in_flight(self) -> None:
        """Send what is under way when an attack begins."""
        self.delete(LINE, "row-10", "row-11", request_id="before-line")
        self.delete(LOGIT, "row-12", request_id="before-logit")
        self.insert(LINE, "new-1", subject="person-1", request_id="before-insert")
        self.erase("subject-8", "before-erasure", {LINE: ["row-24", "row-25", "row-26"]})

    def afterwards(self) -> None:
        """Send what comes after an attack."""
        self.delete(LINE, "row-13", request_id="after-line")
        self.delete(LOGIT, "row-14", "row-15", request_id="after-logit")

    # -- what attackers use ---------------------------------------------------------------------

    def forge(
        self,
        topic: str,
        key: str | bytes | None,
        value: Any,
        headers: Headers = (),
        *,
        partition: int | None = None,
    ) -> Trace:
        """Write to a topic past all of ours; return the trace of it."""
        data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        name = key.encode() if isinstance(key, str) else key
        message = Message(topic, name or b"", data, headers, partition=partition)
        [place] = self.forger.begin([message]).wait()
        return Trace(f"{topic} has the record", lambda: self.at(place).value, data)

    def at(self, place: Appended) -> Record:
        """Return the record at a place."""
        assert place.offset is not None
        stored = self.log.find(place.partition, place.offset)
        return stored.records[place.offset - stored.begin]

    def letters(self, code: str, count: int = 1) -> Trace:
        """Trace: so many of the attack's records became dead letters with a code."""

        def found() -> int:
            letters = [dict(one.headers) for one in self.platform.dead_letters()]
            return sum(one.get("lethe-error-code") == code.encode() for one in letters)

        return Trace(f"dead letters with {code}", found, count)

    def receipt(self, model: str, request_id: str, status: str, code: str | None = None) -> Trace:
        """Trace: a request of the attacker's was answered so, by a worker."""

        def found() -> list[tuple[str, str | None]]:
            receipts = self.platform.receipts(model)
            mine = [one for one in receipts if one.request_id == request_id and one.final]
            return sorted({(one.status, one.code) for one in mine}, key=str)

        return Trace(f"receipt of {request_id}", found, [(status, code)])

    def conflict(self, model: str, request_id: str) -> Trace:
        """Trace: the attacker's request was refused, because its id stands for another."""

        def found() -> set[str | None]:
            receipts = self.platform.receipts(model)
            return {one.code for one in receipts if one.request_id == request_id} - {None}

        return Trace(f"a conflict of {request_id}", found, {"REQUEST_ID_CONFLICT"})

    def services(self) -> Services:
        """Open what an HTTP server uses, for the time of the attack."""
        folder = self.folder / f"served-{next(self._count)}"
        folder.mkdir()
        made = services_of(self.platform, folder, TRUSTED, self.platform.seals)
        return self._attack.enter_context(made)

    def http(self, access: Access | None = None, services: Services | None = None) -> TestClient:
        """Return a client of an HTTP server with its console, for the time of the attack."""
        services = services or self.services()
        app = create_app(services, access)
        published, keys = services.published, None if access is None else access.keys
        install(app, Console(services, published.file, published.follower, keys))
        client = TestClient(app, raise_server_exceptions=False)
        return self._attack.enter_context(client)

    def port(self, access: Access | None = None) -> Served:
        """Serve HTTP on a port of its own, for the time of the attack."""
        return self._attack.enter_context(served(self.services(), access))

    def secrets(self) -> list[str]:
        """Return what must never be printed."""
        raw = [SECRET, *(bytes([number] * 32) for number in range(1, 5))]
        return [form for one in raw for form in (base64.b64encode(one).decode(), one.hex())]
