"""``lethe reconcile``: asks for the deletion of rows that a table no longer has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lethe.consumers.cdc.naming import joined
from lethe.consumers.cdc.reconcile import deletions_of, missing_rows
from lethe.consumers.cli.terminal.options import global_options, sign_option
from lethe.consumers.cli.terminal.output import Output, agreed, counted, prepare
from lethe.consumers.registration.table.reader import read_ids
from lethe.consumers.service.client import Client
from lethe.consumers.service.configuration.signing_keys import request_signer
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.engine.errors import InvalidData
from lethe.engine.store.lookup import read_summary
from lethe.engine.store.membership import every_live_row

_MAX_FRACTION = 0.1
"""Of a model's rows. Deletions that capture missed are few; an export that was cut short, or of
another table, lacks most rows."""


@click.command(short_help="Delete the rows that a table no longer has.")
@click.argument("model")
@click.option(
    "--data", required=True, type=click.Path(path_type=Path), metavar="FILE",
    help="The whole table as it is now: Parquet or CSV. Only the id is read.",
)  # fmt: skip
@click.option(
    "--id", "id_columns", required=True, multiple=True, metavar="COL",
    help="Column of row ids; several, in the order of the mapping, for a composite key.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say how many rows are missing, and send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--max-fraction", type=click.FloatRange(0, 1), default=_MAX_FRACTION, metavar="F",
    show_default=True,
    help="Send nothing if more than this fraction of the model's live rows is missing.",
)  # fmt: skip
@sign_option
@global_options
@click.pass_context
def reconcile(ctx: click.Context, /, **options: Any) -> int:
    """Ask for the deletion of MODEL's live rows that a whole table no longer has.

    For deletions that change data capture missed: made while a replication slot was lost, by
    TRUNCATE, or in a table that nothing captures. The table must be newer than the model's newest
    rows: rows that were inserted after its export count as missing. It says how many are missing
    and asks. Run again, it sends the same requests, which have no further effect.

    \b
    Example:
      lethe reconcile churn --data customers.parquet --id customer
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    path, model = options["data"], options["model"]
    table = frozenset(joined(values) for values in read_ids(path, options["id_columns"]))
    if not table:
        raise InvalidData(f"{path}: the table has no rows; to end a model: lethe unregister")
    with open_runtime(settings) as runtime:
        store = runtime.store()
        summary = read_summary(store.client, model)
        live = every_live_row(store.client, summary.model_id, store.row_keys)
        missing = missing_rows(live, table)
        report: dict[str, Any] = {
            "model_id": model,
            "rows_live": len(live),
            "rows_missing": len(missing),
            "rows_unknown": len(table - live),
            "request_ids": [],
        }
        found = f"{len(missing)} of {counted(len(live), 'live row')} of {model} are not in {path}"
        _check_fraction(found, len(missing), len(live), options["max_fraction"])
        wanted = bool(missing) and not options["dry_run"]
        confirmed = wanted and agreed(f"{found}. Request their deletion?", yes=options["yes"])
        if confirmed:
            report["request_ids"] = _send(runtime, model, missing)
    out.document(report)
    _say(out, found, report)
    return 1 if wanted and not confirmed else 0


def _check_fraction(found: str, missing: int, live: int, limit: float) -> None:
    """Refuse a table that lacks too much to be the whole table."""
    if missing > limit * live:
        raise InvalidData(
            f"{found}, more than {limit:g} of them: is it the whole table, and the column of the "
            "model's ids? If it is, raise --max-fraction. Nothing was sent"
        )


def _send(runtime: Runtime, model: str, missing: list[str]) -> list[str]:
    """Send the requests, and return their ids once they are acknowledged."""
    requests = list(deletions_of(model, missing))
    with Client(runtime.log, request_signer(runtime.settings)) as client:
        for request in requests:  # one by one: each may be 1 MiB
            client.send([request])
    return [request.request_id for request in requests]


def _say(out: Output, found: str, report: dict[str, Any]) -> None:
    if report["rows_unknown"]:
        out.line(f"{counted(report['rows_unknown'], 'row')} of the table are not in the model")
    sent = report["request_ids"]
    if sent:
        rows = counted(report["rows_missing"], "row")
        out.line(f"deletion of {rows} requested in {counted(len(sent), 'request')}")
    else:
        out.line(f"{found}; nothing was sent")
