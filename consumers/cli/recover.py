"""``lethe recover``."""

from __future__ import annotations

import click

from lethe.consumers.cli.terminal.options import global_options
from lethe.consumers.cli.terminal.output import agreed, prepare
from lethe.consumers.registration.log_loss import Plan, Recovery
from lethe.consumers.registration.writer import committing
from lethe.consumers.service.connect import open_runtime


@click.command(short_help="Last resort: continue from the store after the log lost commits.")
@click.argument("model")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@global_options
@click.pass_context
def recover(ctx: click.Context, /, *, model: str, yes: bool) -> int:
    """Continue the log of MODEL from what the store holds, after the log lost acknowledged commits.

    For LOG_RESET and LOG_GAP, if the log cannot be restored. Stop all workers first. If a whole
    partition of lethe.commits lost its end or was recreated, every model in it that needs recovery
    is recovered with MODEL. The command refuses if published versions or receipts are ahead of the
    store. It asks for confirmation.

    \b
    Example:
      lethe recover churn
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    with (
        open_runtime(settings) as runtime,
        out.progress() as report,
        committing(Recovery, runtime, runtime.store(), report) as recovering,
    ):
        plan = recovering.plan(model)
        for line in _lines(plan):
            click.echo(f"lethe: {line}", err=True)
        if not agreed("Continue from the store, with all workers stopped?", yes=yes):
            out.document({"model_id": model, "recovered": []})
            out.line("nothing was changed")
            return 1
        sealed = recovering.run(plan)
    recovered = [
        {
            "model_id": one.commit.model_id,
            "commit": one.commit.number,
            "digest": one.digest,
        }
        for one in sealed
    ]
    out.document({"model_id": model, "recovered": recovered})
    for one in recovered:
        out.line(f"recovered {one['model_id']}: commit {one['commit']} continues from the store")
    if not recovered:
        out.line("no model has lost commits; the partition will be read again")
    return 0


def _lines(plan: Plan) -> list[str]:
    """Return what the store and the log hold, one line per model."""
    where = f"partition {plan.index} of {plan.tail.partition.topic}"
    lines = [] if plan.restart is None else [f"{where} lost commits or was recreated"]
    for state, tip in plan.models:
        last = "none of its commits" if tip.head.commit < 0 else f"commit {tip.head.commit} as last"
        lines.append(
            f"model {state.model_id}: the store holds commit {state.head.commit}, version "
            f"{state.version}, {state.meta.rows_live} rows; the log has {last}"
        )
    return lines
