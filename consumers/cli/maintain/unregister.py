"""``lethe unregister``."""

from __future__ import annotations

import click

from lethe.consumers.cli.terminal.options import global_options
from lethe.consumers.cli.terminal.output import agreed, counted, prepare
from lethe.consumers.registration.committing import committing
from lethe.consumers.registration.register import Registrar
from lethe.consumers.service.connect import open_runtime
from lethe.engine.store.lookup import read_summary


@click.command(short_help="Delete a model's rows and state; its history stays.")
@click.argument("model")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@global_options
@click.pass_context
def unregister(ctx: click.Context, /, *, model: str, yes: bool) -> int:
    """Delete every row of MODEL from the store, and its state.

    Its published versions stay, and so does the record of deleted rows: `lethe register` continues
    from there. Requests that wait for a rebuild get their final receipts; later ones are rejected.
    The command asks for confirmation.

    \b
    Example:
      lethe unregister churn
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    with open_runtime(settings) as runtime:
        store = runtime.store()
        summary = read_summary(store.client, model)
        rows, waiting = summary.meta.rows_live, summary.deferred
        also = f"; {counted(waiting, 'deferred request')} will be rejected" if waiting else ""
        question = (
            f"Unregister {model}, version {summary.version}: delete its "
            f"{counted(rows, 'live row')} and its state{also}?"
        )
        if not agreed(question, yes=yes):
            out.document({"model_id": model, "commit": None})
            out.line("nothing was changed")
            return 1
        with (
            out.progress() as report,
            committing(Registrar, runtime, store, report) as registering,
        ):
            head = registering.unregister(model)
    out.document({"model_id": model, "commit": head.commit, "rows": rows, "rejected": waiting})
    out.line(f"unregistered {model}: {counted(rows, 'row')} deleted; its history stays")
    return 0
