"""``lethe erase``: sends erasures of persons, and optionally waits for their combined receipts.

Only its options are here, so that ``--help`` and usage errors come at once; `erasure`
does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lethe.consumers.cli.terminal.options import global_options, sign_option, wait_option


@click.command(short_help="Erase a person from every model.")
@click.argument("subject", required=False)
@click.option(
    "--file", type=click.Path(path_type=Path, allow_dash=True), metavar="F",
    help="Erase everybody in a file: one subject per line, optionally followed by a tab and the "
    "identity of the erasure; - reads standard input.",
)  # fmt: skip
@click.option(
    "--namespace", metavar="N",
    help="Namespace of the subjects, where several systems number people independently: the "
    "erasure concerns the models registered with the same --namespace. Default: those "
    "registered without one.",
)  # fmt: skip
@click.option(
    "--erasure-id", metavar="R",
    help="Identity of the erasure; a repeat is answered again, but not executed again. Default: a "
    "random one. With --file, -1, -2 and so on are appended, line by line.",
)  # fmt: skip
@click.option("--reason", metavar="T", help="The reason, kept with the request in the log.")
@click.option(
    "--lift", is_flag=True,
    help="End the suppression of SUBJECT instead: their rows may be registered and inserted again.",
)  # fmt: skip
@sign_option
@wait_option("the combined receipts", 60)
@global_options
@click.pass_context
def erase(ctx: click.Context, /, **options: Any) -> int:
    """Erase SUBJECT from every model that knows them, and keep them out of all models from then on.

    A worker (`lethe work`) asks the models and publishes one receipt for all of them on the topic
    lethe.erasure-receipts. Exit code 1, with --wait only: a model is not covered (it was registered
    without --subject) or has refused, or no final receipt came in time.

    \b
    Examples:
      lethe erase "household 7" --wait
      lethe erase 4711 --namespace crm --erasure-id ticket-2041
      lethe erase "household 7" --lift
      lethe erase --file closed-accounts.txt --erasure-id ticket-2042 --wait 300
    """  # noqa: D301 - click looks for the character
    if (options["subject"] is None) == (options["file"] is None):
        raise click.UsageError("give a SUBJECT, or --file")
    from lethe.consumers.cli.send.erasure import send  # noqa: PLC0415 - what --help need not wait for

    return send(ctx, options)
