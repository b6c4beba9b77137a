"""``lethe delete``: sends one deletion request, and optionally waits for its receipt.

Only its options are here, so that ``--help`` and usage errors come at once; `deletion`
does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lethe.consumers.cli.terminal.options import global_options, sign_option, wait_option


@click.command(short_help="Send one deletion request.")
@click.argument("model")
@click.argument("more_rows", nargs=-1, metavar="")
@click.option(
    "--row", "rows", multiple=True, metavar="ID", help="A row to forget; --row A B C also works."
)
@click.option(
    "--rows-file", type=click.Path(path_type=Path, allow_dash=True), metavar="F",
    help="A file with one row id per line; - reads standard input.",
)  # fmt: skip
@click.option("--subject", metavar="ID", help="Forget every row of a subject.")
@click.option("--strict", is_flag=True, help="Send nothing if a row never belonged to the model.")
@click.option(
    "--request-id", metavar="R",
    help="Identity of the request; a repeat is answered again, but not executed again. "
    "Default: a random one.",
)  # fmt: skip
@click.option("--reason", metavar="T", help="The reason, kept with the request in the log.")
@sign_option
@wait_option("the receipt", 60)
@global_options
@click.pass_context
def delete(ctx: click.Context, /, **options: Any) -> int:
    """Send one request to forget rows of MODEL: some rows, or all rows of a subject.

    A worker (`lethe work`) processes it. Without --wait, the command prints the request id, and the
    receipt is published on the topic lethe.receipts. Exit code 1, with --wait only: the request was
    rejected, or no receipt came in time. Without --wait, the exit code is 0 once the request is in
    the log, even if a warning says that it will be rejected.

    \b
    Examples:
      lethe delete churn --row u17 --row u42 --wait
      lethe delete churn --subject "household 7" --request-id erasure-2041
      lethe delete churn --rows-file withdrawn.txt --wait 300
    """  # noqa: D301 - click looks for the character
    if options["more_rows"] and not options["rows"]:
        raise click.UsageError("name rows with --row; MODEL is the only argument without an option")
    options["rows"] += options.pop("more_rows")
    if sum(options[name] not in (None, ()) for name in ("rows", "rows_file", "subject")) != 1:
        raise click.UsageError("give one of --row, --rows-file and --subject")
    from lethe.consumers.cli.send.deletion import send  # noqa: PLC0415 - what --help need not wait for

    return send(ctx, options)
