"""``lethe audit``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from lethe.consumers.audit.auditor import Audit, audit_bundle, audit_model
from lethe.consumers.audit.checkpoint import parse_since, read_checkpoint, write_checkpoint
from lethe.consumers.audit.checks import Seen
from lethe.consumers.audit.finding import Finding, Result
from lethe.consumers.audit.refit import Holding, read_ids
from lethe.consumers.cli.options import global_options, trust_option
from lethe.consumers.cli.output import Output, counted, prepare, wrapped
from lethe.consumers.cli.seals import seals_of_auditor
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.service.signing_keys import keys_of_auditor, trusted_file

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(short_help="Check a model's whole published history.")
@click.argument("model", required=False)
@click.option("--bundle", type=_FILE, metavar="FILE", help="Check an exported file; no servers.")
@click.option("--export", type=_FILE, metavar="FILE", help="Write such a file as well.")
@trust_option
@click.option(
    "--checkpoint", type=_FILE, metavar="FILE",
    help="Demand that history goes on from what this file remembers, and remember it anew.",
)  # fmt: skip
@click.option("--since", metavar="VERSION:DIGEST", help="Demand that this version is there.")
@click.option("--strict", is_flag=True, help="Exit code 1 also if something was not checked.")
@click.option("--no-bound", is_flag=True, help="Do not retrain to check the bound.")
@click.option("--data", type=_FILE, metavar="FILE", help="With --bundle: the training file.")
@click.option("--id", "id_column", metavar="COLUMN", help="Its column of row ids.")
@click.option(
    "--target", "targets", multiple=True, metavar="COLUMN",
    help="Its target columns. Default: those of the parameters.",
)  # fmt: skip
@click.option("--deleted", type=_FILE, metavar="FILE", help="Ids of its deleted rows, one a line.")
@click.option("--ridge", type=float, metavar="R", help="Default: as the bundle says.")
@global_options
@click.pass_context
def audit(ctx: click.Context, /, **given: Any) -> int:
    """Replay the published history of MODEL and check it; each check is OK, FAILED or NOT CHECKED.

    Records, the chain of versions, signatures by trusted keys, the newest parameters, receipts
    against versions, rows deleted, the Merkle log of receipts; commits, as far as the log has them,
    and with the seal key what they seal; then the state in the store against all that, and theta
    against retraining on the live rows. Exit code 1 if a check failed.

    With --bundle it needs no server: what an auditor can do elsewhere, with a file from --export.
    With the training file and the list of deleted ids it then retrains as well.

    \b
    Examples:
      lethe audit churn --export churn.bundle
      lethe audit --bundle churn.bundle --trust lethe.pub --checkpoint churn.seen
      lethe audit --bundle churn.bundle --data rows.parquet --id customer --deleted gone.txt
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    _check_usage(given)
    trusted = trusted_file(settings) if given["bundle"] is not None else keys_of_auditor(settings)
    if given["bundle"] is not None:
        with out.progress() as report:
            found = audit_bundle(
                given["bundle"],
                model_id=given["model"],
                trusted=trusted,
                remembered=_remembered(given),
                holding=_holding(given),
                progress=report,
            )
    else:
        with open_runtime(settings) as runtime, out.progress() as report:
            reader, store = runtime.log.reader(), runtime.store()
            try:
                found = audit_model(
                    store,
                    reader,
                    given["model"],
                    trusted=trusted,
                    seals=seals_of_auditor(runtime, store),
                    remembered=_remembered(given),
                    export=given["export"],
                    bound=not given["no_bound"],
                    log_alone=settings.redis_url is None and runtime.log.name == "kafka",
                    progress=report,
                )
            finally:
                reader.close()
    return _answer(out, found, given)


def _check_usage(given: dict[str, Any]) -> None:
    offline = given["bundle"] is not None
    if not offline and given["model"] is None:
        raise click.UsageError("give a MODEL, or --bundle FILE")
    if offline and given["export"] is not None:
        raise click.UsageError("--export reads the servers; --bundle reads none")
    if given["since"] is not None and given["checkpoint"] is not None:
        raise click.UsageError("give --since or --checkpoint, one of the two")
    rows = [given["data"], given["id_column"], given["deleted"], given["ridge"]]
    if not offline and (any(value is not None for value in rows) or given["targets"]):
        raise click.UsageError("--data, --id, --target, --deleted and --ridge go with --bundle")
    if given["data"] is not None and given["id_column"] is None:
        raise click.UsageError("--data needs --id, the column of row ids")
    if given["data"] is None and (any(value is not None for value in rows) or given["targets"]):
        raise click.UsageError("--id, --target, --deleted and --ridge go with --data")


def _remembered(given: dict[str, Any]) -> Callable[[str], Seen | None]:
    def remembered(model_id: str) -> Seen | None:
        if given["since"] is not None:
            return parse_since(given["since"])
        path = given["checkpoint"]
        return None if path is None else read_checkpoint(path, model_id)

    return remembered


def _holding(given: dict[str, Any]) -> Holding | None:
    if given["data"] is None or given["no_bound"]:
        return None
    return Holding(
        given["data"],
        given["id_column"],
        given["targets"],
        frozenset() if given["deleted"] is None else read_ids(given["deleted"]),
        given["ridge"],
    )


# -- what is printed ----------------------------------------------------------------------------


def _answer(out: Output, found: Audit, given: dict[str, Any]) -> int:
    failed, passed = found.count(Result.FAILED), found.count(Result.NOT_CHECKED)
    if given["checkpoint"] is not None and not failed:
        write_checkpoint(given["checkpoint"], found.history)
    tip = found.history.tip
    head = None if tip is None else tip.head
    out.document(
        {
            "model_id": found.history.model_id,
            "ok": failed == 0,
            "failed": failed,
            "not_checked": passed,
            "version": None if tip is None else tip.event.version,
            "digest": None if tip is None else tip.event.digest,
            "receipt_log": None if head is None else {"size": head.size, "root": head.root.hex()},
            "checks": [
                {"check": one.check, "result": one.result.value, "detail": one.detail}
                for one in found.findings
            ],
            "exported_records": found.exported,
        }
    )
    for line in table_of(found.findings):
        out.line(line)
    if found.exported is not None:
        out.line(f"{given['export']}: {counted(found.exported, 'record')} written")
    if tip is not None:
        out.line(f"newest: {tip.event.version}:{tip.event.digest}")
    verdict = "REFUSED" if failed else "no check failed"
    rest = f", {passed} not checked" if passed else ""
    out.line(f"{verdict}: {counted(len(found.findings), 'check')}, {failed} failed{rest}")
    return 1 if failed or (given["strict"] and passed) else 0


def table_of(findings: Sequence[Finding]) -> list[str]:
    """Return findings as lines of a table whose last column is wrapped."""
    first = max(len(one.check) for one in findings)
    second = max(len(result.value) for result in Result)
    return [
        line
        for one in findings
        for line in wrapped(one.detail, f"{one.check:<{first}}  {one.result.value:<{second}}  ")
    ]
