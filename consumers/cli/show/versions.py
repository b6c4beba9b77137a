"""``lethe versions``."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing

import click

from lethe.consumers.cli.terminal.options import global_options
from lethe.consumers.cli.terminal.output import (
    Output,
    aligned,
    counted,
    error_number,
    number,
    prepare,
)
from lethe.consumers.cli.terminal.stopping import stopped_by
from lethe.consumers.contract.events import Version
from lethe.consumers.service.configuration.signing_keys import trusted_keys
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.subscriber.history import HistoryReader
from lethe.engine.errors import UnknownModel
from lethe.engine.store.layout.records import Certificate, OutputCertificateRecord

_COLUMNS = (
    "VERSION>", "GEN>", "STATUS", "LIVE>", "DELETED>", "ERROR>", "KNOWN AS", "REQUESTS>",
    "REFRESH", "CREATED", "DIGEST",
)  # fmt: skip
_WIDTHS = (7, 3, 19, 8, 8, 9, 11, 8, 10, 24, 12)


@click.command(short_help="Show a model's versions, each link checked.")
@click.argument("model")
@click.option("--follow", is_flag=True, help="Continue with new versions until interrupted.")
@global_options
@click.pass_context
def versions(ctx: click.Context, /, *, model: str, follow: bool) -> None:
    """Show the history of MODEL as a subscriber reads it from lethe.versions.

    Each version's digest is recomputed and its link to the one before is checked; a version that
    was altered, removed or replaced ends the command with exit code 1, and nothing after it is
    shown. If LETHE_TRUSTED_KEYS names a file of public keys, a version that none of them vouches
    for ends it as well. With --follow, --json prints one document per line.

    \b
    Examples:
      lethe versions churn
      lethe versions churn --follow --json
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    with open_runtime(settings) as runtime, closing(runtime.log.reader()) as reader:
        stop = threading.Event()
        trusted = trusted_keys(settings)
        read = HistoryReader(reader, model, trusted=trusted)
        chain = read.versions(follow=follow, stop=stop)
        if follow:
            if model not in runtime.models():
                text = f"lethe: model {model!r} is not registered yet; waiting for version 0"
                click.echo(text, err=True)
            with stopped_by(stop, signal.SIGINT):
                _follow(out, chain, stop)
            raise KeyboardInterrupt
        shown = list(chain)
    if not shown:
        raise UnknownModel(
            f"model {model!r} has no published version; `lethe status` lists the models"
        )
    out.document({"model_id": model, "versions": [v.model_dump(mode="json") for v in shown]})
    out.table(*_with_certificates(shown))
    signed = "" if trusted is None else ", signed by a trusted key"
    out.line(f"{counted(len(shown), 'version')}, every link checked{signed}")
    if read.passed_over:
        left = counted(read.passed_over, "record")
        out.line(f"left out: {left} under the model's key that no trusted key signed")


def _with_certificates(
    shown: Sequence[Version],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows; a certified model has one more column, what it has spent."""
    rows = [tuple(_cells(version)) for version in shown]
    if all(version.certificate is None for version in shown):
        return _COLUMNS, rows
    spent = [_spent(version.certificate) for version in shown]
    return (*_COLUMNS, "SPENT>"), [
        (*row, number(one)) for row, one in zip(rows, spent, strict=True)
    ]


def _spent(certificate: Certificate | None) -> float | None:
    if isinstance(certificate, OutputCertificateRecord):
        return certificate.epsilon_spent
    return None if certificate is None else certificate.spent


def _follow(out: Output, chain: Iterable[Version], stop: threading.Event) -> None:
    """Print versions as they come, in columns of fixed width."""
    out.line(aligned(_COLUMNS, [name.rstrip(">") for name in _COLUMNS], _WIDTHS))
    for version in chain:
        if stop.is_set():
            return
        out.line(aligned(_COLUMNS, _cells(version), _WIDTHS))
        out.json_line(version.model_dump(mode="json"))
        sys.stdout.flush()


def _cells(version: Version) -> list[str]:
    plain = version.model_dump(mode="json", include={"created_at"})
    return [
        str(version.version),
        str(version.generation),
        version.status,
        str(version.rows_live),
        str(version.rows_deleted),
        error_number(version.error.relative),
        version.error.kind,
        str(len(version.request_ids)),
        "-" if version.refresh is None else version.refresh.size.value,
        plain["created_at"],
        version.digest[:12],
    ]
