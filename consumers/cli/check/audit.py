"""``lethe audit``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from lethe.consumers.audit.auditor import Audit, ErasureAudit, audit_bundle, audit_model
from lethe.consumers.audit.commits import seals_of_auditor
from lethe.consumers.audit.published.bundle import new_file
from lethe.consumers.audit.published.checkpoint import (
    Checkpoint,
    parse_since,
    read_checkpoint,
    write_checkpoint,
)
from lethe.consumers.audit.published.finding import Finding, Result, Verdict
from lethe.consumers.audit.refit import Holding, read_ids
from lethe.consumers.cli.terminal.options import cosigned_option, global_options, trust_option
from lethe.consumers.cli.terminal.output import Output, counted, prepare, wrapped
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.contract.tlog import read_notes
from lethe.consumers.contract.witnesses import read_policy
from lethe.consumers.server.console.offline import audit_page
from lethe.consumers.service.configuration.signing_keys import keys_of_auditor, trusted_file
from lethe.consumers.service.connect import open_runtime

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(short_help="Check a model's whole published history.")
@click.argument("model", required=False)
@click.option(
    "--bundle", type=_FILE, metavar="FILE", help="Check an exported file, without servers."
)
@click.option("--export", type=_FILE, metavar="FILE", help="Also write such a file.")
@trust_option
@click.option(
    "--checkpoint", type=_FILE, metavar="FILE",
    help="Require that history continues from the checkpoint in this file, then update it.",
)  # fmt: skip
@click.option("--since", metavar="VERSION:DIGEST", help="Require this version in the history.")
@click.option(
    "--policy", type=_FILE, metavar="FILE",
    help="Require the cosignatures of witnesses that this file names (C2SP tlog-policy).",
)  # fmt: skip
@cosigned_option
@click.option("--strict", is_flag=True, help="Exit code 1 also if something was not checked.")
@click.option("--no-bound", is_flag=True, help="Do not retrain to check the bound.")
@click.option("--data", type=_FILE, metavar="FILE", help="With --bundle: the training file.")
@click.option("--id", "id_column", metavar="COLUMN", help="The column of row ids in that file.")
@click.option(
    "--target", "targets", multiple=True, metavar="COLUMN",
    help="Target columns in that file. Default: those of the parameters.",
)  # fmt: skip
@click.option("--deleted", type=_FILE, metavar="FILE", help="Ids of deleted rows, one per line.")
@click.option("--ridge", type=float, metavar="R", help="Ridge strength. Default: the bundle's.")
@click.option(
    "--page", type=_FILE, metavar="FILE",
    help="Write a web page that checks exported files on any machine, in a browser, and end.",
)  # fmt: skip
@global_options
@click.pass_context
def audit(ctx: click.Context, /, **options: Any) -> int:
    """Replay the published history of MODEL and check it.

    Each check is OK, FAILED, NOT PROVED (no key that you trust vouches for it, or something is
    missing) or NOT CHECKED.

    Checks the records, the chain of versions, signatures by trusted keys, the newest parameters,
    receipts against versions, rows deleted and the Merkle receipt log; commits, as far as the
    log retains them, and their contents if the seal key is available; then the state in the store
    against all of that, and theta against retraining on the live rows. Exit code 1 if a check
    failed, or was not proved.

    With --bundle it needs no server: an auditor can check a file from --export anywhere, or one
    with the evidence of an erasure (`lethe erasures --bundle`). Given the training file and the
    list of deleted ids as well, it also retrains.

    \b
    Examples:
      lethe audit churn --export churn.bundle
      lethe audit --bundle churn.bundle --trust public-keys
      lethe audit --bundle churn.bundle --data rows.parquet --id customer \\
        --deleted gone.txt
      lethe audit --page audit.html
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    if (page := options.pop("page")) is not None:
        return _write_page(out, page, options)
    _check_usage(options)
    policy = None if options["policy"] is None else read_policy(options["policy"])
    cosigned = read_notes(options["cosigned"])
    trusted = trusted_file(settings) if options["bundle"] is not None else keys_of_auditor(settings)
    if options["bundle"] is not None:
        with out.progress() as report:
            outcome: Audit | ErasureAudit = audit_bundle(
                options["bundle"],
                model_id=options["model"],
                trusted=trusted,
                remembered=_remembered(options),
                holding=_holding(options),
                policy=policy,
                cosigned=cosigned,
                progress=report,
            )
    else:
        with (
            open_runtime(settings) as runtime,
            closing(runtime.log.reader()) as reader,
            out.progress() as report,
        ):
            store = runtime.store()
            outcome = audit_model(
                store,
                reader,
                options["model"],
                trusted=trusted,
                seals=seals_of_auditor(runtime, store),
                remembered=_remembered(options),
                export=options["export"],
                bound=not options["no_bound"],
                log_alone=settings.redis_url is None and runtime.log.name == "kafka",
                policy=policy,
                cosigned=cosigned,
                progress=report,
            )
    return _answer(out, outcome, options)


def _write_page(out: Output, path: Path, others: dict[str, Any]) -> int:
    """Write the audit page, which belongs to no model and needs no server."""
    if any(value not in (None, False, ()) for value in others.values()):
        raise click.UsageError("--page writes a page for any exported file: give nothing else")
    with new_file(path, encoding="utf-8") as file:
        file.write(audit_page())
    out.document({"page": str(path)})
    out.line(f"{path} written: open it in a browser")
    return 0


def _check_usage(options: dict[str, Any]) -> None:
    offline = options["bundle"] is not None
    if not offline and options["model"] is None:
        raise click.UsageError("give a MODEL, or --bundle FILE")
    if offline and options["export"] is not None:
        raise click.UsageError("--export reads the servers; --bundle reads none")
    if options["since"] is not None and options["checkpoint"] is not None:
        raise click.UsageError("give --since or --checkpoint, not both")
    rows = [options["data"], options["id_column"], options["deleted"], options["ridge"]]
    if not offline and (any(value is not None for value in rows) or options["targets"]):
        raise click.UsageError("--data, --id, --target, --deleted and --ridge require --bundle")
    if options["data"] is not None and options["id_column"] is None:
        raise click.UsageError("--data needs --id, the column of row ids")
    if options["data"] is None and (any(value is not None for value in rows) or options["targets"]):
        raise click.UsageError("--id, --target, --deleted and --ridge require --data")


def _remembered(options: dict[str, Any]) -> Callable[[str], Checkpoint | None]:
    def remembered(model_id: str) -> Checkpoint | None:
        if options["since"] is not None:
            return parse_since(options["since"])
        path = options["checkpoint"]
        return None if path is None else read_checkpoint(path, model_id)

    return remembered


def _holding(options: dict[str, Any]) -> Holding | None:
    if options["data"] is None or options["no_bound"]:
        return None
    return Holding(
        options["data"],
        options["id_column"],
        options["targets"],
        frozenset() if options["deleted"] is None else read_ids(options["deleted"]),
        options["ridge"],
    )


# -- what is printed ----------------------------------------------------------------------------


def _answer(out: Output, outcome: Audit | ErasureAudit, options: dict[str, Any]) -> int:
    failed, not_checked = outcome.count(Result.FAILED), outcome.count(Result.NOT_CHECKED)
    not_proved, verdict = outcome.count(Result.NOT_PROVED), outcome.verdict
    about, lines = _of_erasure(outcome) if isinstance(outcome, ErasureAudit) else _of_model(outcome)
    if options["checkpoint"] is not None and not failed and isinstance(outcome, Audit):
        write_checkpoint(options["checkpoint"], outcome.history)
    out.document(
        {
            **about,
            "ok": verdict is Verdict.HOLDS,
            "verdict": verdict.value,
            "failed": failed,
            "not_proved": not_proved,
            "not_checked": not_checked,
            "checks": [
                {"check": one.check, "result": one.result.value, "detail": one.detail}
                for one in outcome.findings
            ],
        }
    )
    for line in table_of(outcome.findings):
        out.line(line)
    if isinstance(outcome, Audit) and outcome.exported is not None:
        out.line(f"{options['export']}: {counted(outcome.exported, 'record')} written")
    for line in lines:
        out.line(line)
    others = ((not_proved, "not proved"), (not_checked, "not checked"))
    rest = "".join(f", {count} {what}" for count, what in others if count)
    out.line(f"{verdict}: {counted(len(outcome.findings), 'check')}, {failed} failed{rest}")
    return int(verdict is not Verdict.HOLDS or bool(options["strict"] and not_checked))


def _of_model(outcome: Audit) -> tuple[dict[str, Any], list[str]]:
    """Return what is said of a model besides the checks, for programs and for people."""
    tip, head = outcome.history.tip, outcome.history.head
    document = {
        "model_id": outcome.history.model_id,
        "version": None if tip is None else tip.event.version,
        "digest": None if tip is None else tip.event.digest,
        "receipt_log": None if head is None else head.model_dump(),
        "exported_records": outcome.exported,
    }
    return document, [] if tip is None else [f"newest: {tip.event.version}:{tip.event.digest}"]


def _of_erasure(outcome: ErasureAudit) -> tuple[dict[str, Any], list[str]]:
    """Return the same of an erasure."""
    evidence = outcome.evidence
    receipt, opened = evidence.receipt, evidence.opened
    document = {
        "erasure_id": evidence.erasure_id,
        "status": None if receipt is None else receipt.status,
        "completed_at": None
        if receipt is None or receipt.completed_at is None
        else rfc3339(receipt.completed_at),
        "subject_id": opened,
        "models": sorted(evidence.models),
    }
    status = "no combined receipt" if receipt is None else receipt.status
    return document, [f"erasure {evidence.erasure_id}: {status}"]


def table_of(findings: Sequence[Finding]) -> list[str]:
    """Return findings as lines of a table whose last column is wrapped."""
    first = max(len(one.check) for one in findings)
    second = max(len(result.value) for result in Result)
    return [
        line
        for one in findings
        for line in wrapped(one.detail, f"{one.check:<{first}}  {one.result.value:<{second}}  ")
    ]
