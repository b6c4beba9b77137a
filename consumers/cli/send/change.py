"""``lethe insert`` and ``lethe correct``: rows of a file, sent as requests that change a model."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from lethe.consumers.cli.send.receipts import receipts_of, sentence
from lethe.consumers.cli.send.unplaced import unplaced
from lethe.consumers.cli.terminal.options import global_options, sign_option, wait_option
from lethe.consumers.cli.terminal.output import Output, counted, prepare
from lethe.consumers.commits.packed_receipt import unpack
from lethe.consumers.contract import codes, topics
from lethe.consumers.contract.events import MAX_REQUEST_BYTES, MAX_ROWS, ChangedRow, RowsChanged
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.requests import in_parts
from lethe.consumers.registration.table.file import check_readable
from lethe.consumers.registration.table.reader import Columns, GivenRows, read_given_rows
from lethe.consumers.service.client import Answers, Client, NoReceipt, newest_answers
from lethe.consumers.service.configuration.signing_keys import request_signer
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.service.telemetry.progress import Progress
from lethe.engine.errors import InvalidRequest
from lethe.engine.fit.objective import Array
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.lookup import read_summary
from lethe.engine.store.store import ModelStore

_PAUSE_SECONDS = 1.0
_ROWS_BYTES = MAX_REQUEST_BYTES - 1024  # of the rows in a request
_NAMED = 20  # rows that are named on a screen
_SHARE = 4  # of the rows that a generation takes: one request leaves room for others
Op = Literal["insert", "correct"]


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one request; ``number`` counts the requests of a file."""

    number: int
    rows: tuple[ChangedRow, ...]


def _options(command: Any) -> Any:
    options: list[Callable[[Any], Any]] = [
        click.argument("model"),
        click.option(
            "--data", required=True, type=click.Path(path_type=Path), metavar="FILE",
            help="The rows: Parquet or CSV, with the model's features and targets as columns.",
        ),
        click.option("--id", "id_column", required=True, metavar="COL", help="Column of row ids."),
        click.option(
            "--again", is_flag=True,
            help="Send rows again even if their request was answered before, for example to "
            "change them back to the values of an earlier file.",
        ),
        click.option(
            "--strict", is_flag=True,
            help="Send nothing if the model has no place for a row: for a category, or a missing "
            "number, that no row had at registration. Otherwise the other rows are sent.",
        ),
        sign_option,
        wait_option("the receipts, and for any refresh that the rows depend on", 300),
        global_options,
        click.pass_context,
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command(short_help="Add rows to a model.")
@click.option(
    "--subject", metavar="COL",
    help="Column that names the subject of a row; needed if the model was registered with one.",
)  # fmt: skip
@_options
def insert(ctx: click.Context, /, **options: Any) -> int:
    """Add the rows of a file to MODEL, as if they had been there when it was registered.

    The file is split into requests, each of which is applied whole or rejected. The same rows sent
    again are the same requests: they are answered again, but not executed again, unless they were
    rejected (or --again is given). Exit code 1: a request was rejected, a row was left out, or no
    receipt came in time.

    \b
    Example:
      lethe insert churn --data new.csv --id customer --subject household --wait
    """  # noqa: D301 - click looks for the character
    return _change(ctx, "insert", options)


@click.command(short_help="Replace rows of a model by corrected ones.")
@_options
def correct(ctx: click.Context, /, **options: Any) -> int:
    """Replace live rows of MODEL by those of a file with the same ids.

    The model is then as if it had been registered with the corrected rows. The file is split into
    requests, each of which is applied whole or rejected. The same rows sent again are the same
    requests: they are answered again, but not executed again, unless they were rejected (or --again
    is given). Exit code 1: a request was rejected, a row was left out, or no receipt came in time.

    \b
    Example:
      lethe correct churn --data corrected.csv --id customer --wait
    """  # noqa: D301 - click looks for the character
    return _change(ctx, "correct", options)


def _change(ctx: click.Context, op: Op, options: dict[str, Any]) -> int:
    settings, out = prepare(ctx)
    signer = request_signer(settings)
    path: Path = options["data"]
    check_readable(path)
    with (
        open_runtime(settings) as runtime,
        out.progress() as report,
        Client(runtime.log, signer, runtime.trusted()) as client,
    ):
        store = runtime.store()
        meta = read_summary(store.client, options["model"]).meta
        config = meta.config
        data, aside = _placed(_read(path, config, options, report), config, options)
        sender = _Sender(client, store, meta, op, again=options["again"])
        parts = list(_parts(data, config, op))
        if options["wait"] is None:
            sender.answers()  # fails before anything is sent if a topic is not there
            ids = [sender.send(part) for part in parts]
            out.document({"model_id": config.model_id, "op": op, "request_ids": ids})
            rows = counted(len(data.ids), "row")
            out.line(f"{rows} sent in {counted(len(ids), 'request')}")
            _say_repeated(out, sender)
            return int(aside)
        return _wait(out, sender, parts, options["wait"], report) or int(aside)


# -- the requests -----------------------------------------------------------------------------


def _read(path: Path, config: ModelConfig, options: dict[str, Any], report: Progress) -> GivenRows:
    """Read the rows of a file, with the columns of the model.

    Raises
    ------
    InvalidData, InvalidRequest
        The file cannot be used, or the model does not take rows.
    """
    if config.certify is not None:
        raise InvalidRequest(
            f"model {config.model_id!r} is certified: its rows cannot be inserted or corrected. "
            "Nothing was sent"
        )
    has_subjects = config.subject_namespace is not None
    if has_subjects and "subject" in options and options["subject"] is None:
        raise InvalidRequest(
            f"model {config.model_id!r} was registered with subjects: name the column of subjects "
            "with --subject; otherwise no erasure would delete these rows. Nothing was sent"
        )
    columns = Columns(
        id=options["id_column"],
        targets=config.target_names,
        features=None if config.preprocess else config.feature_names,
        subject=options.get("subject"),
        classes=config.class_names,
    )
    return read_given_rows(path, columns, config, report)


def _placed(
    data: GivenRows, config: ModelConfig, options: dict[str, Any]
) -> tuple[GivenRows, bool]:
    """Set rows aside that the model has no place for, and name them; return whether there are any.

    Raises
    ------
    InvalidRequest
        There are some and --strict was given, or there is no other row.
    """
    why = unplaced(data, config)
    if not why:
        return data, False
    listed = list(why.values())
    if options["strict"] or len(why) == len(data.ids):
        more = "" if len(why) == 1 else f" ({counted(len(why), 'row')} in all)"
        strict = " (--strict)" if options["strict"] else ""
        raise InvalidRequest(f"{listed[0]}{more}; nothing was sent{strict}")
    for line in listed[:_NAMED]:
        click.echo(f"lethe: {line}", err=True)
    click.echo(
        f"lethe: {counted(len(why), 'row')} of {options['data']} left out; the others are sent",
        err=True,
    )
    return data.take([i for i in range(len(data.ids)) if i not in why]), True


def _parts(data: GivenRows, config: ModelConfig, op: Op) -> Iterator[_Part]:
    """Split rows into requests that the log takes, and that one generation takes several of."""
    most = config.hard_rows // _SHARE
    most = max(1, min(MAX_ROWS, most if op == "insert" else most // 2))
    parts = in_parts(_rows(data, config), _bytes_of, most, _ROWS_BYTES)
    return (_Part(number, rows) for number, rows in enumerate(parts))


def _rows(data: GivenRows, config: ModelConfig) -> Iterator[ChangedRow]:
    owner = {row: subject for subject, rows in data.subjects.items() for row in rows}
    for i, row_id in enumerate(data.ids):
        yield ChangedRow(
            id=row_id,
            values=data.values[i],
            target=_target(data.y[i], config),
            subject=owner.get(row_id),
        )


def _bytes_of(row: ChangedRow) -> int:
    length = len(row.model_dump_json(exclude_none=True)) + 1
    if length > _ROWS_BYTES:
        raise InvalidRequest(f"row {row.id!r} has {length} bytes, more than a request takes")
    return length


def _target(y: Array, config: ModelConfig) -> str | tuple[float, ...]:
    """Return a row's target as a request has it: a class by its name if it has one."""
    if not config.class_names:
        return tuple(map(float, y))
    return config.class_names[int(y[0]) if len(y) == 1 else int(np.argmax(y))]


class _Sender:
    """Sends the requests of one file, and finds their receipts."""

    def __init__(
        self, client: Client, store: ModelStore, meta: Meta, op: Op, *, again: bool
    ) -> None:
        self.model_id = meta.config.model_id
        self.repeated = 0
        self._client, self._store, self._op = client, store, op
        self._registration, self._again = meta.dataset_key, again

    def answers(self) -> Answers:
        """Return where receipts will come."""
        return self._client.answers(topics.ROW_CHANGES, topics.RECEIPTS, self.model_id)

    def send(self, part: _Part) -> str:
        """Send a request, and return its id: the same rows have the same, unless it was rejected.

        A rejected one changed nothing, and its reason may have gone: these rows are asked for under
        the next id. A model that is registered anew has forgotten what came before.
        """
        content = hashlib.sha256(f"{self.model_id}\n{self._registration}\n{self._op}".encode())
        for row in part.rows:
            content.update(b"\n" + row.model_dump_json(exclude_none=True).encode())
        for attempt in itertools.count():
            each = content.copy()
            each.update(b"\n%d" % attempt)
            request_id = each.hexdigest()[:32]
            answer = self._answer(request_id)
            if answer is None or not (answer.status == "REJECTED" or self._again):
                break
        self.repeated += answer is not None
        request = RowsChanged(
            request_id=request_id, model_id=self.model_id, op=self._op, rows=part.rows
        )
        self._client.send([request])
        return request_id

    def _answer(self, request_id: str) -> Receipt | None:
        stored = self._store.receipt(self.model_id, request_id)
        return None if stored is None else unpack(stored, self.model_id, request_id).receipt


# -- the receipts -----------------------------------------------------------------------------


def _wait(
    out: Output, sender: _Sender, parts: Sequence[_Part], seconds: float, report: Progress
) -> int:
    """Send one request after the other and wait for each receipt; return the exit code."""
    deadline = time.monotonic() + seconds
    receipts: list[Receipt] = []
    for part in parts:
        report("waiting for receipts", part.number, len(parts))
        receipt = _answered(sender, part, deadline)
        while receipt.code in codes.TEMPORARY and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
            receipt = _answered(sender, part, deadline)
        receipts.append(receipt)
    out.document([receipt.model_dump(mode="json") for receipt in receipts])
    for receipt in receipts:
        out.line(sentence(receipt))
    _say_repeated(out, sender)
    return 1 if any(receipt.status == "REJECTED" for receipt in receipts) else 0


def _say_repeated(out: Output, sender: _Sender) -> None:
    if sender.repeated:
        requests = counted(sender.repeated, "request")
        out.line(
            f"answered before, and not executed again: {requests}; --again sends the rows anew"
        )


def _answered(sender: _Sender, part: _Part, deadline: float) -> Receipt:
    """Send a request and return its receipt.

    Raises
    ------
    NoReceipt
        None came in time.
    """
    answers = sender.answers()
    request_id = sender.send(part)
    batches = answers.until(deadline)
    found = newest_answers(batches, receipts_of(sender.model_id), [request_id])
    if request_id in found:
        return found[request_id]
    raise NoReceipt(
        f"no receipt of request {request_id} (part {part.number + 1} of the file) in time; it is "
        "in the log and will be processed once a worker runs (`lethe work`). The same file sent "
        "again continues where this ended"
    )
